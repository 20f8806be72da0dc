"""A coordinator that cheats: it records another question than the one it asked, or drops the counts it dislikes."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.spending_rules import SpendingRules
from privatile.client.sources.opening import open_source
from privatile.core.messages import Question
from privatile.errors import LedgerError
from privatile.estimator.step import begin
from privatile.federation.coordinator.answer_intake import AnswerIntake
from privatile.federation.record import Checks, CountersignRefused, countersign, release, verify_record
from privatile.federation.record.comparison import differences
from privatile.federation.record.countersignature import body_digest
from privatile.federation.record.document import canonical, sign, transcript_digest
from privatile.federation.record.silence import check_silence
from privatile.federation.record.transcript import exchanges
from privatile.federation.run.serve import roster_signers
from privatile.federation.setup.directory import Directory, RevokedKey, Roster
from privatile.federation.site.responder import open_responder
from privatile.federation.study.study import ClientAgreement
from privatile.federation.wire.keys import KeyPair
from privatile.federation.wire.messages import AskMessage, question_digest
from privatile.result.caveats import interval_caveats
from privatile.result.result import ConfidenceInterval
from privatile.result.unfinished import unfinished
from privatile.server.coordinator import Coordinator, stored_questions
from privatile.server.run_file import RunStore
from tests.federation.kit import Federation, make_study

pytestmark = pytest.mark.network

Asked = Mapping[str, Sequence[Question]]


class Wire:
    """A connection that keeps what is published."""

    def __init__(self) -> None:
        self.published: list[bytes] = []

    @property
    def nc(self) -> Wire:
        return self

    async def publish(self, subject: str, payload: bytes) -> None:
        self.published.append(payload)


def play(
    federation: Federation,
    ask: Callable[[Asked], Asked] = lambda asked: asked,
    drop: Callable[[str, int, float], bool] = lambda client, number, share: False,
    *,
    accepts_any: bool = True,
) -> None:
    """A whole run with real sites, their ledgers and a real run file, without a broker.

    `ask` changes the questions on their way to the sites; `drop` looks at the share of ones and decides whether a count
    is left out. A coordinator that `accepts_any` answer is a changed program; the project's own does not.
    """
    asyncio.run(_play(federation, ask, drop, accepts_any))


async def _play(federation: Federation, ask: Any, drop: Any, accepts_any: bool) -> None:
    run = federation.open_run()
    study, coordinator, key = federation.study, run.coordinator, federation.directory.key()
    intake = AnswerIntake(study.digest, roster_signers(federation.directory)(), {}, {}, dict.fromkeys(study.clients, 0))
    services = {name: federation.client(name) for name in study.clients}
    while questions := coordinator.questions():
        asked = ask(questions)
        intake.open(asked if accepts_any else questions)
        payload = AskMessage.of(study.digest, asked).pack(key)
        for name, service in services.items():
            wire = Wire()
            await service._answer(wire, payload)  # type: ignore[arg-type]
            verdict = intake.offer(name, wire.published[-1])
            assert verdict.outcome == "counted", verdict
            if drop(name, asked[name][0].round, intake.answers[name].ones[0] / asked[name][0].length):
                del intake._answers[name]
        rows = run.journal.evidence_rows(coordinator.done + 1, intake.answers)
        coordinator.accept(intake.counts(), rows)
        intake.close()
    coordinator.finish()
    run.store.close()


def moved(distance: float) -> Callable[[Asked], Asked]:
    return lambda asked: {
        name: tuple(replace(one, query=max(0.0, one.query - distance)) for one in questions)
        for name, questions in asked.items()
    }


def make(folder: Path) -> Federation:
    study = make_study({name: ClientAgreement(2.0, 0.5, 3000) for name in ("north", "south")}, 20, design="auto")
    return Federation(folder, study)


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
    record["signatures"]["coordinator"] = sign(record["body"], cheated.directory.key())
    checked = verify_record(record, altered)
    assert any(text.startswith("all 40 signatures of clients hold") for text in checked.passed)
    (failed,) = checked.failed
    assert failed.startswith("the counts replay: ")
    assert "its question in units would be 50, not 30" in failed


def test_an_answer_to_another_question_does_not_count(tmp_path: Path) -> None:
    federation = make(tmp_path)
    with pytest.raises(AssertionError, match="another question than this round's"):
        play(federation, moved(20.0), accepts_any=False)


@pytest.fixture(scope="module")
def dropped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Federation, list[int]]:
    """A run of a coordinator that drops south's counts above one half, and the rounds in which it did."""
    federation = make(tmp_path_factory.mktemp("dropped"))
    rounds: list[int] = []

    def drop(client: str, number: int, share: float) -> bool:
        drops = client == "south" and number > 1 and share > 0.5
        rounds.extend([number] * drops)
        return drops

    play(federation, drop=drop)
    assert rounds
    return federation, rounds


def test_answers_that_a_coordinator_drops_are_listed(dropped: tuple[Federation, list[int]]) -> None:
    federation, rounds = dropped
    record = federation.countersigned(federation.countersigned(release(federation.directory), "south"), "north")
    statements = {name: entry["statement"] for name, entry in record["signatures"]["clients"].items()}
    assert statements["south"]["not_counted"] == rounds
    assert statements["south"]["compared"] == 20 - len(rounds)
    assert statements["north"]["not_counted"] == []
    checked = verify_record(record, federation.directory.store_file)
    assert checked.failed == []
    flagged, unknown = checked.flagged
    assert flagged.startswith(f"client south says: {len(rounds)} answers it gave were not counted (round")
    # The coordinator's file says nothing of answers that came and did not count.
    assert unknown.startswith("client south says that it answered round")
    assert f"knows nothing of these {len(rounds)} answers" in unknown
    assert "FLAGGED      client south says" in checked.to_text()


def test_what_the_coordinators_file_says_of_answers_that_did_not_count_is_shown(
    dropped: tuple[Federation, list[int]], tmp_path: Path
) -> None:
    """Before, `verify` did not show it, and compared it with nothing."""
    federation, (first, *others) = dropped
    directory = Directory(tmp_path / "organizer")
    shutil.copytree(federation.directory.path, directory.path)
    (counted,) = {1}.difference((first, *others))
    rows = [(first, "south", "late"), (first, "south", "rejected"), (counted, "north", "late"), (99, "south", "late")]
    with RunStore.open(directory.store_file) as store:
        store.execute([("INSERT INTO uncounted VALUES (?, ?, ?, '', 1.0, 3)", row) for row in rows])
    record = release(directory)
    with federation.ledger("south") as ledger:
        record = countersign(record, "south", federation.sites["south"].key(), directory.store_file, ledger)
    _, came, unknown = verify_record(record, directory.store_file).flagged
    assert came == (
        f"the coordinator's file says: 1 answers of client south came and were not counted (round {first}): "
        "late, rejected"
    )
    assert f"knows nothing of these {len(others)} answers" in unknown


def test_a_countersignature_cannot_be_made_to_say_less(dropped: tuple[Federation, list[int]]) -> None:
    federation, _ = dropped
    record = federation.countersigned(release(federation.directory), "south")
    record["signatures"]["clients"]["south"]["statement"]["not_counted"] = []
    assert any("client south has countersigned it" in text for text in verify_record(record).failed)
    # Nor can it be moved to another record of the same run.
    moved_to = release(federation.directory)
    moved_to["body"]["results"][0]["estimate"] += 1.0
    moved_to["signatures"]["clients"] = federation.countersigned(release(federation.directory), "south")["signatures"][
        "clients"
    ]
    assert any("another record" in text for text in verify_record(moved_to).failed)


def countersigned_by(record: dict[str, Any], client: str, key: KeyPair, **changed: Any) -> dict[str, Any]:
    """The record with a statement of `client` that `key` has signed, whoever holds it; a field of None is left out."""
    lists: dict[str, Any] = {"not_counted": [], "not_in_transcript": [], "lost": []}
    whole = {"privatile_countersignature": 1, "client": client, "record": body_digest(record["body"]), "compared": 20}
    statement = {name: value for name, value in {**whole, **lists, **changed}.items() if value is not None}
    entry = {"signer": key.public.signer, "statement": statement, "signature": sign(statement, key)}
    return {**record, "signatures": {**record["signatures"], "clients": {client: entry}}}


def with_body(federation: Federation, change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """A record whose body the coordinator has changed, and signed."""
    record = release(federation.directory)
    change(record["body"])
    record["signatures"]["coordinator"] = sign(record["body"], federation.directory.key())
    return record


def test_only_a_client_of_the_study_countersigns(dropped: tuple[Federation, list[int]]) -> None:
    """An invented party with a key of its own in the record; its countersignature was said to hold."""
    federation, _ = dropped
    invented = KeyPair.generate()
    entry = {"current": msgspec.to_builtins(invented.public), "replaced": []}
    record = with_body(federation, lambda body: body["clients"].update(auditor=entry))
    failed = verify_record(countersigned_by(record, "auditor", invented)).failed
    assert failed == [
        "it names keys of the study's clients only: auditor",
        "client auditor has countersigned it: it is no client of the study",
    ]


def test_a_key_beside_the_present_one_does_not_countersign(
    dropped: tuple[Federation, list[int]], tmp_path: Path
) -> None:
    """An invented second key, and a stolen one that was replaced: both were said to hold."""
    federation, _ = dropped
    invented, stolen = KeyPair.generate(), federation.sites["south"].key()
    second = msgspec.to_builtins(invented.public)
    for change in (
        lambda body: body["clients"]["south"]["replaced"].append(second),
        lambda body: body["clients"].update(south=[body["clients"]["south"]["current"], second]),
        lambda body: None,
    ):
        failed = verify_record(countersigned_by(with_body(federation, change), "south", invented)).failed
        assert [text.partition(":")[0] for text in failed] == ["client south has countersigned it"]
    organizer = Directory(tmp_path / "organizer")
    shutil.copytree(federation.directory.path, organizer.path)
    roster = organizer.roster()
    present = KeyPair.generate()
    organizer.save_roster(
        Roster({**roster.clients, "south": present.public}, (RevokedKey("south", stolen.public), *roster.revoked))
    )
    record = release(organizer)
    checked = verify_record(countersigned_by(record, "south", stolen), organizer.store_file)
    assert checked.failed == ["client south has countersigned it: its key was replaced and may not countersign"]
    # The new key may; it has signed no count, so a reader is told to ask whose it is. The old counts still hold.
    checked = verify_record(countersigned_by(record, "south", present), organizer.store_file)
    assert checked.failed == []
    assert any("present key" in text and "signed none of its counts" in text for text in checked.flagged)


@pytest.mark.parametrize(
    "changed",
    [
        {"privatile_countersignature": None},
        {"privatile_countersignature": 2},
        {"lost": None},
        {"not_counted": ["all of them"]},
        {"not_counted": "none"},
        {"compared": -1},
        {"endorsed": True},
    ],
    ids=str,
)
def test_a_statement_that_is_not_complete_is_no_countersignature(
    dropped: tuple[Federation, list[int]], changed: dict[str, Any]
) -> None:
    federation, _ = dropped
    record, key = release(federation.directory), federation.sites["south"].key()
    assert verify_record(countersigned_by(record, "south", key)).failed == []
    assert verify_record(countersigned_by(record, "south", key, **changed)).failed == [
        "client south has countersigned it: the statement is not complete, or of another format"
    ]


def test_a_record_that_claims_another_build_cannot_forge_a_figure(cheated: Federation) -> None:
    """The anytime interval and the density counted as words of that build, which nobody judged: nothing failed."""

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
        assert not found.words
        assert not found.one_sided
    assert not any(differences(result, copy.deepcopy(result), error))
    # A density is per unit of the data: it may be tiny, and its nine digits count all the same.
    tiny = {**result, "density": {"estimate": 1e-12, "relative_error": 0.1}}
    assert differences({**tiny, "density": {**tiny["density"], "estimate": 2e-12}}, tiny, error).figures == ["density"]


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
    (flagged,) = checked.flagged
    assert "word alone: south in 10 of 12 rounds, at most 10 in a row. Rounds closed with fewer answers" in flagged
    assert "than the quorum of 2: 10." in flagged
    (caveat,) = [one for one in record["body"]["results"][0]["caveats"] if one["code"] == "much-silence"]
    assert caveat["text"].startswith("Silent clients: 1 of 2, most often south (10 of 12 rounds); 42% of all")
    # Negative control: a study with more patience.
    with RunStore.open(federation.directory.store_file, read_only=True) as store:
        check_silence(control := Checks(), replace(federation.study, patience=10), exchanges(store), ())
    assert control.failed == []
    # A client that has countersigned says itself what it had answered.
    (flagged, unknown) = verify_record(
        federation.countersigned(record, "south"), federation.directory.store_file
    ).flagged
    assert flagged.startswith("client south says: 10 answers it gave were not counted")
    assert unknown.startswith("client south says that it answered rounds 2, 3")


def test_a_run_that_its_coordinator_stops_where_it_likes_is_flagged(
    dropped: tuple[Federation, list[int]], tmp_path: Path
) -> None:
    """Of 60 honest runs the interval misses in 4 at their end, in 8 at a round that can be chosen. Nothing said so."""
    directory = Directory(tmp_path / "organizer")
    shutil.copytree(dropped[0].directory.path, directory.path)
    with RunStore.open(directory.store_file) as store:
        store.execute([(f"DELETE FROM {table} WHERE round > 17", ()) for table in ("rounds", "evidence")])
        store.execute([("UPDATE run SET finished = NULL", ())])
    with RunStore.open(directory.store_file, read_only=True) as store:
        result = Coordinator(store).result()
    record = release(directory, unfinished=True)
    caveats = record["body"]["results"][0]["caveats"]
    (first,) = [caveat for caveat in caveats if caveat["code"] == "unfinished"]
    # What holds whatever the distribution holds at every look; the smooth interval does not, and is not in the record.
    assert first["text"] == "The run is unfinished: 17 of at most 20 rounds. Its interval is valid at any time."
    assert result.anytime == result.confidence_interval
    assert result.valid_at_every_look
    assert record["body"]["results"][0]["other_interval"] is None
    low, high = result.ends_shown(result.confidence_interval)
    smooth = unfinished(replace(result, valid_at_every_look=False, caveats=()), 20)
    text = smooth.caveats[0].text
    assert text.startswith(
        "The run is unfinished: 17 of at most 20 rounds. The 95% interval holds at the planned end only"
    )
    assert text.endswith(f"Valid at such a time is the anytime interval, {low} to {high}.")
    assert (
        f"so far; the 95% interval valid at any time runs from {low} to {high}."
        in replace(result, caveats=tuple(caveat for caveat in result.caveats if caveat.code == "unfinished")).sentence
    )
    checked = verify_record(record, directory.store_file)
    assert checked.failed == []
    assert f"{first['text']} The coordinator chose when to release it" in checked.flagged
    assert any("the run is unfinished" in text for text in verify_record(record).flagged)
    # Negative control: the same run at its end.
    whole = release(dropped[0].directory)
    assert "unfinished" not in [caveat["code"] for caveat in whole["body"]["results"][0]["caveats"]]
    for transcript in (None, dropped[0].directory.store_file):
        assert not any("unfinished" in text for text in verify_record(whole, transcript).flagged)
    # A record that says it had finished, or leaves the caveat out, fails.
    for change in ("finished", "caveat"):
        altered = copy.deepcopy(record)
        if change == "finished":
            altered["body"]["finished"] = True
        else:
            altered["body"]["results"][0]["caveats"].remove(first)
        altered["signatures"]["coordinator"] = sign(altered["body"], directory.key())
        assert len(verify_record(altered, directory.store_file).failed) == 1


def test_rounds_that_a_transcript_leaves_out_are_listed(dropped: tuple[Federation, list[int]], tmp_path: Path) -> None:
    # A coordinator that stops the run where it likes the estimate, and says that the later rounds were never asked.
    directory = Directory(tmp_path / "organizer")
    shutil.copytree(dropped[0].directory.path, directory.path)
    with RunStore.open(directory.store_file) as store:
        store.execute([(f"DELETE FROM {table} WHERE round > 15", ()) for table in ("rounds", "evidence")])
        store.execute([("UPDATE run SET finished = NULL", ())])
    record = release(directory, unfinished=True)
    assert verify_record(record, directory.store_file).failed == []
    with dropped[0].ledger("north") as ledger:
        record = countersign(record, "north", dropped[0].sites["north"].key(), directory.store_file, ledger)
    (flagged,) = [text for text in verify_record(record, directory.store_file).flagged if "north" in text]
    assert flagged.startswith("client north says: 5 rounds it answered are not in the transcript (rounds 16, 17")


def test_an_honest_run_is_countersigned_and_nothing_is_flagged(tmp_path: Path) -> None:
    for mode, scale, levels in (("local", "log", (0.25, 0.5)), ("cohort", "logit", (0.5,))):
        agreements = {"north": ClientAgreement(1.0, 0.25, 200), "south": ClientAgreement(1.0, 0.75, 331)}
        settings: dict[str, Any] = {"mode": mode, "scale": scale, "levels": levels, "range": (1.0, 100.0)}
        federation = Federation(tmp_path / mode, make_study(agreements, 8, **settings))
        play(federation)
        record = release(federation.directory)
        for name in agreements:
            record = federation.countersigned(record, name)
            assert record["signatures"]["clients"][name]["statement"]["compared"] == 8
        checked = verify_record(record, federation.directory.store_file)
        assert (checked.failed, checked.flagged) == ([], [])


def test_verify_shows_the_fingerprint_of_every_client(dropped: tuple[Federation, list[int]]) -> None:
    federation, _ = dropped
    told = verify_record(release(federation.directory)).to_text()
    for name, site in federation.sites.items():
        assert f"that key {site.key().public.fingerprint} is that of client {name}" in told


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


def test_another_ledger_does_not_countersign_and_a_restored_one_says_so(
    dropped: tuple[Federation, list[int]], tmp_path: Path
) -> None:
    federation, _ = dropped
    source = open_source(federation.values["north"], value=None)
    key, store = federation.sites["north"].key(), federation.directory.store_file
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        other = open_responder(federation.study, "north", source, ledger, SpendingRules(max_epsilon=2.0), reserve=False)
        with pytest.raises(CountersignRefused, match="round 1: the transcript has a count, this ledger gave none"):
            countersign(release(federation.directory), "north", key, store, ledger)
        other.account_for(3000, 20)
        record = countersign(release(federation.directory), "north", key, store, ledger)
    assert record["signatures"]["clients"]["north"]["statement"]["lost"] == list(range(1, 21))
    (flagged,) = [text for text in verify_record(record, store).flagged if "north" in text]
    assert flagged.startswith(
        "client north says: 20 rounds are no longer in its ledger, which was restored (rounds 1, 2"
    )


def test_an_edited_ledger_does_not_countersign(cheated: Federation, tmp_path: Path) -> None:
    """The questions that the coordinator has recorded are written into the site's ledger; before, it was signed."""
    site, store = cheated.sites["south"], cheated.directory.store_file
    with Ledger.open(site.ledger_file) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = shutil.copy(site.ledger_file, tmp_path / "ledger.db")
    with RunStore.open(store, read_only=True) as run, sqlite3.connect(path) as direct:
        recorded = [(questions[1].to_json(), stored.round) for stored, questions in stored_questions(run)]
        direct.executemany("UPDATE answers SET question = ? WHERE round = ?", recorded)
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
