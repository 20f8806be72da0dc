"""Files of the repository that say something about the package say the same as the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import privatile

ROOT = Path(__file__).parents[2]


def test_every_file_gives_the_packages_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.M) == [privatile.__version__]
    flower = tomllib.loads((ROOT / "apps" / "flower" / "pyproject.toml").read_text(encoding="utf-8"))
    assert flower["project"]["version"] == privatile.__version__


def test_hosted_ci_runs_make_test() -> None:
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert re.search(r"^ +- run: make test PYTHON=python$", workflow, re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tested = re.findall(r"\d\.\d+", re.findall(r"python-version: \[(.*)\]", workflow)[0])
    assert [f"Programming Language :: Python :: {version}" for version in tested] == [
        line for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)
    ]
