"""What a peer asks the servers about the log: look at it, make it, a consumer, one entry.

A request is made again and again until there is a reply: it is lost where a leader has just changed.
"""

import asyncio
import json
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
import nats.errors

from privatile.core.decoding import decode_json
from privatile.core.text import printable
from privatile.errors import BrokerError
from privatile.federation.connection import Connection
from privatile.federation.wire import NAME
from privatile_leaderless.cluster import log_request, log_stream, log_subject
from privatile_leaderless.entries import LARGEST_ENTRY
from privatile_leaderless.peer_file import LogEntry

REQUEST, SLOWER, LONGEST_REQUEST, PATIENCE = 0.2, 1.5, 0.5, 15.0
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
            "max_msg_size": LARGEST_ENTRY,
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
        if not NAME.fullmatch(sender) or len(payload) > LARGEST_ENTRY:
            raise LogLost(
                f"entry {position:,} of the log has another subject or more than {LARGEST_ENTRY:,} bytes, which no "
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
                    wait = min(SLOWER * wait, LONGEST_REQUEST)
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
