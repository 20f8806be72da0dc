"""status, doctor and completion."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from privatile.cli import main
from privatile.cli.start import RELEASED, _clock, _disk, _randomness
from privatile.report.dashboard.live import LiveRun
from privatile.run.locks import claim
from tests.made_runs import SlowRun, long_run


def status(*words: object) -> Result:
    return CliRunner().invoke(main, ["status", *map(str, words)])


@pytest.mark.slow
def test_status_shows_where_a_run_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = long_run(tmp_path / "run.db", rounds=400, silent=frozenset({1}))
    monkeypatch.chdir(tmp_path)
    done = status()  # of the folder one stands in
    assert done.exit_code == 0, done.output
    assert "state        finished" in done.output
    assert "rounds       400 of 400; 801 answers" in done.output
    assert "silent       client 1, 399 rounds" in done.output
    assert done.output == status(path).output
    assert done.output.split() == status(path, "--follow").output.split()  # it ends with the run
    facts = json.loads(status(path, "--json").output)
    assert (facts["state"], facts["done"], facts["silent"]) == ("finished", 400, {"client 1": 399})
    assert status(path, "--follow", "--json").exit_code == 2
    missing = status(tmp_path / "none.db")
    assert missing.exit_code == 2
    assert "there is no run file" in missing.output
    # A federation's run begins with `serve`.
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.toml").touch()
    early = status(tmp_path / "study" / "run.db")
    assert early.exit_code == 2
    assert "privatile serve" in early.output
    # A file that was written just now and is no run's is not "no file".
    (tmp_path / "data.csv").write_text("a,b\n")
    other = status(tmp_path / "data.csv")
    assert other.exit_code == 2
    assert "data.csv is not a run file" in other.output


def test_where_there_is_no_terminal_each_change_is_printed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = SlowRun(tmp_path / "run.db", rounds=40)
    run.go(10)
    waits = []

    def wait(_: float) -> None:
        waits.append(_)
        if len(waits) == 2:  # the first time nothing has changed
            run.go(30)
            run.coordinator.finish()

    monkeypatch.setattr(time, "sleep", wait)
    shown = status(tmp_path / "run.db", "--follow").output
    assert shown.count("rounds       10 of 40") == 1
    assert shown.count("rounds       40 of 40") == 1
    assert shown.endswith("\n")


KILLED = """
import os, signal, sys
import numpy as np
import privatile
people = {"north": np.linspace(0, 100, 5000), "south": np.linspace(10, 90, 5000)}
def killed(done, planned, *rest):
    if done == 50:
        print("fifty", flush=True)
        sys.stdin.readline()
        os.kill(os.getpid(), signal.SIGKILL)
privatile.estimate(people, q=0.5, epsilon=1, range=(0, 100), simulate=True, rng=1, save=sys.argv[1], progress=killed)
"""


@pytest.mark.process
def test_status_tells_a_killed_estimate_from_a_running_one(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "fifty\n"
        before = status(path).output
        run.communicate("\n")
    assert run.returncode == -signal.SIGKILL
    assert "state        running" in before
    after = status(path).output
    assert "state        stopped" in after
    assert "no process continues this run" in after
    assert "running" not in after


@pytest.mark.slow
def test_a_run_has_no_news_where_no_process_can_be_known(tmp_path: Path) -> None:
    run = SlowRun(tmp_path / "run.db", rounds=100)
    run.go(30)
    live = LiveRun(tmp_path / "run.db")
    live.refresh()
    assert live.state["status"] == "running"
    assert not live.refresh()
    run.sql("UPDATE rounds SET at = at - 3600")
    run.sql("UPDATE run SET created = created - 3600")
    live = LiveRun(tmp_path / "run.db")
    live.refresh()
    assert live.state["status"] == "no news"
    claim(run.coordinator.store)  # a process that lives may wait for its clients as long as it likes
    assert live.refresh()
    assert live.state["status"] == "running"
    assert live.state["rate"] is None
    run.sql("UPDATE writer SET machine = 'another'")
    assert live.refresh()
    assert live.state["status"] == "no news"
    run.go(70)
    run.coordinator.finish()
    assert live.refresh()
    assert live.state["status"] == "finished"
    assert run.coordinator.store.query("SELECT * FROM writer") == []  # the table is gone


def test_status_shows_alarms_and_disarms_names(tmp_path: Path) -> None:
    run = SlowRun(tmp_path / "run.db", rounds=100, names=("[red]north\x1b[2J", "south"), value="\x1b]0;owned\x07")
    run.go(30)
    run.sql(
        "CREATE TABLE events (at REAL NOT NULL, kind TEXT NOT NULL, client TEXT, round INTEGER, text TEXT NOT NULL)"
    )
    run.sql("INSERT INTO events VALUES (?, 'paused', 'south', 31, 'nobody\x1b[1A answered')", (time.time() + 1,))
    text = status(tmp_path / "run.db").output
    assert "[red]north�[2J" in text
    assert "nobody�[1A answered" in text
    assert "paused" in text
    assert "\x1b[2J" not in text
    assert "\x07" not in text


@pytest.mark.process  # it asks nats-server for its version
def test_doctor_finds_this_machine_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    done = CliRunner().invoke(main, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    found = {check["what"]: check["verdict"] for check in json.loads(done.output)}
    assert found["base"] == found["randomness"] == found["clock"] == found["state folder"] == "fine"
    assert not (tmp_path / "state").exists()  # looking leaves nothing behind
    assert "✓ randomness" in CliRunner().invoke(main, ["doctor"]).output


def test_doctor_sees_what_is_wrong(tmp_path: Path) -> None:
    assert _randomness(lambda size: b"\x55" * size).verdict == "wrong"
    stuck = iter([b"\x00" * 512, b"\x01" * 512])
    assert _randomness(lambda size: next(stuck)).verdict == "wrong"
    assert _clock(lambda: RELEASED - 1).verdict == "wrong"
    assert _clock(lambda: time.time() + 3600).verdict == "wrong"
    (tmp_path / "file").write_text("")
    assert _disk("state folder", tmp_path / "file").verdict == "wrong"


@pytest.mark.process
def test_doctor_ends_with_1_when_something_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: b"\x55" * size)
    assert CliRunner().invoke(main, ["doctor"]).exit_code == 1


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0, done.output
    assert "_PRIVATILE_COMPLETE" in done.output


@pytest.mark.process
def test_bash_completes_commands_and_options() -> None:
    def complete(*words: str) -> list[str]:
        environment = {
            **os.environ,
            "_PRIVATILE_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("privatile", *words)),
            "COMP_CWORD": str(len(words)),
        }
        # click completes for the name it was started by.
        code = "import sys; sys.argv = ['privatile']; from privatile.cli import main; main(prog_name='privatile')"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
        )
        return [line.partition(",")[2] for line in done.stdout.split()]

    assert "estimate" in complete("est")
    assert "--dashboard" in complete("estimate", "--dash")
