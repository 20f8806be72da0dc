"""People who arrive while a run goes on: a file that grows, a query that gives more rows every week.

Such a run asks whoever is in the column today and has not answered. Its data set is the column by its name and that of
the person column, not by content: rows may come, go, change their places and their values. Who has answered is known
person by person; positions only count the people who have answered, one after the other.

Every content that was asked is noted by its digests: the same records without a person column are recognised later.
"""

import hashlib
from dataclasses import replace

from privatile.client.ledger.datasets import Content, enter_dataset
from privatile.client.ledger.ledger import Ledger
from privatile.errors import InputError


def as_arriving(ledger: Ledger, content: Content) -> Content:
    """The same column, known by its name alone; refused where its people are not known."""
    if not content.by_person:
        raise InputError(
            f"{content} has no person column. Where records arrive while a run goes on, nobody could tell who has "
            "answered: name the column of the person (person=COLUMN)."
        )
    known_by = f"people as they arrive, by {content.person_column}".encode("utf-8", "surrogateescape")
    digest = hashlib.blake2b(known_by, key=ledger.key("digest"), digest_size=len(content.digest)).digest()
    return replace(content, digest=digest)


def note_arrived(ledger: Ledger, content: Content, answered: int) -> None:
    """Note what the column holds today, and that `answered` of its people have answered; inside a transaction."""
    dataset = enter_dataset(ledger, content)
    with ledger.seal.changing("datasets", "id = ?", (dataset,)):
        ledger.execute(
            "UPDATE datasets SET records = max(records, ?, ?) WHERE id = ?", (content.records, answered, dataset)
        )
