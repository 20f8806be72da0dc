"""The state machine that every organization runs over the common log: entries in, rounds out.

No input, no output, and nothing that depends on a clock. What an entry does follows from the entries before it, so all
who read the same log stand at the same place. What is signed, by whom and when, is up to the peer that runs it
(`federation.peer`); the rules that its signatures must keep are in `chain`. What entries do in a log that has begun is
in `rounds`; here is which of them are looked at, and how a new log begins after a lost one.

What a liar can do is stop the run, and the log's operator too: withhold entries, fill the log, or propose a question
on the very edge of the tolerance, which one processor accepts and another refuses (their answers are then to different
questions, and no quorum has answered the same one). Nobody is led along two histories by any of this.
"""

import contextlib
from collections.abc import Generator, Iterator, Sequence

from privatile.errors import NotSigned, ProtocolError
from privatile_leaderless.entries import (
    AnyEntry,
    Checkpoint,
    ClosedRound,
    Decision,
    LevelAsk,
    Relay,
    Stand,
    Vote,
    read_entry,
)
from privatile_leaderless.following import NotClosedSoError
from privatile_leaderless.happenings import Happening
from privatile_leaderless.recovery import Choice, Recovery, Target
from privatile_leaderless.rounds import Rounds


class Replica(Rounds):
    """The state machine. Entries come in through `apply`; everything else is to read, or to sign (`Standing`)."""

    # -- entries -------------------------------------------------------------------------------------------------

    def apply(self, sender: str, payload: bytes) -> tuple[Happening, ...]:
        """Take the next entry of the log, from the place of `sender`, and say what it changed."""
        self.applied += 1
        self._place = self.applied
        return tuple(self._apply(sender, payload))

    def _apply(self, sender: str, payload: bytes) -> Iterator[Happening]:
        if self.aborted:
            return
        if self.finished and not self.recovering:
            yield from self._is_late(sender, payload)
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

    def _is_late(self, sender: str, payload: bytes) -> Iterator[Happening]:
        """All is over; somebody may still lack rounds."""
        with contextlib.suppress(ProtocolError, KeyError):
            entry = read_entry(payload, self.keys[sender].signer)
            ours = (entry.study, entry.run, entry.sender) == (self.study.digest, self.study.run, sender)
            if isinstance(entry, Stand) and ours:
                yield from self._tell_who_lacks(entry)

    def _has_come(self, entry: AnyEntry, payload: bytes) -> bool:
        """Whether the rounds that are known here have come, with this entry, where the log is read again."""
        if self._unread is not None:
            self._unread.see(entry, payload)
            if self._unread.is_complete:
                self._unread = None
        return self._unread is None

    # -- a new log -----------------------------------------------------------------------------------------------

    def new_epoch(self, epoch: int) -> None:
        """The log is lost: read a new one, from the last closed round on. What was open is dropped."""
        if epoch <= self.epoch:
            raise ProtocolError(f"after log {self.epoch} comes a later one; got {epoch}.")
        self.epoch, self._aborted, before = epoch, self.aborted, self._abort_voters
        self._stand_after(self.closed, ended=self.ended)
        self._recovery = Recovery(epoch, self.quorum, len(self.study.clients), abort_before=before)

    def _recover(self, recovery: Recovery, entry: AnyEntry, payload: bytes) -> Iterator[Happening]:
        """Until the new log has begun here only this is looked at: where peers stand, relayed rounds, checkpoints."""
        if isinstance(entry, Relay):
            if entry.epoch == self.epoch:
                yield Happening("relayed", entry.closed.round, entry.sender)
                if recovery.relay(entry.sender, entry.closed, len(payload), tuple(self.study.clients)):
                    yield from self._go_on(recovery)
            return
        if not (yield from self._wait(entry.sender, payload, signed=True)):
            return
        if isinstance(entry, Stand) and entry.epoch == self.epoch:
            yield from self._tell_who_lacks(entry)
            if place := self._place_of(entry):
                recovery.hear(entry, payload, self._signer_of(entry, payload), place)
                if entry.last is not None:
                    recovery.relay(entry.sender, entry.last, len(payload), tuple(self.study.clients))
                yield from self._go_on(recovery, heard=True)
        if isinstance(entry, Vote) and entry.decision == Decision("abort") and recovery.target is None:
            recovery.abort_votes.add(entry.sender)
            yield self._happening("vote", entry.sender, "for: abort")
            if len(self._abort_voters) >= self.quorum:
                self._aborted = True
                yield self._happening("aborted", None, "a quorum has decided")
        if isinstance(entry, Checkpoint) and entry.epoch == self.epoch and recovery.target is None:
            yield Happening("checkpoint", entry.round, entry.sender)
            yield from self._other_checkpoint(entry, payload)
            if target := recovery.checkpoint(entry, payload):
                yield from self._reach(recovery, target)

    def _signer_of(self, entry: Stand, payload: bytes) -> str:
        """The key that it is signed with: the one that its sender has now, or had at the place that it names."""
        now = self.keys[entry.sender].signer
        with contextlib.suppress(NotSigned):
            read_entry(payload, now)
            return now
        return self._keys_of(entry)[entry.sender].signer

    def _wait(self, sender: str, payload: bytes, *, signed: bool) -> Generator[Happening, None, bool]:
        """Put an entry aside: the new log may have begun, for others, after rounds that are not known here.

        Gives whether there was room: what there is none for is not looked at.
        """
        recovery = self._recovery
        if recovery is None or recovery.wait(self._place, sender, payload, signed=signed):
            return True
        if signed:  # otherwise anybody may have written it
            text = "it has written too much while this peer lacks rounds; if it stays behind: `privatile peer catch-up`"
            yield self._happening("refused", sender, text)
        return False

    def _go_on(self, recovery: Recovery, *, heard: bool = False) -> Iterator[Happening]:
        """Something was said or relayed: go to the target, or where the log is to begin, or as far as rounds lead.

        Where it begins follows from what was `heard` of where peers stand, and from the rounds that are known here.
        """
        if recovery.target is not None:
            yield from self._reach(recovery, recovery.target)
            return
        if recovery.choice is not None:
            return
        keys, place = dict(self.keys), (self.chain, self.committed)
        yield from self._go_forward(recovery)
        if self.keys == keys and (heard or (self.chain, self.committed) != place):
            yield from self._choose(recovery)
        if self.keys != keys:
            yield from self._read_anew(recovery)

    def _go_forward(self, recovery: Recovery) -> Iterator[Happening]:
        """Follow what was relayed as far as it goes."""
        for path in self._ways_past_here(recovery):
            if (yield from self._try(recovery, path)):
                break
        before = -1
        while before < self.closed and not self.ended:
            before = self.closed
            for _, found in recovery.following(self.chain):
                if (yield from self._try(recovery, [found])):
                    break

    def _try(self, recovery: Recovery, path: list[list[ClosedRound]]) -> Generator[Happening, None, bool]:
        """Follow these rounds; whether honest peers close them so. What they do not is never tried again."""
        try:
            self._follow(path)
        except NotClosedSoError as error:
            recovery.refuse_rounds(error.rounds, tuple(self.study.clients))
            yield Happening("refused", error.rounds[0].round, None, str(error))
            return False
        yield Happening("closed", self.closed, None, "as it was relayed")
        return True

    def _ways_past_here(self, recovery: Recovery) -> Iterator[list[list[ClosedRound]]]:
        """Two rounds after the last committed one, where one is closed here: answers to the second commit the first.

        So where the first is another than the one here, the one here will never be committed.
        """
        if self.closed == self.committed + 1:
            for value, first in recovery.following(self._history.chains[self.committed]):
                if value != self.chain:
                    yield from ([first, second] for _, second in recovery.following(value))

    def _choose(self, recovery: Recovery) -> Iterator[Happening]:
        """Go where the new log is to begin, where that follows from what was said."""
        for choice in recovery.candidates():
            try:
                if self._go_to(recovery, choice):
                    recovery.choice = choice
                    return
            except ProtocolError as error:
                recovery.refuse(choice)
                named = choice.named
                text = f"it says that it stands where honest peers do not: {error}"
                yield Happening("refused", named.place.round, named.sender, text, (named.payload,))

    def _go_to(self, recovery: Recovery, choice: Choice) -> bool:
        """Go there, where the rounds before it are known and enough have their present key there; whether it did.

        A ProtocolError where honest peers do not close it so. It stays where it is, then.
        """
        (number, chain, ended), chains, last = choice.place, self._history.chains, choice.named.last

        def have_keys() -> bool:
            # Where a round is dropped that has replaced a key, the present one does not hold.
            keys = recovery.keys_at.setdefault(chain, dict(self.keys))
            return sum(keys[name].signer == signer for name, signer in choice.signers) >= self.quorum

        if number < self.committed:
            return False
        if [chain] == chains[number : number + 1]:
            recovery.keys_at[chain] = self._history.keys_after(number)
            return have_keys() and ((number, ended) == (self.closed, self.ended) or self._move(number, ended=ended))
        if last is not None and number > self.committed and [last.before] == chains[number - 1 : number]:
            if chain in recovery.keys_at and not have_keys():
                return False
            return self._move(number - 1, [[last]], ended=ended, wanted=have_keys)
        return False

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
            if isinstance(error, NotClosedSoError):
                recovery.refuse_rounds(error.rounds, tuple(self.study.clients))
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
        """Open the next round with the question that most checkpoints name: its answers can be sent again."""
        for asks in () if self.ended else questions:
            try:
                self._history.take(asks)
            except ProtocolError:
                continue
            yield from self._open(asks, None)
            return
