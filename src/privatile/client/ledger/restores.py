"""After a restore: everything that is not provably unasked counts as spent.

A ledger restored from a backup does not know what was asked since, in whichever study. So, once it is marked:

- Every data set that it holds is lost: no new run may ask it, and what its records have spent counts as unknown (∞).
- What a run had reserved in the backup stays its own, since no other run could ask it. It may go on there once its
  coordinator has shown what it had asked (`Account.prove`), with the difference marked as spent; without that, never.
  A run that has ever given up records is not believed: others may have asked them since. That is noted outside the
  ledger, beside its key (`key_files`).
- Where people are known by a person column, nothing is kept: a person whose record one run had reserved may have
  answered another run since.
- A data set that the ledger does not know may have been asked since the backup: it is refused unless `new_people` says
  that these are other people (`admission`).
"""

from dataclasses import dataclass

from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.marks import COPY
from privatile.client.ledger.reservations import release
from privatile.core.words import counted


@dataclass(frozen=True)
class LostRecords:
    """What a restore costs one data set: records that nobody may ask any more, and those that runs keep."""

    client: str
    column: str
    lost: int
    kept: int

    def __str__(self) -> str:
        kept = f"; {self.kept:,} kept for the runs that had reserved them" if self.kept else ""
        lost = f"{counted(self.lost, 'record')} counted as spent from now on"
        return f"client {self.client!r}, column {self.column!r}: {lost}{kept}"


def mark_restored(ledger: Ledger, run: str | None = None) -> tuple[LostRecords, ...]:
    """Mark a ledger that was restored from a backup; what that costs, per data set that was not lost before.

    Where a data set was lost in an earlier restore, its runs must show again what they had asked: all of them or,
    where a `run` is given, that one. Other runs may have shown it since, and go on.

    >>> mark_restored(Ledger.in_memory())
    ()
    """
    with ledger.transaction():
        ledger.moves[None] += 1
        rows = ledger.execute(
            "SELECT id, client, column, person IS NOT NULL FROM datasets WHERE NOT lost ORDER BY id"
        ).fetchall()
        told = []
        for dataset, client, column, by_person in rows:
            runs = ledger.execute("SELECT run, client FROM runs WHERE dataset = ?", (dataset,)).fetchall()
            for run, site in runs:
                if by_person or ledger.secret.has_given_up(run):
                    release(ledger, run, site)
            with ledger.seal.changing("runs", "dataset = ?", (dataset,)):
                ledger.execute("UPDATE runs SET unproven = 1 WHERE dataset = ?", (dataset,))
            with ledger.seal.changing("datasets", "id = ?", (dataset,)):
                ledger.execute("UPDATE datasets SET lost = 1 WHERE id = ?", (dataset,))
            (lost,) = ledger.execute(
                "SELECT max(0, records - cursor) FROM datasets WHERE id = ?", (dataset,)
            ).fetchone()
            (kept,) = ledger.execute(
                "SELECT coalesce(sum(reserved - next), 0) FROM runs WHERE dataset = ? AND reserved > next", (dataset,)
            ).fetchone()
            told.append(LostRecords(client, column, lost, kept))
        with ledger.seal.changing("runs", "run = coalesce(?, run)", (run,)):
            ledger.execute("UPDATE runs SET unproven = 1 WHERE run = coalesce(?, run)", (run,))
        ledger.keep("restored", b"\x01")
        ledger.execute("DELETE FROM meta WHERE key = ?", (COPY,))
    ledger.mark.put(ledger.position)  # this copy is the newest one from now on
    return tuple(told)
