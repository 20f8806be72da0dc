"""Stores and runs: resumed after a kill, refused before any work, the same numbers on any workers."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from privatile.errors import InputError, StoreError
from privatile.simulation import runner
from privatile.simulation.engine import Summary
from privatile.simulation.experiment import parse_experiment
from privatile.simulation.runner import ExperimentStore, run_experiment

DESIGN = """
title = "Small"
clients = 3
replications = 140
seed = 3
[populations]
same = "normal"
apart = { family = "cauchy", location = [0, 1, 2] }
[methods]
C1 = { lengths = 1, mode = "local", warm_up = 0.05 }
C5 = { lengths = 5, mode = "local", warm_up = 0.05 }
cohort = { lengths = 20, burn_in = 0.1 }
[[grid]]
population = ["same", "apart"]
level = [0.5, 0.8]
truth_rate = [0.5]
method = ["C1", "C5", "cohort"]
records = [200]
"""
EXPERIMENT = parse_experiment(DESIGN)


def plain_rows(store: ExperimentStore) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in store.rows()]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    with ExperimentStore.open_for(tmp_path_factory.mktemp("one") / "one.db", EXPERIMENT) as store:
        assert run_experiment(EXPERIMENT, store, threads=1) == len(EXPERIMENT.entries)
        return plain_rows(store)


def test_two_threads_give_the_same_numbers(expected: list[dict[str, Any]], tmp_path: Path) -> None:
    with ExperimentStore.open_for(tmp_path / "two.db", EXPERIMENT) as store:
        run_experiment(EXPERIMENT, store, threads=2)
        assert plain_rows(store) == expected


# Dask's workers close their sockets when the interpreter collects them, a moment after the cluster has gone.
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("workers", ["dask", "loky", "threading"])
def test_other_workers_give_the_same_numbers(workers: str, expected: list[dict[str, Any]], tmp_path: Path) -> None:
    # One worker of Dask's is a process that imports everything, as each of two is.
    count = 1 if workers == "dask" and not os.environ.get("PRIVATILE_LONG") else 2
    with ExperimentStore.open_for(tmp_path / f"{workers}.db", EXPERIMENT) as store:
        run_experiment(EXPERIMENT, store, workers=workers, threads=count)
        assert plain_rows(store) == expected


def test_unknown_workers_are_refused(tmp_path: Path) -> None:
    with ExperimentStore.open_for(tmp_path / "x.db", EXPERIMENT) as store:
        with pytest.raises(InputError, match="registered joblib backend"):
            run_experiment(EXPERIMENT, store, workers="carrier-pigeons")
        with pytest.raises(InputError, match="--scheduler goes with --workers dask"):
            run_experiment(EXPERIMENT, store, workers="loky", address="tcp://127.0.0.1:1")
        assert store.rows() == []


def test_an_interrupted_study_continues_without_repeating(
    expected: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, evaluated = runner.evaluate, []

    def counted(*args: Any) -> tuple[int, Summary, float]:
        evaluated.append(args[1].key)
        if len(evaluated) == 6:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(runner, "evaluate", counted)
    progress: list[tuple[int, int]] = []
    with ExperimentStore.open_for(tmp_path / "stop.db", EXPERIMENT) as store, pytest.raises(KeyboardInterrupt):
        run_experiment(EXPERIMENT, store)
    with ExperimentStore.open_for(tmp_path / "stop.db", EXPERIMENT) as store:
        assert store.finished() == {0, 1, 2, 3, 4}
        ran = run_experiment(EXPERIMENT, store, progress=lambda done, total: progress.append((done, total)))
        assert plain_rows(store) == expected
    assert ran == len(EXPERIMENT.entries) - 5
    # The sixth began twice, all others once.
    assert len(evaluated) == len(EXPERIMENT.entries) + 1
    assert progress[0][0] == 5 * 140 * 600
    assert progress[-1] == (EXPERIMENT.updates, EXPERIMENT.updates)


SLOW = DESIGN.replace("records = [200]", "records = [20000]").replace("replications = 140", "replications = 512")


@pytest.mark.faults
def test_a_killed_run_resumes(tmp_path: Path) -> None:
    design, store = tmp_path / "slow.toml", tmp_path / "slow.db"
    design.write_text(SLOW)
    command = [sys.executable, "-m", "privatile", "simulate", "run", str(design), "--store", str(store), "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            time.sleep(0.1)
            if store.exists() and finished(store) >= 2:
                break
        assert process.poll() is None, "the run ended before it could be killed"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = stamps(store)
    assert 2 <= len(before) < 12
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "12 cells finished" in done.stdout
    after = stamps(store)
    assert len(after) == 12
    assert {place: after[place] for place in before} == before


def finished(store: Path) -> int:
    try:
        return len(stamps(store))
    except sqlite3.OperationalError:
        return 0


def stamps(store: Path) -> dict[int, float]:
    with sqlite3.connect(store) as connection:
        return dict(connection.execute("SELECT place, at FROM result").fetchall())


def test_the_store_of_another_design_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    ExperimentStore.open_for(path, EXPERIMENT).close()
    ExperimentStore.open_for(path, EXPERIMENT).close()
    for other in (DESIGN.replace("seed = 3", "seed = 4"), DESIGN.replace("140", "141"), DESIGN.replace("0.8", "0.7")):
        with pytest.raises(StoreError, match="belongs to another design"):
            ExperimentStore.open_for(path, parse_experiment(other))


def test_a_store_knows_its_confidence_level(tmp_path: Path) -> None:
    with ExperimentStore.open_for(tmp_path / "x.db", parse_experiment("confidence_level = 0.9\n" + DESIGN)) as store:
        assert store.confidence_level == 0.9
    with ExperimentStore.open_existing(tmp_path / "x.db") as store:
        assert store.confidence_level == 0.9


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("these are my notes, do not touch them, they are long enough to be no database\n" * 20)
    with pytest.raises(StoreError, match="not the store of an experiment"):
        ExperimentStore.open_for(path, EXPERIMENT)
    assert path.read_text().startswith("these are my notes")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreError, match="is not the store of an experiment"):
        ExperimentStore.open_for(other, EXPERIMENT)
    with pytest.raises(StoreError, match="there is no store"):
        ExperimentStore.open_existing(tmp_path / "missing.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="cannot be written"):
        ExperimentStore.open_for(tmp_path / "x.db", EXPERIMENT)


def test_a_store_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["x" * 200] * 3)  # a longer path than SQLite opens
    folder.mkdir(parents=True)
    (folder / "x.db").write_bytes(b"")
    with pytest.raises(StoreError, match=r"x\.db cannot be read \("):
        ExperimentStore.open_existing(folder / "x.db")


def test_a_store_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        ExperimentStore.open_for(tmp_path / "no" / "such" / "folder.db", EXPERIMENT)
