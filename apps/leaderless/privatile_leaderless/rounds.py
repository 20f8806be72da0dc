"""What entries do in a log that has begun: questions, answers and votes; how a round is closed, and committed.

A round goes through three stages. It is *open* once a proposal was accepted: the first in the log's order that is valid
(`Track.take`, with the tolerance of the transcript). It is *closed* at the place in the log where all peers have
answered, or where f + 1 have voted to close it and q have answered, whichever comes last; where patience or a
quarantine forbids it, the run pauses. It is *committed* when q peers have signed a chain value that contains it.
"""

from collections.abc import Iterator

from privatile.errors import ProtocolError
from privatile.federation.wire import RoundQuestions, question_digest
from privatile.run.rounds import Phase
from privatile_leaderless import chain as chains
from privatile_leaderless import quorums
from privatile_leaderless.entries import (
    AnyEntry,
    Checkpoint,
    CloseVote,
    Final,
    LevelAsk,
    Note,
    PeerAnswer,
    Proposal,
    Restored,
    Stand,
    Vote,
    asks_digest,
    read_entry,
)
from privatile_leaderless.following import Following, body_of
from privatile_leaderless.happenings import Happening, Kind
from privatile_leaderless.history import Quarantine
from privatile_leaderless.standing import Gathered, open_round

_DECIDED: dict[str, Kind] = {"readmit": "readmitted", "key": "key", "abort": "aborted"}
TWO_ANSWERS = "two different answers to one round, both with its signature"


class Rounds(Following):
    """A replica in a log that has begun."""

    # -- entries -------------------------------------------------------------------------------------------------

    def _happening(self, kind: Kind, client: str | None = None, text: str = "", *payloads: bytes) -> Happening:
        return Happening(kind, self.closed + 1, client, text, payloads)

    def _signed_elsewhere(self, client: str, text: str, payload: bytes) -> Happening:
        """An entry that signs a chain value, and none that counts here."""
        return Happening("other history", self.closed + 1, client, text, (payload,), signs=True)

    def _take(self, entry: AnyEntry, payload: bytes) -> Iterator[Happening]:
        match entry:
            case Proposal():
                yield from self._propose(entry, payload)
            case PeerAnswer():
                yield from self._answer(entry, payload)
            case CloseVote():
                yield from self._close_vote(entry, payload)
            case Vote():
                yield from self._vote(entry, payload)
            case Restored():
                yield from self._restore(entry, payload)
            case Final() if (entry.rounds, entry.chain) == (self.closed, self.head) and self.ended:
                yield Happening("final", self.closed, entry.sender)
                yield from self._sign(entry.sender, payload)
            case Final():
                yield self._signed_elsewhere(entry.sender, "a signature over another end", payload)
            case Stand():
                yield from self._tell_who_lacks(entry)
            case Checkpoint():
                if (entry.round, entry.chain, entry.ended) == (self.closed, self.chain, self.ended):
                    yield from self._sign(entry.sender, payload)
                if entry.epoch == self.epoch:
                    yield Happening("checkpoint", entry.round, entry.sender)
                    yield from self._other_checkpoint(entry, payload)
        yield from self._compare(entry)
        yield from self._close()

    def _compare(self, entry: AnyEntry) -> Iterator[Happening]:
        """Note who has signed another history; once that are too many (`astray`), say so."""
        value, others = chains.signed_value(entry), self._now.astray
        if value is None or value[0] < self.slot or value == (self.slot, self.head) or entry.sender in others:
            return
        before = self.astray
        others.add(entry.sender)
        if self.astray and not before:
            yield self._happening("astray", None, f"{', '.join(sorted(others))} have signed another history")

    def _propose(self, entry: Proposal, payload: bytes) -> Iterator[Happening]:
        if entry.round <= self.closed or self._now.intake is not None or self.ended:
            return  # the round has its question
        if (entry.round, entry.chain) != (self.closed + 1, self.chain):
            yield self._happening("other history", entry.sender, "a question after another history", payload)
            return
        try:
            self._history.take(entry.asks)
        except ProtocolError as error:
            yield self._happening("refused", entry.sender, str(error), payload)
            return
        yield from self._open(entry.asks, entry.sender)

    def _open(self, asks: tuple[LevelAsk, ...], sender: str | None) -> Iterator[Happening]:
        """The question was taken: answer it, or be at the end."""
        if not asks:
            # Votes since the last round belong to no round: what signs the end are the keys of the history that ends.
            self._stand_after(self.closed, ended=True)
            yield Happening("ended", self.closed, sender)
            return
        now = self._now
        now.asks, now.intake, now.question = asks, self._history.intake(), asks_digest(asks)
        now.asked = RoundQuestions.of(self.study.digest, self._history.coordinator.questions())
        yield self._happening("proposed", sender)
        for client in now.answers:  # those that came before their question
            yield from self._count_again(client)

    def _answer(self, entry: PeerAnswer, payload: bytes) -> Iterator[Happening]:
        sender, now = entry.sender, self._now
        if entry.round > self.closed + 1 or (self.ended and entry.round > self.closed):
            yield self._signed_elsewhere(sender, "an answer to a round that is not asked here", payload)
            return
        if entry.round <= self.closed:
            place = list(self.study.clients).index(sender)
            counted = self._history.records[entry.round - 1].closed.answers[place]
            counts = counted is not None
            first = self._late.setdefault((sender, entry.round), payload) if counted is None else counted.encode()
        else:
            counts = True
            first = now.answers.setdefault(sender, payload)
        if body_of(first) != body_of(payload):
            yield from self._two_answers(entry, first, payload, counts=counts)
        elif entry.round == self.closed + 1:
            if entry.chain == self.chain:
                yield from self._sign(sender, payload)
            if entry.chain != self.chain:
                yield self._signed_elsewhere(sender, "an answer after another history", payload)
                return
            if now.intake is None or sender not in now.intake.answers:
                now.answers[sender] = payload  # the same, signed with another key where that was replaced
            yield from self._count(entry, payload)

    def _two_answers(self, entry: PeerAnswer, first: bytes, payload: bytes, *, counts: bool) -> Iterator[Happening]:
        """A lie that its own signatures prove. Once a quorum has decided, what was counted stands.

        Where none of them `counts`, it is evidence and no more: whether the run waits must follow from the log and the
        closed rounds, and who is started again knows no late answer.
        """
        sender = entry.sender
        yield Happening("two answers", entry.round, sender, TWO_ANSWERS, (first, payload), signs=True)
        decided = self.ended or not counts or (sender, entry.round) in self._history.tally.readmitted
        if not decided and sender not in self.quarantined:
            yield self._quarantine(sender, TWO_ANSWERS, entry.round)

    def _quarantine(self, client: str, reason: str, number: int) -> Happening:
        self._history.quarantined[client] = Quarantine(reason, number)
        if self._now.intake is not None:
            self._now.intake.quarantine(client, reason)
        return Happening("quarantined", number, client, reason)

    def _count(self, entry: PeerAnswer, payload: bytes) -> Iterator[Happening]:
        sender, intake = entry.sender, self._now.intake
        if intake is None or (sender, entry.round) in self._history.tally.readmitted or sender in intake.answers:
            return
        if entry.question != question_digest(self.study.digest, intake.questions[sender]):
            yield self._signed_elsewhere(sender, "an answer to another question", payload)
            return
        verdict = intake.offer(sender, payload, read=lambda *_: entry)
        if verdict.outcome == "counted":
            yield self._happening("counted", sender)
        elif verdict.outcome in ("rejected", "forked"):
            yield self._happening("refused", sender, verdict.reason, payload)
        if verdict.quarantine:
            yield self._quarantine(sender, verdict.quarantine, entry.round)

    def _count_again(self, client: str) -> Iterator[Happening]:
        """Count the answer that came before its question, or while its peer was in quarantine for an earlier round."""
        payload = self._now.answers.get(client)
        if payload is None:
            return
        try:
            entry = read_entry(payload, self.keys[client].signer)
        except ProtocolError:
            return  # its key was replaced meanwhile
        if isinstance(entry, PeerAnswer) and entry.chain == self.chain:
            yield from self._count(entry, payload)

    def _close_vote(self, entry: CloseVote, payload: bytes) -> Iterator[Happening]:
        if entry.epoch != self.epoch or entry.round <= self.closed or self._now.intake is None:
            return
        if (entry.round, entry.chain, entry.question) != (self.closed + 1, self.chain, self._now.question):
            yield self._happening("other history", entry.sender, "a vote to close another round", payload)
        elif entry.sender not in self._now.votes:
            self._now.votes[entry.sender] = payload
            yield self._happening("close vote", entry.sender, "", payload)

    def _vote(self, entry: Vote, payload: bytes) -> Iterator[Happening]:
        decision = entry.decision
        if entry.round <= self.closed or (self.ended and decision.action != "abort"):
            return  # what has ended and is not finished can still be aborted: a quorum for its end may never come
        if (entry.round, entry.chain) != (self.closed + 1, self.chain):
            yield self._happening("other history", entry.sender, "a vote after another history", payload)
        elif broken := self._history.tally.broken(decision):
            yield self._happening("refused", entry.sender, broken, payload)
        elif self._history.note(entry, payload):
            yield self._happening("vote", entry.sender, f"for: {decision.action} {decision.client or ''}".strip())
            if self._history.settle(decision, self._now.intake):
                yield self._happening(_DECIDED[decision.action], decision.client, "a quorum has decided")
                if decision.client is not None and decision.round is not None and decision.round <= self.closed:
                    yield from self._count_again(decision.client)

    def _restore(self, entry: Restored, payload: bytes) -> Iterator[Happening]:
        # Not while an answer of the lost ledger stands in the open round: its link would come back with it.
        if self.ended or entry.sender in self._now.answers or not self._history.note(entry, payload):
            return
        if self._now.intake is not None:
            self._now.intake.relink(entry.sender, entry.link, self.closed + 1)
        yield self._happening("restored", entry.sender, "its ledger was restored from a backup")

    # -- closing and committing ----------------------------------------------------------------------------------

    def _close(self) -> Iterator[Happening]:
        now = self._now
        if now.intake is None or self.aborted or self.quarantined:
            return
        late = len(now.votes) >= quorums.closing(self.study) and len(now.intake.answers) >= self.quorum
        if open_round(self.study, now.intake, self._history.coordinator.tracks, late=late).phase is Phase.OPEN:
            return
        votes = now.votes.items() if now.intake.missing else ()
        notes = [Note(name, payload.decode("ascii")) for name, payload in votes][: quorums.closing(self.study)]
        record = self._history.close(now.asks, now.intake, now.answers, notes)
        self._now = Gathered()
        self.settled_at[self.closed] = self._place
        silent = [name for name in self.study.clients if name not in record.accepted]
        text = f"without {', '.join(silent)}" if silent else ""
        yield Happening("closed", self.closed, None, text)
        for client in silent:
            if client in now.answers:  # to another question, or after another history
                self._late[client, self.closed] = now.answers[client]
            text = f"by the votes of {', '.join(sorted(now.votes))}"
            yield Happening("closed without", self.closed, client, text)
        for client, one in self.quarantined.items():
            yield Happening("quarantined", one.round, client, one.reason)

    def _sign(self, sender: str, payload: bytes) -> Iterator[Happening]:
        """A peer has signed the chain value here. A quorum of such signatures commits what lies behind it."""
        proof = self._now.proof
        proof.setdefault(sender, payload)
        if len(proof) < self.quorum:
            return
        if self.committed < self.closed or (self.ended and not self.finished):
            self.committed, self.proof = self.closed, dict(proof)
            yield Happening("committed", self.committed)
        if self.ended and not self.finished:
            self.finished = True
            self._history.coordinator.finish()
            yield Happening("finished", self.closed)
