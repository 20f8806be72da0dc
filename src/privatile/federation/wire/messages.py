"""What crosses the wire, exactly: five kinds of message, each one line of JSON and one line of signature.

    payload = body "\\n" signature      body: JSON, keys sorted, no blanks      signature: Ed25519, base64

A receiver checks size, then signature, then form, in this order: nothing unsigned is ever parsed. `docs/wire.md` lists
every field; a test holds the two together.

    ask      coordinator -> all clients     a round's questions
    notice   coordinator -> all clients     finished, stopped, paused or aborted: nothing to answer now
    welcome  coordinator -> one client      the last link of the client's ledger that the coordinator has seen
    hello    client -> coordinator          "I am here", with the last link of the ledger
    answer   client -> coordinator          counts, with the ledger's link behind them
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

from privatile.core.messages import LARGEST_LENGTH, Answer, Question
from privatile.errors import ProtocolError
from privatile.federation.wire.keys import KeyPair, verify

LARGEST_ASK = 1 << 20
"""A round's questions for 30,000 clients of unequal sizes still fit."""

LARGEST_ANSWER = 4096
"""Anything longer from a client is refused unread."""

MOST_LEVELS = 50
"""Levels asked in one round: a count takes up to 58 bytes beside its answer's other 450, and 62 would still fit."""

_ABSENT: Any = object()
_HEX64 = re.compile(r"[0-9a-f]{64}")
_HEX32 = re.compile(r"[0-9a-f]{32}")


def _fail(field: str, rule: str) -> ProtocolError:
    return ProtocolError(f"{field} must be {rule}.")


def _check_hex(field: str, value: object, pattern: re.Pattern[str]) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _fail(field, "lower-case hexadecimal of the right length")


def _check_count(field: str, value: object, low: int = 0) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= LARGEST_LENGTH:
        raise _fail(field, f"a whole number from {low}")


def _check_text(field: str, value: object, longest: int = 500) -> None:
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise _fail(field, f"a printable text of at most {longest} characters")


@dataclass(frozen=True)
class Link:
    """Where a ledger stands: the number of its last entry and that entry's hash."""

    sequence: int
    hash: str

    def __post_init__(self) -> None:
        _check_count("sequence", self.sequence)
        _check_hex("hash", self.hash, _HEX32)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"sequence": self.sequence, "hash": self.hash}

    @classmethod
    def from_dict(cls, fields: object) -> Link:
        """Read what `to_dict` wrote."""
        if not isinstance(fields, dict) or set(fields) != {"sequence", "hash"}:
            raise ProtocolError("a ledger's link has exactly the fields hash and sequence.")
        return cls(fields["sequence"], fields["hash"])


@dataclass(frozen=True)
class _Signed:
    kind: ClassVar[str]
    study: str

    def _body(self) -> dict[str, Any]:
        raise TypeError("a message has a kind")

    @classmethod
    def _from_body(cls, study: str, fields: dict[str, Any]) -> Self:
        raise TypeError("a message has a kind")

    def text(self) -> bytes:
        """The body's bytes: what is signed."""
        fields = {"kind": self.kind, "study": self.study, **self._body()}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    def pack(self, key: KeyPair) -> bytes:
        """The signed payload."""
        body = self.text()
        return body + b"\n" + base64.b64encode(key.sign(body))


Shared = float | int | None
ByClient = tuple[tuple[str, Shared], ...]
"""A field's values where the clients' differ, sorted by name."""


class Entry(NamedTuple):
    """One level of a round's questions. A field holds one value for all clients, or one each where they differ."""

    level: Shared | ByClient
    query: float
    length: Shared | ByClient
    step: Shared | ByClient


def _gather(values: dict[str, Shared]) -> Shared | ByClient:
    first = next(iter(values.values()))
    return first if all(value == first for value in values.values()) else tuple(sorted(values.items()))


def _to_json(value: Shared | ByClient) -> Any:
    return dict(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class AskMessage(_Signed):
    """A round's questions, for all clients at once.

    >>> key = KeyPair.generate()
    >>> one, two = Question("r", 1, 0.5, 10.0, 5), Question("r", 1, 0.5, 10.0, 7)
    >>> sent = AskMessage.of("0" * 64, {"north": (one,), "south": (two,)})
    >>> message = read_message(sent.pack(key), key.public.signer, LARGEST_ASK)
    >>> message == sent, message.questions("south") == (two,), message.questions("west")
    (True, True, ())
    """

    kind: ClassVar[str] = "ask"
    run: str
    round: int
    entries: tuple[Entry, ...]
    """One a level."""

    @classmethod
    def of(cls, study: str, questions: Mapping[str, Sequence[Question]]) -> AskMessage:
        """From one tuple of questions a client; all share run, round and, level by level, the query."""
        first = next(iter(questions.values()))
        entries = []
        for place, head in enumerate(first):
            level, length, step = (
                _gather({client: getattr(asked[place], field) for client, asked in questions.items()})
                for field in ("level", "length", "step")
            )
            entries.append(Entry(level, head.query, length, step))
        message = cls(study, first[0].run, first[0].round, tuple(entries))
        for client, asked in questions.items():
            if message.questions(client) != tuple(asked):
                raise ProtocolError(f"the questions to client {client} belong to another run, round or query.")
        return message

    @cached_property
    def _tables(self) -> list[tuple[Any, float, Any, Any]]:
        return [(_to_json(one.level), one.query, _to_json(one.length), _to_json(one.step)) for one in self.entries]

    def questions(self, client: str) -> tuple[Question, ...]:
        """What this client is asked; empty when the round does not ask it."""
        found = []
        for level, query, length, step in self._tables:
            own = [value.get(client, _ABSENT) if isinstance(value, dict) else value for value in (level, length, step)]
            if _ABSENT in own:
                return ()
            found.append(Question(self.run, self.round, own[0], query, own[1], own[2]))
        return tuple(found)

    def _body(self) -> dict[str, Any]:
        asks = [
            {"level": level, "query": query, "length": length, "step": step}
            for level, query, length, step in self._tables
        ]
        return {"run": self.run, "round": self.round, "asks": asks}

    @classmethod
    def _from_body(cls, study: str, fields: dict[str, Any]) -> AskMessage:
        if set(fields) != {"run", "round", "asks"} or not isinstance(fields["asks"], list):
            raise ProtocolError("an ask has exactly the fields asks, kind, round, run and study.")
        if not 1 <= len(fields["asks"]) <= MOST_LEVELS:
            raise _fail("asks", f"a list of 1 to {MOST_LEVELS} entries")
        entries = []
        for entry in fields["asks"]:
            if not isinstance(entry, dict) or set(entry) != {"level", "query", "length", "step"}:
                raise ProtocolError("an entry of asks has exactly the fields length, level, query and step.")
            shared: dict[str, Any] = {}
            sample = {}
            for field in ("level", "length", "step"):
                value = entry[field]
                if isinstance(value, dict):
                    if not value or not all(isinstance(one, int | float) for one in value.values()):
                        raise _fail(field, "a number, or numbers by client")
                    shared[field] = tuple(sorted(value.items()))
                    sample[field] = next(iter(value.values()))
                else:
                    shared[field] = sample[field] = value
            # Question holds the rules for all these fields; a client's own values meet them in `questions`.
            asked = Question(fields["run"], fields["round"], query=entry["query"], **sample)
            entries.append(Entry(shared["level"], asked.query, shared["length"], shared["step"]))
        return cls(study, fields["run"], fields["round"], tuple(entries))


@dataclass(frozen=True)
class Notice(_Signed):
    """Nothing to answer now, and why."""

    kind: ClassVar[str] = "notice"
    STATES: ClassVar[tuple[str, ...]] = ("stopped", "paused", "finished", "aborted")
    run: str
    state: str
    reason: str

    def __post_init__(self) -> None:
        _check_text("run", self.run, 200)
        _check_text("reason", self.reason)
        if self.state not in self.STATES:
            raise _fail("state", f"one of {', '.join(self.STATES)}")

    def _body(self) -> dict[str, Any]:
        return {"run": self.run, "state": self.state, "reason": self.reason}

    @classmethod
    def _from_body(cls, study: str, fields: dict[str, Any]) -> Notice:
        if set(fields) != {"run", "state", "reason"}:
            raise ProtocolError("a notice has exactly the fields kind, reason, run, state and study.")
        return cls(study, fields["run"], fields["state"], fields["reason"])


@dataclass(frozen=True)
class Hello(_Signed):
    """A client is there. `instance` is drawn at its start: two live holders of one key show different ones.

    `restored` is the link that the site knows its ledger to have lost, after it has marked the records behind it as
    spent; none otherwise.
    """

    kind: ClassVar[str] = "hello"
    client: str
    instance: str
    ledger: Link
    restored: Link | None = None

    def __post_init__(self) -> None:
        _check_text("client", self.client, 40)
        _check_hex("instance", self.instance, _HEX32)

    def _body(self) -> dict[str, Any]:
        return {
            "client": self.client,
            "instance": self.instance,
            "ledger": self.ledger.to_dict(),
            "restored": None if self.restored is None else self.restored.to_dict(),
        }

    @classmethod
    def _from_body(cls, study: str, fields: dict[str, Any]) -> Hello:
        if set(fields) != {"client", "instance", "ledger", "restored"}:
            raise ProtocolError("a hello has exactly the fields client, instance, kind, ledger, restored and study.")
        restored = None if fields["restored"] is None else Link.from_dict(fields["restored"])
        return cls(study, fields["client"], fields["instance"], Link.from_dict(fields["ledger"]), restored)


@dataclass(frozen=True)
class Welcome(_Signed):
    """The coordinator's reply to one hello: the last link it has seen, the last round it has asked, and how many of
    the client's records all rounds up to that one asked for.

    `refusal` is empty, or says why this client may not go on.
    """

    kind: ClassVar[str] = "welcome"
    client: str
    instance: str
    ledger: Link | None
    round: int
    records: int
    refusal: str

    def __post_init__(self) -> None:
        _check_text("client", self.client, 40)
        _check_hex("instance", self.instance, _HEX32)
        _check_count("round", self.round)
        _check_count("records", self.records)
        _check_text("refusal", self.refusal)

    def _body(self) -> dict[str, Any]:
        return {
            "client": self.client,
            "instance": self.instance,
            "ledger": None if self.ledger is None else self.ledger.to_dict(),
            "round": self.round,
            "records": self.records,
            "refusal": self.refusal,
        }

    @classmethod
    def _from_body(cls, study: str, fields: dict[str, Any]) -> Welcome:
        if set(fields) != {"client", "instance", "ledger", "round", "records", "refusal"}:
            raise ProtocolError(
                "a welcome has exactly the fields client, instance, kind, ledger, records, refusal, round and study."
            )
        link = None if fields["ledger"] is None else Link.from_dict(fields["ledger"])
        return cls(
            study, fields["client"], fields["instance"], link, fields["round"], fields["records"], fields["refusal"]
        )


@dataclass(frozen=True)
class AnswerMessage(_Signed):
    """One client's counts of one round, one a level, and the ledger's link behind them."""

    kind: ClassVar[str] = "answer"
    answers: tuple[Answer, ...]
    ledger: Link

    def __post_init__(self) -> None:
        if len({(answer.run, answer.round, answer.client) for answer in self.answers}) != 1:
            raise ProtocolError("the counts of one answer belong to one run, round and client.")

    @property
    def client(self) -> str:
        """Who answers."""
        return self.answers[0].client

    @property
    def run(self) -> str:
        """Which run is answered."""
        return self.answers[0].run

    @property
    def round(self) -> int:
        """Which round is answered."""
        return self.answers[0].round

    def _body(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "round": self.round,
            "client": self.client,
            "counts": [{"level": answer.level, "ones": answer.ones} for answer in self.answers],
            "ledger": self.ledger.to_dict(),
        }

    @classmethod
    def _from_body(cls, study: str, fields: dict[str, Any]) -> AnswerMessage:
        if set(fields) != {"run", "round", "client", "counts", "ledger"}:
            raise ProtocolError("an answer has exactly the fields client, counts, kind, ledger, round, run and study.")
        counts = fields["counts"]
        if not isinstance(counts, list) or not 1 <= len(counts) <= MOST_LEVELS:
            raise _fail("counts", f"a list of 1 to {MOST_LEVELS} entries")
        answers = []
        for entry in counts:
            if not isinstance(entry, dict) or set(entry) != {"level", "ones"}:
                raise ProtocolError("an entry of counts has exactly the fields level and ones.")
            answers.append(Answer(fields["run"], fields["round"], fields["client"], entry["level"], entry["ones"]))
        return cls(study, tuple(answers), Link.from_dict(fields["ledger"]))


Message = AskMessage | Notice | Hello | Welcome | AnswerMessage
_KINDS: dict[str, type[AskMessage] | type[Notice] | type[Hello] | type[Welcome] | type[AnswerMessage]] = {
    kind.kind: kind for kind in (AskMessage, Notice, Hello, Welcome, AnswerMessage)
}


def unquoted(error: ProtocolError) -> str:
    """The rule that was broken, without what was got: a hostile message must not reach a log by its own error.

    >>> unquoted(ProtocolError("ones must be a whole number from 0 to 50; got 53."))
    'ones must be a whole number from 0 to 50.'
    """
    head, got, _ = str(error).partition("; got")
    return f"{head}." if got else head


def read_message(payload: bytes, signer: str, largest: int) -> Message:
    """Check size, signature and form, in this order; every failure is a ProtocolError that quotes nothing."""
    if len(payload) > largest:
        raise ProtocolError(f"a message here has at most {largest} bytes; got {len(payload)}.")
    body, separator, tail = payload.rpartition(b"\n")
    if not separator:
        raise ProtocolError("a message is one line of JSON and one line of signature; this is not.")
    try:
        signature = base64.b64decode(tail, validate=True)
    except (binascii.Error, ValueError):
        raise ProtocolError("the signature is not base64.") from None
    if not verify(signer, body, signature):
        raise ProtocolError("the signature is not that of the expected signer.")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolError("the body is not JSON.") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("kind"), str) or fields["kind"] not in _KINDS:
        raise ProtocolError("the body is not a message of a known kind.")
    kind = _KINDS[fields.pop("kind")]
    study = fields.pop("study", None)
    _check_hex("study", study, _HEX64)
    try:
        return kind._from_body(str(study), fields)
    except ProtocolError as error:
        raise ProtocolError(unquoted(error)) from None
