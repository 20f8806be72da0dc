"""Columns and tables in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from privatile.client.sources.names import ClientNames, person_bytes
from privatile.client.sources.numbers import entries, numbers
from privatile.client.sources.source import ONLY_CLIENT, Batch, TableColumns
from privatile.errors import DataError


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
        """One batch per client."""
        for code, values in enumerate(self._data.values()):
            array = numbers(self.column, values)
            yield Batch(array, np.full(len(array), code, dtype=np.uint16) if len(self._data) > 1 else None)


class TableSource(TableColumns):
    """A table in memory: pandas, polars, pyarrow, or a numpy structured array."""

    def __init__(self, table: Any, value: str, client: str | None = None, person: str | None = None) -> None:
        super().__init__(value, client, person)
        self._table = table
        self.check(table_columns(table))

    def batches(self) -> Iterator[Batch]:
        """One batch: the table is in memory already."""
        values = numbers(self.column, self._table[self.column])
        codes = people = None
        if self.client is None:
            self.clients.append(ONLY_CLIENT)
        else:
            names = ClientNames(self.clients)
            codes = np.array([names.code(entry) for entry in entries(self._table[self.client])], dtype=np.uint16)
        if self.person is not None:
            people = person_bytes(entries(self._table[self.person]))
        yield Batch(values, codes, people)


def table_columns(table: Any) -> list[str]:
    """The names of a table's columns."""
    if isinstance(table, np.ndarray):
        return list(table.dtype.names or ())
    names = getattr(table, "column_names", None)
    return [str(name) for name in (table.columns if names is None else names)]
