"""The commands as people use them: from an empty folder to a verified record, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import socket
import sqlite3
import subprocess
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from privatile.errors import BrokerError, InputError, StoreError
from privatile.federation.monitoring import COORDINATOR_METRICS, Metrics, operations_page
from privatile.federation.operations.serve import OpenRun, ServeOptions, open_run, serve_run
from privatile.federation.setup.broker import free_port, running_broker
from privatile.run.status import RunStatus
from tests.federation.kit import PATIENCE, Federation, call, make_study, start, until

pytestmark = pytest.mark.network


def finish(process: subprocess.Popen[bytes], seconds: float = PATIENCE) -> int:
    try:
        return process.wait(seconds)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_from_an_empty_folder_to_a_verified_record(tmp_path: Path) -> None:
    folder = tmp_path / "fed"
    made = call(
        "federation", "init", str(folder), "--add-client", "north", "--add-client", "south", "--epsilon", "1",
        "--epsilon", "south=2", "--records", "2000", "--range", "0", "100", "--rounds", "60",
        "--port", str(free_port()),
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    assert "it holds no secret" in made.output
    rng = np.random.default_rng(3)
    for name, center in (("north", 40.0), ("south", 60.0)):
        invitation = tmp_path / name / "invitation.json"
        invitation.parent.mkdir()
        shutil.copy(folder / "invitations" / f"{name}.json", invitation)
        site = tmp_path / name / "site"
        enrolled = call("enroll", str(invitation), "--site", str(site), "--max-epsilon", "2")
        assert enrolled.exit_code == 0, enrolled.output
        (fingerprint,) = re.findall(r"your fingerprint\s+(\w{4}-\S+)", enrolled.output)
        admitted = call(
            "federation", "admit", str(folder), str(site / f"{name}.enrolment.json"), input=fingerprint + "\n"
        )
        assert admitted.exit_code == 0, admitted.output
        np.savetxt(invitation.with_name("data.csv"), rng.normal(center, 10.0, 2100), header="x", comments="")
    assert "in order" in call("federation", "check", str(folder)).output
    assert "not begun" in call("status", str(folder)).output
    ops = free_port()
    serve = start("serve", str(folder), "--ops-port", str(ops), log=tmp_path / "serve.log")
    joins = [
        start(
            "join", str(tmp_path / name / "invitation.json"), "--source", str(tmp_path / name / "data.csv"),
            "--value", "x", "--site", str(tmp_path / name / "site"), "--yes", log=tmp_path / f"{name}.log",
        )
        for name in ("north", "south")
    ]  # fmt: skip
    try:
        assert finish(serve) == 0, (tmp_path / "serve.log").read_text()
        assert [finish(process) for process in joins] == [0, 0], (tmp_path / "north.log").read_text()
    finally:
        for process in (serve, *joins):
            if process.poll() is None:
                process.kill()
                process.wait()
    told = (tmp_path / "serve.log").read_text()
    assert "nats-server: v" in told
    assert "95% interval" in told
    assert str(folder / "run.db") in told
    assert "The study is finished" in (tmp_path / "north.log").read_text()
    status = json.loads(call("status", str(folder), "--json").output)
    assert status["state"] == "finished"
    assert status["done"] <= 60
    record = tmp_path / "record.json"
    released = call("release", str(folder), "-o", str(record))
    assert released.exit_code == 0, released.output
    # What it tells sites to type is a command that works, once they name their invitation.
    told = released.output.partition("privatile ")[2].replace(
        "INVITATION.json", str(tmp_path / "south/invitation.json")
    )
    countersigned = call(*shlex.split(told), "--site", str(tmp_path / "south" / "site"))
    assert countersigned.exit_code == 0, countersigned.output
    assert "countersigned by south" in countersigned.output
    site_arguments = ["--countersign", "--invitation", str(tmp_path / "north" / "invitation.json")]
    site_arguments += ["--site", str(tmp_path / "north" / "site")]
    alone = call("verify", str(record), *site_arguments)
    assert alone.exit_code == 2
    assert "--countersign needs --transcript" in alone.output
    verified = call("verify", str(record), "--transcript", str(folder / "run.db"), *site_arguments)
    assert verified.exit_code == 0, verified.output
    assert "the estimate is the one the counts give" in verified.output
    assert "\nVerified: the result is what the run's counts give; " in verified.output
    signatures = call("verify", str(record)).output.splitlines()[-1]
    assert signatures.startswith("Verified: the signatures and the record's own facts; ")
    assert signatures.endswith("give the run's file (--transcript run.db).")
    spoiled = json.loads(record.read_text())
    spoiled["body"]["results"][0]["estimate"] = (spoiled["body"]["results"][0]["estimate"] or 0.0) + 1.0
    record.write_text(json.dumps(spoiled))
    failed = call("verify", str(record))
    assert failed.exit_code == 1
    assert "Verified" not in failed.output


def test_epsilon_has_no_default(tmp_path: Path) -> None:
    told = call("federation", "init", str(tmp_path / "f"), "--add-client", "a", "--records", "500", "--range", "0", "1")
    assert told.exit_code == 2
    assert "never by default" in told.output
    assert not (tmp_path / "f").exists()


def test_join_needs_agreement_and_a_key(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(1))
    federation.write_data()
    invitation = str(federation.directory.invitation_file("site0"))
    data = ["--source", str(tmp_path / "site0" / "data.csv"), "--value", "x"]
    without_key = call("join", invitation, *data, "--yes", "--site", str(tmp_path / "elsewhere"))
    assert without_key.exit_code == 2
    assert "privatile enroll" in without_key.output
    silent = call("join", invitation, *data, "--site", str(federation.sites["site0"].path))
    assert silent.exit_code == 2
    assert "--yes" in silent.output
    federation.sites["site0"].limits_file.write_text("max_epsilon = 0.1\n")
    refused = call("join", invitation, *data, "--site", str(federation.sites["site0"].path), "--yes")
    assert refused.exit_code == 5
    assert "allow 0.1" in refused.output


def test_the_units_of_systemd_lock_everything_away() -> None:
    deploy = Path(__file__).parents[2] / "deploy"
    units = [deploy / "privatile-coordinator.service", deploy / "privatile-site@.service"]
    locked = ("NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "CapabilityBoundingSet=", "UMask=0077")
    for each in units:
        text = each.read_text()
        for line in (*locked, "Restart=on-failure", "RestartPreventExitStatus=2 5"):
            assert f"\n{line}\n" in text, (each, line)
        assert re.search(r"^User=\w", text, re.MULTILINE)
    if shutil.which("systemd-analyze"):
        checked = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
        complaints = [line for line in checked.stderr.splitlines() if "not executable" not in line]  # /opt/privatile
        assert not [line for line in complaints if "privatile" in line], checked.stderr


# -- bad input, each with a state that can be resumed --------------------------------------------------------------


def serve_briefly(federation: Federation) -> str:
    return serve_run(federation.directory, ServeOptions(exit_when_paused=True, linger=0.0), lambda line: None)


def test_port_in_use(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(1, deadline=0.2))
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", federation.settings.port))
        squatter.listen()
        with pytest.raises(BrokerError, match="cannot listen on"):
            serve_briefly(federation)
    assert open_run(federation.directory).coordinator.done == 0


def test_store_of_another_study_and_study_edited_in_mid_run(tmp_path: Path) -> None:
    one = Federation(tmp_path / "one", make_study(1, rounds=6))
    asyncio.run(one.run()).store.close()
    two = Federation(tmp_path / "two", make_study(1, rounds=6))
    shutil.copy(one.directory.store_file, two.directory.store_file)
    with pytest.raises(StoreError, match="another study"):
        serve_briefly(two)
    path = one.directory.study_file
    before = path.read_text()
    path.write_text(before.replace("rounds = 6", "rounds = 5"))
    with pytest.raises(StoreError, match="edited after the run began"):
        serve_briefly(one)
    path.write_text(before)
    assert open_run(one.directory).coordinator.done == 6
    two.directory.store_file.write_bytes(b"not a database, and far too short")
    with pytest.raises(StoreError):
        serve_briefly(two)


def test_an_expired_certificate_is_reported_before_anything_starts(tmp_path: Path) -> None:
    import datetime

    from privatile.run.certificates import issue_broker

    federation = Federation(tmp_path, make_study(1))
    directory, files = federation.directory, federation.directory.broker_files
    start_at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=3)
    issue_broker(
        directory.authority,
        directory.authority_key,
        files.certificate,
        files.key,
        ["localhost"],
        starts=start_at,
        days=1,
    )
    with pytest.raises(InputError, match="expired"):
        serve_briefly(federation)
    assert running_broker(files) is None


def test_a_full_disk_at_the_coordinator(tmp_path: Path) -> None:
    """SQLite's own limit gives the same error as a full disk; the run continues once there is room."""
    federation = Federation(tmp_path, make_study(1, rounds=400, length=1))

    async def scene() -> None:
        run = federation.open_run()
        pages = run.store.query("PRAGMA page_count")[0][0]
        run.store.query(f"PRAGMA max_page_count = {pages + 2}")
        client = federation.client("site0")
        async with federation.running_broker():
            work = asyncio.ensure_future(client.run())
            with pytest.raises(StoreError, match="full"):
                await asyncio.wait_for(federation.coordinator(run).run(), PATIENCE)
            run.store.close()
            again = federation.open_run()
            done = again.coordinator.done
            assert 0 < done < 400
            assert await asyncio.wait_for(federation.coordinator(again).run(), PATIENCE) == "finished"
            assert await asyncio.wait_for(work, PATIENCE) == "finished"
            again.store.close()

    asyncio.run(scene())
    with federation.ledger("site0") as ledger:
        assert ledger.verify() == 400


def kinds(run: OpenRun) -> list[str]:
    return [event.kind for event in run.journal.events()]


def test_a_full_disk_at_the_broker_is_reported_and_survived(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(1, rounds=6))
    files = federation.directory.broker_files
    files.configuration.write_text(
        files.configuration.read_text().replace('"max_file_store": 1073741824', '"max_file_store": 1024')
    )

    async def scene() -> None:
        run = federation.open_run()
        broker = federation.broker()
        await asyncio.to_thread(broker.start)
        coordinator = federation.coordinator(run)
        work = asyncio.ensure_future(coordinator.run())
        await until(lambda: coordinator.metrics.value("reconnects") >= 2 or "broker" in kinds(run))
        assert not work.done()  # it reports why, and keeps trying
        await asyncio.to_thread(broker.stop)
        federation.directory.write_configuration()
        await asyncio.to_thread(broker.start)
        try:
            ends = await asyncio.wait_for(asyncio.gather(work, federation.client("site0").run()), PATIENCE)
            assert list(ends) == ["finished", "finished"]
        finally:
            await asyncio.to_thread(broker.stop)
        run.store.close()

    asyncio.run(scene())


def test_one_coordinator_per_folder(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(1, deadline=60.0))
    first = federation.start_serve()
    try:
        limit = time.monotonic() + PATIENCE
        while "connected" not in (tmp_path / "serve.log").read_text():
            assert time.monotonic() < limit
            assert first.poll() is None, (tmp_path / "serve.log").read_text()
            time.sleep(0.1)
        with pytest.raises(InputError, match="already running"):
            serve_briefly(federation)
        assert "state        running, process" in call("status", str(federation.directory.path)).output
        told = call("federation", "stop", str(federation.directory.path))
        assert told.exit_code == 0, told.output
        assert finish(first) == 0
    finally:
        finish(first, 1) if first.poll() is None else None
    assert running_broker(federation.directory.broker_files) is None
    assert "continues it" in (tmp_path / "serve.log").read_text()
    for line in (tmp_path / "serve.log").read_text().splitlines():
        if line.startswith("{"):
            assert {"at", "level", "event"} <= set(json.loads(line))
    assert call("federation", "stop", str(federation.directory.path)).exit_code == 2
    assert "state        stopped, no coordinator running" in call("status", str(federation.directory.path)).output


def test_resume_and_abort_without_a_coordinator(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(2))
    run = federation.open_run()
    run.journal.quarantine("site1", "a reason")
    run.store.close()
    folder = str(federation.directory.path)
    assert "quarantined  site1: a reason" in call("status", folder).output
    assert call("federation", "resume", folder, "--readmit", "west").exit_code == 2
    assert call("federation", "resume", folder, "--readmit", "site1").exit_code == 0
    assert "quarantined" not in call("status", folder).output
    assert call("federation", "abort", folder, "--yes").exit_code == 0
    assert "state        aborted" in call("status", folder).output


def test_metrics_and_health_pages() -> None:
    metrics = Metrics("privatile", COORDINATOR_METRICS)
    metrics.add("counted", client='no"rth')
    healthy = True

    def get(port: int, path: str, host: str = "localhost") -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": f"{host}:{port}"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                return int(reply.status), reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    async def scene() -> list[tuple[int, str]]:
        nonlocal healthy
        async with operations_page("127.0.0.1", 0, metrics, lambda: (healthy, {"round": 3})) as port:
            found = [await asyncio.to_thread(get, port, path) for path in ("/metrics", "/health", "/else")]
            healthy = False
            found.append(await asyncio.to_thread(get, port, "/health"))
            found.append(await asyncio.to_thread(get, port, "/metrics", "elsewhere.example"))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\x00\xff\r\n\r\n")
            await reader.read()
            writer.close()
        async with operations_page("0.0.0.0", 0, metrics, lambda: (True, {}), names=["ops.example"]) as port:
            found.append(await asyncio.to_thread(get, port, "/metrics", "elsewhere.example"))
            found.append(await asyncio.to_thread(get, port, "/metrics", "ops.example"))
            found.append(await asyncio.to_thread(get, port, "/metrics", "192.0.2.1"))
        return found

    page, health, other, sick, foreign, outside, allowed, address = asyncio.run(scene())
    assert (outside[0], allowed[0], address[0]) == (421, 200, 200)  # beyond this machine too
    assert page[0] == 200
    assert '# TYPE privatile_counted_total counter\nprivatile_counted_total{client="no\\"rth"} 1.0\n' in page[1]
    assert "_created" not in page[1]
    assert health[0] == 200
    assert json.loads(health[1]) == {"round": 3}
    assert other[0] == 404
    assert sick[0] == 503
    assert foreign[0] == 421  # another site's name that points here


@pytest.mark.parametrize("sent", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea"])
def test_the_operations_page_closes_a_connection_with_half_a_request(sent: bytes) -> None:
    async def scene() -> bytes:
        metrics = Metrics("privatile", COORDINATOR_METRICS)
        async with operations_page("127.0.0.1", 0, metrics, lambda: (True, {}), request_timeout=0.5) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            reply = await asyncio.wait_for(reader.read(), PATIENCE)  # to the end: the page has closed the connection
            writer.close()
            return reply

    assert (b" 200 " in asyncio.run(scene())) == sent.endswith(b"\n\r\nGET /hea")


def test_status_says_who_was_heard_and_who_is_missing(tmp_path: Path) -> None:
    """At round 0 every client is needed: the organizer sees which one has not come."""
    federation = Federation(tmp_path, make_study(2, deadline=60.0))
    federation.write_data()
    folder = str(federation.directory.path)
    assert "heard" not in call("status", folder).output  # nobody has listened yet
    started = [federation.start_serve(), federation.start_join("site0")]
    try:
        limit = time.monotonic() + PATIENCE
        while "site0, heard" not in (told := call("status", folder).output):
            assert time.monotonic() < limit, told
            assert started[1].poll() is None, (tmp_path / "site0.log").read_text()
            time.sleep(0.2)
    finally:
        for process in reversed(started):
            process.terminate()
            finish(process)
    assert "rounds       0 of" in told
    assert "client       site1, not heard yet" in told
    heard = json.loads(call("status", folder, "--json").output)["heard"]
    assert abs(heard["site0"] - time.time()) < PATIENCE
    assert heard["site1"] is None


def test_status_of_many_lists_the_missing_first() -> None:
    now = time.time()
    heard: dict[str, float | None] = {f"site{k}": now - k for k in range(50)} | {"lost": None}
    status = RunStatus("run", "running", (0.5,), 0, 10, process=1, heard=heard, sign_of_life="heard")
    lines = [line for line in status.to_text().splitlines() if line.startswith("client")]
    assert lines[0] == "client       lost, not heard yet"
    assert lines[1].startswith("client       site49, heard ")
    assert lines[-1].startswith("client       and 31 more, all heard within the last ")


def test_status_reads_while_the_run_writes(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(1, rounds=6))
    asyncio.run(federation.run())
    writer = sqlite3.connect(federation.directory.store_file)
    writer.execute("BEGIN IMMEDIATE")
    try:
        assert "6 of 6" in call("status", str(federation.directory.path)).output
    finally:
        writer.rollback()
        writer.close()
