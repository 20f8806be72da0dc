"""What goes to the journal once per tick: each write waits for the disk, and no client may fill it."""

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from privatile.errors import StoreError
from privatile.federation.coordinator.answer_intake import LateLink, Verdict
from privatile.federation.coordinator.journal import Journal, Uncounted

ROWS_PER_CLIENT = 20
"""Events of one kind that one client may cause before they are thinned out."""


class PendingNotes:
    """Who was heard, what did not count and who is awaited, since this was last written to the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._late_links = journal.late_links()
        """As the journal has them."""
        self._heard: dict[str, float] = {}
        self._uncounted: dict[tuple[int, str, str], Uncounted] = {}
        self._caused: Counter[tuple[str, str]] = Counter()
        """Events that a client has caused, by kind and client."""
        self._awaited: tuple[int, float, tuple[str, ...]] | None = None
        """As the journal has them: a round, since when it is asked, and the clients that have not answered it."""

    def hear(self, client: str) -> None:
        """A client has just sent something with a valid signature."""
        self._heard[client] = time.time()

    def note_uncounted(self, client: str, verdict: Verdict, rounds_begun: int) -> None:
        """Keep that an answer came and did not count: one row per round, client and outcome."""
        number = verdict.round
        if number is None or not 1 <= number <= rounds_begun:
            return
        key = (number, client, verdict.outcome)
        before = self._uncounted.get(key, Uncounted(*key, verdict.reason, time.time(), 0))
        self._uncounted[key] = before._replace(times=before.times + 1)

    def worth_a_row(self, kind: str, client: str) -> bool:
        """Whether what a client has caused again is written: always at first, then only the 1st, 2nd, 4th, 8th …

        No client may fill the coordinator's disk; the metrics count every one.
        """
        self._caused[kind, client] += 1
        count = self._caused[kind, client]
        return count <= ROWS_PER_CLIENT or count & (count - 1) == 0

    def write_awaited(self, number: int, since: float, missing: Sequence[str]) -> None:
        """Whose answers an open round lacks, where that has changed: the dashboard and `status` read it."""
        awaited = (number, since, tuple(missing))
        if awaited != self._awaited:
            with contextlib.suppress(StoreError):  # as below
                self._journal.set_awaited(number, since, missing)
                self._awaited = awaited

    def write(self, late_links: Mapping[str, LateLink]) -> dict[str, float]:
        """Write the rest, and give who was heard when."""
        heard, self._heard = self._heard, {}
        uncounted, self._uncounted = self._uncounted, {}
        late = {client: one for client, one in late_links.items() if self._late_links.get(client) != one}
        with contextlib.suppress(StoreError):  # a full disk is reported by what matters: a round or an event
            if heard:
                self._journal.hear(heard)
            if uncounted:
                self._journal.add_uncounted(uncounted.values())
            if late:
                self._journal.set_late_links(late)
                self._late_links.update(late)
        return heard

    def relinked(self, client: str, late: LateLink) -> None:
        """The journal has just been given this link, with a restored ledger."""
        self._late_links[client] = late
