"""What a ledger says about itself: who has answered how much, and what it cost. Never a value."""

from dataclasses import dataclass

from privatile.client.ledger.datasets import most_spent, spent_elsewhere, stored_identity
from privatile.client.ledger.ledger import Ledger


@dataclass(frozen=True)
class DatasetLine:
    """One client's column: `reports` given in all, records neither asked nor reserved, the most any record has spent.

    `epsilon` includes what the same records have spent under other names (`datasets`); it is ∞ after a restore, when
    that is not known.
    """

    client: str
    column: str
    by_person: bool
    records: int
    reports: int
    unasked: int
    runs: int
    epsilon: float


@dataclass(frozen=True)
class Statement:
    """A line for each data set; `people` known by a person column, and the most any of them has spent for life."""

    datasets: tuple[DatasetLine, ...]
    people: int
    person_epsilon: float
    entries: int


def statement(ledger: Ledger) -> Statement:
    """Read the whole ledger.

    >>> statement(Ledger.in_memory())
    Statement(datasets=(), people=0, person_epsilon=0.0, entries=0)
    """
    rows = ledger.execute(
        "SELECT d.id, d.client, d.column, d.person IS NOT NULL, d.records, coalesce(sum(a.length), 0),"
        " CASE WHEN d.lost THEN 0 ELSE max(0, d.records - d.cursor) END, count(DISTINCT a.run) FROM datasets d"
        " LEFT JOIN runs r ON r.dataset = d.id"
        " LEFT JOIN answers a ON a.run = r.run AND a.client = r.client"
        " GROUP BY d.id ORDER BY d.client, d.column, d.id"
    ).fetchall()
    people, most = ledger.lifetime_budgets.totals()
    # What people have spent as nameless records of the same column is theirs too.
    named = [stored_identity(ledger, dataset) for dataset, _, _, by_person, *_ in rows if by_person]
    most += max((spent_elsewhere(ledger, this) for this in named), default=0.0)
    lines = tuple(
        DatasetLine(client, column, bool(by_person), records, reports, unasked, runs, most_spent(ledger, dataset))
        for dataset, client, column, by_person, records, reports, unasked, runs in rows
    )
    return Statement(lines, people, most, ledger.position.sequence)
