"""Draws for real people come from the operating system: no option, TOML key or variable reaches a seed."""

import ast
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import privatile
from privatile.api.local_run import prepare
from privatile.client.randomizer import OperatingSystemCoins, SeededCoins
from privatile.errors import InputError
from privatile.planning.options import Options

SOURCE = Path(privatile.__file__).parent
DATA = {"a": np.arange(100.0)}


def calls(path: Path, name: str) -> list[ast.Call]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [
        node
        for node in nodes
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == name
    ]


def test_seeded_coins_are_made_in_one_place_and_only_for_a_generator_handed_in() -> None:
    # The simulation package simulates and has no real people; everywhere else there is one call.
    made = {
        path.relative_to(SOURCE).as_posix(): found
        for path in SOURCE.rglob("*.py")
        if "simulation" not in path.parts and (found := calls(path, "SeededCoins"))
    }
    assert list(made) == ["api/local_run.py"]
    assert len(made["api/local_run.py"]) == 1
    assert ast.unparse(made["api/local_run.py"][0]) == "SeededCoins(rng)"


def test_the_command_line_hands_no_generator_in() -> None:
    found = [call for path in (SOURCE / "cli").rglob("*.py") for call in calls(path, "prepare")]
    assert found, "the command must go through prepare"
    for call in found:
        assert len(call.args) == 2
        assert not call.keywords


def test_no_option_is_a_seed() -> None:
    names = {field.name for field in fields(Options)}
    assert not {name for name in names if any(word in name for word in ("seed", "rng", "coin", "random"))}
    with pytest.raises(TypeError, match="seed"):
        Options(epsilon=1, range=(0, 1), seed=3)  # type: ignore[call-arg]


def test_the_variables_that_are_read_are_few_and_none_is_a_seed() -> None:
    """Every mention of the environment, by file: places of files, what a child process needs, a
    dashboard's token, a database's address."""
    mentions: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call | ast.Subscript | ast.Dict | ast.comprehension) and re.search(
                r"\b(environb?|getenvb?|user_folder)\b", ast.unparse(node)
            ):
                found = {
                    text.value
                    for text in ast.walk(node)
                    if isinstance(text, ast.Constant) and isinstance(text.value, str) and text.value.isupper()
                }
                mentions.setdefault(path.relative_to(SOURCE).as_posix(), set()).update(found)
    assert mentions == {
        "core/file_systems.py": set(),  # whether the ledger must lie on a mounted volume
        "core/private_files.py": {"XDG_CONFIG_HOME", "XDG_STATE_HOME"},
        "client/order/spill.py": {"TMPDIR"},
        "client/sources/databases.py": set(),  # the variable that a user names, with a database's address
        "report/dashboard/__main__.py": set(),
        "report/dashboard/serving.py": set(),
        "federation/audit/session.py": {"LANG", "PATH", "PYTHONPATH"},
        "federation/operations/demo.py": set(),  # the folders of the processes that it starts
        "federation/setup/broker.py": {"PATH"},
    }


@pytest.mark.parametrize("variable", ["SEED", "PRIVATILE_SEED", "PYTHONHASHSEED", "PRIVATILE_RNG"])
def test_no_variable_changes_where_coins_come_from(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(variable, "1")
    options = Options(epsilon=1, range=(0, 100), ledger=tmp_path / "ledger.db")
    assert isinstance(prepare(DATA, options).coins, OperatingSystemCoins)
    assert isinstance(prepare(DATA, options, np.random.default_rng(1)).coins, SeededCoins)


def test_a_seed_for_real_data_is_refused_and_a_simulation_needs_one() -> None:
    with pytest.raises(InputError, match="a seed is for simulation"):
        privatile.estimate(DATA, epsilon=1, range=(0, 100), rng=1)
    with pytest.raises(InputError, match="needs its randomness"):
        privatile.estimate(DATA, epsilon=1, range=(0, 100), simulate=True)


def test_seeded_simulations_repeat_and_differ_by_seed() -> None:
    one, same, other = (
        privatile.estimate(DATA, epsilon=1, range=(0, 100), simulate=True, rng=seed).estimate for seed in (1, 1, 2)
    )
    assert one == same != other
