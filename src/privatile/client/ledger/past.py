"""What a ledger must know before a run goes on: everything that somebody else says was asked.

A ledger that holds less is another one, or an older copy, and its records would answer again.
"""

from collections.abc import Iterable

from privatile.client.ledger.ledger import Ledger, Position
from privatile.core.messages import Question
from privatile.errors import LedgerError


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
missing, the first in round 1 at client 'north'. It is another ledger, or an older copy of the right one (a copied \
ledger.db without its -wal), and records would answer twice. Give the ledger that answered, with the -wal file beside \
it. If it is lost, these records count as spent: mark a restored copy with `privatile ledger restored`, and ask other \
people.
    """
    known: dict[tuple[str, str], set[str]] = {}
    total, missing, first = 0, 0, ""
    for client, question in asked:
        total += 1
        own = (question.run, client)
        if own not in known:
            rows = ledger.execute("SELECT question FROM answers WHERE run = ? AND client = ? AND ones IS NOT NULL", own)
            known[own] = {text for (text,) in rows}
        if question.to_json() not in known[own]:
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
        "ledger, or an older copy of the right one (a copied ledger.db without its -wal), and records would answer "
        "twice. Give the ledger that answered, with the -wal file beside it. If it is lost, these records count as "
        "spent: mark a restored copy with `privatile ledger restored`, and ask other people."
    )
