"""Attacks of one client on another over a live broker, with the configuration that `federation init` writes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from privatile.core.messages import Position
from privatile.errors import BrokerError
from privatile.federation import wire
from privatile.federation.connection import Connection, Msg, NatsCoordinator, connected
from privatile.federation.setup.permissions import CLIENT_LIMITS, client_permissions, coordinator_permissions
from privatile.federation.wire import Hello
from privatile.records.keys import KeyPair
from tests.federation.kit import PATIENCE, REPOSITORY, Federation, make_study, tasks, until

pytestmark = pytest.mark.network

STREAM_VERBS = (
    *("CREATE", "UPDATE", "INFO", "DELETE", "PURGE", "MSG.GET", "MSG.DELETE", "SNAPSHOT", "RESTORE"),
    *("LEADER.STEPDOWN", "PEER.REMOVE"),
)
CONSUMER_VERBS = (
    *("CREATE.{}", "CREATE.{}.c", "DURABLE.CREATE.{}.c", "NAMES.{}", "LIST.{}", "INFO.{}.c", "DELETE.{}.c"),
    *("MSG.NEXT.{}.c", "PAUSE.{}.c", "UNPIN.{}.c", "LEADER.STEPDOWN.{}.c", "RESET.{}.c"),
)


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
    for stream in (wire.ask_stream(identity), wire.answer_stream(identity)):
        found += [f"$JS.API.STREAM.{verb}.{stream}" for verb in STREAM_VERBS]
        found += [f"$JS.API.CONSUMER.{verb}".format(stream) for verb in CONSUMER_VERBS]
        found += [f"$JS.API.DIRECT.GET.{stream}"]
        found += [
            f"$JS.API.DIRECT.GET.{stream}.{subject}"
            for subject in (wire.ask_subject(identity), wire.answer_subject(identity, "site0"))
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
) -> AsyncIterator[tuple[Connection, NatsCoordinator, list[tuple[str, bytes]]]]:
    heard: list[tuple[str, bytes]] = []

    async def on_hello(client: str, payload: bytes) -> None:
        heard.append((f"hello {client}", payload))

    async with connect_as(federation, "coordinator") as connection:
        port = NatsCoordinator(connection, federation.study.identity)
        await port.open(lambda client, payload: heard.append((f"answer {client}", payload)), on_hello)
        yield connection, port, heard


async def ask_until_heard(port: NatsCoordinator, heard: Callable[[bytes], bool]) -> None:
    """Ask anything until somebody hears it: under load a broker confirms subscriptions before they are in force."""
    async with asyncio.timeout(PATIENCE):
        for number in itertools.count():
            probe = b"probe %d" % number
            assert not await port.ask(probe)
            with contextlib.suppress(TimeoutError):
                return await until(partial(heard, probe), 1.0)


async def aim_replies_at_the_victim(federation: Federation) -> tuple[list[tuple[str, bytes]], bytes | None]:
    """Every message that site0 may send and every verb of the broker, with replies to the places of site1.

    Returns what arrived anywhere but on site0's own subjects, and the question that the broker keeps afterwards.
    """
    identity = federation.study.identity
    async with (
        coordinator_port(federation) as (coordinator, port, heard),
        connect_as(federation, "site1") as victim,
        connect_as(federation, "site0") as mallory,
    ):

        async def note(message: Msg) -> None:
            heard.append((f"victim {message.subject}", message.data))

        listens = (wire.ask_subject(identity), wire.welcome_subject(identity, "site1"))
        for subject in (wire.hello_subject(identity, "site1"), "_INBOX_site1.>", *reversed(listens)):
            await victim.nc.subscribe(subject, cb=note)
        await victim.nc.flush()
        await ask_until_heard(port, lambda probe: (f"victim {listens[0]}", probe) in heard)
        assert not await port.ask(b"the question")
        await until(lambda: (f"victim {listens[0]}", b"the question") in heard)
        heard.clear()
        targets = (*listens, wire.answer_subject(identity, "site1"), wire.hello_subject(identity, "site1"))
        may_publish = [wire.answer_subject(identity, "site0"), wire.hello_subject(identity, "site0")]
        for subject in (*may_publish, *service_subjects(identity)):
            for target in (*targets, "_INBOX_site1.x", "_INBOX_coordinator.x"):
                for body in bodies(subject, target):
                    await mallory.nc.publish(subject, body, reply=target)
                    await mallory.nc.publish(subject, body, headers={"Nats-Trace-Dest": target})
        await mallory.nc.publish(may_publish[1], b"the last one")
        await mallory.nc.publish(may_publish[0], b"the last one")
        last = {("hello site0", b"the last one"), ("answer site0", b"the last one")}
        await until(lambda: last <= set(heard))
        while await port.stored_answer("site0") != b"the last one":
            await asyncio.sleep(0.01)
        for one in (mallory, coordinator, victim):
            await one.nc.flush()
        astray = [one for one in heard if one[0] not in ("answer site0", "hello site0")]
        return astray, await coordinator.last(wire.ask_stream(identity), wire.ask_subject(identity))


def test_a_client_cannot_make_the_broker_write_where_another_client_speaks_or_listens(federation: Federation) -> None:
    """Publish permissions do not hold for reply subjects; only accounts keep the broker's replies apart."""
    assert asyncio.run(aim_replies_at_the_victim(federation)) == ([], b"the question")


def test_with_one_account_for_all_the_same_attack_succeeds(tmp_path: Path) -> None:
    """Negative control: the same permissions without accounts, as they were before."""
    federation = Federation(tmp_path, make_study(2))
    files = federation.directory.broker_files
    configuration = json.loads(files.configuration.read_text().partition("\n")[2])
    accounts = configuration.pop("accounts").values()
    configuration["authorization"]["users"] = [user for account in accounts for user in account["users"]]
    files.configuration.write_text(json.dumps(configuration))

    async def scene() -> tuple[list[tuple[str, bytes]], bytes | None]:
        async with federation.running_broker():
            return await aim_replies_at_the_victim(federation)

    astray, kept = asyncio.run(scene())
    assert {where.partition(" ")[0] for where, _ in astray} == {"answer", "hello", "victim"}
    assert {where for where, _ in astray} >= {"answer site1", "hello site1", "victim _INBOX_site1.x"}
    assert kept != b"the question"


def test_a_framed_client_is_not_quarantined_and_the_run_goes_on(tmp_path: Path) -> None:
    """Rubbish on a client's own subjects, as the broker's operator can still put it there, and the replies above."""
    study = make_study(2, rounds=4, deadline=20.0)
    federation = Federation(tmp_path, study)
    identity = study.identity
    victim = wire.answer_subject(identity, "site1")
    get = f"$JS.API.DIRECT.GET.{wire.ask_stream(identity)}.{wire.ask_subject(identity)}"

    async def scene() -> None:
        run = federation.open_run()
        async with federation.running_broker():
            coordinator = federation.coordinator(run)
            async with tasks(coordinator.run()) as (work,):
                await until(lambda: coordinator.metrics.value("connected") == 1)
                async with connect_as(federation, "site0") as mallory, connect_as(federation, "site1") as operator:
                    for number in range(10):
                        for target in (victim, wire.ask_subject(identity)):
                            await mallory.nc.publish(get, b"", reply=target)
                            await mallory.nc.publish(wire.answer_subject(identity, "site0"), b"x", reply=target)
                        await operator.nc.publish(victim, b"rubbish %d" % number)
                    await until(lambda: coordinator.metrics.value("unsigned", client="site1") >= 10)
                    await until(lambda: coordinator.metrics.value("unsigned", client="site0") >= 20)
                # The operator's ten, one of which may be read from storage too; mallory's would be 20 more.
                assert coordinator.metrics.value("unsigned", client="site1") in (10, 11)
                assert not coordinator.core.intake.quarantined
                assert coordinator.metrics.value("restored_questions") == 0
                async with tasks(*(federation.client(name).run() for name in study.clients)):
                    assert await asyncio.wait_for(work, PATIENCE) == "finished"
        assert not [event for event in run.journal.events() if event.kind in ("rejected", "quarantined", "paused")]

    asyncio.run(scene())


def test_a_recorded_hello_of_an_earlier_process_stops_no_client(federation: Federation) -> None:
    study, key = federation.study, federation.sites["site1"].key()
    recorded = [
        Hello(study.digest, "site1", f"{k:032x}", Position(0, b"0" * 16), None, f"{k:032x}", echo).pack(key)
        for k, echo in enumerate((None, "ab" * 16, "cd" * 16))
    ]

    async def scene() -> float:
        run = federation.open_run()
        coordinator, client = federation.coordinator(run), federation.client("site1")
        async with tasks(coordinator.run(), client.run()) as (_, work):
            await until(lambda: client.metrics.value("welcomed") == 1)
            async with connect_as(federation, "site1") as operator:
                own: list[bytes] = []

                async def hear(message: Msg) -> None:
                    own.append(message.data)

                await operator.nc.subscribe(wire.hello_subject(study.identity, "site1"), cb=hear)
                for payload in recorded * 3:
                    await operator.nc.publish(wire.hello_subject(study.identity, "site1"), payload)
                await until(lambda: len(own) > 3 * len(recorded))  # it has replied, with a challenge, and goes on
                replies = [one for one in own if one not in recorded]
                for payload in replies:  # its own hellos, sent again
                    await operator.nc.publish(wire.hello_subject(study.identity, "site1"), payload)
                await operator.nc.flush()
            heard = coordinator.metrics.value("rejected_hellos", client="site1")
            await until(lambda: client.metrics.value("answers") >= 1)
            assert not work.done()
        run.store.close()
        return heard

    assert asyncio.run(scene()) == 0


def test_a_replaced_question_is_restored_and_hides_no_question(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privatile.federation.coordinator.service.TICK", 0.05)
    ask = wire.ask_subject(federation.study.identity)

    async def scene() -> None:
        run = federation.open_run()
        coordinator, client = federation.coordinator(run), federation.client("site1", heartbeat=60.0)
        async with (
            connect_as(federation, "coordinator") as operator,
            tasks(coordinator.run(), client.run()),
        ):
            await until(lambda: client.metrics.value("answers") >= 1)
            await operator.nc.publish(ask, b"rubbish")
            await until(lambda: coordinator.metrics.value("restored_questions") >= 1)
            stream = wire.ask_stream(federation.study.identity)
            while await operator.last(stream, ask) != coordinator.core.asked:
                await asyncio.sleep(0.02)
            monkeypatch.setattr("privatile.federation.coordinator.service.TICK", 3600.0)
            await asyncio.sleep(0.15)  # from here on nothing is restored
            before = client.metrics.value("answers")
            for _ in range(3):  # the question and rubbish arrive together
                await operator.nc.publish(ask, coordinator.core.asked)
                await operator.nc.publish(ask, b"rubbish")
            await operator.nc.flush()
            await until(lambda: client.metrics.value("answers") > before)
        assert [event.kind for event in run.journal.events()].count("question") >= 1
        run.store.close()

    asyncio.run(scene())


def table() -> list[tuple[str, set[str], set[str]]]:
    """The rows of docs/wire.md: subject, who may publish, who may subscribe."""
    text = (REPOSITORY / "docs" / "wire.md").read_text(encoding="utf-8")
    section = text.partition("## Subjects")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(.+)` \| (.+) \| (.+) \|$", section, re.MULTILINE)
    return [(subject, set(publish.split(", ")), set(subscribe.split(", "))) for subject, publish, subscribe in rows]


PARTIES = {"coordinator": "coordinator", "site1": "NAME", "site0": "another client"}


def may(party: str, allowed: set[str]) -> bool:
    return PARTIES[party] in allowed or ("every client" in allowed and party != "coordinator")


def test_the_table_of_permissions_is_what_the_broker_enforces(federation: Federation) -> None:
    identity = federation.study.identity
    rows = [(row[0].replace("ID", identity).replace("NAME", "site1"), *row[1:]) for row in table()]
    assert len(rows) == 14

    async def scene() -> None:
        with pytest.raises(BrokerError, match="does not know this key"):
            async with connect_as(federation, "site1", KeyPair.generate()):
                pass
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(coordinator_port(federation))  # the streams
            parties = {name: await stack.enter_async_context(connect_as(federation, name)) for name in PARTIES}
            got: list[tuple[str, str, bytes]] = []
            for name, party in parties.items():

                async def note(message: Msg, name: str = name) -> None:
                    got.append((name, message.subject, message.data))

                for subject, _, _ in rows:
                    await party.nc.subscribe(subject, cb=note)

            async def publish_everywhere() -> None:
                for name, party in parties.items():
                    for subject, publish, subscribe in rows:
                        single = subject.replace(">", "x")
                        if "broker" in subscribe and may(name, publish):
                            assert (await party.nc.request(single, b"", timeout=PATIENCE)).data is not None
                        else:
                            await party.nc.publish(single, name.encode())
                    await party.nc.flush()

            expected = {
                (reader, subject, writer.encode())
                for subject, publish, subscribe in rows
                for writer in PARTIES
                for reader in PARTIES
                if may(writer, publish) and may(reader, subscribe)
            }
            async with asyncio.timeout(PATIENCE):
                while not expected <= set(got):  # under load subscriptions are confirmed before they are in force
                    await publish_everywhere()
                    with contextlib.suppress(TimeoutError):
                        await until(lambda: expected <= set(got), 1.0)
            for name, party in parties.items():
                refused = {f"publish to {subject.replace('>', 'x')}" for subject, to, _ in rows if not may(name, to)}
                refused |= {f"subscription to {subject}" for subject, _, of in rows if not may(name, of)}
                await until(partial(has_complaints, party, {one.lower() for one in refused}))
                assert complaints(party) == {one.lower() for one in refused}
            for party in parties.values():
                await party.nc.flush()
            assert {one for one in got if one[1].startswith("privatile.")} == expected

    asyncio.run(scene())


def has_complaints(party: Connection, refused: set[str]) -> bool:
    """Whether the broker has refused all of these."""
    return complaints(party) >= refused


def complaints(party: Connection) -> set[str]:
    """What the broker has refused, as "publish to SUBJECT" or "subscription to SUBJECT", in lower case."""
    found = (re.search(r'violation for (\w+ to) "(.+?)"', text.lower()) for text in party.complaints)
    return {f"{one[1]} {one[2]}" for one in found if one is not None}


def test_the_table_names_everything_that_the_configuration_allows(federation: Federation) -> None:
    identity = federation.study.identity

    def listed(who: str, name: str, place: int) -> set[str]:
        wanted = {who, "every client"} if who == "NAME" else {who}
        return {row[0].replace("ID", identity).replace("NAME", name) for row in table() if wanted & set(row[place])}

    publish, subscribe = client_permissions(identity, "site1")
    assert (set(publish), set(subscribe)) == (listed("NAME", "site1", 1), listed("NAME", "site1", 2))
    publish, subscribe = coordinator_permissions(identity)
    assert (set(publish), set(subscribe)) == (listed("coordinator", "*", 1), listed("coordinator", "*", 2))
    text = federation.directory.broker_files.configuration.read_text().partition("\n")[2]
    accounts = json.loads(text)["accounts"]
    assert set(accounts) == {"coordinator", "client_site0", "client_site1"}
    for name in ("site0", "site1"):
        crossing = {next(iter(one.values()))["subject"] for one in accounts[f"client_{name}"]["imports"]}
        both = [set(permission) for permission in client_permissions(identity, name)]
        assert crossing == (both[0] | both[1]) - {f"_INBOX_{name}.>"}
    for export in accounts["coordinator"]["exports"]:
        subject = export.get("stream") or export["service"]
        owners = [name for name in ("site0", "site1") if subject.endswith(f".{name}")] or ["site0", "site1"]
        assert export["accounts"] == [f"client_{name}" for name in owners]


def test_a_client_cannot_fill_the_broker_with_subscriptions_or_connections(federation: Federation) -> None:
    """Before, 50,000 subscriptions and 150 connections of one client were open at once."""

    async def scene() -> None:
        async with connect_as(federation, "site0") as mallory:
            for number in range(CLIENT_LIMITS["max_subscriptions"]):
                await mallory.nc.subscribe(f"_INBOX_site0.x.{number}")
            await mallory.nc.flush()
            assert not mallory.lost.is_set()
            await mallory.nc.subscribe("_INBOX_site0.one.more")
            await asyncio.wait_for(mallory.lost.wait(), PATIENCE)
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(CLIENT_LIMITS["max_connections"]):
                await stack.enter_async_context(connect_as(federation, "site0"))
            with pytest.raises(BrokerError):
                await stack.enter_async_context(connect_as(federation, "site0"))
            # The negative control: another client is not kept out.
            async with connect_as(federation, "site1") as other:
                await other.nc.flush()

    asyncio.run(scene())
