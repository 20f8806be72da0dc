"""Records divided by several columns at once: by who holds them, by group, by a condition.

A cell is one combination of entries. The ledger knows each cell as a client of its own, so that the same file divided
otherwise is recognised, and nobody answers twice. The columns are taken in the order of their names: whichever of them
is the group and whichever the condition, the cells are the same.
"""

from collections.abc import Iterable, Sequence

from privatile.client.sources.names import check_client, name_text
from privatile.errors import DataError, InputError

Cell = tuple[str | None, ...]
"""One entry for each column that divides; None where it is missing, which a client's own column does not allow."""

NO_ENTRY = "(none)"
"""What stands for a missing entry in the name of a cell."""


def dividing(client: str | None, groups: Iterable[str], forbidden: Sequence[str | None]) -> tuple[str, ...]:
    """The columns that divide the records, in the order of their names.

    A group's name is shown, so the column that is asked about, a person's column and a weight's (`forbidden`, in this
    order) are no groups; nor do the values that are asked about name clients or people.

    >>> dividing("site", ("sex", "region"), ("salary", None, None))
    ('region', 'sex', 'site')
    """
    value, person, _ = forbidden
    if person is not None and person == value:
        raise InputError(
            f"column {person!r} cannot name people: hashes of people are kept, and this column is the one asked about. "
            "Name another one."
        )
    if client is not None and client == value:
        raise InputError(
            f"column {client!r} cannot name clients: names of clients are shown, and this column is the one asked "
            "about. Name another one."
        )
    for name in groups:
        if name in forbidden:
            raise InputError(
                f"column {name!r} cannot form groups: names of groups are shown, and this column holds values, people "
                "or weights. Name another one."
            )
    return tuple(sorted({*groups, *(() if client is None else (client,))}))


def cell_of(entries: Iterable[object], columns: tuple[str, ...], client: str | None) -> Cell:
    """The cell of a row by its entries; an empty entry is a missing one, anything else, "NA" too, is a name.

    >>> cell_of((7.0, " f "), ("region", "sex"), None), cell_of(("NA", ""), ("region", "sex"), None)
    (('7', 'f'), ('NA', None))
    """
    return tuple(
        check_client(entry, column) if column == client or name_text(entry) else None
        for column, entry in zip(columns, entries, strict=True)
    )


def cell_name(cell: Cell, taken: dict[str, Cell]) -> str:
    """The name by which the ledger knows a cell; refused where another cell has it.

    >>> cell_name(("north", "f"), {})
    'north, f'
    """
    name = check_client(", ".join(NO_ENTRY if entry is None else entry for entry in cell))
    if taken.setdefault(name, cell) != cell:
        raise DataError(
            f"two groups would have the same name, {name!r:.60}: entries that hold a comma, or {NO_ENTRY!r}, look like "
            "two entries, or like a missing one. Rename them."
        )
    return name
