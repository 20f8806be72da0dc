"""An experiment's results: tidy rows to CSV or Parquet, and a table for a terminal."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privatile.errors import InputError
from privatile.result.layout import WIDTH, fixed_columns, folded

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


def rounded(value: float, digits: int = 4) -> str:
    """A number with so many digits, all of them before the point; a dash where there is none.

    >>> rounded(143_724.04), rounded(1_028.69), rounded(0.0123456), rounded(191.3, 2), rounded(0.0), rounded(math.nan)
    ('143,724', '1,029', '0.01235', '191', '0', '–')
    """
    if not (math.isfinite(value) and value):
        return plain(value, ",.0f")
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def table_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The cells of an experiment as text, no line wider than a terminal.

    What all cells have in common stands above the table, columns that no cell has are left out, and columns that do not
    fit follow below, beside the same labels.

    >>> cell = {"level": "0.5", "records": "2000", "coverage": 0.96, "coverage_error": 0.004, "mae": 1028.7,
    ...         "mae_error": 19.3, "bias": -34.1, "width": 4884.4, "rmse": 1.0, "bound": math.nan}
    >>> for line in table_lines([cell, cell | {"level": "0.9"}]):
    ...     print(line)
    records 2000
    <BLANKLINE>
    level       coverage         MAE   bias  width
    0.5    0.960 ± 0.004  1,029 ± 19  -34.1  4,884
    0.9    0.960 ± 0.004  1,029 ± 19  -34.1  4,884
    """
    if not rows:
        return ["No cell is finished yet."]
    labels = [name for name in rows[0] if isinstance(rows[0][name], str)]
    common = {name for name in labels if len({row[name] for row in rows}) == 1}
    beside = [[name, *(row[name] for row in rows)] for name in labels if name not in common]
    columns = [column for column in map(list, _columns(rows)) if set(column[1:]) != {"–"}]
    lines = folded(", ".join(f"{name} {rows[0][name]}" for name in labels if name in common), WIDTH)
    while columns:
        block = [*beside, columns.pop(0)]
        while columns and len(_ruler([*block, columns[0]])) <= WIDTH:
            block.append(columns.pop(0))
        lines += ["", *fixed_columns(list(zip(*block, strict=True)))]
    return lines if common else lines[2:]


def _ruler(block: Sequence[Sequence[str]]) -> str:
    return "  ".join("x" * max(map(len, column)) for column in block)


def coverage_text(coverage: float, error: float) -> str:
    """A simulated coverage with its Monte Carlo error; where every run covered, or none, that error says nothing.

    >>> coverage_text(0.957, 0.0041), coverage_text(1.0, 0.0)
    ('0.957 ± 0.004', '1.000')
    """
    shown = plain(coverage, ".3f")
    return shown if error == 0.0 else f"{shown} ± {plain(error, '.3f')}"


def _columns(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Each column with its title; a store of an earlier version lacks some."""
    return [
        ["coverage", *(coverage_text(row["coverage"], row["coverage_error"]) for row in rows)],
        ["MAE", *(f"{rounded(row['mae'])} ± {rounded(row['mae_error'], 2)}" for row in rows)],
        ["bias", *(rounded(row["bias"], 3) for row in rows)],
        ["width", *(rounded(row["width"]) for row in rows)],
        ["error / bound", *(plain(row["rmse"] / row["bound"], ".3f") for row in rows)],
        ["bounded", *(plain(row.get("bounded", math.nan), ".3f") for row in rows)],
        ["other covers", *(plain(row.get("other_coverage", math.nan), ".3f") for row in rows)],
        ["other width", *(rounded(row.get("other_width", math.nan)) for row in rows)],
        ["values left", *(plain(row.get("values_left", math.nan), ".0f") for row in rows)],
    ]
