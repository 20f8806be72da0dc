"""The log on the broker: publish until seen, read by a consumer from the last applied entry.

An entry is in the log when this peer has read it there, not when the broker says so. What was not seen is published
again, byte for byte; an entry that comes twice is no second entry. Core subscriptions would deliver before the replicas
have committed, so nothing is read except through a consumer of the stream or, until one gives a sign of life, entry by
entry from the stream's leader, which stores what they have committed. A consumer needs the leader of all servers, and
where that one is gone an election that the stream need not wait for.
"""

import asyncio
import json
import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec
import nats.errors

from privatile.core.decoding import decode_json
from privatile.core.text import printable
from privatile.errors import BrokerError
from privatile.federation import wire
from privatile.federation.connection import Connection, Msg
from privatile.federation.monitoring import facts
from privatile.federation.wire import NAME
from privatile_leaderless.chain import payload_digest
from privatile_leaderless.entries import MAX_ENTRY_BYTES
from privatile_leaderless.folder import log_request, log_stream, log_subject
from privatile_leaderless.peer_file import LogEntry

RETRY, MAX_RETRY, LATE = 0.3, 2.4, 4.0
"""Seconds until an entry that was not seen is published again, doubling each time up to the second number, and how many
times the usual delay it must be late at least: on a slow network or machine it is given more time."""

STORED = 5.0
"""Seconds until that, where the servers have said that they hold it."""

REFUSED = 0.1
"""Seconds until that, where the log had no leader to take it."""

DELAYS = 9
"""Own entries whose median time until they are read back is the usual delay: a server that is lost leaves it alone."""


@dataclass
class _Unseen:
    payload: bytes
    since: float
    at: float
    """When to publish it again."""
    wait: float = RETRY
    """The last wait, where nothing is known of the usual delay."""


class Outbox:
    """What is unseen, by digest.

    >>> box = Outbox()
    >>> digest = box.add(b"an entry", now=0.0)
    >>> box.due(0.2), box.due(0.3), box.due(0.4)
    ([], [b'an entry'], [])
    >>> box.stored(digest, now=0.5)
    >>> box.due(5.0), box.seen(b"an entry", now=5.1), box.due(100.0), box.delay, box.retry
    ([], None, [], 5.1, 20.4)
    """

    def __init__(self) -> None:
        self._unseen: dict[str, _Unseen] = {}
        self._delays: deque[float] = deque(maxlen=DELAYS)
        self.delay = 0.0
        """How long an entry usually takes until it is read back."""

    def __contains__(self, payload: bytes) -> bool:
        return payload_digest(payload) in self._unseen

    @property
    def retry(self) -> float:
        """Seconds until an entry is published again for the first time."""
        return max(RETRY, LATE * self.delay)

    def add(self, payload: bytes, now: float) -> str:
        """An entry is published for the first time; gives its digest."""
        digest = payload_digest(payload)
        self._unseen[digest] = _Unseen(payload, now, now + self.retry)
        return digest

    def seen(self, payload: bytes, now: float) -> None:
        """An entry was read in the log."""
        found = self._unseen.pop(payload_digest(payload), None)
        if found is not None:
            self._delays.append(now - found.since)
            self.delay = median(self._delays)

    def due(self, now: float) -> list[bytes]:
        """What to publish again now."""
        found = [one for one in self._unseen.values() if now >= one.at]
        for one in found:
            one.wait = min(2.0 * one.wait, MAX_RETRY)
            one.at = now + max(one.wait, self.retry)
        return [one.payload for one in found]

    def next_at(self, latest: float) -> float:
        """When there is something to publish again, at the latest then."""
        return min((one.at for one in self._unseen.values()), default=latest)

    def stored(self, digest: str, now: float) -> None:
        """The servers say that they hold this entry."""
        if digest in self._unseen:
            self._unseen[digest].at = max(self._unseen[digest].at, now + STORED)

    def refused(self, digest: str, now: float) -> None:
        """The servers had no leader to take this entry."""
        if digest in self._unseen:
            self._unseen[digest].at = min(self._unseen[digest].at, now + REFUSED)


REQUEST, SLOWER, MAX_REQUEST, PATIENCE = 0.2, 1.5, 0.5, 15.0
"""Seconds until a request is made again, by which factor that grows and how far, and until the servers are said not to
reply: an election after the loss of a server takes 4 to 10."""

BUSY = 0.1
"""Seconds until a request is made again for which the servers had no leader."""

SECOND = 1_000_000_000

UNUSED = 30 * SECOND
"""Nanoseconds after which a consumer ends that nobody uses; the log takes none that would live longer without."""

RECOVER = (
    "If it does not come back, every organization stops its peer, runs `privatile peer recover DIR` and starts it "
    "again."
)


class LogLost(BrokerError):
    """The stream is gone, shorter than what was applied, or another one: people decide (`privatile peer recover`)."""


class Refused(msgspec.Struct, frozen=True):
    """Why the servers do not do what they were asked for."""

    code: int = 0
    description: str = "no reason"

    @property
    def text(self) -> str:
        """The reason as it may be shown: short, without terminal escapes."""
        return printable(self.description[:200])


class StreamState(msgspec.Struct, frozen=True):
    """How far the stream has come."""

    last_seq: int = 0


class StoredMessage(msgspec.Struct, frozen=True):
    """One message of the stream."""

    seq: int
    subject: str
    data: bytes = b""


class Reply(msgspec.Struct, frozen=True):
    """What the servers reply; each request uses some of it."""

    error: Refused | None = None
    config: dict[str, Any] = {}
    state: StreamState = StreamState()
    name: str = ""
    num_pending: int = 0
    message: StoredMessage | None = None


_REPLY = msgspec.json.Decoder(Reply)


class LogRequests:
    """Requests about one epoch's log on one connection."""

    def __init__(self, connection: Connection, identity: str, epoch: int, *, replicas: int, makes: bool) -> None:
        """`makes`: whether this peer may make the log (`cluster_configuration.MAKING`)."""
        self._nc, self._lost = connection.nc, connection.lost
        self.stream = log_stream(identity, epoch)
        self._subjects = log_subject(identity, epoch, "*")
        self._makes = makes
        self._settings = {
            "name": self.stream,
            "subjects": [self._subjects],
            "retention": "limits",
            "storage": "file",
            "num_replicas": replicas,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msgs_per_subject": -1,
            "max_msg_size": MAX_ENTRY_BYTES,
            "discard": "new",
            "deny_delete": True,
            "deny_purge": True,
            # A log has room for so many consumers at once: those that nobody uses any more end.
            "consumer_limits": {"inactive_threshold": UNUSED},
        }

    async def check(self, position: int) -> None:
        """Refuse a log without the entry that was applied at this position; make one where none was applied."""
        reply = await self._ask(f"STREAM.INFO.{self.stream}")
        if reply.error and reply.error.code == 404:
            if position:
                raise LogLost(f"the log is gone: the servers have no stream of it. This peer signs nothing. {RECOVER}")
            if not self._makes:
                raise BrokerError("there is no log yet: an organization that runs a server makes it when it starts.")
            reply = await self._ask(f"STREAM.CREATE.{self.stream}", lambda: self._settings)
        if reply.error:
            raise BrokerError(f"the servers do not give the log: {reply.error.text}.")
        other = [name for name, value in self._settings.items() if reply.config.get(name) != value]
        if other:
            raise LogLost(
                f"the log was made with other settings ({', '.join(other)}): a stream that may lose entries is no log. "
                f"Ask who has made it. {RECOVER}"
            )
        if reply.state.last_seq < position:
            raise LogLost(
                f"the log has {reply.state.last_seq:,} entries, and this peer has applied {position:,}: it was "
                f"lost, or an older copy was put back. This peer signs nothing. {RECOVER}"
            )

    async def consumer(self, peer: str, position: int) -> Reply:
        """A new consumer that begins at this position, or why there is none."""
        config = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": position,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": UNUSED,
            "num_replicas": 1,
            "mem_storage": True,
        }

        def body() -> dict[str, Any]:
            # A name that nobody else can know, and another one for every request: the servers may have given the last
            # one to a server that is gone, and would go on waiting for it. Consumers that nobody uses end.
            return {"stream_name": self.stream, "config": {"name": f"{peer}_{secrets.token_hex(8)}", **config}}

        return await self._ask(f"CONSUMER.CREATE.{self.stream}", body)

    async def entry(self, position: int) -> LogEntry | None:
        """The entry at this position; None where there is none (yet)."""
        found = (await self._ask(f"STREAM.MSG.GET.{self.stream}", lambda: {"seq": position})).message
        return None if found is None else self.read(found.seq, found.subject, found.data)

    def read(self, position: int, subject: str, payload: bytes) -> LogEntry:
        """An entry that the servers give. Raises `LogLost` where the log's own settings keep such a one out."""
        sender = subject.removeprefix(self._subjects[:-1])
        if not NAME.fullmatch(sender) or len(payload) > MAX_ENTRY_BYTES:
            raise LogLost(
                f"entry {position:,} of the log has another subject or more than {MAX_ENTRY_BYTES:,} bytes, which no "
                f"peer can write: whoever runs a server has put it there. This peer signs nothing. {RECOVER}"
            )
        return LogEntry(position, sender, payload)

    async def _ask(self, verb: str, body: Callable[[], dict[str, Any]] = dict) -> Reply:
        """The reply to a request, which is made again and again until there is one: the first that comes counts.

        It ends with the connection, too: a server that is being stopped takes requests to the last.
        """
        loop = asyncio.get_running_loop()
        until, wait = loop.time() + PATIENCE, REQUEST
        lost: asyncio.Future[Any] = asyncio.ensure_future(self._lost.wait())
        asked: set[asyncio.Future[Any]] = set()
        try:
            while not self._lost.is_set() and loop.time() < until:
                payload = json.dumps(body()).encode()
                asked.add(asyncio.ensure_future(self._nc.request(log_request(verb), payload, timeout=PATIENCE)))
                await asyncio.wait({*asked, lost}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                done = {one for one in asked if one.done()}
                for found in map(_reply, done):
                    if found.error is None or found.error.code != 503:
                        return found
                if done:
                    asked -= done
                    await asyncio.sleep(BUSY)
                else:
                    wait = min(SLOWER * wait, MAX_REQUEST)
        finally:
            for one in (lost, *asked):
                one.cancel()
        raise BrokerError("the servers did not reply: is a majority of them up, and do they reach each other?")


def _reply(asked: asyncio.Future[Any]) -> Reply:
    """The reply to a request; an error 503 where nobody has replied."""
    try:
        return decode_json(asked.result().data, _REPLY)
    except (TimeoutError, nats.errors.TimeoutError, nats.errors.NoRespondersError):
        return Reply(Refused(503, "no server replies"))
    except (nats.errors.Error, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BrokerError(f"the servers did not reply ({type(error).__name__}).") from None


log = logging.getLogger("privatile.leaderless")

BATCH = 1000
"""Entries that one request asks for."""

EXPIRES, HEARTBEAT = 30.0, 0.25
"""Seconds that a request waits for entries, and between signs of life while there are none."""

FIRST_SIGN, SILENCE, MAX_SILENCE = 0.8, 0.8, 10.0
"""Seconds without a sign of life after which a consumer is made again: one that is new, doubling with every attempt,
and one that has lived (its server is gone). Where entries usually take long on the way the second is longer, up to the
third."""

MAX_MUTE = 2
"""Consumers without a sign of life after which the connection is given up."""

LASTING, FIRST_PAUSE, MAX_PAUSE = 1.0, 0.1, 2.0
"""Seconds that a consumer must have lived for the next one to be made at once when it breaks; otherwise the first pause
before that, doubling, and the longest one."""

SINGLY = 0.1
"""Seconds until a single entry is asked for again that is not there yet."""


class LogPort:
    """One epoch's log on one connection."""

    def __init__(
        self, connection: Connection, identity: str, epoch: int, peer: str, *, replicas: int, makes: bool = True
    ) -> None:
        """`makes`: whether this peer may make the log (`cluster_configuration.MAKING`)."""
        self.lost = connection.lost
        self.requests = LogRequests(connection, identity, epoch, replicas=replicas, makes=makes)
        self._lives = False
        """Whether the consumer has given a sign of life."""
        self._mute = 0
        """Consumers in a row that have given none."""
        self._short = 0
        """Consumers in a row that have broken soon."""
        self._nc = connection.nc
        self._peer = peer
        self._own = log_subject(identity, epoch, peer)
        self._inbox = f"{wire.inbox_prefix(peer)}.log"
        self._receipts = f"{wire.inbox_prefix(peer)}.receipt"
        self._outbox = Outbox()
        self._arrived: list[LogEntry] = []
        self._wake = asyncio.Event()
        self._consumer = ""
        """The consumer's name; empty while there is none."""
        self._tasks: list[asyncio.Task[None]] = []
        """What makes a consumer, and what reads entry by entry meanwhile."""
        self._next, self._begins, self._delivered = 1, 1, 0
        """The next position; where this consumer begins, and the number of its last delivery."""
        self._expected: str | None = None
        """The digest of what must stand at the next position: the last entry that was applied."""
        self._news = False
        """Whether the last applied entry, or the log's end, has been seen."""
        self._last: LogEntry | None = None
        """The last entry that this connection has read: a consumer that is made again must find it in its place."""
        self.behind = 1
        """Entries in the log after the last one that has arrived: what is decided before they are read may be late."""
        self._requested = 0
        self._made = self._heard = self._looked = self._requested_at = 0.0
        self._broken = ""
        self._refusal: LogLost | None = None
        """Why this is not the log."""
        self.published = self.published_bytes = 0

    @property
    def verified(self) -> bool:
        """Whether the log was seen to hold the last entry that was applied."""
        return self._expected is None

    @property
    def delay(self) -> float:
        """How long an entry usually takes until it is read back."""
        return self._outbox.delay

    # -- opening ---------------------------------------------------------------------------------------------------

    async def open(self, position: int = 0, last: str = "") -> None:
        """Read on after `position`, where this peer has applied an entry with the digest `last`; make a log if need be.

        Raises `LogLost` where the log does not hold that entry there: it is shorter, gone or another one.
        """
        await self._nc.subscribe(f"{self._inbox}.*", cb=self._on_message)
        await self._nc.subscribe(f"{self._receipts}.*", cb=self._on_receipt)
        await self.requests.check(position)
        self._next, self._expected = (position, last) if position else (1, None)
        self._begin()

    def close(self) -> None:
        """Ask for nothing any more."""
        for task in self._tasks:
            task.cancel()

    def _begin(self, pause: float = 0.0) -> None:
        """Make a consumer that begins at the next position, after a pause; read entry by entry until it lives."""
        self.close()
        self._consumer, self._broken, self._lives = "", "", False
        self._tasks = [asyncio.create_task(self._consume(pause)), asyncio.create_task(self._read_singly())]
        for task in self._tasks:
            task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # `entries` raises it, where anybody still reads
        self._wake.set()

    async def _consume(self, pause: float) -> None:
        await asyncio.sleep(pause)
        refused = 0
        while True:
            begins = self._next
            reply = await self.requests.consumer(self._peer, begins)
            if reply.error or (self._expected is not None and not reply.num_pending):
                await self.requests.check(self._next if self._expected is not None else 0)
            if not reply.error:
                break
            # Somebody may have taken all that the log has room for. Until one is free it is read entry by entry.
            log.info("no consumer of the log", extra=facts(reason=reply.error.text))
            refused += 1
            await asyncio.sleep(min(FIRST_PAUSE * 2.0 ** min(refused, 10), MAX_PAUSE))
        self._consumer, self._begins, self._delivered = reply.name, begins, 0
        self._made = self._heard = self._looked = asyncio.get_running_loop().time()
        if self._next == begins:
            self._reach(reply.num_pending)
        await self._request_entries()

    async def _read_singly(self) -> None:
        while not self._lives and not self._broken:
            position = self._next
            found = await self.requests.entry(position)
            if position != self._next or self._broken:  # the consumer has brought it meanwhile
                continue
            if found is not None and found.position == position:
                self._take(found, 1)
                continue
            if found is None and self.verified and not self._lives:
                self._reach(0)
            await asyncio.sleep(SINGLY)

    async def _request_entries(self) -> None:
        self._requested, self._requested_at = BATCH, asyncio.get_running_loop().time()
        wanted = {"batch": BATCH, "expires": int(EXPIRES * SECOND), "idle_heartbeat": int(HEARTBEAT * SECOND)}
        # The consumer's name is part of the reply's subject: what an older one still sends is told apart.
        await self._nc.publish(
            log_request(f"CONSUMER.MSG.NEXT.{self.requests.stream}.{self._consumer}"),
            json.dumps(wanted).encode(),
            reply=f"{self._inbox}.{self._consumer}",
        )

    # -- reading ---------------------------------------------------------------------------------------------------

    async def _on_message(self, message: Msg) -> None:
        if not message.reply.startswith("$JS.ACK."):
            self._on_status(message)
            return
        *_, stream, consumer, _times, position, delivered, _at, behind = message.reply.split(".")[:9]
        if consumer != self._consumer or stream != self.requests.stream or self._broken:
            return
        self._hear()
        self._requested -= 1
        self._delivered += 1
        if int(delivered) != self._delivered or int(position) != self._begins + self._delivered - 1:
            # Nothing is deleted from the log: a gap means a delivery that was lost, or another stream.
            self._break("a delivery is missing")
        elif int(position) == self._next:
            try:
                self._take(self.requests.read(int(position), message.subject, message.data), int(behind))
            except LogLost as error:
                self._refuse(error)
        elif int(position) == self._next - 1:  # the last one was read singly, which does not say how many come after it
            self._reach(int(behind))

    def _take(self, entry: LogEntry, behind: int) -> None:
        """The entry at the next position; so many come after it."""
        if self._expected not in (None, payload_digest(entry.payload)):
            self._refuse(
                LogLost(
                    "the log holds another entry where this peer has applied one: it was replaced. This peer signs "
                    f"nothing. Compare with the others. {RECOVER}"
                )
            )
            return
        if self._expected is None:
            self._arrived.append(entry)
        else:
            self._expected, self._news = None, True
        self._last = entry
        self._next += 1
        self._reach(behind)

    def _reach(self, behind: int) -> None:
        self._news = self._news or bool(self.behind and not behind)
        self.behind = behind
        self._wake.set()

    def _on_status(self, message: Msg) -> None:
        if message.subject.rpartition(".")[2] != self._consumer or not message.headers:
            return
        status = message.headers.get("Status")
        self._hear()
        if status == "408":  # the request has expired
            self._requested = 0
        elif status not in (None, "100"):
            self._break(f"status {status}")
        self._wake.set()

    def _hear(self) -> None:
        self._heard, self._mute, self._lives = asyncio.get_running_loop().time(), 0, True

    def _break(self, reason: str) -> None:
        self._broken = self._broken or reason
        self._wake.set()

    def _refuse(self, error: LogLost) -> None:
        self._refusal = error
        self._break("another log")

    async def entries(self, until: float) -> Sequence[LogEntry]:
        """What has come since the last call, in order; waits for it, at most until that time of the loop.

        Returns as well when the log was seen to hold the last entry that was applied, and when its end was reached.

        What was published and not seen is published again meanwhile. Raises where the connection or the log is lost.
        """
        loop = asyncio.get_running_loop()
        while not self._arrived:
            self._wake.clear()
            if self.lost.is_set():
                raise BrokerError("the connection with the server was lost.")
            if self._refusal is not None:
                raise self._refusal
            for task in self._tasks:
                if task.done() and not task.cancelled():
                    task.result()
            now = loop.time()
            await self._look_after_consumer(now)
            for payload in self._outbox.due(now):
                await self._send(payload)
            if now >= until or self._news:
                self._news = False
                return ()
            pause = min(until - now, HEARTBEAT, self._outbox.next_at(until) - now)
            timer = loop.call_later(max(pause, 0.001), self._wake.set)
            await self._wake.wait()
            timer.cancel()
        found, self._arrived = self._arrived, []
        for entry in found:
            if entry.sender == self._peer:
                self._outbox.seen(entry.payload, loop.time())
        return found

    async def _look_after_consumer(self, now: float) -> None:
        """Make another one where it is broken or silent; ask it for more entries."""
        if not self._consumer:
            return
        # Time in which this process was busy elsewhere is no silence.
        self._heard = min(now, self._heard + max(now - self._looked - HEARTBEAT, 0.0))
        self._looked = now
        if self._broken or now - self._heard > self._silence:
            self._mute += not self._broken
            if self._mute > MAX_MUTE:
                # A server that was told new accounts may have forgotten this connection's: a new one helps.
                raise BrokerError("the server gives no sign of life of the log.")
            self._short = self._short + 1 if self._broken and now - self._made < LASTING else 0
            log.info("reading again", extra=facts(reason=self._broken or "no sign of life"))
            if self._last is not None:  # it must still be the same one
                self._next, self._expected = self._last.position, payload_digest(self._last.payload)
            self._begin(min(FIRST_PAUSE * 2.0 ** min(self._short - 1, 10), MAX_PAUSE) if self._short else 0.0)
        elif self._requested <= BATCH // 2 or (not self._lives and now - self._requested_at >= REQUEST):
            await self._request_entries()  # the first one may be lost where the consumer has just been made

    @property
    def _silence(self) -> float:
        """Seconds without a sign of life that are not waited for longer."""
        if not self._lives:
            return FIRST_SIGN * 2.0**self._mute
        return min(max(SILENCE, LATE * self.delay), MAX_SILENCE)

    def interrupt(self) -> None:
        """Let `entries` look again at once."""
        self._wake.set()

    # -- publishing ------------------------------------------------------------------------------------------------

    async def publish(self, payload: bytes) -> None:
        """Publish an entry, again and again until it is read in the log."""
        if payload not in self._outbox:
            self._outbox.add(payload, asyncio.get_running_loop().time())
            await self._send(payload)

    async def _send(self, payload: bytes) -> None:
        self.published += 1
        self.published_bytes += len(payload)
        try:
            await self._nc.publish(self._own, payload, reply=f"{self._receipts}.{payload_digest(payload)}")
        except nats.errors.Error as error:
            raise BrokerError(f"an entry could not be published ({type(error).__name__}).") from None

    async def _on_receipt(self, message: Msg) -> None:
        digest, now = message.subject.rpartition(".")[2], asyncio.get_running_loop().time()
        if message.headers and message.headers.get("Status") == "503":
            self._outbox.refused(digest, now)
            self._wake.set()
            return
        try:
            refusal = json.loads(message.data or b"{}").get("error")
        except (ValueError, AttributeError):
            return
        if refusal:
            log.warning(
                "the log takes no entry", extra=facts(reason=printable(str(refusal.get("description", ""))[:200]))
            )
        else:
            self._outbox.stored(digest, now)
