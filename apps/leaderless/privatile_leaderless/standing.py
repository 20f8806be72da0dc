"""Where a replica stands: what there is to read, and what there is to sign."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from privatile.core.messages import Position
from privatile.federation.coordinator.core import present
from privatile.federation.coordinator.intake import AnswerIntake
from privatile.federation.study import FederationStudy
from privatile.federation.wire import RoundAnswers, RoundQuestions
from privatile.records.keys import PublicKeys
from privatile.run.coordinator import LevelRun
from privatile.run.rounds import OpenRound, Phase, RoundRule, advance
from privatile_leaderless import chain as chains
from privatile_leaderless import quorums
from privatile_leaderless.chain import FORFEITED, Claims, Slots
from privatile_leaderless.entries import (
    Checkpoint,
    ClosedRound,
    CloseVote,
    Final,
    LevelAsk,
    PeerAnswer,
    PositionReport,
    Proposal,
    Restored,
    Vote,
)
from privatile_leaderless.history import History, Quarantine, RoundRecord
from privatile_leaderless.recovery import Choice, Recovery

Kind = Literal[
    "unsigned",
    "refused",
    "other history",
    "astray",
    "proposed",
    "counted",
    "close vote",
    "two answers",
    "quarantined",
    "vote",
    "restored",
    "aborted",
    "closed",
    "closed without",
    "committed",
    "ended",
    "final",
    "finished",
    "checkpoint",
    "begun",
    "behind",
]


class LogEffect(NamedTuple):
    """One thing that an entry has brought about; `round` is the one it belongs to.

    unsigned       without a valid signature of the peer under whose name it lies in the log: as if it were not there
    refused        signed, but malformed, or a question that is off: not counted, and the payload is evidence
    other history  after another chain value, to another question, or ahead: not counted, and nobody is blamed
    astray         so many peers have signed another history that this one cannot be committed: catch up with another
                   peer's file
    proposed       the question of the round; from now on it is answered
    counted        an answer
    close vote     one more clock says that the deadline has passed, by the payload
    two answers    different answers of one peer to one round: both payloads are evidence
    quarantined    no round closes any more
    vote           one more voice for the end of the run
    aborted        a quorum has voted so
    restored       a peer's ledger was put back from a backup
    closed         the round has its closing set
    closed without   a peer is not in it: enough clocks have said that the deadline has passed
    committed      a quorum has signed a chain value with this round in it
    ended          this round was the last one: the question of the next is that there is none
    final          one more signature over the value after the end
    finished       a quorum of them
    checkpoint     a peer has signed where the new log is to begin
    begun          the new log begins after this round
    behind         the new log begins after this round, and rounds before it are not known here: catch up with a file
    """

    kind: Kind
    round: int
    client: str | None = None
    text: str = ""
    payloads: tuple[bytes, ...] = ()
    signs: bool = False
    """Whether the payloads sign a chain value (`chain.signed_value`) and do not count: what shows a lie."""


@dataclass
class OpenRoundState:
    """What has come since the last round was closed."""

    asks: tuple[LevelAsk, ...] = ()
    intake: AnswerIntake | None = None
    asked: RoundQuestions | None = None
    question: str = ""
    votes: dict[str, bytes] = field(default_factory=dict)
    """Who has voted to close the round, and how, in the log's order."""
    answers: dict[str, bytes] = field(default_factory=dict)
    """The first answer of each peer to the round, whatever its chain; with the signature that was counted, or last."""
    astray: set[str] = field(default_factory=set)
    """Who has signed another chain value in this slot, or one of a later slot."""
    proof: dict[str, bytes] = field(default_factory=dict)
    """Who has signed the chain value here, and how."""


def open_round(study: FederationStudy, intake: AnswerIntake, tracks: Sequence[LevelRun], *, late: bool) -> OpenRound:
    """The open round by the rule of agreed rounds, whose deadline has come if it is `late`."""
    state = OpenRound(1, Phase.OPEN, 0.0, len(intake.answers), 0)
    return advance(RoundRule(study.quorum, 1.0, agreed=True), state, float(late), present(study, intake, tracks))


class ReplicaView:
    """One peer's view of the run, without what changes it."""

    def __init__(
        self, study: FederationStudy, keys: Mapping[str, PublicKeys], roster_digest: str, epoch: int = 0
    ) -> None:
        """`keys` are those of the roster; `epoch` is the number of the log that is read."""
        self.study = study
        self.epoch = epoch
        self.quorum = quorums.signing(study)
        self._tolerate = quorums.liars(study)
        self._history = History(study, keys, chains.first_chain(study.digest, study.run, roster_digest))
        self._now = OpenRoundState()
        self._recovery: Recovery | None = None
        self._left: dict[str, ClosedRound] = {}
        """Rounds that were closed here, are not committed, and gave way to others, by the chain value after them."""
        self._late: dict[tuple[str, int], bytes] = {}
        """The first answer of a peer to a round that was closed without it, as far as this process has read it."""
        self.committed = 0
        """Rounds that a quorum has signed."""
        self.proof: dict[str, bytes] = {}
        """The signed entries, by peer, that commit the last of them."""
        self.ended = False
        """Whether the run is over in this log; it is `finished` when a quorum has signed that."""
        self.finished = False
        self._aborted = False
        """Whether it was aborted in an earlier log, or before this one began."""
        self.applied = 0
        """Entries so far."""
        self.settled_at = {0: 0}
        """Entries after which a round was closed: the state follows from the rounds up to it and the entries since."""

    # -- to read -------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> int:
        """Rounds that are closed."""
        return self._history.closed

    @property
    def chain(self) -> str:
        """The chain value after the closed rounds: what an answer to the next one signs."""
        return self._history.chain

    @property
    def head(self) -> str:
        """The chain value after all that has happened: after the end, that of the end."""
        return chains.end_chain(self.chain, self.closed) if self.ended else self.chain

    @property
    def slot(self) -> int:
        """Where a signature over `head` belongs."""
        return self.closed + 1 + self.ended

    @property
    def claims(self) -> Claims:
        """Slots and chain values that a signature over `head` takes: that over the end takes two (`chain`)."""
        return ((self.closed + 1, self.chain), (self.slot, self.head)) if self.ended else ((self.slot, self.head),)

    @property
    def round(self) -> int | None:
        """The round that is asked, or to be asked next; None when the run is over, or not going on."""
        return None if self.ended or self.aborted or self.recovering else self.closed + 1

    @property
    def asks(self) -> tuple[LevelAsk, ...]:
        """The accepted question; empty while there is none."""
        return self._now.asks

    @property
    def asked(self) -> RoundQuestions | None:
        """The accepted question as a site answers it."""
        return self._now.asked

    @property
    def missing(self) -> list[str]:
        """Peers that have not answered the open round."""
        return [] if self._now.intake is None else self._now.intake.missing

    @property
    def close_votes(self) -> frozenset[str]:
        """Peers that have voted to close the open round."""
        return frozenset(self._now.votes)

    @property
    def keys(self) -> Mapping[str, PublicKeys]:
        """The peers' keys: those of the roster, for the whole run."""
        return self._history.keys

    @property
    def quarantined(self) -> Mapping[str, Quarantine]:
        """Peers for which no round closes any more."""
        return self._history.quarantined

    @property
    def aborted(self) -> bool:
        """Whether a quorum has ended the run for good."""
        return self._aborted or self._history.aborted

    @property
    def recovering(self) -> bool:
        """Whether a new log has not begun yet, or begins after rounds that are not known here: no round is asked."""
        return self._recovery is not None

    @property
    def behind(self) -> int | None:
        """The round after which the new log begins, where that is not known here."""
        return None if self._recovery is None or self._recovery.target is None else self._recovery.target.round

    @property
    def begins_at(self) -> Choice | None:
        """Where the new log is to begin, by what the peers have said; this replica stands there, then."""
        return None if self._recovery is None or self._recovery.target is not None else self._recovery.choice

    @property
    def astray(self) -> bool:
        """Whether so many have signed another history that q signatures under this one cannot come together."""
        return len(self._now.astray) > len(self.study.clients) - self.quorum + self._tolerate

    @property
    def tracks(self) -> Sequence[LevelRun]:
        """The levels of the run, after the closed rounds."""
        return self._history.coordinator.tracks

    def has_voted(self, client: str) -> bool:
        """Whether a peer's vote to abort counts."""
        return client in (self._history.abort_voters if self._recovery is None else self._recovery.abort_votes)

    def aborts_again(self, client: str) -> bool:
        """Whether a peer had voted to abort before this log, and has not said so in it."""
        found = self._recovery
        return found is not None and client in found.abort_before and client not in found.abort_votes

    @property
    def abort_voters(self) -> frozenset[str]:
        """Who has voted to abort, in this log or before, as far as it was read here."""
        voters, found = frozenset(self._history.abort_voters), self._recovery
        return voters if found is None else voters | found.abort_before | found.abort_votes

    def records_asked(self, client: str) -> int:
        """Records that all rounds up to the open one have asked of a peer, less those known not to have answered.

        Up to the open one: a ledger that was lost may have answered it, whether the answer came or not.
        """
        open_round = () if self._now.asked is None else self._now.asked.questions(client)
        asked = self._history.coordinator.asked[client]
        return asked + sum(question.length for question in open_round)

    def link(self, client: str) -> Position | None:
        """The last link of a peer's ledger, by its counted answers."""
        return self._history.links.get(client)

    @property
    def paused(self) -> str:
        """Why the run does not go on: a round whose time is over, or a log that has not begun; empty where it does."""
        if self.astray:
            others = sorted(self._now.astray)
            return (
                f"{len(others)} organizations have signed another history: {', '.join(others)}. Take over another "
                "organization's file: `privatile peer catch-up DIR --from RUN.DB`"
            )
        if self._recovery is not None:
            return self._recovery.waits_for(list(self.study.clients))
        if self.quarantined:
            names = ", ".join(sorted(self.quarantined))
            return (
                f"quarantined: {names}. No round closes any more. Vote to abort (`privatile peer vote DIR --abort`), "
                "then begin a new run without them"
            )
        if len(self._now.votes) < quorums.closing(self.study) or self._now.intake is None:
            return ""
        answers = len(self._now.intake.answers)
        if answers < self.quorum:
            return f"{answers} of {self.quorum} answers are there: {', '.join(self.missing)} have not answered"
        return open_round(self.study, self._now.intake, self._history.coordinator.tracks, late=True).paused

    def vouched(self, client: str) -> bool:
        """Whether a quorum of peers other than this one has signed the chain value here (`Slots.regain`)."""
        return sum(name != client for name in self._now.proof) >= self.quorum

    def is_furthest(self, client: str) -> bool:
        """Whether nothing beyond this place is committed, by what the others have said in a new log.

        A peer whose file was put back asks this before it speaks: it may have signed a higher slot. What is committed
        there has q signatures, of them at most f lies and one this peer's. More than K - q + f others have said where
        they stand: one of the rest is among them, and would stand there.
        """
        named = {} if self._recovery is None else self._recovery.highest_slots()
        others = [slot for name, slot in named.items() if name != client]
        return len(others) > len(self.study.clients) - self.quorum + self._tolerate and max(others) <= self.slot

    def committed_rounds(self, after: int = 0) -> list[RoundRecord]:
        """Committed rounds from `after` + 1 on, as a run's file keeps them."""
        return self._history.records[after : self.committed]

    def closed_rounds(self, after: int = 0) -> list[ClosedRound]:
        """Closed rounds from `after` + 1 on."""
        return [record.closed for record in self._history.records[after:]]

    # -- to sign -------------------------------------------------------------------------------------------------

    def proposal(self, sender: str) -> Proposal:
        """The next question as this peer computes it, or that the run is over."""
        return Proposal(
            self.study.digest, self.study.run, sender, self.closed + 1, self.chain, self._history.own_asks()
        )

    def answer(self, message: RoundAnswers) -> PeerAnswer:
        """An answer to the open round."""
        return PeerAnswer.after(self.chain, message)

    def close_vote(self, sender: str) -> CloseVote:
        """A vote to close the open round."""
        return CloseVote(
            self.study.digest, self.study.run, sender, self.epoch, self.closed + 1, self.chain, self._now.question
        )

    def final(self, sender: str) -> Final:
        """A signature over the end."""
        return Final(self.study.digest, self.study.run, sender, self.closed, self.head)

    def vote(self, sender: str) -> Vote:
        """A vote to abort the run."""
        return Vote(self.study.digest, self.study.run, sender, self.closed + 1, self.chain)

    def restored(self, sender: str, lost: Position, link: Position) -> Restored:
        """That a ledger was put back from a backup."""
        return Restored(self.study.digest, self.study.run, sender, self.closed + 1, self.chain, lost, link)

    def stand(self, sender: str, slots: Slots, asks: tuple[LevelAsk, ...]) -> PositionReport:
        """Where this peer stands, and what it has signed last; `asks` is the question that it has answered there.

        Where it has signed a round that gave way to others, it stands after that one: it can sign no other in its
        place, and perhaps nobody else knows it.
        """
        records, signed, slot = self._history.records, slots[slots.highest], slots.highest
        last, ended = records[-1].closed if records else None, self.ended
        chain = None if signed is None or signed.chain == FORFEITED else signed.chain
        if slot >= self.slot and chain != self.head:
            for value, closed in (*self._left.items(), *([(self.chain, last)] if last else [])):
                if (slot, chain) == (closed.round + 1, value):
                    last, ended = closed, False
                elif (slot, chain) == (closed.round + 2, chains.end_chain(value, closed.round)):
                    last, ended = closed, True
        run = (self.study.digest, self.study.run)
        return PositionReport(*run, sender, self.epoch, last, ended, slot, chain, asks)

    def checkpoint(self, sender: str) -> Checkpoint:
        """The place at which the new log begins, and its next question where somebody has answered it already."""
        asks = () if self.begins_at is None else self.begins_at.asks
        return Checkpoint(
            self.study.digest, self.study.run, sender, self.epoch, self.closed, self.chain, self.ended, asks
        )
