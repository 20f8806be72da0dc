"""The release record of a run without a coordinator: who signs what, and every forgery of it that is found."""

from __future__ import annotations

import copy
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from logged_peers import Peers, leaderless_study, with_a_silence
from privatile.cli import main
from privatile.errors import InputError
from privatile.federation.operations.record import verify_record
from privatile.records import CountersignRefused, read_record, sign, transcript_digest, write_record
from privatile.records.keys import KeyPair
from privatile.run.run_file import RunStore
from privatile_leaderless.entries import PeerAnswer, read_entry
from privatile_leaderless.history import follow_file
from privatile_leaderless.record import release_of_peers, sign_as_peer
from test_log_page import section, told

Record = dict[str, Any]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Peers:
    return with_a_silence(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def record(finished: Peers) -> Record:
    """Signed by two of three, which is the quorum."""
    return sign_as_peer(release_of_peers(finished["north"].folder), finished["south"].folder)


def run_file(peers: Peers, name: str = "north") -> Path:
    return peers[name].folder.store_file


def failures(record: Record, path: Path | None = None) -> str:
    return "\n".join(verify_record(record, path).failed)


def test_a_quorum_signs_the_same_bytes_and_every_file_confirms_them(finished: Peers, record: Record) -> None:
    for name in finished.peers:
        checked = verify_record(record, run_file(finished, name))
        assert checked.failed == []
        assert "at least 2 of 3 organizations have signed the same record" in checked.passed
    everybody = sign_as_peer(record, finished["west"].folder)
    assert set(everybody["signatures"]["peers"]) == set(finished.peers)
    assert verify_record(everybody, run_file(finished)).failed == []
    signatures = {entry["signature"] for entry in everybody["signatures"]["peers"].values()}
    assert len(signatures) == 3
    assert "coordinator" not in json.dumps(everybody["body"])


def test_who_writes_the_body_makes_no_difference(finished: Peers, record: Record) -> None:
    other = release_of_peers(finished["west"].folder)
    assert other["body"] == record["body"]


def test_one_signature_fewer_than_the_quorum_is_refused(finished: Peers, record: Record) -> None:
    for name in ("north", "south"):
        short = copy.deepcopy(record)
        del short["signatures"]["peers"][name]
        assert "at least 2 of 3 organizations have signed the same record: signed by 1" in failures(short)
        assert "signed by 1" in failures(short, run_file(finished))


def test_signatures_by_other_keys_or_strangers_do_not_count(finished: Peers, record: Record) -> None:
    stranger = KeyPair.generate()
    entry = {"signer": stranger.public.signer, "signature": sign(record["body"], stranger)}
    for forged in (
        {**record["signatures"]["peers"], "south": entry},
        {"north": record["signatures"]["peers"]["north"], "east": entry},
        {"north": record["signatures"]["peers"]["north"], "south": record["signatures"]["peers"]["north"]},
    ):
        altered = {"body": record["body"], "signatures": {**record["signatures"], "peers": forged}}
        assert "organizations have signed the same record: signed by 1" in failures(altered, run_file(finished))


def resigned(finished: Peers, body: dict[str, Any]) -> Record:
    """A body that q organizations sign without looking."""
    keys = {name: finished[name].key for name in ("north", "south")}
    peers = {name: {"signer": key.public.signer, "signature": sign(body, key)} for name, key in keys.items()}
    return {"body": body, "signatures": {"peers": peers, "clients": {}}}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda body: body["results"][0].update(estimate=51.0), "the estimate"),
        (lambda body: body["transcript"].update(chain="0" * 64), "the chain value"),
        (lambda body: body["transcript"].update(rounds=5), "it ended as the record says"),
        (lambda body: body.update(finished=False), "the run is finished"),
        (lambda body: body["spent"]["north"].update(records=1), "what was spent"),
        (lambda body: body["roster"]["peers"].pop("west"), "the roster has every client"),
        (lambda body: body["clients"]["west"].update(current=None), "the keys of the clients"),
    ],
)
def test_a_body_that_is_not_the_runs_is_found_whoever_signed_it(
    finished: Peers, record: Record, change: Callable[[dict[str, Any]], object], found: str
) -> None:
    body = copy.deepcopy(record["body"])
    change(body)
    assert found in failures(resigned(finished, body), run_file(finished))


def test_another_roster_is_another_history(finished: Peers, record: Record) -> None:
    """The roster's digest is part of the first chain value: no answer holds under another one."""
    body = copy.deepcopy(record["body"])
    server = body["roster"]["peers"]["north"]["server"]
    server["port"] += 1
    found = failures(resigned(finished, body), run_file(finished))
    assert "round 1: the answer of north is not one to this round" in found
    key = KeyPair.generate()
    body = copy.deepcopy(record["body"])
    for one in (body["roster"]["peers"]["west"]["keys"], body["clients"]["west"]["current"]):
        one.update(login=key.public.login, signer=key.public.signer)
    assert "round 1: the answer of" in failures(resigned(finished, body), run_file(finished))


def test_one_key_under_two_names_is_no_roster(finished: Peers, record: Record) -> None:
    body = copy.deepcopy(record["body"])
    body["roster"]["peers"]["south"]["keys"] = body["roster"]["peers"]["north"]["keys"]
    assert "the roster has every client of the study" in failures(resigned(finished, body), run_file(finished))


def altered_file(finished: Peers, tmp_path: Path, *statements: str) -> Path:
    path = tmp_path / "run.db"
    shutil.copy(run_file(finished), path)
    with sqlite3.connect(path) as store:
        for statement in statements:
            store.execute(statement)
    return path


def own_record(path: Path, finished: Peers) -> Record:
    """What a forger with this file releases, signed by q organizations without looking."""
    body = copy.deepcopy(release_of_peers(finished["north"].folder)["body"])
    with RunStore.frozen(path) as store:
        body["transcript"]["digest"] = transcript_digest(store)
        ((body["transcript"]["rounds"],),) = store.query("SELECT count(DISTINCT round) FROM rounds")
    return resigned(finished, body)


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (["UPDATE rounds SET ones = replace(ones, '[', '[0, ') WHERE 0"], ""),  # the control: nothing is altered
        (["UPDATE rounds SET sent = sent + 1 WHERE round = 4"], "round 4"),
        (["UPDATE evidence SET signature = (SELECT signature FROM evidence WHERE round = 4 AND client = 'south')"
          " WHERE round = 5 AND client = 'south'"], "round 5"),
        (["DELETE FROM evidence WHERE round = 3 AND client = 'south'"], "every count has its client's signature"),
        (["DELETE FROM peer_proof WHERE client <> 'north'"], "the run is over after this history: signed by 1"),
        (["DELETE FROM rounds WHERE round = 6", "DELETE FROM evidence WHERE round = 6"], "this history: signed by 0"),
        (["UPDATE run SET finished = NULL"], "it ended as the record says"),
        (["INSERT INTO peer_notes VALUES (4, 0, 'north', 'x')"], "round 4"),
        (["INSERT INTO peer_notes VALUES (9, 0, 'north', 'x')"], "which is not there"),
        (["INSERT INTO peer_votes VALUES (4, 0, 'north', 'x')"], "round 4"),
        (["INSERT INTO peer_votes VALUES (9, 0, 'north', 'x')"], "which is not there"),
    ],
)  # fmt: skip
def test_a_file_that_was_altered_is_found(finished: Peers, tmp_path: Path, statements: list[str], found: str) -> None:
    path = altered_file(finished, tmp_path, *statements)
    told = failures(own_record(path, finished), path)
    assert found in told
    assert bool(found) == bool(told)


@pytest.mark.parametrize(
    ("number", "found"), [(4, "round 5: "), (6, "signed that the run is over after this history: signed by 0")]
)
def test_an_answer_signed_anew_after_the_fact_is_found(
    finished: Peers, tmp_path: Path, number: int, found: str
) -> None:
    """West itself signs another count, in mid-run or in the last round: all others have signed the first."""
    path, west, roster = altered_file(finished, tmp_path), finished["west"], finished["north"].folder.peers()
    with RunStore.open(path, read_only=True) as store:
        followed = follow_file(finished.study, roster.keys, roster.digest, store)
    assert followed.broken == ""
    payload = followed.history.records[number - 1].closed.answers[2] or ""
    message = read_entry(payload.encode(), west.key.public.signer)
    assert isinstance(message, PeerAnswer)
    counts = tuple(msgspec.structs.replace(one, ones=one.ones - 1) for one in message.counts)
    again = msgspec.structs.replace(message, counts=counts).pack(west.key)
    with sqlite3.connect(path) as altered:
        ((ones,),) = altered.execute("SELECT ones FROM rounds WHERE round = ?", (number,)).fetchall()
        first, second, third = json.loads(ones)
        altered.execute("UPDATE rounds SET ones = ? WHERE round = ?", (json.dumps([first, second, third - 1]), number))
        row = (again.rpartition(b"\n")[2].decode(), number)
        altered.execute("UPDATE evidence SET signature = ? WHERE round = ? AND client = 'west'", row)
    assert found in failures(own_record(path, finished), path)


def test_a_run_whose_end_too_few_have_signed_is_not_released(tmp_path: Path) -> None:
    """One signature over the end is no quorum: another last round could stand beside it."""
    peers = Peers(tmp_path, leaderless_study(rounds=3))
    peers.play(finals=1)
    assert not peers["north"].replica.finished
    peers.close()
    with pytest.raises(InputError, match="the run is not finished"):
        release_of_peers(peers["north"].folder)


def test_every_entry_of_a_run_is_on_the_page(finished: Peers) -> None:
    fields = told(section())
    seen = set()
    for payload in finished.entries:
        body = json.loads(payload.partition(b"\n")[0])
        assert set(body) == fields[body["kind"]] | {"kind", "study", "run"}
        seen.add(body["kind"])
    assert seen == {"proposal", "peer answer", "close", "final"}


def test_an_organization_signs_only_what_its_own_file_and_ledger_say(
    finished: Peers, record: Record, tmp_path: Path
) -> None:
    other = Peers(tmp_path / "other", leaderless_study(rounds=3))
    other.play()
    other.close()
    with pytest.raises(CountersignRefused, match="another study, or of another roster"):
        sign_as_peer(record, other["west"].folder)
    write_record(record, tmp_path / "record.json")
    runner = CliRunner()
    outcome = runner.invoke(main, ["release", str(other["west"].folder.path), "--sign", str(tmp_path / "record.json")])
    assert outcome.exit_code != 0
    assert "is not signed" in outcome.output + str(outcome.exception)
    assert read_record(tmp_path / "record.json") == record


def test_silence_is_told_by_the_rules_of_a_study_without_a_coordinator(finished: Peers, record: Record) -> None:
    body = copy.deepcopy(record)
    body["signatures"]["clients"] = {}
    (flagged,) = [one for one in verify_record(body, run_file(finished)).flagged if one.startswith("silent clients")]
    assert "by the votes of at least 1 organization to close a round: west in 1 of 6" in flagged
    assert "quorum" not in flagged


def test_a_file_that_lacks_rounds_is_called_so_and_nothing_else(
    finished: Peers, record: Record, tmp_path: Path
) -> None:
    """A copy of the file alone, made while it was written, is not a forgery."""
    (found,) = verify_record(record, altered_file(finished, tmp_path, "DELETE FROM rounds WHERE round > 4")).failed
    assert found.startswith("the run's file has all rounds of the record: it has 4 of 6: ")
    assert "privatile federation backup" in found
