"""A folder becomes a running coordinator.

What a long-running process of a federation needs around it: signals that stop them, and the page for operators.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from privatile.core.file_systems import require_volume
from privatile.core.text import counted
from privatile.errors import InputError
from privatile.federation.connection import Connection, NatsCoordinator, connecting
from privatile.federation.coordinator.core import CoordinatorCore
from privatile.federation.coordinator.journal import Journal
from privatile.federation.coordinator.service import Control, CoordinatorService
from privatile.federation.monitoring import Metrics, operations_page
from privatile.federation.setup.broker import EmbeddedBroker
from privatile.federation.setup.folder import Directory
from privatile.run.certificates import broken_validity, read_certificate
from privatile.run.coordinator import Coordinator
from privatile.run.locks import begin_or_continue, lock_folder
from privatile.run.run_file import RunStore

Say = Callable[[str], None]
"""Shows a line to the operator."""


class Hosted(Protocol):
    """A coordinator or a client."""

    @property
    def metrics(self) -> Metrics:
        """What it measures."""

    def stop(self) -> None:
        """Keep what is done and return."""

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether all is well, and how far it is."""


@contextlib.asynccontextmanager
async def hosted(
    service: Hosted,
    ops_host: str,
    ops_port: int | None,
    ops_names: Collection[str],
    say: Say,
) -> AsyncIterator[None]:
    """Let SIGTERM and SIGINT stop the service, and serve its operations page where a port is given."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stop)
    if ops_port is None:
        yield
        return
    async with operations_page(ops_host, ops_port, service.metrics, service.health, names=ops_names) as port:
        say(f"operations  http://{ops_host}:{port}/metrics and /health")
        yield


@dataclass(frozen=True)
class OpenRun:
    """A run's file, ready to continue."""

    store: RunStore
    journal: Journal
    coordinator: Coordinator


def open_run(directory: Directory) -> OpenRun:
    """Begin the run of a folder's study, or continue it; a file of another study is refused."""
    study = directory.study()
    store = begin_or_continue(directory.store_file, study.run, study.spec)
    return OpenRun(store, Journal.open(store, study.canonical, study.digest), Coordinator(store))


def roster_signers(directory: Directory) -> Callable[[], Mapping[str, str]]:
    """The clients' signing keys, read again when the roster changes."""
    signers: dict[str, str] = {}
    changed_at = -1

    def load() -> Mapping[str, str]:
        nonlocal changed_at, signers
        now = directory.roster_file.stat().st_mtime_ns
        if now != changed_at:
            signers = {name: keys.signer for name, keys in directory.roster().clients.items()}
            changed_at = now
        return signers

    return load


@dataclass(frozen=True)
class ServeOptions:
    """How a coordinator is run."""

    brokers: tuple[str, ...] = ()
    """Addresses of the organizer's own broker; empty: the embedded one."""
    ops_host: str = "127.0.0.1"
    ops_port: int | None = None
    ops_names: tuple[str, ...] = ()
    exit_when_paused: bool = False
    linger: float = 3.0
    """Seconds that the embedded broker stays after the end, so that clients hear of it."""
    replicas: int = 1


def coordinator_service(
    directory: Directory, run: OpenRun, options: ServeOptions, broker: EmbeddedBroker | None = None
) -> CoordinatorService:
    """What drives the run of a folder, over its own broker or the given addresses."""
    study, key, signers = directory.study(), directory.key(), roster_signers(directory)
    urls = options.brokers or (directory.settings().url,)
    authority = directory.authority.read_text(encoding="ascii")

    def transport(connection: Connection) -> NatsCoordinator:
        return NatsCoordinator(connection, study.identity, options.replicas)

    service = CoordinatorService(
        CoordinatorCore(study, key, run.coordinator, run.journal, signers()),
        connecting("coordinator", urls, key, authority, transport),
        signers=signers,
        broker=", ".join(urls),
        control=Control(directory.path / "control"),
        exit_when_paused=options.exit_when_paused,
    )
    if broker is not None:
        service.repair = broker.repair
    return service


def serve_run(directory: Directory, options: ServeOptions, say: Say) -> str:
    """Run the coordinator of a folder until the study ends or somebody stops it."""
    study, settings = directory.study(), directory.settings()
    require_volume(directory.store_file, "the run's file")
    embedded = not options.brokers
    if embedded:
        wrong = broken_validity(read_certificate(directory.broker_files.certificate), "the broker's certificate")
        if wrong:
            raise InputError(wrong[0])
    with lock_folder(directory.pid_file), ExitStack() as stack:
        run = open_run(directory)
        stack.callback(run.store.close)
        broker = None
        if embedded:
            directory.write_configuration()
            broker = EmbeddedBroker(directory.broker_files, settings)
            broker.start()
            stack.callback(broker.stop)
            how = "adopted" if broker.adopted else "started"
            say(f"broker      {how} {broker.binary} ({broker.version}), {settings.url}, process {broker.process_id}")
        else:
            say(f"broker      {', '.join(options.brokers)}")
        rounds = "open" if study.is_open else counted(study.rounds, "round")
        say(f"study       {study.title}, {counted(len(study.clients), 'client')}, {rounds}, hash {study.digest[:16]}")
        finished = run.coordinator.done
        done = counted(finished, "round") if study.is_open else f"{finished:,} of {rounds}"
        say(f"store       {directory.store_file} ({done} done)")
        service = coordinator_service(directory, run, options, broker)

        async def serve() -> str:
            async with hosted(service, options.ops_host, options.ops_port, options.ops_names, say):
                end = await service.run()
                if embedded and end in ("finished", "aborted"):
                    await asyncio.sleep(options.linger)
                return end

        return asyncio.run(serve())
