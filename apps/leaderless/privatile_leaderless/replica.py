"""The state machine that every organization runs over the common log: entries in, rounds out.

No input, no output, and nothing that depends on a clock. What an entry does follows from the entries before it, so all
who read the same log stand at the same place. What is signed, by whom and when, is up to the peer that runs it
(`conduct`); the rules that its signatures must keep are in `chain`.

A round goes through three stages. It is *open* once a proposal was accepted: the first in the log's order that is valid
(`LevelRun.take`, with the tolerance of the transcript). It is *closed* at the place in the log where all peers have
answered, or where f + 1 have voted to close it and q have answered, whichever comes last; where patience or a
quarantine forbids it, the run pauses. It is *committed* when q peers have signed a chain value that contains it.

What a liar can do is stop the run, and the log's operator too: withhold entries, fill the log, or propose a question
on the very edge of the tolerance, which one processor accepts and another refuses (their answers are then to different
questions, and no quorum has answered the same one). Nobody is led along two histories by any of this.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from privatile.errors import NotSigned, ProtocolError
from privatile.federation.wire import RoundQuestions, question_digest
from privatile.run.rounds import Phase
from privatile_leaderless import chain as chains
from privatile_leaderless import quorums
from privatile_leaderless.entries import (
    AnyEntry,
    Checkpoint,
    ClosedRound,
    CloseVote,
    Final,
    LevelAsk,
    Note,
    PeerAnswer,
    PositionReport,
    Proposal,
    Restored,
    Vote,
    asks_digest,
    read_entry,
)
from privatile_leaderless.history import Quarantine
from privatile_leaderless.recovery import Choice, Place, Recovery, Target
from privatile_leaderless.standing import Kind, LogEffect, OpenRoundState, ReplicaView, open_round

TWO_ANSWERS = "two different answers to one round, both with its signature"


class Replica(ReplicaView):
    """The state machine. Entries come in through `apply`; everything else is to read, or to sign (`ReplicaView`)."""

    def apply(self, sender: str, payload: bytes) -> tuple[LogEffect, ...]:
        """Take the next entry of the log, from the place of `sender`, and say what it changed."""
        self.applied += 1
        return tuple(self._apply(sender, payload))

    def _apply(self, sender: str, payload: bytes) -> Iterator[LogEffect]:
        if self.aborted or (self.finished and not self.recovering):
            return
        if sender not in self.keys:
            yield self._happening("unsigned", None, f"under {sender}: the study has no such peer", payload)
            return
        try:
            entry = read_entry(payload, self.keys[sender].signer)
        except NotSigned as error:
            yield self._happening("unsigned", sender, str(error), payload)
            return
        except ProtocolError as error:
            yield self._happening("refused", sender, str(error), payload)
            return
        if (entry.study, entry.run, entry.sender) != (self.study.digest, self.study.run, sender):
            yield self._happening("refused", sender, "it belongs to another study, run or peer", payload)
        elif self._recovery is not None:
            yield from self._recover(self._recovery, entry, payload)
        else:
            yield from self._take(entry, payload)

    def _happening(self, kind: Kind, client: str | None = None, text: str = "", *payloads: bytes) -> LogEffect:
        return LogEffect(kind, self.closed + 1, client, text, payloads)

    def _signed_elsewhere(self, client: str, text: str, payload: bytes) -> LogEffect:
        """An entry that signs a chain value, and none that counts here."""
        return LogEffect("other history", self.closed + 1, client, text, (payload,), signs=True)

    # -- in a log that has begun -------------------------------------------------------------------------------------

    def _take(self, entry: AnyEntry, payload: bytes) -> Iterator[LogEffect]:
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
                yield LogEffect("final", self.closed, entry.sender)
                yield from self._sign(entry.sender, payload)
            case Final():
                yield self._signed_elsewhere(entry.sender, "a signature over another end", payload)
            case Checkpoint():
                if (entry.round, entry.chain, entry.ended) == (self.closed, self.chain, self.ended):
                    yield from self._sign(entry.sender, payload)
                if entry.epoch == self.epoch:
                    yield LogEffect("checkpoint", entry.round, entry.sender)
                    yield from self._other_checkpoint(entry, payload)
        yield from self._compare(entry)
        yield from self._close()

    def _compare(self, entry: AnyEntry) -> Iterator[LogEffect]:
        """Note who has signed another history; once that are too many (`astray`), say so."""
        value, others = chains.signed_value(entry), self._now.astray
        if value is None or value[0] < self.slot or value == (self.slot, self.head) or entry.sender in others:
            return
        before = self.astray
        others.add(entry.sender)
        if self.astray and not before:
            yield self._happening("astray", None, self.paused)

    def _propose(self, entry: Proposal, payload: bytes) -> Iterator[LogEffect]:
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

    def _open(self, asks: tuple[LevelAsk, ...], sender: str | None) -> Iterator[LogEffect]:
        """The question was taken: answer it, or be at the end."""
        if not asks:
            # Votes since the last round belong to no round.
            self._stand_after(self.closed, ended=True)
            yield LogEffect("ended", self.closed, sender)
            return
        now = self._now
        now.asks, now.intake, now.question = asks, self._history.intake(), asks_digest(asks)
        now.asked = RoundQuestions.of(self.study.digest, self._history.coordinator.questions())
        yield self._happening("proposed", sender)
        for client, payload in now.answers.items():  # those that came before their question
            entry = read_entry(payload, self.keys[client].signer)
            if isinstance(entry, PeerAnswer) and entry.chain == self.chain:
                yield from self._count(entry, payload)

    def _answer(self, entry: PeerAnswer, payload: bytes) -> Iterator[LogEffect]:
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
            if entry.chain != self.chain:
                yield self._signed_elsewhere(sender, "an answer after another history", payload)
                return
            yield from self._sign(sender, payload)
            yield from self._count(entry, payload)

    def _two_answers(self, entry: PeerAnswer, first: bytes, payload: bytes, *, counts: bool) -> Iterator[LogEffect]:
        """A lie that its own signatures prove.

        Where none of them `counts`, it is evidence and no more: whether the run waits must follow from the log and the
        closed rounds, and who is started again knows no late answer.
        """
        sender = entry.sender
        yield LogEffect("two answers", entry.round, sender, TWO_ANSWERS, (first, payload), signs=True)
        if counts and not self.ended and sender not in self.quarantined:
            yield self._quarantine(sender, TWO_ANSWERS, entry.round)

    def _quarantine(self, client: str, reason: str, number: int) -> LogEffect:
        self._history.quarantined[client] = Quarantine(reason, number)
        if self._now.intake is not None:
            self._now.intake.quarantine(client, reason)
        return LogEffect("quarantined", number, client, reason)

    def _count(self, entry: PeerAnswer, payload: bytes) -> Iterator[LogEffect]:
        sender, intake = entry.sender, self._now.intake
        if intake is None or sender in intake.answers:
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

    def _close_vote(self, entry: CloseVote, payload: bytes) -> Iterator[LogEffect]:
        if entry.epoch != self.epoch or entry.round <= self.closed or self._now.intake is None:
            return
        if (entry.round, entry.chain, entry.question) != (self.closed + 1, self.chain, self._now.question):
            yield self._happening("other history", entry.sender, "a vote to close another round", payload)
        elif entry.sender not in self._now.votes:
            self._now.votes[entry.sender] = payload
            yield self._happening("close vote", entry.sender, "", payload)

    def _vote(self, entry: Vote, payload: bytes) -> Iterator[LogEffect]:
        if entry.round <= self.closed:
            return  # what has ended and is not finished can still be aborted: a quorum for its end may never come
        if (entry.round, entry.chain) != (self.closed + 1, self.chain):
            yield self._happening("other history", entry.sender, "a vote after another history", payload)
        elif self._history.note(entry, payload):
            yield self._happening("vote", entry.sender, "to abort the run")
            if self.aborted:
                yield self._happening("aborted", None, "a quorum has decided")

    def _restore(self, entry: Restored, payload: bytes) -> Iterator[LogEffect]:
        # Not while an answer of the lost ledger stands in the open round: its link would come back with it.
        if self.ended or entry.sender in self._now.answers or not self._history.note(entry, payload):
            return
        if self._now.intake is not None:
            self._now.intake.relink(entry.sender, entry.link, self.closed + 1)
        yield self._happening("restored", entry.sender, "its ledger was restored from a backup")

    def _close(self) -> Iterator[LogEffect]:
        now = self._now
        if now.intake is None or self.aborted or self.quarantined:
            return
        late = len(now.votes) >= quorums.closing(self.study) and len(now.intake.answers) >= self.quorum
        if open_round(self.study, now.intake, self._history.coordinator.tracks, late=late).phase is Phase.OPEN:
            return
        votes = now.votes.items() if now.intake.missing else ()
        notes = [Note(name, payload.decode("ascii")) for name, payload in votes][: quorums.closing(self.study)]
        record = self._history.close(now.asks, now.intake, now.answers, notes)
        self._now = OpenRoundState()
        self.settled_at[self.closed] = self.applied
        silent = [name for name in self.study.clients if name not in record.accepted]
        text = f"without {', '.join(silent)}" if silent else ""
        yield LogEffect("closed", self.closed, None, text)
        for client in silent:
            if client in now.answers:  # to another question, or after another history
                self._late[client, self.closed] = now.answers[client]
            text = f"by the votes of {', '.join(sorted(now.votes))}"
            yield LogEffect("closed without", self.closed, client, text)
        for client, one in self.quarantined.items():
            yield LogEffect("quarantined", one.round, client, one.reason)

    def _sign(self, sender: str, payload: bytes) -> Iterator[LogEffect]:
        """A peer has signed the chain value here. A quorum of such signatures commits what lies behind it."""
        proof = self._now.proof
        proof.setdefault(sender, payload)
        if len(proof) < self.quorum:
            return
        if self.committed < self.closed or (self.ended and not self.finished):
            self.committed, self.proof = self.closed, dict(proof)
            yield LogEffect("committed", self.committed)
        if self.ended and not self.finished:
            self.finished = True
            self._history.coordinator.finish()
            yield LogEffect("finished", self.closed)

    # -- a new log ---------------------------------------------------------------------------------------------------

    def new_epoch(self, epoch: int) -> None:
        """The log is lost: read a new one, from the last closed round on. What was open is dropped."""
        if epoch <= self.epoch:
            raise ProtocolError(f"after log {self.epoch} comes a later one; got {epoch}.")
        self.epoch, self._aborted, before = epoch, self.aborted, self.abort_voters
        self._stand_after(self.closed, ended=self.ended)
        self._recovery = Recovery(epoch, self.quorum, len(self.study.clients), before)

    def _recover(self, recovery: Recovery, entry: AnyEntry, payload: bytes) -> Iterator[LogEffect]:
        """Until the new log has begun here only this is looked at: where peers stand, checkpoints, votes to abort.

        A peer that lacks rounds before the place where it has begun for the others looks at nothing more: it takes the
        rounds over from a file, and reads this log again.
        """
        if recovery.target is not None:
            return
        if isinstance(entry, PositionReport) and entry.epoch == self.epoch:
            if place := self._place_of(entry):
                recovery.hear(entry, payload, place)
                if recovery.choice is None:
                    yield from self._choose(recovery)
        elif isinstance(entry, Vote):
            recovery.abort_votes.add(entry.sender)
            yield self._happening("vote", entry.sender, "to abort the run")
            if len(self.abort_voters) >= self.quorum:
                self._aborted = True
                yield self._happening("aborted", None, "a quorum has decided")
        elif isinstance(entry, Checkpoint) and entry.epoch == self.epoch:
            yield LogEffect("checkpoint", entry.round, entry.sender)
            yield from self._other_checkpoint(entry, payload)
            if target := recovery.checkpoint(entry, payload):
                yield from self._begin(recovery, target)

    def _place_of(self, entry: PositionReport) -> Place | None:
        """Where a peer says that it stands; None where that is no place of this study."""
        last, clients = entry.last, tuple(self.study.clients)
        if last is None:
            return Place(0, self._history.chains[0], entry.ended)
        if not last.fits(len(clients)):
            return None
        return Place(last.round, chains.closed_chain(last, clients), entry.ended)

    def _choose(self, recovery: Recovery) -> Iterator[LogEffect]:
        """Go where the new log is to begin, where that follows from what was said."""
        for choice in recovery.candidates():
            try:
                if self._go_to(choice):
                    recovery.choice = choice
                    return
            except ProtocolError as error:
                recovery.refuse(choice)
                named = choice.named
                text = f"it says that it stands where honest peers do not: {error}"
                yield LogEffect("refused", named.place.round, named.sender, text, (named.payload,))

    def _go_to(self, choice: Choice) -> bool:
        """Go there, where the rounds before it are known; whether it did.

        A ProtocolError where honest peers do not close it so. It stays where it is, then.
        """
        (number, chain, ended), known, last = choice.place, self._history.chains, choice.named.last
        if number < self.committed:
            return False
        if [chain] == known[number : number + 1]:
            if (number, ended) != (self.closed, self.ended):
                self._move(number, ended=ended)
            return True
        if last is None or number <= self.committed or [last.before] != known[number - 1 : number]:
            return False
        self._move(number - 1, [last], ended=ended)
        return True

    def _begin(self, recovery: Recovery, target: Target) -> Iterator[LogEffect]:
        """Begin the new log here, where all rounds up to the target are known, or all but the last."""
        number, known = target.round, self._history.chains
        if [target.chain] == known[number : number + 1]:
            ways: list[list[ClosedRound]] = [[]]
        else:
            named = [one.last for one in recovery.said if one.last is not None and one.place.chain == target.chain]
            ways = [[last] for last in named if [last.before] == known[number - 1 : number]]
        ended = target.ended or self.finished
        for way in ways:
            try:
                if way:
                    self._move(number - 1, way, ended=ended)
                else:  # a log that is read again begins before what was committed in it
                    self._stand_after(max(number, self.committed), ended=ended)
            except ProtocolError as error:
                signed = tuple(target.signed.values())
                yield LogEffect("other history", number, None, str(error), signed, signs=True)
                continue
            self._recovery = None
            yield LogEffect("begun", number)
            if (self.closed, self.ended) == (number, target.ended):
                for sender, payload in target.signed.items():
                    yield from self._sign(sender, payload)
                yield from self._ask_again(target.asks)
            return
        yield LogEffect("behind", number)

    def _ask_again(self, questions: Sequence[tuple[LevelAsk, ...]]) -> Iterator[LogEffect]:
        """Open the next round with the question that most checkpoints name: its answers can be sent again."""
        for asks in () if self.ended else questions:
            try:
                self._history.take(asks)
            except ProtocolError:
                continue
            yield from self._open(asks, None)
            return

    def _other_checkpoint(self, entry: Checkpoint, payload: bytes) -> Iterator[LogEffect]:
        """Keep a checkpoint of another history than the one that is closed here: its sender may have been led along."""
        if 0 <= entry.round <= self.closed and entry.chain != self._history.chains[entry.round]:
            text = "a checkpoint of another history"
            yield LogEffect("other history", entry.round, entry.sender, text, (payload,), signs=True)

    # -- going back, and following rounds that others have closed ----------------------------------------------------

    def catch_up(self, rounds: Sequence[ClosedRound], proof: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Follow rounds of another peer's file as far as they go on from here.

        `proof` has signed entries, by peer, over the value after the last of them. Rounds that are closed here and not
        committed give way to others. A ProtocolError where they belong to another history than the committed one, or
        are not what honest peers close.
        """
        clients, known = tuple(self.study.clients), self._history.chains
        path = [one for one in rounds if chains.closed_chain(one, clients) not in known]
        if path:
            self._move(known.index(path[0].before) if path[0].before in known else -1, path, ended=False)
        last = rounds[-1].round if rounds else 0
        if last != self.closed or self.finished:
            return
        entries = [(sender, payload, self._history.entry_of(sender, payload)) for sender, payload in proof.items()]
        signed = [(chains.signed_value(entry), sender, payload) for sender, payload, entry in entries if entry]
        for ended in (False, True):
            value = (last + 1 + ended, chains.end_chain(self.chain, last) if ended else self.chain)
            found = {sender: payload for place, sender, payload in signed if place == value}
            if len(found) >= self.quorum:
                self.committed, self.proof = self.closed, found
                if ended:
                    self._stand_after(self.closed, ended=True)
                    self.finished = True
                    self._history.coordinator.finish()

    def _stand_after(self, number: int, *, ended: bool) -> None:
        """Stand right after this round or, where it is the last one and nothing follows, after the end."""
        left = {one.chain: one.closed for one in self._history.records[number:]}
        self._left = {chain: one for chain, one in (self._left | left).items() if one.round > self.committed}
        self._history.back_to(number)
        self._now = OpenRoundState()
        self.ended = False
        self.settled_at = {place: at for place, at in self.settled_at.items() if place <= number}
        if ended:
            self._history.take(())
            self.ended = True

    def _move(self, place: int, path: Sequence[ClosedRound] = (), *, ended: bool) -> None:
        """Stand after this round, go along others, and to the end where they have `ended`.

        A ProtocolError where honest peers do not close them so. It stands where it stood, then, unless something else
        is committed by what was followed.
        """
        if place < self.committed:
            raise ProtocolError("the rounds belong to another history than the one that is committed here.")
        kept, settled_at, had_ended, moved = self.closed_rounds(place), self.settled_at, self.ended, False
        try:
            self._stand_after(place, ended=ended and not path)
            for closed in path:
                self._history.follow(closed)
                if self.committed < self.closed - 1:  # by the answers of the round
                    answers = zip(self.study.clients, closed.answers, strict=True)
                    self.proof = {name: payload.encode() for name, payload in answers if payload is not None}
                    self.committed = self.closed - 1
            if ended and path:
                self._stand_after(self.closed, ended=True)
            moved = True
        finally:
            if not moved and self.committed <= place:
                self._stand_after(place, ended=False)
                for closed in kept:
                    self._history.follow(closed)
                self._stand_after(self.closed, ended=had_ended)
                self.settled_at = settled_at


def body_of(payload: bytes) -> bytes:
    """An entry without its signature."""
    return payload.rpartition(b"\n")[0]
