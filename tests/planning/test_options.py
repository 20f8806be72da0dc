"""Options: one rule for each, by flag, TOML and Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.core.kinds import options_of
from privatile.errors import OptionError
from privatile.planning import Options, read_options

NEEDED: dict[str, Any] = {"epsilon": 1.0, "range": (0.0, 9.0)}
SAME = object()

GIVEN: dict[str, list[tuple[list[str], Any, Any]]] = {
    "confidence_level": [(["0.9"], 0.9, SAME)],
    "interval": [(["smooth"], "smooth", SAME)],
    "value_kind": [(["step=0.5"], "step=0.5", SAME)],
    "until_width": [(["2.5"], 2.5, SAME)],
    "simultaneous": [([], True, SAME)],
    "target": [(["file"], "file", SAME)],
    "missing": [(["drop"], "drop", SAME)],
    "design": [(["rounds"], "rounds", SAME)],
    "normalizer": [(["sup"], "sup", SAME)],
    "dither": [(["2"], 2, 2.0)],
    "value": [(["pay"], "pay", SAME)],
    "client": [(["site"], "site", SAME)],
    "only": [(["north"], "north", SAME), (["sex=f", "age=1"], {"sex": "f", "age": "1"}, SAME)],
    "leave_out": [(["north"], "north", ("north",)), (["a", "b"], ["a", "b"], ("a", "b"))],
    "by": [(["sex"], "sex", ("sex",)), (["sex", "age"], ["sex", "age"], ("sex", "age"))],
    "person": [(["who"], "who", SAME)],
    "q": [
        (["0.25"], 0.25, SAME),
        (["0.25", "0.5"], [0.25, 0.5], (0.25, 0.5)),
        (["curve"], "curve", SAME),
        (["a=0.1", "b=0.2"], {"a": 0.1, "b": 0.2}, SAME),
    ],
    "epsilon": [
        (["2"], 2, 2.0),
        (["Ko\u0308ln=1", "b=0.5"], {"Ko\u0308ln": 1, "b": 0.5}, {"K\u00f6ln": 1.0, "b": 0.5}),
    ],
    "range": [(["-1", "1e3"], [-1, 1000], (-1.0, 1000.0))],
    "scale": [(["logit"], "logit", SAME)],
    "client_weights": [(["equal"], "equal", SAME), (["a=1", "b=3"], {"a": 1, "b": 3}, {"a": 1.0, "b": 3.0})],
    "weight": [(["w"], "w", SAME)],
    "one_distribution": [([], True, SAME)],
    "rounds": [(["30"], 30, SAME)],
    "mode": [(["local"], "local", SAME)],
    "local_level": [(["own"], "own", SAME)],
    "ledger": [(["/l.db"], "/l.db", Path("/l.db"))],
    "person_key": [(["/p.key"], "/p.key", Path("/p.key"))],
    "save": [(["/run.db"], "/run.db", Path("/run.db"))],
    "spend_again": [([], True, SAME)],
    "new_run": [([], True, SAME)],
    "new_people": [([], True, SAME)],
    "max_epsilon": [(["3"], 3, 3.0)],
    "allow_weak": [([], True, SAME)],
    "sql": [(["SELECT 1"], "SELECT 1", SAME)],
    "delimiter": [(["tab"], "tab", SAME)],
    "decimal": [(["comma"], "comma", SAME)],
    "thousands": [(["none"], "none", SAME)],
    "unit": [(["kg"], "kg", SAME)],
}
"""Words of the command line, the value in Python (and TOML), and what `Options` keeps of it."""

WRONG: list[tuple[str, list[str], Any]] = [
    ("confidence_level", ["95"], 95.0),
    ("interval", ["wide"], "wide"),
    ("value_kind", ["halves"], "halves"),
    ("until_width", ["0"], 0.0),
    ("target", ["all"], "all"),
    ("missing", ["skip"], "skip"),
    ("normalizer", ["l3"], "l3"),
    ("dither", ["-1"], -1.0),
    ("q", ["1.5"], 1.5),
    ("q", ["curves"], "curves"),
    ("q", ["0.5", "0"], [0.5, 0.0]),
    ("epsilon", ["-1"], -1.0),
    ("epsilon", ["a=99"], {"a": 99.0}),
    ("epsilon", ["K\u00f6ln=1", "Ko\u0308ln=2"], {"K\u00f6ln": 1.0, "Ko\u0308ln": 2.0}),
    ("range", ["9", "0"], [9.0, 0.0]),
    ("scale", ["cubic"], "cubic"),
    ("client_weights", ["a=0"], {"a": 0.0}),
    ("client_weights", ["/gone.csv"], "/gone.csv"),
    ("rounds", ["0"], 0),
    ("rounds", ["many"], "many"),
    ("mode", ["both"], "both"),
    ("local_level", ["mine"], "mine"),
    ("max_epsilon", ["0"], 0.0),
]


def toml(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"[{name}]\n" + "".join(f"{json.dumps(key)} = {json.dumps(one)}\n" for key, one in value.items())
    return f"{name} = {json.dumps(value)}\n"


def by_flag(name: str, words: list[str]) -> Any:
    """What the command line makes of an option; an error as it is said."""
    command = main.get_command(click.Context(main), "estimate")
    assert command is not None
    option = f"--{name.replace('_', '-')}"
    several = options_of(Options)[name].kind.several
    line = [option, *words] if not several else [part for word in words for part in (option, word)]
    return command.make_context("estimate", line).params[name]


def test_every_option_has_a_flag_a_field_and_a_keyword_of_one_meaning(tmp_path: Path) -> None:
    assert GIVEN.keys() == options_of(Options).keys() - {"not_private"}
    for name, cases in GIVEN.items():
        for words, value, kept in cases:
            expected = value if kept is SAME else kept
            made = Options(**NEEDED | {name: value})
            assert getattr(made, name) == expected, name
            file = tmp_path / "options.toml"
            file.write_text('data = "d.csv"\n' + toml(name, value))
            _, read = read_options(file)
            assert getattr(Options(**NEEDED | read), name) == expected, name
            flag = by_flag(name, words)
            assert getattr(Options(**NEEDED | {name: flag}), name) == expected, name
            assert flag == expected, name


@pytest.mark.parametrize(("name", "words", "value"), WRONG)
def test_a_wrong_value_breaks_one_rule_everywhere(tmp_path: Path, name: str, words: list[str], value: Any) -> None:
    with pytest.raises(OptionError) as in_python:
        Options(**NEEDED | {name: value})
    assert in_python.value.name == name
    # A file's line and a command's option stand in place of the keyword; what follows is the same.
    rule = in_python.value.rule.split("; got ")[0].split(". ")[0]
    file = tmp_path / "options.toml"
    file.write_text('data = "d.csv"\n' + toml(name, value))
    with pytest.raises(ValueError, match=r"line 2, ") as in_file:
        read_options(file)
    assert f"{name}: {rule}" in str(in_file.value)
    if isinstance(value, str) and name == "q":
        return  # a word where a number may stand is no number on the command line
    option = f"--{name.replace('_', '-')}"
    several = options_of(Options)[name].kind.several
    line = [option, *words] if not several else [part for word in words for part in (option, word)]
    said = CliRunner().invoke(main, ["estimate", "d.csv", *line])
    assert said.exit_code == 2
    assert f"privatile: {option} {rule.split(': ')[0].split('range=')[0]}" in said.stderr


def test_what_only_looks_like_a_value_is_none() -> None:
    for name, value in (
        ("simultaneous", 1),
        ("rounds", True),
        ("rounds", 3.0),
        ("epsilon", True),
        ("epsilon", "1"),
        ("epsilon", float("nan")),
        ("epsilon", 10**400),
        ("q", None),
        ("scale", ["log"]),
        ("range", 900),
        ("range", (1.0,)),
        ("range", (0, 10**400)),
        ("range", "09"),
        ("value", b"pay"),
        ("ledger", 3),
        ("client_weights", 0.5),
    ):
        with pytest.raises(OptionError, match=f"^{name} "):
            Options(**NEEDED | {name: value})
    numbers: dict[str, Any] = {"epsilon": np.float64(1), "range": np.array([0, 9]), "rounds": np.int64(30)}
    assert Options(**numbers) == Options(epsilon=1, range=(0, 9), rounds=30)


def test_all_errors_of_a_file_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "options.toml"
    path.write_text('epsilom = 1\nrange = [1]\nmode = "locale"\nrounds = true\njson = true\nvalues = "any"\n')
    with pytest.raises(ValueError, match="has 7 errors") as refused:
        read_options(path)
    names = ["data", "epsilom", "range", "mode", "rounds", "json", "values"]
    assert [line.split(":")[0].split(", ")[-1].strip() for line in str(refused.value).splitlines()[1:]] == names


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "weights.csv").write_text("client,weight\nnorth,1\nsouth,3\n")
    path = tmp_path / "options.toml"
    path.write_text('data = "d.csv"\nledger = "l.db"\nclient_weights = "weights.csv"\n')
    data, given = read_options(path)
    assert data == tmp_path / "d.csv"
    assert given == {"ledger": tmp_path / "l.db", "client_weights": {"north": 1.0, "south": 3.0}}
