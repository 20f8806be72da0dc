"""The state machine that every organization runs over the common log: entries in, rounds out.

No input, no output, no clock. What an entry does follows from the entries before it, so all who read the same log stand
at the same place. What is signed, by whom and when, is up to the peer that runs it (`federation.peer`); the rules that
its signatures must keep are in `chain`.

A round goes through three stages. It is *open* once a proposal was accepted: the first in the log's order that is valid
(`Track.take`, with the tolerance of the transcript). It is *closed* at the place in the log where all peers have
answered, or where f + 1 have voted to close it and q have answered, whichever comes last; where patience or a
quarantine forbids it, the run pauses. It is *committed* when q peers have signed a chain value that contains it.

What a liar can do is stop the run, and the log's operator too: withhold entries, fill the log, or propose a question
on the very edge of the tolerance, which one processor accepts and another refuses (their answers are then to different
questions, and no quorum has answered the same one). Nobody is led along two histories by any of this.
"""

from collections.abc import Iterator, Sequence

from privatile.errors import NotSigned, ProtocolError
from privatile.federation.coordinator.round_rules import may_close
from privatile.federation.replica import chain as chains
from privatile.federation.replica.entries import (
    AnyEntry,
    Checkpoint,
    CloseVote,
    Decision,
    Final,
    LevelAsk,
    PeerAnswer,
    Proposal,
    Relay,
    Restored,
    Vote,
    asks_digest,
    read_entry,
)
from privatile.federation.replica.following import Following, body_of
from privatile.federation.replica.happenings import Happening, Kind
from privatile.federation.replica.history import Quarantine
from privatile.federation.replica.recovery import Recovery, Target
from privatile.federation.replica.standing import Gathered
from privatile.federation.wire.messages import AskMessage, question_digest

_DECIDED: dict[str, Kind] = {"readmit": "readmitted", "key": "key", "abort": "aborted"}
TWO_ANSWERS = "two different answers to one round, both with its signature"


class Replica(Following):
    """The state machine. Entries come in through `apply`; everything else is to read, or to sign (`Standing`)."""

    # -- entries -------------------------------------------------------------------------------------------------

    def apply(self, sender: str, payload: bytes) -> tuple[Happening, ...]:
        """Take the next entry of the log, from the place of `sender`, and say what it changed."""
        self.applied += 1
        self._place = self.applied
        return tuple(self._apply(sender, payload))

    def _apply(self, sender: str, payload: bytes) -> Iterator[Happening]:
        if self.aborted or (self.finished and not self.recovering):
            return
        if sender not in self.keys:
            yield self._happening("unsigned", None, f"under {sender}: the study has no such peer", payload)
            return
        try:
            entry = self._read(sender, payload)
        except NotSigned as error:
            yield self._happening("unsigned", sender, str(error), payload)
            yield from self._wait(sender, payload, signed=False)  # its key may be replaced in a round not known here
            return
        except ProtocolError as error:
            yield self._happening("refused", sender, str(error), payload)
            return
        if (entry.study, entry.run, entry.sender) != (self.study.digest, self.study.run, sender):
            yield self._happening("refused", sender, "it belongs to another study, run or peer", payload)
        elif self._recovery is not None:
            yield from self._recover(self._recovery, entry, payload)
        elif self._has_come(entry, payload):
            yield from self._take(entry, payload)
        else:
            yield from self._compare(entry)

    def _has_come(self, entry: AnyEntry, payload: bytes) -> bool:
        """Whether the rounds that are known here have come, with this entry, where the log is read again."""
        if self._unread is not None:
            self._unread.see(entry, payload)
            if self._unread.is_complete:
                self._unread = None
        return self._unread is None

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
        now.asked = AskMessage.of(self.study.digest, self._history.coordinator.questions())
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
            first = None if counted is None else counted.encode()
        else:
            first = now.answers.setdefault(sender, payload)
        if first is not None and body_of(first) != body_of(payload):
            yield from self._two_answers(entry, first, payload)
        elif entry.round == self.closed + 1:
            if entry.chain == self.chain:
                yield from self._sign(sender, payload)
            if entry.chain != self.chain:
                yield self._signed_elsewhere(sender, "an answer after another history", payload)
                return
            if now.intake is None or sender not in now.intake.answers:
                now.answers[sender] = payload  # the same, signed with another key where that was replaced
            yield from self._count(entry, payload)

    def _two_answers(self, entry: PeerAnswer, first: bytes, payload: bytes) -> Iterator[Happening]:
        """A lie that its own signatures prove. Once a quorum has decided, what was counted stands."""
        sender = entry.sender
        yield Happening("two answers", entry.round, sender, TWO_ANSWERS, (first, payload), signs=True)
        decided = self.ended or (sender, entry.round) in self._history.tally.readmitted
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
            self._now.votes.add(entry.sender)
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
        late = len(now.votes) > self._tolerate and len(now.intake.answers) >= self.quorum
        if not may_close(now.intake, self.study, self._history.coordinator.tracks, late=late).allowed:
            return
        record = self._history.close(now.asks, now.intake, now.answers)
        self._now = Gathered()
        self.settled_at[self.closed] = self._place
        silent = [name for name in self.study.clients if name not in record.accepted]
        text = f"without {', '.join(silent)}" if silent else ""
        yield Happening("closed", self.closed, None, text)
        for client in silent:
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

    # -- a new log -----------------------------------------------------------------------------------------------

    def new_epoch(self, epoch: int) -> None:
        """The log is lost: read a new one, from the last closed round on. What was open is dropped."""
        if epoch <= self.epoch:
            raise ProtocolError(f"after log {self.epoch} comes a later one; got {epoch}.")
        self.epoch, self._aborted = epoch, self.aborted
        self._stand_after(self.closed, ended=self.ended)
        self._recovery = Recovery(epoch, self.quorum, self._tolerate)

    def _recover(self, recovery: Recovery, entry: AnyEntry, payload: bytes) -> Iterator[Happening]:
        """Until the new log has begun here only checkpoints and relayed rounds are looked at."""
        if isinstance(entry, Relay):
            if entry.epoch == self.epoch:
                yield Happening("relayed", entry.closed.round, entry.sender)
                recovery.relay(entry.sender, entry.closed, tuple(self.study.clients))
                if recovery.target is not None:
                    yield from self._reach(recovery, recovery.target)
                else:
                    yield from self._go_forward(recovery)
            return
        yield from self._wait(entry.sender, payload, signed=True)
        if isinstance(entry, Vote) and entry.decision == Decision("abort") and recovery.target is None:
            recovery.abort_votes.add(entry.sender)
            yield self._happening("vote", entry.sender, "for: abort")
            if len(recovery.abort_votes) >= self.quorum:
                self._aborted = True
                yield self._happening("aborted", None, "a quorum has decided")
        if isinstance(entry, Checkpoint) and entry.epoch == self.epoch and recovery.target is None:
            yield Happening("checkpoint", entry.round, entry.sender)
            yield from self._other_checkpoint(entry, payload)
            stands = self._keys_of(entry)[entry.sender] == self.keys[entry.sender]
            if target := recovery.checkpoint(entry, payload, stands=stands):
                yield from self._reach(recovery, target)

    def _wait(self, sender: str, payload: bytes, *, signed: bool) -> Iterator[Happening]:
        """Put an entry aside: the new log may have begun, for others, after rounds that are not known here."""
        recovery = self._recovery
        if recovery is None or recovery.wait(self._place, sender, payload, signed=signed):
            return
        text = "it has written too much while this peer lacks rounds; if it stays behind: `privatile peer catch-up`"
        yield self._happening("refused", sender, text)

    def _go_forward(self, recovery: Recovery) -> Iterator[Happening]:
        first, before = self.closed, -1
        while before < self.closed and not self.ended:
            before = self.closed
            for closed in recovery.following(self.chain):
                try:
                    self._follow([closed])
                except ProtocolError as error:
                    yield Happening("refused", closed.round, None, str(error))
                else:
                    yield Happening("closed", self.closed, None, "as it was relayed")
                    break
        if any(record.new_keys for record in self._history.records[first:]):
            yield from self._read_anew(recovery)

    def _read_anew(self, recovery: Recovery) -> Iterator[Happening]:
        """Look at the entries of the new log again: rounds were followed, and with them it is known who had which key.

        So everybody's log begins at the same place, whatever rounds they had when they read it.
        """
        self._recovery = anew = recovery.anew()
        for self._place, sender, payload in recovery.waiting:
            yield from self._apply(sender, payload)
        anew.is_anew = False

    def _reach(self, recovery: Recovery, target: Target) -> Iterator[Happening]:
        """Begin the new log here, where all rounds up to the target are known."""
        known = {one: number for number, one in enumerate(self._history.chains)}
        path = recovery.path(known)
        if path is None or (path and recovery.is_anew and target.round <= self.closed):
            yield Happening("behind", target.round)
            return
        ended = target.ended or self.finished
        try:
            if path:
                self._follow(path)
            else:  # a log that is read again begins before what was committed in it
                self._stand_after(max(target.round, self.committed), ended=ended)
        except ProtocolError as error:
            signed = tuple(target.signed.values())
            yield Happening("other history", target.round, None, str(error), signed, signs=True)
            return
        if path:
            yield from self._read_anew(recovery)
            return
        self._recovery = None
        if self._unread is not None:
            self._unread.begin(self.epoch, target.round, target.asks)
        yield Happening("begun", target.round)
        if (self.closed, self.ended) == (target.round, target.ended):
            for sender, payload in target.signed.items():
                yield from self._sign(sender, payload)
            yield from self._ask_again(target.asks)
        for self._place, sender, payload in recovery.waiting[recovery.begins :]:
            yield from self._apply(sender, payload)

    def _ask_again(self, questions: Sequence[tuple[LevelAsk, ...]]) -> Iterator[Happening]:
        """Open the next round with the question that most peers have answered: its answers can be sent again."""
        for asks in () if self.ended else questions:
            try:
                self._history.take(asks)
            except ProtocolError:
                continue
            yield from self._open(asks, None)
            return
