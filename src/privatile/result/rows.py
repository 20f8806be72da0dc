"""The facts of a result, one row each: a key for programs, a label and a text for people.

One list of rows feeds the text, the HTML and the JSON.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from privatile.estimator.values import parse_values
from privatile.result.client_facts import ClientFacts
from privatile.result.number_words import epsilon_text, finite, outward_to, rank_text, share_text
from privatile.result.part_words import PartWords
from privatile.result.sentence import grid_text

if TYPE_CHECKING:
    from privatile.result.result import QuantileResult

TARGETS = {
    "population": "the population the records are a sample of",
    "file": "the file's own records, and no one else",
}

MISSING = {
    "noise": "answered at random, if there were any",
    "drop": "left out, if there were any; how many is not protected",
    "fail": "none: they are refused",
}
"""What became of missing values, by the option."""

OF_THE_CURVE = {"density", "bend", "misfit"}
"""What a smooth curve through the answers shows: of no use where the values are declared to be those of a grid."""


class Row(NamedTuple):
    """One fact: a key for programs, a label for people, the value and how it is shown."""

    key: str
    label: str
    value: Any
    text: str


def rows_of(result: "QuantileResult") -> list[Row]:
    """Every scalar fact, the most important first."""
    percent = f"{100 * result.confidence_level:g}%"
    return [
        Row("estimand", "what", result.estimand, result.estimand),
        Row("estimate", "estimate", result.estimate if result.located else None, result.headline),
        *_interval_rows(result, percent),
        *_reading_rows(result, percent),
        Row("confidence_level", "confidence level", result.confidence_level, percent),
        Row("method", "interval method", result.method, result.method),
        Row("target", "target", result.target, TARGETS[result.target]),
        Row("records", "records asked", result.records, f"{result.records:,}, each once in this run"),
        Row("rounds", "rounds", result.rounds, _rounds_text(result)),
        Row("averaged_rounds", "averaged rounds", result.averaged_rounds, f"{result.averaged_rounds:,}"),
        Row("design", "design", result.design, f"{result.design}, {result.mode} mode"),
        Row("mode", "mode", result.mode, result.mode),
        Row("missing", "missing values", result.missing, MISSING[result.missing]),
        *_anytime_rows(result),
        *result.diagnostics,
        Row("level", "level", result.level, f"{result.level:g}"),
        Row("epsilon", "largest ε, this run", finite(result.epsilon), epsilon_text(result.epsilon)),
        Row("run", "run", result.run, result.run),
        Row("simulated", "simulated", result.simulated, "yes: seeded, on made-up data" if result.simulated else "no"),
    ]


def _interval_rows(result: "QuantileResult", percent: str) -> list[Row]:
    """The interval; where a declared grid leaves a few values of it, these first."""
    low, high = result.confidence_interval
    shown, name = result.interval_shown(result.confidence_interval), f"{percent} interval"
    if not result.grid_values:
        condition = f", {result.condition}" if result.condition else ""
        return [
            Row("confidence_interval", name, {"low": low, "high": high}, f"{shown}{condition}"),
            Row("grid_values", "values left", None, ""),
        ]
    if result.located:
        shown = grid_text(result.grid_values)
    return [
        Row("grid_values", name, list(result.grid_values), f"{shown}, {result.condition_shown}"),
        Row("confidence_interval", "if it is not so", {"low": low, "high": high}, result.undeclared),
    ]


def _rounds_text(result: "QuantileResult") -> str:
    """How many, and what the first ones were for; only the self-normalised estimate is an average of the others."""
    first = result.rounds - result.averaged_rounds
    text = f"{result.rounds:,}" + (f", the first {first:,} of them to find the place" if first else "")
    if result.method.startswith("self-normalized"):
        text += f"; the last {result.averaged_rounds:,} are averaged" if first else ", all of them averaged"
    return text


def _reading_rows(result: "QuantileResult", percent: str) -> list[Row]:
    """What was declared, the other reading of the same answers, and what they contradict."""
    other, shown, facts = result.other, "none", None
    if other is not None:
        ends = " … ".join(result.ends_shown(other.interval))
        shown = f"{ends} ({other.method}), {other.condition}; {other.how}"
        facts = {
            "low": other.interval.low,
            "high": other.interval.high,
            "method": other.method,
            "condition": other.condition,
            "how": other.how,
        }
    return [
        Row("condition", "it holds", result.condition, result.condition),
        Row("other_interval", f"other {percent} interval", facts, shown),
        Row("contradiction", "beside it", result.contradiction, result.contradiction),
        Row("values", "values declared", result.values, result.values),
    ]


def _anytime_rows(result: "QuantileResult") -> list[Row]:
    if result.anytime is None:
        return []
    low, high = result.anytime
    ends = " … ".join(result.rounded_ends(result.anytime))
    text = f"{ends}, however often it is looked at, {result.anytime_condition}"
    return [Row("anytime_interval", "anytime interval", {"low": low, "high": high}, text)]


def shown_rows_of(result: "QuantileResult") -> list[Row]:
    """The rows that text and HTML show; the rest repeats them for programs."""
    hidden = {"confidence_level", "averaged_rounds", "mode", "level", "condition"}
    empty = {
        "simulated": not result.simulated,
        "grid_values": not result.grid_values,
        "other_interval": result.other is None,
        "contradiction": not result.contradiction,
        "values": result.values == "any",
        "anytime_interval": result.valid_at_every_look,
    }
    hidden |= {key for key, nothing in empty.items() if nothing}
    hidden |= {row.key for row in result.diagnostics if row.value is None}
    if parse_values(result.values).step is not None and not result.method.startswith("smooth"):
        hidden |= OF_THE_CURVE
    return [row for row in rows_of(result) if row.key not in hidden]


def client_rows_of(clients: Sequence[ClientFacts], parts: PartWords, *, located: bool) -> list[list[Row]]:
    """One list of rows per client, whose name stands under what it is.

    Where no estimate is shown (not `located`), no share below it is.
    """
    return [
        [
            Row("name", parts.one, client.name, client.name),
            Row("records", "records", client.records, f"{client.records:,}"),
            Row("asked", "asked", client.asked, f"{client.asked:,}"),
            Row("epsilon", "ε", finite(client.epsilon), epsilon_text(client.epsilon)),
            Row("truth_rate", "true bits", client.truth_rate, f"{(1.0 + client.truth_rate) / 2.0:.1%}"),
            Row("weight", "weight", client.weight, f"{client.weight:.4f}"),
            Row("level", "level", client.level, f"{client.level:g}"),
            Row(
                "local_rank",
                "share below",
                finite(client.local_rank),
                share_text(client.local_rank if located else math.nan),
            ),
            Row(
                "local_rank_interval",
                "interval",
                {"low": finite(client.local_rank_interval[0]), "high": finite(client.local_rank_interval[1])},
                " … ".join(
                    f"{outward_to(end, 3, up=up):.3f}"
                    for end, up in zip(client.local_rank_interval, (False, True), strict=True)
                )
                if located
                else "–",
            ),
            Row("lying_rank", "if it lied", finite(client.lying_rank), rank_text(client.lying_rank)),
        ]
        for client in clients
    ]
