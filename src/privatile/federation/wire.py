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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from privatile.errors import ProtocolError
from privatile.federation.keys import KeyPair, verify
from privatile.protocol import LARGEST_LENGTH, Answer, Question

LARGEST_ASK = 1 << 20
"""A round's questions for 30,000 clients of unequal sizes still fit."""

LARGEST_ANSWER = 4096
"""Anything longer from a client is refused unread."""

_HEX64 = re.compile(r"[0-9a-f]{64}")
_HEX32 = re.compile(r"[0-9a-f]{32}")


def ask_subject(identity: str) -> str:
    """Where questions and notices are published; the last one is kept by the broker."""
    return f"privatile.{identity}.ask"


def answer_subject(identity: str, client: str) -> str:
    """Where one client, and no other, publishes its answers."""
    return f"privatile.{identity}.answer.{client}"


def hello_subject(identity: str, client: str) -> str:
    """Where one client says that it is there."""
    return f"privatile.{identity}.hello.{client}"


def welcome_subject(identity: str, client: str) -> str:
    """Where the coordinator replies to one client."""
    return f"privatile.{identity}.to.{client}"


def ask_stream(identity: str) -> str:
    """The stream that keeps the last question."""
    return f"PRIVATILE_{identity}_ASK"


def answer_stream(identity: str) -> str:
    """The stream that keeps the last answers of every client."""
    return f"PRIVATILE_{identity}_ANSWER"


def inbox_prefix(party: str) -> str:
    """Replies of the broker to one party; no other may listen there."""
    return f"_INBOX_{party}"


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
        _check_hex("hash", self.hash, _HEX64)

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

    def pack(self, key: KeyPair) -> bytes:
        """The signed payload."""
        fields = {"kind": self.kind, "study": self.study, **self._body()}
        body = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        return body + b"\n" + base64.b64encode(key.sign(body))


@dataclass(frozen=True)
class AskMessage(_Signed):
    """A round's questions, for all clients at once; lengths by client only where they differ.

    >>> key = KeyPair.generate()
    >>> one = Question("r", 1, 0.5, 10.0, 5)
    >>> sent = AskMessage.of("0" * 64, {"north": (one,), "south": (one,)})
    >>> message = read_message(sent.pack(key), key.public.signer, LARGEST_ASK)
    >>> message == sent, message.questions("north") == (one,), message.questions("west")
    (True, True, (Question(run='r', round=1, level=0.5, query=10.0, length=5, step=None),))
    """

    kind: ClassVar[str] = "ask"
    run: str
    round: int
    asks: tuple[tuple[float, float, float | None, int | tuple[tuple[str, int], ...]], ...]
    """(level, query, step, length or lengths by client), one entry a level."""

    @classmethod
    def of(cls, study: str, questions: Mapping[str, tuple[Question, ...]]) -> AskMessage:
        """From one tuple of questions a client; all share run, round and, level by level, query and step."""
        first = next(iter(questions.values()))
        asks = []
        for place, head in enumerate(first):
            lengths = {client: asked[place].length for client, asked in questions.items()}
            same = len(set(lengths.values())) == 1
            asks.append((head.level, head.query, head.step, head.length if same else tuple(sorted(lengths.items()))))
        message = cls(study, first[0].run, first[0].round, tuple(asks))
        for client, asked in questions.items():
            if message.questions(client) != asked:
                raise ProtocolError(f"the questions to client {client} differ from the others' in more than length.")
        return message

    def questions(self, client: str) -> tuple[Question, ...]:
        """What this client is asked; empty when the round does not ask it."""
        found = []
        for level, query, step, length in self.asks:
            own = length if isinstance(length, int) else dict(length).get(client)
            if own is None:
                return ()
            found.append(Question(self.run, self.round, level, query, own, step))
        return tuple(found)

    def _body(self) -> dict[str, Any]:
        asks = [
            {
                "level": level,
                "query": query,
                "step": step,
                "length": length if isinstance(length, int) else dict(length),
            }
            for level, query, step, length in self.asks
        ]
        return {"run": self.run, "round": self.round, "asks": asks}

    @classmethod
    def _from_body(cls, study: str, fields: dict[str, Any]) -> AskMessage:
        if set(fields) != {"run", "round", "asks"} or not isinstance(fields["asks"], list) or not fields["asks"]:
            raise ProtocolError("an ask has exactly the fields asks, kind, round, run and study.")
        asks = []
        for entry in fields["asks"]:
            if not isinstance(entry, dict) or set(entry) != {"level", "query", "step", "length"}:
                raise ProtocolError("an entry of asks has exactly the fields length, level, query and step.")
            length = entry["length"]
            if isinstance(length, dict):
                for client, own in length.items():
                    _check_text("client", client, 40)
                    _check_count("length", own, 1)
                lengths: int | tuple[tuple[str, int], ...] = tuple(sorted(length.items()))
                sample: Any = next(iter(length.values()), None)
            else:
                sample = lengths = length
            # Question holds the rules for all these fields.
            asked = Question(fields["run"], fields["round"], entry["level"], entry["query"], sample, entry["step"])
            asks.append((asked.level, asked.query, asked.step, lengths))
        return cls(study, fields["run"], fields["round"], tuple(asks))


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
    """A client is there. `instance` is drawn at its start: two live holders of one key show different ones."""

    kind: ClassVar[str] = "hello"
    client: str
    instance: str
    ledger: Link

    def __post_init__(self) -> None:
        _check_text("client", self.client, 40)
        _check_hex("instance", self.instance, _HEX32)

    def _body(self) -> dict[str, Any]:
        return {"client": self.client, "instance": self.instance, "ledger": self.ledger.to_dict()}

    @classmethod
    def _from_body(cls, study: str, fields: dict[str, Any]) -> Hello:
        if set(fields) != {"client", "instance", "ledger"}:
            raise ProtocolError("a hello has exactly the fields client, instance, kind, ledger and study.")
        return cls(study, fields["client"], fields["instance"], Link.from_dict(fields["ledger"]))


@dataclass(frozen=True)
class Welcome(_Signed):
    """The coordinator's reply to one hello: the last link it has seen, and how many records that accounts for.

    `refusal` is empty, or says why this client may not go on.
    """

    kind: ClassVar[str] = "welcome"
    client: str
    instance: str
    ledger: Link | None
    records: int
    refusal: str

    def __post_init__(self) -> None:
        _check_text("client", self.client, 40)
        _check_hex("instance", self.instance, _HEX32)
        _check_count("records", self.records)
        _check_text("refusal", self.refusal)

    def _body(self) -> dict[str, Any]:
        return {
            "client": self.client,
            "instance": self.instance,
            "ledger": None if self.ledger is None else self.ledger.to_dict(),
            "records": self.records,
            "refusal": self.refusal,
        }

    @classmethod
    def _from_body(cls, study: str, fields: dict[str, Any]) -> Welcome:
        if set(fields) != {"client", "instance", "ledger", "records", "refusal"}:
            raise ProtocolError(
                "a welcome has exactly the fields client, instance, kind, ledger, records, refusal, study."
            )
        link = None if fields["ledger"] is None else Link.from_dict(fields["ledger"])
        return cls(study, fields["client"], fields["instance"], link, fields["records"], fields["refusal"])


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
        if not isinstance(counts, list) or not 1 <= len(counts) <= 100:
            raise _fail("counts", "a list of 1 to 100 entries")
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
    return kind._from_body(str(study), fields)
