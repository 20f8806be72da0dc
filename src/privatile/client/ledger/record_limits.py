"""What records have spent, or have reserved for other runs: looked at before a run asks them, at every answer.

An answer is checked against what is true now, not against what was true when the run was opened: other runs may have
answered or reserved the same records meanwhile. Reading all spans takes as long as there are answers, so it is done
again only where another run has moved.
"""

from dataclasses import dataclass, field

from privatile.client.ledger.datasets import (
    Content,
    Span,
    dataset_id,
    most_within,
    overlapping_datasets,
    overlapping_nameless,
    spans_of,
    spent_elsewhere,
)
from privatile.client.ledger.ledger import Ledger


@dataclass(eq=False)
class RecordLimit:
    """The records of one data set, as one run at one client sees them."""

    ledger: Ledger
    run: str
    content: Content
    _others: tuple[tuple[float, ...], list[Span]] | None = field(default=None, init=False)
    """How far other runs of the data set have come, and the spans they have answered or reserved."""
    _alone_at: tuple[int, int] | None = field(default=None, init=False)
    """Which state of the ledger held no data set that overlaps with this one."""

    def spent_within(self, start: int, stop: int) -> float:
        """The most that one record at these positions has spent, or has reserved for another run."""
        spent = self.spent_elsewhere()
        dataset = dataset_id(self.ledger, self.content)
        if dataset is None:
            return spent
        own = (self.run, self.content.client)
        moved = self.ledger.execute(
            "SELECT count(*), total(answers), total(next), total(reserved) FROM runs"
            " WHERE dataset = ? AND (run, client) <> (?, ?)",
            (dataset, *own),
        ).fetchone()
        if self._others is None or self._others[0] != moved:
            self._others = moved, spans_of(self.ledger, dataset, reserved=True, but=own)
        return spent + most_within(self._others[1], self.content.records, (start, stop))

    def spent_elsewhere(self) -> float:
        """What the same records have spent, or have reserved, under other names."""
        (version,) = self.ledger.execute("PRAGMA data_version").fetchone()
        if self._alone_at != (version, self.ledger.entered):
            others = overlapping_datasets(self.ledger, self.content)
            if others or (self.content.by_person and overlapping_nameless(self.ledger)):
                return spent_elsewhere(self.ledger, self.content, reserved=True)
            self._alone_at = version, self.ledger.entered
        return 0.0
