# `make test` and `make demo` need only a Python of 3.11 or newer: everything else is set up in .venv.
PYTHON ?= python3
VENV := .venv
FLOWER := .venv-flower
RUN := $(VENV)/bin/python
# Most modules of most packages are never imported: compiling them all would take as long as installing them.
PIP := -m pip install --quiet --disable-pip-version-check --no-compile
# What builds packages is installed once, not anew for each. Older pips compare each file of an index with each tag of the
# machine, and take twice as long.
BUILDERS := $(PIP) -c constraints.txt 'pip>=25' hatchling editables setuptools
# The arrays are small: a second thread of OpenBLAS would wait for the first, by turning in place.
export OPENBLAS_NUM_THREADS := 1
EXTRAS := all,docs,test

.PHONY: test check check-tests test-long checks demo browser screenshots site constraints hashes lint types contract unit \
  unit-commands unit-compute unit-docs unit-federation unit-leaderless unit-pages unit-rest flower format clean

# Three jobs at a time for two cores, since some of them wait for processes: both environments first, then the checks and
# the parts of the suite.
# Files of tests lie in memory where there is room: on a disk each of many thousand commits waits for it.
MEMORY := /dev/shm
ROOM = test -w $(MEMORY) && test "$$(df -Pk $(MEMORY) | awk 'END { print $$4 }')" -gt 4000000

test:
	@if $(ROOM); then folder=$$(mktemp -d $(MEMORY)/privatile-test-XXXXXX); else folder=$$(mktemp -d); fi; \
	  trap 'rm -rf "$$folder"' EXIT; trap 'exit 130' INT TERM; \
	  TMPDIR=$$folder $(MAKE) --no-print-directory -j3 --output-sync=target lint unit types contract

checks: lint types contract

# A distribution of its own in the same environment, with the rules and the kits of tests/.
LEADERLESS := $(RUN) -m pytest -p tests.conftest apps/leaderless

# The fast loop: no process, browser, network or Monte Carlo.
QUICK := not (process or network or browser or faults or statistical or slow)

check: $(VENV)/.test
	$(MAKE) --no-print-directory -j2 --output-sync=target checks check-tests

check-tests: $(VENV)/.test
	$(RUN) -m pytest -m "$(QUICK)"
	$(LEADERLESS) -m "$(QUICK)"

# Every file of tests that has a long form, and Flower's own.
LONG = $(shell grep -rl --include='test_*.py' PRIVATILE_LONG tests)

test-long: $(VENV)/.test $(FLOWER)/.test
	PRIVATILE_LONG=1 $(RUN) -m pytest $(LONG)
	PRIVATILE_LONG=1 $(LEADERLESS)
	PRIVATILE_LONG=1 $(MAKE) --no-print-directory flower

$(VENV)/.build: constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "privatile needs Python 3.11 or newer")'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) $(BUILDERS)
	touch $@

$(VENV)/.base: $(VENV)/.build pyproject.toml
	$(RUN) $(PIP) --no-build-isolation -c constraints.txt -e .
	touch $@

$(VENV)/.test: $(VENV)/.build pyproject.toml apps/leaderless/pyproject.toml
	$(RUN) $(PIP) --no-build-isolation -c constraints.txt -e '.[$(EXTRAS)]' -e apps/leaderless
	touch $(VENV)/.base $@

lint: $(VENV)/.test
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .

types: $(VENV)/.test
	$(VENV)/bin/mypy

contract: $(VENV)/.test
	$(VENV)/bin/lint-imports

# Tests of pages and of services start processes and wait for them; others compute. The longest parts come first, and
# what is short last, so that no core is left alone with a long one.
COMMANDS := tests/api tests/cli tests/client tests/report
COMPUTE := tests/inference tests/laws tests/paper tests/simulation tests/statistical tests/studies
DOCS := tests/docs
FEDERATION := tests/federation
PAGES := tests/browser tests/dashboard tests/faults
PARTS := $(COMMANDS) $(COMPUTE) $(DOCS) $(FEDERATION) $(PAGES)

unit: unit-commands unit-pages unit-docs unit-compute unit-federation unit-leaderless unit-rest flower

# The compiled kernels are kept: compiled once before, two parts that begin with them do not both compile them.
$(VENV)/.kernels: $(VENV)/.test src/privatile/simulation/kernels.py
	$(RUN) -m pytest 'tests/simulation/test_kernels.py::test_drawing_reports_and_drawing_records_agree_in_law[C5]'
	touch $@

unit-commands: $(VENV)/.test
	$(RUN) -m pytest $(COMMANDS)

unit-compute: $(VENV)/.kernels
	$(RUN) -m pytest $(COMPUTE)

unit-docs: $(VENV)/.kernels
	$(RUN) -m pytest $(DOCS)

unit-federation: $(VENV)/.test
	$(RUN) -m pytest $(FEDERATION)

unit-leaderless: $(VENV)/.test
	$(LEADERLESS)

unit-pages: $(VENV)/.test browser
	PRIVATILE_BROWSER=required $(RUN) -m pytest $(PAGES)

unit-rest: $(VENV)/.test
	$(RUN) -m pytest $(addprefix --ignore=,$(PARTS))

# Debian's chromium, for tests that look at pages as people do.
browser:
	@command -v chromium > /dev/null || { \
	  test "$$(id -u)" = 0 && command -v apt-get > /dev/null && apt-get update -qq && apt-get install -y -qq chromium; \
	} || { echo "chromium is missing, and only root can install it. As root: apt-get install chromium" >&2; exit 1; }

screenshots: $(VENV)/.test browser
	$(RUN) docs/screenshots.py

site: $(VENV)/.test
	$(VENV)/bin/sphinx-build -W -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

demo: $(VENV)/.base
	$(VENV)/bin/privatile demo
	@echo "privatile is installed in $(VENV). To type its name alone: . $(VENV)/bin/activate"

# Flower pins packages that the rest does not, so its adapter has an environment of its own. The other's pip fills it.
INTO_FLOWER := $(RUN) -m pip --python $(FLOWER)/bin/python $(wordlist 3,99,$(PIP))
$(FLOWER)/.test: $(VENV)/.build pyproject.toml apps/flower/pyproject.toml constraints-flower.txt
	test -x $(FLOWER)/bin/python || $(PYTHON) -m venv --without-pip $(FLOWER)
	$(INTO_FLOWER) -c constraints.txt hatchling editables setuptools
	$(INTO_FLOWER) --no-build-isolation -c constraints-flower.txt -e . -e 'apps/flower[test]'
	touch $@

# With PRIVATILE_LONG=1 also in Flower's simulation, and docs/flower.md with a SuperLink and two SuperNodes.
flower: $(FLOWER)/.test
	$(FLOWER)/bin/python -m pytest apps/flower/tests

format: $(VENV)/.test
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

clean:
	rm -rf $(VENV) $(FLOWER) .mypy_cache .ruff_cache .pytest_cache .hypothesis salaries.csv waiting.csv

constraints: $(VENV)/.test $(FLOWER)/.test
	for each in "$(VENV) constraints.txt --all" "$(FLOWER) constraints-flower.txt"; do set -- $$each; \
	  ( echo "# Versions this project was tested with. Regenerate with: make constraints"; \
	    $(RUN) -m pip --python $$1/bin/python freeze $$3 --exclude-editable --exclude privatile --exclude privatile-leaderless --exclude pip | grep -v ' @ ' ) > $$2; \
	done

# production/: the same versions with the hashes of their files, for installs that check them.
hashes: $(VENV)/.test
	$(RUN) production/hashes.py
