"""An experiment's results as files: tidy rows to CSV or Parquet, and numbers as text."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privatile.errors import InputError

MARK_AT = 3.0
"""Monte Carlo standard errors beyond which a cell is marked: 1 honest cell in 370."""


def check_output(path: str | Path) -> Path:
    """A path for rows, by its suffix; asked before hours of work are lost over it."""
    file = Path(path)
    if file.suffix not in (".csv", ".parquet"):
        raise InputError(f"the output must end in .csv or .parquet; got {file.name!r}.")
    return file


def write_rows(rows: Sequence[dict[str, Any]], path: str | Path) -> None:
    """Write flat rows, one per cell; the suffix decides: .csv or .parquet."""
    file = check_output(path)
    if not rows:
        raise InputError("there is no finished cell to write yet.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".parquet":
            import pyarrow.parquet  # type: ignore[import-untyped]  # slow to load, and CSV does without it

            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), file)
            return
        with file.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}. Choose a folder you may write to.") from None


def plain(value: float, form: str) -> str:
    """A number in a format; a dash where there is none.

    >>> plain(0.9471, ".3f"), plain(float("nan"), ".3f")
    ('0.947', '–')
    """
    return "–" if value != value else f"{value:{form}}"
