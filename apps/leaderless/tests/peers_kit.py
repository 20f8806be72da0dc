"""Organizations without a coordinator under one folder: folders, data and servers; peers as tasks or as processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nats.errors
import numpy as np

from privatile.client.ledger.ledger import Ledger
from privatile.client.randomizer import Coins
from privatile.client.sources.databases import open_source
from privatile.client.sources.source import ONLY_CLIENT
from privatile.core.messages import Answer
from privatile.estimator.plan import Ask
from privatile.federation.connection import Backoff
from privatile.federation.operations.join import JoinOptions
from privatile.federation.setup.broker import EmbeddedBroker, free_port
from privatile.federation.site.folder import enroll
from privatile.federation.study import FederationStudy
from privatile.run.run_file import RunStore
from privatile_leaderless.folder import PeerFolder, ServerPlace, log_request, make_peer_folder
from privatile_leaderless.peer_file import PeerLog
from privatile_leaderless.roster import PeerInvitation
from privatile_leaderless.service import PeerOptions, PeerService, open_log, prepare_peer, start_server
from tests.federation.kit import REPOSITORY, make_study


def leaderless(clients: int = 3, tolerate: int = 0, **settings: Any) -> FederationStudy:
    return make_study(clients, extra={"tolerate": tolerate}, **settings)


class Compared(NamedTuple):
    """What was compared, every client's counts in its own file."""

    counts: int = 0
    """Equal to the ledger's."""
    silent: int = 0
    """Rounds that were closed without the client."""
    spent: int = 0
    """Those of them that its ledger has answered all the same: drawn, and not counted."""


class Peers:
    """Enrolled and admitted organizations; the first `servers` of them run a server."""

    def __init__(self, folder: Path, study: FederationStudy, servers: int = 3) -> None:
        self.folder = folder
        self.study = study
        self.folders: dict[str, PeerFolder] = {}
        for place, name in enumerate(study.clients):
            site = enroll(PeerInvitation(name, study), folder / f"site-{name}", max_epsilon=study.clients[name].epsilon)
            at = ServerPlace("localhost", free_port(), free_port()) if place < servers else None
            self.folders[name] = make_peer_folder(folder / name, study, name, site.path, site.key(), at)
        files = [one.enrolment_file for one in self.folders.values()]
        for one in self.folders.values():
            one.admit(files)
        self.values = {
            name: np.random.default_rng(k).normal(50.0, 10.0, agreement.records)
            for k, (name, agreement) in enumerate(study.clients.items())
        }
        self.logs: dict[str, PeerLog] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    # -- as tasks ------------------------------------------------------------------------------------------------

    def service(self, name: str, *, coins: Coins | None = None, **settings: Any) -> PeerService:
        """A peer of this process; it does not look after its server."""
        folder = self.folders[name]
        self.logs[name] = open_log(folder)
        service = prepare_peer(
            folder,
            open_source(self.values[name], value=None),
            JoinOptions("value", restored=settings.pop("restored", False)),
            PeerOptions(**{"linger": 5.0, **settings}),
            self.logs[name],
            coins=coins,
        )
        service.backoff = Backoff(longest=0.3)
        return service

    @contextlib.asynccontextmanager
    async def servers(self) -> AsyncIterator[dict[str, EmbeddedBroker]]:
        """The cluster, in processes of its own."""
        found = {name: one for name, one in self.folders.items() if one.server() is not None}
        started: dict[str, EmbeddedBroker] = {}
        try:
            for name, folder in found.items():
                started[name] = await asyncio.to_thread(start_server, folder, lambda line: None)
            yield started
        finally:
            for server in started.values():
                await asyncio.to_thread(server.stop)

    # -- as processes --------------------------------------------------------------------------------------------

    def write_data(self) -> None:
        for name, values in self.values.items():
            rows = "\n".join(["x", *(f"{value:.6f}" for value in values), ""])
            (self.folder / f"{name}.csv").write_text(rows)

    def start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        """Start a peer, with its server, as a process of its own."""
        words = ["peer", "run", str(self.folders[name].path), "--source", str(self.folder / f"{name}.csv")]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "privatile", *words, "--value", "x", "--yes", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )
        return self.processes[name]

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Kill a peer that runs as a process; its server lives on."""
        self.processes[name].send_signal(number)
        self.processes[name].wait()

    def stop(self) -> None:
        """End what was started here."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
        for folder in self.folders.values():
            if folder.server() is not None:
                EmbeddedBroker(folder.broker_files, folder.settings()).stop()

    # -- looking -------------------------------------------------------------------------------------------------

    def committed(self, name: str) -> list[tuple[int, str]]:
        """The chain value after every round in a peer's file."""
        path = self.folders[name].store_file
        if not path.exists() or RunStore.is_blank(path):
            return []
        with RunStore.open(path, read_only=True) as store:
            if not store.query("SELECT 1 FROM sqlite_master WHERE name = 'peer_chain'"):
                return []
            return [
                (number, chain) for number, chain in store.query("SELECT round, chain FROM peer_chain ORDER BY round")
            ]

    def rounds(self, name: str) -> int:
        """Committed rounds in a peer's file."""
        return len(self.committed(name))

    def check(self) -> int:
        """Compare everything; gives the number of counts that are equal to the ledgers'."""
        return self.compare().counts

    def compare(self) -> Compared:
        """Compare everything: chains with each other, counts with ledgers, silent counts with what ledgers have spent.

        A count that is silent may be spent: drawn, and lost with a process or read too late. Then none of what its
        client missed there may be given back to be asked again (`unspent` of its next answer).
        """
        chains = {name: self.committed(name) for name in self.folders}
        longest = max(chains.values(), key=len)
        for name, chain in chains.items():
            assert chain == longest[: len(chain)], name
        kept: dict[str, Any] = {}
        for name, folder in self.folders.items():
            with RunStore.frozen(folder.store_file) as store:
                kept[name] = [
                    (one.level_index, one.round, one.ask, one.ones, one.unspent) for one in store.all_rounds()
                ]
        found = Compared()
        for name, folder in self.folders.items():
            assert kept[name] == max(kept.values(), key=len)[: len(kept[name])]
            with Ledger.open(folder.ledger_file, read_only=True) as ledger:
                given = ledger.answers(self.study.run, ONLY_CLIENT)
            for owner, rows in kept.items():
                seen = against(given, rows, list(self.study.clients).index(name), self.study.asked_levels)
                if owner == name:
                    found = Compared(*(sum(pair) for pair in zip(found, seen, strict=True)))
        assert found.counts + found.silent == sum(map(len, kept.values()))  # none was left out
        return found


def against(
    given: Mapping[int, Sequence[Answer]],
    rows: Sequence[tuple[int, int, Ask, Sequence[int | None], Sequence[int]]],
    place: int,
    levels: Sequence[float],
) -> Compared:
    """One client's counts in a file against its ledger; a row has level, round, what was asked, counts and unspent."""
    counts = silent = spent = 0
    drawn: dict[int, bool] = {}
    """Whether a coin was drawn since the last answer that was counted, by level."""
    for level, number, ask, ones, unspent in rows:
        own = [one for one in given.get(number, ()) if one.question.level == levels[level]]
        if ones[place] is None:
            silent += 1
            spent += bool(own)
            drawn[level] = drawn.get(level, False) or bool(own)
            continue
        (answer,) = own
        assert (answer.ones, answer.question.query) == (ones[place], ask.sent), f"another count in round {number}"
        assert not (drawn.pop(level, False) and place in unspent), f"given back in round {number}, and spent before"
        counts += 1
    return Compared(counts, silent, spent)


async def stream_leader(services: Sequence[PeerService]) -> str:
    """Whose server leads the log, once every replica is up to date."""
    async with asyncio.timeout(60):
        while True:
            for port in [one._port for one in services if one._port is not None]:
                subject = log_request(f"STREAM.INFO.{port.requests.stream}")
                with contextlib.suppress(nats.errors.Error):
                    found = json.loads((await port._nc.request(subject, b"{}", timeout=1.0)).data).get("cluster", {})
                    if found.get("leader") and all(one["current"] for one in found.get("replicas", [])):
                        return str(found["leader"]).rpartition("_")[2]
            await asyncio.sleep(0.1)


async def run_all(peers: Peers, coins: Mapping[str, Coins] | None = None, seconds: float = 120.0) -> None:
    """The whole study, every peer a task of this process."""
    services = [peers.service(name, coins=(coins or {}).get(name)) for name in peers.study.clients]
    ends = await asyncio.wait_for(asyncio.gather(*(one.run() for one in services)), seconds)
    for one in peers.logs.values():
        one.close()
    assert ends == ["finished"] * len(services)


def until(condition: Any, seconds: float = 120.0) -> None:
    """Wait for something that must happen."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)
