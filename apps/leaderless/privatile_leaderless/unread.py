"""A log that is read again, or after catching up: which of the rounds that are known already have come."""

from collections.abc import Mapping, Sequence

from privatile.records.keys import PublicKeys
from privatile_leaderless.entries import AnyEntry, CloseVote, LevelAsk, Proposal, asks_digest
from privatile_leaderless.history import History, RoundRecord


class Unread:
    """The closed rounds that have not come yet, in a log that is read again, or after catching up with a file.

    A liar that answers last knows the chain value after a round before the round is closed. What it writes with that
    value ahead of its answer counts for nobody who reads the log for the first time. So nothing counts here, either,
    before the last closed round is complete: its answers, its notes and, where answers were missing, the votes to close
    it. All of them are read with the keys that the peers had at that place: a key that was replaced within a round
    holds after the vote that decided it.

    Rounds become complete one after the other, notes count in their order, and votes count after the question: what
    came earlier in the log, and comes again, did not count for others, either.
    """

    def __init__(self, history: History, epoch: int, number: int, votes: int) -> None:
        """The log is read from the end of round `number` on; `votes` are those that it takes to close a round."""
        self._history, self._needed = history, votes
        self.begin(epoch, number)

    def begin(self, epoch: int, number: int, questions: Sequence[tuple[LevelAsk, ...]] = ()) -> None:
        """This log begins after round `number`; its next question may be known beforehand, and is one of these."""
        self._epoch, self._records = epoch, tuple(self._history.records)
        self._keys = self._history.keys_after(number)
        self._expect(number)
        self._asked = self._record is not None and self._record.closed.asks in questions

    def _expect(self, number: int) -> None:
        """Wait for the round after this one."""
        self._number, self._asked = number, False
        record = self._records[number] if number < len(self._records) else None
        self._record: RoundRecord | None = record
        self._answers, self._noted, self._voters = set[bytes](), 0, set[str]()
        if record is not None:
            self._answers = {one.encode() for one in record.closed.answers if one is not None}

    @property
    def keys(self) -> Mapping[str, PublicKeys]:
        """The keys that the peers have at this place of the log."""
        return self._keys

    @property
    def is_complete(self) -> bool:
        """Whether all rounds have come."""
        return self._record is None

    def see(self, entry: AnyEntry, payload: bytes) -> None:
        """An entry was read that its sender has signed, with the key that it has here."""
        if self._record is None:
            return
        closed = self._record.closed
        self._answers.discard(payload)
        if self._noted < len(closed.notes) and closed.notes[self._noted].payload.encode() == payload:
            self._noted += 1
            self._keys |= {one.client: one.keys for one in self._record.new_keys if one.after == self._noted}
        if isinstance(entry, Proposal | CloseVote) and (entry.round, entry.chain) == (closed.round, closed.before):
            if isinstance(entry, Proposal):
                self._asked = self._asked or entry.asks == closed.asks
            elif self._asked and (entry.epoch, entry.question) == (self._epoch, asks_digest(closed.asks)):
                self._voters.add(entry.sender)
        may_close = None not in closed.answers or len(self._voters) >= self._needed
        if may_close and not self._answers and self._noted == len(closed.notes):
            self._expect(self._number + 1)
