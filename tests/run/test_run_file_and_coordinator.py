import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.errors import StoreError
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore

SPEC = RunSpec(
    value="income",
    levels=(0.3, 0.6),
    clients=tuple(ClientSpec(name, RandomizedResponse(0.5).threshold, 0.5, 60) for name in ("a", "b")),
    scale="linear",
    low=0.0,
    high=100.0,
    design="rounds",
    rounds=10,
)


def answer(coordinator: Coordinator, rounds: int, seed: int = 0) -> None:
    """Counts that depend on the round alone, so that a resumed run sees what an uninterrupted one would."""
    for _ in range(rounds):
        asked = coordinator.rounds()
        assert asked is not None
        counts = [
            [
                int(np.random.default_rng((seed, q.round, each.level_index, k)).integers(0, q.length + 1))
                for k, q in enumerate(each.questions)
            ]
            for each in asked
        ]
        coordinator.accept(counts)


def test_questions_are_in_units_and_name_the_round(tmp_path: Path) -> None:
    coordinator = Coordinator(RunStore.create(tmp_path / "run.db", "r1", SPEC))
    asked = coordinator.rounds()
    assert asked is not None
    assert [each.level_index for each in asked] == [0, 1]
    question = asked[1].questions[0]
    assert (question.run, question.round, question.level, question.query, question.length) == ("r1", 1, 0.6, 50.0, 3)
    assert question.step is None


@pytest.mark.parametrize("stop", [1, 5, 9])
def test_a_resumed_run_is_the_same_run(tmp_path: Path, stop: int) -> None:
    whole = Coordinator(RunStore.create(tmp_path / "whole.db", "r1", SPEC))
    answer(whole, 10)
    first = Coordinator(RunStore.create(tmp_path / "part.db", "r1", SPEC))
    answer(first, stop)
    first.store.close()
    second = Coordinator(RunStore.open(tmp_path / "part.db"))
    assert second.done == stop
    answer(second, 10 - stop)
    assert second.rounds() is None
    second.finish()
    for level_index in range(2):
        assert second.tracks[level_index].state == whole.tracks[level_index].state
        assert second.result(level_index).confidence_interval == whole.result(level_index).confidence_interval
    assert RunStore.open(tmp_path / "part.db").finished is not None


def test_the_file_of_a_finished_run_is_complete_alone_also_where_somebody_has_it_open(tmp_path: Path) -> None:
    """People hand it to others by itself; a dashboard may have it open when the run ends."""
    path = tmp_path / "run.db"
    coordinator = Coordinator(RunStore.create(path, "r1", SPEC))
    answer(coordinator, 2)
    with RunStore.open(path, read_only=True) as reader:
        assert len(list(reader.all_rounds())) == 4
        answer(coordinator, 8)
        coordinator.finish()
        coordinator.store.close()
        shutil.copy(path, tmp_path / "alone.db")
        assert reader.finished is not None  # it asks the file again
    with RunStore.open(tmp_path / "alone.db", read_only=True) as copy:
        assert len(list(copy.all_rounds())) == 20
        assert copy.finished is not None


def test_a_run_is_not_finished_before_its_last_round(tmp_path: Path) -> None:
    coordinator = Coordinator(RunStore.create(tmp_path / "run.db", "r1", SPEC))
    with pytest.raises(StoreError, match="not over"):
        coordinator.finish()


def test_counts_must_fit_the_rounds_asked(tmp_path: Path) -> None:
    coordinator = Coordinator(RunStore.create(tmp_path / "run.db", "r1", SPEC))
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        coordinator.accept([[1, 1]])


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    RunStore.create(tmp_path / "run.db", "r1", SPEC).close()
    with pytest.raises(StoreError, match="exists already"):
        RunStore.create(tmp_path / "run.db", "r2", SPEC)


def test_foreign_damaged_and_altered_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no run file"):
        RunStore.open(tmp_path / "nothing.db")
    (tmp_path / "text.db").write_text("not a database, but long enough to look at" * 30)
    with pytest.raises(StoreError, match="not a run file"):
        RunStore.open(tmp_path / "text.db")
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)").connection.commit()
    with pytest.raises(StoreError, match="not a run file"):
        RunStore.open(tmp_path / "other.db")
    RunStore.create(tmp_path / "run.db", "r1", SPEC).close()
    with sqlite3.connect(tmp_path / "run.db") as raw:
        raw.execute("UPDATE run SET spec = replace(spec, '100.0', '200.0')")
    raw.close()
    with pytest.raises(StoreError, match="altered"):
        RunStore.open(tmp_path / "run.db")


def test_altered_counts_do_not_replay(tmp_path: Path) -> None:
    coordinator = Coordinator(RunStore.create(tmp_path / "run.db", "r1", SPEC))
    answer(coordinator, 5)
    coordinator.store.close()
    with sqlite3.connect(tmp_path / "run.db") as raw:
        raw.execute("UPDATE rounds SET ones = '[0, 0]' WHERE round = 2 AND level = 0")
    raw.close()
    with pytest.raises(StoreError, match="does not replay"):
        Coordinator(RunStore.open(tmp_path / "run.db"))


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        RunStore.create(tmp_path / "no" / "such" / "run.db", "r1", SPEC)


def test_another_programs_database_is_left_as_it_is(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)").connection.commit()
    before = (tmp_path / "other.db").read_bytes()
    with pytest.raises(StoreError, match="not a run file"):
        RunStore.open(tmp_path / "other.db")
    assert (tmp_path / "other.db").read_bytes() == before


def test_a_run_killed_before_its_first_commit_leaves_a_blank_file(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "blank.db").execute("PRAGMA journal_mode=WAL").connection.close()
    (tmp_path / "empty.db").touch()
    RunStore.create(tmp_path / "run.db", "r1", SPEC).close()
    assert [RunStore.is_blank(tmp_path / f"{name}.db") for name in ("blank", "empty", "run")] == [True, True, False]


def test_client_totals_count_asked_answered_and_silent(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run.db", "r1", SPEC)
    coordinator = Coordinator(store)
    answer(coordinator, 1)
    coordinator.accept([[1, None], [2, None]])
    assert [stored.level_index for stored in store.all_rounds()] == [0, 0, 1, 1]
    totals = coordinator.clients
    assert {name: tuple(row) for name, row in totals.items()} == {"a": (12, 12, 0), "b": (12, 6, 2)}


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    coordinator = Coordinator(RunStore.create(tmp_path / "run.db", "r1", SPEC))
    answer(coordinator, 5)
    coordinator.store.close()
    content = bytearray((tmp_path / "run.db").read_bytes())
    content[4200:] = bytes(byte ^ 0x55 for byte in content[4200:])
    (tmp_path / "run.db").write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        Coordinator(RunStore.open(tmp_path / "run.db"))
