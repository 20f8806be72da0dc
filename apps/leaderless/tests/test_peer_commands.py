"""The commands of one organization without a coordinator, on its folder: release, status, votes, catching up."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from logged_peers import Peers, leaderless_study, with_a_silence
from privatile.cli import main
from privatile.records import read_record, write_record
from privatile.run.run_file import RunStore
from privatile.run.state import awaiting, read_alarms
from privatile_leaderless.record import release_of_peers
from tests.made_runs import copied

Record = dict[str, Any]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Peers:
    return with_a_silence(tmp_path_factory.mktemp("finished"))


def run_file(peers: Peers, name: str = "north") -> Path:
    return peers[name].folder.store_file


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
    told = runner.invoke(main, ["status", folder])
    assert told.exit_code == 0, told.output
    assert "as north sees it" in told.output
    assert "6 of 6 committed" in told.output
    assert "no peer running" in told.output
    plain = json.loads(runner.invoke(main, ["status", folder, "--json"]).output)
    assert (plain["peer"], plain["state"]) == ("north", "finished")
    checked = runner.invoke(main, ["federation", "check", folder])
    assert checked.exit_code == 0, checked.output
    assert "with fewer than three" in checked.output
    assert runner.invoke(main, ["status", folder]).exit_code == 0
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


def voted(peers: Peers, name: str) -> None:
    peers.write(name, peers[name].replica.vote(name).pack(peers[name].key))


def test_everybody_sees_who_has_voted_to_abort(tmp_path: Path) -> None:
    peers, runner = Peers(tmp_path, leaderless_study(rounds=5)), CliRunner()
    peers.play(rounds=2)
    folder = str(peers["west"].folder.path)

    def told() -> tuple[str, list[str]]:
        text = runner.invoke(main, ["status", folder]).output
        votes = json.loads(runner.invoke(main, ["status", folder, "--json"]).output)["abort_votes"]
        return text, votes

    assert "votes  " not in told()[0]
    assert told()[1] == []
    voted(peers, "north")
    text, votes = told()
    assert "votes        1 of 2 votes to abort: north\n" in text
    assert votes == ["north"]
    peers.play(rounds=2)  # the vote stays for later rounds, and for a peer that starts again
    assert "1 of 2 votes to abort: north" in told()[0]
    west = peers["west"]
    again = west.log.replica(west.folder.peers().keys)
    assert again.abort_voters == {"north"}
    voted(peers, "south")
    text, votes = told()
    assert ("votes  " in text, votes) == (False, [])
    assert "aborted" in text
    peers.close()


def test_an_aborted_run_has_nothing_to_release(tmp_path: Path) -> None:
    peers, runner = Peers(tmp_path, leaderless_study(rounds=3)), CliRunner()
    peers.play(rounds=2)
    folder = str(peers["north"].folder.path)
    for name in ("north", "south"):
        voted(peers, name)
    peers.close()
    for command in (["federation", "check", folder], ["release", folder, "-o", str(tmp_path / "record.json")]):
        told = runner.invoke(main, command)
        assert "was aborted" in told.output, told.output
        assert ("there is nothing to release" in told.output) is (command[0] == "release")
        assert "Everything is in order" not in told.output
    assert told.exit_code == 2
    plain = json.loads(runner.invoke(main, ["federation", "check", folder, "--json"]).stdout)
    assert plain["in_order"]
    assert plain["verdict"].startswith("The run was aborted")
    assert {one["state"] for one in plain["findings"]} == {"note"}


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
    told = runner.invoke(main, ["status", str(folder.path)])
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
    assert "not begun" in runner.invoke(main, ["status", str(folder.path)]).output


def test_a_peer_that_was_away_at_the_end_catches_up_and_then_signs(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    west = peers["west"].folder
    peers.play(5)
    with RunStore.open(west.store_file, read_only=True) as store:
        early = copied(store)
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
