"""A peer: the responder of one organization and its replica of the run, in one process, over the common log.

    log (consumer) -> replica.apply -> what to do here (`conduct`) -> log (published until seen)

Whatever is lost on the way is read or published again, so every failure of a server, of the network or of this process
has the same remedy: connect, read on after the last entry that was kept, act. A log that does not hold that entry is
not this log: nothing is signed, and people are told.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

import nats.errors

from privatile.errors import BrokerError, LedgerError
from privatile.federation.connection import Backoff, connected
from privatile.federation.monitoring import Metrics, facts
from privatile.federation.setup.broker import EmbeddedBroker
from privatile.federation.site.limits import SiteLimits
from privatile.federation.site.responder import SiteResponder
from privatile.records.keys import KeyPair, PublicKeys
from privatile_leaderless.chain import payload_digest
from privatile_leaderless.conduct import Conduct
from privatile_leaderless.entries import LevelAsk
from privatile_leaderless.happenings import Happening
from privatile_leaderless.log_port import LogPort
from privatile_leaderless.log_requests import LogLost
from privatile_leaderless.notes import PeerNotes
from privatile_leaderless.peer_file import LogEntry, PeerLog
from privatile_leaderless.replica import Replica
from privatile_leaderless.roster import PeerRoster
from privatile_leaderless.votes import VoteBox

log = logging.getLogger("privatile.leaderless")

End = Literal["finished", "stopped", "aborted"]

TICK = 1.0
"""Seconds between two looks at votes, at the own server and at who is awaited; also until what was read is kept."""

MOST_FAILURES = 5
"""Attempts through a server that replies but does not give the log, before the next one is tried."""

LONG_PAUSE = 60.0
"""Seconds until the log is read again from its beginning where no round was committed since the last time."""

GOODBYE = 3.0
"""Seconds that a server stays after everybody has signed the end, so that all can read it."""


ADVICE = {
    "expired": "Its organization issues another by starting its peer again; nothing is lost, this peer keeps trying.",
    "other name": "The name is part of the roster.",
    "unknown key": "Its server has another roster (`privatile peer admit` shows its fingerprint), or does not know a "
    "new key yet.",
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
    on_key: Callable[[Mapping[str, PublicKeys]], None] = lambda keys: None
    """Called with all keys when one was replaced: the server must know the new one."""
    backoff: Backoff = field(default_factory=lambda: Backoff(longest=2.0))

    def __post_init__(self) -> None:
        self._notes = PeerNotes(self.replica.study, self.replica, self.peer_log.journal)
        self._conduct = Conduct(
            self.client,
            self.key,
            self.replica,
            self.peer_log,
            self.responder,
            self.limits,
            self._notes,
            self.votes,
            self._claim,
            restored=self.restored,
        )
        self._unkept: list[LogEntry] = []
        """Entries that were applied and are not in the file yet."""
        self._happenings: list[Happening] = []
        """What they have brought about."""
        self._last = self.peer_log.last
        self._signed_off: set[str] = set()
        self._port: LogPort | None = None
        self._read_again_at: tuple[int, float] | None = None
        """Committed rounds, and when the log was last read again from its beginning."""
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
                elif not self._reached or failures >= MOST_FAILURES:
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
                for one in self._apply(entry):
                    await self._conduct.heard(port, one)
            now = loop.time()
            if self._read_again(now):
                raise BrokerError("the log is read again from its first entry.")
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

    def _apply(self, entry: LogEntry) -> tuple[Happening, ...]:
        if self.replica.ended:
            self._signed_off.add(entry.sender)
        keys = dict(self.replica.keys)
        happenings = self.replica.apply(entry.sender, entry.payload)
        self._conduct.seen(entry)
        self._unkept.append(entry)
        self._happenings += self._notes.happened(entry.sender, happenings)
        self._last = (entry.position, payload_digest(entry.payload))
        self._tell_server(keys)
        return happenings

    def _tell_server(self, before: Mapping[str, PublicKeys]) -> None:
        """Let the own server know keys that were replaced: by votes, by rounds that were relayed, by going back."""
        if self.replica.keys != before:
            self._keep()
            self.on_key(self.replica.keys)

    def _read_again(self, now: float) -> bool:
        """Begin with the log's first entry again where this peer was led astray, and again where it still is later on.

        Not over and over at the same place: `LONG_PAUSE` lies in between.
        """
        if not self.replica.astray:
            return False
        if self._read_again_at is not None and self._read_again_at > (self.replica.committed, now - LONG_PAUSE):
            return False
        self._keep()
        keys = dict(self.replica.keys)
        self.replica = self.peer_log.read_again(self.roster.keys)
        self._read_again_at = (self.replica.committed, now)
        self._conduct.follow(self.replica)
        self._notes.follow(self.replica)
        self._last = None
        self._tell_server(keys)
        return True

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
