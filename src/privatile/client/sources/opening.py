"""From whatever holds the data to its source."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from privatile.client.sources.files import FileSource
from privatile.client.sources.source import ONLY_CLIENT, Source
from privatile.client.sources.tables import DatabaseSource, MappingSource, TableSource, table_columns
from privatile.errors import InputError


def open_source(
    data: object,
    *,
    value: str | None = None,
    client: str | None = None,
    person: str | None = None,
    query: str | None = None,
    weight: str | None = None,
    groups: Sequence[str] = (),
) -> Source:
    """The source for whatever holds the data.

    `data` is a path (CSV, Parquet, JSON, also gzip), a mapping of client name to column, a table or a column in
    memory, or a DB-API connection together with `query`. `groups` are further columns that divide the records.
    """
    if query is not None:
        return DatabaseSource(data, query, _named(value), client, person, weight, groups)
    if isinstance(data, str | os.PathLike):
        return FileSource(Path(data), _named(value), client, person, weight, groups)
    # Asked of the type: a table may have a column of that name.
    if hasattr(type(data), "collect") or hasattr(type(data), "compute"):
        raise InputError(
            f"a {type(data).__name__} is a query that has not run yet, and might give its rows in another order next "
            "time. Run it (.collect() or .compute()) and give the table, or give the path of the file it reads."
        )
    if table_columns(data) is not None:
        return TableSource(data, _named(value), client, person, weight, groups)
    if client is not None or person is not None or weight is not None or groups:
        raise InputError(
            "client, person, weight and groups name columns of a table or a file; this data has no named columns."
        )
    if isinstance(data, Mapping):
        return MappingSource(data, value or "value")
    return MappingSource({ONLY_CLIENT: data}, value or "value")


def _named(value: str | None) -> str:
    if value is None:
        raise InputError("which column? Name it with value=COLUMN.")
    return value
