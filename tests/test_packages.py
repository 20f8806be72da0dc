"""The shape of the source tree, as the design page promises it."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "privatile"
LONG = {"simulation/kernels.py", "estimator/straddle.py"}
"""Compiled as one file, because numba's cache does not notice edits of callees in other files; and one algorithm that
is read from top to bottom, with the measurements behind its constants."""


def packages() -> list[Path]:
    return sorted(path.parent for path in SOURCE.rglob("__init__.py"))


@pytest.mark.parametrize("package", packages(), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_a_package_says_what_it_is_for_and_what_is_public(package: Path) -> None:
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    assert len(ast.get_docstring(tree) or "") > 60
    names = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert "__all__" in names


def test_few_entries_at_the_top() -> None:
    entries = [path.name for path in SOURCE.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 20, sorted(entries)


def test_no_long_file() -> None:
    long = {
        path.relative_to(ROOT).as_posix(): lines
        for folder in ("src", "studies", "apps")
        for path in (ROOT / folder).rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 800
        and not any(path.as_posix().endswith(name) for name in LONG)
    }
    assert not long


def test_the_contract_lists_at_most_fourteen_layers_and_forbids_the_client_all_but_core() -> None:
    """What the contract lists; that the imports keep to it is checked by lint-imports."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(each["layers"] for each in contracts if each["name"] == "Imports go downward only")
    assert len(layers) <= 14
    boundary = next(each for each in contracts if each["name"].startswith("The privacy boundary"))
    everything = {f"privatile.{path.stem}" for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert everything - set(boundary["forbidden_modules"]) == {"privatile.client", "privatile.core"}


def test_what_a_service_installs_by_hash_is_what_was_tested() -> None:
    """production/requirements.txt has every requirement of the services' extras, in the version of constraints.txt."""
    tested = pinned(ROOT / "constraints.txt")
    installed = pinned(ROOT / "production" / "requirements.txt")
    assert installed.items() <= tested.items()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra in ("federation", "broker", "dashboard", "survey"):
        needed = {re.split(r"[^\w.-]", line)[0].lower().replace("_", "-") for line in extras[extra]}
        assert needed <= installed.keys(), extra


def pinned(path: Path) -> dict[str, str]:
    lines = (line.split()[0].partition("==") for line in path.read_text(encoding="utf-8").splitlines() if "==" in line)
    return {name.lower().replace("_", "-"): version for name, _, version in lines}
