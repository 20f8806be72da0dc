"""All differences of many runs of different people: each as `compare` gives it, in one table.

Differences to hold all at once share a run, so they depend on each other: each of m is taken with the m-th part of the
error (Bonferroni), 1 − (1 − c)/m, and p-values are multiplied by m, which is the same rule read backwards.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

from privatile import __version__
from privatile.core.words import disarmed
from privatile.errors import InputError
from privatile.result.compare import Comparison, compare
from privatile.result.document import SCHEMA_VERSION
from privatile.result.group_lines import SHORTEST_NAME, Line, cut_name
from privatile.result.groups import GroupResults, level_name
from privatile.result.layout import WIDTH, fixed_columns, folded
from privatile.result.number_words import p_value_text
from privatile.result.result import QuantileResult
from privatile.result.severity import to_act_on_and_rest

MOST_RUNS = 30
"""Runs of which all pairs are compared: 435 differences. Nobody reads more."""


class Pair(NamedTuple):
    """One difference: of whom, and the comparison."""

    first: str
    second: str
    comparison: Comparison


@dataclass(frozen=True)
class Comparisons:
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
            one = pair.comparison
            shown = one.difference_shown
            lines.append(
                Line(
                    f"{pair.first} − {pair.second}",
                    0,
                    shown or "–",
                    " … ".join(one.ends_shown),
                    one.difference if shown else math.nan,
                    one.confidence_interval,
                    p_value_text(self.p_value(pair)) if shown else "–",
                )
            )
        return lines

    def notes(self) -> list[str]:
        """What a reader must know to read the table."""
        percent, count = f"{100 * self.confidence_level:.4g}%", len(self.pairs)
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
            name: to_act_on_and_rest(result.caveats)[0][0].text.rstrip(".") if result.located else result.headline
            for name, result in results.items()
        }
        return [f"{name}: {why}. Differences from it are not to be relied on." for name, why in reasons.items()]

    def to_text(self) -> str:
        """The table and what it means."""
        lines = self.lines()
        heads = ("difference of", "estimate", f"{100 * self.confidence_level:.4g}% interval", "p-value")
        cells = [(line.name, line.estimate, line.interval, line.why) for line in lines]
        others = sum(max(map(len, column)) + 2 for column in list(zip(heads, *cells, strict=True))[1:])
        each = max(SHORTEST_NAME, (WIDTH - others - 3) // 2)
        names = [f"{cut_name(pair.first, each)} − {cut_name(pair.second, each)}" for pair in self.pairs]
        cells = [(name, *row[1:]) for name, row in zip(names, cells, strict=True)]
        notes = ["\n".join(folded(note, WIDTH)) for note in self.notes()]
        return disarmed("\n\n".join(["\n".join([self.title, "", *fixed_columns([heads, *cells])]), *notes]))

    def to_dict(self) -> dict[str, Any]:
        """The document that `--json` prints, as plain values: `docs/result.schema.json`."""
        return {
            "kind": "privatile comparisons",
            "schema_version": SCHEMA_VERSION,
            "privatile": __version__,
            "reliable": all(pair.comparison.reliable for pair in self.pairs),
            "column": self.value,
            "confidence_level": self.confidence_level,
            "simultaneous": self.simultaneous,
            "differences": [
                {
                    "first": pair.first,
                    "second": pair.second,
                    "difference": pair.comparison.difference_told,
                    "confidence_interval": dict(zip(("low", "high"), pair.comparison.confidence_interval, strict=True)),
                    "p_value": self.p_value(pair),
                    "reliable": pair.comparison.reliable,
                    "rule": pair.comparison.rule,
                }
                for pair in self.pairs
            ],
            "notes": self.notes(),
        }

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)


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
    found = [(group.name, result) for group in groups if (result := _result(group.results, level_index)) is not None]
    if len(found) < 2:
        raise InputError(f"a comparison needs two results; {len(found)} of the {len(groups)} runs have one.")
    if len(found) > MOST_RUNS:
        raise InputError(f"all pairs of at most {MOST_RUNS} runs are compared; got {len(found)}. Name fewer.")
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


def _result(results: Sequence[QuantileResult | None], level_index: int) -> QuantileResult | None:
    return results[level_index] if results else None
