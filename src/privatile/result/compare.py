"""Differences of quantiles of different people: of two results, or of all pairs of many.

The ends of a difference follow from the two displayed intervals, (l₁, u₁) and (l₂, u₂). Where one of them is the
any-shape interval no law joins them, and both are taken with half of the error, at confidence 1 − α/2:

    l₁ − u₂  …  u₁ − l₂

Both intervals hold together with probability 1 − α at least, and then so does their difference: for every distribution.
Elsewhere both are taken at confidence 1 − α and joined as errors that are nearly normal (MOVER):

    x₁ − x₂ − √((x₁ − l₁)² + (u₂ − x₂)²)  …  x₁ − x₂ + √((u₁ − x₁)² + (x₂ − l₂)²)

so each run's own calibration (its slope's error, its scale's skewness) carries over. A smooth interval that the answers
contradict is not displayed, so it is never joined. The p-value of a difference inverts the interval over the
confidence level. The runs must be independent: no person in both.

Differences to hold all at once share a run, so they depend on each other: each of m is taken with the m-th part of the
error (Bonferroni), 1 − (1 − c)/m, and p-values are multiplied by m, which is the same rule read backwards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from privatile.core.kinds import declaration
from privatile.core.text import disarmed, percent_text, printable
from privatile.errors import InputError
from privatile.inference.inference import MIN_P, p_value_of
from privatile.result.caveats import Caveat
from privatile.result.document import AsDocument, document
from privatile.result.groups import GroupResults
from privatile.result.result import ConfidenceInterval, QuantileResult
from privatile.result.shown import level_name, nearest_inside, outward, p_value_text, plain, significant
from privatile.result.tables import (
    FIRST,
    MIN_NAME,
    REST,
    WIDTH,
    Line,
    Table,
    cut_name,
    drawn_range,
    fixed_columns,
    folded,
    width_left,
)


@dataclass(frozen=True)
class Comparison(AsDocument):
    """The difference first − second."""

    first: QuantileResult
    second: QuantileResult
    difference: float
    confidence_interval: ConfidenceInterval
    confidence_level: float
    p_value: float
    """Of "both quantiles are equal", two-sided; below α iff 0 lies outside the (1 − α) interval."""

    @property
    def reliable(self) -> bool:
        """Whether both quantiles are."""
        return self.first.reliable and self.second.reliable

    @property
    def rule(self) -> str:
        """How the two intervals became one, in words."""
        return BY_ENDS if any_shape(self.first, self.second) else JOINED

    @property
    def difference_shown(self) -> str:
        """The difference with the digits of the finer one of the two estimates, and one of its own; empty where one of
        the quantiles is not to be relied on: a difference of such numbers is none either."""
        if not self.reliable:
            return ""
        if self.step is not None:
            return plain(self.difference)
        low, high = (one.high - one.low for one in (self.first.confidence_interval, self.second.confidence_interval))
        width, size = min(low, high), abs(self.difference)
        if not width > 0.0:
            return significant(self.difference, 0.0)
        if size > 1e-9 * width:  # smaller ones are rounding errors
            width = min(width, 10.0 * size)
        return nearest_inside(self.difference, self.ends_shown, width, (-math.inf, math.inf))

    @property
    def step(self) -> float | None:
        """The step of the grid that was declared for both, and left values of both: differences are multiples of it."""
        steps = {declaration(one.value_kind).step for one in (self.first, self.second) if one.grid_values}
        both = bool(self.first.grid_values and self.second.grid_values) and len(steps) == 1
        return steps.pop() if both else None

    @property
    def ends_shown(self) -> tuple[str, str]:
        """Both ends, rounded outward; where both have values of one declared grid, the ends of it that are left."""
        low, high = self.confidence_interval
        if self.step is not None:
            first, last = math.ceil(low / self.step - 1e-9), math.floor(high / self.step + 1e-9)
            if first <= last:
                return plain(first * self.step), plain(last * self.step)
        # An interval without 0 is not shown as one that ends there: the p-value says that there is a difference.
        limits = (0.0, math.inf) if low > 0.0 else (-math.inf, 0.0) if high < 0.0 else (-math.inf, math.inf)
        return outward(low, high - low, up=False, limits=limits), outward(high, high - low, up=True, limits=limits)

    def to_dict(self) -> dict[str, Any]:
        """All facts as plain values."""
        return document(
            "comparison",
            self.reliable,
            **self.facts(),
            confidence_level=self.confidence_level,
            p_value=self.p_value,
            rule=self.rule,
            caveats=self.caveats,
            first=self.first.facts(),
            second=self.second.facts(),
        )

    def facts(self) -> dict[str, Any]:
        """The difference for programs, none where one of the quantiles was not located; and its interval."""
        located = self.first.located and self.second.located
        return {
            "difference": self.difference if located else None,
            "confidence_interval": self.confidence_interval._asdict(),
        }

    def to_text(self) -> str:
        """Both results in a sentence each, then the difference."""
        (low, high), percent, shown = self.ends_shown, percent_text(self.confidence_level), self.difference_shown
        said = (
            f"Their difference, first minus second, is {shown}; the {percent} interval runs from {low} to {high} "
            f"({p_value_text(self.p_value)} for no difference)."
            if shown
            else f"Their difference is not to be relied on, since one of the two quantiles is not; by the intervals it "
            f"lies between {low} and {high} ({percent})."
        )
        first, second = self.first.shown, self.second.shown
        act = [FIRST, *_said_of_both(first.act, second.act)]
        rest = [REST, *(f"- {text}" for text in self.caveats), *_said_of_both(first.rest, second.rest)]
        both = ["", f"first:  {first.sentence}", f"second: {second.sentence}"]
        lines = [said, self.rule, *both, *(["", *act] if len(act) > 1 else []), "", *rest]
        return "\n".join(map(printable, lines))

    @property
    def caveats(self) -> list[str]:
        """What a reader of the difference must know beside the caveats of its parts."""
        found = ["That no person is in both runs is the user's statement; it was not checked."]
        names = [
            {client.name for client in result.clients if len(result.clients) > 1}
            for result in (self.first, self.second)
        ]
        both = sorted(names[0] & names[1])
        if both:
            shown = ", ".join(both[:5]) + (", …" if len(both) > 5 else "")
            found.append(
                f"Both runs name {shown} among their clients: if the same people were asked twice, the difference "
                "looks surer than it is."
            )
        return found


def _said_of_both(first: Sequence[Caveat], second: Sequence[Caveat]) -> list[str]:
    """The caveats of two results; one that holds for one of them only says for which."""
    of_one = [f"- second: {caveat.text}" for caveat in second if caveat not in first]
    return [*(f"- {'' if caveat in second else 'first: '}{caveat.text}" for caveat in first), *of_one]


def compare(
    first: QuantileResult, second: QuantileResult, *, disjoint: bool, confidence_level: float = 0.95
) -> Comparison:
    """Compare two results of runs that share no person; `disjoint=True` is your statement that they do not."""
    if not disjoint:
        raise InputError(
            "a comparison needs two runs without a person in common: state it with disjoint=True. Answers "
            "of the same person would make the difference look surer than it is."
        )
    if first.run == second.run and first.level == second.level:
        raise InputError(f"both results are of run {first.run}: a run is not compared with itself.")

    def inside(level: float) -> bool:
        low, high = difference_interval(first, second, level)
        return low <= 0.0 <= high

    interval = difference_interval(first, second, confidence_level)
    p_value = max(p_value_of(inside), MIN_P)
    return Comparison(first, second, first.estimate - second.estimate, interval, confidence_level, p_value)


BY_ENDS = (
    "This interval goes by the ends: each quantile's own interval with half of the error, the low end of one minus the "
    "high end of the other. It needs no more than the two intervals do."
)
JOINED = (
    "This interval joins the two as errors that are nearly normal. It needs what the two intervals need, such as "
    "continuous values with a smooth distribution around the quantile."
)


def any_shape(*results: QuantileResult) -> bool:
    """Whether one of the displayed intervals is the one that holds for every distribution."""
    return any(result.inference.is_any_shape for result in results)


def difference_interval(first: QuantileResult, second: QuantileResult, confidence_level: float) -> ConfidenceInterval:
    """The interval of first − second at a confidence level."""
    if any_shape(first, second):
        each = 0.5 * (1.0 + confidence_level)
        (low1, high1), (low2, high2) = first.interval(each), second.interval(each)
        return ConfidenceInterval(low1 - high2, high1 - low2)
    rows = ((result.estimate, *result.interval(confidence_level)) for result in (first, second))
    low, high = difference_ends(*rows)
    return ConfidenceInterval(float(low), float(high))


def difference_ends(first: tuple[Any, Any, Any], second: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """Both ends of first − second from (estimate, low, high) of each: numbers, or arrays of many runs.

    >>> [round(float(end), 3) for end in difference_ends((5.0, 2.0, 9.0), (1.0, -3.0, 4.0))]
    [-0.243, 9.657]
    """
    (x1, low1, high1), (x2, low2, high2) = first, second
    return x1 - x2 - np.hypot(x1 - low1, high2 - x2), x1 - x2 + np.hypot(high1 - x1, x2 - low2)


MAX_RUNS = 30
"""Runs of which all pairs are compared: 435 differences. Nobody reads more."""


class Pair(NamedTuple):
    """One difference: of whom, and the comparison."""

    first: str
    second: str
    comparison: Comparison


@dataclass(frozen=True)
class Comparisons(AsDocument):
    """The differences of all pairs, the larger quantile first; the largest difference on top, and last those of
    quantiles that are not to be relied on, which have no number."""

    names: tuple[str, ...]
    value: str
    level_name: str
    pairs: tuple[Pair, ...]
    confidence_level: float
    simultaneous: bool
    groups_of_one_file: bool = False

    @property
    def title(self) -> str:
        """What was compared."""
        return f"Differences in the {self.level_name} of {self.value}"

    @property
    def percent(self) -> str:
        """The confidence that was asked for."""
        return percent_text(self.confidence_level, 4)

    @property
    def range(self) -> tuple[float, float]:
        """Beyond every interval of a difference."""
        ends = [end for pair in self.pairs for end in pair.comparison.confidence_interval]
        return min(ends) - 1.0, max(ends) + 1.0

    def p_value(self, pair: Pair) -> float:
        """Of no difference; where all are to hold at once, times their number."""
        return min(1.0, pair.comparison.p_value * (len(self.pairs) if self.simultaneous else 1))

    def lines(self) -> list[Line]:
        """The rows of the table."""
        lines = []
        for pair in self.pairs:
            name, one = f"{pair.first} − {pair.second}", pair.comparison
            shown, ends = one.difference_shown, " … ".join(one.ends_shown)
            p_value = p_value_text(self.p_value(pair)) if shown else "–"
            place = one.difference if shown else math.nan
            lines.append(Line(name, None, shown, ends, place, one.confidence_interval, p_value=p_value))
        return lines

    def tables(self) -> list[Table]:
        """The one table."""
        heads = ("difference of", "estimate", f"{self.percent} interval", "p-value")
        low, high = drawn_range(lines := self.lines(), self.range)
        kind = "all together" if self.simultaneous else "each"
        axis = f"difference in {self.value}, {self.percent} intervals ({kind})"
        return [Table(self.title, heads, lines, (min(low, 0.0), max(high, 0.0)), axis, rule=0.0)]

    def notes(self) -> list[str]:
        """What a reader must know to read the table."""
        percent, count = self.percent, len(self.pairs)
        if count == 1:
            first = f"The interval holds with {percent} confidence."
        elif self.simultaneous:
            first = (
                f"All {count} intervals hold together with {percent} confidence: each is taken with a part of 1 in "
                f"{count} of the error, and p-values are multiplied by {count}."
            )
        else:
            first = (
                f"Each interval holds by itself with {percent} confidence. Of {count} differences some look real by "
                "chance: simultaneous intervals allow for that."
            )
        rules = dict.fromkeys(pair.comparison.rule.replace("This interval", "Each interval") for pair in self.pairs)
        checked = (
            "Every record is in one group only."
            if self.groups_of_one_file
            else "That no person is in two runs is the user's statement; it was not checked."
        )
        return [*self._not_relied_on(), first, *rules, checked]

    def _not_relied_on(self) -> list[str]:
        """Of every run that gives no difference, why; in few words where its quantile was not located."""
        results = {
            name: result
            for pair in self.pairs
            for name, result in ((pair.first, pair.comparison.first), (pair.second, pair.comparison.second))
            if not result.reliable
        }
        reasons = {
            name: result.shown.act[0].text.rstrip(".") if result.located else result.headline
            for name, result in results.items()
        }
        return [f"{name}: {why}. Differences from it are not to be relied on." for name, why in reasons.items()]

    def to_text(self) -> str:
        """The table and what it means."""
        (table,) = self.tables()
        rows = [line.cells for line in table.lines]
        each = max(MIN_NAME, (width_left([table.heads, *rows]) - 3) // 2)
        names = [f"{cut_name(pair.first, each)} − {cut_name(pair.second, each)}" for pair in self.pairs]
        lines = [(name, *cells) for name, (_, *cells) in zip(names, rows, strict=True)]
        notes = ["\n".join(folded(note, WIDTH)) for note in self.notes()]
        return disarmed("\n\n".join(["\n".join([self.title, "", *fixed_columns([table.heads, *lines])]), *notes]))

    def to_dict(self) -> dict[str, Any]:
        """The document that `--json` prints, as plain values: `docs/result.schema.json`."""
        return document(
            "comparisons",
            all(pair.comparison.reliable for pair in self.pairs),
            column=self.value,
            confidence_level=self.confidence_level,
            simultaneous=self.simultaneous,
            differences=[
                {
                    "first": pair.first,
                    "second": pair.second,
                    **pair.comparison.facts(),
                    "p_value": self.p_value(pair),
                    "reliable": pair.comparison.reliable,
                    "rule": pair.comparison.rule,
                }
                for pair in self.pairs
            ],
            notes=self.notes(),
        )


def one_pair(names: Sequence[str], comparison: Comparison, value: str) -> Comparisons:
    """One comparison as a table, in the order in which its runs were named."""
    first, second = names
    level = comparison.first.level
    pair = Pair(first, second, comparison)
    return Comparisons((first, second), value, level_name(level), (pair,), comparison.confidence_level, False)


def compare_all(
    groups: GroupResults,
    *,
    disjoint: bool,
    level_index: int = 0,
    confidence_level: float = 0.95,
    simultaneous: bool = False,
) -> Comparisons:
    """Compare all pairs of groups, or of runs that share no person, which `disjoint=True` states.

    Groups without a result are left out.
    """
    every = [(group.name, group.results[level_index]) for group in groups if group.results]
    found = [(name, result) for name, result in every if result is not None]
    if len(found) < 2:
        raise InputError(f"a comparison needs two results; {len(found)} of the {len(groups)} runs have one.")
    if len(found) > MAX_RUNS:
        raise InputError(f"all pairs of at most {MAX_RUNS} runs are compared; got {len(found)}. Name fewer.")
    found.sort(key=lambda one: (not one[1].reliable, -one[1].estimate))
    count = math.comb(len(found), 2)
    each = 1.0 - (1.0 - confidence_level) / count if simultaneous else confidence_level
    pairs = [
        Pair(first, second, compare(one, other, disjoint=disjoint or bool(groups.by), confidence_level=each))
        for (first, one), (second, other) in combinations(found, 2)
    ]
    pairs.sort(key=lambda pair: (not pair.comparison.reliable, -pair.comparison.difference))
    return Comparisons(
        names=tuple(name for name, _ in found),
        value=groups.value,
        level_name=groups.level_name(level_index),
        pairs=tuple(pairs),
        confidence_level=confidence_level,
        simultaneous=simultaneous,
        groups_of_one_file=bool(groups.by),
    )
