r"""What crosses the wire: five kinds of message, each signed, and the subjects they are sent to; see `docs/wire.md`.

The broker's subjects and streams of one federation. `docs/wire.md` says who may use which.

The five kinds of message, each one line of JSON and one line of signature.

    payload = body "\n" signature      body: JSON, keys sorted, no blanks      signature: Ed25519, base64

A receiver checks size, then signature, then form, in this order: nothing unsigned is ever parsed. `docs/wire.md` lists
every field; a test compares the two.

    ask      coordinator -> all clients     a round's questions
    notice   coordinator -> all clients     finished, stopped, paused or aborted: nothing to answer now
    welcome  coordinator -> one client      the last link of the client's ledger that the coordinator has seen
    hello    client -> coordinator          "I am here", with the last link of the ledger
    answer   client -> coordinator          counts, what they answer, and the link of the ledger entry behind them
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from privatile.core.decoding import broken_rule
from privatile.core.messages import LARGEST_LENGTH, LARGEST_REAL, LONGEST_NAME, Answer, Position, Question
from privatile.core.text import canonical_json
from privatile.errors import NotSigned, ProtocolError
from privatile.records.keys import KeyPair, verify

NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""A client's name is one token of a subject: no dots, blanks or wildcards."""


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


MAX_ASK = 1 << 20
"""Bytes: a round's questions for 30,000 clients of unequal sizes still fit."""

MAX_ANSWER = 4096
"""Bytes: anything longer from a client is refused unread."""

MAX_LEVELS = 50
"""Levels asked in one round: a count takes up to 58 bytes beside its answer's other 530, and 61 would still fit."""

OTHER_PROGRAM = "It is signed by the right key, so its sender runs another version of privatile: use one version."
"""What a message that has the right signature and the wrong form means."""

State = Literal["stopped", "paused", "finished", "aborted"]
"""Why there is nothing to answer."""

_Kind = TypeVar("_Kind", bound="Body")

Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
_Hex32 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
ClientName = Annotated[str, Meta(pattern=rf"\A{NAME.pattern}\Z")]
RunName = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
ShortText = Annotated[str, Meta(max_length=500)]
Count = Annotated[int, Meta(ge=0, le=LARGEST_LENGTH)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST_LENGTH)]
_Level = Annotated[float, Meta(gt=0, lt=1)]
Step = Annotated[float, Meta(gt=0, le=LARGEST_REAL)]
Finite = Annotated[float, Meta(ge=-LARGEST_REAL, le=LARGEST_REAL)]
_NotEmpty = Meta(min_length=1)
_PerLevel = Meta(min_length=1, max_length=MAX_LEVELS)


class Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of the wire: none may be missing, none may be unknown, and every number is bounded."""


def _canonical(body: object) -> bytes:
    """One line of JSON, keys sorted, no blanks: the same content is always the same bytes."""
    # Not msgspec's encoder: signatures hold for these bytes, with Python's form of a real and \u escapes.
    return canonical_json(body).encode()


class Body(Fields, frozen=True, tag_field="kind"):
    """A body that is signed whole: every kind of message, and the entries of an extension's log."""

    study: Digest

    def __post_init__(self) -> None:
        for field in ("run", "reason", "refusal"):
            if not getattr(self, field, "").isprintable():
                raise ProtocolError(f"{field} must be a printable text.")

    def text(self) -> bytes:
        """The body's bytes: what is signed."""
        return _canonical(msgspec.to_builtins(self))

    def pack(self, key: KeyPair) -> bytes:
        """The signed payload; refuses to sign what a receiver would refuse."""
        body = self.text()
        decode(body, _decoder(type(self)))
        return body + b"\n" + base64.b64encode(key.sign(body))


class Signed(NamedTuple, Generic[_Kind]):
    """A body with its signature, as a receiver has checked it."""

    body: _Kind
    signer: str
    """The key that was valid when it came in: it may be replaced or revoked later."""
    signature: str
    """Its base64 text."""


class LevelQuestion(Fields, frozen=True):
    """One level of a round's questions. A field holds one value for all clients, or a value per client."""

    level: _Level | Annotated[dict[ClientName, _Level], _NotEmpty]
    query: Finite
    length: Positive | Annotated[dict[ClientName, Positive], _NotEmpty]
    step: Step | Annotated[dict[ClientName, Step], _NotEmpty] | None


def _shared(values: dict[str, Any]) -> Any:
    """One value where all clients have the same, else the value per client."""
    first = next(iter(values.values()))
    return first if all(value == first for value in values.values()) else values


class RoundQuestions(Body, frozen=True, tag="ask"):
    """A round's questions, for all clients at once.

    >>> key = KeyPair.generate()
    >>> one, two = Question("r", 1, 0.5, 10.0, 5), Question("r", 1, 0.5, 10.0, 7)
    >>> sent = RoundQuestions.of("0" * 64, {"north": (one,), "south": (two,)})
    >>> message = read_message(sent.pack(key), key.public.signer, MAX_ASK)
    >>> message == sent, message.questions("south") == (two,), message.questions("west")
    (True, True, ())
    """

    run: RunName
    round: Positive
    asks: Annotated[tuple[LevelQuestion, ...], _PerLevel]

    @classmethod
    def of(cls, study: str, questions: Mapping[str, Sequence[Question]]) -> "RoundQuestions":
        """From one tuple of questions per client; all share run, round and, level by level, the query."""
        first = next(iter(questions.values()))
        asks = []
        for place, head in enumerate(first):
            level, length, step = (
                _shared({client: getattr(asked[place], field) for client, asked in questions.items()})
                for field in ("level", "length", "step")
            )
            asks.append(LevelQuestion(level, head.query, length, step))
        message = cls(study, first[0].run, first[0].round, tuple(asks))
        for client, asked in questions.items():
            if message.questions(client) != tuple(asked):
                raise ProtocolError(f"the questions to client {client} belong to another run, round or query.")
        return message

    def questions(self, client: str) -> tuple[Question, ...]:
        """What this client is asked; empty when the round does not ask it."""
        found = []
        for ask in self.asks:
            fields: dict[str, Any] = {"level": ask.level, "length": ask.length, "step": ask.step}
            if any(isinstance(value, dict) and client not in value for value in fields.values()):
                return ()
            own = {name: value[client] if isinstance(value, dict) else value for name, value in fields.items()}
            found.append(Question(self.run, self.round, query=ask.query, **own))
        return tuple(found)


class Notice(Body, frozen=True, tag="notice"):
    """Nothing to answer now, and why."""

    run: RunName
    state: State
    reason: ShortText


class Hello(Body, frozen=True, tag="hello"):
    """A client is there. `instance` is drawn at its start: two live holders of one key show different ones.

    `restored` is the link that the site knows its ledger to have lost, after it has marked the records behind it as
    spent; None otherwise. `nonce` is drawn for this hello. `echo` is the nonce of the last welcome, or that of another
    holder's hello: who signs a fresh nonce is there now, while a hello that was recorded earlier can only be repeated.
    """

    client: ClientName
    instance: _Hex32
    ledger: Position
    restored: Position | None
    nonce: _Hex32
    echo: _Hex32 | None


class Welcome(Body, frozen=True, tag="welcome"):
    """The coordinator's reply to one hello: the last link it has seen, the last round it has asked, and how many of
    the client's records all rounds up to that one asked for.

    `refusal` is empty, or says why this client may not continue. `nonce` is drawn for this welcome, and `echo` is the
    nonce of the hello.
    """

    client: ClientName
    instance: _Hex32
    ledger: Position | None
    round: Count
    records: Count
    refusal: ShortText
    nonce: _Hex32
    echo: _Hex32


class LevelCount(Fields, frozen=True):
    """Of the records that took part, how many reported yes; per level, in the order in which they were asked."""

    length: Positive
    ones: Count


def question_digest(study: str, questions: Sequence[Question]) -> str:
    """What one client is asked in one round, as its answer signs it: SHA-256 of one line of JSON, in hexadecimal.

    The line has the study's hash, run, round and per level what is asked, keys sorted, no blanks. Reals have the fewest
    digits that read back as the same double; a negative zero is written as zero.

    >>> asked = Question("r", 1, 0.5, 10.0, 5)
    >>> question_digest("0" * 64, [asked]) == question_digest("0" * 64, [Question("r", 1, 0.5, 10.000000001, 5)])
    False
    """
    if len({(question.run, question.round) for question in questions}) != 1:
        raise ProtocolError("the questions of one round belong to one run and round.")
    asks = [
        # A run's file (SQLite) keeps no negative zero.
        {"level": one.level, "query": one.query + 0.0, "length": one.length, "step": one.step}
        for one in questions
    ]
    body = {"kind": "question", "study": study, "run": questions[0].run, "round": questions[0].round, "asks": asks}
    return hashlib.sha256(_canonical(body)).hexdigest()


class RoundAnswers(Body, frozen=True, tag="answer"):
    """One client's counts of one round, one per level, and the link of the ledger entry behind them.

    `question` is the digest of what the client was asked, as it received it (`question_digest`): the signature holds
    for these counts as the answer to that question and to no other. In an open study it has, for the length that was
    asked, the number of records that took part.
    """

    run: RunName
    round: Positive
    client: ClientName
    question: Digest
    counts: Annotated[tuple[LevelCount, ...], _PerLevel]
    ledger: Position

    @property
    def ones(self) -> tuple[int, ...]:
        """The counts, one per level."""
        return tuple(count.ones for count in self.counts)

    @classmethod
    def of(cls, study: str, answers: Sequence[Answer]) -> "RoundAnswers":
        """From one answer per level, all to one round."""
        if len({(answer.question.run, answer.question.round, answer.client) for answer in answers}) != 1:
            raise ProtocolError("the counts of one answer belong to one run, round and client.")
        questions = [answer.question for answer in answers]
        counts = tuple(LevelCount(one.question.length, one.ones) for one in answers)
        first, last = answers[0], max((answer.position for answer in answers), key=lambda one: one.sequence)
        digest = question_digest(study, questions)
        return cls(study, first.question.run, first.question.round, first.client, digest, counts, last)

    def answers_to(self, asked: Sequence[Question], *, open_ended: bool) -> tuple[Answer, ...]:
        """The answers to these questions or, in an open study, to them asked of as many records as took part.

        Refused where it answers another question, or where a count is larger than its cohort.
        """
        if len(self.counts) != len(asked):
            raise ProtocolError(f"one count per level, {len(asked)}, was asked; got {len(self.counts)}.")
        answers = []
        for count, question in zip(self.counts, asked, strict=True):
            if count.length > question.length or (count.length < question.length and not open_ended):
                limit = "at most " if open_ended else ""
                raise ProtocolError(f"{limit}{question.length} records may take part; got {count.length}.")
            own = question.of(count.length)
            answers.append(Answer(own, self.client, count.ones, self.ledger).check(own))
        if self.question != question_digest(self.study, [answer.question for answer in answers]):
            raise ProtocolError("the answer is to another question than this round's.")
        return tuple(answers)


Message = RoundQuestions | Notice | Hello | Welcome | RoundAnswers
_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


@cache
def _decoder(kind: "type[_Kind]") -> "msgspec.json.Decoder[_Kind]":
    return msgspec.json.Decoder(kind)


def decode(body: bytes, decoder: "msgspec.json.Decoder[_Kind]") -> _Kind:
    """Read a body in the decoder's form; a ProtocolError for any other."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise ProtocolError(broken_rule(error, "the body")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ProtocolError("the body is not JSON.") from None


def unquoted(error: ProtocolError) -> str:
    """The rule that was broken, without the value that broke it, for a log.

    >>> unquoted(ProtocolError("ones must be a whole number from 0 to 50; got 53."))
    'ones must be a whole number from 0 to 50.'
    """
    head, got, _ = str(error).partition("; got")
    return f"{head}." if got else head


def read_message(payload: bytes, signer: str, largest: int) -> Message:
    """A message of the coordinator's protocol, checked as `read_signed` does."""
    return read_signed(payload, signer, largest, _DECODER)


def read_signed(payload: bytes, signer: str, largest: int, decoder: "msgspec.json.Decoder[_Kind]") -> _Kind:
    """Check size, signature and form, in this order; every failure is a ProtocolError that quotes nothing.

    Where size or signature are wrong it is `NotSigned`: the message says nothing about the one it names. The body must
    be the one text that its content has: it is written down again from a run's file, where the signature must hold, and
    two texts of one answer would be two answers. So must the signature: digests of payloads are over its text, too.
    """
    if len(payload) > largest:
        raise NotSigned(f"a message here has at most {largest} bytes; got {len(payload)}.")
    body, separator, tail = payload.rpartition(b"\n")
    if not separator:
        raise NotSigned("a message is one line of JSON and one line of signature; this is not.")
    try:
        signature = base64.b64decode(tail, validate=True)
    except (binascii.Error, ValueError):
        raise NotSigned("the signature is not base64.") from None
    if base64.b64encode(signature) != tail:
        raise NotSigned(
            "the signature is not the one text that base64 has for it: unused bits of its last letter are set."
        )
    if not verify(signer, body, signature):
        raise NotSigned("the signature is not that of the expected signer.")
    try:
        message = decode(body, decoder)
        if message.text() != body:
            raise ProtocolError("the body is not written as JSON with sorted keys and no blanks.")
    except ProtocolError as error:
        raise ProtocolError(f"{error} {OTHER_PROGRAM}") from None
    return message
