"""Columns and tables in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from privatile.client.sources.source import Batch, Source
from privatile.errors import DataError


class MappingSource(Source):
    """Client name -> column."""

    def __init__(self, data: Mapping[str, object], column: str = "value") -> None:
        super().__init__(column)
        self.clients.clear()  # they are named by the mapping
        self._data = data
        for name in data:
            self.code(name)
        if len(self.clients) != len(data):
            raise DataError("two clients have the same name once written as text.")

    def batches(self) -> Iterator[Batch]:
        """One batch per client."""
        for name, values in self._data.items():
            batch = self.batch(values)
            yield batch._replace(codes=np.full(len(batch.values), self.code(name), dtype=np.uint16))


class TableSource(Source):
    """A table in memory: pandas, polars, pyarrow, or a numpy structured array."""

    def __init__(self, table: Any, value: str, client: str | None = None, person: str | None = None) -> None:
        super().__init__(value, client, person)
        self._table = table
        self.check(table_columns(table))

    def batches(self) -> Iterator[Batch]:
        """One batch: the table is in memory already."""
        columns = (self.column, self.client, self.person)
        yield self.batch(*(None if name is None else self._table[name] for name in columns))


def table_columns(table: Any) -> list[str]:
    """The names of a table's columns."""
    if isinstance(table, np.ndarray):
        return list(table.dtype.names or ())
    names = getattr(table, "column_names", None)
    return [str(name) for name in (table.columns if names is None else names)]
