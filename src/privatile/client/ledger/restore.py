"""What a ledger must know before a run goes on: after a restore, and when a run is resumed.

After a restore: everything that is not provably unasked counts as spent.

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

What a ledger must know before a run goes on: everything that somebody else says was asked.

A ledger that holds less is another one, or an older copy, and its records would answer again.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from privatile.client.ledger.account import release
from privatile.client.ledger.integrity import COPY
from privatile.client.ledger.ledger import Ledger
from privatile.core.messages import Position, Question
from privatile.core.text import counted
from privatile.errors import LedgerError


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
            for each, site in runs:
                if by_person or ledger.secret.has_given_up(each):
                    release(ledger, each, site)
            ledger.update("runs", "unproven = 1", (), "dataset = ?", (dataset,))
            ledger.update("datasets", "lost = 1", (), "id = ?", (dataset,))
            (lost,) = ledger.execute(
                "SELECT max(0, records - cursor) FROM datasets WHERE id = ?", (dataset,)
            ).fetchone()
            (kept,) = ledger.execute(
                "SELECT coalesce(sum(reserved - next), 0) FROM runs WHERE dataset = ? AND reserved > next", (dataset,)
            ).fetchone()
            told.append(LostRecords(client, column, lost, kept))
        ledger.update("runs", "unproven = 1", (), "run = coalesce(?, run)", (run,))
        ledger.put("restored", b"\x01")
        ledger.execute("DELETE FROM meta WHERE key = ?", (COPY,))
    ledger.mark.put(ledger.position)  # this copy is the newest one from now on
    return tuple(told)


def check_link(ledger: Ledger, key: bytes, seen: Position, told_by: str) -> None:
    """Refuse a ledger with another key, or whose chain lacks an entry that was seen: one of two copies in use.

    `key` is the fingerprint of the key of the ledger that was seen. Questions alone would not tell: two ledgers may
    both have answered a round whose count was lost with the process that asked.

    >>> ledger = Ledger.in_memory()
    >>> check_link(ledger, ledger.secret.fingerprint, Position(), "run.db")
    """
    row = ledger.execute("SELECT head FROM answers WHERE sequence = ?", (seen.sequence,)).fetchone()
    if key != ledger.secret.fingerprint:
        raise _other_ledger(ledger, told_by, "it has another key")
    if seen.sequence and (row is None or row[0] != seen.head):
        raise _other_ledger(ledger, told_by, f"entry {seen.sequence} of its chain is missing or another one")


def check_past(ledger: Ledger, asked: Iterable[tuple[str, Question]], told_by: str) -> None:
    """Refuse a ledger that lacks one of these questions, each with its client, or holds another in its place.

    >>> question = Question(run="run", round=1, level=0.5, query=3.0, length=5)
    >>> check_past(Ledger.in_memory(), [("north", question)], "run.db")
    Traceback (most recent call last):
    ...
    privatile.errors.LedgerError: the ledger in memory does not hold what run.db says was asked: 1 of 1 questions is \
missing, the first in round 1 at client 'north'. It is another ledger, or an older copy (perhaps without its -wal \
file). Give the one that answered or, if it is lost, mark a restored copy with `privatile ledger restored`, and ask \
other people.
    """
    known: dict[tuple[str, str], set[Question]] = {}
    total, missing, first = 0, 0, ""
    for client, question in asked:
        total += 1
        own = (question.run, client)
        if own not in known:
            known[own] = {answer.question for answers in ledger.answers(*own).values() for answer in answers}
        if question not in known[own]:
            missing += 1
            first = first or f"in round {question.round} at client {client!r}"
    if missing:
        are = "is" if missing == 1 else "are"
        raise _other_ledger(ledger, told_by, f"{missing} of {total} questions {are} missing, the first {first}")


def check_begun(ledger: Ledger, run: str, clients: Iterable[str], told_by: str) -> None:
    """Refuse a ledger that does not know a run which was about to ask: it reserves its records before that."""
    rows = ledger.execute("SELECT client FROM runs WHERE run = ?", (run,))
    strangers = set(clients) - {client for (client,) in rows}
    if strangers:
        raise _other_ledger(ledger, told_by, f"it knows nothing of the run at client {min(strangers)!r}")


def _other_ledger(ledger: Ledger, told_by: str, what: str) -> LedgerError:
    return LedgerError(
        f"the ledger {ledger.path or 'in memory'} does not hold what {told_by} says was asked: {what}. It is another "
        "ledger, or an older copy (perhaps without its -wal file). Give the one that answered or, if it is lost, mark "
        "a restored copy with `privatile ledger restored`, and ask other people."
    )
