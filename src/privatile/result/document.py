"""Results as programs read them: one JSON document, and one row per result in a table.

`docs/result.schema.json` describes the document. It has one shape, whether a run has one level or several.
"""

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from privatile import __version__
from privatile.errors import InputError, require

SCHEMA_VERSION = 1
"""Counted up whenever a program that reads the document would have to change."""

Library = Literal["pandas", "polars", "pyarrow"]


class AsDocument(ABC):
    """What is printed as text and read by programs as one JSON document."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The document that `--json` prints, as plain values: `docs/result.schema.json` describes it."""

    @abstractmethod
    def to_text(self) -> str:
        """The same for a terminal."""

    def to_json(self) -> str:
        """The document as text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        return self.to_text()


def document(kind: str, reliable: bool, **content: Any) -> dict[str, Any]:
    """A document of this kind."""
    head = {"kind": f"privatile {kind}", "schema_version": SCHEMA_VERSION, "privatile": __version__}
    return {**head, "reliable": reliable, **content}


def results_document(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The document that holds these results; it is `reliable` where all of them are."""
    return document("results", all(entry["reliable"] for entry in entries), results=list(entries))


COLUMNS = {
    "column": ("column",),
    "level": ("level",),
    "estimate": ("estimate",),
    "low": ("confidence_interval", "low"),
    "high": ("confidence_interval", "high"),
    "confidence_level": ("confidence_level",),
    "reliable": ("reliable",),
    "condition": ("condition",),
    "method": ("method",),
    "other_low": ("other_interval", "low"),
    "other_high": ("other_interval", "high"),
    "range_low": ("range", "low"),
    "range_high": ("range", "high"),
    "records": ("records",),
    "rounds": ("rounds",),
    "epsilon": ("epsilon",),
    "date": ("date",),
    "run": ("run",),
}
"""Columns of a table of results, and where an entry of the document holds them."""


def frame(
    entries: Sequence[dict[str, Any]], library: Library, before: Mapping[str, Sequence[str]] | None = None
) -> Any:
    """A table with a row per result, and what stands `before` its columns.

    `caveats` has the codes of those that are not standing remarks.
    """
    if library not in get_args(Library):
        raise InputError(f"a table is made with one of {', '.join(get_args(Library))}; got {library!r:.60}.")
    made, columns = require(library, "tables"), _columns(entries, before or {})
    return made.table(columns) if library == "pyarrow" else made.DataFrame(columns)


def csv_text(facts: Mapping[str, Any]) -> str:
    """The same table of a document's results as CSV; what is not there is left empty.

    >>> print(csv_text({"results": [{"column": "pay", "level": 0.5, "reliable": True, "caveats": []}]})[:28])
    column,level,estimate,low,hi
    """
    entries: Sequence[dict[str, Any]] = facts["results"]
    of_groups = [key for key in ("group", "why") if key in entries[0]]
    columns = _columns(entries, {str(key): [entry[key] for entry in entries] for key in of_groups})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow(str(cell).upper() if isinstance(cell, bool) else cell for cell in row)
    return text.getvalue()


def _columns(entries: Sequence[dict[str, Any]], before: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: list(column) for name, column in before.items()}
    columns |= {name: [_found(entry, keys) for entry in entries] for name, keys in COLUMNS.items()}
    columns["caveats"] = [
        " ".join(one["code"] for one in entry["caveats"] if one["severity"] != "standing") for entry in entries
    ]
    return columns


def _found(entry: dict[str, Any], keys: tuple[str, ...]) -> Any:
    value: Any = entry
    for key in keys:
        value = None if value is None else value.get(key)
    return value
