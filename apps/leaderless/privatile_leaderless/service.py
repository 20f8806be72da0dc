"""A peer: the responder of one organization and its replica of the run, in one process, over the common log.

    log (consumer) -> replica.apply -> what to do here (`conduct`) -> log (published until seen)

Whatever is lost on the way is read or published again, so every failure of a server, of the network or of this process
has the same remedy: connect, read on after the last entry that was kept, act. A log that does not hold that entry is
not this log: nothing is signed, and people are told.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal

import nats.errors

from privatile.client.randomizer import Coins
from privatile.client.sources.source import Source
from privatile.core.file_systems import require_volume
from privatile.core.text import counted
from privatile.errors import BrokerError, InputError, LedgerError
from privatile.federation.connection import Backoff, connected
from privatile.federation.monitoring import Metrics, facts
from privatile.federation.operations.join import JoinOptions, prepare_responder
from privatile.federation.operations.serve import Say, hosted
from privatile.federation.setup.broker import EmbeddedBroker
from privatile.federation.setup.invitation import check_url
from privatile.federation.site.folder import Site
from privatile.federation.site.limits import SiteLimits
from privatile.federation.site.responder import SiteResponder
from privatile.records.keys import KeyPair
from privatile.run.certificates import ends_soon, issue_broker, read_certificate
from privatile.run.locks import lock_folder
from privatile.run.run_file import RunStore
from privatile.run.state import is_aborted
from privatile.run.tables import running_process
from privatile_leaderless import quorums
from privatile_leaderless.chain import payload_digest
from privatile_leaderless.conduct import PeerProtocol, VoteBox
from privatile_leaderless.entries import LevelAsk
from privatile_leaderless.folder import PeerFolder
from privatile_leaderless.log import LogLost, LogPort
from privatile_leaderless.notes import PeerNotes
from privatile_leaderless.peer_file import LogEntry, PeerLog
from privatile_leaderless.replica import Replica
from privatile_leaderless.roster import PeerInvitation, PeerRoster
from privatile_leaderless.standing import LogEffect

log = logging.getLogger("privatile.leaderless")

End = Literal["finished", "stopped", "aborted"]

TICK = 1.0
"""Seconds between two looks at votes, at the own server and at who is awaited; also until what was read is kept."""

MAX_FAILURES = 5
"""Attempts through a server that replies but does not give the log, before the next one is tried."""

GOODBYE = 3.0
"""Seconds that a server stays after everybody has signed the end, so that all can read it."""


ADVICE = {
    "expired": "Its organization issues another by starting its peer again; nothing is lost, this peer keeps trying.",
    "other name": "The name is part of the roster.",
    "unknown key": "Its server has another roster (`privatile peer admit` shows its fingerprint).",
}
"""What to do about a failed connection, by the kind of failure."""


@dataclass(eq=False, repr=False)
class PeerService:
    """One organization's part in one run."""

    client: str
    key: KeyPair
    roster: PeerRoster
    peer_log: PeerLog
    replica: Replica
    """What the file holds (`PeerLog.replica`)."""
    responder: SiteResponder
    limits: SiteLimits
    votes: VoteBox
    _: KW_ONLY
    urls: Sequence[str]
    """The servers, the own one first."""
    broker: EmbeddedBroker | None = None
    restored: bool = False
    linger: float = 60.0
    """Seconds that the server stays after the end for peers that have not signed it yet."""
    backoff: Backoff = field(default_factory=lambda: Backoff(longest=2.0))

    def __post_init__(self) -> None:
        self._notes = PeerNotes(self.replica.study, self.replica, self.peer_log.journal)
        self._conduct = PeerProtocol(
            self.client,
            self.key,
            self.replica,
            self.peer_log,
            self.responder,
            self.limits,
            self._notes,
            self.votes,
            self._claim,
            self.restored,
        )
        self._unkept: list[LogEntry] = []
        """Entries that were applied and are not in the file yet."""
        self._happenings: list[LogEffect] = []
        """What they have brought about."""
        self._last = self.peer_log.last
        self._signed_off: set[str] = set()
        self._port: LogPort | None = None
        self._reached = self._was_connected = False
        """Whether the last attempt has reached a server, and whether that has given the log."""
        self._next_tick = self._leaves = 0.0
        self._stop = asyncio.Event()
        self._end: End | None = None

    @property
    def metrics(self) -> Metrics:
        """For the operations page."""
        return self._notes.metrics

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the run makes progress, and how far it is."""
        return self._notes.health()

    def stop(self) -> None:
        """Keep what was read and return."""
        self._stop.set()
        self._interrupt()

    def _interrupt(self) -> None:
        if self._port is not None:
            self._port.interrupt()

    @property
    def _over(self) -> bool:
        return self._end is not None or self._stop.is_set()

    async def run(self) -> End:
        """Take part until the run ends or somebody stops this peer; refusals of limits or ledger are raised."""
        if self.peer_log.journal.stopped():
            self._notes.event("started", "this peer continues the run")
        guard = asyncio.create_task(self._guard_server())
        loop, place, failures = asyncio.get_running_loop(), 0, 0
        try:
            while not self._over:
                failures, began = failures + 1, loop.time()
                try:
                    await self._connect(self.urls[place % len(self.urls)])
                    failures = 0
                except LogLost as error:
                    self._notes.begins("log lost", str(error))
                except (BrokerError, nats.errors.Error, TimeoutError) as error:
                    text = f"{str(error) or type(error).__name__} This peer keeps trying."
                    if self.replica.committed and not self.replica.finished:
                        text += " If the others have finished and gone: `privatile peer catch-up DIR --from RUN.DB`."
                    self._notes.begins("no broker", text)
                if self._was_connected:
                    place = failures = 0
                elif not self._reached or failures >= MAX_FAILURES:
                    place, failures = place + 1, 0
                # Every server is tried once before this peer waits, and at once after a connection that has worked.
                waits = self._reached or place % len(self.urls) == 0
                worked = self._was_connected and loop.time() - began > TICK
                if worked:
                    self.backoff.reset()
                self._keep()
                self._leave_when_finished(loop.time())
                if not self._over and waits:
                    self.metrics.add("reconnects")
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._stop.wait(), 0.0 if worked else self.backoff.next())
            if self._end is not None:
                self._release()
        finally:
            guard.cancel()
            self._conduct.close()
        if self._end is None:
            self._notes.event("stopped", "this peer was stopped; `privatile peer run` continues")
        return self._end or "stopped"

    async def _connect(self, url: str) -> None:
        """Read and act through one server, until the connection is lost or the run is over."""
        self._reached = self._was_connected = False
        try:
            async with connected(
                self.client,
                [url],
                self.key,
                self.roster.authority_of(url),
                self._interrupt,
                watch_seconds=0.1,
                advice=ADVICE,
            ) as connection:
                self._reached = True
                identity, epoch = self.replica.study.identity, self.peer_log.epoch
                replicas, makes = self.roster.replicas, self.client in self.roster.servers
                port = LogPort(connection, identity, epoch, self.client, replicas=replicas, makes=makes)
                self._port = port
                await port.open(*(self._last or (0, "")))
                self.metrics.set("connected", 1)
                log.info("connected", extra=facts(server=url))
                await self._session(port)
        finally:
            if self._port is not None:
                self._port.close()
            self._port = None
            self.metrics.set("connected", 0)

    async def _guard_server(self) -> None:
        """Start the own server again where it is gone."""
        while self.broker is not None:
            await asyncio.sleep(TICK)
            if self.broker.process_id is None:
                log.warning("the server is gone; starting it again")
                try:
                    await asyncio.to_thread(self.broker.start)
                except BrokerError as error:
                    log.error("the server does not start", extra=facts(reason=str(error)))

    # -- the log -----------------------------------------------------------------------------------------------------

    async def _session(self, port: LogPort) -> None:
        loop = asyncio.get_running_loop()
        self._conduct.connected()
        until = 0.0
        back = "the log holds what this peer has applied"
        if self._last is None:  # a new one after a recovery: nothing of it was applied before
            back = "the log is there; this peer reads it from its first entry"
        while not self._over:
            for entry in await port.entries(until):
                self._apply(entry)
            now = loop.time()
            if port.verified and not self._was_connected:
                self._was_connected = True
                self._notes.ends("no broker", "broker back", "the log can be read again")
                self._notes.ends("log lost", "log back", back)
            if self.replica.aborted:
                self._end = "aborted"
            elif port.behind or not port.verified:  # wait: a time in the past would not let the entries arrive
                until = now + TICK
            else:
                until = min(await self._conduct.act(port, now), now + TICK)
            if now >= self._next_tick:
                self._next_tick = now + TICK
                self._tick(port)
            self._leave_when_finished(now)

    def _leave_when_finished(self, now: float) -> None:
        """End when the others have had time to read the end. Others may leave first, and the majority with them."""
        if self.replica.finished:
            self._leaves = self._leaves or now + self.linger
            if self._signed_off >= set(self.replica.study.clients):
                self._leaves = min(self._leaves, now + GOODBYE)
            if now >= self._leaves:
                self._end = "finished"

    def _apply(self, entry: LogEntry) -> None:
        if self.replica.ended:
            self._signed_off.add(entry.sender)
        happenings = self.replica.apply(entry.sender, entry.payload)
        self._conduct.seen(entry)
        self._unkept.append(entry)
        self._happenings += self._notes.happened(entry.sender, happenings)
        self._last = (entry.position, payload_digest(entry.payload))

    def _tick(self, port: LogPort) -> None:
        self._keep()
        self._notes.tick(self._conduct.opened)
        if self._last is not None:
            self.metrics.set("position", self._last[0])

    def _keep(self) -> None:
        """Write what was applied into this peer's file."""
        if self._unkept:
            self.peer_log.save(self._unkept, self.replica, self._happenings)
            self._unkept, self._happenings = [], []

    def _claim(self, asks: tuple[LevelAsk, ...]) -> bool:
        """Whether the chain value here may be signed; what was read so far is kept in the same transaction."""
        replica = self.replica
        allowed = self.peer_log.claim(replica.claims, asks, self._unkept, replica, self._happenings)
        self._unkept, self._happenings = [], []
        return allowed

    def _release(self) -> None:
        try:
            self.responder.account.release()
        except LedgerError as error:
            # The run is over all the same; `privatile ledger release` does it later.
            log.warning("records stay reserved", extra=facts(client=self.client, reason=str(error)))


PORT_IN_USE = (
    "Stop that program, or go on with the others' servers: --broker URL. The port is part of the roster: for another "
    "one enroll into a new folder (the keys in --site stay), before the run has begun, and let all admit the new file."
)
"""What the operator of a peer can do about a port that is taken."""

MAX_LOG = 1_000_000
"""The highest number of a log: one that was mistyped cannot be taken back."""


@dataclass(frozen=True)
class PeerOptions:
    """How a peer is run."""

    brokers: tuple[str, ...] = ()
    """Servers of others to connect to; empty: the own one, else those of the roster."""
    linger: float = 60.0


def open_log(folder: PeerFolder) -> PeerLog:
    """A peer's own file: its entries of the log, what it has signed, and the run's committed rounds."""
    require_volume(folder.store_file, "the run's file")
    return PeerLog.open(folder.store_file, folder.study(), folder.peers().digest)


def run_peer(folder: PeerFolder, source: object, join: JoinOptions, options: PeerOptions, say: Say) -> str:
    """Run a peer until the study ends or somebody stops it."""
    rows = join.open(source)
    with lock_folder(folder.pid_file, "peer"), ExitStack() as stack:
        peer_log = open_log(folder)
        stack.callback(peer_log.close)

        async def serve() -> str:
            # The responder first: nothing is started for a peer whose limits or ledger refuse the study.
            service = prepare_peer(folder, rows, join, options, peer_log)
            if rows.how_read:
                say(rows.how_read)
            if not options.brokers and folder.server() is not None:
                service.broker = start_server(folder, say)
                stack.callback(service.broker.stop)
            study = service.replica.study
            say(f"study       {study.title}, {len(study.clients)} peers, hash {study.digest[:16]}")
            say(f"roster      {service.roster.fingerprint}")
            say(f"store       {folder.store_file} ({service.replica.committed} of {study.rounds} rounds committed)")
            if service.replica.finished:
                say(f"finished    this peer stays {options.linger:g} s so that others can read the end")
            async with hosted(service, join.ops_host, join.ops_port, join.ops_names, say):
                return await service.run()

        return asyncio.run(serve())


def prepare_peer(
    folder: PeerFolder,
    source: Source,
    join: JoinOptions,
    options: PeerOptions,
    peer_log: PeerLog,
    *,
    coins: Coins | None = None,
) -> PeerService:
    """Check limits, ledger, data and roster, all before the peer connects to anything; `coins` are for tests."""
    study, roster = folder.study(), folder.peers()
    invited = PeerInvitation(folder.client, study, roster)
    limits, responder = prepare_responder(invited, Site(folder.site, folder.client), source, join, coins=coins)
    own = folder.server()
    others = [server.url() for name, server in roster.servers.items() if name != folder.client]
    for url in options.brokers:
        check_url(url)
    urls = options.brokers or ([own.url(), *others] if own is not None else others)
    return PeerService(
        folder.client,
        folder.key(),
        roster,
        peer_log,
        peer_log.replica(roster.keys),
        responder,
        limits,
        VoteBox(folder.vote_file),
        urls=urls,
        restored=join.restored,
        linger=options.linger,
    )


def start_server(folder: PeerFolder, say: Say) -> EmbeddedBroker:
    """Start the organization's own server of the cluster, with a new certificate where the old one ends soon."""
    files, settings = folder.broker_files, folder.settings()
    if ends_soon(read_certificate(files.certificate), "the server's certificate"):
        issue_broker(folder.authority, folder.authority_key, files.certificate, files.key, settings.hosts, cluster=True)
        say("certificate issued again: it would have ended within a month")
    before = files.configuration.read_bytes() if files.configuration.exists() else b""
    folder.write_configuration()
    servers = folder.peers().servers
    cluster_port = servers[folder.client].cluster_port if len(servers) > 1 else None
    broker = EmbeddedBroker(files, settings, PORT_IN_USE, cluster_port)
    broker.start(unchanged=before == files.configuration.read_bytes())
    how = "adopted" if broker.adopted else "started"
    say(f"server      {how} {broker.binary} ({broker.version}), {settings.url}, process {broker.process_id}")
    return broker


def recover(folder: PeerFolder, epoch: int | None = None) -> int:
    """After the loss of the log: begin a new one with the next start of this peer; gives its number."""
    with lock_folder(folder.pid_file, "peer"):
        peer_log = open_log(folder)
        try:
            number = peer_log.epoch + 1 if epoch is None else epoch
            if not peer_log.epoch < number <= MAX_LOG:
                raise InputError(
                    f"this peer reads log {peer_log.epoch}; a new one has a higher number, of at most {MAX_LOG:,}; "
                    f"got {number:,}."
                )
            peer_log.begin_epoch(number)
            return number
        finally:
            peer_log.close()


def catch_up(folder: PeerFolder, other: Path) -> str:
    """Take over the rounds of another peer's file, each checked as if it came from the log; says what was new."""
    with lock_folder(folder.pid_file, "peer"):
        peer_log = open_log(folder)
        try:
            replica = peer_log.replica(folder.peers().keys)
            before, had_finished = replica.committed, replica.finished
            with RunStore.frozen(other) as store:
                peer_log.catch_up(replica, store)
        finally:
            peer_log.close()
    new = counted(replica.committed - before, "round")
    end = " and the end of the run" if replica.finished and not had_finished else ""
    state = "finished" if replica.finished else "not finished"
    return f"New here: {new}{end}. {folder.client} has {counted(replica.committed, 'round')}; the run is {state} here."


def check_goes_on(folder: PeerFolder) -> None:
    """Refuse a vote about a run that is over."""
    if folder.store_file.exists():
        with RunStore.open(folder.store_file, read_only=True) as store:
            over = "finished" if store.finished is not None else "aborted" if is_aborted(store) else ""
        if over:
            raise InputError(f"{folder.path}: the run is {over}: there is nothing to decide any more.")


def vote_to_abort(folder: PeerFolder) -> str:
    """Leave a vote to abort for this peer to publish; says when."""
    check_goes_on(folder)
    VoteBox(folder.vote_file).put()
    study, running = folder.study(), running_process(folder.pid_file) is not None
    when = "The running peer publishes it" if running else "The next `privatile peer run` publishes it"
    return f"{when}. It holds when {quorums.signing(study)} of {len(study.clients)} organizations have voted so."
