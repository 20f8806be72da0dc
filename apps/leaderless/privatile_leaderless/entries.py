"""What organizations write into their common log, each entry one line of JSON and one line of signature.

    proposal    the question of a round, or that the run is over; the first valid one in the log's order counts
    answer      one peer's counts of one round, and the chain value of everything before the round
    close       "the deadline has passed since I saw the question"
    vote        to abort the run, for good: it holds from the place in the log where a quorum has voted so
    restored    a peer's ledger was put back from a backup
    final       the chain value after the end
    stand       where a peer stands in a new log, and what it has signed last: from all of these follows where it begins
    checkpoint  the chain value there: at q of them the new log has begun

The form is that of `wire.messages`: nothing unsigned is parsed, every number is bounded. No entry holds a position in
the log or a time.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from privatile.core.messages import LARGEST_REAL, Position
from privatile.core.text import canonical_json, text_digest
from privatile.estimator.plan import Ask
from privatile.federation.wire import (
    MAX_ASK,
    MAX_LEVELS,
    Body,
    ClientName,
    Count,
    Digest,
    Fields,
    Finite,
    Positive,
    RoundAnswers,
    RunName,
    read_signed,
)
from privatile.run.run_file import MAX_STAGE

MAX_ENTRY_BYTES = MAX_ASK
"""Bytes, as of a question: the study's rules and the stream keep to the same. A closed round of 460 peers fits."""

_Stage = Annotated[str, Meta(max_length=MAX_STAGE)]
_Lengths = Annotated[tuple[Count, ...], Meta(min_length=1)]


class LevelAsk(Fields, frozen=True):
    """One level of a round's question, whole: what a run's file holds of it.

    The question in units of the data is not enough. Two machines differ in the last bits of the working scale, from
    which the next question follows; so both are data, like the counts.
    """

    level: Count
    """The place of the level in the study."""
    query: Finite
    sent: Finite
    lengths: _Lengths
    step: Annotated[float, Meta(ge=0, le=LARGEST_REAL)]
    averaged: bool
    stage: _Stage

    @classmethod
    def of(cls, level: int, ask: Ask) -> "LevelAsk":
        """From what the design asks. A run's file (SQLite) keeps no negative zero."""
        return cls(level, ask.query + 0.0, ask.sent + 0.0, ask.lengths, ask.step + 0.0, ask.averaged, ask.stage)

    @property
    def ask(self) -> Ask:
        """As the design takes it."""
        query, sent, step = self.query + 0.0, self.sent + 0.0, self.step + 0.0
        return Ask(query, self.lengths, step, self.averaged, self.stage, sent)


Asks = Annotated[tuple[LevelAsk, ...], Meta(max_length=MAX_LEVELS)]


class Entry(Body, frozen=True):
    """What every entry but an answer has: the study's digest, its run, and who writes."""

    run: RunName
    sender: ClientName


class Proposal(Entry, frozen=True, tag="proposal"):
    """The question of a round, after the history with this chain value. Without any level: the run is over."""

    round: Positive
    chain: Digest
    asks: Asks


class PeerAnswer(RoundAnswers, frozen=True, tag="peer answer"):
    """An answer that also signs the chain value of everything before its round."""

    chain: Digest

    @classmethod
    def after(cls, chain: str, answer: RoundAnswers) -> "PeerAnswer":
        """An answer to the round that follows the history with this chain value."""
        return cls(
            answer.study,
            answer.run,
            answer.round,
            answer.client,
            answer.question,
            answer.counts,
            answer.ledger,
            chain,
        )

    @property
    def sender(self) -> str:
        """Who writes: the peer whose counts they are."""
        return self.client


class CloseVote(Entry, frozen=True, tag="close"):
    """The sender's clock says that the deadline has passed since it saw this question (`asks_digest`).

    A vote holds in one log (epoch) only: in a later one, where the round begins anew, it would be too early.
    """

    epoch: Count
    round: Positive
    chain: Digest
    question: Digest


class Vote(Entry, frozen=True, tag="vote"):
    """One organization's vote to abort the run, given in this round; it stays for later ones.

    It names the round, and the chain value before it: nobody can write it before that round is closed.
    """

    round: Positive
    chain: Digest


class Restored(Entry, frozen=True, tag="restored"):
    """The sender's ledger was put back from a backup: it had come to `lost`, and goes on from `link`.

    It holds in this round only, as a vote does.
    """

    round: Positive
    chain: Digest
    lost: Position
    link: Position


class Final(Entry, frozen=True, tag="final"):
    """The run is over after this many rounds; `chain` is the value after the end (`chain.end_chain`)."""

    rounds: Positive
    chain: Digest


class Checkpoint(Entry, frozen=True, tag="checkpoint"):
    """In a new log: it begins after this round, with this chain value; `ended`: and after the end.

    `asks` is the next question, where somebody has answered that already.
    """

    epoch: Positive
    round: Count
    chain: Digest
    ended: bool
    asks: Asks


class Note(Fields, frozen=True):
    """A vote, a `restored` or a vote to close that belongs to a round: sender and payload."""

    sender: ClientName
    payload: str


class ClosedRound(Fields, frozen=True):
    """A closed round, all that its chain value is made of; lists are in the order of the study's clients."""

    before: Digest
    """The chain value before the round."""
    round: Positive
    asks: Annotated[tuple[LevelAsk, ...], Meta(min_length=1, max_length=MAX_LEVELS)]
    answers: tuple[str | None, ...]
    """The signed payloads, None where a peer was silent."""
    unspent: tuple[tuple[Count, ...], ...]
    """Per level, the places of peers whose missed records are asked later (`StoredRound.unspent`)."""
    notes: tuple[Note, ...]
    """Votes and restored ledgers that took effect in the round, in the log's order."""
    votes: tuple[Note, ...]
    """Where an answer is missing, the first f + 1 votes to close the round. They prove that it was closed so, and are
    no part of the chain value: the same answers in another log make the same history."""

    def fits(self, peers: int) -> bool:
        """Whether its lists are as long as those of a round of so many peers: in memory they take more than as text."""
        return (
            len(self.answers) == peers
            and len(self.unspent) == len(self.asks)
            and all(len(row) <= peers for row in self.unspent)
            and all(len(one.lengths) == peers for one in self.asks)
            and len(self.votes) <= peers
        )


class PositionReport(Entry, frozen=True, tag="stand"):
    """In a new log: where the sender stands, and what it has signed last; said again on every connection.

    It stands after the round `last`, None where none is closed; `ended`: and after the end. Where it has signed a round
    that gave way to others, it names that one. It has signed `chain` in
    `slot`, its highest, and has answered `asks` there. Slot 0: it has signed nothing; no chain: it does not know what
    it has signed there, since its file was put back from a backup.
    """

    epoch: Positive
    last: ClosedRound | None
    ended: bool
    slot: Count
    chain: Digest | None
    asks: Asks


AnyEntry = Proposal | PeerAnswer | CloseVote | Vote | Restored | Final | PositionReport | Checkpoint
_DECODER: msgspec.json.Decoder[AnyEntry] = msgspec.json.Decoder(AnyEntry)


def read_entry(payload: bytes, signer: str) -> AnyEntry:
    """Check size, signature and form, as `wire.messages.read_signed` does."""
    return read_signed(payload, signer, MAX_ENTRY_BYTES, _DECODER)


def asks_digest(asks: tuple[LevelAsk, ...]) -> str:
    """What a vote to close names: the question of the round, for all peers."""
    return text_digest(canonical_json([plain_ask(one) for one in asks]))


def plain_ask(one: LevelAsk) -> list[object]:
    """One level of a question as chain values hold it."""
    ask = one.ask
    return [one.level, ask.stage, ask.query, ask.sent, list(ask.lengths), ask.step, ask.averaged]
