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

from privatile.cli import main
from privatile.errors import InputError
from privatile.federation.record import CountersignRefused, read_record, verify_record, write_record
from privatile.federation.record.document import sign, transcript_digest
from privatile.federation.record.history import follow_file
from privatile.federation.record.peers import release_of_peers, sign_as_peer
from privatile.federation.replica.entries import Decision, PeerAnswer, read_entry
from privatile.federation.wire.keys import KeyPair
from privatile.server.alarms import awaiting, read_alarms
from privatile.server.run_file import RunStore
from tests.federation.logged_peers import Peers, leaderless_study
from tests.federation.test_log_page import section, told

Record = dict[str, Any]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Peers:
    """Three organizations, one of them silent in one round."""
    peers = Peers(tmp_path_factory.mktemp("finished"))
    peers.play(silent=lambda name, number: (name, number) == ("west", 3))
    peers.close()
    return peers


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
        (lambda body: body.update(decisions=[[1, "readmit", "west"]]), "the decisions"),
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


def test_a_key_that_was_voted_for_signs_from_then_on_and_the_old_one_no_more(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless_study(rounds=3))
    peers.play(rounds=1)
    west, old, new = peers["west"], peers["west"].key, KeyPair.generate()
    decision = Decision("key", "west", before=old.public.signer, keys=new.public)
    for name in ("north", "south"):
        peers.write(name, peers[name].replica.vote(name, decision).pack(peers[name].key))
    west.key = new
    west.folder.key_file.write_text(new.seed + "\n")
    peers.play()
    peers.close()
    record = sign_as_peer(release_of_peers(peers["north"].folder), west.folder)
    assert record["body"]["decisions"] == [[2, "key", "west"]]
    checked = verify_record(record, run_file(peers))
    assert checked.failed == []
    assert any(text.startswith("keys that were changed during the run: west") for text in checked.flagged)
    # Without the votes, which are in the run's file, anybody could name a key of their own.
    assert "organizations have signed the same record: signed by 1" in failures(record)
    entry = {"signer": old.public.signer, "signature": sign(record["body"], old)}
    record["signatures"]["peers"]["west"] = entry
    assert "organizations have signed the same record: signed by 1" in failures(record, run_file(peers))


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


def test_the_commands_pass_a_record_round(finished: Peers, tmp_path: Path) -> None:
    runner, path = CliRunner(), tmp_path / "record.json"
    folders = {name: str(peer.folder.path) for name, peer in finished.peers.items()}
    first = runner.invoke(main, ["release", folders["south"], "-o", str(path)])
    assert first.exit_code == 0, first.output
    assert "signed by south; 2 of 3 are needed: it does not hold yet" in first.output
    early = runner.invoke(main, ["verify", str(path), "--transcript", str(run_file(finished))])
    assert early.exit_code == 1
    then = runner.invoke(main, ["release", folders["west"], "--sign", str(path)])
    assert "signed by south, west; 2 of 3 are needed: these are enough" in then.output, then.output
    again = runner.invoke(main, ["release", folders["north"], "-o", str(path)])  # would lose two signatures
    assert again.exit_code == 2
    assert "may hold signatures of others" in again.output
    missing = runner.invoke(main, ["verify", str(path), "--transcript", str(tmp_path / "nix.db")])
    assert missing.exit_code == 2
    assert "there is no file" in missing.output
    assert "estimate" not in missing.output
    assert "cannot be trusted" not in missing.output
    late = runner.invoke(main, ["peer", "vote", folders["north"], "--abort"])
    assert late.exit_code == 2
    assert "the run is finished" in late.output
    done = runner.invoke(main, ["verify", str(path), "--transcript", str(run_file(finished))])
    assert done.exit_code == 0, done.output
    plain = json.loads(runner.invoke(main, ["verify", str(path), "--json"]).stdout)
    assert (plain["verified"], plain["recomputed"]) == (True, False)
    assert {"state": "holds", "text": "the run is finished"} in plain["checks"]
    forged = read_record(path)
    forged["body"]["results"][0]["estimate"] = 51.0
    write_record(forged, tmp_path / "forged.json")
    refused = runner.invoke(main, ["verify", str(tmp_path / "forged.json"), "--json"])
    plain = json.loads(refused.stdout)
    assert (refused.exit_code, plain["verified"]) == (1, False)
    assert [one for one in plain["checks"] if one["state"] == "fails"]
    assert "cannot be trusted" in refused.stderr
    refused = runner.invoke(main, ["verify", str(path), "--countersign", "--invitation", "x.json"])
    assert refused.exit_code == 2
    assert "privatile release DIR --sign" in refused.output
    refused = runner.invoke(main, ["release", folders["west"], "--unfinished"])
    assert refused.exit_code == 2


def test_status_check_watch_report_and_backup_take_a_peers_folder(finished: Peers, tmp_path: Path) -> None:
    runner, folder = CliRunner(), str(finished["north"].folder.path)
    told = runner.invoke(main, ["federation", "status", folder])
    assert told.exit_code == 0, told.output
    assert "as north sees it" in told.output
    assert "6 of 6 committed" in told.output
    assert "no peer running" in told.output
    plain = json.loads(runner.invoke(main, ["federation", "status", folder, "--json"]).output)
    assert (plain["peer"], plain["state"]) == ("north", "finished")
    checked = runner.invoke(main, ["federation", "check", folder])
    assert checked.exit_code == 0, checked.output
    assert "with fewer than three" in checked.output
    assert runner.invoke(main, ["watch", folder, "--once"]).exit_code == 0
    report = runner.invoke(main, ["report", folder, "-o", str(tmp_path / "page.html")])
    assert report.exit_code == 0, report.output
    assert (tmp_path / "page.html").stat().st_size > 10_000
    saved = runner.invoke(main, ["federation", "backup", folder, str(tmp_path / "saved"), "--keys"])
    assert saved.exit_code == 0, saved.output
    names = {path.name for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    assert {"run.db", "study.toml", "roster.json", "peer.json", "north.peer.json", "authority.key"} <= names
    with sqlite3.connect(tmp_path / "saved" / "run.db") as copy_of_it:
        assert copy_of_it.execute("SELECT restored FROM peer").fetchall() == [(1,)]
    for command in (["abort", folder, "--yes"], ["revoke", folder, "west"], ["resume", folder, "--readmit", "west"]):
        refused = runner.invoke(main, ["federation", *command])
        assert refused.exit_code == 2
        assert "nobody decides alone" in refused.output


def voted(peers: Peers, name: str, decision: Decision) -> None:
    peers.write(name, peers[name].replica.vote(name, decision).pack(peers[name].key))


def test_votes_that_are_not_decided_are_seen_by_everybody(tmp_path: Path) -> None:
    peers, runner = Peers(tmp_path, leaderless_study(rounds=5)), CliRunner()
    peers.play(rounds=2)
    folder, new = str(peers["west"].folder.path), KeyPair.generate().public

    def told() -> tuple[str, list[dict[str, Any]]]:
        text = runner.invoke(main, ["federation", "status", folder]).output
        votes = json.loads(runner.invoke(main, ["federation", "status", folder, "--json"]).output)["votes"]
        return text, votes

    assert "votes  " not in told()[0]
    assert told()[1] == []
    voted(peers, "north", Decision("abort"))
    voted(peers, "south", Decision("key", "west", before=peers["west"].key.public.signer, keys=new))
    text, votes = told()
    assert "votes        1 of 2 votes to abort: north\n" in text
    assert "votes        1 of 2 votes for a new key of west: south\n" in text
    assert {"action": "abort", "client": None, "voters": ["north"], "needed": 2} in votes
    peers.play(rounds=2)  # the vote stays for later rounds, and for a peer that starts again
    assert "1 of 2 votes to abort: north" in told()[0]
    west = peers["west"]
    again = west.log.replica(west.folder.peers().keys)
    assert [one.words for one in again.undecided] == ["to abort", "for a new key of west"]
    voted(peers, "south", Decision("abort"))
    text, votes = told()
    assert ("votes  " in text, votes) == (False, [])
    assert "aborted" in text
    peers.close()


def test_a_vote_for_a_key_that_can_hold_no_more_is_not_shown(tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless_study(rounds=3))
    peers.play(rounds=1)
    old, first, second = peers["west"].key.public.signer, KeyPair.generate(), KeyPair.generate()
    voted(peers, "north", Decision("key", "west", before=old, keys=second.public))
    for name in ("north", "south"):
        voted(peers, name, Decision("key", "west", before=old, keys=first.public))
    assert peers["north"].replica.keys["west"] == first.public
    assert peers["north"].replica.undecided == []
    peers.close()


def test_nobody_is_readmitted_who_is_not_in_quarantine(tmp_path: Path) -> None:
    peers, runner = Peers(tmp_path, leaderless_study(rounds=3)), CliRunner()
    peers.play(rounds=1)
    folder = peers["north"].folder
    words = ["peer", "vote", str(folder.path), "--readmit", "west"]
    peers["north"].log.store.execute([("INSERT INTO quarantined VALUES ('south', 'two answers')", ())])
    refused = runner.invoke(main, words)
    assert refused.exit_code == 2
    assert "west is not in quarantine" in refused.output
    assert "In quarantine: south" in refused.output
    assert not (folder.path / "votes").exists()
    assert runner.invoke(main, [*words[:-1], "south"]).exit_code == 0
    peers.close()


def test_an_aborted_run_has_nothing_to_release(tmp_path: Path) -> None:
    peers, runner = Peers(tmp_path, leaderless_study(rounds=3)), CliRunner()
    peers.play(rounds=2)
    folder = str(peers["north"].folder.path)
    for name in ("north", "south"):
        voted(peers, name, Decision("abort"))
    peers.close()
    for command in (["federation", "check", folder], ["release", folder, "-o", str(tmp_path / "record.json")]):
        told = runner.invoke(main, command)
        assert "was aborted" in told.output, told.output
        assert "there is nothing to release" in told.output
        assert "Everything is in order" not in told.output
    assert told.exit_code == 2
    plain = json.loads(runner.invoke(main, ["federation", "check", folder, "--json"]).stdout)
    assert plain["in_order"]
    assert plain["verdict"].startswith("The run was aborted")
    assert {one["state"] for one in plain["findings"]} == {"note"}


def test_silence_is_told_by_the_rules_of_a_study_without_a_coordinator(finished: Peers, record: Record) -> None:
    body = copy.deepcopy(record)
    body["signatures"]["clients"] = {}
    (flagged,) = [one for one in verify_record(body, run_file(finished)).flagged if one.startswith("silent clients")]
    assert "by the votes of at least 1 organization to close a round: west in 1 of 6" in flagged
    assert "quorum" not in flagged


def test_who_was_never_heard_is_started_by_the_command_of_peers(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    peers["north"].log.store.execute(awaiting(1, 0.0, ["west"]))
    (alarm,) = read_alarms(peers["north"].log.store, {})
    assert (
        alarm.text == "west has not been heard yet: start `privatile peer run` there, or ask the site why it is not up"
    )
    peers.close()


def test_a_folder_before_its_run_says_what_is_missing(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    folder = peers["west"].folder
    peers.close()
    runner = CliRunner()
    for path in (folder.store_file, folder.roster_file):
        path.unlink()
    told = runner.invoke(main, ["federation", "status", str(folder.path)])
    assert "not begun" in told.output
    assert "north, south, west" in told.output
    checked = runner.invoke(main, ["federation", "check", str(folder.path)])
    assert checked.exit_code == 1
    assert "nobody is admitted yet" in checked.output
    plain = json.loads(runner.invoke(main, ["federation", "check", str(folder.path), "--json"]).stdout)
    assert not plain["in_order"]
    assert [one["state"] for one in plain["findings"]] == ["alarm"]
    folder.key_file.unlink()
    broken = runner.invoke(main, ["federation", "check", str(folder.path), "--json"])
    assert broken.exit_code == 2
    assert [one["state"] for one in json.loads(broken.stdout)["findings"]] == ["error"]
    assert "privatile peer run" in runner.invoke(main, ["watch", str(folder.path), "--once"]).output


def test_a_file_that_lacks_rounds_is_called_so_and_nothing_else(
    finished: Peers, record: Record, tmp_path: Path
) -> None:
    """A copy of the file alone, made while it was written, is not a forgery."""
    (found,) = verify_record(record, altered_file(finished, tmp_path, "DELETE FROM rounds WHERE round > 4")).failed
    assert found.startswith("the run's file has all rounds of the record: it has 4 of 6: ")
    assert "privatile federation backup" in found


def test_a_peer_that_was_away_at_the_end_catches_up_and_then_signs(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    west = peers["west"].folder
    peers.play(5)
    with RunStore.open(west.store_file, read_only=True) as store:
        early = store.to_bytes()
    peers.play()
    peers.close()
    west.store_file.write_bytes(early)
    given = tmp_path / "record.json"
    write_record(release_of_peers(peers["north"].folder), given)
    refused = CliRunner().invoke(main, ["release", str(west.path), "--sign", str(given)])
    assert refused.exit_code == 2
    assert (
        "west has 4 rounds of the run, without its end, and the record is of the whole run, 6 rounds" in refused.output
    )
    assert "privatile peer catch-up" in refused.output
    caught_up = ["peer", "catch-up", str(west.path), "--from", str(run_file(peers))]
    done = CliRunner().invoke(main, caught_up)
    assert "New here: 2 rounds and the end of the run. west has 6 rounds; the run is finished here." in done.output
    again = CliRunner().invoke(main, caught_up)
    assert "New here: 0 rounds. west has 6 rounds; the run is finished here." in again.output
    signed = CliRunner().invoke(main, ["release", str(west.path), "--sign", str(given)])
    assert signed.exit_code == 0, signed.output
