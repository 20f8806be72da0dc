"""Weighted records from end to end: who takes part is drawn once, whatever is tried; sizes are the default weights."""

import json
import math
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privatile
from privatile.api.local_run import LocalRun, prepare
from privatile.client.ledger.ledger import Ledger
from privatile.client.randomizer import Randomizer
from privatile.client.responder import Responder
from privatile.errors import AlreadyAnswered, InputError, OtherContent
from privatile.planning.options import Options
from privatile.run.run_file import RunStore


class KilledError(BaseException):
    """The process ends here."""


def survey(records: int = 1_500, seed: int = 3) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    table = np.zeros(records, dtype=[("x", float), ("w", float), ("site", "U5"), ("who", "U9")])
    table["w"] = np.exp(rng.uniform(0.0, math.log(1.5), records))
    table["x"] = rng.normal(50, 10, records)
    table["site"], table["who"] = rng.choice(["north", "south"], records), [f"p{k}" for k in range(records)]
    return table


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return {"value": "x", "weight": "w", "epsilon": 2, "range": (0, 100), "design": "rounds", "rounds": 5} | {
        "ledger": folder / "ledger.db",
        "person_key": folder / "person.key",
        **more,
    }


def taking_part(run: LocalRun) -> set[float]:
    columns = run.columns.values()
    return {float(x) for column in columns for block in column.blocks(0, column.records) for x in block.values}


def prepared(table: Any, folder: Path, **more: Any) -> set[float]:
    run = prepare(table, Options(**options(folder, **more)))
    found = taking_part(run)
    run.ledger.close()
    return found


def asked(folder: Path) -> dict[str, int]:
    with sqlite3.connect(folder / "ledger.db") as database:
        rows = database.execute("SELECT client, sum(length) FROM answers GROUP BY client").fetchall()
    database.close()
    return dict(rows)


def test_nobody_is_chosen_by_trying_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the draw and an answer, in mid-run, given up and begun anew, run again: always the same people."""
    table = survey()
    with Ledger.open(tmp_path / "ledger.db") as book, book.transaction():
        pass  # the file and its key are there from now on
    drawn = prepared(table, tmp_path)
    assert len(drawn) < 1_500
    calls, at, counter = 0, 0, Randomizer.counter

    def killed(self: Randomizer, question: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KilledError
        return counter(self, question)

    monkeypatch.setattr(Randomizer, "counter", killed)
    for moment in (1, 2, 8):  # before anything was answered, in the first round's transaction, later
        calls, at = 0, moment
        with pytest.raises(KilledError):
            privatile.estimate(table, **options(tmp_path))
        assert prepared(table, tmp_path) == drawn
    calls, at = 0, 9
    with pytest.raises(KilledError):  # given up, and begun anew with those who were not asked
        privatile.estimate(table, **options(tmp_path, new_run=True))
    assert prepared(table, tmp_path) == drawn
    at = 0
    result = privatile.estimate(table, **options(tmp_path))
    assert result.classes
    # Everybody who was drawn has answered once, and nobody else.
    assert sum(asked(tmp_path).values()) == len(drawn)
    with pytest.raises(AlreadyAnswered, match=r"^weight class .* has 0 records left"):
        privatile.estimate(table, **options(tmp_path))
    again = privatile.estimate(table, **options(tmp_path, spend_again=True))
    assert again.records == len(drawn)
    assert prepared(table, tmp_path, spend_again=True) == drawn


SCRIPT = """
import sys
from pathlib import Path
import privatile
from tests.api.test_survey_weights import options, survey
told = lambda done, planned: print(done, flush=True)
privatile.estimate(survey(), **options(Path(sys.argv[1]), rounds=60), progress=told)
"""


@pytest.mark.process
def test_a_process_that_is_killed_goes_on_with_the_same_people(tmp_path: Path) -> None:
    table = survey()
    with Ledger.open(tmp_path / "ledger.db") as book, book.transaction():
        pass
    drawn = prepared(table, tmp_path, rounds=60)
    with subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert [running.stdout.readline() for _ in range(3)] == ["1\n", "2\n", "3\n"]
        running.kill()
    assert running.returncode == -signal.SIGKILL
    assert prepared(table, tmp_path, rounds=60) == drawn
    assert 0 < sum(asked(tmp_path).values()) < len(drawn)
    result = privatile.estimate(table, **options(tmp_path, rounds=60))
    assert result.records == sum(asked(tmp_path).values()) == len(drawn)


def test_control_a_draw_by_run_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privatile.client.order import weights as strata

    rng, table = np.random.default_rng(1), survey()
    monkeypatch.setattr(strata, "takes_part", lambda weights, high, draws: rng.random(len(weights)) < weights / high)
    assert prepared(table, tmp_path) != prepared(table, tmp_path)


def test_those_left_out_have_not_paid(tmp_path: Path) -> None:
    table = survey()
    result = privatile.estimate(table, **options(tmp_path, person="who"))
    with Ledger.open(tmp_path / "ledger.db", read_only=True) as book:
        people, most = book.lifetime_budgets.totals()
    assert people == result.records < 1_500  # the draw is the ledger's own: a few score are left out
    assert most == pytest.approx(2.0)
    # They may answer elsewhere, each of them once.
    rest = privatile.estimate(table, **options(tmp_path, person="who", weight=None))
    assert rest.records == 1_500 - result.records


def test_other_weights_or_another_export_do_not_make_records_look_new(tmp_path: Path) -> None:
    table = survey()
    privatile.estimate(table, **options(tmp_path))
    other = table.copy()
    other["w"] = np.random.default_rng(8).permutation(table["w"])
    for data, more in ((other, {}), (table, {"weight": None}), (table, {"rounds": 40}), (table, {"client": "site"})):
        with pytest.raises(AlreadyAnswered, match=r"answered before|0 records left"):
            privatile.estimate(data, **options(tmp_path, **more))
    corrected = table.copy()
    corrected["x"][0] += 1.0
    corrected["w"] *= 3.0  # the classes have other names now
    with pytest.raises(OtherContent, match="other content"):
        privatile.estimate(corrected, **options(tmp_path))
    with pytest.raises(OtherContent, match="other content"):
        privatile.estimate(corrected, **options(tmp_path, weight=None))


def test_a_client_is_one_line_and_its_classes_are_there_for_programs(tmp_path: Path) -> None:
    table = survey(3_000)
    result = privatile.estimate(table, **options(tmp_path, client="site", save=tmp_path / "run.db"))
    assert [client.name for client in result.clients] == ["north", "south"]
    assert len(result.classes) > 4
    assert all(re.fullmatch(r"(north|south), weight [\d.]+( to [\d.]+)?", one.name) for one in result.classes)
    for site, client in zip(("north", "south"), result.clients, strict=True):
        own = table["w"][table["site"] == site]
        assert client.weight == pytest.approx(own.sum() / table["w"].sum())
        assert client.records == sum(one.records for one in result.classes if one.name.startswith(site))
        low, high = client.local_rank_interval
        assert low < client.local_rank < high
    assert "weight 1" not in result.to_text().partition("Also:")[0].replace("(weighted by w)", "")
    (facts,) = json.loads(result.to_json())["results"]
    assert len(facts["classes"]) == len(result.classes)
    (survey_caveat,) = (caveat.text for caveat in result.caveats if caveat.code == "survey-weights")
    assert "3,000 records" in survey_caveat
    assert "not protected" in survey_caveat
    assert "(weighted by w) in all records asked of 2 clients together" in result.estimand
    # The file says the same, and its page can be made.
    with RunStore.open(tmp_path / "run.db", read_only=True) as store:
        assert store.spec.survey is not None
        assert store.spec.survey.variance < 1.1
        assert {client.holder for client in store.spec.clients} == {"north", "south"}
    assert result.report(tmp_path / "run.html").exists()
    equal = prepare(table, Options(**options(tmp_path / "b", client="site", client_weights="equal", only=None)))
    weights: dict[str, float] = {}
    for client in equal.spec.clients:
        weights[client.holder] = weights.get(client.holder, 0.0) + client.weight
    assert weights == pytest.approx({"north": 0.5, "south": 0.5})
    alone = prepare(table, Options(**options(tmp_path / "b", client="site", only="south")))
    assert {client.holder for client in alone.spec.clients} == {"south"}
    assert math.fsum(client.weight for client in alone.spec.clients) == pytest.approx(1.0)


def test_the_default_design_asks_an_ordinary_survey() -> None:
    """5,000 people with weights from .2 to 8, also with tails: no refusal, and it is said what was done."""
    rng = np.random.default_rng(5)
    table = survey(5_000)
    for weights in (
        np.exp(rng.uniform(math.log(0.2), math.log(8), 5_000)),
        np.clip(rng.lognormal(0, 0.6, 5_000), 0.2, 8),
    ):
        table["w"] = weights
        for q in (0.5, (0.25, 0.5, 0.75)):
            run = prepare(table, Options(value="x", weight="w", q=q, epsilon=1, range=(0, 100)), rng)
            assert run.spec.survey is not None
            assert run.spec.survey.records == 5_000
            for level in range(len(run.spec.levels)):
                assert run.spec.plan(level).rounds >= 30


def test_precision_weights_and_survey_weights_exclude_each_other() -> None:
    with pytest.raises(InputError, match="exclude each other"):
        Options(epsilon=1, range=(0, 1), client_weights="precision", one_distribution=True, weight="w")


# -- weights between clients -------------------------------------------------------------------------------------


def test_sizes_are_the_default_and_never_tell_who_had_answered_elsewhere(tmp_path: Path) -> None:
    table = survey(1_000)
    table["site"][:800], table["site"][800:] = "north", "south"
    common = options(tmp_path, weight=None, client="site", person="who")
    privatile.estimate(table[:300], **{**common, "client": None})
    result = privatile.estimate(table, **common)
    # 300 of the 800 had answered: the weights are those of the 500 and 200 who are asked.
    assert [client.asked for client in result.clients] == [500, 200]
    assert [client.weight for client in result.clients] == pytest.approx([5 / 7, 2 / 7])


def test_a_run_weighted_by_size_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights follow from who may be asked, which changes as they are asked; the run that was begun keeps its own."""
    table = survey(1_000)
    table["site"][:800], table["site"][800:] = "north", "south"
    common = options(tmp_path, weight=None, client="site", q={"north": 0.4, "south": 0.6})
    respond, left = Responder._respond, 5

    def stopping(self: Responder, question: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            raise KilledError
        return respond(self, question)

    monkeypatch.setattr(Responder, "_respond", stopping)
    with pytest.raises(KilledError):
        privatile.estimate(table, **common)
    assert sum(asked(tmp_path).values()) > 0
    result = privatile.estimate(table, **common)
    assert result.records == 1_000
    assert [client.weight for client in result.clients] == [0.8, 0.2]
    assert result.level == pytest.approx(0.44)
