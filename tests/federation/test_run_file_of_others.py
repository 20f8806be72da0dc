"""A coordinator whose run file shows one reader these rounds and the next reader others, or leaves out events."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privatile.errors import StoreError
from privatile.federation.operations.record import countersign, release, verify_record
from privatile.federation.setup.folder import Directory
from privatile.records import CountersignRefused, canonical, recorded_facts, sign
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from tests.federation.kit import Federation
from tests.federation.played import make, play

pytestmark = pytest.mark.network

COLUMNS = "level, round, stage, query, sent, lengths, step, averaged, ones, unspent, at"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    federation = make(tmp_path_factory.mktemp("honest"))
    play(federation)
    return federation


def made_up(path: Path, run: str, spec: Any) -> list[dict[str, Any]]:
    """A run file of the same study with counts around 70 that nobody gave; its results."""
    rng = np.random.default_rng(1)
    with RunStore.create(path, run, spec) as store:
        coordinator = Coordinator(store)
        while (rounds := coordinator.rounds()) is not None:
            counts = []
            for each in rounds:
                row = []
                for question, client in zip(each.questions, spec.clients, strict=True):
                    truth = rng.normal(70.0, 10.0, question.length) > question.query
                    bits = rng.integers(0, 2**64, question.length, dtype=np.uint64)
                    row.append(int(client.mechanism.respond(truth, bits).sum()))
                counts.append(row)
            coordinator.accept(counts)
        coordinator.finish()
        results: list[dict[str, Any]] = json.loads(canonical([recorded_facts(one) for one in coordinator.results()]))
        return results


def two_faced(honest: Federation, folder: Path) -> tuple[Path, dict[str, Any]]:
    """A run file whose `rounds` is a view over honest and made-up rows, another at every look, and a record for it."""
    path, other = folder / "run.db", folder / "other.db"
    shutil.copy(honest.directory.store_file, path)
    with RunStore.open(path, read_only=True) as store:
        results = made_up(other, store.run, store.spec)
    with closing(sqlite3.connect(path)) as direct, direct:
        direct.execute("ATTACH ? AS other", (str(other),))
        direct.execute("ALTER TABLE rounds RENAME TO one")
        direct.execute(f"CREATE TABLE both AS SELECT 1 AS face, {COLUMNS} FROM one")
        direct.execute(f"INSERT INTO both SELECT 0, {COLUMNS} FROM other.rounds")
        direct.execute("DROP TABLE one")
        direct.execute(
            f"CREATE VIEW rounds AS SELECT {COLUMNS} FROM (SELECT random() & 1 AS shown LIMIT 1) CROSS JOIN both"
            " WHERE face = shown"
        )
    record = release(honest.directory)
    record["body"]["results"] = results
    record["signatures"]["signer"] = sign(record["body"], honest.directory.key())
    return path, record


def test_a_run_file_that_shows_other_rounds_at_every_look_is_refused(honest: Federation, tmp_path: Path) -> None:
    """Digest and signatures over the honest rounds, the estimate from made-up ones: before, all checks held in one of
    several tries, and an honest site countersigned."""
    path, record = two_faced(honest, tmp_path)
    assert abs(record["body"]["results"][0]["estimate"] - 50.0) > 5.0
    for _ in range(3):
        failed = verify_record(record, path).failed
        assert len(failed) == 1
        assert "can be read" in failed[0]
        assert "holds tables, views, indices or triggers that privatile does not make" in failed[0]
    with honest.ledger("south") as ledger, pytest.raises(StoreError, match="views"):
        countersign(record, "south", honest.sites["south"].key(), path, ledger)
    for statement in (
        "CREATE VIEW sqlite_seen AS SELECT 1",
        "CREATE TRIGGER later AFTER INSERT ON rounds BEGIN DELETE FROM events; END",
        "CREATE INDEX less ON events (at) WHERE round > 3",
        "CREATE TABLE more (x)",
        "DROP TABLE open_round",
    ):
        shutil.copy(honest.directory.store_file, path)
        with closing(sqlite3.connect(path)) as direct, direct:
            if "sqlite_" in statement:
                direct.execute("PRAGMA writable_schema = 1")
                direct.execute(
                    "INSERT INTO sqlite_master VALUES ('view', 'sqlite_seen', 'sqlite_seen', 0, ?)", (statement,)
                )
            else:
                direct.execute(statement)
        with pytest.raises(StoreError, match="altered or is damaged"):
            RunStore.open(path, read_only=True)


def test_a_site_countersigns_the_file_that_the_record_names_and_no_other(honest: Federation, tmp_path: Path) -> None:
    """Between `verify` and the countersignature the file may be replaced; before, another one was compared."""
    path, record = tmp_path / "run.db", release(honest.directory)
    shutil.copy(honest.directory.store_file, path)
    with closing(sqlite3.connect(path)) as direct, direct:
        direct.execute("DELETE FROM evidence WHERE round = 20")
    key = honest.sites["south"].key()
    with honest.ledger("south") as ledger:
        with pytest.raises(CountersignRefused, match="not the run's file that the record names"):
            countersign(record, "south", key, path, ledger)
        countersign(record, "south", key, honest.directory.store_file, ledger)  # negative control


def test_a_file_is_verified_as_it_was_at_one_moment(honest: Federation, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    shutil.copy(honest.directory.store_file, path)
    with closing(sqlite3.connect(path)) as direct:
        direct.execute("PRAGMA journal_mode = WAL")
        with RunStore.frozen(path) as store:
            rounds = len(list(store.rounds()))
            with direct:
                direct.execute("DELETE FROM rounds")
            assert len(list(store.rounds())) == rounds == Coordinator(store).done
    assert not list(RunStore.open(path, read_only=True).rounds())


def altered(honest: Federation, folder: Path, statement: str, rows: list[tuple[Any, ...]]) -> Path:
    path = folder / "organizer" / "run.db"
    shutil.copytree(honest.directory.path, path.parent)
    with closing(sqlite3.connect(path)) as direct, direct:
        direct.executemany(statement, rows)
    return path


def signed(honest: Federation, record: dict[str, Any], **changes: Any) -> dict[str, Any]:
    body = {**record["body"], **changes}
    return {"body": body, "signatures": {"signer": sign(body, honest.directory.key()), "clients": {}}}


def test_a_record_that_leaves_out_events_is_found(honest: Federation, tmp_path: Path) -> None:
    """A quarantine that the record does not mention: before, every list that the file begins with was accepted."""
    row = (1.0, "quarantined", "north", 3, "two different answers")
    path = altered(honest, tmp_path, "INSERT INTO events VALUES (?, ?, ?, ?, ?)", [row])
    record = release(Directory(path.parent))
    assert record["body"]["events"] == [["quarantined", "north", 3]]
    assert verify_record(record, path).failed == []
    left_out = "the events are those of the run's file: left out: 1 event from before the release"
    assert verify_record(signed(honest, record, events=[]), path).failed == [left_out]
    # Nor does another time of the release hide them, in the record or in the file.
    transcript = record["body"]["transcript"]
    early = signed(honest, record, events=[], transcript={**transcript, "until": 0.5})
    (failed,) = verify_record(early, path).failed
    assert "a time before its last round" in failed
    later = transcript["until"] + 10.0
    with closing(sqlite3.connect(path)) as direct, direct:
        direct.execute("UPDATE events SET at = ?", (later,))
    assert verify_record(signed(honest, record, events=[]), path).failed == [left_out]
    # Negative control: what happens after the release.
    with closing(sqlite3.connect(path)) as direct, direct:
        direct.execute("INSERT INTO events VALUES (?, 'rejected', 'north', 21, '')", (later,))
    assert verify_record(record, path).failed == []
