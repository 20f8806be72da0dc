"""A coordinator that cheats: it records another question than the one it asked, or drops the counts it dislikes."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privatile.client.ledger.ledger import Ledger
from privatile.core.messages import Question
from privatile.errors import LedgerError
from privatile.estimator.plan import begin
from privatile.federation.operations.record import countersign, release, rules_of, verify_record
from privatile.federation.study import ClientAgreement
from privatile.federation.wire import question_digest
from privatile.records import (
    OTHER_BUILD,
    Checks,
    CountersignRefused,
    canonical,
    check_silence,
    differences,
    exchanges,
    sign,
    transcript_digest,
)
from privatile.result.caveats import interval_caveats
from privatile.result.result import ConfidenceInterval
from privatile.run.coordinator import stored_questions
from privatile.run.run_file import RunStore
from tests.federation.kit import Federation, make_study
from tests.federation.played import make, moved, play
from tests.federation.test_countersignatures import with_body

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def cheated(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """A run of a coordinator that asks q - 20 and records q: its estimate is 70 where the median is 50."""
    federation = make(tmp_path_factory.mktemp("cheated"))
    play(federation, moved(20.0))
    return federation


def test_a_coordinator_that_records_another_question_is_found(cheated: Federation) -> None:
    record = release(cheated.directory)
    assert record["body"]["results"][0]["estimate"] > 65.0
    failed = verify_record(record, cheated.directory.store_file).failed
    assert len(failed) == 1
    assert failed[0].startswith("all 40 signatures of clients hold, each for its question")


def test_a_site_does_not_countersign_a_question_that_it_was_not_asked(cheated: Federation) -> None:
    with RunStore.open(cheated.directory.store_file, read_only=True) as store:
        # At the low end of the range nothing lower can be asked: there the question is the recorded one.
        moved_rounds = sum(stored.ask.sent > 0.0 for stored in store.rounds())
    assert moved_rounds > 1
    with pytest.raises(CountersignRefused, match=f"in {moved_rounds} rounds") as caught:
        cheated.countersigned(release(cheated.directory), "south")
    assert "round 1: this ledger answered another question than the one recorded" in str(caught.value)


def test_a_coordinator_that_records_both_questions_is_found(cheated: Federation, tmp_path: Path) -> None:
    # It records as sent what it has sent, so that the signatures hold, and computes the estimate from another query.
    altered = tmp_path / "run.db"
    shutil.copy(cheated.directory.store_file, altered)
    record = release(cheated.directory)
    with RunStore.open(altered) as store:
        rows = [(max(0.0, stored.ask.sent - 20.0), stored.round) for stored in store.rounds()]
        store.execute([("UPDATE rounds SET sent = ? WHERE round = ?", row) for row in rows])
        record["body"]["transcript"]["digest"] = transcript_digest(store)
    record["signatures"]["signer"] = sign(record["body"], cheated.directory.key())
    checked = verify_record(record, altered)
    assert any(text.startswith("all 40 signatures of clients hold") for text in checked.passed)
    assert len(checked.failed) == 1
    assert checked.failed[0].startswith("the counts replay: ")
    assert "its question in units would be 50, not 30" in checked.failed[0]


def test_an_answer_to_another_question_does_not_count(tmp_path: Path) -> None:
    federation = make(tmp_path)
    with pytest.raises(AssertionError, match="another question than this round's"):
        play(federation, moved(20.0), accepts_any=False)


def test_a_record_that_claims_another_build_cannot_forge_a_figure(cheated: Federation) -> None:

    def forge(body: dict[str, Any]) -> None:
        body["program"] = "0" * 64
        body["results"][0]["anytime_interval"] = {"low": 49.0, "high": 51.0}
        body["results"][0]["density"]["estimate"] *= 2.0

    failed = verify_record(with_body(cheated, forge), cheated.directory.store_file).failed
    (found,) = [text for text in failed if text.startswith("the anytime interval and all other figures")]
    assert "counts give: anytime_interval, density; this program's differs; check it with" in found


@pytest.mark.parametrize("share", [1e-6, 1.0])
def test_every_number_of_a_result_must_agree(cheated: Federation, share: float) -> None:
    result = json.loads(canonical(release(cheated.directory)["body"]["results"][0]))
    error = 0.1
    numbers = list(numbers_of(result))
    assert {("anytime_interval", "low"), ("density", "estimate"), ("misfit",), ("clients", 0, "local_rank")} <= set(
        numbers
    )
    for path in numbers:
        altered = copy.deepcopy(result)
        holder: Any = altered
        for step in path[:-1]:
            holder = holder[step]
        value = holder[path[-1]]
        holder[path[-1]] += 1 if isinstance(value, int) else share * max(error, abs(value))
        found = differences(altered, result, error)
        assert bool(found.settings) + bool(found.figures) == 1, path
    assert not any(differences(result, copy.deepcopy(result), error))
    # A density is per unit of the data: it may be tiny, and its nine digits count all the same.
    tiny = {**result, "density": {"estimate": 1e-12, "relative_error": 0.1}}
    assert differences({**tiny, "density": {**tiny["density"], "estimate": 2e-12}}, tiny, error).figures == ["density"]


def test_the_classes_of_a_result_must_agree_like_its_clients(cheated: Federation) -> None:
    """Before, another build could move a class's weight by a thousandth."""
    (result,) = release(cheated.directory)["body"]["results"]
    mine = {**result, "classes": result["clients"]}
    assert not any(differences(mine, copy.deepcopy(mine), 0.1, OTHER_BUILD))
    moved = [{**mine["classes"][0], "weight": mine["classes"][0]["weight"] * 1.0001}, *mine["classes"][1:]]
    wrong: list[object] = [moved, "none", []]
    for told in wrong:
        assert differences({**mine, "classes": told}, mine, 0.1, OTHER_BUILD).settings == ["classes"]
    assert differences(result, mine, 0.1).settings == differences(mine, result, 0.1).settings == ["classes"]


def numbers_of(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all numbers in a JSON value."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers_of(part, (*path, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def test_a_coordinator_that_is_silent_about_a_client_beyond_the_patience_is_found(tmp_path: Path) -> None:
    """South's answers are called silent ten rounds in a row where the study allows nine: nothing failed or was flagged.

    The caveat looked at the last round only, in which south is back.
    """
    agreements = {name: ClientAgreement(2.0, 0.5, 600) for name in ("north", "south")}
    federation = Federation(tmp_path, make_study(agreements, 12, patience=9))
    play(federation, drop=lambda client, number, share: client == "south" and 1 < number < 12)
    record = release(federation.directory)
    checked = verify_record(record, federation.directory.store_file)
    assert checked.failed == [
        "no client was silent for more than 9 rounds in a row, the study's patience: south for 10",
    ]
    flagged, gaps = sorted(checked.flagged, reverse=True)
    assert gaps.endswith("ask these clients")
    assert "ledgers: south (10)" in gaps
    assert "word alone: south in 10 of 12 rounds, at most 10 in a row. Rounds closed with fewer answers" in flagged
    assert "than the quorum of 2: 10." in flagged
    assert "much-silence" in record["body"]["results"][0]["caveats"]
    # Negative control: a study with more patience.
    with RunStore.open(federation.directory.store_file, read_only=True) as store:
        check_silence(control := Checks(), rules_of(replace(federation.study, patience=10)), exchanges(store), ())
    assert control.failed == []
    # A client that has countersigned says itself what it had answered.
    (gaps, unknown, flagged) = sorted(
        verify_record(federation.countersigned(record, "south"), federation.directory.store_file).flagged
    )
    assert "ledgers: south (10)" in gaps
    assert flagged.startswith("client south says: not counted: 10 answers it gave")
    assert unknown.startswith("client south says that it answered rounds 2, 3")


def test_the_digest_of_a_question_depends_on_every_field() -> None:
    asked = Question("r", 1, 0.5, 10.0, 5, 0.25)
    changed = [
        replace(asked, **change)
        for change in (
            {"run": "s"},
            {"round": 2},
            {"level": 0.25},
            {"query": 10.0 + 2e-15},
            {"length": 6},
            {"step": 0.5},
        )
    ]
    digests = {question_digest("0" * 64, (one,)) for one in (asked, *changed)}
    digests |= {question_digest("1" * 64, (asked,)), question_digest("0" * 64, (asked, replace(asked, level=0.75)))}
    assert len(digests) == len(changed) + 3
    text = (
        '{"asks":[{"length":5,"level":0.5,"query":0.0,"step":null}],"kind":"question","round":1,"run":"r","study":"s"}'
    )
    for zero in (0.0, -0.0):
        assert question_digest("s", (Question("r", 1, 0.5, zero, 5),)) == hashlib.sha256(text.encode()).hexdigest()


def test_an_edited_ledger_does_not_countersign(cheated: Federation, tmp_path: Path) -> None:
    """The questions that the coordinator has recorded are written into the site's ledger; before, it was signed."""
    site, store = cheated.sites["south"], cheated.directory.store_file
    with Ledger.open(site.ledger_file) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = shutil.copy(site.ledger_file, tmp_path / "ledger.db")
    with RunStore.open(store, read_only=True) as run, sqlite3.connect(path) as direct:
        recorded = [(questions[1].query, stored.round) for stored, questions in stored_questions(run)]
        direct.executemany("UPDATE answers SET query = ? WHERE round = ?", recorded)
    direct.close()
    with (
        Ledger.open(path, read_only=True) as ledger,
        pytest.raises(LedgerError, match="was altered at entry 1"),
    ):
        countersign(release(cheated.directory), "south", site.key(), store, ledger)


@pytest.mark.parametrize("interval", [(49.5, 50.5), (50.1, 50.2)])
def test_nobody_is_advised_to_dither(interval: tuple[float, float]) -> None:
    study = make_study(1)
    plan = study.spec.plan()
    (caveat,) = interval_caveats(study.spec, plan, begin(plan), ConfidenceInterval(*interval), any_shape=False)
    assert caveat.code == "atom"
    assert "--dither" not in caveat.text
    assert not list(interval_caveats(study.spec, plan, begin(plan), ConfidenceInterval(*interval), any_shape=True))
