"""A disk that is really full: a small file system in memory, mounted in a namespace of the test's own.

A process that cannot write names the file and stops with exit code 2; nothing is lost, and the run continues once
there is room. Each test runs again in a child that may mount; where that is not allowed, it is skipped, loudly.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from privatile.federation.operations.record import release, verify_record
from privatile.federation.operations.status import read_status
from tests.faults.test_federation_faults import rounds_done
from tests.federation.kit import PATIENCE, REPOSITORY, Federation, make_study

INSIDE = "PRIVATILE_TEST_MAY_MOUNT"
SIZE = 8 << 20
"""SQLite folds its log into the file every 4 MB; log and file must fit once the ballast is gone."""

ROUNDS = 150
"""Each takes 8 kB of log or more: far more than the room left."""


def may_mount(folder: Path) -> bool:
    try:
        command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", str(folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def in_own_namespace(test: Callable[[Path], None]) -> Callable[[Path], None]:
    """Run a test in a child that sees mounts of its own; they are gone when it ends, however it ends."""

    @functools.wraps(test)
    def outer(tmp_path: Path) -> None:
        if os.environ.get(INSIDE):
            test(tmp_path)
            return
        if not may_mount(tmp_path):
            pytest.skip("NOT TESTED: a really full disk. This needs `unshare -rm` and `mount`, allowed to this user.")
        told = all_inside(tmp_path)
        assert f"PASSED {Path(__file__).relative_to(REPOSITORY)}::{test.__name__}\n" in told, told[-9000:]

    return outer


TOLD: list[str] = []
"""What the child said that ran all tests of this file: it is started once, for the first of them."""


def all_inside(folder: Path) -> str:
    if not TOLD:
        command = ["unshare", "-rm", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA"]
        command += ["--basetemp", str(folder / "inside"), __file__]
        environment = {**os.environ, INSIDE: "1", "PYTHONPATH": str(REPOSITORY / "src")}
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=3 * PATIENCE, check=False
        )
        TOLD.append(f"{done.stderr[-2000:]}\n{done.stdout}\n")
    return TOLD[0]


def small_disk(folder: Path, room: int) -> Path:
    """Put `folder` on a file system of its own with little room left; returns the file that takes up the rest."""
    kept = folder.with_name(folder.name + ".kept")
    if folder.exists():
        folder.rename(kept)
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "none", str(folder)], check=True)
    if kept.exists():
        shutil.copytree(kept, folder, dirs_exist_ok=True, symlinks=True)
    free = shutil.disk_usage(folder).free
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(free - room))
    assert 0 < shutil.disk_usage(folder).free <= room
    return ballast


def is_full(folder: Path) -> bool:
    try:
        (folder / "probe").write_bytes(bytes(256 << 10))
    except OSError as error:
        return error.errno == errno.ENOSPC
    finally:
        (folder / "probe").unlink(missing_ok=True)
    return False


def end(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def check_whole(federation: Federation) -> None:
    """All rounds, every count signed and replayed; every record answered once."""
    status = read_status(federation.directory)
    assert (status.state, status.done) == ("finished", ROUNDS)
    assert verify_record(release(federation.directory), federation.directory.store_file).failed == []
    for name, agreement in federation.study.clients.items():
        with federation.ledger(name) as ledger:
            assert ledger.verify() == ROUNDS
            spans = ledger.execute("SELECT start, stop FROM answers ORDER BY start").fetchall()
        assert spans == [(k, k + 1) for k in range(agreement.records)]


def made(folder: Path) -> Federation:
    federation = Federation(folder, make_study(1, rounds=ROUNDS, length=1, deadline=60.0))
    federation.write_data()
    return federation


@pytest.mark.faults
@in_own_namespace
def test_a_full_disk_under_the_store(tmp_path: Path) -> None:
    federation = made(tmp_path)
    folder, log = federation.directory.path, tmp_path / "serve.log"
    shutil.move(folder / "broker", tmp_path / "broker")
    (folder / "broker").symlink_to(tmp_path / "broker")  # the broker has a disk of its own
    ballast = small_disk(folder, room=300 << 10)
    join = federation.start_join("site0")
    serve = federation.start_serve()
    try:
        assert serve.wait(PATIENCE) == 2, log.read_text()[-3000:]
        told = log.read_text()
        assert f"privatile: {federation.directory.store_file} could not be written (database or disk is full)" in told
        assert "Nothing is lost: free the disk and give the same command again." in told
        assert 0 < rounds_done(federation) < ROUNDS
        assert is_full(folder)
        again = federation.start_serve()  # still no room: it says so again, and nothing breaks
        assert again.wait(PATIENCE) == 2, log.read_text()[-3000:]
        assert 0 < rounds_done(federation) < ROUNDS
        ballast.unlink()
        serve = federation.start_serve()
        assert serve.wait(PATIENCE) == 0, log.read_text()[-3000:]
        assert join.wait(PATIENCE) == 0
    finally:
        end(serve, join)
    check_whole(federation)


@pytest.mark.faults
@in_own_namespace
def test_a_full_disk_under_store_and_broker_together(tmp_path: Path) -> None:
    federation = made(tmp_path)
    folder, log = federation.directory.path, tmp_path / "serve.log"
    ballast = small_disk(folder, room=500 << 10)
    join = federation.start_join("site0")
    serve = federation.start_serve()
    try:
        assert serve.wait(PATIENCE) == 2, log.read_text()[-3000:]
        assert 0 < rounds_done(federation) < ROUNDS
        assert is_full(folder)
        again = federation.start_serve()
        assert again.wait(PATIENCE) in (2, 4), log.read_text()[-3000:]
        last = log.read_text().splitlines()[-1]
        assert last.startswith("privatile: ")
        assert str(folder) in last
        ballast.unlink()
        serve = federation.start_serve()
        assert serve.wait(PATIENCE) == 0, log.read_text()[-3000:]
        assert join.wait(PATIENCE) == 0
    finally:
        end(serve, join)
    check_whole(federation)


@pytest.mark.faults
@in_own_namespace
def test_a_full_disk_under_a_ledger(tmp_path: Path) -> None:
    federation = made(tmp_path)
    site, log = federation.sites["site0"], tmp_path / "site0.log"
    ballast = small_disk(site.path, room=300 << 10)
    serve = federation.start_serve()
    join = federation.start_join("site0")
    try:
        assert join.wait(PATIENCE) == 2, log.read_text()[-3000:]
        told = log.read_text()
        assert f"the ledger {site.ledger_file} cannot grow: the disk is full. Nothing was answered." in told
        done = rounds_done(federation)
        assert 0 < done < ROUNDS
        with federation.ledger("site0") as ledger:
            # What has left is in the ledger; the answer in hand at most has not been counted yet.
            assert ledger.verify() - rounds_done(federation) in (0, 1)
        assert serve.poll() is None  # it waits for the client
        again = federation.start_join("site0")
        assert again.wait(PATIENCE) == 2, log.read_text()[-3000:]
        ballast.unlink()
        join = federation.start_join("site0")
        assert serve.wait(PATIENCE) == 0, (tmp_path / "serve.log").read_text()[-3000:]
        assert join.wait(PATIENCE) == 0, log.read_text()[-3000:]
    finally:
        end(serve, join)
    check_whole(federation)


@pytest.mark.faults
@in_own_namespace
def test_a_ledger_that_cannot_be_made_stops_the_client_before_it_reserves(tmp_path: Path) -> None:
    federation = made(tmp_path)
    site, log = federation.sites["site0"], tmp_path / "site0.log"
    ballast = small_disk(site.path, room=16 << 10)
    join = federation.start_join("site0")
    assert join.wait(PATIENCE) == 2, log.read_text()[-3000:]
    assert f"the ledger {site.ledger_file} cannot be made" in log.read_text()
    assert not site.ledger_file.exists()
    ballast.unlink()
    join = federation.start_join("site0")
    limit = time.monotonic() + PATIENCE
    try:
        while not site.ledger_file.exists():
            assert join.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < limit
            time.sleep(0.05)
    finally:
        end(join)
