"""Every command and code block of the documentation runs; every page is built without a warning and stays offline."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from privatile.core.sample_tables import write_tables
from privatile.errors import how_to_install
from tests.docs.page_blocks import SETUP, blocks, commands, lines
from tests.docs.stale_lines import stale_setup, stale_spans

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), README])
PAGES = [page for page in PAGES if "_build" not in page.parts]


OF_FLOWER = ROOT / "docs" / "flower.md"
"""Needs Flower's own environment: apps/flower/tests/test_runs.py runs it there, and checks what it leaves."""

LONG_PAGES = (ROOT / "docs" / "paper.md", ROOT / "docs" / "tasks" / "audit.md")
"""One computes all tables of the paper, twice, the other audits a client: `make test-long` runs them.
tests/paper and tests/federation/test_audit.py have their parts."""

OF_R = ROOT / "docs" / "tasks" / "r.md"

RUNBOOK = ROOT / "docs" / "runbook.md"
"""Here a run goes on from the first command to the last: its rounds are a moment apart (paced.py)."""

LONGEST_PAGE = 300.0
"""Seconds: a page that takes longer has hung."""


CURL = """import sys, time, urllib.error, urllib.request
for _ in range(60):
    try:
        print(urllib.request.urlopen("http://" + sys.argv[-1], timeout=10).read().decode())
        break
    except urllib.error.HTTPError as answer:
        print(answer.read().decode())
        break
    except OSError:
        time.sleep(0.5)
else:
    sys.exit(7)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A `privatile` command on the path, and state that is nobody's."""
    home = tmp_path_factory.mktemp("home")
    for folder, started in (("bin", "-m privatile"), ("paced", f'"{ROOT / "tests" / "docs" / "paced.py"}"')):
        (home / folder).mkdir()
        command = home / folder / "privatile"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {started} "$@"\n')
        command.chmod(0o755)
    if shutil.which("curl") is None:  # a machine without it runs the pages all the same
        stand_in = home / "bin" / "curl"
        stand_in.write_text(f"#!{sys.executable}\n{CURL}")
        stand_in.chmod(0o755)
    path = f"{home / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    source = f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {**os.environ, "PATH": path, "PYTHONPATH": source, "HOME": str(home)}


REGIONS = (
    "Far West", "Great Lakes", "Mideast", "New England", "Plains", "Rocky Mountain", "Southeast", "Southwest",
)  # fmt: skip


def furnish(folder: Path) -> None:
    """The files that pages talk about: those of `privatile demo`, and what the reader of one page has."""
    rng = np.random.default_rng(1)
    write_tables(folder)
    census = [f"{name},{40_000 * np.exp(rng.standard_normal() / 2):.0f}" for name in REGIONS for _ in range(400)]
    (folder / "census.csv").write_text("economic_region,salary\n" + "\n".join(census) + "\n")
    # Scripts of the project that a page starts, apart from the project: they may write beside themselves.
    shutil.copytree(ROOT / "studies", folder / "studies")


@pytest.mark.process
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != OF_FLOWER], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_block_runs(page: Path, environment: dict[str, str], tmp_path: Path) -> None:
    if not blocks(page.read_text(encoding="utf-8")):
        return
    if page in LONG_PAGES and "PRIVATILE_LONG" not in os.environ:
        pytest.skip("takes half a minute or more: PRIVATILE_LONG=1 runs it")
    if page == OF_R and shutil.which("Rscript") is None:
        pytest.skip("THE PAGE ON R IS NOT TESTED: Rscript (Debian: r-base-core) is not installed")
    if page != README:  # which begins in an empty folder, as its reader does
        furnish(tmp_path)
    mine = {**environment, "XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    if page == RUNBOOK and "PRIVATILE_LONG" not in os.environ:
        mine["PATH"] = f"{Path(environment['HOME']) / 'paced'}{os.pathsep}{environment['PATH']}"
    command = [sys.executable, str(ROOT / "tests" / "docs" / "page_blocks.py"), str(page)]
    output = tmp_path / "output.txt"
    with output.open("w") as file:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=mine, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(LONGEST_PAGE)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            # Whatever a page left in the background ends with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert code == 0, output.read_text()[-5000:]
    made_again = tmp_path / "docs" / page.name
    if made_again.exists():  # a page that its own commands write: only numbers may differ
        assert words(made_again) == words(page)


def words(page: Path) -> list[str]:
    """The sentences of a page without their numbers, and without tables."""
    text = page.read_text(encoding="utf-8")
    return [re.sub(r"[-+]?\d[\d.,]*", "#", line) for line in text.splitlines() if not line.startswith("|")]


def test_the_runner_sees_what_it_should() -> None:
    text = (
        "x\n```console\n$ echo a \\\n  b\noutput\n$ pip install x\n$ false\n```\n\n- list\n\n"
        "  ```python\n  y = 1\n  ```\n```text\nno\n```\n"
    )
    found = blocks(text)
    assert [block.language for block in found] == ["console", "python"]
    assert commands(found[0].body) == "echo a \\\n  b\nfalse"
    assert lines(found[0].body)[1] == "pip install x"
    assert found[1].body == "y = 1"


def unexplained_tables(text: str) -> list[str]:
    """Tables of the demo that a page's commands read without a word about where they come from."""
    console = "\n".join(block.body for block in blocks(text) if block.language == "console")
    named = [name for name in ("salaries.csv", "waiting.csv") if re.search(rf"\b{name}\b", console)]
    return [name for name in named if f"`{name}`" not in text or "privatile demo" not in text]


def test_pages_say_where_their_tables_come_from() -> None:
    for page in PAGES:
        assert unexplained_tables(page.read_text(encoding="utf-8")) == [], page
    assert unexplained_tables("```console\n$ privatile estimate salaries.csv\n```\n") == ["salaries.csv"]


@pytest.mark.process
def test_a_page_that_is_wrong_fails(tmp_path: Path, environment: dict[str, str]) -> None:
    runner = [sys.executable, str(ROOT / "tests" / "docs" / "page_blocks.py")]
    for body in ("```console\n$ privatile estimate nothing.csv\n```\n", "```python\nimport privatile.nothing\n```\n"):
        (tmp_path / "page.md").write_text(body)
        done = subprocess.run([*runner, tmp_path / "page.md"], env=environment, capture_output=True, check=False)
        assert done.returncode != 0


def test_no_command_hides_in_a_block_that_is_not_run() -> None:
    """Commands stand in console blocks, code in python blocks; the rest is for reading."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for language in re.findall(r"^\s*```(\w+)", text, re.M):
            assert language in {"python", "console", "text", "toml", "json"}, f"{page}: {language}"
        for command in re.findall(r"^ {4,}(?:\$ )?(privatile .*)", text, re.M):
            raise AssertionError(f"{page}: {command}")
        for body in re.findall(
            r"^```(?:text)?\n(.*?)^```$", re.sub(r"^```[\w{].*?^```$", "", text, flags=re.S | re.M), re.S | re.M
        ):
            assert "privatile " not in body, f"{page}: {body}"


def test_what_is_not_run_names_what_there_is() -> None:
    """Lines that install or make something, and commands inside sentences: none of them is stale."""
    checked = 0
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        text = page.read_text(encoding="utf-8")
        for block in blocks(text):
            for line in lines(block.body) if block.language == "console" else []:
                if line.startswith(SETUP):
                    assert not (wrong := stale_setup(line)), f"{page}:{block.line}: {wrong}"
                    checked += 1
        assert stale_spans(text) == [], page
    assert checked >= 5


@pytest.mark.parametrize(
    "line",
    [
        "make nothing",
        "make",
        "pip install",
        "pip install privatile",
        "pip install 'privatile[simulation]'",
        "pip install '.[plots]'",
        "pip install ./elsewhere",
        "pip install -r production/gone.txt",
        "apt-get install x",
    ],
)
def test_a_stale_line_is_found(line: str) -> None:
    assert stale_setup(line)
    for span in ("privatile estimatte x", "privatile report run.db --figur a.svg", "privatile federation nothing DIR"):
        assert stale_spans(f"Say `{span}` now.")


@pytest.mark.parametrize(
    "line",
    [
        "pip install .",
        "pip install -e .",
        "pip install '.[report,simulation]'  # both",
        "pip install --no-build-isolation -r production/requirements.txt",
    ],
)
def test_a_line_that_works_from_a_clone_is_not_stale(line: str) -> None:
    assert not stale_setup(line)


def test_messages_name_a_command_that_installs_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra in project["optional-dependencies"]:
        command, _, where = how_to_install(extra).partition(" in a ")
        assert not stale_setup(command)
        assert where.startswith("clone")
    for file in (ROOT / "src").rglob("*.py"):
        assert "privatile[" not in file.read_text(encoding="utf-8"), f"{file}: privatile is on no index"


@pytest.mark.process
def test_every_extra_is_listed_for_its_reader() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = set(project["optional-dependencies"]) - {"docs", "test"}  # those are for taking part
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "start" / "engineer.md").read_text(encoding="utf-8"), re.M)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == wanted


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx", reason="THE SITE IS NOT BUILT: the docs extra is missing")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", ROOT / "docs", folder],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_asks_no_other_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for loaded in re.findall(r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']([^"']+)""", text):
            assert not loaded.startswith(("http", "//")), f"{page.name} loads {loaded}"
        for loaded in re.findall(r"""<link[^>]*\shref=["']([^"']+)""", text):
            assert not loaded.startswith(("http", "//")), f"{page.name} links {loaded}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name
    how = (site / "start" / "how.html").read_text(encoding="utf-8")
    assert "<math" in how
    assert "MathJax" not in how


@pytest.mark.slow
def test_every_page_is_reached_and_every_picture_is_there(site: Path) -> None:
    listed = (site / "index.html").read_text(encoding="utf-8")
    for page in PAGES:
        if page.parent.name != ROOT.name and page.name not in ("index.md", "README.md"):
            name = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
            assert f'href="{name}"' in listed, f"{name} is in no table of contents"
    for page in PAGES:
        for picture in re.findall(r"(?:\{image\} |!\[[^\]]*\]\()([\w./-]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / picture).is_file(), f"{page}: {picture}"


@pytest.mark.process
def test_the_pictures_are_drawn_by_the_library(tmp_path: Path) -> None:
    """The figures of "How it works" come out of their script, all of them and no others."""
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "figures.py", tmp_path, "3"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    kept = {path.name for path in (ROOT / "docs" / "_static" / "how").iterdir()}
    assert {path.name for path in tmp_path.iterdir()} == kept
