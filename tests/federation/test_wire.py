"""What crosses the wire is what docs/wire.md lists: every message of a recorded run, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from pathlib import Path
from typing import Any, NoReturn

import jsonschema
import pytest

from privatile.core.messages import Position, Question
from privatile.errors import NotSigned, ProtocolError
from privatile.federation import wire as wire
from privatile.federation.connection import Msg, connected
from privatile.federation.wire import Hello, LevelCount, Notice, RoundAnswers, RoundQuestions, Welcome, read_message
from privatile.records.keys import KeyPair, verify
from tests.federation.kit import PATIENCE, REPOSITORY, Federation, make_study, tasks, until
from tests.federation.mutations import DROPPED, places, with_a_key_twice, with_value

LINK = Position(3, bytes.fromhex("ab") * 16)
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


@pytest.mark.network
@pytest.mark.parametrize(("mode", "levels"), [("local", (0.5,)), ("cohort", (0.1, 0.5, 0.9))])
def test_every_message_of_a_run_is_in_the_schema(tmp_path: Path, mode: str, levels: tuple[float, ...]) -> None:
    study = make_study(2, rounds=100, length=3, mode=mode, levels=levels, quorum=2)
    federation = Federation(tmp_path, study)
    files = federation.directory.broker_files
    configuration = json.loads(files.configuration.read_text().partition("\n")[2])
    taps = [KeyPair.generate() for _ in configuration["accounts"]]
    for tap, account in zip(taps, configuration["accounts"].values(), strict=True):
        account["users"].append({"nkey": tap.public.login, "permissions": {"subscribe": [">"]}})
    files.configuration.write_text(json.dumps(configuration))
    recorded: list[tuple[str, bytes, Any]] = []

    async def scene() -> None:
        async def record(message: Msg) -> None:
            recorded.append((message.subject, message.data, message.headers))

        authority = federation.directory.authority.read_text()
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(federation.running_broker())
            connections = [
                await stack.enter_async_context(connected("tap", [federation.settings.url], tap, authority))
                for tap in taps
            ]
            for connection in connections:
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
            for connection in connections:
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
        if headers is not None:  # the broker's own, on what crosses from a client's account
            (information,) = headers.items()
            assert information[0] == "Nats-Request-Info"
            assert set(json.loads(information[1])) <= {"acc", "rtt"}
            assert json.loads(information[1])["acc"] == f"client_{found.group(1)}"
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
    # Negative control: the same check refuses messages that are not in the schema.
    for spoiled in ({"kind": "answer"}, {**fields, "age": 41}, {**fields, "kind": "gossip"}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(spoiled)


def test_the_schema_has_the_fields_of_the_decoder() -> None:
    written = {kind["properties"]["kind"]["const"]: set(kind["properties"]) for kind in schema()["oneOf"]}
    kinds = (RoundQuestions, Notice, Hello, Welcome, RoundAnswers)
    assert written == {str(kind.__struct_config__.tag): {"kind", *kind.__struct_fields__} for kind in kinds}


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
        elif subject.startswith(("_INBOX_coordinator.", "_INBOX_site0.", "_INBOX_site1.", "_R_.")):
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
        read_message(payload, coordinator, wire.MAX_ASK)


ONE, TWO = Question("r", 1, 0.5, 10.0, 5), Question("r", 1, 0.5, 10.0, 7)
LOCAL = {"a": (Question("r", 2, 0.25, 1e16, 5, 0.5),), "b": (Question("r", 2, 0.75, 1e16, 5, 1e-7),)}
LEDGER = '"ledger":[3,"q6urq6urq6urq6urq6urqw=="]'
SAMPLES: list[tuple[wire.Message, str]] = [
    (
        RoundQuestions.of(STUDY, {"b": (TWO,), "a": (ONE,)}),
        '{"asks":[{"length":{"a":5,"b":7},"level":0.5,"query":10.0,"step":null}],"kind":"ask","round":1,"run":"r",'
        f'"study":"{STUDY}"}}',
    ),
    (
        RoundQuestions.of(STUDY, {"a": (ONE,)}),
        '{"asks":[{"length":5,"level":0.5,"query":10.0,"step":null}],"kind":"ask","round":1,"run":"r",'
        f'"study":"{STUDY}"}}',
    ),
    (
        RoundQuestions.of(STUDY, LOCAL),
        '{"asks":[{"length":5,"level":{"a":0.25,"b":0.75},"query":1e+16,"step":{"a":0.5,"b":1e-07}}],"kind":"ask",'
        f'"round":2,"run":"r","study":"{STUDY}"}}',
    ),
    (
        Notice(STUDY, "r", "paused", "Löhne"),
        f'{{"kind":"notice","reason":"L\\u00f6hne","run":"r","state":"paused","study":"{STUDY}"}}',
    ),
    (
        Hello(STUDY, "a", "1" * 32, LINK, None, "2" * 32, None),
        f'{{"client":"a","echo":null,"instance":"{"1" * 32}","kind":"hello",{LEDGER},"nonce":"{"2" * 32}",'
        f'"restored":null,"study":"{STUDY}"}}',
    ),
    (
        Hello(STUDY, "a", "1" * 32, LINK, LINK, "2" * 32, "3" * 32),
        f'{{"client":"a","echo":"{"3" * 32}","instance":"{"1" * 32}","kind":"hello",{LEDGER},"nonce":"{"2" * 32}",'
        f'{LEDGER.replace("ledger", "restored")},"study":"{STUDY}"}}',
    ),
    (
        Welcome(STUDY, "a", "1" * 32, None, 0, 0, "", "3" * 32, "2" * 32),
        f'{{"client":"a","echo":"{"2" * 32}","instance":"{"1" * 32}","kind":"welcome","ledger":null,'
        f'"nonce":"{"3" * 32}","records":0,"refusal":"","round":0,"study":"{STUDY}"}}',
    ),
    (
        Welcome(STUDY, "a", "1" * 32, LINK, 4, 40, "no", "3" * 32, "2" * 32),
        f'{{"client":"a","echo":"{"2" * 32}","instance":"{"1" * 32}","kind":"welcome",{LEDGER},'
        f'"nonce":"{"3" * 32}","records":40,"refusal":"no","round":4,"study":"{STUDY}"}}',
    ),
    (
        RoundAnswers(STUDY, "r", 1, "a", "1" * 64, (LevelCount(7, 3), LevelCount(8, 1)), LINK),
        f'{{"client":"a","counts":[{{"length":7,"ones":3}},{{"length":8,"ones":1}}],"kind":"answer",{LEDGER},'
        f'"question":"{"1" * 64}","round":1,"run":"r","study":"{STUDY}"}}',
    ),
]
KEY = KeyPair.generate()
every_sample = pytest.mark.parametrize(("message", "text"), SAMPLES, ids=lambda value: getattr(value, "kind", ""))


def read_signed(body: str | bytes) -> wire.Message:
    body = body if isinstance(body, bytes) else body.encode()
    return read_message(body + b"\n" + base64.b64encode(KEY.sign(body)), KEY.public.signer, wire.MAX_ASK)


@every_sample
def test_messages_read_back_as_sent(message: wire.Message, text: str) -> None:
    payload = message.pack(KEY)
    assert payload.rpartition(b"\n")[0].decode() == text  # signatures of earlier versions hold for these bytes
    assert read_message(payload, KEY.public.signer, wire.MAX_ASK) == message
    with pytest.raises(ProtocolError, match="expected signer"):
        read_message(payload, KeyPair.generate().public.signer, wire.MAX_ASK)
    with pytest.raises(ProtocolError, match="at most"):
        read_message(payload, KEY.public.signer, len(payload) - 1)


NEVER: list[Any] = [[], {}, True, False, float("inf"), float("nan"), [[[]]], "\x00", "a\n", "x" * 501, "\u2028"]
NEVER += [{"a": True}, {"a": None}, {"a": {}}, {"a": "1"}, {"x.y": 0.5}, {"": 1}, {"a": -1}, [{"level": 0.5}]]
NEVER += [{"sequence": True, "hash": "ab" * 16}, {"sequence": 1, "hash": "AB" * 16}]
NEVER += [[{"level": 0.5, "ones": 3}] * 51, [{"level": 0.5, "ones": 3.0}], [{"level": 0.5, "ones": True}]]
"""What no field of any message may hold."""


@every_sample
def test_a_signed_message_with_a_field_more_or_less_or_wrong_is_refused(message: wire.Message, text: str) -> None:
    fields = json.loads(text)
    assert read_signed(with_value(text, ("study",), fields["study"])) == message  # the form alone refuses nothing
    with pytest.raises(ProtocolError, match="sorted keys"):  # signed by its client, and not the text that is checked
        read_signed(json.dumps(fields, indent=1))
    for twice in with_a_key_twice(text):
        with pytest.raises(ProtocolError, match="sorted keys"):
            read_signed(twice)
    for path in places(fields):
        bodies = [with_value(text, path, value) for value in NEVER]
        if isinstance(path[-1], str):
            bodies.append(with_value(text, (*path[:-1], "sold to"), 1))
            if path[-1] not in ("a", "b"):  # a client may be left out
                bodies.append(with_value(text, path, DROPPED))
        for body in bodies:
            with pytest.raises(ProtocolError) as caught:
                read_signed(body)
            assert not any(quoted in str(caught.value) for quoted in ("xxx", "sold to"))


@pytest.mark.parametrize(
    ("kind", "path", "values"),
    [
        ("ask", ("round",), (0, -1, 1.0, "1", 1 << 54, 10**400, None)),
        ("ask", ("run",), ("", "r" * 201, 1, None)),
        ("ask", ("study",), ("0" * 63, "AB" * 32, STUDY + "\n", 0)),
        ("ask", ("kind",), ("gossip", "answer", 1, None)),
        ("ask", ("asks", 0, "level"), (0, 1, 0.0, 1.0, -0.5, "0.5", None, {"a": 0.5, "b": 1.5})),
        ("ask", ("asks", 0, "query"), ("10", None, 10**400, {"a": 1.0})),
        ("ask", ("asks", 0, "length"), (0, -1, 5.0, 1 << 54, None, {"a": 5, "b": 0})),
        ("ask", ("asks", 0, "step"), (0, 0.0, -1, "1", 10**400)),
        ("notice", ("state",), ("asleep", "", 1, None)),
        ("notice", ("reason",), (None, 1, "tab\there")),
        ("hello", ("client",), ("", "a.b", "*", "a b", "é", "a" * 41, None)),
        ("hello", ("instance",), ("1" * 31, "1" * 33, "G" * 32, None)),
        ("hello", ("ledger",), (None, 1, {"sequence": 1}, [3], [3, "AAAA"])),
        ("hello", ("ledger", 0), (-1, 1.0, 1 << 54, None)),
        ("welcome", ("round",), (-1, 0.0, None)),
        ("welcome", ("records",), (-1, 1 << 54, None)),
        ("welcome", ("refusal",), (None, 0)),
        ("answer", ("round",), (0, 10**30)),
        ("answer", ("client",), ("a.b", "a" * 41)),
        ("answer", ("counts", 0, "ones"), (-1, 1 << 54, 10**30, 3.0, "3", None)),
        ("answer", ("counts", 0, "length"), (0, -1, 0.5, 1 << 54, None)),
        ("answer", ("question",), (None, "", "0" * 63, "AB" * 32, 0)),
        ("answer", ("ledger",), (None,)),
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(kind: str, path: tuple[str | int, ...], values: tuple[Any, ...]) -> None:
    text = next(text for message, text in SAMPLES if message.__struct_config__.tag == kind)
    for value in values:
        with pytest.raises(ProtocolError):
            read_signed(with_value(text, path, value))


@pytest.mark.parametrize("body", ["", "null", "0", '"x"', "[]", "{}", '{"kind":"answer"}', "[" * 3000, '{"a":' * 3000])
def test_a_body_that_is_no_message_is_refused(body: str) -> None:
    with pytest.raises(ProtocolError):
        read_signed(body)
    with pytest.raises(ProtocolError):
        read_signed(b"\xff\xfe" + body.encode())


INJECTED = [
    "x` - at `$.\n12:00:00 warning finished  reason=all is well client=north #",
    "x` - at `$.all_is_well",
    "\x1b[2Jall_is_well",
    "all_is_well\u2028",
]


@pytest.mark.parametrize("text", INJECTED)
def test_a_refused_message_writes_nothing_of_its_own_into_the_reason(text: str) -> None:
    link = [3, "A" * 22 + "=="]
    hello = {"kind": "hello", "study": STUDY, "client": "a", "instance": "1" * 32, "ledger": link, "restored": None}
    notice = {"kind": "notice", "study": STUDY, "run": "r", "state": text, "reason": ""}
    ask = {"kind": "ask", "study": STUDY, "run": "r", "round": 1}
    step = {"level": 0.5, "query": 1.0, "length": 1, "step": {text: 1.0}}
    bodies = [{**hello, text: 1}, {**hello, "kind": text}, {**hello, "ledger": [*link, text]}, notice]
    bodies += [{**hello, "client": text}, {**ask, "asks": [step]}]
    for body in bodies:
        with pytest.raises(ProtocolError) as caught:
            read_signed(json.dumps(body))
        assert str(caught.value).isprintable()
        assert not any(word in str(caught.value) for word in ("well", "finished", "x`"))
    with pytest.raises(ProtocolError, match=r"^ledger\[0\]: expected `int` >= 0\. It is signed by the right key"):
        read_signed(json.dumps({**hello, "ledger": [-1, link[1]]}))


def test_nothing_is_done_with_a_message_that_is_too_large() -> None:
    class Sealed(bytes):
        def rpartition(self, *_: object) -> NoReturn:
            raise AssertionError("somebody looks inside")

    payload = SAMPLES[0][0].pack(KEY)
    with pytest.raises(NotSigned, match="at most"):
        read_message(Sealed(payload), KEY.public.signer, len(payload) - 1)
    with pytest.raises(AssertionError, match="looks inside"):  # the control
        read_message(Sealed(payload), KEY.public.signer, len(payload))


@pytest.mark.parametrize("body", [b"", b"{", b'{"kind":"answer"}', SAMPLES[0][1].encode() + b" "])
def test_a_message_without_its_signature_is_never_malformed(body: bytes) -> None:
    """Whoever is named by what anybody may have sent must not be blamed for its form."""
    stranger = KeyPair.generate()
    for tail in (base64.b64encode(stranger.sign(body)), b"", b"*", b"A" * 86 + b"=="):
        with pytest.raises(ProtocolError) as caught:
            read_message(body + b"\n" + tail, KEY.public.signer, wire.MAX_ASK)
        assert isinstance(caught.value, NotSigned)
    with pytest.raises(ProtocolError) as caught:  # the control
        read_signed(body)
    assert not isinstance(caught.value, NotSigned)


@every_sample
def test_a_signature_has_one_text(message: wire.Message, text: str) -> None:
    """Digests of payloads are over it too: with several texts one answer would be several."""
    body, _, tail = message.pack(KEY).rpartition(b"\n")
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    same = [tail[:-3] + bytes([last]) + tail[-2:] for last in letters]  # four bits of the last letter are not used
    same = [one for one in same if base64.b64decode(one) == base64.b64decode(tail)]
    assert len(same) == 16
    for other in (
        *set(same) - {tail},
        tail.rstrip(b"="),
        tail + b"=",
        b" " + tail,
        tail + b"\r",
        tail[:8] + b" " + tail[8:],
    ):
        with pytest.raises(ProtocolError):
            read_message(body + b"\n" + other, KEY.public.signer, wire.MAX_ASK)
    assert read_message(body + b"\n" + tail, KEY.public.signer, wire.MAX_ASK) == message


def test_a_message_that_breaks_a_rule_is_not_signed() -> None:
    for message in (Notice(STUDY, "r", "paused", "x" * 501), Hello(STUDY, "a", "1" * 31, LINK, None, "2" * 32, None)):
        with pytest.raises(ProtocolError, match="expected `str`"):
            message.pack(KEY)
    with pytest.raises(ProtocolError, match="printable"):
        Notice(STUDY, "r", "paused", "a\nb")


def test_an_ask_gives_each_client_its_own_question_and_strangers_none() -> None:
    one, two = Question("r", 1, 0.5, 10.0, 5, 0.2), Question("r", 1, 0.5, 10.0, 7, 0.1)
    message = RoundQuestions.of(STUDY, {"a": (one,), "b": (two,)})
    assert message.questions("a") == (one,)
    assert message.questions("b") == (two,)
    assert message.questions("c") == ()
    with pytest.raises(ProtocolError, match="another run, round or query"):
        RoundQuestions.of(STUDY, {"a": (one,), "b": (Question("r", 1, 0.5, 11.0, 5, 0.2),)})
