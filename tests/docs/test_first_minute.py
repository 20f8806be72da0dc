"""The first minute of a newcomer: what the README's first screen says works from a clone and from a wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.page_blocks import blocks, commands

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FIRST_BLOCK = commands(blocks(README)[0].body)
FIRST_SCREEN = 24
"""Lines."""

MOST_WORDS = 1_050
"""The README had 1,127 before it got its first screen."""


def names_the_two_commands(text: str) -> bool:
    screen = "\n".join(text.splitlines()[:FIRST_SCREEN])
    return all(command in screen for command in ("`make demo`", "`make test`", "$ privatile demo\n"))


def test_the_first_screen_names_the_two_commands_and_the_rest_stays_short() -> None:
    assert names_the_two_commands(README)
    assert not names_the_two_commands("\n" * FIRST_SCREEN + README)
    assert len(README.split()) <= MOST_WORDS
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^demo: .*\n\t\$\(VENV\)/bin/privatile demo$", makefile, re.M)


def test_the_first_block_needs_no_file_that_the_reader_does_not_have() -> None:
    """It begins with the demo, which writes the table; test_pages.py runs it from an empty folder."""
    assert FIRST_BLOCK.startswith("privatile demo\n")
    assert set(re.findall(r"[\w./-]+\.(?:csv|db|toml|parquet)\b", FIRST_BLOCK)) == {
        "salaries.csv",
        "trial.db",
        "run.db",
    }


def test_all_is_every_extra_but_those_for_a_gpu_and_for_taking_part() -> None:
    extras = dict(PROJECT["optional-dependencies"])
    [everything] = extras.pop("all")
    named = set(re.findall(r"[\w-]+", everything.removeprefix("privatile")))
    assert named == set(extras) - {"gpu", "docs", "test"}


def test_addresses_of_the_package_are_real_or_absent() -> None:
    for address in PROJECT.get("urls", {}).values():
        assert not re.search(r"\.(example|test|invalid)\b|//localhost|example\.", address)


@pytest.mark.skipif("PRIVATILE_LONG" not in os.environ, reason="make test-long")
@pytest.mark.process
def test_the_first_block_runs_from_a_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    """Built from the sources, installed with what pip finds for it, and started in an empty folder."""
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run([sys.executable, *build], check=True)
    [wheel] = tmp_path.glob("privatile-*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    own |= {"PATH": f"{tmp_path / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path / "home")}
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        own[name] = str(tmp_path / name)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([python, *pip, "install", "-c", ROOT / "constraints.txt", wheel], env=own, check=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", FIRST_BLOCK], cwd=empty, env=own, capture_output=True, text=True, check=False
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr
    assert "true median" in done.stdout
    assert {"salaries.csv", "run.db"} < {path.name for path in empty.iterdir()}
    assert list(empty.glob("*.html"))
