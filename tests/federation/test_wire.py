"""What crosses the wire is what docs/wire.md lists: every message of a recorded run, and nothing beside them."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from privatile.core.messages import Answer, Question
from privatile.errors import ProtocolError
from privatile.federation.wire import messages as wire
from privatile.federation.wire.connection import Msg, connected
from privatile.federation.wire.keys import KeyPair, verify
from privatile.federation.wire.messages import AnswerMessage, AskMessage, Hello, Link, Notice, Welcome, read_message
from tests.federation.kit import PATIENCE, REPOSITORY, Federation, make_study, tasks, until

LINK = Link(3, "ab" * 16)
STUDY = "0" * 64


def schema() -> Any:
    text = (REPOSITORY / "docs" / "wire.md").read_text(encoding="utf-8")
    return json.loads(re.findall(r"```json\n(.*?)```", text, re.DOTALL)[-1])


def subjects(identity: str) -> dict[str, str]:
    """Subject pattern -> kinds of message it may carry, as docs/wire.md says."""
    return {
        rf"privatile\.{identity}\.ask": "ask notice",
        rf"privatile\.{identity}\.answer\.(site\d)": "answer",
        rf"privatile\.{identity}\.hello\.(site\d)": "hello",
        rf"privatile\.{identity}\.to\.(site\d)": "welcome",
    }


@pytest.mark.parametrize(("mode", "levels"), [("local", (0.5,)), ("cohort", (0.1, 0.5, 0.9))])
def test_every_message_of_a_run_is_in_the_schema(tmp_path: Path, mode: str, levels: tuple[float, ...]) -> None:
    study = make_study(2, rounds=100, length=3, mode=mode, levels=levels, quorum=2)
    federation = Federation(tmp_path, study)
    tap = KeyPair.generate()
    files = federation.directory.broker_files
    text = files.configuration.read_text()
    everything = f'users: [\n{{ nkey: {tap.public.login}, permissions: {{ subscribe: [">"] }} }},'
    files.configuration.write_text(text.replace("users: [", everything, 1))
    recorded: list[tuple[str, bytes, Any]] = []

    async def scene() -> None:
        async with (
            federation.running_broker(),
            connected("tap", [federation.settings.url], tap, federation.directory.authority.read_text()) as connection,
        ):

            async def record(message: Msg) -> None:
                recorded.append((message.subject, message.data, message.headers))

            await connection.nc.subscribe(">", cb=record)
            await connection.nc.flush()
            run = federation.open_run()
            first = federation.coordinator(run)
            services = [federation.client(name) for name in study.clients]
            async with tasks(*(one.run() for one in services)) as clients:
                stopped = asyncio.ensure_future(first.run())
                await until(lambda: run.coordinator.done >= 3)
                first.stop()
                await stopped
                assert await asyncio.wait_for(federation.coordinator(run).run(), PATIENCE) == "finished"
                await asyncio.wait_for(asyncio.gather(*clients), PATIENCE)
            await connection.nc.flush()

    asyncio.run(scene())
    validator = jsonschema.Draft202012Validator(schema())
    known = subjects(study.identity)
    signers = {name: site.key().public.signer for name, site in federation.sites.items()}
    coordinator = federation.directory.key().public.signer
    kinds: dict[str, int] = {}
    counts: set[int] = set()
    elsewhere = set()
    for subject, payload, headers in recorded:
        matches = [
            (found, kinds_here) for pattern, kinds_here in known.items() if (found := re.fullmatch(pattern, subject))
        ]
        if not matches:
            elsewhere.add((subject, payload, json.dumps(headers)))
            continue
        ((found, allowed),) = matches
        body, _, tail = payload.rpartition(b"\n")
        fields = json.loads(body)
        validator.validate(fields)
        assert fields["kind"] in allowed.split()
        assert headers is None
        kinds[fields["kind"]] = kinds.get(fields["kind"], 0) + 1
        if fields["kind"] in ("ask", "answer"):
            counts.add(len(fields["asks" if fields["kind"] == "ask" else "counts"]))
        own = fields["kind"] in ("hello", "answer")
        signer = signers[found.group(1)] if own else coordinator
        assert verify(signer, body, base64.b64decode(tail))
    assert set(kinds) == {"ask", "notice", "hello", "welcome", "answer"}
    assert kinds["answer"] >= 200
    assert counts == {len(levels)}
    check_elsewhere(elsewhere, study.identity, coordinator)
    # A check that could not fail would prove nothing.
    for spoiled in ({"kind": "answer"}, {**fields, "age": 41}, {**fields, "kind": "gossip"}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(spoiled)


def check_elsewhere(traffic: set[tuple[str, bytes, str]], identity: str, coordinator: str) -> None:
    """The broker's own interface: requests of two streams, its replies, kept questions; nothing of a record."""
    streams = f"PRIVATILE_{identity}_(ASK|ANSWER)"
    for subject, payload, _ in traffic:
        if re.fullmatch(rf"\$JS\.API\.STREAM\.(CREATE|UPDATE|INFO)\.{streams}", subject):
            assert set(json.loads(payload)) <= {
                *("name", "subjects", "retention", "storage", "discard", "max_bytes", "num_replicas", "allow_direct"),
                *("max_consumers", "max_msgs", "max_msgs_per_subject", "max_age", "max_msg_size", "duplicate_window"),
                *("sealed", "deny_delete", "deny_purge", "allow_rollup_hdrs", "mirror_direct", "compression", "no_ack"),
                *("discard_new_per_subject", "metadata", "allow_msg_ttl", "allow_msg_schedules", "allow_atomic"),
                *("allow_msg_counter", "allow_batched"),
            }, payload
        elif re.fullmatch(rf"\$JS\.API\.DIRECT\.GET\.{streams}\.privatile\.{identity}\..*", subject):
            assert payload == b""
        elif subject.startswith(("_INBOX_coordinator.", "_INBOX_site0.", "_INBOX_site1.")):
            if b"\n" in payload:  # a kept message, as it was published
                read_any(payload, coordinator)
            elif payload:
                assert "type" in json.loads(payload) or set(json.loads(payload)) <= {"stream", "seq", "domain"}
        else:
            assert subject.startswith("$JS.EVENT.ADVISORY."), subject


def read_any(payload: bytes, coordinator: str) -> None:
    body = json.loads(payload.rpartition(b"\n")[0])
    assert body["kind"] in ("ask", "notice", "answer")
    if body["kind"] != "answer":
        read_message(payload, coordinator, wire.LARGEST_ASK)


def samples() -> list[wire.Message]:
    one, two = Question("r", 1, 0.5, 10.0, 5), Question("r", 1, 0.5, 10.0, 7)
    link = Link(0, "0" * 32)
    return [
        AskMessage.of(STUDY, {"a": (one,), "b": (two,)}),
        AskMessage.of(STUDY, {"a": (one,)}),
        AskMessage.of(
            STUDY, {"a": (Question("r", 2, 0.25, 1.0, 5, 0.5),), "b": (Question("r", 2, 0.75, 1.0, 5, 0.1),)}
        ),
        Notice(STUDY, "r", "paused", "why"),
        Hello(STUDY, "a", "1" * 32, link),
        Hello(STUDY, "a", "1" * 32, link, LINK),
        Welcome(STUDY, "a", "1" * 32, None, 0, 0, ""),
        Welcome(STUDY, "a", "1" * 32, LINK, 4, 40, "no"),
        AnswerMessage(STUDY, (Answer("r", 1, "a", 0.5, 3), Answer("r", 1, "a", 0.75, 1)), LINK),
    ]


@pytest.mark.parametrize("message", samples(), ids=lambda message: message.kind)
def test_messages_read_back_as_sent(message: wire.Message) -> None:
    key = KeyPair.generate()
    payload = message.pack(key)
    assert read_message(payload, key.public.signer, wire.LARGEST_ASK) == message
    with pytest.raises(ProtocolError, match="expected signer"):
        read_message(payload, KeyPair.generate().public.signer, wire.LARGEST_ASK)
    with pytest.raises(ProtocolError, match="at most"):
        read_message(payload, key.public.signer, len(payload) - 1)


@pytest.mark.parametrize("message", samples(), ids=lambda message: message.kind)
def test_a_signed_message_with_a_field_more_or_less_is_refused(message: wire.Message) -> None:
    key = KeyPair.generate()
    fields = json.loads(message.pack(key).rpartition(b"\n")[0])

    def signed(changed: object) -> bytes:
        body = json.dumps(changed).encode()
        return body + b"\n" + base64.b64encode(key.sign(body))

    assert read_message(signed(fields), key.public.signer, wire.LARGEST_ASK) == message
    for missing in fields:
        with pytest.raises(ProtocolError):
            read_message(signed({k: v for k, v in fields.items() if k != missing}), key.public.signer, wire.LARGEST_ASK)
    with pytest.raises(ProtocolError):
        read_message(signed({**fields, "more": 1}), key.public.signer, wire.LARGEST_ASK)
    junk: Any
    for junk in ([], {}, -1, True, float("inf"), [[[]]], "\x00"):
        for field in fields:
            with pytest.raises(ProtocolError):
                read_message(signed({**fields, field: junk}), key.public.signer, wire.LARGEST_ASK)


def test_an_ask_gives_each_client_its_own_question_and_strangers_none() -> None:
    one, two = Question("r", 1, 0.5, 10.0, 5, 0.2), Question("r", 1, 0.5, 10.0, 7, 0.1)
    message = AskMessage.of(STUDY, {"a": (one,), "b": (two,)})
    assert message.questions("a") == (one,)
    assert message.questions("b") == (two,)
    assert message.questions("c") == ()
    with pytest.raises(ProtocolError, match="another run, round or query"):
        AskMessage.of(STUDY, {"a": (one,), "b": (Question("r", 1, 0.5, 11.0, 5, 0.2),)})
