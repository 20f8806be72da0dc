"""What is wrong with a run is said everywhere at once: alarms, /health, metrics, `status`, `check`, the dashboard."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.core.messages import Position
from privatile.federation.coordinator.intake import Holders
from privatile.federation.monitoring import CLIENT_METRICS, COORDINATOR_METRICS, Metrics
from privatile.federation.operations.status import read_status
from privatile.federation.study import FederationStudy
from privatile.federation.wire import MAX_ANSWER, Hello, Welcome, read_message
from privatile.report.dashboard.live import LiveRun
from privatile.run.locks import lock_folder
from privatile.run.state import NO_PROCESS, read_alarms
from tests.federation.played import Table, close

ROOT = Path(__file__).parents[2]


@pytest.fixture
def held() -> Iterator[contextlib.ExitStack]:
    """What is held while the coordinator runs; to close it is to kill the coordinator."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def table(tmp_path: Path, held: contextlib.ExitStack) -> Table:
    """A coordinator whose deadline is 60 s, as far as the tests' clock goes."""
    made = Table(tmp_path, deadline=60.0, patience=3)
    made.core.metrics.set("connected", 1)
    held.enter_context(lock_folder(made.federation.directory.pid_file))
    return made


def hello(table: Table, client: str, *, echo: str | None = None, instance: str = "1" * 32) -> Hello:
    return Hello(
        table.federation.study.digest, client, instance, Position(0, b"0" * 16), None, secrets.token_hex(16), echo
    )


def arrive(table: Table, client: str) -> None:
    """A client that is there: its second hello echoes the welcome to the first."""
    key = table.federation.sites[client].key()
    reply = table.core.greet(client, hello(table, client).pack(key)) or b""
    welcome = read_message(reply, table.signer, MAX_ANSWER)
    assert isinstance(welcome, Welcome)
    assert table.core.greet(client, hello(table, client, echo=welcome.nonce).pack(key))


def tick(table: Table, opened: float) -> None:
    """One second of the service's own work; the round was opened so many seconds ago."""
    table.core._opened = time.time() - opened
    table.core.write_notes(time.time())


def next_round(table: Table) -> None:
    close(table.core)
    table.next_round(time.time())


def told(table: Table) -> tuple[list[str], str]:
    """The alarms as all places tell them, which must agree, and the dashboard's badge."""
    good, health = table.core.health()
    live = LiveRun(table.federation.directory.store_file)
    live.refresh()
    status = read_status(table.federation.directory)
    kinds = [alarm["kind"] for alarm in health["alarms"]]
    assert kinds == [alarm["kind"] for alarm in live.state["alarms"]] == [alarm.kind for alarm in status.alarms]
    assert status.state == live.state["status"]
    assert good == live.healthy == (not kinds)
    states = {client["name"]: client["state"] for client in live.state["clients"]["listed"]}
    for alarm in status.alarms:
        if alarm.client is not None:
            worst = next(one.kind for one in status.alarms if one.client == alarm.client)
            assert states[alarm.client] == worst
    table.core.metrics.text()
    for kind in ("silent", "waiting", "paused", "quarantined", "two holders"):
        assert table.core.metrics.value("alarms", kind=kind) == kinds.count(kind)
    for client in live.state["clients"]["listed"]:
        assert client["heard"] == status.heard[client["name"]]  # "heard 2 s ago" is the same everywhere
    live.close()
    return kinds, str(live.state["badge"]["text"])


def test_waiting_silent_paused_and_quarantined_sites_change_everything_at_once(table: Table) -> None:
    core = table.core
    assert told(table) == ([], "running")  # the round has just been opened
    arrive(table, "site0")
    tick(table, 2.0)
    assert told(table) == (["waiting"], "waiting for site1")
    arrive(table, "site1")
    tick(table, 3.0)
    assert told(table) == ([], "running")  # both are there and have a deadline's time to answer
    tick(table, 30.0)  # half of it: the clock is real
    assert told(table) == ([], "running")
    tick(table, 61.0)
    assert told(table) == (["silent", "silent"], "silent: site0 and 1 more")
    table.take("site0", "site1")
    next_round(table)
    assert told(table) == ([], "running")
    table.take("site0")
    next_round(table)  # at the deadline
    assert told(table) == (["silent"], "silent: site1")
    core.record("paused", "client site1 has been silent for 3 rounds")
    core.paused = "client site1 has been silent for 3 rounds"
    core.metrics.set("paused", 1)
    assert told(table) == (["paused", "silent"], "paused")
    text = CliRunner().invoke(main, ["status", str(table.federation.directory.path)]).output
    assert "ALARM        paused: client site1 has been silent for 3 rounds" in text
    assert "ALARM        silent: site1: site1 has missed the last round" in text
    table.take("site0", "site1")
    next_round(table)
    assert told(table) == ([], "running")
    core.intake.quarantine("site0", "three bad answers")
    core._quarantined("site0", "three bad answers")
    assert told(table) == (["quarantined"], "quarantined: site0")


def test_an_aborted_run_stays_aborted_whatever_is_noted_after_it(table: Table) -> None:
    table.core.record("paused", "too few answers")
    table.core.record("aborted", "the run was aborted")
    for _ in range(60):  # more than a page or `status` shows
        table.core.record("broker back", "the broker is connected again")
    live = LiveRun(table.federation.directory.store_file)
    live.refresh()
    assert read_status(table.federation.directory).state == live.state["status"] == "aborted"
    live.close()


def test_a_paused_run_without_a_process_is_stopped(table: Table, held: contextlib.ExitStack) -> None:
    """At once and everywhere, also where the file itself does not tell: it names a process of another machine."""
    store = table.core.coordinator.store
    store.execute([("UPDATE writer SET machine = 'another'", ())])
    table.core.record("paused", "too few answers")
    assert told_outside(table) == ("paused", ["paused"])
    held.close()
    assert told_outside(table) == ("stopped", ["stopped"])
    text = CliRunner().invoke(main, ["status", str(table.federation.directory.path)]).output
    assert "ALARM        stopped" in text


def test_how_long_ago_something_was_is_said_anew(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a page kept the words of the moment in which an alarm began."""
    for name in ("site0", "site1"):
        arrive(table, name)
    tick(table, 61.0)
    live = LiveRun(table.federation.directory.path)
    assert live.refresh()
    assert not live.refresh() or "61 s" not in live.state["alarms"][0]["text"]
    assert "heard 11 min ago" not in live.state["alarms"][0]["text"]
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 660.0)
    assert live.refresh()
    assert "heard 11 min ago" in live.state["alarms"][0]["text"]
    live.close()


def test_events_have_their_time_and_round(table: Table) -> None:
    table.core.journal.note("rejected", "ones is out of range", "site1", 12)
    line = r"\d\d:\d\d:\d\d rejected site1, round 12: ones is out of range"
    folder = str(table.federation.directory.path)
    assert re.search(rf"^event        {line}$", CliRunner().invoke(main, ["status", folder]).output, re.M)


def told_outside(table: Table) -> tuple[str, list[str]]:
    """The state and the alarms by `status` and the dashboard, which must agree."""
    status = read_status(table.federation.directory)
    live = LiveRun(table.federation.directory.path)
    live.refresh()
    kinds = [alarm.kind for alarm in status.alarms]
    assert (status.state, kinds) == (live.state["status"], [alarm["kind"] for alarm in live.state["alarms"]])
    live.close()
    return status.state, kinds


def test_a_lost_broker_is_an_alarm_until_it_is_back(table: Table) -> None:
    table.core.record("no broker", "nothing listens")
    assert told(table) == (["no broker"], "no broker")
    table.core.record("broker back", "connected")
    assert told(table) == ([], "running")


def test_two_holders_are_an_alarm_until_the_client_is_back(table: Table) -> None:
    arrive(table, "site0")
    core, key = table.core, table.federation.sites["site0"].key()
    ours = hello(table, "site0")
    twin = hello(table, "site0", instance="2" * 32)
    sent = [ours, twin, altered(ours, echo=twin.nonce)]
    sent.append(altered(twin, echo=sent[-1].nonce))
    for one in sent:
        core.greet("site0", one.pack(key))
    tick(table, 0.0)
    assert told(table)[0][0] == "two holders"
    core.journal.hear({"site0": time.time() + 60.0})
    assert "two holders" not in told(table)[0]


def altered(one: Hello, **changes: Any) -> Hello:
    return msgspec.structs.replace(one, nonce=secrets.token_hex(16), **changes)


def test_only_two_processes_that_hear_each_other_are_two_holders(table: Table) -> None:
    """A recorded hello that is sent again, a restart, and an old exchange of two holders prove nothing."""
    ours, old = hello(table, "site0"), hello(table, "site0", instance="2" * 32)
    holders = Holders()
    assert not holders.see(ours, fresh=True)
    assert not holders.see(old, fresh=False)  # recorded before
    challenge = altered(ours, echo=old.nonce)
    assert not holders.see(challenge, fresh=False)
    assert not holders.see(old, fresh=False)  # again
    restarted = hello(table, "site0", instance="3" * 32)
    assert not holders.see(restarted, fresh=True)
    reply = altered(old, echo=challenge.nonce)  # only a live process could have signed this
    assert holders.see(reply, fresh=False)
    replayed = Holders()  # all of it recorded, and sent again to a coordinator that never heard either of them
    assert not any(replayed.see(one, fresh=False) for one in (ours, old, challenge, reply))


def test_check_names_what_is_wrong_with_the_run_too(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privatile.federation.setup.check.check_configuration", lambda *arguments: None)
    monkeypatch.setattr("privatile.federation.setup.check.find_binary", lambda: type("Found", (), {"path": ""}))
    folder = str(table.federation.directory.path)
    assert "Everything is in order." in CliRunner().invoke(main, ["federation", "check", folder]).output
    arrive(table, "site0")
    tick(table, 2.0)
    done = CliRunner().invoke(main, ["federation", "check", folder])
    assert done.exit_code == 1
    assert "waiting for site1" in done.output
    assert "in order" not in done.output


def test_check_says_that_the_process_of_a_run_does_not_run(
    table: Table, held: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privatile.federation.setup.check.check_configuration", lambda *arguments: None)
    monkeypatch.setattr("privatile.federation.setup.check.find_binary", lambda: type("Found", (), {"path": ""}))
    folder = str(table.federation.directory.path)

    def said(code: int) -> str:
        done = CliRunner().invoke(main, ["federation", "check", folder])
        assert done.exit_code == code, done.output
        return done.output

    assert "Everything is in order." in said(0)  # the control: it runs
    held.close()
    assert "ALARM  stopped: no process continues this run" in said(1)
    assert "the run's process has ended: see the alarms" in said(1)
    (alarm,) = read_status(table.federation.directory).alarms
    assert f"{alarm.title}: {alarm.text}" in said(1)  # one rule for both
    table.core.record("stopped", "the coordinator was stopped; `privatile serve` continues the run")
    text = said(0)  # on request
    assert "note   stopped: the coordinator was stopped" in text
    assert "in order" not in text


def test_every_metric_is_there_from_the_start_with_help_and_type(table: Table) -> None:
    page = table.core.metrics.text().decode()
    for known in COORDINATOR_METRICS:
        name = f"privatile_{known.name}"
        assert re.search(rf"^# HELP {name}(_total)? .+\.?$", page, re.MULTILINE), name
        assert re.search(rf"^# TYPE {name}(_total)? (counter|gauge)$", page, re.MULTILINE), name
        assert re.search(rf"^{name}(_total)?(\{{.*\}})? \S+$", page, re.MULTILINE), name
    assert 'privatile_counted_total{client="site1"} 0.0' in page
    assert 'privatile_estimate{level="0.5"} NaN' in page


def of_the_level(table: Table) -> dict[str, float]:
    """The metrics of the level 0.5."""
    page = table.core.metrics.text().decode()
    return {name: float(value) for name, value in re.findall(r'^privatile_(\w+)\{level="0.5"\} (\S+)$', page, re.M)}


def test_no_number_stands_in_place_of_the_estimate_in_the_metrics(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(8):
        table.take("site0", "site1")
        next_round(table)
    result = table.run.coordinator.result()
    low, high = result.shown.first.drawn
    found = of_the_level(table)
    assert not result.located
    assert math.isnan(found["estimate"])
    assert found["width"] == high - low
    table.take("site0", "site1")
    next_round(table)
    located = dataclasses.replace(result, caveats=())
    monkeypatch.setattr(table.run.coordinator, "results", lambda: [located])
    assert of_the_level(table)["estimate"] == result.estimate


def test_the_alarm_rules_name_metrics_that_exist() -> None:
    rules = (ROOT / "deploy" / "alerts.yml").read_text()
    known = set()
    for prefix, metrics in (("privatile", COORDINATOR_METRICS), ("privatile_client", CLIENT_METRICS)):
        labels = {"client": ["north"], "level": ["0.5"], "kind": ["silent"]}
        known |= set(re.findall(r"^(privatile\w+)", Metrics(prefix, metrics, labels).text().decode(), re.MULTILINE))

    def unknown(rules: str) -> set[str]:
        return {
            name for text in re.findall(r"expr: (.+)", rules) for name in re.findall(r"\bprivatile_\w+", text)
        } - known

    assert rules.count("expr: ") >= 10
    assert unknown(rules) == set()
    assert unknown(rules + "\n  expr: privatile_no_such_metric > 0") == {"privatile_no_such_metric"}  # the control
    from privatile.run.state import KINDS

    assert set(re.findall(r'kind="([^"]+)"', rules)) <= set(KINDS)
    # One Prometheus may watch many studies: each is compared with itself, and the job is the one that is configured.
    assert not re.search(r"scalar\(|on \(\)", rules)
    assert set(re.findall(r'job="([^"]+)"', rules)) <= set(re.findall(r"job_name: (\S+)", rules))


def test_the_empty_dashboard_says_what_it_waits_for(table: Table, tmp_path: Path) -> None:
    table.run.store.close()
    folder = table.federation.directory.path
    (folder / "run.db").unlink()
    state = LiveRun(folder / "run.db").state
    assert (state["waiting"], state["waits_for"]) == (
        True,
        f"the coordinator: `privatile serve {folder}` begins the run",
    )
    assert "run.db" in LiveRun(tmp_path / "elsewhere" / "run.db").state["waits_for"]
    json.dumps(state)


def test_metrics_alarms_and_log_events_are_documented() -> None:
    from privatile.run.state import KINDS

    page = (ROOT / "docs" / "operations.md").read_text()
    for known in (*COORDINATOR_METRICS, *CLIENT_METRICS):
        assert re.search(
            rf"^\| `{known.name}(_total)?` \| {known.label} \| {re.escape(known.meaning)} \|$", page, re.M
        ), known
    assert all(f"| `{kind}` |" in page for kind in KINDS)
    folder = ROOT / "src" / "privatile" / "federation"
    said = set()
    for file in ("coordinator/core.py", "coordinator/service.py", "site/core.py", "site/service.py"):
        text = (folder / file).read_text()
        said |= set(re.findall(r'(?:record|\.event|\.begins)\(\s*"([^"]+)"', text))
        said |= set(re.findall(r'\.ends\(\s*"[^"]+", "([^"]+)"', text))
        said |= set(re.findall(r'log\.(?:debug|info|warning|error)\(\s*"([^"]+)"', text))
    assert {"paused", "welcomed", "two holders"} <= said
    assert [event for event in said if f"`{event}`" not in page] == []


def test_by_default_a_silent_site_is_seen_after_a_minute_and_pauses_the_run_within_minutes() -> None:
    options = {option.name: option.default for option in main.get_command(None, "federation").commands["init"].params}  # type: ignore[arg-type, union-attr]
    defaults = {name: FederationStudy.__dataclass_fields__[name].default for name in ("deadline", "patience")}
    assert defaults == {name: options[name] for name in defaults}  # in Python and on the command line
    assert defaults["deadline"] <= 60.0
    assert defaults["deadline"] * defaults["patience"] <= 300.0


def test_a_stop_on_purpose_is_known_by_what_happened_and_not_by_its_words(table: Table) -> None:
    store = table.core.coordinator.store
    (killed,) = [alarm for alarm in read_alarms(store, {}, alive=False) if alarm.kind == "stopped"]
    assert (killed.text, killed.was_asked_for) == (NO_PROCESS, False)
    for words in ("the coordinator was stopped", NO_PROCESS):
        table.core.journal.note("stopped", words)
        (stopped,) = [alarm for alarm in read_alarms(store, {}, alive=False) if alarm.kind == "stopped"]
        assert (stopped.text, stopped.was_asked_for) == (words, True)
    table.core.journal.note("started", "the coordinator continues the run")
    table.core.journal.note("no broker", "it is away")
    assert {alarm.was_asked_for for alarm in read_alarms(store, {}, alive=False)} == {False}
