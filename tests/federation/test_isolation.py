"""Attacks of one client on another over a live broker, with the configuration that `federation init` writes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from privatile.federation.coordinator.port import CoordinatorPort
from privatile.federation.wire import subjects
from privatile.federation.wire.connection import Connection, Msg, connected
from privatile.federation.wire.keys import KeyPair
from tests.federation.kit import Federation, make_study, until

pytestmark = pytest.mark.network

STREAM_VERBS = (
    *("CREATE", "UPDATE", "INFO", "DELETE", "PURGE", "MSG.GET", "MSG.DELETE", "SNAPSHOT", "RESTORE"),
    *("LEADER.STEPDOWN", "PEER.REMOVE"),
)
CONSUMER_VERBS = ("CREATE.{}", "CREATE.{}.c", "DURABLE.CREATE.{}.c", "NAMES.{}", "LIST.{}", "INFO.{}.c", "DELETE.{}.c")
CONSUMER_VERBS += ("MSG.NEXT.{}.c", "PAUSE.{}.c", "UNPIN.{}.c", "LEADER.STEPDOWN.{}.c", "RESET.{}.c")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Two clients and a live broker, shared by the tests of this file."""
    made = Federation(tmp_path_factory.mktemp("isolation"), make_study(2))
    broker = made.broker()
    broker.start()
    yield made
    broker.stop()


def connect_as(federation: Federation, name: str, key: KeyPair | None = None) -> Any:
    invitation = federation.invitation("site0")
    keys = {"coordinator": federation.directory.key} | {one: site.key for one, site in federation.sites.items()}
    return connected(name, invitation.brokers, key or keys[name](), invitation.authority)


def service_subjects(identity: str) -> list[str]:
    """What the broker itself replies to: every verb of its stream interface, for both streams."""
    found = ["$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$SYS.REQ.USER.INFO"]
    for stream in (subjects.ask_stream(identity), subjects.answer_stream(identity)):
        found += [f"$JS.API.STREAM.{verb}.{stream}" for verb in STREAM_VERBS]
        found += [f"$JS.API.CONSUMER.{verb}".format(stream) for verb in CONSUMER_VERBS]
        found += [f"$JS.API.DIRECT.GET.{stream}"]
        found += [
            f"$JS.API.DIRECT.GET.{stream}.{subject}"
            for subject in (subjects.ask_subject(identity), subjects.answer_subject(identity, "site0"))
        ]
    return found


def bodies(stream_subject: str, target: str) -> list[bytes]:
    """An empty request, and one that names `target` wherever the broker's interface takes a subject to send to."""
    stream = stream_subject.split(".")[-2 if stream_subject.endswith(".c") else -1]
    deliver = (
        f'{{"stream_name":"{stream}","deliver_subject":"{target}","config":{{"name":"c","deliver_subject":"{target}",'
        f'"ack_policy":"none","deliver_policy":"all"}},"seq":1,"batch":1}}'
    )
    return [b"", deliver.encode()]


@contextlib.asynccontextmanager
async def coordinator_port(
    federation: Federation,
) -> AsyncIterator[tuple[Connection, CoordinatorPort, list[tuple[str, bytes]]]]:
    heard: list[tuple[str, bytes]] = []

    async def on_hello(port: CoordinatorPort, client: str, payload: bytes) -> None:
        heard.append((f"hello {client}", payload))

    async with connect_as(federation, "coordinator") as connection:
        port = CoordinatorPort(connection, federation.study.identity)
        await port.open(lambda client, payload: heard.append((f"answer {client}", payload)), on_hello)
        yield connection, port, heard


def test_a_client_cannot_make_the_broker_write_where_another_client_speaks_or_listens(federation: Federation) -> None:
    """Publish permissions do not hold for reply subjects: every reply of the broker is aimed at the victim."""
    identity = federation.study.identity

    async def scene() -> None:
        async with (
            coordinator_port(federation) as (coordinator, port, heard),
            connect_as(federation, "site1") as victim,
            connect_as(federation, "site0") as mallory,
        ):

            async def note(message: Msg) -> None:
                heard.append((f"victim {message.subject}", message.data))

            own = (subjects.ask_subject(identity), subjects.welcome_subject(identity, "site1"))
            for subject in (*own, subjects.hello_subject(identity, "site1"), "_INBOX_site1.>"):
                await victim.nc.subscribe(subject, cb=note)
            await victim.nc.flush()
            assert not await port.ask(b"the question")
            targets = (
                *own,
                subjects.answer_subject(identity, "site1"),
                subjects.hello_subject(identity, "site1"),
                *("_INBOX_site1.x", "_INBOX_coordinator.x"),
            )
            await until(lambda: ("victim " + subjects.ask_subject(identity), b"the question") in heard, 5)
            heard.clear()
            may_publish = [subjects.answer_subject(identity, "site0"), subjects.hello_subject(identity, "site0")]
            for subject in (*may_publish, *service_subjects(identity)):
                for target in targets:
                    for body in bodies(subject, target):
                        await mallory.nc.publish(subject, body, reply=target)
                        await mallory.nc.publish(subject, body, headers={"Nats-Trace-Dest": target})
            for one in (mallory, coordinator, victim, mallory, coordinator, victim):
                await one.nc.flush()
            expected = {"answer site0", "hello site0"}
            assert {where for where, _ in heard} <= expected, [one for one in heard if one[0] not in expected][:9]
            assert {where for where, _ in heard} == expected
            stored = await coordinator.last(subjects.ask_stream(identity), subjects.ask_subject(identity))
            assert stored == b"the question"
            assert await port.stored_answer("site1") is None
            assert not victim.complaints

    asyncio.run(scene())
