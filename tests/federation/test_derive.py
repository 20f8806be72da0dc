"""A client lost for good: a new folder without it, the others' keys and admissions, another estimand."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privatile.errors import InputError
from privatile.federation.operations.commands import abort_run
from privatile.federation.operations.record import release, verify_record
from privatile.federation.operations.status import read_status
from privatile.federation.setup.check import check
from privatile.federation.setup.folder import Directory, admit, initialize_from
from privatile.federation.setup.invitation import read_enrolment
from privatile.federation.study import FederationStudy
from tests.federation.kit import PATIENCE, Federation, call, make_study, tasks, until

pytestmark = pytest.mark.network


HALVES = {"site0": 0.5, "site2": 0.5}


def files(folder: Path) -> dict[str, bytes]:
    """What lies in a folder, but for what SQLite keeps beside a file that is being read."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-shm", "-wal"))]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def taken_over(federation: Federation, path: Path) -> Federation:
    """The derived folder with the sites as they are: nobody enrols again."""
    new = Federation.__new__(Federation)
    new.__dict__.update(federation.__dict__)
    new.directory = Directory(path)
    new.study = new.directory.study()
    new.sites = {name: site for name, site in federation.sites.items() if name in new.study.clients}
    return new


def begun(folder: Path, rounds: int = 400, **settings: Any) -> Federation:
    """Three clients; site1 is lost after a few rounds."""
    federation = Federation(folder, make_study(3, rounds=rounds, length=2, deadline=0.3, patience=1, **settings))

    async def scene() -> None:
        run = federation.open_run()
        async with federation.running_broker():
            lost, coordinator = federation.client("site1"), federation.coordinator(run)
            others = [federation.client("site0"), federation.client("site2")]
            async with tasks(coordinator.run(), lost.run(), *(one.run() for one in others)) as (work, *_):
                await until(lambda: run.coordinator.done >= 4)
                lost.stop()
                await until(lambda: bool(coordinator.core.paused))
                coordinator.stop()
                await work
        run.store.close()

    asyncio.run(scene())
    return federation


def test_a_lost_client_is_left_behind_and_the_others_finish_another_study(tmp_path: Path) -> None:
    federation = begun(tmp_path)
    old, path = federation.directory, tmp_path / "new"
    weights = ("--client-weights", "site0=0.25", "--client-weights", "site2=0.75")
    command = ("federation", "init", str(path), "--from", str(old.path), "--without", "site1", *weights)
    told = call(*command)
    assert told.exit_code == 2
    assert "neither finished nor aborted" in told.output
    assert not path.exists()
    abort_run(old)
    before = files(old.path)
    told = call(*command)
    assert told.exit_code == 0, told.output
    assert "ANOTHER ONE: the quantile of the mixture of these clients, without site1." in told.output
    assert files(old.path) == before  # the old folder is only read
    assert read_status(old).state == "aborted"

    new = taken_over(federation, path)
    study = new.study
    assert study.digest != federation.study.digest
    assert study.run != federation.study.run
    assert {name: agreement.weight for name, agreement in study.clients.items()} == {"site0": 0.25, "site2": 0.75}
    assert study.title == "A test, without site1"
    assert new.directory.key().public == old.key().public
    assert set(new.directory.roster().clients) == {"site0", "site2"}
    assert check(new.directory).errors == []
    for secret in (new.directory.key_file, new.directory.authority_key, new.directory.broker_files.key):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    # What the old run asked of a client, the new one does not ask.
    for name, agreement in study.clients.items():
        with federation.ledger(name) as ledger:
            (answered,) = ledger.execute("SELECT sum(length) FROM answers").fetchone()
        assert answered > 0
        assert agreement.records <= 800 - answered

    with pytest.raises(Exception, match="Reserved, and not asked yet"):
        new.client("site0")  # it was away when the run was aborted, and keeps its reservation until it is told
    for site in new.sites.values():
        freed = call("ledger", "release", federation.study.run, "--ledger", str(site.ledger_file))
        assert freed.exit_code == 0, freed.output
    asyncio.run(new.run()).store.close()
    record = release(new.directory)
    assert verify_record(record, new.directory.store_file).failed == []
    assert "site1" not in [one["name"] for one in record["body"]["results"][0]["clients"]]
    for name in study.clients:
        with federation.ledger(name) as ledger:
            runs = dict(ledger.execute("SELECT run, sum(length) FROM answers GROUP BY run").fetchall())
            assert set(runs) == {federation.study.run, study.run}
            asked = np.zeros(800, dtype=int)
            for start, stop in ledger.execute("SELECT start, stop FROM answers"):
                asked[start:stop] += 1
        assert asked.max() == 1


def test_a_client_with_the_old_invitation_is_told_that_the_study_changed(tmp_path: Path) -> None:
    federation = begun(tmp_path)
    abort_run(federation.directory)
    initialize_from(federation.directory, tmp_path / "new", ["site1"], HALVES)
    new = taken_over(federation, tmp_path / "new")

    async def scene() -> None:
        run = new.open_run()
        async with new.running_broker():
            stale = federation.client("site0")  # with the old invitation, at the same address
            async with tasks(new.coordinator(run).run()):
                with pytest.raises(Exception, match="another version of this study"):
                    await asyncio.wait_for(stale.run(), PATIENCE)
        run.store.close()

    asyncio.run(scene())


def test_weights_are_stated_on_purpose(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(3))

    def made(name: str, weights: dict[str, float], **changes: Any) -> FederationStudy:
        return initialize_from(federation.directory, tmp_path / name, ["site1"], weights, **changes).study()

    for wrong in ({}, {"site0": 1.0}):
        with pytest.raises(InputError, match=r"--client-weights site0=0\.5 --client-weights site2=0\.5$"):
            made("no", wrong)
    with pytest.raises(InputError, match="sum to 1"):
        made("no", {"site0": 0.5, "site2": 0.6})
    assert not (tmp_path / "no").exists()
    assert made("kept", HALVES).quorum == 2
    other = made("other", HALVES, records={"site0": 400}, rounds=9, title="Another")
    assert (other.clients["site0"].records, other.clients["site2"].records) == (400, 40)
    assert (other.rounds, other.title) == (9, "Another")


def test_what_does_not_go_on_is_refused(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(2))
    old, whole = federation.directory, {"site1": 1.0}
    for without, word in ((["west"], "no client west"), (["site0", "site1"], "keeps at least one"), ([], "at least")):
        with pytest.raises(InputError, match=word):
            initialize_from(old, tmp_path / "new", without, whole)
    with pytest.raises(InputError, match="not empty"):
        initialize_from(old, tmp_path, ["site0"], whole)
    told = call("federation", "init", str(tmp_path / "no"), "--from", str(old.path), "--without", "site0", "--open")
    assert (told.exit_code, (tmp_path / "no").exists()) == (2, False)
    assert call("federation", "derive", str(old.path)).exit_code == 2
    # The key of the client that was left out is out for good.
    new = initialize_from(old, tmp_path / "new", ["site0"], whole)
    enrolment = read_enrolment(federation.sites["site0"].enrolment_file)
    with pytest.raises(InputError, match="no client 'site0'"):
        admit(new, enrolment, enrolment.keys.fingerprint)
    assert [(old.client, old.keys) for old in new.roster().revoked] == [("site0", enrolment.keys)]


def test_a_finished_run_leaves_too_few_records(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(2, rounds=10, length=4))
    asyncio.run(federation.run()).store.close()
    with pytest.raises(InputError, match="site1=NUMBER"):
        initialize_from(federation.directory, tmp_path / "new", ["site0"], {})
    initialize_from(federation.directory, tmp_path / "new", ["site0"], {"site1": 1.0}, records={"site1": 50})
    assert read_status(federation.directory).state == "finished"
