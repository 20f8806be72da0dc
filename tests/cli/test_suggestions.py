"""Unknown commands, options and keywords name what was meant; errors speak the language of whoever called."""

import re
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

import privatile
from privatile.cli import main
from privatile.core.text import REMOVED
from privatile.errors import InputError
from privatile.planning.options import read_options


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("estimat x.csv", "Did you mean 'estimate'?"),
        ("Report run.db", "Did you mean 'report'?"),
        ("ledger shw", "Did you mean 'show'?"),
        ("estimate x.csv --epsilonn 1", "Did you mean '--epsilon'?"),
        ("estimate x.csv --quantile 0.5", "Did you mean '--q'?"),
        ("estimate x.csv --confidence 0.9", "Did you mean '--confidence-level'?"),
        ("federation check --jsn", "Did you mean '--json'?"),
    ],
)
def test_what_was_meant_is_named(words: str, hint: str) -> None:
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 2
    assert hint in done.output


def test_what_nobody_could_mean_is_not_guessed() -> None:
    done = CliRunner().invoke(main, ["zebra"])
    assert done.exit_code == 2
    assert "Did you mean" not in done.output
    assert "estimate, report" in done.output
    assert "Did you mean" not in CliRunner().invoke(main, ["estimate", "x.csv", "--zebra"]).output


@pytest.mark.parametrize(
    ("given", "name"),
    [("eps", "epsilon"), ("quantile", "q"), ("seed", "rng"), ("ci", "confidence_level"), ("untilwidth", "until_width")],
)
def test_an_unknown_keyword_names_the_right_one(given: str, name: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{given}'. Did you mean '{name}'"):
        privatile.estimate(np.arange(9.0), **{given: 1})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "python", "command"),
    [
        ({"epsilon": 1}, "range=(LOW, HIGH)", "--range LOW HIGH"),
        ({"range": (0, 9)}, "epsilon={'north': 1, 'south': 0.5}", "--epsilon north=1 --epsilon south=0.5"),
        ({"epsilon": 1, "range": (0, 9), "scale": "log"}, "scale='log'", "leave out --scale log."),
    ],
)
def test_an_error_speaks_python_in_python_and_options_on_the_command_line(
    options: dict[str, Any], python: str, command: str
) -> None:
    with pytest.raises(privatile.errors.InputError) as refused:
        privatile.estimate(np.arange(9.0), simulate=True, rng=1, **options)
    assert python in str(refused.value)
    assert "--" not in str(refused.value)
    words = ["estimate", "x.csv", "--value", "pay"]
    for name, value in options.items():
        words += (
            ["--scale", "log"] if name == "scale" else [f"--{name}", *map(str, value if name == "range" else [value])]
        )
    said = CliRunner().invoke(main, words)
    assert said.exit_code == 2
    assert command in said.output
    assert python not in said.output


@pytest.mark.parametrize("name", REMOVED)
def test_what_is_gone_is_named_with_what_replaces_it(name: str) -> None:
    words = name.split() if not name.startswith("-") else ["estimate", name]
    command: click.Command | None = main
    for word in words:
        if word.startswith("--"):
            assert command is not None
            assert word not in {option for parameter in command.params for option in parameter.opts}
        elif isinstance(command, click.Group):
            command = command.get_command(click.Context(command), word)
    assert words[-1].startswith("--") or command is None  # what is gone is gone
    shown = CliRunner().invoke(main, [*words, "x"])
    assert shown.exit_code == 2
    assert f"is gone. {REMOVED[name]}" in shown.stderr


@pytest.mark.parametrize(
    "name", ["away", "federation away", "survey away", "estimate --away", "federation init --away"]
)
def test_commands_and_options_that_go_later(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    *words, last = name.split()
    assert "is gone" not in CliRunner().invoke(main, [*words, last, "x"]).stderr
    monkeypatch.setitem(REMOVED, name, "Use `privatile doctor`.")
    shown = CliRunner().invoke(main, [*words, last, "x"])
    assert shown.exit_code == 2
    assert "is gone. Use `privatile doctor`." in shown.stderr
    assert shown.stderr.count("Error:") == 1


def test_keywords_and_fields_that_are_gone(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"overall_share is gone\. Run `privatile estimate` once more"):
        privatile.estimate([1.0], range=(0, 1), epsilon=1, overall_share=0.2)
    (tmp_path / "options.toml").write_text('data = "x.csv"\noverall_share = 0.2\n')
    with pytest.raises(InputError, match=r"overall_share is gone\. Run `privatile estimate` once more"):
        read_options(tmp_path / "options.toml")


def test_the_page_about_upgrades_shows_what_is_gone() -> None:
    page = (Path(__file__).parents[2] / "docs" / "upgrades.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", page.partition("## What is gone")[2].partition("\n## ")[0], re.M)
    assert dict(rows) == REMOVED
