"""A log that is read again, or after catching up: which of the rounds that are known already have come."""

from collections.abc import Sequence

from privatile.federation.replica.entries import ClosedRound, CloseVote, LevelAsk, Proposal, asks_digest
from privatile.federation.replica.history import RoundRecord


class Unread:
    """The closed rounds that have not come yet, in a log that is read again, or after catching up with a file.

    A liar that answers last knows the chain value after a round before the round is closed. What it writes with that
    value ahead of its answer counts for nobody who reads the log for the first time. So nothing counts here, either,
    before the last closed round is complete: its answers, its notes and, where answers were missing, the votes to close
    it. (Not the votes where a key was replaced since: who had voted with the older one is not known any more.)

    Rounds become complete one after the other, and votes count after the question: what came earlier in the log, and
    comes again, did not count for others, either.
    """

    def __init__(self, records: Sequence[RoundRecord], epoch: int, number: int, votes: int) -> None:
        """The log is read from the end of round `number` on; `votes` are those that it takes to close a round."""
        self._records, self._needed = tuple(records), votes
        self._last_new_key = max((one.closed.round for one in records if one.replaced_key), default=0)
        self.begin(epoch, number)

    def begin(self, epoch: int, number: int, questions: Sequence[tuple[LevelAsk, ...]] = ()) -> None:
        """This log begins after round `number`; its next question may be known beforehand, and is one of these."""
        self._epoch = epoch
        self._expect(number)
        self._asked = self._closed is not None and self._closed.asks in questions

    def _expect(self, number: int) -> None:
        """Wait for the round after this one."""
        self._number, self._asked = number, False
        closed = self._records[number].closed if number < len(self._records) else None
        self._closed: ClosedRound | None = closed
        self._payloads, self._voters = set[bytes](), set[str]()
        if closed is not None:
            texts = (*closed.answers, *(note.payload for note in closed.notes))
            self._payloads = {one.encode() for one in texts if one is not None}

    @property
    def is_complete(self) -> bool:
        """Whether all rounds have come."""
        return self._closed is None

    def see(self, payload: bytes) -> None:
        """An entry was read, whoever has signed it."""
        self._payloads.discard(payload)
        self._go_on()

    def note(self, entry: Proposal | CloseVote) -> None:
        """A question, or a vote to close, was read that its sender has signed."""
        closed = self._closed
        if closed is None or (entry.round, entry.chain) != (closed.round, closed.before):
            return
        if isinstance(entry, Proposal):
            self._asked = self._asked or entry.asks == closed.asks
        elif self._asked and (entry.epoch, entry.question) == (self._epoch, asks_digest(closed.asks)):
            self._voters.add(entry.sender)
        self._go_on()

    def _go_on(self) -> None:
        if (closed := self._closed) is None or self._payloads:
            return
        by_votes = None in closed.answers and closed.round > self._last_new_key
        if not by_votes or len(self._voters) >= self._needed:
            self._expect(self._number + 1)
