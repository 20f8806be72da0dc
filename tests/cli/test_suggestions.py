"""Unknown commands, options and keywords name what was meant; errors speak the language of whoever called."""

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import privatile
from privatile.cli import main


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("estimat x.csv", "Did you mean 'estimate'?"),
        ("Report run.db", "Did you mean 'report'?"),
        ("ledger shw", "Did you mean 'show'?"),
        ("estimate x.csv --epsilonn 1", "Did you mean '--epsilon'?"),
        ("estimate x.csv --quantile 0.5", "Did you mean '--q'?"),
        ("estimate x.csv --confidence 0.9", "Did you mean '--confidence-level'?"),
        ("federation status --jsn", "Did you mean '--json'?"),
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
        ({"epsilon": 1, "range": (0, 9), "scale": "log"}, "scale='log'", "leave out --log."),
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
        words += ["--log"] if name == "scale" else [f"--{name}", *map(str, value if name == "range" else [value])]
    said = CliRunner().invoke(main, words)
    assert said.exit_code == 2
    assert command in said.output
    assert python not in said.output
