"""The rows of a table of groups, or of differences, and how a terminal shows them: names cut, dots with whiskers."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from privatile.result.layout import WIDTH, fixed_columns

SHORTEST_NAME = 8
"""Letters of a name that a table shows at least."""

FEWEST_MARKS = 12
"""Columns of a terminal that a drawing of the intervals needs; with less room there is none."""


class Line(NamedTuple):
    """One row of a table: texts for people, numbers for drawings."""

    name: str
    asked: int
    estimate: str
    """Empty where there is none that may be relied on."""
    interval: str
    """Empty where nobody was asked."""
    place: float
    ends: tuple[float, float]
    """NaN for `place`, and the stated range, where the answers say nothing."""
    why: str

    @property
    def is_located(self) -> bool:
        """Whether there is an estimate to draw."""
        return not math.isnan(self.place)


def drawn_range(lines: Sequence[Line], stated: tuple[float, float]) -> tuple[float, float]:
    """What a drawing shows: all estimates, and all ends that the answers gave; an open end goes to the border."""
    values = [line.place for line in lines if line.is_located]
    values += [end for line in lines if line.is_located for end in line.ends if stated[0] < end < stated[1]]
    if not values:
        return stated
    low, high = min(values), max(values)
    room = 0.03 * (high - low) or 0.01 * abs(high) or 1.0
    return low - room, high + room


def marks_of(lines: Sequence[Line], room: int, stated: tuple[float, float]) -> list[str]:
    """Each interval as a whisker with its estimate as a dot, on one scale."""
    low, high = drawn_range(lines, stated)

    def at(value: float) -> int:
        return round((min(max(value, low), high) - low) / (high - low) * (room - 1))

    drawn = []
    for line in lines:
        if not line.is_located:
            drawn.append("")
            continue
        first, last = map(at, line.ends)
        marks = [" "] * first + ["-"] * (last - first + 1)
        marks[at(line.place)] = "o"
        drawn.append("".join(marks))
    return drawn


def fitted(table: Sequence[Sequence[str]]) -> list[str]:
    """A table for a terminal; the names in its first column are cut where they would make it too wide.

    >>> fitted([("group", "x"), ("n" * 99, "1" * 60)])[1][:20]
    'nnnnnnnnnnnnnnnnn…  '
    """
    others = sum(max(len(row[place]) for row in table) + 2 for place in range(1, len(table[0])))
    room = max(SHORTEST_NAME, WIDTH - others)
    return fixed_columns([(cut_name(name, room), *rest) for name, *rest in table])


def cut_name(name: str, most: int) -> str:
    """A name, cut where it has more letters than `most`."""
    return name if len(name) <= most else f"{name[: most - 1]}…"
