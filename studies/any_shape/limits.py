"""What the study must show, and which cells fall short: one list for the page and for the tests."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from studies.any_shape.measure import Measured
from studies.any_shape.silence import Row
from studies.coverage.scores import Score

NOMINAL = 0.95
MADE_UP = ("smooth", "unseen", "coverage", "hard", "federated")
REAL = ("columns", "regions", "file")
RUNS = {**dict.fromkeys(MADE_UP, 20_000), **dict.fromkeys(REAL, 2000)}
"""Runs that every cell of a table has at least."""
IN_REACH = 20_000
"""Records from which on a hard cell or a real column must be bounded."""


PROMISED = ((6000.0, 0.99, 3.4), (600.0, 0.97, 4.5), (150.0, 0.97, 6.5))
"""Smooth laws: information, least share of bounded intervals and largest median width from there on."""


KNOWN: frozenset[tuple[str, str]] = frozenset()
"""Cells and numbers that fall short, and are named on the page: nothing else may."""

MEDIAN_ERROR = 1.06
"""Largest median of the undeclared smooth estimate's error over the smooth laws with an information of 6,000, over
those with 60,000, and over both."""

WIDEST_IN_SILENCE = {"10%": 1.10, "30%": 1.25}
"""Width of the smooth interval over that without silence, where missed records are asked later or a tenth is missed.

Where three tenths of the records are missed and spent, even an interval that loses nothing else is 1/√.7 = 1.20 times
as wide: outside this promise, and bounded by `WIDEST_SPENT`."""

WIDEST_SPENT = 1.32
"""The same where three tenths are missed and spent: nothing is promised there, measured are 1.21 to 1.29."""

COVERAGE_IN_SILENCE = (0.94, 0.97)


class Shortfall(NamedTuple):
    """A number beyond its limit."""

    cell: str
    what: str
    found: float
    limit: float


def share_error(share: float, runs: int) -> float:
    """Monte Carlo standard error of a share."""
    return math.sqrt(share * (1.0 - share) / runs)


NOMINAL_ERRORS = 2.0
"""Standard errors of the nominal coverage by which a cell may lie below it."""


def any_shape_shortfalls(rows: Sequence[Measured]) -> list[Shortfall]:
    """Coverage everywhere; bounded shares and widths where they are promised."""
    found = []
    for row in rows:
        limits = [("coverage", row.coverage, NOMINAL - NOMINAL_ERRORS * share_error(NOMINAL, row.runs), 1)]
        if not math.isnan(row.set_coverage):
            limits.append(
                ("coverage of the set", row.set_coverage, NOMINAL - NOMINAL_ERRORS * share_error(NOMINAL, row.runs), 1)
            )
        if row.has_density and row.information >= 150 * (1 - 1e-9):
            least, widest = next(limit for start, *limit in PROMISED if row.information >= start * (1 - 1e-9))
            limits += [("bounded", row.bounded, least, 1), ("width", row.width, widest, -1)]
        elif not row.has_density and row.records >= IN_REACH:
            limits.append(("bounded", row.bounded, 0.97, 1))
        found += [
            Shortfall(f"{row.table}: {row.name}", what, value, limit)
            for what, value, limit, sign in limits
            if sign * (value - limit) < 0.0
        ]
    return found


def grid_shortfalls(rows: Sequence[Measured]) -> list[Shortfall]:
    """Ages of the salary table, all records as one client: one or two of them, five or fewer at 20,000 records."""
    found = []
    for row in rows:
        if row.name.startswith("age") and row.clients == 1 and row.table == "columns":
            what, value, limit = (
                ("one or two ages", row.one_or_two, 0.85)
                if row.records > 200_000
                else ("five ages or fewer", row.up_to_five, 0.5)
            )
            if value < limit:
                found.append(Shortfall(f"{row.table}: {row.name}", what, value, limit))
    return found


def undeclared_shortfalls(rows: Sequence[Measured]) -> list[Shortfall]:
    """The smooth estimate of straddled runs, from information 6,000 on: its error over the bound's.

    In every cell, and in the median over the cells of each information; no Monte Carlo error is allowed for.
    """
    found = []
    rows = [row for row in rows if row.has_density and row.information >= 6000 * (1 - 1e-9)]
    for row in rows:
        limit = 1.05 if row.information >= 60_000 * (1 - 1e-9) else 1.12
        if row.smooth_error > limit:
            found.append(Shortfall(f"{row.table}: {row.name}", "error of the smooth estimate", row.smooth_error, limit))
    for name, first, last in (
        ("from I = 6,000 on", 6000.0, math.inf),
        ("with I = 6,000", 6000.0, 59_000.0),
        ("with I = 60,000", 59_000.0, math.inf),
    ):
        cells = [row for row in rows if first * (1 - 1e-9) <= row.information < last]
        if not cells:
            continue
        median = statistics.median(row.smooth_error for row in cells)
        if median > MEDIAN_ERROR:
            what = "median error of the smooth estimate"
            found.append(Shortfall(f"all cells {name}", what, median, MEDIAN_ERROR))
    return found


def continuous_shortfalls(rows: Sequence[Score], new: str) -> list[Shortfall]:
    """Declared continuous: coverage between its limits, two Monte Carlo standard errors allowed on either side."""
    found = []
    for row in rows:
        if row.information < 150 * (1 - 1e-9):
            continue
        low, high = (0.93, 1.0) if row.name.startswith(new) else (0.94, 0.96 if row.information >= 1500 else 0.97)
        doubt = 2.0 * share_error(NOMINAL, row.runs)
        if not low - doubt <= row.coverage <= high + doubt:
            found.append(Shortfall(row.name, "coverage", row.coverage, low if row.coverage < low else high))
    return found


def silence_shortfalls(rows: Sequence[Row]) -> list[Shortfall]:
    """Silent clients: widths over those without silence and coverage, two Monte Carlo standard errors allowed.

    None is allowed for `WIDEST_SPENT`, which is no promise.
    """
    found, whole = [], {row.setting: row for row in rows if row.silence == "none"}
    for row in rows:
        name, doubt = f"silence: {row.cell}", 2.0 * share_error(NOMINAL, row.runs)
        low, high = COVERAGE_IN_SILENCE
        if not low - doubt <= row.covers <= high + doubt:
            found.append(Shortfall(name, "coverage", row.covers, low if row.covers < low else high))
        if row.any_covers < NOMINAL - doubt:
            found.append(Shortfall(name, "coverage, any-shape", row.any_covers, NOMINAL))
        if row.bounded < 0.97 - 2.0 * share_error(0.97, row.runs):
            found.append(Shortfall(name, "bounded", row.bounded, 0.97))
        if row.silence != "none":
            none, limit, ratio_error = whole[row.setting], WIDEST_SPENT, 0.0
            ratio = row.width / none.width
            if promised_in_silence(row):
                limit = WIDEST_IN_SILENCE[row.silence.split()[0]]
                ratio_error = ratio * math.hypot(row.width_error / row.width, none.width_error / none.width)
            if ratio > limit + 2.0 * ratio_error:
                found.append(Shortfall(name, "width over that without silence", ratio, limit))
    return found


def promised_in_silence(row: Row) -> bool:
    """Whether a width is promised: not where three tenths of the records are missed and spent."""
    return row.silence != "none" and not (row.silence.startswith("30%") and row.missed == "spent")
