"""Reservations: the span of the order that a run keeps for itself, so that runs side by side ask different records.

A run reserves what it will ask before its first question; other runs walk behind it. What was reserved and not asked
is released at the run's end, or when the run is given up.
"""

from __future__ import annotations

from privatile.client.ledger.ledger import Ledger
from privatile.errors import InputError


def release(ledger: Ledger, run: str, client: str) -> None:
    """Release a run's reserved records that were not asked; call inside a transaction.

    The cursor returns to the last position that is answered or still reserved. Records before it that nobody asked
    stay unasked: no order of events makes a record answer twice.
    """
    ledger.execute("UPDATE runs SET reserved = next WHERE run = ? AND client = ? AND reserved > next", (run, client))
    ledger.execute(
        "UPDATE datasets SET cursor = max("
        " (SELECT coalesce(max(r.reserved), 0) FROM runs r WHERE r.dataset = datasets.id),"
        " (SELECT coalesce(max(a.stop), 0) FROM runs r JOIN answers a ON a.run = r.run AND a.client = r.client"
        "  WHERE r.dataset = datasets.id))"
        " WHERE id = (SELECT dataset FROM runs WHERE run = ? AND client = ? AND reserved IS NOT NULL)",
        (run, client),
    )


def release_run(ledger: Ledger, run: str) -> int:
    """Release what a run has reserved and not asked at all its clients; how many records that is."""
    with ledger.transaction():
        rows = ledger.execute("SELECT client, coalesce(reserved - next, 0) FROM runs WHERE run = ?", (run,)).fetchall()
        if not rows:
            raise InputError(f"the ledger {ledger.path} knows no run {run!r}.")
        for client, _ in rows:
            release(ledger, run, client)
    return sum(count for _, count in rows)


def reserved_by_others(ledger: Ledger, run: str, dataset: int | None) -> list[tuple[str, int]]:
    """Other runs that have reserved records of a data set and not asked them: their names, and how many records."""
    return ledger.execute(
        "SELECT run, reserved - next FROM runs WHERE dataset = ? AND run <> ? AND reserved > next", (dataset, run)
    ).fetchall()
