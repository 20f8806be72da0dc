"""Sources: where records come from, as batches in a fixed order.

Every source gives the same three things: the names of the clients (public), values as doubles with NaN for missing,
and, where a person column is named, the text by which each record's person is known. Readers of files are in
`files`, of databases in `database`; this file reads what is in memory. No error here contains a value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.messages import LONGEST_NAME
from privatile.errors import DataError, InputError

MOST_CLIENTS = 10_000
"""More distinct names than this are not holders of data: some other column was named."""

ONLY_CLIENT = "all"
"""The name of the one client where no client column is named."""


class Batch(NamedTuple):
    """Rows of a source. `codes` index the source's clients; None means that there is one client."""

    values: Floats
    codes: NDArray[np.integer[Any]] | None = None
    people: Sequence[bytes] | None = None

    def piece(self, start: int, stop: int) -> Batch:
        """The rows from `start` up to `stop`."""
        return Batch(
            self.values[start:stop],
            None if self.codes is None else self.codes[start:stop],
            None if self.people is None else self.people[start:stop],
        )


class Source(Protocol):
    """A column with its clients, read once from beginning to end, always in the same order."""

    column: str
    person: str | None
    """The name of the person column."""
    clients: list[str]
    """Complete once `batches` has ended; grows while it runs."""

    def batches(self) -> Iterator[Batch]:
        """All rows."""
        ...


class ClientNames:
    """The names of clients, numbered in the order in which they appear."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._codes: dict[object, int] = {}
        self._known: dict[str, int] = {}

    def code(self, value: object) -> int:
        """The number of a client; new names are checked."""
        code = self._codes.get(value)
        if code is None:
            name = check_client(value)
            code = self._codes[value] = self._known.setdefault(name, len(self._names))
            if code == len(self._names):
                if code >= MOST_CLIENTS:
                    raise DataError(
                        f"the client column has more than {MOST_CLIENTS} different names. A client column names the "
                        "holders of the data; name another column, or leave it out."
                    )
                self._names.append(name)
        return code


def check_client(value: object) -> str:
    """The name of a client, or an error that says what a name must be."""
    text = name_text(value)
    if text is None:
        raise DataError(
            "the client column is missing in some rows: nobody holds these records. Fill it in, or leave the rows out."
        )
    if not 0 < len(text) <= LONGEST_NAME or not text.isprintable():
        raise DataError(
            f"a client's name must be a printable text of 1 to {LONGEST_NAME} characters; the client column holds one "
            "that is not."
        )
    return text


def name_text(value: object) -> str | None:
    """The text of a client's or a person's entry; None where it is missing. Whole floats read as integers.

    >>> name_text(7.0), name_text(" 007"), name_text(float("nan"))
    ('7', '007', None)
    """
    if value is None or value is np.ma.masked:
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape").strip()
    if isinstance(value, float | np.floating):
        number = float(value)
        if number != number:
            return None
        return str(int(number)) if number.is_integer() else repr(number)
    text = str(value).strip()
    # pandas writes its missing marks so.
    return None if text in ("<NA>", "NaT") and not isinstance(value, str) else text


WHOLE = re.compile(r"([-+]?[0-9]+)\.0*")
LARGE = re.compile(r"-?[0-9](\.[0-9]+)?e\+[0-9]{2,3}")


def person_text(value: object) -> str | None:
    """The text by which a person is known, the same from every kind of source; None where it is missing.

    A column of integers with gaps arrives as floats from some readers, and is written so into files: 7, 7.0, "7"
    and "7.0" are the same person, and so are 10**16 and "1e+16". Blanks around a text do not count; leading zeros
    do, as they do in names that are no numbers.

    >>> person_text(7.0), person_text("7.0"), person_text(b" 7.00 "), person_text("007"), person_text("7.5")
    ('7', '7', '7', '007', '7.5')
    """
    text = name_text(value)
    if text is None:
        return None
    if "." in text and (whole := WHOLE.fullmatch(text)):
        return "0" if whole[1] == "-0" else whole[1]
    if "e+" in text and LARGE.fullmatch(text) and (number := float(text)).is_integer():
        return str(int(number))
    return text


def person_bytes(values: Sequence[object]) -> list[bytes]:
    """The texts of a person column as bytes; a missing person is refused."""
    texts = [person_text(value) for value in values]
    if not all(texts):
        raise missing_person()
    return [text.encode("utf-8", "surrogateescape") for text in texts if text is not None]


def missing_person() -> DataError:
    """The error for a record without a person."""
    return DataError(
        "the person column is missing in some rows: whose budget would they spend? Fill it in, or leave the rows out."
    )


def numbers(name: str, values: object) -> Floats:
    """A column as doubles, NaN where missing; a column of anything but numbers is refused."""
    array = _plain(values)
    if array.ndim != 1:
        raise DataError(f"column {name!r} must have one dimension; it has {array.ndim}.")
    if np.ma.isMaskedArray(array):
        mask = np.ma.getmaskarray(array)
        return np.where(mask, np.nan, numbers(name, np.ma.getdata(array)))
    if array.dtype.kind in "iuf":
        return array.astype(np.float64, copy=False)
    if array.dtype.kind == "O":
        return np.array([number(name, value) for value in array], dtype=np.float64)
    raise not_numeric(name, str(array.dtype))


def _plain(values: object) -> NDArray[Any]:
    """A numpy array of a column, of whatever library it comes from."""
    if isinstance(values, np.ndarray):
        return values
    module = type(values).__module__.split(".")[0]
    if module == "pyarrow" and hasattr(values, "to_numpy"):
        kind = str(getattr(values, "type", ""))
        if kind.startswith("decimal"):
            return np.array(values.to_pylist(), dtype=object)  # type: ignore[attr-defined]
        flat = values.combine_chunks() if hasattr(values, "combine_chunks") else values
        return np.asarray(flat.to_numpy(zero_copy_only=False))
    if module == "polars" and str(getattr(values, "dtype", "")).startswith("Decimal"):
        return np.array(values.to_list(), dtype=object)  # type: ignore[attr-defined]
    if module == "pandas" and hasattr(values, "to_numpy"):
        dtype: Any = getattr(values, "dtype", None)
        if getattr(dtype, "kind", "O") in "iuf" and not isinstance(dtype, np.dtype):
            return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(values.to_numpy())
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy())
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise DataError(f"a column must be a sequence of numbers; got {type(values).__name__}.")
    return np.array(values, dtype=object)


def number(name: str, value: object) -> float:
    """One entry of a column of Python objects, NaN where missing."""
    if value is None or value is np.ma.masked:
        return float("nan")
    if isinstance(value, int | float | Decimal | np.integer | np.floating) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if type(value).__name__ == "NAType":
        return float("nan")
    raise not_numeric(name, type(value).__name__)


def not_numeric(name: str, kind: str) -> DataError:
    """The error for a column of something else."""
    return DataError(f"column {name!r} must hold numbers; it holds {kind}. Name a numeric column, or convert it first.")


def unknown_column(name: str, available: Sequence[str]) -> DataError:
    """The error for a column that is not there; names of columns are public, values are not."""
    shown = ", ".join(repr(column) for column in available[:50]) + (", …" if len(available) > 50 else "")
    return DataError(f"there is no column {name!r}. The columns are: {shown}.")


class MappingSource:
    """Client name -> column."""

    def __init__(self, data: Mapping[str, object], column: str = "value") -> None:
        self.column = column
        self.person: str | None = None
        self.clients: list[str] = []
        self._data = data
        names = ClientNames(self.clients)
        for name in data:
            names.code(name)
        if len(self.clients) != len(data):
            raise DataError("two clients have the same name once written as text.")

    def batches(self) -> Iterator[Batch]:
        """One batch a client."""
        for code, values in enumerate(self._data.values()):
            array = numbers(self.column, values)
            yield Batch(array, np.full(len(array), code, dtype=np.uint16) if len(self._data) > 1 else None)


class TableSource:
    """A table in memory: pandas, polars, pyarrow, or a numpy structured array."""

    def __init__(self, table: Any, value: str, client: str | None = None, person: str | None = None) -> None:
        self.column = value
        self.person = person
        self.clients: list[str] = []
        self._table, self._client, self._person = table, client, person
        available = table_columns(table)
        for name in (value, client, person):
            if name is not None and name not in available:
                raise unknown_column(name, available)

    def batches(self) -> Iterator[Batch]:
        """One batch: the table is in memory already."""
        values = numbers(self.column, self._table[self.column])
        codes = people = None
        if self._client is None:
            self.clients.append(ONLY_CLIENT)
        else:
            names = ClientNames(self.clients)
            codes = np.array([names.code(entry) for entry in entries(self._table[self._client])], dtype=np.uint16)
        if self._person is not None:
            people = person_bytes(entries(self._table[self._person]))
        yield Batch(values, codes, people)


def table_columns(table: Any) -> list[str]:
    """The names of a table's columns."""
    if isinstance(table, np.ndarray):
        return list(table.dtype.names or ())
    names = getattr(table, "column_names", None)
    return [str(name) for name in (table.columns if names is None else names)]


def entries(column: Any) -> list[Any]:
    """A column as Python objects."""
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)


def open_source(
    data: object,
    *,
    value: str | None = None,
    client: str | None = None,
    person: str | None = None,
    query: str | None = None,
) -> Source:
    """The source for whatever holds the data.

    `data` is a path (CSV, Parquet, JSON, also gzip), a mapping of client name to column, a table or a column in
    memory, or a DB-API connection together with `query`.
    """
    if query is not None:
        from privatile.client.sources.database import DatabaseSource

        return DatabaseSource(data, query, _named(value), client, person)
    if isinstance(data, str | os.PathLike):
        from privatile.client.sources.files import FileSource

        return FileSource(Path(data), _named(value), client, person)
    # Asked of the type: a table may have a column of that name.
    if hasattr(type(data), "collect") or hasattr(type(data), "compute"):
        raise InputError(
            f"a {type(data).__name__} is a query that has not run yet, and might give its rows in another order next "
            "time. Run it (.collect() or .compute()) and give the table, or give the path of the file it reads."
        )
    is_table = hasattr(data, "columns") or hasattr(data, "column_names")
    if isinstance(data, np.ndarray) and data.dtype.names:
        is_table = True
    if is_table:
        return TableSource(data, _named(value), client, person)
    if client is not None or person is not None:
        raise InputError("client and person name columns of a table or a file; this data has no named columns.")
    if isinstance(data, Mapping):
        return MappingSource(data, value or "value")
    return MappingSource({ONLY_CLIENT: data}, value or "value")


def _named(value: str | None) -> str:
    if value is None:
        raise InputError("which column? Name it with value (on the command line: --value COLUMN).")
    return value
