"""Files of the repository that say something about the package say the same as the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import privatile

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = re.compile(r"(?<![\w./-])(?:tests|src|studies|docs|apps|examples|benchmarks)/[\w./-]*")
MODULES = re.compile(r"`([\w./]+\.py|[\w]+/[\w./]*)`")


def missing(text: str) -> list[str]:
    """Paths from the repository's root that the text names and that are not there."""
    named = {path.rstrip("./") for path in FOLDERS.findall(text)}
    return sorted(path for path in named if not (ROOT / path).exists())


def missing_modules(text: str) -> list[str]:
    """Modules and folders in backticks that are not there.

    A name counts from the root, from the package or from the tests. A bare name belongs to a folder named before it
    on the same line.
    """
    found = []
    for line in text.splitlines():
        folders = [ROOT, ROOT / "src" / "privatile", ROOT / "tests"]
        for name in MODULES.findall(line):
            path = next((folder / name for folder in folders if (folder / name).exists()), None)
            if path is None:
                found.append(name)
            else:
                folders.append(path if path.is_dir() else path.parent)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_a_page_names_exists(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design.md"])
def test_every_module_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [name for name in missing_modules(text) if name not in ("cli/NAME.py", "__init__.py")] == []


def test_paths_that_do_not_exist_are_found() -> None:
    assert missing("see `tests/test_gone.py`, docs/design.md.") == ["tests/test_gone.py"]
    assert missing_modules("`client/sources/` (`tables.py`, `gone.py`), `laws/gone.py`") == ["gone.py", "laws/gone.py"]


def test_every_file_gives_the_packages_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.M) == [privatile.__version__]
    for app in ("flower", "leaderless"):
        project = tomllib.loads((ROOT / "apps" / app / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["version"] == privatile.__version__


def test_the_wheel_holds_the_papers_designs_and_printed_values_only() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    folder = ROOT / "studies" / "paper"
    files = [*folder.glob("*.toml"), *folder.glob("published_*.csv")]
    assert wheel["wheel"]["force-include"] == {
        str(file.relative_to(ROOT)): f"privatile/paper/designs/{file.name}" for file in files
    }


def test_hosted_ci_runs_make_test() -> None:
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert re.search(r"^ +- run: make test PYTHON=python$", workflow, re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tested = re.findall(r"\d\.\d+", re.findall(r"python-version: \[(.*)\]", workflow)[0])
    assert [f"Programming Language :: Python :: {version}" for version in tested] == [
        line for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)
    ]
