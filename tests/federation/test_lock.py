"""One process per folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from privatile.errors import InputError
from privatile.federation.run import lock


def test_a_file_that_was_removed_while_it_was_opened_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "coordinator.pid"
    taken: list[int] = []
    try_lock = lock._try_lock

    def removed_first(handle: int) -> bool:
        if not taken:
            path.unlink()  # the holder before ends between opening and locking
        taken.append(handle)
        return try_lock(handle)

    monkeypatch.setattr(lock, "_try_lock", removed_first)
    with lock.lock_folder(path):
        assert len(taken) == 2
        assert lock.running_process(path) == os.getpid()
        with pytest.raises(InputError, match="already running"), lock.lock_folder(path):
            pass
    assert lock.running_process(path) is None
