"""The dashboard's server: what it sends, to whom, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.errors import StoreError
from privatile.report.dashboard.app import make_app
from privatile.report.dashboard.live import LiveRun
from privatile.report.dashboard.serving import DashboardAddress, run_dashboard
from tests.dashboard.served import LOCAL, PATIENCE, served, state_of, until
from tests.made_runs import SlowRun

pytestmark = pytest.mark.network


def test_the_state_follows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    live = LiveRun(path)
    assert not live.refresh()
    assert live.state["waiting"]
    run = SlowRun(path, rounds=80, clients=3)
    assert live.refresh()
    assert (live.state["done"], live.state["status"]) == (0, "running")
    run.go(40)
    assert live.refresh()
    assert not live.refresh()  # nothing new, nothing to say
    state = live.state
    assert state["done"] == 40
    assert state["levels"][0]["path"]["round"] == list(range(1, 41))
    low, high = run.coordinator.result().confidence_interval
    assert state["levels"][0]["fixed"]["low"] == pytest.approx(low, rel=1e-6)
    assert state["levels"][0]["fixed"]["high"] == pytest.approx(high, rel=1e-6)
    counts = {"alive": 3, "quarantined": 0, "two holders": 0, "silent": 0, "waiting": 0}
    assert state["clients"]["counts"] == counts
    run.go(5, silent={1})
    live.refresh()
    assert live.state["clients"]["counts"]["silent"] == 1
    first = live.state["clients"]["listed"][0]
    assert (first["name"], first["state"], first["silent_rounds"]) == ("client 1", "silent", 5)
    run.go(35)
    run.coordinator.finish()
    live.refresh()
    assert live.state["status"] == "finished"
    assert live.state["clients"]["counts"]["alive"] == 3
    json.dumps(live.state, allow_nan=False)


def test_a_page_that_is_opened_late_gets_the_time_of_day(tmp_path: Path) -> None:
    """It sets its clock by it: before, it was as far behind as the last change."""
    run = SlowRun(tmp_path / "run.db", rounds=80)
    run.go(10)
    run.sql("UPDATE rounds SET at = at - 3600")
    with served(make_app(tmp_path / "run.db", interval=0.05)) as client:
        until(lambda: state_of(client).get("done") == 10)
        time.sleep(0.2)  # nothing changes any more
        before = time.time()
        assert state_of(client)["now"] >= before
        with client.stream("GET", "/events") as stream:
            line = next(line for line in stream.iter_lines() if line.startswith("data: "))
        state = json.loads(line.removeprefix("data: "))
        assert before <= state["now"] <= time.time()
        assert state["done"] == 10


def test_the_pace_is_that_of_the_last_rounds_and_ends_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose first rounds took a tenth of a second and whose last ones wait five for somebody."""
    run = SlowRun(tmp_path / "run.db", rounds=60)
    run.go(26)
    began = time.time() - 32.0
    run.sql("UPDATE rounds SET at = ? + min(round, 20) * 0.1 + max(round - 20, 0) * 5", (began,))
    live = LiveRun(tmp_path / "run.db")
    live.refresh()
    assert live.state["rate"] == pytest.approx(0.2, rel=0.05)
    real = time.time
    for later, rate in ((8.0, 0.178), (60.0, None)):  # it is measured again, though no round came
        monkeypatch.setattr(time, "time", lambda later=later: real() + later)
        assert live.refresh()
        assert live.state["rate"] == (rate and pytest.approx(rate, rel=0.1))
    live.close()


def test_a_path_that_does_not_exist_is_waited_for_and_this_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privatile.report.dashboard.serving.run_server", lambda paths, bound, *arguments: bound.close())
    later = tmp_path / "later"
    done = CliRunner().invoke(main, ["dashboard", str(later)])
    assert f"{later} does not exist yet: waiting for it\n" in done.stderr
    live = LiveRun(later)
    assert not live.refresh()
    later.mkdir()
    live.refresh()
    assert str(later / "run.db") in live.state["waits_for"]
    run = SlowRun(later / "run.db", rounds=20)
    run.go(1)
    assert live.refresh()
    assert live.state["done"] == 1
    live.close()
    done = CliRunner().invoke(main, ["dashboard", str(later)])
    assert "does not exist" not in done.stderr  # the control


def test_alarms_come_from_the_file(tmp_path: Path) -> None:
    run = SlowRun(tmp_path / "run.db", rounds=80, clients=3)
    run.go(10)
    run.sql(
        "CREATE TABLE events (at REAL NOT NULL, kind TEXT NOT NULL, client TEXT, round INTEGER, text TEXT NOT NULL)"
    )
    run.sql("CREATE TABLE quarantined (client TEXT PRIMARY KEY, reason TEXT NOT NULL)")
    live = LiveRun(tmp_path / "run.db")
    live.refresh()
    run.sql(
        "INSERT INTO events VALUES (?, ?, ?, ?, ?)", (time.time(), "paused", None, 11, "no client answered in time")
    )
    run.sql("INSERT INTO quarantined VALUES ('client 2', 'impossible answers')")
    assert live.refresh()
    assert live.state["status"] == "paused"
    assert live.state["events"][0]["text"] == "no client answered in time"
    assert live.state["clients"]["counts"]["quarantined"] == 1
    assert live.state["clients"]["listed"][0]["text"] == "quarantined: impossible answers"
    run.go(1)
    live.refresh()
    assert live.state["status"] == "running"


def test_a_file_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    path.write_text("not a run")
    live = LiveRun(path)
    assert not live.refresh()  # it may be in the making
    old = time.time() - 60
    os.utime(path, (old, old))
    with pytest.raises(StoreError, match="not a run file"):
        live.refresh()


def test_a_file_that_cannot_be_read_is_said_by_badge_list_and_health(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    path.write_text("not a run")
    os.utime(path, (1.0, 1.0))
    with served(make_app(finished, path, interval=0.05)) as client:
        told = until(lambda: (one := client.get("/health").json()["runs"][1])["trouble"] and one)
        assert told["badge"] == "cannot be read"
        assert "is not a run file" in told["trouble"]
        assert client.get("/health").status_code == 503
        listed = until(lambda: "finished" in (page := client.get("/").text) and page)
        assert listed.index("is not a run file") < listed.index("finished")
        shutil.copy(finished, path)  # once it can be read, nothing is wrong any more
        assert until(lambda: client.get("/health").status_code == 200)
        assert "trouble" not in client.get("/runs/2/state.json").json()


def test_pages_and_headers(finished: Path) -> None:
    with served(make_app(finished, interval=0.05)) as client:
        page = client.get("/", headers=LOCAL)
        assert page.status_code == 200
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "unsafe" not in page.headers["content-security-policy"]
        assert page.headers["cache-control"] == "no-store"
        assert "server" not in page.headers
        for name in ("chart.js", "uPlot.iife.min.js", "dashboard.css"):
            assert client.get(f"/static/{name}", headers=LOCAL).status_code == 200
        for name in ("secret", "..%2f..%2fapp.py", "report.js"):
            assert client.get(f"/static/{name}", headers=LOCAL).status_code == 404
        for path in ("/static/secret", "/nothing", "/events/"):  # errors carry the same headers
            assert client.get(path, headers=LOCAL).headers["content-security-policy"].startswith("default-src 'none'")
        state = until(lambda: (found := state_of(client)).get("done") and found)
        assert state["done"] == 300


def test_several_runs_have_a_list_a_page_each_and_one_health(finished: Path, tmp_path: Path) -> None:
    slow = SlowRun(tmp_path / "slow.db", rounds=80)
    slow.go(10)
    with served(make_app(finished, tmp_path / "slow.db", tmp_path / "none.db", interval=0.05)) as client:
        state = until(lambda: (found := client.get("/runs/2/state.json").json()).get("done") and found)
        assert (state["run"], state["done"]) == ("run-slow", 10)
        assert client.get("/runs/1/").text == client.get("/runs/2/").text  # the page is the same, its states are not
        assert until(lambda: client.get("/runs/1/state.json").json().get("done")) == 300
        listed = client.get("/").text
        assert all(word in listed for word in ("run-slow", "10 of 80", "finished", 'href="runs/2/"', "none.db"))
        # What is wrong comes first, what is over last.
        assert listed.index("none.db") < listed.index("run-slow") < listed.index("finished")
        slow.go(1, silent={1})
        told = until(lambda: "silent: client 1" in (page := client.get("/").text) and page)
        assert told.index("run-slow") < told.index("client 1 has missed the last round") < told.index("none.db")
        assert client.get("/runs/4/").status_code == 404
        sick = client.get("/health")
        assert sick.status_code == 503  # one of them has not begun
        assert [one["status"] for one in sick.json()["runs"]] == ["finished", "running", None]
        with client.stream("GET", "/runs/2/events") as stream:
            assert b'"run":"run-slow"' in next(stream.iter_bytes())


def test_health_is_bad_while_something_is_wrong(tmp_path: Path) -> None:
    run = SlowRun(tmp_path / "run.db", rounds=80)
    run.go(10)
    with served(make_app(tmp_path / "run.db", interval=0.05)) as client:
        assert until(lambda: client.get("/health").status_code == 200)
        run.go(1, silent={1})
        assert until(lambda: client.get("/health").status_code == 503)
        told = client.get("/health").json()
        assert told["badge"] == "silent: client 1"
        assert [alarm["kind"] for alarm in told["alarms"]] == ["silent"]
        run.go(1)
        assert until(lambda: client.get("/health").status_code == 200)


def test_the_page_says_that_the_command_behind_it_has_ended(tmp_path: Path) -> None:
    run = SlowRun(tmp_path / "run.db", rounds=80)
    run.go(10)
    with run_dashboard(tmp_path / "run.db") as page:
        until(lambda: answers(page.url))
        with httpx.stream("GET", page.url + "events", timeout=PATIENCE) as stream:
            told = stream.iter_text()
            assert '"badge":{"kind":"running"' in next(told)
            assert page.process.stdin is not None
            page.process.stdin.close()  # as when the process that started it ends
            last = ""
            with contextlib.suppress(httpx.HTTPError):
                for chunk in told:
                    last += chunk
    assert '"over":"the command that showed this page has ended"' in last
    assert '"badge":{"kind":"stopped"' in last


@pytest.fixture
def parent(finished: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom privatile.report.dashboard.serving import run_dashboard\n"
        "with run_dashboard(Path(sys.argv[1])) as page:\n    print(page.url, page.process.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(finished)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process, process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_dashboard_ends_with_the_process_that_started_it(parent: tuple[subprocess.Popen[str], str]) -> None:
    process, line = parent
    url, pid = line.split()
    until(lambda: answers(url))
    os.kill(process.pid, signal.SIGKILL)
    assert until(lambda: not alive(int(pid)))


def answers(url: str) -> bool:
    try:
        return bool(httpx.get(url + "state.json", timeout=PATIENCE).json().get("done"))
    except httpx.HTTPError:
        return False


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_no_records_value_is_sent_or_logged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import privatile

    planted = 61.72839451
    people = np.random.default_rng(1).normal(50, 10, 3000)
    people[5] = planted
    path = tmp_path / "run.db"
    privatile.estimate({"north": people}, epsilon=1, range=(0, 100), simulate=True, rng=2, rounds=200, save=path)
    with run_dashboard(path) as page:
        until(lambda: answers(page.url))
        told = "".join(httpx.get(page.url + name, timeout=PATIENCE).text for name in ("", "state.json"))
        with httpx.stream("GET", page.url + "events", timeout=PATIENCE) as stream:
            for chunk in stream.iter_text():
                told += chunk
                if chunk.endswith("\n\n"):
                    break
    assert '"status":"finished"' in told
    assert "61.7283" not in told
    logged = capfd.readouterr()
    assert "61.7283" not in logged.out + logged.err


def test_with_keep_the_page_of_serve_outlives_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    happened: list[str] = []

    @contextlib.contextmanager
    def page(path: Path, address: DashboardAddress) -> Iterator[Any]:
        happened.append("opened")
        yield type("Page", (), {"url": "http://127.0.0.1:1/"})
        happened.append("closed")

    def wait(event: threading.Event, timeout: float | None = None) -> bool:
        happened.append("waited")
        raise KeyboardInterrupt

    def run(*arguments: Any) -> str:
        happened.append("ran")
        return "stopped"

    monkeypatch.setattr("privatile.report.dashboard.serving.run_dashboard", page)
    monkeypatch.setattr("privatile.federation.operations.serve.serve_run", run)
    monkeypatch.setattr(threading.Event, "wait", wait)
    kept = CliRunner().invoke(main, ["serve", str(tmp_path), "--dashboard", "--keep"])
    assert (kept.exit_code, happened) == (0, ["opened", "ran", "waited", "closed"])
    assert "stays open until you press Ctrl-C" in kept.output
    happened.clear()
    assert CliRunner().invoke(main, ["serve", str(tmp_path), "--dashboard"]).exit_code == 0
    assert happened == ["opened", "ran", "closed"]  # the control


def test_the_command_shows_files_and_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[Any] = []

    def serve(paths: Any, bound: Any, *arguments: Any) -> None:
        shown.extend(paths)
        bound.close()

    monkeypatch.setattr("privatile.report.dashboard.serving.run_server", serve)
    done = CliRunner().invoke(main, ["dashboard", str(tmp_path), str(tmp_path / "one.db")])
    assert done.exit_code == 0, done.output
    assert shown == [tmp_path / "run.db", tmp_path / "one.db"]
    assert "dashboard: http://127.0.0.1:" in done.output
    assert CliRunner().invoke(main, ["dashboard", "one.db", "--at", "0.0.0.0:8080"]).exit_code == 2  # needs TLS
