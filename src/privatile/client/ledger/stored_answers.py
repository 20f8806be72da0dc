"""Answers that were given, as the ledger holds them: whoever asks again gets the same."""

from dataclasses import dataclass, field

from privatile.client.ledger.ledger import Ledger, Position
from privatile.core.messages import Question


@dataclass(frozen=True)
class Stored:
    """An answer that was given: its count, and the position of the run after it (entries of the run, head)."""

    ones: int
    position: Position
    question: str = field(default="", compare=False)
    """The question that was answered, as JSON; its length is the number of records that answered."""


def stored_answer(ledger: Ledger, run: str, client: str, question: Question) -> Stored | None:
    """What was answered in this round about this level, to this question or another; none where nothing was."""
    row = ledger.execute(
        "SELECT question, ones, number, head, sequence FROM answers WHERE run = ? AND client = ? AND round = ?"
        " AND level = ?",
        (run, client, question.round, question.level),
    ).fetchone()
    if row is None:
        return None
    ledger.check_links(row[4], row[4])
    return Stored(row[1], Position(row[2], row[3]), row[0])
