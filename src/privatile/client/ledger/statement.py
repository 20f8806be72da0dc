"""What a ledger says about itself: who has answered how much, and what it cost. Never a value."""

import math
from dataclasses import dataclass

from privatile.client.ledger.datasets import most_spent, spent_elsewhere, stored_identity
from privatile.client.ledger.ledger import Ledger


@dataclass(frozen=True)
class DatasetLine:
    """One client's column: `reports` given in all, records neither asked nor reserved, the most any record has spent.

    `number` counts the data sets in the order in which they first answered, and `first_run` is the run that came first:
    two data sets of one client and column differ in both. `reserved` are records that unfinished runs keep for
    themselves. `epsilon` includes what the same records have spent under other names (`datasets`); it is ∞ where
    records answered without privacy, and where the ledger was `restored`, when it is not known.
    """

    number: int
    client: str
    column: str
    by_person: bool
    records: int
    reports: int
    reserved: int
    unasked: int
    runs: int
    first_run: str
    epsilon: float
    restored: bool


@dataclass(frozen=True)
class Statement:
    """A line for each data set; `people` known by a person column, and the most any of them has spent for life.

    Once the ledger was `restored` from a backup that is not known, and `person_epsilon` is ∞ if it knows people.
    """

    datasets: tuple[DatasetLine, ...]
    people: int
    person_epsilon: float
    entries: int
    restored: bool


def statement(ledger: Ledger) -> Statement:
    """Read the whole ledger.

    >>> statement(Ledger.in_memory())
    Statement(datasets=(), people=0, person_epsilon=0.0, entries=0, restored=False)
    """
    rows = ledger.execute(
        "SELECT d.id, d.client, d.column, d.person IS NOT NULL, d.records, coalesce(sum(a.length), 0),"
        " CASE WHEN d.lost THEN 0 ELSE max(0, d.records - d.cursor) END, count(DISTINCT a.run), d.lost,"
        " (SELECT coalesce(sum(k.reserved - k.next), 0) FROM runs k WHERE k.dataset = d.id AND k.reserved > k.next),"
        " coalesce((SELECT b.run FROM runs k JOIN answers b ON b.run = k.run AND b.client = k.client"
        "  WHERE k.dataset = d.id ORDER BY b.sequence LIMIT 1), min(r.run), '') FROM datasets d"
        " LEFT JOIN runs r ON r.dataset = d.id"
        " LEFT JOIN answers a ON a.run = r.run AND a.client = r.client"
        " GROUP BY d.id ORDER BY d.client, d.column, d.id"
    ).fetchall()
    people, most = ledger.lifetime_budgets.totals()
    # What people have spent as nameless records of the same column is theirs too.
    named = [stored_identity(ledger, dataset) for dataset, _, _, by_person, *_ in rows if by_person]
    most += max((spent_elsewhere(ledger, this) for this in named), default=0.0)
    restored = ledger.meta("restored") is not None
    lines = tuple(
        DatasetLine(
            number=dataset,
            client=client,
            column=column,
            by_person=bool(by_person),
            records=records,
            reports=reports,
            reserved=reserved,
            unasked=unasked,
            runs=runs,
            first_run=first_run,
            epsilon=most_spent(ledger, dataset),
            restored=bool(lost),
        )
        for dataset, client, column, by_person, records, reports, unasked, runs, lost, reserved, first_run in rows
    )
    most = math.inf if restored and people else most
    return Statement(lines, people, most, ledger.position.sequence, restored)
