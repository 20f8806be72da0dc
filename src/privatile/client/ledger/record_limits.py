"""What records have spent, or have reserved for other runs: looked at before a run asks them, at every answer.

An answer is checked against what is true now, not against what was true when the run was opened: other runs may have
answered or reserved the same records meanwhile. Reading all spans takes as long as there are answers, so it is done
again only where another run has moved.
"""

import math
from dataclasses import dataclass, field

from privatile.client.ledger.datasets import (
    Content,
    Span,
    added_up,
    any_lost,
    dataset_id,
    most_by_name,
    most_within,
    nameless,
    overlapping_datasets,
    said_new,
    sharing_datasets,
    spans_of,
)
from privatile.client.ledger.ledger import Ledger


@dataclass(eq=False)
class RecordLimit:
    """The records of one data set, as one run at one client sees them."""

    ledger: Ledger
    run: str
    content: Content
    new_people: bool
    """Whether the run's holder says that these people are in no other data set."""
    _others: tuple[tuple[float, ...], list[Span]] | None = field(default=None, init=False)
    """How far other runs of the data set have come, and the spans they have answered or reserved."""
    _elsewhere: tuple[object, float] | None = field(default=None, init=False)
    """The state of the ledger's other splits, and what was spent there."""

    def spent_within(self, start: int, stop: int) -> float:
        """The most that one record at these positions has spent in this data set, or has reserved for another run."""
        dataset = dataset_id(self.ledger, self.content)
        if dataset is None:
            return 0.0
        own = (self.run, self.content.client)
        moved = self.ledger.execute(
            "SELECT count(*), total(answers), total(next), total(reserved) FROM runs"
            " WHERE dataset = ? AND (run, client) <> (?, ?)",
            (dataset, *own),
        ).fetchone()
        if self._others is None or self._others[0] != moved:
            self._others = moved, spans_of(self.ledger, dataset, reserved=True, but=own)
        return most_within(self._others[1], self.content.records, (start, stop))

    def spent_elsewhere(self) -> float:
        """The most that a person here may have spent, or runs have reserved, in other data sets; people not by name."""
        (version,) = self.ledger.execute("PRAGMA data_version").fetchone()
        moves, own = self.ledger.moves, self.content.split
        state = version, self.ledger.rollbacks, moves.total() - moves[own]
        if self._elsewhere is None or self._elsewhere[0] != state:
            self._elsewhere = state, self._look(own, state)
        return self._elsewhere[1]

    def is_apart(self) -> bool:
        """Whether by the holder's word these people are in no other data set, and no digest contradicts it."""
        is_new = self.new_people or dataset_id(self.ledger, self.content) in said_new(self.ledger)
        return is_new and not sharing_datasets(self.ledger, self.content)

    def _look(self, own: object, state: object) -> float:
        ledger, content = self.ledger, self.content
        if self.is_apart():
            return 0.0
        # Elsewhere nothing was answered since a restore but what was reserved before it, and counted as spent.
        if any_lost(ledger, overlapping_datasets(ledger, content)):
            return math.inf
        if own not in ledger.nameless or ledger.nameless[own][0] != state:
            ledger.nameless[own] = state, nameless(ledger, reserved=True), most_by_name(ledger)
        _, sets, by_name = ledger.nameless[own]
        others = added_up((part, epsilon) for other, part, epsilon in sets if not content.same_split(other))
        return others if content.by_person else others + by_name
