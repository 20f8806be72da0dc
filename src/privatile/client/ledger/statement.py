"""What a ledger says about itself: who has answered how much, and what it cost. Never a value."""

import math
from dataclasses import dataclass

from privatile.client.ledger.datasets import added_up, most_spent, nameless, said_new
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
    new_people: bool
    """Whether by the holder's word its people are in no other data set."""


@dataclass(frozen=True)
class Statement:
    """A line for each data set; `people` known by a person column, and the most any of them has spent for life by name.

    On top of it a person may have spent `nameless_epsilon`, in the data sets without a person column. Once the ledger
    was `restored` from a backup neither is known: `person_epsilon` is ∞ if it knows people, the other if it has such.
    `max_epsilon` is the last limit that was given.
    """

    datasets: tuple[DatasetLine, ...]
    people: int
    person_epsilon: float
    entries: int
    restored: bool
    nameless_epsilon: float = 0.0
    max_epsilon: float | None = None


def statement(ledger: Ledger) -> Statement:
    """Read the whole ledger.

    >>> statement(Ledger.in_memory())
    Statement(datasets=(), people=0, person_epsilon=0.0, entries=0, restored=False, \
nameless_epsilon=0.0, max_epsilon=None)
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
    added = added_up((part, epsilon) for _, part, epsilon in nameless(ledger, reserved=False))
    new = said_new(ledger)
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
            new_people=dataset in new,
        )
        for dataset, client, column, by_person, records, reports, unasked, runs, lost, reserved, first_run in rows
    )
    most, added = (math.inf if restored and epsilon else epsilon for epsilon in (most, added))
    return Statement(lines, people, most, ledger.position.sequence, restored, added, ledger.max_epsilon)
