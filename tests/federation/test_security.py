"""Attacks on a federation: each is refused and logged without data, and the run continues."""

from __future__ import annotations

import asyncio
import base64
import datetime
import itertools
import json
import logging
import random
import socket
from pathlib import Path
from typing import Any

import pytest

from privatile.core.messages import Answer, Position, Question
from privatile.errors import BrokerError
from privatile.federation import wire
from privatile.federation.connection import Connection, Msg, connected
from privatile.federation.coordinator.intake import AnswerIntake
from privatile.federation.coordinator.service import Control
from privatile.federation.wire import Hello, RoundAnswers, RoundQuestions
from privatile.records.keys import KeyPair
from privatile.run.certificates import issue_broker, make_authority
from tests.federation.kit import PATIENCE, Federation, make_study, tasks, until
from tests.federation.played import reply

pytestmark = pytest.mark.network

MARK = "4711.4711"
"""Stands for a record's value in hostile messages: it must not appear in any log, event or reason."""


def connect_as(federation: Federation, name: str, key: KeyPair | None = None, authority: str | None = None) -> Any:
    invitation = federation.invitation("site0")
    return connected(
        name,
        invitation.brokers,
        key or federation.sites[name].key(),
        authority or invitation.authority,
    )


def test_no_tls_wrong_authority_unknown_key(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(2))
    make_authority(tmp_path / "other.pem", tmp_path / "other.key", "other")

    async def scene() -> None:
        async with federation.running_broker():
            with socket.create_connection(("127.0.0.1", federation.settings.port), timeout=PATIENCE) as plain:
                information = json.loads(plain.recv(4096).split(b" ", 1)[1])
                assert information["tls_required"] is True
                plain.sendall(b'CONNECT {"verbose":false}\r\nPUB privatile.x 1\r\nx\r\nPING\r\n')
                try:
                    reply = plain.recv(4096)
                except ConnectionError:
                    reply = b""
                assert b"PONG" not in reply
            with pytest.raises(BrokerError, match="not signed by the authority"):
                async with connect_as(federation, "site0", authority=(tmp_path / "other.pem").read_text()):
                    pass
            with pytest.raises(BrokerError, match="does not know this key"):
                async with connect_as(federation, "site0", key=KeyPair.generate()):
                    pass

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("starts", "days", "word"),
    [
        (datetime.timedelta(days=-9), 1.0, "has expired"),
        (datetime.timedelta(hours=1), 9.0, "clock is probably behind"),
    ],
)
def test_expired_certificate_and_a_clock_an_hour_off(
    tmp_path: Path, starts: datetime.timedelta, days: float, word: str
) -> None:
    federation = Federation(tmp_path, make_study(2))
    directory, files = federation.directory, federation.directory.broker_files
    now = datetime.datetime.now(datetime.UTC)
    issue_broker(
        directory.authority, directory.authority_key, files.certificate, files.key, ["localhost"],
        starts=now + starts, days=days,
    )  # fmt: skip

    async def scene() -> None:
        async with federation.running_broker():
            with pytest.raises(BrokerError, match=word):
                async with connect_as(federation, "site0"):
                    pass

    asyncio.run(scene())
    from privatile.federation.setup.folder import renew

    renew(directory)
    run = asyncio.run(federation.run())  # the run can go on after the renewal
    assert run.store.finished


def test_wrong_host_name(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(1))
    directory, files = federation.directory, federation.directory.broker_files
    issue_broker(directory.authority, directory.authority_key, files.certificate, files.key, ["broker.example"])

    async def scene() -> None:
        async with federation.running_broker():
            with pytest.raises(BrokerError, match="another host name"):
                async with connect_as(federation, "site0"):
                    pass

    asyncio.run(scene())


def test_one_client_cannot_speak_or_listen_for_another(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(2))
    identity = federation.study.identity
    heard: list[str] = []

    async def note(message: Msg) -> None:
        heard.append(message.subject)

    async def scene() -> Connection:
        async with federation.running_broker():
            coordinator_key = federation.directory.key()
            async with connect_as(federation, "coordinator", coordinator_key) as coordinator:
                js = coordinator.nc.jetstream()
                await js.add_stream(name=wire.ask_stream(identity), subjects=[wire.ask_subject(identity)])
                await coordinator.nc.subscribe(wire.answer_subject(identity, "*"), cb=note)
                await coordinator.nc.subscribe(wire.hello_subject(identity, "*"), cb=note)
                async with connect_as(federation, "site0") as mallory:
                    for subject in (
                        wire.answer_subject(identity, "site1"),
                        wire.hello_subject(identity, "site1"),
                        wire.ask_subject(identity),
                        wire.welcome_subject(identity, "site1"),
                        "_INBOX_site1.x",
                        "$JS.API.STREAM.DELETE." + wire.ask_stream(identity),
                        "$JS.API.STREAM.PURGE." + wire.ask_stream(identity),
                        "$JS.API.STREAM.INFO." + wire.answer_stream(identity),
                        "$JS.API.DIRECT.GET."
                        + wire.answer_stream(identity)
                        + "."
                        + wire.answer_subject(identity, "site1"),
                        "$JS.API.CONSUMER.CREATE." + wire.answer_stream(identity),
                        "$SYS.REQ.USER.INFO",
                    ):
                        await mallory.nc.publish(subject, b"forged")
                    for subject in (
                        wire.answer_subject(identity, "site1"),
                        wire.answer_subject(identity, "*"),
                        wire.hello_subject(identity, "site1"),
                        wire.welcome_subject(identity, "site1"),
                        f"privatile.{identity}.>",
                        "_INBOX_site1.>",
                        "_INBOX_coordinator.>",
                        ">",
                        "$JS.EVENT.ADVISORY.>",
                    ):
                        await mallory.nc.subscribe(subject, cb=note)
                    await mallory.nc.flush()
                    async with connect_as(federation, "site1") as other:
                        await other.nc.publish(wire.answer_subject(identity, "site1"), b"an answer")
                        await other.nc.flush()
                    await coordinator.nc.flush()
                    await mallory.nc.publish(wire.hello_subject(identity, "site0"), b"allowed")
                    await mallory.nc.flush()
                    await coordinator.nc.flush()
                    await until(lambda: len(heard) >= 2 and len(mallory.complaints) >= 20)
                    # After these, everything sent before has arrived.
                    await mallory.nc.flush()
                    await coordinator.nc.flush()
                    return mallory  # type: ignore[no-any-return]
        raise AssertionError

    mallory = asyncio.run(scene())
    assert sorted(heard) == sorted([wire.answer_subject(identity, "site1"), wire.hello_subject(identity, "site0")])
    assert len([text for text in mallory.complaints if "publish" in text.lower()]) == 11
    assert len([text for text in mallory.complaints if "subscription" in text.lower()]) == 9


def hostile(rng: random.Random, payload: bytes, key: KeyPair) -> bytes:
    """A malformed message: bytes changed at random, or nonsense with a valid signature."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.randbytes(rng.randrange(300))
    if kind == 1:
        place = rng.randrange(len(payload))
        return payload[:place] + bytes([rng.randrange(256)]) + payload[place + 1 :]
    if kind == 2:
        return payload[: rng.randrange(len(payload))]
    if kind == 3:
        return payload + rng.randbytes(rng.randrange(1, 9000))
    body = payload.rpartition(b"\n")[0]
    if kind == 4:
        body = bytes(byte ^ (rng.random() < 0.02) for byte in body)
    elif kind == 5:
        fields = json.loads(body)
        fields[rng.choice([*fields, "value"])] = rng.choice(
            [MARK, -1, 10**30, 0.5, True, None, [], {}, "", "x" * 300, [[[[]]]], {"a": {"b": MARK}}, float("nan")]
        )
        body = json.dumps(fields).encode()
    elif kind == 6:
        body = b"[" * rng.randrange(1, 2000)
    else:
        body = rng.choice([b"null", b"0", b'"' + MARK.encode() + b'"', b"{}", b'{"kind":"answer"}', b"\xff\xfe", b""])
    return body + b"\n" + base64.b64encode(key.sign(body))


@pytest.mark.slow
def test_ten_thousand_hostile_messages_offline() -> None:
    key, other = KeyPair.generate(), KeyPair.generate()
    question = Question("r", 5, 0.5, 10.0, 20)
    study = "ab" * 32
    link = Position(9, bytes.fromhex("cd") * 16)
    good = RoundAnswers.of(study, [Answer(question, "a", 7, link)]).pack(key)
    rng = random.Random(20260101)
    outcomes: dict[str, int] = {}
    for _ in range(10_000):
        intake = AnswerIntake(study, {"a": key.public.signer}, {"a": Position(8, b"0" * 16)})
        intake.open({"a": (question,), "b": (question,)})
        payload = hostile(rng, good, rng.choice([key, key, other]))
        verdict = intake.offer("a", payload)
        outcomes[verdict.outcome] = outcomes.get(verdict.outcome, 0) + 1
        if payload.rpartition(b"\n")[0] != good.rpartition(b"\n")[0]:
            assert verdict.outcome != "counted" or intake.answers["a"].body.ones[0] <= 20
        assert MARK not in verdict.reason
        after = intake.offer("a", good).outcome
        assert after == "ignored" if verdict.outcome == "forked" else after in ("counted", "duplicate", "forked")
    assert outcomes["rejected"] > 3_000
    assert outcomes["rejected"] + outcomes["unsigned"] + outcomes.get("foreign", 0) > 9_000
    fresh = AnswerIntake(study, {"a": key.public.signer})
    fresh.open({"a": (question,)})
    assert fresh.offer("a", good).outcome == "counted"  # the messages above were variations of one that counts


def test_a_flood_over_the_broker_is_refused_and_the_run_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study = make_study(2, rounds=6, deadline=20.0)
    federation = Federation(tmp_path, study)
    identity = study.identity
    key = federation.sites["site1"].key()
    rng = random.Random(7)

    async def scene() -> list[str]:
        run = federation.open_run()
        async with federation.running_broker():
            coordinator = federation.coordinator(run)
            async with tasks(coordinator.run(), federation.client("site0").run()) as (work, *_):
                await until(lambda: coordinator.metrics.value("connected") == 1)
                asked = Question(study.run, 1, 0.5, 50.0, 4)
                answer = RoundAnswers.of(study.digest, [Answer(asked, "site1", 2, Position(1))])
                hello = Hello(study.digest, "site1", "1" * 32, Position(0, b"0" * 16), None, "2" * 32, None)
                async with connect_as(federation, "site1") as mallory:
                    for number in range(4_000):
                        subject = wire.answer_subject if number % 2 else wire.hello_subject
                        sample = (answer if number % 2 else hello).pack(key)
                        await mallory.nc.publish(subject(identity, "site1"), hostile(rng, sample, key))
                    with pytest.raises(Exception, match="maximum payload"):
                        await mallory.nc.publish(wire.answer_subject(identity, "site1"), b"x" * (3 << 20))
                    await mallory.nc.flush()

                    def got() -> float:
                        kinds = (
                            "rejected",
                            "unsigned",
                            "foreign",
                            "ignored",
                            "rejected_hellos",
                            "counted",
                            "duplicate",
                            "late",
                            "forked",
                        )
                        return sum(coordinator.metrics.value(kind, client="site1") for kind in kinds)

                    await until(lambda: got() >= 3_500)
                assert not work.done()
                assert "site1" in coordinator.core.intake.quarantined
                Control(federation.directory.path / "control").request("readmit", "site1")
                await until(lambda: not coordinator.core.intake.quarantined)
                async with tasks(federation.client("site1").run()):
                    assert await asyncio.wait_for(work, PATIENCE) == "finished"
        return [event.text for event in run.journal.events()]

    with caplog.at_level(logging.DEBUG, logger="privatile"):
        events = asyncio.run(scene())
    assert len(events) < 40  # a flood does not fill the disk
    logged = " ".join(events) + " ".join(
        str(getattr(record, "facts", "")) + record.getMessage() for record in caplog.records
    )
    assert MARK not in logged


def test_hostile_questions_cost_no_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    study = make_study(1, rounds=5)
    federation = Federation(tmp_path, study)
    key = federation.directory.key()
    client = federation.client("site0")
    good = RoundQuestions.of(study.digest, {"site0": (Question(study.run, 1, 0.5, 50.0, 4),)}).pack(key)
    rng = random.Random(3)

    with caplog.at_level(logging.DEBUG, logger="privatile"):
        for _ in range(3_000):
            signer = rng.choice([key, KeyPair.generate()]) if rng.random() < 0.05 else key
            payload = hostile(rng, good, signer)
            if payload.rpartition(b"\n")[0] != good.rpartition(b"\n")[0]:
                reply(client.core, payload)
    assert client.metrics.value("refused") > 2_000
    assert client.core.failure is None
    # A changed but well-formed question, signed by the coordinator, may be answered; every record still answers once.
    with client.core.responder.ledger as ledger:
        spans = ledger.execute("SELECT start, stop FROM answers ORDER BY start").fetchall()
    assert sum(stop - start for start, stop in spans) <= 20
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))
    assert MARK not in caplog.text


def test_a_capture_of_an_earlier_run_is_refused(tmp_path: Path) -> None:
    """The same sites with the same keys in a second study: messages of the first study are refused."""
    first = Federation(tmp_path / "first", make_study(2, rounds=4))
    captured: list[tuple[str, bytes]] = []
    original = type(first).coordinator

    async def record() -> None:
        run = first.open_run()
        async with first.running_broker():
            coordinator = original(first, run)
            take = coordinator.core.take

            def hear(client: str, payload: bytes, **options: Any) -> Any:
                captured.append((client, payload))
                return take(client, payload, **options)

            coordinator.core.take = hear  # type: ignore[method-assign]
            await asyncio.gather(coordinator.run(), *(first.client(name).run() for name in first.study.clients))

    asyncio.run(record())
    assert len(captured) >= 8
    second = make_study(2, rounds=4, identity=first.study.identity, title="Another study")
    signers = {name: site.key().public.signer for name, site in first.sites.items()}
    questions = {name: (Question(second.run, 1, 0.5, 50.0, 4),) for name in second.clients}
    for client, payload in captured:
        intake = AnswerIntake(second.digest, signers)
        intake.open(questions)
        verdict = intake.offer(client, payload)
        assert verdict.outcome == "foreign"
        assert "another study" in verdict.reason
    same_study = {name: (Question(first.study.run, 3, 0.5, 50.0, 4),) for name in second.clients}
    outcomes = []
    for client, payload in captured:
        intake = AnswerIntake(first.study.digest, signers)
        intake.open(same_study)
        outcomes.append(intake.offer(client, payload).outcome)
    assert outcomes.count("late") >= 4  # rounds 1 and 2 of the same run, sent again, do not count
