"""The log on the broker: publish until seen, read by a consumer from the last applied entry.

An entry is in the log when this peer has read it there, not when the broker says so. What was not seen is published
again, byte for byte; an entry that comes twice is no second entry. Core subscriptions would deliver before the replicas
have committed, so nothing is read except through a consumer of the stream.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Sequence
from typing import Any

import nats.errors

from privatile.errors import BrokerError
from privatile.federation.monitoring import facts
from privatile.federation.peer.outbox import LATE, Outbox
from privatile.federation.replica.chain import payload_digest
from privatile.federation.replica.entries import LARGEST_ENTRY
from privatile.federation.replica.peer_log import LogEntry
from privatile.federation.setup.cluster_configuration import log_request, log_stream, log_subject
from privatile.federation.wire import subjects
from privatile.federation.wire.connection import Connection, Msg

log = logging.getLogger("privatile.federation.peer")

BATCH = 1000
"""Entries that one request asks for."""

EXPIRES, HEARTBEAT = 30.0, 0.25
"""Seconds that a request waits for entries, and between signs of life while there are none."""

FIRST_SIGN, SILENCE, LONGEST_SILENCE = 0.8, 0.8, 10.0
"""Seconds without a sign of life after which a consumer is made again: one that is new, doubling with every attempt,
and one that has lived (its server is gone). Where entries usually take long on the way the second is longer, up to the
third."""

MOST_MUTE = 2
"""Consumers without a sign of life after which the connection is given up."""

REQUEST, SLOWER, LONGEST_REQUEST, PATIENCE = 0.2, 1.5, 0.5, 15.0
"""Seconds until a request is made again, by which factor that grows and how far, and until the servers are said not to
reply: a request is lost where a leader has just changed, and an election after the loss of a server takes 4 to 10."""

BUSY = 0.1
"""Seconds until a request is made again for which the servers had no leader."""

SECOND = 1_000_000_000

RECOVER = (
    "If it does not come back, every organization stops its peer, runs `privatile peer recover DIR` and starts it "
    "again."
)


class LogLost(BrokerError):
    """The stream is gone, shorter than what was applied, or another one: people decide (`privatile peer recover`)."""


class LogPort:
    """One epoch's log on one connection."""

    def __init__(
        self, connection: Connection, identity: str, epoch: int, peer: str, *, replicas: int, makes: bool = True
    ) -> None:
        """`makes`: whether this peer may make the log (`cluster_configuration.MAKING`)."""
        self.lost = connection.lost
        self._lives = False
        """Whether the consumer has given a sign of life."""
        self._mute = 0
        """Consumers in a row that have given none."""
        self._nc = connection.nc
        self._peer = peer
        self._stream = log_stream(identity, epoch)
        self._own = log_subject(identity, epoch, peer)
        self._all = log_subject(identity, epoch, "*")
        self._replicas, self._makes = replicas, makes
        self._inbox = f"{subjects.inbox_prefix(peer)}.log"
        self._receipts = f"{subjects.inbox_prefix(peer)}.receipt"
        self._outbox = Outbox()
        self._arrived: list[LogEntry] = []
        self._wake = asyncio.Event()
        self._consumer = ""
        self._next, self._delivered = 1, 0
        """The next position, and the number of the last delivery of this consumer."""
        self._expected: str | None = None
        """The digest of what must stand at the next position: the last entry that was applied."""
        self._just_verified = False
        self._last: LogEntry | None = None
        """The last entry that this connection has read."""
        self.behind = 0
        """Entries in the log after the last one that has arrived: what is decided before they are read may be late."""
        self._requested = 0
        self._heard = self._looked = self._requested_at = 0.0
        self._broken = ""
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
        await self._check_stream(position)
        self._next, self._expected = (position, last) if position else (1, None)
        await self._consume()

    async def _check_stream(self, position: int) -> None:
        """Refuse a log without the entry that was applied at this position; make one where none was applied."""
        wanted = self._settings()
        reply = await self._ask(f"STREAM.INFO.{self._stream}")
        if reply.get("error", {}).get("code") == 404:
            if position:
                raise LogLost(f"the log is gone: the servers have no stream of it. This peer signs nothing. {RECOVER}")
            if not self._makes:
                raise BrokerError("there is no log yet: an organization that runs a server makes it when it starts.")
            reply = await self._ask(f"STREAM.CREATE.{self._stream}", wanted)
        if "error" in reply:
            raise BrokerError(f"the servers do not give the log: {reply['error'].get('description', 'no reason')}.")
        other = [name for name, value in wanted.items() if reply["config"].get(name) != value]
        if other:
            raise LogLost(
                f"the log was made with other settings ({', '.join(other)}): a stream that may lose entries is no log. "
                f"Ask who has made it. {RECOVER}"
            )
        if reply["state"]["last_seq"] < position:
            raise LogLost(
                f"the log has {reply['state']['last_seq']:,} entries, and this peer has applied {position:,}: it was "
                f"lost, or an older copy was put back. This peer signs nothing. {RECOVER}"
            )

    def _settings(self) -> dict[str, Any]:
        return {
            "name": self._stream,
            "subjects": [self._all],
            "retention": "limits",
            "storage": "file",
            "num_replicas": self._replicas,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msgs_per_subject": -1,
            "max_msg_size": LARGEST_ENTRY,
            "discard": "new",
            "deny_delete": True,
            "deny_purge": True,
        }

    async def _consume(self) -> None:
        """Make a consumer that begins at the next position."""
        config = {
            # A name that nobody else can know: a request that is made again means the same consumer.
            "name": f"{self._peer}_{secrets.token_hex(8)}",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._next,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": 30 * SECOND,
            "num_replicas": 1,
            "mem_storage": True,
        }
        reply = await self._ask(f"CONSUMER.CREATE.{self._stream}", {"stream_name": self._stream, "config": config})
        if "error" in reply or (self._expected is not None and not reply["num_pending"]):
            await self._check_stream(self._next if self._expected is not None else 0)
        if "error" in reply:
            raise BrokerError(f"the servers do not let the log be read: {reply['error'].get('description')}.")
        self._consumer, self._delivered, self._broken, self._lives = str(reply["name"]), 0, "", False
        self._heard = self._looked = asyncio.get_running_loop().time()
        self.behind = int(reply["num_pending"])
        await self._request_entries()

    async def _request_entries(self) -> None:
        self._requested, self._requested_at = BATCH, asyncio.get_running_loop().time()
        wanted = {"batch": BATCH, "expires": int(EXPIRES * SECOND), "idle_heartbeat": int(HEARTBEAT * SECOND)}
        # The consumer's name is part of the reply's subject: what an older one still sends is told apart.
        await self._nc.publish(
            log_request(f"CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"),
            json.dumps(wanted).encode(),
            reply=f"{self._inbox}.{self._consumer}",
        )

    async def _ask(self, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The reply to a request, which is made again and again until there is one: the first that comes counts.

        It ends with the connection, too: a server that is being stopped takes requests to the last.
        """
        loop = asyncio.get_running_loop()
        until, wait = loop.time() + PATIENCE, REQUEST
        lost: asyncio.Future[Any] = asyncio.ensure_future(self.lost.wait())
        asked: set[asyncio.Future[Any]] = set()
        try:
            while not self.lost.is_set() and loop.time() < until:
                payload = json.dumps(body or {}).encode()
                asked.add(asyncio.ensure_future(self._nc.request(log_request(verb), payload, timeout=PATIENCE)))
                await asyncio.wait({*asked, lost}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                done = {one for one in asked if one.done()}
                for found in map(_reply, done):
                    if found.get("error", {}).get("code") != 503:
                        return found
                if done:
                    asked -= done
                    await asyncio.sleep(BUSY)
                else:
                    wait = min(SLOWER * wait, LONGEST_REQUEST)
        finally:
            for one in (lost, *asked):
                one.cancel()
        raise BrokerError("the servers did not reply: is a majority of them up, and do they reach each other?")

    # -- reading ---------------------------------------------------------------------------------------------------

    async def _on_message(self, message: Msg) -> None:
        if not message.reply.startswith("$JS.ACK."):
            self._on_status(message)
            return
        *_, stream, consumer, _times, position, delivered, _at, behind = message.reply.split(".")[:9]
        if consumer != self._consumer or stream != self._stream or self._broken:
            return
        self._hear()
        self._requested -= 1
        if int(delivered) != self._delivered + 1 or int(position) != self._next:
            # Nothing is deleted from the log: a gap means a delivery that was lost, or another stream.
            self._break("a delivery is missing")
            return
        self._delivered += 1
        self._next += 1
        self.behind = int(behind)
        if self._expected is not None:
            expected, self._expected, self._just_verified = self._expected, None, True
            self._wake.set()
            if expected != payload_digest(message.data):
                self._break("another log")
            return
        self._last = LogEntry(int(position), message.subject.rpartition(".")[2], message.data)
        self._arrived.append(self._last)
        self._wake.set()

    def _on_status(self, message: Msg) -> None:
        if message.subject.rpartition(".")[2] not in (self._consumer, "") or not message.headers:
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

    async def entries(self, until: float) -> Sequence[LogEntry]:
        """What has come since the last call, in order; waits for it, at most until that time of the loop.

        Returns as well when the log was seen to hold the last entry that was applied.

        What was published and not seen is published again meanwhile. Raises where the connection or the log is lost.
        """
        loop = asyncio.get_running_loop()
        while not self._arrived:
            if self.lost.is_set():
                raise BrokerError("the connection with the server was lost.")
            if self._broken == "another log":
                raise LogLost(
                    "the log holds another entry where this peer has applied one: it was replaced. This peer signs "
                    f"nothing. Compare with the others. {RECOVER}"
                )
            now = loop.time()
            # Time in which this process was busy elsewhere is no silence.
            self._heard = min(now, self._heard + max(now - self._looked - HEARTBEAT, 0.0))
            self._looked = now
            if self._broken or now - self._heard > self._silence:
                self._mute += not self._broken
                if self._mute > MOST_MUTE:
                    # A server that was told new accounts may have forgotten this connection's: a new one helps.
                    raise BrokerError("the server gives no sign of life of the log.")
                log.info("reading again", extra=facts(reason=self._broken or "no sign of life"))
                await self._read_again()
            elif self._requested <= BATCH // 2 or (not self._lives and now - self._requested_at >= REQUEST):
                await self._request_entries()  # the first one may be lost where the consumer has just been made
            await self._publish_again(now)
            if now >= until or self._just_verified:
                self._just_verified = False
                return ()
            self._wake.clear()
            pause = min(until - now, HEARTBEAT, self._outbox.next_at(until) - now)
            timer = loop.call_later(max(pause, 0.001), self._wake.set)
            await self._wake.wait()
            timer.cancel()
        found, self._arrived = self._arrived, []
        for entry in found:
            if entry.sender == self._peer:
                self._outbox.seen(entry.payload, loop.time())
        return found

    @property
    def _silence(self) -> float:
        """Seconds without a sign of life that are not waited for longer."""
        if not self._lives:
            return FIRST_SIGN * 2.0**self._mute
        return min(max(SILENCE, LATE * self.delay), LONGEST_SILENCE)

    def interrupt(self) -> None:
        """Let `entries` look again at once."""
        self._wake.set()

    async def _read_again(self) -> None:
        """A new consumer, from the last entry on that was read: it must still be the same one."""
        if self._last is not None:
            self._next, self._expected = self._last.position, payload_digest(self._last.payload)
        await self._consume()

    # -- publishing ------------------------------------------------------------------------------------------------

    async def publish(self, payload: bytes) -> None:
        """Publish an entry, again and again until it is read in the log."""
        if payload not in self._outbox:
            self._outbox.add(payload, asyncio.get_running_loop().time())
            await self._send(payload)

    async def _publish_again(self, now: float) -> None:
        for payload in self._outbox.due(now):
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
            log.warning("the log takes no entry", extra=facts(reason=str(refusal.get("description", ""))[:200]))
        else:
            self._outbox.stored(digest, now)


def _reply(asked: asyncio.Future[Any]) -> dict[str, Any]:
    """The reply to a request; an error 503 where nobody has replied."""
    try:
        found: dict[str, Any] = json.loads(asked.result().data)
        return found
    except (TimeoutError, nats.errors.TimeoutError, nats.errors.NoRespondersError):
        return {"error": {"code": 503, "description": "no server replies"}}
    except (nats.errors.Error, ValueError) as error:
        raise BrokerError(f"the servers did not reply ({type(error).__name__}).") from None
