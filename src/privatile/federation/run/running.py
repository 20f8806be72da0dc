"""Putting the parts together: a folder becomes a running coordinator, an invitation a running client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from privatile.client.coins import Coins
from privatile.client.ledger.keys import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.sources.opening import open_source
from privatile.client.sources.source import Source
from privatile.errors import InputError, LedgerError, SiteRefusal, StoreError
from privatile.federation.coordinator.control import Control
from privatile.federation.coordinator.journal import Journal
from privatile.federation.coordinator.service import CoordinatorService
from privatile.federation.monitoring import operations_page
from privatile.federation.setup.broker import EmbeddedBroker
from privatile.federation.setup.certificates import broken_validity, read_certificate
from privatile.federation.setup.directory import Directory
from privatile.federation.setup.files import unwritable
from privatile.federation.setup.invitation import Invitation
from privatile.federation.site.folder import Site
from privatile.federation.site.limits import read_limits
from privatile.federation.site.responder import open_responder
from privatile.federation.site.service import HEARTBEAT, ClientService
from privatile.server.coordinator import Coordinator
from privatile.server.store import RunStore
from privatile.server.writer import claim


@dataclass(frozen=True)
class OpenRun:
    """A run's file, ready to go on."""

    store: RunStore
    journal: Journal
    coordinator: Coordinator


def open_run(directory: Directory) -> OpenRun:
    """Begin the run of a folder's study, or go on with it; a file of another study is refused."""
    study = directory.study()
    path = directory.store_file
    if path.exists():
        store = RunStore.open(path, durable=True)
    else:
        store = RunStore.create(path, study.run, study.spec, durable=True)
    journal = Journal.open(store, study.canonical, study.digest)
    if store.run != study.run or store.spec.digest != study.spec.digest:
        raise StoreError(f"{path} holds another run than the study's. Move it away, or begin a new federation.")
    if store.finished is None:
        claim(store)
    return OpenRun(store, journal, Coordinator(store))


def roster_signers(directory: Directory) -> Callable[[], Mapping[str, str]]:
    """The clients' signing keys, read again when the roster changes."""
    kept: dict[str, str] = {}
    stamp = -1

    def load() -> Mapping[str, str]:
        nonlocal stamp, kept
        now = directory.roster_file.stat().st_mtime_ns
        if now != stamp:
            kept = {name: keys.signer for name, keys in directory.roster().clients.items()}
            stamp = now
        return kept

    return load


@contextlib.contextmanager
def pid_file(path: Path) -> Iterator[None]:
    """Hold a folder for one coordinator: a second one is refused while the first lives."""
    import fcntl

    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"a coordinator is already running for this folder (process {path.read_text().strip() or '?'})."
            ) from None
        try:
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()}\n".encode())
        except OSError as error:
            raise unwritable(path, error) from None
        yield
        path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def running_coordinator(path: Path) -> int | None:
    """The process number of the coordinator that holds a folder, if one lives."""
    import fcntl

    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(path.read_text().strip() or 0) or None
        return None
    except ValueError:
        return None
    finally:
        os.close(handle)


@dataclass(frozen=True)
class ServeOptions:
    """How a coordinator is run."""

    brokers: tuple[str, ...] = ()
    """Addresses of a broker of one's own; empty: the embedded one."""
    ops_host: str = "127.0.0.1"
    ops_port: int | None = None
    exit_when_paused: bool = False
    linger: float = 3.0
    """Seconds the embedded broker stays after the end, so that clients hear of it."""
    replicas: int = 1


def serve_run(directory: Directory, options: ServeOptions, say: Callable[[str], None]) -> str:
    """Run the coordinator of a folder until the study ends or somebody stops it."""
    study, key, settings = directory.study(), directory.key(), directory.settings()
    embedded = not options.brokers
    if embedded:
        wrong = broken_validity(read_certificate(directory.broker_files.certificate), "the broker's certificate")
        if wrong:
            raise InputError(wrong[0])
    with pid_file(directory.pid_file):
        run = open_run(directory)
        broker = None
        if embedded:
            directory.write_configuration()
            broker = EmbeddedBroker(directory.broker_files, settings)
            broker.start()
            how = "adopted" if broker.adopted else "started"
            say(f"broker      {how} {broker.binary} ({broker.version}), {settings.url}, process {broker.process_id}")
        else:
            say(f"broker      {', '.join(options.brokers)}")
        say(f"study       {study.title}, {len(study.clients)} clients, {study.rounds} rounds, hash {study.digest[:16]}")
        say(f"store       {directory.store_file} ({run.coordinator.done} of {run.coordinator.planned} rounds done)")
        service = CoordinatorService(
            study,
            key,
            run.coordinator,
            run.journal,
            urls=options.brokers or (settings.url,),
            authority=directory.authority.read_text(encoding="ascii"),
            signers=roster_signers(directory),
            broker=broker,
            control=Control(directory.path / "control"),
            exit_when_paused=options.exit_when_paused,
            replicas=options.replicas,
        )
        try:
            end = asyncio.run(_serve(service, options, say, linger=options.linger if embedded else 0.0))
        finally:
            if broker is not None:
                broker.stop()
            run.store.close()
    return end


@contextlib.asynccontextmanager
async def _operations(
    service: CoordinatorService | ClientService, options: ServeOptions | JoinOptions, say: Callable[[str], None]
) -> AsyncIterator[None]:
    """The page for operators, where one is wanted."""
    if options.ops_port is None:
        yield
        return
    async with operations_page(options.ops_host, options.ops_port, service.metrics, service.health) as port:
        say(f"operations  http://{options.ops_host}:{port}/metrics and /health")
        yield


async def _serve(service: CoordinatorService, options: ServeOptions, say: Callable[[str], None], linger: float) -> str:
    _on_signals(service.stop)
    async with _operations(service, options, say):
        end = await service.run()
        if end in ("finished", "aborted") and linger:
            await asyncio.sleep(linger)
        return end


def _on_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


LEDGER_SECONDS = 60
"""How long one waits while another study's client writes the ledger: a slow disk passes, and it runs for months."""


@dataclass(frozen=True)
class JoinOptions:
    """How a client is run."""

    value: str
    person: str | None = None
    policy: Path | None = None
    restored: bool = False
    new_people: bool = False
    ops_host: str = "127.0.0.1"
    ops_port: int | None = None
    heartbeat: float = HEARTBEAT


def prepare_client(
    invitation: Invitation,
    site: Site,
    source: Source,
    options: JoinOptions,
    *,
    coins: Coins | None = None,
) -> ClientService:
    """Everything a client checks before it speaks to anybody: policy, ledger, data.

    `coins` are for simulation and tests; no option, file or environment variable leads to them.
    """
    limits = read_limits(options.policy or site.policy_file)
    reasons = limits.refusals(invitation, options.value)
    if reasons:
        raise SiteRefusal("this site's policy refuses the study:\n- " + "\n- ".join(reasons))
    person_key = None if options.person is None else _own_person_key(site)
    ledger = _own_ledger(site)
    responder = open_responder(
        invitation, limits, source, ledger, person_key=person_key, new_people=options.new_people, coins=coins
    )
    return ClientService(
        invitation,
        site.key(),
        limits,
        responder,
        restored=options.restored,
        heartbeat=options.heartbeat,
    )


def _own_ledger(site: Site) -> Ledger:
    """The site's ledger, made now where there is none: clients of two studies may start together, and share it."""
    ledger = Ledger.open(site.ledger_file)
    try:
        with ledger.transaction():
            pass
    except LedgerError:
        if not site.ledger_file.exists():
            raise
        ledger = Ledger.open(site.ledger_file)  # the other was faster
    ledger.execute(f"PRAGMA busy_timeout = {LEDGER_SECONDS * 1000}")
    return ledger


def _own_person_key(site: Site) -> PersonKey:
    """The key by which the site's people are known, in the same way."""
    path = site.path / "person.key"
    key = PersonKey.open(path)
    try:
        key.save()
    except LedgerError:
        if not path.exists():
            raise
        key = PersonKey.open(path)
    return key


def join_run(invitation: Invitation, site: Site, source: str, options: JoinOptions, say: Callable[[str], None]) -> str:
    """Run a client until the study ends or somebody stops it."""
    rows = open_source(source, value=options.value, person=options.person)

    async def serve() -> str:
        service = prepare_client(invitation, site, rows, options)
        _on_signals(service.stop)
        async with _operations(service, options, say):
            return await service.run()

    return asyncio.run(serve())


def unit_text(client: str, arguments: Sequence[str]) -> str:
    """A systemd unit that runs this client for months: restarts after a crash, not after a refusal."""

    def quote(text: str) -> str:
        plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
        return f'"{plain}"'

    command = " ".join(quote(text) for text in (sys.executable, "-m", "privatile", *arguments))
    return f"""[Unit]
Description=privatile client {client}
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=30
# 2: something is wrong with the input or the ledger; 5: the site's policy refuses. Neither heals by itself.
RestartPreventExitStatus=2 5
KillSignal=SIGTERM
TimeoutStopSec=60
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=full
UMask=0077

[Install]
WantedBy=multi-user.target
"""
