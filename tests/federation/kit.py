"""A whole federation in a folder: organizer, sites, data, broker; services as tasks or as processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner, Result

from privatile.cli import main
from privatile.client.ledger.ledger import Ledger
from privatile.client.randomizer import Coins
from privatile.client.sources.databases import open_source
from privatile.federation.connection import Backoff
from privatile.federation.coordinator.core import CoordinatorCore
from privatile.federation.coordinator.service import CoordinatorService
from privatile.federation.operations.join import JoinOptions, prepare_client
from privatile.federation.operations.record import countersign
from privatile.federation.operations.serve import OpenRun, ServeOptions, coordinator_service, open_run, roster_signers
from privatile.federation.setup.broker import EmbeddedBroker, free_port
from privatile.federation.setup.folder import Directory, admit, initialize, new_identity
from privatile.federation.setup.invitation import Invitation, read_enrolment, read_invitation
from privatile.federation.setup.permissions import BrokerSettings
from privatile.federation.site.folder import Site, enroll
from privatile.federation.site.service import ClientService
from privatile.federation.study import ClientAgreement, FederationStudy
from privatile.records.keys import KeyPair

REPOSITORY = Path(__file__).parents[2]

PATIENCE = 180.0
"""Seconds to wait for what must happen: far longer than it takes on a slow machine under load; no test waits it out."""


def make_study(
    clients: int | Mapping[str, ClientAgreement] = 2, rounds: int = 10, length: int = 4, **settings: Any
) -> FederationStudy:
    if isinstance(clients, int):
        clients = {f"site{k}": ClientAgreement(1.0, 1.0 / clients, rounds * length) for k in range(clients)}
    defaults: dict[str, Any] = {
        "identity": new_identity(),
        "title": "A test",
        "asked_by": "the tests",
        "value": "x",
        "levels": (0.5,),
        "range": (0.0, 100.0),
        "rounds": rounds,
        "deadline": 30.0,
        "patience": 20,
        "design": "rounds",
        "clients": clients,
    }
    return FederationStudy(**{**defaults, **settings})


def call(*arguments: str, **settings: Any) -> Result:
    """What `privatile` with these arguments does."""
    return CliRunner().invoke(main, list(arguments), **settings)


class Federation:
    """Organizer and sites under one folder, every site admitted. `sites` is where the sites' own folders lie."""

    def __init__(
        self, folder: Path, study: FederationStudy, port: int | None = None, sites: Path | None = None
    ) -> None:
        self.folder = folder
        self.sites_folder = sites or folder
        self.study = study
        self.settings = BrokerSettings(port=port or free_port())
        self.directory: Directory = initialize(folder / "organizer", study, self.settings)
        self.sites: dict[str, Site] = {name: self.enroll(name) for name in study.clients}
        self.values = {
            name: np.random.default_rng(k).normal(50.0, 10.0, agreement.records)
            for k, (name, agreement) in enumerate(study.clients.items())
        }

    def enroll(self, name: str, *, new_key: bool = False) -> Site:
        limit = None if (self.sites_folder / name / "policy.toml").exists() else self.study.clients[name].epsilon
        site = enroll(self.invitation(name), self.sites_folder / name, max_epsilon=limit, new_key=new_key)
        enrolment = read_enrolment(site.enrolment_file)
        admit(self.directory, enrolment, enrolment.keys.fingerprint)
        return site

    def invitation(self, name: str) -> Invitation:
        return read_invitation(self.directory.invitation_file(name))

    def broker(self) -> EmbeddedBroker:
        return EmbeddedBroker(self.directory.broker_files, self.directory.settings())

    @contextlib.asynccontextmanager
    async def running_broker(self) -> AsyncIterator[EmbeddedBroker]:
        broker = self.broker()
        await asyncio.to_thread(broker.start)
        try:
            yield broker
        finally:
            await asyncio.to_thread(broker.stop)

    def open_run(self) -> OpenRun:
        return open_run(self.directory)

    def new_core(self, run: OpenRun) -> CoordinatorCore:
        signers = roster_signers(self.directory)()
        return CoordinatorCore(self.study, self.directory.key(), run.coordinator, run.journal, signers)

    def coordinator(self, run: OpenRun, *, connect: Any = None, **settings: Any) -> CoordinatorService:
        """What drives the run, over the kit's broker, or over what `connect` opens."""
        service = coordinator_service(self.directory, run, ServeOptions(**settings))
        service.connect, service.backoff = connect or service.connect, Backoff(longest=0.3)
        return service

    def client(self, name: str, *, coins: Coins | None = None, connect: Any = None, **settings: Any) -> ClientService:
        service = prepare_client(
            self.invitation(name),
            self.sites[name],
            open_source(self.values[name], value=None),
            JoinOptions("value", heartbeat=settings.pop("heartbeat", 1.0), **settings),
            coins=coins,
        )
        service.connect, service.backoff = connect or service.connect, Backoff(longest=0.3)
        return service

    def countersigned(self, record: dict[str, Any], name: str, key: KeyPair | None = None) -> dict[str, Any]:
        """The record with a site's countersignature, by its own ledger and its own key, or another."""
        with self.ledger(name) as ledger:
            return countersign(record, name, key or self.sites[name].key(), self.directory.store_file, ledger)

    def ledger(self, name: str) -> Ledger:
        return Ledger.open(self.sites[name].ledger_file, read_only=True)

    async def run(self, coins: Mapping[str, Coins] | None = None, **settings: Any) -> OpenRun:
        """The whole study, every service a task of this process."""
        run = self.open_run()
        async with self.running_broker():
            services = [self.client(name, coins=(coins or {}).get(name)) for name in self.study.clients]
            ends = await asyncio.wait_for(
                asyncio.gather(self.coordinator(run, **settings).run(), *(one.run() for one in services)), PATIENCE
            )
        if ends != ["finished"] * (1 + len(services)):
            raise RuntimeError(f"the run ended as {ends}")
        return run

    # -- as processes --------------------------------------------------------------------------------------------

    def write_data(self) -> None:
        for name, values in self.values.items():
            np.savetxt(self.sites_folder / name / "data.csv", values, header="x", comments="", fmt="%.6f")

    def start_serve(self, *options: str) -> subprocess.Popen[bytes]:
        return start("serve", str(self.directory.path), "--json-logs", *options, log=self.folder / "serve.log")

    def start_join(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        arguments = ["join", str(self.directory.invitation_file(name)), "--site", str(self.sites[name].path)]
        arguments += ["--source", str(self.sites_folder / name / "data.csv"), "--value", "x", "--yes", "--json-logs"]
        return start(*arguments, *options, log=self.folder / f"{name}.log")


def start(*arguments: str, log: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "privatile", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment,
        )


async def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait for something that other tasks bring about."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def tasks(*work: Awaitable[Any]) -> AsyncIterator[Sequence[asyncio.Future[Any]]]:
    """Run work beside the test, and see that it ends with it."""
    running = [asyncio.ensure_future(one) for one in work]
    try:
        yield running
    finally:
        left = set(running)
        while left:  # before Python 3.12 a wait with a timeout could swallow a cancellation that met its end
            for one in left:
                one.cancel()
            _, left = await asyncio.wait(left, timeout=1.0)
        await asyncio.gather(*running, return_exceptions=True)
