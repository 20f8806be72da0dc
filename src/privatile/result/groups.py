"""The results of many groups, or of many runs, side by side in one table.

The rows of a table of groups, or of differences, and how a terminal shows them: names cut, dots with whiskers.

The results of many groups, or of many runs, side by side: one table for terminal, JSON, page and figure.

Groups are different people, so their errors are independent: intervals that are to hold all at once are taken at the
confidence of `level_each`, c^(1/m) for m intervals (Šidák), as for several levels of one run. Of runs that were
put side by side nothing says so: each is taken with the m-th part of the error (Bonferroni).
"""

import html
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from privatile.core.text import counted, listed, printable
from privatile.errors import InputError
from privatile.estimator.settings import parse_values
from privatile.result.caveats import Caveat, to_act_on_and_rest
from privatile.result.document import Library, document, frame
from privatile.result.result import QuantileResult
from privatile.result.shown import MISSING, level_name
from privatile.result.tables import FIRST, WIDTH, fixed_columns, folded

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


FEW = 4
"""Names of groups that a line lists."""


class GroupOutcome(NamedTuple):
    """One group: a result per level, None where it is not there; or no entry, and why nobody was asked."""

    name: str
    results: tuple[QuantileResult | None, ...]
    records: int
    """That there are; how many of them were asked is `asked`."""
    why: str = ""

    @property
    def asked(self) -> int:
        """Records that were asked, about one level or another."""
        return sum(result.records for result in self.results if result is not None)

    @property
    def result(self) -> QuantileResult | None:
        """The first level's."""
        return self.results[0] if self.results else None


@dataclass(frozen=True)
class GroupResults:
    """A quantile of every group, each with its interval; `results["north"]` is one group's."""

    value: str
    """What the numbers are."""
    by: str
    """What the groups are; empty for runs that were put side by side."""
    levels: tuple[float, ...]
    range: tuple[float, float]
    groups: tuple[GroupOutcome, ...]
    confidence_level: float
    simultaneous: bool = False
    """Whether the confidence holds for all intervals at once, or for each by itself."""
    ungrouped: int = 0
    """Records without a group, which were not asked."""
    chosen_later: str = ""
    """Where the confidence was chosen after the answers had come: what was stated before."""
    reporter: "Callable[[GroupResults, str | Path], Path] | None" = field(default=None, repr=False, compare=False)

    def __getitem__(self, name: str) -> GroupOutcome:
        for group in self.groups:
            if group.name == name:
                return group
        raise KeyError(name)

    def __iter__(self) -> Iterator[GroupOutcome]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def title(self, level_index: int = 0) -> str:
        """What was estimated."""
        of = f"The {self.level_name(level_index)} of {self.value}"
        return f"{of} by {self.by}" if self.by else f"{of} in {len(self.groups)} runs"

    def level_name(self, level_index: int = 0) -> str:
        """A level in words."""
        return level_name(self.levels[level_index])

    def lines(self, level_index: int = 0) -> list[Line]:
        """The rows of a level's table, the largest estimate first; those without one last."""
        lines = [self._line(group.name, group, level_index) for group in self.groups]
        lines.sort(key=lambda line: (-math.inf if line.is_located else 0.0, -line.place if line.is_located else 0.0))
        return lines

    def _line(self, name: str, group: GroupOutcome, level_index: int) -> Line:
        result = group.results[level_index] if group.results else None
        if result is None:
            return Line(name, 0, "", "", math.nan, self.range, group.why)
        shown, first = result.shown, result.shown.first
        if not result.located:
            return Line(name, result.records, "", " … ".join(first.ends), math.nan, first.drawn, shown.headline)
        why = "still being asked" if any(caveat.code == "unfinished" for caveat in result.caveats) else ""
        return Line(name, result.records, first.estimate, first.text, result.estimate, first.drawn, why)

    def notes(self) -> list[str]:
        """What a reader must know to read the table."""
        found = [self._confidence_note(), *([self.chosen_later] if self.chosen_later else [])]
        results = [result for _, result in self.results]
        grids = dict.fromkeys(parse_values(result.values).grid_in_words for result in results)
        found += [
            f"Declared: every value is {grid}. So is every estimate, and an interval is the values from its first to "
            "its last, both included."
            for grid in grids
            if grid
        ]
        missing = dict.fromkeys(MISSING[result.missing] for result in results if result.missing != "fail")
        found += [f"Missing values: {words}." for words in missing]
        if self.by:
            found.append("There is no overall value: it does not follow from the groups' quantiles.")
        if self.ungrouped:
            found.append(f"{counted(self.ungrouped, 'record')} without {self.by}: in no group, and not asked.")
        return found

    def _confidence_note(self) -> str:
        percent = f"{100 * self.confidence_level:.4g}%"
        results = [result for _, result in self.results]
        placed = [result for result in results if result.located] or results
        conditions = dict.fromkeys(result.shown.own.condition for result in placed)
        holds = f", {' or '.join(conditions)}" if conditions else ""
        count = len(results)
        every, these = ("both", "Both") if count == 2 else (f"all {count} of them", f"All {count}")
        if count == 1:
            return f"The interval holds with {percent} confidence{holds}."
        if self.simultaneous:
            each = f" (each by itself with {100 * results[0].confidence_level:.4g}%)" if results else ""
            return f"{these} intervals hold together with {percent} confidence{holds}{each}."
        return (
            f"Each interval holds by itself with {percent} confidence{holds}. That {every} hold is less "
            "sure: simultaneous intervals do."
        )

    @property
    def results(self) -> list[tuple[str, QuantileResult]]:
        """All results, by the names of their groups."""
        return [(group.name, result) for group in self.groups for result in group.results if result is not None]

    @property
    def reliable(self) -> bool:
        """Whether every group was asked, and every result is to be relied on."""
        asked = all(group.results and None not in group.results for group in self.groups)
        return asked and all(result.reliable for _, result in self.results)

    def to_act_on(self) -> list[str]:
        """What a reader must act on, once for all groups it holds for; why a group has no estimate stands apart."""
        found: dict[str, list[str]] = {}
        caveats: list[Caveat] = []
        for name, result in self.results:
            for caveat in result.shown.act:
                if not caveat.kind.loses:
                    found.setdefault(caveat.text, []).append(name)
                    caveats.append(caveat)
        first, _ = to_act_on_and_rest(dict.fromkeys(caveats))
        return [f"{listed(found[caveat.text], FEW)}: {caveat.text}" for caveat in first]

    def to_text(self) -> str:
        """A table per level for a terminal, sorted by the estimate, and what it means."""
        blocks = [[self.title(index), "", *self._table(self.lines(index))] for index in range(len(self.levels))]
        if act := self.to_act_on():
            blocks.append([FIRST, *(f"- {text}" for text in act)])
        blocks += [folded(note, WIDTH) for note in self.notes()]
        return "\n\n".join("\n".join(map(printable, block)) for block in blocks)

    def _table(self, lines: Sequence[Line]) -> list[str]:
        percent = f"{100 * self.confidence_level:.4g}% interval"
        heads = (self.by or "run", "asked", "estimate", percent)
        cells = [(line.name, f"{line.asked:,}", line.estimate or "–", line.interval or "–") for line in lines]
        table = fitted([heads, *cells])
        room = WIDTH - max(map(len, table)) - 2
        if room >= FEWEST_MARKS:
            widest = max(map(len, table))
            table[1:] = [
                f"{row:<{widest}}  {marks}".rstrip()
                for row, marks in zip(table[1:], marks_of(lines, room, self.range), strict=True)
            ]
        reasons: dict[str, list[str]] = {}
        for line in lines:
            if line.why:
                reasons.setdefault(line.why, []).append(line.name)
        said = [
            line
            for why, names in reasons.items()
            for line in folded(f"{listed([self._sized(name) for name in names], FEW)}: {why}.", WIDTH)
        ]
        return [*table, *([""] if said else []), *said]

    def to_dict(self) -> dict[str, Any]:
        """The document that `--json` prints, as plain values: `docs/result.schema.json`."""
        entries = self._entries()
        return {
            **document(entries),
            "kind": "privatile groups",
            "reliable": self.reliable,
            "column": self.value,
            "by": self.by,
            "range": {"low": self.range[0], "high": self.range[1]},
            "confidence_level": self.confidence_level,
            "simultaneous": self.simultaneous,
            "groups": [
                {"name": group.name, "records": group.records, "asked": group.asked, "why": group.why}
                for group in self.groups
            ],
            "without_a_group": self.ungrouped,
            "notes": self.notes(),
        }

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_frame(self, library: Library = "pandas") -> Any:
        """A table with a row per result: a pandas frame, or what `library` ("polars", "pyarrow") has."""
        entries = self._entries()
        return frame(entries, library, {key: [entry[key] for entry in entries] for key in ("group", "why")})

    def _entries(self) -> list[dict[str, Any]]:
        """An entry per group and level; where nobody was asked, why."""
        found = []
        for group in self.groups:
            for level, result in zip(self.levels, group.results or (None,) * len(self.levels), strict=True):
                facts = self._not_asked(group, level) if result is None else result.facts()
                found.append({"group": group.name, "why": group.why, **facts})
        return found

    def _not_asked(self, group: GroupOutcome, level: float) -> dict[str, Any]:
        return {
            "column": self.value,
            "level": level,
            "estimate": None,
            "confidence_interval": None,
            "confidence_level": self.confidence_level,
            "range": {"low": self.range[0], "high": self.range[1]},
            "records": 0,
            "reliable": False,
            "sentence": f"There is no result for {group.name}: {group.why}.",
            "caveats": [],
        }

    def _sized(self, name: str) -> str:
        """A name in the reasons below the table; with how many there are, where nobody was asked."""
        sizes = {group.name: group.records for group in self.groups if not group.results}
        return f"{name} ({counted(sizes[name], 'record')})" if name in sizes else name

    def _repr_html_(self) -> str:
        """The first level's table for a notebook; every text is escaped."""
        percent = f"{100 * self.confidence_level:.4g}% interval"
        heads = "".join(f"<th>{html.escape(head)}</th>" for head in (self.by or "run", "asked", "estimate", percent))
        rows = "".join(
            f"<tr><th>{html.escape(line.name)}</th><td>{line.asked:,}</td><td>{line.estimate or '–'}</td>"
            f"<td>{line.interval or '–'}</td></tr>"
            for line in self.lines()
        )
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes())
        return f"<p>{html.escape(self.title())}</p><table><tr>{heads}</tr>{rows}</table>{notes}"

    def __str__(self) -> str:
        return self.to_text()

    def report(self, path: str | Path = "groups.html") -> Path:
        """Write a page (.html: one file, no network needed) or a figure (.svg, .pdf, .png), dots with whiskers."""
        if self.reporter is None:
            raise InputError("these results do not know how to be drawn: estimate them with privatile.estimate.")
        return self.reporter(self, path)
