"""The dashboard on the folder of an organization without a coordinator: it shows committed rounds, and events."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from peers_kit import Peers, leaderless
from privatile.cli import main
from privatile.federation.operations.status import read_status
from privatile.report.dashboard.app import make_app
from privatile.report.dashboard.live import find_run
from privatile.run.locks import lock_folder
from privatile_leaderless.service import PeerService
from test_peer_copies import Page
from tests.dashboard.served import LOCAL, served, state_of, until

pytestmark = pytest.mark.network


async def play(page: Page, services: list[PeerService], rounds: int) -> None:
    """Until the first has closed so many rounds; the next one has no answer yet, and what was read is in the file."""
    first = services[0]
    while first.replica.closed < rounds and not first.replica.finished:
        for one in services:
            await page.turn(one, 0.0)
    first._keep()


def test_a_peers_folder_shows_its_committed_rounds(tmp_path: Path) -> None:
    peers, page = Peers(tmp_path, leaderless(2, rounds=8, length=4), servers=1), Page()
    folder = peers.folders["site0"]
    shown = find_run(folder.path)
    assert shown == folder.store_file

    async def look() -> None:
        with served(make_app(shown, interval=0.05)) as client:
            assert "privatile peer run" in state_of(client)["waits_for"]
            services = [peers.service(name) for name in peers.study.clients]
            await play(page, services, 5)
            replica = services[0].replica
            assert (replica.closed, replica.committed) == (5, 4)  # the fifth is signed by nobody yet
            state = until(lambda: found if (found := state_of(client)).get("done") == 4 else None)
            assert state["levels"][0]["path"]["round"] == [1, 2, 3, 4]
            assert {one["name"] for one in state["clients"]["listed"]} == set(peers.study.clients)
            assert client.get("/", headers=LOCAL).status_code == 200
            assert (state["organization"], state["sign_of_life"]) == ("site0", "last entry")
            assert state["status"] == "stopped"  # at once: nobody holds the folder
            with lock_folder(folder.pid_file, "peer"):
                until(lambda: state_of(client)["status"] == "running")
                assert read_status(folder).state == "running"
            until(lambda: state_of(client)["status"] == "stopped")
            assert read_status(folder).state == "stopped"
            await play(page, services[1:], 5)
            services[1]._keep()
            both = make_app(folder.path, peers.folders["site1"].path, interval=0.05)
            with served(both) as several:  # two files of one run
                until(lambda: all(f", as {name} sees it" in several.get("/").text for name in peers.folders))
                assert [one["organization"] for one in several.get("/health").json()["runs"]] == ["site0", "site1"]
            for name in peers.folders:
                output = CliRunner().invoke(main, ["status", str(peers.folders[name].path)]).output
                assert f"{peers.study.run}, as {name} sees it" in output
                assert "last heard" not in output
            page.sender = "site1"
            await page.publish(b"{}\nAAAA")
            await play(page, services, 9)
            for one in services:
                one._keep()
            state = until(lambda: found if (found := state_of(client)).get("status") == "finished" else None)
            assert state["done"] == 8
            assert ("unsigned", "site1") in [(event["kind"], event["client"]) for event in state["events"]]

    asyncio.run(look())
    for log in peers.logs.values():
        log.close()


def test_the_command_takes_a_peers_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    peers = Peers(tmp_path, leaderless(2, rounds=8, length=4), servers=1)
    shown: list[Any] = []

    def serve(paths: Any, bound: Any, *arguments: Any) -> None:
        shown.extend(paths)
        bound.close()

    monkeypatch.setattr("privatile.report.dashboard.serving.run_server", serve)
    done = CliRunner().invoke(main, ["dashboard", str(peers.folders["site1"].path)])
    assert done.exit_code == 0, done.output
    assert shown == [peers.folders["site1"].store_file]
