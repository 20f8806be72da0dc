"""Which tests may start processes, open connections or a browser: only those that say so.

`make check` leaves marked tests out and must stay fast; a test that needs more than memory and files without the
marker would make it slow or flaky. So an unmarked test that starts a process or connects fails, wherever it runs.
"""

from __future__ import annotations

import os
import socket
import subprocess
from typing import Any, NoReturn

import pytest

MAY_LEAVE = ("process", "network", "browser", "faults")
"""Markers of tests that may start processes and open connections."""


@pytest.fixture(autouse=True)
def stay_in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse processes and connections to tests that carry none of the markers."""
    if any(request.node.get_closest_marker(name) for name in MAY_LEAVE):
        return

    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        raise AssertionError(
            "this test starts a process or opens a connection: mark it with pytest.mark.process or network."
        )

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)
