"""Before the money is spent: the question in a terminal, who pays from which ledger; and what `plan` answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import privatile
from privatile.cli import main
from privatile.cli import options as asking


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    rng = np.random.default_rng(1)
    rows = [f"{value:.3f},{'north' if i % 3 else 'south'}" for i, value in enumerate(rng.normal(50, 10, 600))]
    (tmp_path / "rows.csv").write_text("pay,region\n" + "\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(*words: object, typed: str | None = None) -> Result:
    return CliRunner().invoke(main, [*map(str, words)], input=typed)


BASE = ("estimate", "rows.csv", "--value", "pay", "--epsilon", 2, "--range", 0, 100, "--rounds", 20)


@pytest.mark.parametrize("by", [(), ("--by", "region")])
def test_a_new_run_asks_at_a_terminal_and_only_there(
    home: Path, monkeypatch: pytest.MonkeyPatch, by: tuple[str, ...]
) -> None:
    monkeypatch.setattr(asking, "at_a_terminal", lambda: True)
    no = said(*BASE, *by, typed="n\n")
    assert no.exit_code == 1
    assert "Ask these 600 records?" in no.stderr
    assert "ε = 2, kept in " in no.stderr
    assert "Beware: " in no.stderr
    assert "No one was asked, and nothing was spent." in no.stderr
    assert no.stdout == ""
    assert not (home / "XDG_STATE_HOME").exists()
    yes = said(*BASE, *by, "--save", "kept", "--json", typed="y\n")
    assert yes.exit_code == 0, yes.stderr
    json.loads(yes.stdout)  # the question is on stderr
    # A finished run is shown again without a question.
    again = said(*BASE, *by, "--save", "kept")
    assert (again.exit_code, "Ask these" in again.stderr) == (0, False), again.stderr


@pytest.mark.parametrize("terminal", [False, True])
def test_no_question_without_a_terminal_or_with_yes(
    home: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(asking, "at_a_terminal", lambda: terminal)
    done = said(*BASE, *(("--yes",) if terminal else ()))
    assert done.exit_code == 0, done.stderr
    assert "Ask these" not in done.stderr
    # The ledger's account stands in the next dry run.
    facts = json.loads(said(*BASE, "--dry-run", "--json", "--spend-again", "--max-epsilon", 5).stdout)["account"]
    assert facts["spent"] == pytest.approx(2.0)
    assert (facts["whose"], facts["limit"]) == ("record of this column", 5.0)
    assert facts["ledger"].startswith(str(home))


def test_a_client_is_left_out(home: Path) -> None:
    done = said(*BASE, "--client", "region", "--leave-out", "south", "--dry-run", "--json")
    assert [client["name"] for client in json.loads(done.stdout)["clients"]] == ["north"]
    wrong = said(*BASE, "--client", "region", "--leave-out", "east", "--dry-run")
    assert wrong.exit_code == 2
    assert "'east', which is no client. The clients: north, south" in wrong.stderr
    small = said(*BASE, "--client", "region", *(word for k in range(1, 12) for word in ("-q", k / 12)), "--dry-run")
    assert "--leave-out south" in small.stderr


def plan(*words: object) -> dict[str, Any]:
    done = said("plan", *words, "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_plan_finds_whatever_was_not_given(home: Path) -> None:
    units = ("--spread", 30_000)
    people = plan("--epsilon", 1, "--width", 2000, *units)
    assert people["wanted"] == "people"
    assert people["people"] == people["needs"][0]["people"]
    # ± is half of a width, everywhere.
    assert plan("--epsilon", 1, "--width", "±1,000", *units) == people
    width = plan("--records", people["people"], "--epsilon", 1, *units)
    assert width["wanted"] == "width"
    assert width["expected_intervals"][0][0]["width"] == pytest.approx(2000, rel=2e-3)
    epsilon = plan("--records", people["people"], "--width", 2000, *units)
    assert epsilon["needs"][0]["epsilon"] == pytest.approx(1.0, rel=2e-3)
    shown = said("plan", "--epsilon", 1, "--width", 2000, *units).stdout
    assert shown.startswith("A 95% interval 2,000 wide (±1,000) at level 0.5 takes:\n")
    several = plan("-q", 0.25, "-q", 0.5, "--epsilon", 1, "--width", 2000, *units)
    assert several["people"] > 2 * people["people"]


def test_an_earlier_run_gives_the_units(home: Path) -> None:
    values = {"all": np.random.default_rng(1).normal(50, 10, 6000)}
    common: dict[str, Any] = {"epsilon": 4, "range": (0, 100), "simulate": True, "rng": 1}
    privatile.estimate(values, save=home / "run.db", **common)
    given = ("--epsilon", 1, "--width", 2)
    earlier, known = plan(*given, "--like", "run.db"), plan(*given, "--density", 0.0399)
    assert earlier["people"] == pytest.approx(known["people"], rel=0.5)
    assert "run.db found, within a standard error of" in earlier["units"]
    wrong = said("plan", *given, "--like", "run.db", "-q", 0.9)
    assert wrong.exit_code == 2
    assert "that run is about level 0.5, and the plan about 0.9" in wrong.stderr
    privatile.estimate({"all": values["all"][:30]}, save=home / "few.db", **{**common, "epsilon": 0.1})
    unknown = said("plan", *given, "--like", "few.db")
    assert unknown.exit_code == 2
    assert "--spread UNITS" in unknown.stderr
