"""The coordinator's end of a broker connection: questions and welcomes out, answers and hellos in."""

import json
import logging
from collections.abc import Awaitable, Callable

import nats.errors
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

from privatile.federation.monitoring import facts
from privatile.federation.wire import subjects
from privatile.federation.wire.connection import Connection, Msg
from privatile.federation.wire.messages import LARGEST_ANSWER, LARGEST_ASK

log = logging.getLogger("privatile.federation.coordinator")

STREAM_BYTES = 64 << 20
"""What the broker keeps of each stream: a thousand rounds of a hundred clients, of which only the last matters."""


class CoordinatorPort:
    """One study's subjects and streams on one connection."""

    def __init__(self, connection: Connection, identity: str) -> None:
        self.lost = connection.lost
        self._connection = connection
        self._identity = identity

    async def open(
        self,
        on_answer: Callable[[str, bytes], None],
        on_hello: "Callable[[CoordinatorPort, str, bytes], Awaitable[None]]",
        *,
        replicas: int = 1,
    ) -> None:
        """Make the two streams where they do not exist, and listen to every client."""
        identity, nc = self._identity, self._connection.nc
        js = nc.jetstream(timeout=5)
        for name, subject, largest in (
            (subjects.ask_stream(identity), subjects.ask_subject(identity), LARGEST_ASK),
            (subjects.answer_stream(identity), subjects.answer_subject(identity, "*"), LARGEST_ANSWER),
        ):
            config = StreamConfig(
                name=name,
                subjects=[subject],
                retention=RetentionPolicy.LIMITS,
                storage=StorageType.FILE,
                discard=DiscardPolicy.OLD,
                # By size alone: a limit of one message per subject would cost one deletion per message.
                max_bytes=STREAM_BYTES,
                num_replicas=replicas,
                max_msg_size=largest,
                # The broker confirms what the coordinator stores; a client needs no confirmation of its answers.
                no_ack=name == subjects.answer_stream(identity),
                allow_direct=True,
            )
            await js.add_stream(config)

        async def answer(message: Msg) -> None:
            on_answer(message.subject.rpartition(".")[2], message.data)

        async def hello(message: Msg) -> None:
            await on_hello(self, message.subject.rpartition(".")[2], message.data)

        # A thousand clients answer within milliseconds of each other: the buffers must hold a round of the largest.
        for subject, callback in (
            (subjects.answer_subject(identity, "*"), answer),
            (subjects.hello_subject(identity, "*"), hello),
        ):
            await nc.subscribe(subject, cb=callback, pending_msgs_limit=1_000_000, pending_bytes_limit=1 << 30)

    async def ask(self, payload: bytes) -> str:
        """Publish a question or notice and wait until the broker has stored it; gives the reason where it could not."""
        subject = subjects.ask_subject(self._identity)
        try:
            reply = await self._connection.nc.request(subject, payload, timeout=5.0)
        except (nats.errors.Error, TimeoutError) as error:
            if not self.lost.is_set():
                log.warning("the broker did not confirm a question", extra=facts(reason=type(error).__name__))
            return ""
        refusal = json.loads(reply.data).get("error")
        return "" if refusal is None else str(refusal.get("description", "no reason given"))

    async def welcome(self, client: str, payload: bytes) -> None:
        """Reply to a client's hello."""
        await self._connection.nc.publish(subjects.welcome_subject(self._identity, client), payload)

    async def stored_question(self) -> bytes | None:
        """The last question or notice that the broker keeps; a BrokerError where it does not say."""
        return await self._connection.kept(subjects.ask_stream(self._identity), subjects.ask_subject(self._identity))

    async def stored_answer(self, client: str) -> bytes | None:
        """The client's last answer that the broker keeps."""
        stream = subjects.answer_stream(self._identity)
        return await self._connection.last(stream, subjects.answer_subject(self._identity, client))
