"""One process per folder."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from privatile.errors import InputError
from privatile.run import locks
from privatile.run.tables import is_held, running_process, try_lock


def test_a_file_that_was_removed_while_it_was_opened_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "coordinator.pid"
    taken: list[int] = []

    def removed_first(handle: int) -> bool:
        if not taken:
            path.unlink()  # the holder before ends between opening and locking
        taken.append(handle)
        return try_lock(handle)

    monkeypatch.setattr(locks, "try_lock", removed_first)
    with locks.lock_folder(path):
        assert len(taken) == 2
        assert running_process(path) == os.getpid()
        with pytest.raises(InputError, match="already running"), locks.lock_folder(path):
            pass
    assert running_process(path) is None


def test_who_only_looks_is_taken_for_a_holder_by_nobody(tmp_path: Path) -> None:
    """A dashboard looks once per second: neither another look nor a start at that moment may fail by it."""
    path = tmp_path / "coordinator.pid"
    path.write_text("123\n")  # of a process that was killed
    looking = os.open(path, os.O_RDONLY)
    assert try_lock(looking, shared=True)
    assert not is_held(path)
    assert running_process(path) is None

    def look_away() -> None:
        time.sleep(0.05)
        os.close(looking)

    thread = threading.Thread(target=look_away)
    thread.start()
    with locks.lock_folder(path):
        assert is_held(path)
        assert running_process(path) == os.getpid()
    thread.join()
    assert not is_held(path)
