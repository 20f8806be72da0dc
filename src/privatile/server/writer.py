"""Which process writes a run's file, so that whoever looks can tell a run that goes on from one that was killed.

The number is in the file itself while the run goes on and is gone with its end: what is handed on names no process.
"""

from __future__ import annotations

import hashlib
import os
import socket
from typing import Any

from privatile.server.store import RunStore


def this_machine() -> str:
    """A mark for the machine: a process number means something there only. A digest, for the name is nobody's business.

    >>> len(this_machine())
    16
    """
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:16]


def claim(store: RunStore) -> None:
    """Write down that this process carries the run on."""
    store.execute(
        [
            ("CREATE TABLE IF NOT EXISTS writer (machine TEXT NOT NULL, process INTEGER NOT NULL)", ()),
            ("DELETE FROM writer", ()),
            ("INSERT INTO writer VALUES (?, ?)", (this_machine(), os.getpid())),
        ]
    )


def writer_lives(rows: list[tuple[Any, ...]]) -> bool | None:
    """Whether the process in the writer table lives; none where that cannot be known from here.

    >>> writer_lives([(this_machine(), os.getpid())]), writer_lives([("elsewhere", 1)]), writer_lives([])
    (True, None, None)
    """
    if not rows or rows[0][0] != this_machine() or os.name != "posix":  # elsewhere signal 0 is no mere question
        return None
    try:
        os.kill(int(rows[0][1]), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True  # another user's process; a number beyond all processes is not ours to judge
    return True
