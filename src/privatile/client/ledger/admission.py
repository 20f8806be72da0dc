"""Admission: which columns a new run may not ask, by what the ledger knows of their records.

- People are known by one column: by another everybody would look new.
- The same content under another name, or the same column split among other clients (`overlapping_datasets`): its records
  have answered.
- Other content for a client and column that have answered: a new export of the same people, unless `new_people`.
- More than `max_epsilon` allows for life.

Nothing is written here.
"""

from __future__ import annotations

from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.overlap import most_spent, overlapping_datasets, own_spent, spent_by_kin
from privatile.client.ledger.spending_rules import ROUNDING, Content, SpendingRules
from privatile.errors import AlreadyAnswered, InputError, OtherContent


def admit(ledger: Ledger, content: Content, epsilon: float, terms: SpendingRules) -> None:
    """Refuse a run that would ask these records at ε against the rules."""
    _refuse_other_person_column(ledger, content, terms)
    _refuse_kin(ledger, content, epsilon, terms)
    _refuse_other_content(ledger, content, terms)
    _refuse_over_limit(ledger, content, epsilon, terms)


def named(content: Content, column: str | None = None) -> str:
    """A client's column as errors call it, or another column of the same client."""
    return f"client {content.client!r}, column {column or content.column!r},"


def spent_under_other_names(ledger: Ledger, content: Content) -> float:
    """The most that one of these records has spent under other names."""
    by_person = content.person_key is not None
    return spent_by_kin(ledger, content.cuts, content.column, by_person, content.values_digest)


def _refuse_other_person_column(ledger: Ledger, content: Content, terms: SpendingRules) -> None:
    column = content.person_column
    if column is None or terms.new_people:
        return
    row = ledger.execute(
        "SELECT person FROM datasets WHERE person IS NOT NULL AND person <> ? LIMIT 1", (column,)
    ).fetchone()
    if row is not None:
        raise OtherContent(
            f"the ledger knows people by a column {row[0]!r}; got {column!r}. By another column everybody would look "
            f"new and answer again. Give --person {row[0]} (rename the column where it holds the same names); if these "
            "are other people, say so (--new-people)."
        )


def _kin(ledger: Ledger, content: Content) -> tuple[list[int], list[int]]:
    """The data sets that share records with this one: all of them, and those identical to it."""
    by_person = content.person_key is not None
    found = overlapping_datasets(ledger, content.cuts, content.column, by_person, content.values_digest)
    return [each.dataset for each in found], [each.dataset for each in found if each.identical]


def _refuse_kin(ledger: Ledger, content: Content, epsilon: float, terms: SpendingRules) -> None:
    shared, identical = _kin(ledger, content)
    known = identical if terms.new_people else shared
    if terms.spend_again or not known:
        return
    client, column = ledger.execute("SELECT client, column FROM datasets WHERE id = ?", known[:1]).fetchone()
    same = "the same values" if identical else "the same column, split among other clients,"
    spent = spent_under_other_names(ledger, content)
    cure = "" if identical else " If these are other people, say so (--new-people)."
    person = "" if content.person_key is None else " (--person counts from the first run on)"
    raise AlreadyAnswered(
        f"{named(content)} holds records that have answered before: {same} as client {client!r}, column {column!r}"
        f"{person}. Up to epsilon {spent:.6g} each is spent; another run over them would make it "
        f"{spent + epsilon:.6g}. Accept that with --spend-again.{cure}"
    )


def _refuse_other_content(ledger: Ledger, content: Content, terms: SpendingRules) -> None:
    rows = ledger.execute(
        "SELECT id, digest, person IS NOT NULL FROM datasets WHERE client = ? AND column = ?",
        (content.client, content.column),
    ).fetchall()
    if terms.new_people or any(bytes(digest) == content.digest for _, digest, _ in rows):
        return
    added_up, _ = _kin(ledger, content)
    strangers = [
        int(key)
        for key, _, by_person in rows
        if not (by_person and content.person_key is not None) and key not in added_up
    ]
    if strangers:
        spent = max(most_spent(ledger, key) for key in strangers)
        raise OtherContent(
            f"{named(content)} has answered before with other content (up to epsilon {spent:.6g} a record). A new "
            "export of the same people would let them answer again. Give the same file unchanged; if these are other "
            "people, say so (--new-people); with a person column (--person, from the first run on) the ledger "
            "recognises people itself."
        )


def _refuse_over_limit(ledger: Ledger, content: Content, epsilon: float, terms: SpendingRules) -> None:
    limit = terms.max_epsilon
    if limit is None:
        return
    if epsilon > limit + ROUNDING:
        raise InputError(
            f"{named(content)} allows epsilon {limit:.6g} for life (--max-epsilon), and one answer at epsilon "
            f"{epsilon:.6g} is more. Ask with a smaller epsilon, or allow more."
        )
    spent = spent_under_other_names(ledger, content)
    if content.person_key is None and terms.spend_again:
        row = ledger.execute(
            "SELECT id FROM datasets WHERE client = ? AND column = ? AND digest = ?",
            (content.client, content.column, content.digest),
        ).fetchone()
        if row is not None:
            spent += own_spent(ledger, row[0])
    if spent + epsilon > limit + ROUNDING:
        raise AlreadyAnswered(
            f"{named(content)} allows epsilon {limit:.6g} for life; this run would spend {epsilon:.6g} on top of "
            f"{spent:.6g} already spent. Ask with a smaller epsilon."
        )
