"""Rows of a CSV file as named tuples."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

R = TypeVar("R", bound=tuple[Any, ...])


def read_rows(path: Path, kind: type[R]) -> list[R]:
    """All rows of a file; none where there is no file. A column that the file lacks has its default."""
    if not path.exists():
        return []
    types = get_type_hints(kind)
    with path.open(newline="", encoding="utf-8") as stream:
        rows = csv.DictReader(stream)
        return [kind(**{name: types[name](row[name]) for name in types if name in row}) for row in rows]


def write_rows(rows: Sequence[tuple[Any, ...]], path: Path, digits: int = 6, append: bool = False) -> None:
    """Write rows of one kind, or append them to those that the file has, which get the columns that they lack."""
    if append and rows and path.exists() and _head(path) not in ([], list(get_type_hints(type(rows[0])))):
        rows, append = [*read_rows(path, type(rows[0])), *rows], False
    fresh = not append or not path.exists() or not path.stat().st_size
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w" if fresh else "a", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if fresh and rows:
            writer.writerow(get_type_hints(type(rows[0])))
        writer.writerows([f"{cell:.{digits}g}" if isinstance(cell, float) else cell for cell in row] for row in rows)


def _head(path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8") as stream:
        return next(csv.reader(stream), [])
