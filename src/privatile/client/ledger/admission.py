"""Admission: which columns a new run may not ask, by what the ledger knows of their records.

- People are known by one column: by another everybody would look new.
- The same content under another name, or the same column split among other clients or read otherwise (`datasets`): its
  records have answered.
- Other content for a client and column that have answered: a new export of the same people, unless `new_people`.
- More than `max_epsilon` allows for life, what other runs have reserved included, and in all data sets without a person
  column, unless `new_people`.
- After a restore everything that the ledger does not know: it may have been asked since the backup.

Nothing is written here.
"""

from privatile.client.ledger.datasets import (
    Content,
    dataset_id,
    most_spent,
    overlapping_datasets,
    own_spent,
    part_in_words,
    sharing_datasets,
    spent_elsewhere,
    stored_identity,
)
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.record_limits import RecordLimit
from privatile.client.ledger.spending_rules import SpendingRules
from privatile.client.sources.source import UNNAMED
from privatile.errors import AlreadyAnswered, InputError, OtherContent


def admit(limit: RecordLimit, epsilon: float, rules: SpendingRules) -> None:
    """Refuse a run that would ask these records at ε against the rules."""
    ledger, content = limit.ledger, limit.content
    _refuse_unknown_after_restore(ledger, content, rules)
    _refuse_other_person_column(ledger, content, rules)
    _refuse_answered_records(ledger, content, epsilon, rules)
    _refuse_other_content(ledger, content, rules)
    _refuse_over_limit(limit, epsilon, rules)


def price(spent: float, epsilon: float) -> str:
    """What another run over records that have spent so much would cost them."""
    return f"Up to epsilon {spent:.6g} each is spent; another run over them would make it {spent + epsilon:.6g}"


def over_limit(epsilon: float, own: float, elsewhere: float, rules: SpendingRules, limit: RecordLimit) -> str:
    """Why a run may not ask people who may have spent so much here and in other data sets, and the ways out."""
    ways = "Ask with a smaller epsilon, or allow more with max_epsilon=TOTAL."
    if rules.in_federation:
        ways = "Take part in a study with a smaller epsilon, or allow more in this site's policy file (max_epsilon)."
    if own + epsilon <= rules.lifetime_limit:
        ways = f"Data sets without a person column add up: each of their records may be anybody's. {ways}"
        if not sharing_datasets(limit.ledger, limit.content):
            ways += (
                f"{_name_it(limit.content)} Only if none of these people is in any other data set of this ledger: say "
                "so with new_people=True or, of an earlier data set, with `privatile ledger new-people NUMBER`"
            )
            ways += "." if rules.in_federation else "; or give a ledger of their own (ledger=FILE)."
    return (
        f"this run would spend {epsilon:.6g} on top of {own + elsewhere:.6g} already spent or reserved, above what is "
        f"allowed for life (max_epsilon={rules.max_epsilon:.6g}, the last limit given in this ledger). {ways}"
    )


def _name_it(content: Content) -> str:
    """What to do first about values that came without a name: two such columns look like one."""
    return " First name the column, which had no name: value=NAME." if content.column == UNNAMED else ""


def _refuse_unknown_after_restore(ledger: Ledger, content: Content, rules: SpendingRules) -> None:
    accepted = rules.spend_again and rules.max_epsilon is None  # whatever they have spent
    if ledger.meta("restored") is None or rules.new_people or accepted:
        return
    # What is known and was lost has no records left, which is said where they are counted.
    if dataset_id(ledger, content) is None:
        raise AlreadyAnswered(
            f"{content} may not be asked: the ledger {ledger.path} was restored from a backup, and what was asked "
            "since that backup is not known. These records may be among it, so they count as spent. If these are other "
            "people, whom nobody asked since the backup, say so with new_people=True."
        )


def _refuse_other_person_column(ledger: Ledger, content: Content, rules: SpendingRules) -> None:
    column = content.person_column
    if column is None or rules.new_people:
        return
    row = ledger.execute(
        "SELECT person FROM datasets WHERE person IS NOT NULL AND person <> ? LIMIT 1", (column,)
    ).fetchone()
    if row is not None:
        raise OtherContent(
            f"the ledger knows people by a column {row[0]!r}; got {column!r}. By another column everybody would look "
            f"new and answer again. Give person={row[0]!r} (rename the column where it holds the same names); if these "
            "are other people, say so with new_people=True."
        )


def _refuse_answered_records(ledger: Ledger, content: Content, epsilon: float, rules: SpendingRules) -> None:
    shared = overlapping_datasets(ledger, content)
    identical = [dataset for dataset, other in shared.items() if other.values_digest == content.values_digest]
    known = identical if rules.new_people else list(shared)
    if rules.spend_again or not known:
        return
    client, column, holder = ledger.execute(
        "SELECT client, column, holder FROM datasets WHERE id = ?", known[:1]
    ).fetchone()
    same = "the same values" if identical else "the same column, split among other clients or read otherwise,"
    person = ", where no person column was named: whose records they were is not known" if content.by_person else ""
    other_people = "" if identical else " If these are other people, say so with new_people=True."
    raise AlreadyAnswered(
        f"{content} holds records that have answered before: {same} as {part_in_words(client, holder)}, "
        f"column {column!r}{person}. "
        f"{price(spent_elsewhere(ledger, content), epsilon)}. "
        f"{rules.way_out('people' if content.by_person else 'records')}{other_people}"
    )


def _refuse_other_content(ledger: Ledger, content: Content, rules: SpendingRules) -> None:
    if rules.new_people or dataset_id(ledger, content) is not None:
        return
    rows = ledger.execute(
        "SELECT id, client, person IS NOT NULL FROM datasets WHERE holder = ? AND column = ?",
        (content.holder, content.column),
    ).fetchall()
    added_up = overlapping_datasets(ledger, content) if rows else {}
    strangers = [
        dataset
        for dataset, client, by_person in rows
        if not (by_person and content.by_person)
        and dataset not in added_up
        # Another weight class of the same file.
        and not (client != content.client and stored_identity(ledger, dataset).same_split(content))
    ]
    if strangers:
        spent = max(most_spent(ledger, dataset) for dataset in strangers)
        raise OtherContent(
            f"{content} has answered before with other content (up to epsilon {spent:.6g} per record). A new export of "
            f"the same people would let them answer again. Give the same file unchanged.{_name_it(content)} If none of "
            "these people is in any other data set of this ledger, say so with new_people=True. Where a person column "
            "is named from the first run on (person=COLUMN), the ledger recognises people itself."
        )


def _refuse_over_limit(limit: RecordLimit, epsilon: float, rules: SpendingRules) -> None:
    if rules.max_epsilon is None:
        return
    allowed = f"{limit.content} allows epsilon {rules.max_epsilon:.6g} for life"
    if epsilon > rules.lifetime_limit:
        raise InputError(
            f"{allowed} (max_epsilon={rules.max_epsilon:.6g}), and one answer at epsilon {epsilon:.6g} is more. Ask "
            "with a smaller epsilon, or allow more."
        )
    own, elsewhere = 0.0, limit.spent_elsewhere()
    if not limit.content.by_person and rules.spend_again:
        dataset = dataset_id(limit.ledger, limit.content)
        own = 0.0 if dataset is None else own_spent(limit.ledger, dataset, reserved=True)
    if own + elsewhere + epsilon > rules.lifetime_limit:
        raise AlreadyAnswered(f"{allowed}; {over_limit(epsilon, own, elsewhere, rules, limit)}")
