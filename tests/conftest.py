"""Which tests may start processes, open connections or a browser: only those that say so.

`make check` leaves marked tests out and must stay fast; a test that needs more than memory and files without the
marker would make it slow or flaky. So an unmarked test that starts a process or connects fails, wherever it runs.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from typing import Any, NoReturn

import pytest

from tests.marks import forget_marks

MAY_LEAVE = ("process", "network", "browser", "faults")
"""Markers of tests that may start processes and open connections."""


def pytest_configure(config: pytest.Config) -> None:
    """Keys of ledgers are made in the user's configuration folder: give the tests, and what they start, another."""
    folder = tempfile.mkdtemp(prefix="privatile-keys-")
    os.environ["XDG_CONFIG_HOME"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture(autouse=True)
def no_marks_of_other_tests() -> None:
    """A ledger that several tests begin with is copied for each: the copies of earlier ones have gone on."""
    forget_marks()


@pytest.fixture(autouse=True)
def stay_in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse processes and connections to tests that carry none of the markers."""
    if any(request.node.get_closest_marker(name) for name in MAY_LEAVE):
        return

    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        if arguments[1:] and list(arguments[1])[:1] == ["fc-list"]:
            raise FileNotFoundError("matplotlib, at its first start on a machine: it does without the system's fonts.")
        raise AssertionError(
            "this test starts a process or opens a connection: mark it with pytest.mark.process or network."
        )

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)
