"""Reservations: records that a run keeps for itself until it has asked them or is given up."""

from privatile.client.ledger.ledger import Ledger
from privatile.errors import InputError


def reserved_by_others(ledger: Ledger, dataset: int | None, run: str) -> list[tuple[str, int]]:
    """The other runs that have reserved records of a data set, and how many each."""
    return ledger.execute(
        "SELECT run, reserved - next FROM runs WHERE dataset = ? AND run <> ? AND reserved > next", (dataset, run)
    ).fetchall()


def release(ledger: Ledger, run: str, client: str) -> None:
    """Release a run's reserved records that were not asked; call inside a transaction.

    The cursor returns to the last position that is answered or still reserved. Records before it that nobody asked
    stay unasked: no order of events makes a record answer twice. What a restore has marked as lost stays lost.
    """
    own = (run, client)
    ledger.moves[None] += 1
    row = ledger.execute("SELECT 1 FROM runs WHERE run = ? AND client = ? AND reserved > next", own).fetchone()
    if row is not None:
        ledger.secret.note_given_up(run)  # first: a ledger restored to before this moment must not give them back
    with ledger.seal.changing("runs", "run = ? AND client = ?", own):
        ledger.execute("UPDATE runs SET reserved = next WHERE run = ? AND client = ? AND reserved > next", own)
    where = "id = (SELECT dataset FROM runs WHERE run = ? AND client = ? AND reserved IS NOT NULL)"
    with ledger.seal.changing("datasets", where, own):
        ledger.execute(
            "UPDATE datasets SET cursor = max("
            " (SELECT coalesce(max(r.reserved), 0) FROM runs r WHERE r.dataset = datasets.id),"
            " (SELECT coalesce(max(a.stop), 0) FROM runs r JOIN answers a ON a.run = r.run AND a.client = r.client"
            f"  WHERE r.dataset = datasets.id)) WHERE {where}",
            own,
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
