"""A dashboard behind a real server, for the tests of this folder."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import uvicorn

from privatile.report.dashboard.serving import DashboardAddress, listen

LOCAL = {"host": "127.0.0.1:8000"}


PATIENCE = 180.0
"""Seconds to wait for what must happen: a slow machine under load needs some, and no test waits it out."""


@contextlib.contextmanager
def served(app: Any) -> Iterator[httpx.Client]:
    """The application behind a real server."""
    bound = listen(DashboardAddress())
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}", timeout=PATIENCE) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()
        bound.close()


def state_of(client: httpx.Client, **headers: str) -> Any:
    answer = client.get("/state.json", headers={**LOCAL, **headers})
    assert answer.status_code == 200, answer.text
    return answer.json()


def until(condition: Any, seconds: float = PATIENCE) -> Any:
    """The first true value of a condition; a failure long after anything should have happened."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError("it did not happen")
