"""What a source of records is: batches of rows in a fixed order, names of those who hold them, cells of columns.

The names of clients, the same from every kind of source.

Records divided by several columns at once: by who holds them, by group, by a condition.

A cell is one combination of entries. The ledger knows each cell as a client of its own, so that the same file divided
otherwise is recognised, and nobody answers twice. The columns are taken in the order of their names: whichever of them
is the group and whichever the condition, the cells are the same.

What a source of records is: batches of rows in a fixed order, and the names of those who hold them.

Every source gives the same things: the names of the clients (public), values as doubles with NaN for missing and, where
such columns are named, the text by which each record's person is known and its survey weight. No error here contains a
value or a weight.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.client.sources.numbers import entries, is_copy, numbers
from privatile.client.sources.people import exact_below, person_bytes
from privatile.core.arrays import Floats
from privatile.core.messages import LONGEST_NAME
from privatile.core.text import client_name
from privatile.errors import DataError, InputError


def check_client(value: object, column: str | None = None) -> str:
    """The name of a client, or of a group in a named column, or an error that says what a name must be."""
    text = name_text(value)
    if text is None:
        raise DataError(
            "the client column is missing in some rows: nobody holds these records. Fill it in, or leave the rows out."
        )
    if not 0 < len(text) <= LONGEST_NAME or not text.isprintable():
        raise DataError(
            f"a client's name must be a printable text of 1 to {LONGEST_NAME} characters; the "
            f"{'client column' if column is None else f'column {column!r:.60}'} holds one that is not."
        )
    return text


def name_text(value: object) -> str | None:
    """The text of a client's entry; None where it is missing. Whole floats read as integers.

    One name in two Unicode forms is one client (`client_name`).

    >>> name_text(7.0), name_text(" 007"), name_text(float("nan"))
    ('7', '007', None)
    """
    if value is None or value is np.ma.masked:
        return None
    if isinstance(value, bytes):
        return client_name(value.decode("utf-8", "surrogateescape"))
    if isinstance(value, float | np.floating):
        number = float(value)
        if number != number:
            return None
        return str(int(number)) if number.is_integer() else repr(number)
    text = client_name(str(value))
    # pandas writes its missing marks so.
    return None if text in ("<NA>", "NaT") and not isinstance(value, str) else text


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


ONLY_CLIENT = "all"
UNNAMED = "value"
"""The column of values that came without a name."""
"""The name of the one client where no client column is named."""

MOST_CLIENTS = 10_000
"""More distinct names than this are not holders of data: some other column was named."""


class Texts(NamedTuple):
    """The entries of a column as a file writes them: how many bytes each has, and all of them one after the other."""

    lengths: NDArray[np.integer[Any]]
    written: bytes


class Batch(NamedTuple):
    """Rows of a source. `codes` index the source's clients; None means that there is one client."""

    values: Floats
    codes: NDArray[np.integer[Any]] | None = None
    people: Sequence[bytes] | None = None
    weights: Floats | None = None
    texts: Texts | None = None
    """The values before they are read as numbers, where they are texts: by these a file is known however it is read."""

    def piece(self, start: int, stop: int) -> "Batch":
        """The rows from `start` up to `stop`, without their texts."""
        return Batch(
            self.values[start:stop],
            None if self.codes is None else self.codes[start:stop],
            None if self.people is None else self.people[start:stop],
            None if self.weights is None else self.weights[start:stop],
        )


class Columns(NamedTuple):
    """The names of the columns that are wanted.

    `groups` are further columns that divide the records: a client is then a cell, one combination of entries.
    """

    value: str | None = None
    client: str | None = None
    person: str | None = None
    weight: str | None = None
    groups: Sequence[str] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that divide the records."""
        return dividing(self.client, self.groups, (self.value, self.person, self.weight))

    @property
    def wanted(self) -> list[str]:
        """All of them, each once."""
        return list(dict.fromkeys(name for name in (*self[:4], *self.keys) if name is not None))

    def check(self, available: Sequence[str]) -> None:
        """Refuse a column that is not there, and weights that are named twice."""
        if self.weight is not None and self.weight in self[:3]:
            raise InputError(
                f"the weight column must be a column of its own; {self.weight!r} is named twice. Weights decide who "
                "is asked and are not protected: never name the column that is asked about."
            )
        for name in self.wanted:
            if name not in available:
                raise unknown_column(name, available)


class Source:
    """A column with its clients, read once from beginning to end, always in the same order.

    `clients` is complete once `batches` has ended; it grows while that runs.
    """

    def __init__(self, columns: Columns) -> None:
        value, self.client, self.person, self.weight, _ = columns
        if value is None:
            raise InputError("which column? Name it with value=COLUMN.")
        self.column = value
        self.keys = columns.keys
        self.clients = [] if self.keys else [ONLY_CLIENT]
        self.cells: dict[str, Cell] = {}
        """The entries of every client, in the order of `keys`."""
        self._codes: dict[object, int] = {}
        self._copies: dict[str, bool] = {}
        """Whether a column that names clients, groups or people has been the values themselves so far."""
        self._has_numbers = False

    @property
    def how_read(self) -> str:
        """What the holder should know about how this source is read; empty where it is as usual. Never a value."""
        return ""

    def batches(self) -> "Iterator[Batch]":
        """All rows."""
        raise NotImplementedError

    def batch(
        self, values: object, people: object = None, weights: object = None, *, keys: Sequence[object] = ()
    ) -> "Batch":
        """Rows from columns of any library: values and, where such are named, people, weights and those that divide."""
        floats, columns = numbers(self.column, values), [entries(column) for column in keys]
        persons = None if people is None else entries(people)
        self._has_numbers |= not np.isnan(floats).all()
        named = dict(zip(self.keys, columns, strict=False))
        for name, column in (named if persons is None else {**named, str(self.person): persons}).items():
            self._copies[name] = self._copies.get(name, True) and is_copy(column, floats)
        return Batch(
            floats,
            np.array([self.code(row) for row in zip(*columns, strict=True)], dtype=np.uint16) if keys else None,
            None if persons is None else person_bytes(persons, exact_below(people)),
            None if weights is None else numbers(self.weight or "weight", weights),
        )

    def refuse_copies(self) -> None:
        """Refuse a column that names clients, groups or people, and holds the values; call when all rows are read."""
        for name, is_copied in self._copies.items():
            if is_copied and self._has_numbers:
                raise copied(name, self.column)

    def code(self, row: tuple[object, ...]) -> int:
        """The number of a client by its entries, in the order in which clients appear; new names are checked."""
        code = self._codes.get(row)
        if code is None:
            cell = cell_of(row, self.keys, self.client)
            name = cell_name(cell, self.cells)
            code = self._codes[row] = self._codes.setdefault(name, len(self.clients))
            if code == len(self.clients):
                if code >= MOST_CLIENTS:
                    raise DataError(
                        f"{self._divided_by} has more than {MOST_CLIENTS} different names. Such a column names holders "
                        "of data or groups of people; name another column, or leave it out."
                    )
                self.clients.append(name)
        return code

    @property
    def _divided_by(self) -> str:
        return "the client column" if self.keys == (self.client,) else f"the columns {', '.join(self.keys)} together"


def copied(name: str, value: str) -> InputError:
    """The error for a column that is the values under another name."""
    return InputError(
        f"column {name!r} holds the same as column {value!r}, which is asked about: it cannot name clients, groups or "
        "people, since names are shown and hashes of people are kept. Name another one."
    )


def unknown_column(name: str, available: Sequence[str]) -> DataError:
    """The error for a column that is not there; names of columns are public, values are not."""
    shown = ", ".join(f"{column!r:.60}" for column in available[:50]) + (", …" if len(available) > 50 else "")
    return DataError(f"there is no column {name!r}. The columns are: {shown}.")
