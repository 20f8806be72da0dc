"""The results of many groups, or of many runs, side by side: one table for terminal, JSON, page and figure.

Groups are different people, so their errors are independent: intervals that are to hold all at once are taken at the
confidence of `level_each`, c^(1/m) for m intervals (Šidák), as for several levels of one run. Of runs that were
put side by side nothing says so: each is taken with the m-th part of the error (Bonferroni).
"""

import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from privatile.core.kinds import declaration
from privatile.core.text import counted, listed, percent_text, printable
from privatile.errors import InputError
from privatile.result.caveats import Caveat, to_act_on_and_rest
from privatile.result.document import AsDocument, Library, document, frame
from privatile.result.result import QuantileResult
from privatile.result.shown import MISSING, level_name
from privatile.result.tables import FIRST, WIDTH, Line, Table, drawn_columns, drawn_range, folded, html_table

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
class GroupResults(AsDocument):
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

    @property
    def percent(self) -> str:
        """The confidence that was asked for."""
        return percent_text(self.confidence_level, 4)

    @property
    def heads(self) -> tuple[str, ...]:
        """Of the columns of a table."""
        return (self.by or "run", "asked", "estimate", f"{self.percent} interval")

    def lines(self, level_index: int = 0) -> list[Line]:
        """The rows of a level's table, the largest estimate first; those without one last."""
        lines = [self._line(group.name, group, level_index) for group in self.groups]
        lines.sort(key=lambda line: (-math.inf if line.is_located else 0.0, -line.place if line.is_located else 0.0))
        return lines

    def tables(self) -> list[Table]:
        """A table per level."""
        kind = "all together" if self.simultaneous else "each"
        return [
            Table(
                self.title(index),
                self.heads,
                lines := self.lines(index),
                drawn_range(lines, self.range),
                f"{level_name(level)} of {self.value}, {self.percent} intervals ({kind})",
            )
            for index, level in enumerate(self.levels)
        ]

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
        grids = dict.fromkeys(declaration(result.value_kind).grid_in_words for result in results)
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
        results, count = [result for _, result in self.results], len(self.results)
        conditions = dict.fromkeys(one.shown.own.condition for one in [r for r in results if r.located] or results)
        confidence = f"with {self.percent} confidence" + (f", {' or '.join(conditions)}" if conditions else "")
        if count == 1:
            return f"The interval holds {confidence}."
        if self.simultaneous:
            each = f" (each by itself with {percent_text(results[0].confidence_level, 4)})" if results else ""
            return f"{'Both' if count == 2 else f'All {count}'} intervals hold together {confidence}{each}."
        every = "both" if count == 2 else f"all {count} of them"
        return f"Each interval holds by itself {confidence}. That {every} hold is less sure: simultaneous intervals do."

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
        blocks = [[one.title, "", *drawn_columns(one), *self._reasons(one.lines)] for one in self.tables()]
        if act := self.to_act_on():
            blocks.append([FIRST, *(f"- {text}" for text in act)])
        blocks += [folded(note, WIDTH) for note in self.notes()]
        return "\n\n".join("\n".join(map(printable, block)) for block in blocks)

    def _reasons(self, lines: Sequence[Line]) -> list[str]:
        """Why groups have no estimate, or not their last one; with how many there are, where nobody was asked."""
        sizes = {group.name: f" ({counted(group.records, 'record')})" for group in self.groups if not group.results}
        reasons: dict[str, list[str]] = {}
        for line in lines:
            if line.why:
                reasons.setdefault(line.why, []).append(line.name + sizes.get(line.name, ""))
        said = [line for why, names in reasons.items() for line in folded(f"{listed(names, FEW)}: {why}.", WIDTH)]
        return ["", *said] if said else []

    def to_dict(self) -> dict[str, Any]:
        """The document that `--json` prints, as plain values: `docs/result.schema.json`."""
        return document(
            "groups",
            self.reliable,
            results=self._entries(),
            column=self.value,
            by=self.by,
            range={"low": self.range[0], "high": self.range[1]},
            confidence_level=self.confidence_level,
            simultaneous=self.simultaneous,
            groups=[
                {"name": group.name, "records": group.records, "asked": group.asked, "why": group.why}
                for group in self.groups
            ],
            without_a_group=self.ungrouped,
            notes=self.notes(),
        )

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

    def _repr_html_(self) -> str:
        """The first level's table for a notebook; every text is escaped."""
        table = html_table(self.heads, [line.cells for line in self.lines()])
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes())
        return f"<p>{html.escape(self.title())}</p>{table}{notes}"

    def report(self, path: str | Path = "groups.html") -> Path:
        """Write a page (.html: one file, no network needed) or a figure (.svg, .pdf, .png), dots with whiskers."""
        if self.reporter is None:
            raise InputError("these results do not know how to be drawn: estimate them with privatile.estimate.")
        return self.reporter(self, path)
