"""Going back to an earlier round, and following rounds that others have closed."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from privatile.errors import NotSigned, ProtocolError
from privatile.records.keys import PublicKeys
from privatile_leaderless import chain as chains
from privatile_leaderless import quorums
from privatile_leaderless.entries import AnyEntry, Checkpoint, ClosedRound, Stand, read_entry
from privatile_leaderless.happenings import Happening
from privatile_leaderless.recovery import Place
from privatile_leaderless.standing import Gathered, Standing
from privatile_leaderless.unread import Unread


class NotClosedSoError(ProtocolError):
    """Honest peers close none of these rounds, which are texts of one, where they would follow."""

    def __init__(self, rounds: Sequence[ClosedRound], why: ProtocolError) -> None:
        super().__init__(str(why))
        self.rounds = tuple(rounds)


class Following(Standing):
    """A replica that moves along closed rounds."""

    def catch_up(self, rounds: Sequence[ClosedRound], proof: Mapping[str, bytes] | None = None) -> int:
        """Follow rounds of another peer's file as far as they go on from here; gives how many were new.

        `proof` has signed entries, by peer, over the value after the last of them. Rounds that are closed here and not
        committed give way to others. A ProtocolError where they belong to another history than the committed one, or
        are not what honest peers close.
        """
        clients, known = tuple(self.study.clients), set(self._history.chains)
        path = [one for one in rounds if chains.closed_chain(one, clients) not in known]
        if path:
            self._unread = None
            self._follow([[one] for one in path])
        last = rounds[-1].round if rounds else 0
        if last == self.closed and not self.finished:
            signed = {sender: self._signed(sender, payload) for sender, payload in (proof or {}).items()}
            for ended in (False, True):
                value = (last + 1 + ended, chains.end_chain(self.chain, last) if ended else self.chain)
                found = {sender: payload for sender, payload in (proof or {}).items() if signed[sender] == value}
                if len(found) >= self.quorum:
                    self._prove(found, ended=ended)
        return len(path)

    def read_again(self, epoch: int, settled: int) -> None:
        """The log is read from the end of this round: nothing counts before the last one that is known (`Unread`)."""
        if self.closed > settled:
            self._unread = Unread(self._history, epoch, settled, quorums.closing(self.study))

    def _read(self, sender: str, payload: bytes) -> AnyEntry:
        """An entry, with the key that its sender has at this place of the log; raises as `read_entry` does."""
        if self._recovery is None:
            keys = self.keys if self._unread is None else self._unread.keys
            return read_entry(payload, keys[sender].signer)
        for known in self._history.keys_of(sender):
            with contextlib.suppress(NotSigned):
                entry = read_entry(payload, known.signer)
                # A peer may have its present key only, and stand where it had another.
                present = isinstance(entry, Stand) and known == self.keys[sender]
                if present or known == self._keys_of(entry)[sender]:
                    return entry
        raise NotSigned("it is not signed with the key that its sender had there.")

    def _keys_of(self, entry: AnyEntry) -> Mapping[str, PublicKeys]:
        """The keys that an entry of a log that has not begun is read with: those after the round that it names.

        Whoever has closed a round more than others, or less, has other keys than they where one was replaced in it.
        """
        history = self._history
        if isinstance(entry, Checkpoint) and entry.chain in history.chains[entry.round : entry.round + 1]:
            return history.keys_after(entry.round)
        if isinstance(entry, Stand) and (place := self._place_of(entry)):
            number, chain, _ = place
            if chain in history.chains[number : number + 1]:
                return history.keys_after(number)
        return self.keys

    def _tell_who_lacks(self, entry: Stand) -> Iterator[Happening]:
        """A peer has said in this log where it stands: which rounds it may lack."""
        if entry.epoch == self.epoch and (place := self._place_of(entry)):
            same = place.chain in self._history.chains[place.round : place.round + 1]
            yield Happening("stand", place.round if same else max(0, place.round - 1), entry.sender)

    def _place_of(self, entry: Stand) -> Place | None:
        """Where a peer says that it stands; None where that is no place of this study."""
        last, clients = entry.last, tuple(self.study.clients)
        if last is None:
            return Place(0, self._history.chains[0], entry.ended)
        if len(last.answers) != len(clients):
            return None
        return Place(last.round, chains.closed_chain(last, clients), entry.ended)

    def _signed(self, sender: str, payload: bytes) -> tuple[int, str] | None:
        """The slot and the chain value that a peer has signed with its present key."""
        try:
            entry = read_entry(payload, self.keys[sender].signer)
        except (ProtocolError, KeyError):
            return None
        ours = (entry.study, entry.run, entry.sender) == (self.study.digest, self.study.run, sender)
        return chains.signed_value(entry) if ours else None

    def _prove(self, proof: dict[str, bytes], *, ended: bool) -> None:
        """A quorum has signed where this replica stands, or that it is the end."""
        self.committed, self.proof = self.closed, proof
        if ended:
            self._stand_after(self.closed, ended=True)
            self.finished = True
            self._history.coordinator.finish()

    def _stand_after(self, number: int, *, ended: bool) -> None:
        """Stand right after this round or, where it is the last one and nothing follows, after the end."""
        left = {one.chain: one.closed for one in self._history.records[number:]}
        self._left = {chain: one for chain, one in (self._left | left).items() if one.round > self.committed}
        self._history.back_to(number)
        self._now = Gathered()
        self.ended = False
        self.settled_at = {place: at for place, at in self.settled_at.items() if place <= number}
        if ended:
            self._history.take(())
            self.ended = True

    def _follow(self, path: Sequence[Sequence[ClosedRound]]) -> None:
        """Go along these rounds, of each the first text that honest peers close so; raises as `_move` does."""
        place = {one: number for number, one in enumerate(self._history.chains)}.get(path[0][0].before, -1)
        self._move(place, path, ended=False)

    def _move(
        self,
        place: int,
        path: Sequence[Sequence[ClosedRound]] = (),
        *,
        ended: bool,
        wanted: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Stand after this round, go along others, and to the end where they have `ended`; whether that is `wanted`.

        Where it is not, and where a ProtocolError is raised, it stands where it stood, unless something else is
        committed by what was followed.
        """
        if place < self.committed:
            raise ProtocolError("the rounds belong to another history than the one that is committed here.")
        kept, settled_at, had_ended, moved = self.closed_rounds(place), self.settled_at, self.ended, False
        try:
            self._stand_after(place, ended=ended and not path)
            for found in path:
                self._follow_one(found)
            if ended and path:
                self._stand_after(self.closed, ended=True)
            moved = wanted()
        finally:
            if not moved and self.committed <= place:
                self._stand_after(place, ended=False)
                for closed in kept:
                    self._history.follow(closed)
                self._stand_after(self.closed, ended=had_ended)
                self.settled_at = settled_at
        return moved

    def _follow_one(self, found: Sequence[ClosedRound]) -> None:
        """Go one round further, as the first of these that can be followed."""
        why = ProtocolError("the round was not relayed as honest peers close it.")
        for closed in found:
            try:
                self._history.follow(closed)
            except ProtocolError as error:
                why = error
            else:
                self.committed = max(self.committed, self.closed - 1)  # by the answers of the round
                return
        raise NotClosedSoError(found, why)

    def _other_checkpoint(self, entry: Checkpoint, payload: bytes) -> Iterator[Happening]:
        """Keep a checkpoint of another history than the one that is closed here: its sender may have been led along."""
        if 0 <= entry.round <= self.closed and entry.chain != self._history.chains[entry.round]:
            text = "a checkpoint of another history"
            yield Happening("other history", entry.round, entry.sender, text, (payload,), signs=True)


def body_of(payload: bytes) -> bytes:
    """An entry without its signature."""
    return payload.rpartition(b"\n")[0]
