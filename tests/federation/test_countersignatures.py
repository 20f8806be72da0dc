"""What a site compares before it countersigns, who may, and what a record says of answers that did not count."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.ledger import Ledger
from privatile.client.sources.databases import open_source
from privatile.federation.operations.record import UNFINISHED, countersign, release, verify_record
from privatile.federation.setup.folder import Directory, RevokedKey, Roster
from privatile.federation.site.responder import open_responder
from privatile.federation.study import ClientAgreement
from privatile.records import (
    Countersignature,
    CountersignRefused,
    body_digest,
    named_rounds,
    sign,
    statement_lines,
)
from privatile.records.keys import KeyPair
from privatile.result.summary import unfinished
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from tests.federation.kit import Federation, make_study
from tests.federation.played import make, play

pytestmark = pytest.mark.network


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


def without_gaps(flagged: list[str]) -> list[str]:
    """Without what signed links show (test_ledger_gaps): nothing, where only the last answers were dropped."""
    return [text for text in flagged if "entries of the clients' own ledgers" not in text]


def test_answers_that_a_coordinator_drops_are_listed(dropped: tuple[Federation, list[int]]) -> None:
    federation, rounds = dropped
    record = federation.countersigned(federation.countersigned(release(federation.directory), "south"), "north")
    statements = {name: entry["statement"] for name, entry in record["signatures"]["clients"].items()}
    assert statements["south"]["not_counted"] == rounds
    assert statements["south"]["compared"] == 20 - len(rounds)
    assert statements["north"]["not_counted"] == []
    checked = verify_record(record, federation.directory.store_file)
    assert checked.failed == []
    flagged, unknown = without_gaps(checked.flagged)
    assert flagged.startswith(f"client south says: not counted: {len(rounds)} answers it gave (rounds")
    # The coordinator's file says nothing of answers that came and did not count.
    assert unknown.startswith("client south says that it answered round")
    assert "the coordinator's file knows nothing of it" in unknown
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
    _, came, unknown = without_gaps(verify_record(record, directory.store_file).flagged)
    assert came == (
        f"the coordinator's file says: not counted: 1 answer of client south that came (round {first}): late, rejected"
    )
    assert f"that it answered {named_rounds(others)}, and the coordinator's file knows nothing of it" in unknown


def test_a_countersignature_cannot_be_made_to_say_less(dropped: tuple[Federation, list[int]]) -> None:
    federation, _ = dropped
    record = federation.countersigned(release(federation.directory), "south")
    record["signatures"]["clients"]["south"]["statement"]["not_counted"] = []
    assert any("client south has countersigned it" in text for text in verify_record(record).failed)
    # Nor can it be moved to another record of the same run.
    moved_to = release(federation.directory)
    moved_to["body"]["results"][0]["estimate"] = 1.0
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
    record["signatures"]["signer"] = sign(record["body"], federation.directory.key())
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
    assert flagged.startswith("client north says: not in the transcript: 5 rounds it answered (rounds 16, 17")


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


def test_a_statement_counts_one_as_one_and_names_the_harmless_reasons_first() -> None:
    one = statement_lines(Countersignature(1, "south", "0" * 64, 17, [3], [19], [1]))
    assert [line.removeprefix("client south says: ").partition(". ")[0] for line in one] == [
        "not counted: 1 answer it gave (round 3)",
        "not in the transcript: 1 round it answered (round 19)",
        "no longer in its ledger, which was restored: 1 round (round 1)",
    ]
    reasons = [one[0].index(word) for word in ("crash", "on the way", "late", "left out by somebody who had seen them")]
    assert reasons == sorted(reasons)
    (two,) = statement_lines(Countersignature(1, "south", "0" * 64, 18, [3, 5], [], []))
    assert "not counted: 2 answers it gave (rounds 3, 5)." in two


def test_verify_shows_the_fingerprint_of_every_client(dropped: tuple[Federation, list[int]]) -> None:
    federation, _ = dropped
    told = verify_record(release(federation.directory)).to_text()
    for name, site in federation.sites.items():
        assert f"that key {site.key().public.fingerprint} is that of client {name}" in told


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
    told = "client north says: no longer in its ledger, which was restored: 20 rounds (rounds 1, 2"
    assert flagged.startswith(told)


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
    assert "unfinished" in record["body"]["results"][0]["caveats"]
    # What holds whatever the distribution holds at every look; the smooth interval does not, and is not in the record.
    assert result.anytime == result.confidence_interval
    assert result.valid_at_every_look
    assert record["body"]["results"][0]["other_interval"] is None
    low, high = result.shown.own.ends
    smooth = unfinished(replace(result, valid_at_every_look=False, caveats=()), 20)
    text = smooth.caveats[0].text
    assert text.startswith(
        "The run is unfinished: 17 of at most 20 rounds. The 95% interval holds at the planned end only"
    )
    assert text.endswith(f"Valid at such a time is the anytime interval, {low} to {high}.")
    assert (
        f"so far; the 95% interval valid at any time runs from {low} to {high}, whatever the distribution."
        in replace(result, caveats=tuple(caveat for caveat in result.caveats if caveat.code == "unfinished")).sentence
    )
    for transcript in (None, directory.store_file):
        checked = verify_record(record, transcript)
        assert checked.failed == []
        assert UNFINISHED in checked.flagged
    # Negative control: the same run at its end.
    whole = release(dropped[0].directory)
    assert "unfinished" not in whole["body"]["results"][0]["caveats"]
    for transcript in (None, dropped[0].directory.store_file):
        assert UNFINISHED not in verify_record(whole, transcript).flagged
    # A record that says it had finished, or leaves the caveat out, fails.
    for change in ("finished", "caveat"):
        altered = copy.deepcopy(record)
        if change == "finished":
            altered["body"]["finished"] = True
        else:
            altered["body"]["results"][0]["caveats"].remove("unfinished")
        altered["signatures"]["signer"] = sign(altered["body"], directory.key())
        assert len(verify_record(altered, directory.store_file).failed) == 1
