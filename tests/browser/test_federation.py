"""The dashboard of a real federation: coordinator, broker and clients as processes, a browser in front of them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from privatile.federation.setup.broker import free_port
from tests.federation.kit import Federation, make_study

pytestmark = pytest.mark.browser

PATIENCE = 180_000
"""Milliseconds: far longer than anything here takes."""


class Processes:
    """Whatever was started; all of it ends with the test."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def add(self, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        self._running.append(process)
        return process

    def end(self) -> None:
        for process in reversed(self._running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._running:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def processes() -> Iterator[Processes]:
    kept = Processes()
    yield kept
    kept.end()


def rounds_shown(page: Any) -> int:
    return int(page.locator("body").get_attribute("data-round") or 0)


def moves_on(page: Any, by: int = 1) -> int:
    """Wait until the page shows more rounds than now."""
    before = rounds_shown(page)
    for _ in range(1800):
        if rounds_shown(page) >= before + by:
            return rounds_shown(page)
        page.wait_for_timeout(100)
    raise AssertionError(f"the page stands still at round {before}")


def test_a_federation_is_watched_live(watched: Callable[..., Any], tmp_path: Path, processes: Processes) -> None:
    study = make_study(3, rounds=60_000, length=1, deadline=3.0, patience=1000)
    federation = Federation(tmp_path, study)
    federation.write_data()
    port = free_port()
    options = ("--dashboard-at", f"127.0.0.1:{port}")
    serve = processes.add(federation.start_serve(*options))
    clients = {name: processes.add(federation.start_join(name)) for name in study.clients}
    seen = watched()
    page = seen.page
    for _ in range(900):
        try:
            page.goto(f"http://127.0.0.1:{port}/")
            break
        except Exception:  # the coordinator is not there yet
            page.wait_for_timeout(200)
    moves_on(page, 5)
    page.locator("#status[data-status='running']").wait_for(timeout=PATIENCE)
    page.locator("td[data-state='alive']").nth(2).wait_for(timeout=PATIENCE)

    # A killed client is shown as silent once a round has waited its deadline for it; back again, it is alive.
    clients["site1"].kill()
    clients["site1"].wait()
    page.locator("tr", has_text="site1").locator("td[data-state='silent']").wait_for(timeout=PATIENCE)
    assert page.locator("#alive").inner_text() == "2 of 3"
    processes.add(federation.start_join("site1"))
    page.locator("tr", has_text="site1").locator("td[data-state='alive']").wait_for(timeout=PATIENCE)

    # A killed coordinator: the page says so, and comes back by itself with the whole history.
    serve.kill()
    serve.wait()
    page.locator("#status[data-status='lost']").wait_for(timeout=PATIENCE)
    reached = rounds_shown(page)
    processes.add(federation.start_serve(*options))
    page.locator("#status[data-status='running']").wait_for(timeout=PATIENCE)
    moves_on(page, 5)
    assert rounds_shown(page) > reached
    page.reload()
    moves_on(page)
    assert page.locator("figure.chart").get_attribute("data-from") == "1"
    assert seen.hosts == {f"127.0.0.1:{port}"}
    told = page.content() + page.request.get(f"http://127.0.0.1:{port}/state.json").text()
    told += (tmp_path / "serve.log").read_text()
    secrets = [line for line in private_lines(tmp_path) if line in told]
    assert secrets == []


def private_lines(folder: Path) -> list[str]:
    """Every line of every private key under a folder."""
    files = [path for suffix in ("*.key", "*.nk") for path in folder.rglob(suffix)]
    lines = [line for path in files for line in path.read_text().split() if len(line) > 20]
    assert len(files) >= 6  # the authority's, the broker's, the coordinator's, and one per client
    return lines
