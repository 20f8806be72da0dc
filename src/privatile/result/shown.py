"""What a reader sees of a result: numbers with the digits they deserve, the sentence, one row per fact.

What the clients of a run are called where people read: clients, or the strata of a survey.

Numbers as people read them: as many digits as an interval deserves, its ends rounded outward.

What one client gave and paid, how far its records lie below the estimate, and what a lie of it could do.

A result in one sentence, and the words for when its interval holds.

The facts of a result, one row each: a key for programs, a label and a text for people.

One list of rows feeds the text, the HTML and the JSON.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from privatile.estimator.clients import Client, pooled_noise
from privatile.estimator.plan import Plan, RoundState, local_ranks
from privatile.estimator.settings import parse_values
from privatile.laws.ratio import two_sided_z

if TYPE_CHECKING:
    from privatile.result.result import QuantileResult


STRATA = "strata"
"""The weighting of a survey's run: every client is a stratum, with the weight that its study gives."""


class PartWords(NamedTuple):
    """One of the parts whose mixture is estimated, and several."""

    one: str
    many: str


CLIENTS = PartWords("client", "clients")


def parts_of(weighting: str) -> PartWords:
    """The words for the clients of a run with this weighting; fields of formats keep their names.

    >>> parts_of("size").many, parts_of(STRATA).many
    ('clients', 'strata')
    """
    return PartWords("stratum", "strata") if weighting == STRATA else CLIENTS


SMALLEST_WIDTH = 1e-300
"""Stands for no width at all: the number then gets all the digits that it deserves by itself."""


def significant(value: float, width: float) -> str:
    """A number with as many digits as its interval deserves: two of the width.

    >>> significant(49512.3456, 812.0), significant(0.123456, 0.02), significant(3.0, 0.0)
    ('49,510', '0.123', '3')
    """
    if not math.isfinite(value):
        return str(value)
    if not (math.isfinite(width) and width > 0):
        return f"{value:,.10g}"
    digits = digits_shown(value, width)
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def digits_shown(value: float, width: float) -> int:
    """Decimals that a value deserves: two digits of the width, and no more than nine of the value.

    >>> digits_shown(60.0, 8e-10), digits_shown(49_512.0, 812.0)
    (7, -1)
    """
    largest = 8 - math.floor(math.log10(abs(value))) if value else 12
    return min(1 - math.floor(math.log10(width)), largest)


def outward(value: float, width: float, *, up: bool, limits: tuple[float, float] = (-math.inf, math.inf)) -> str:
    """An end of an interval, rounded away from the inside: what is shown is never narrower than what holds.

    `limits` are the ends of the stated range. An end that is one of them is shown as it is. Every other end gets as
    many digits as show it inside: a reader takes the end of the range for "the answers say nothing here".

    >>> outward(47_934.0, 2_456.0, up=False), outward(50_301.0, 2_456.0, up=True), significant(50_301.0, 2_456.0)
    ('47,900', '50,400', '50,300')
    >>> wide = {"width": 998_740.0, "limits": (1_000.0, 1_000_000.0)}
    >>> outward(1_260.0, up=False, **wide), outward(1_000.0, up=False, **wide), outward(999_990.0, up=True, **wide)
    ('1,200', '1,000', '999,990')
    """
    if not (math.isfinite(value) and math.isfinite(width)):
        return significant(value, width)
    if value in limits or (width <= 0.0 and float(f"{value:.10g}") == value):
        return plain(value)
    digits, most = digits_shown(value, max(width, SMALLEST_WIDTH)), digits_shown(value, SMALLEST_WIDTH)
    rounded = outward_to(value, digits, up=up)
    while not limits[0] < rounded < limits[1]:
        if digits >= most:
            return plain(limits[up])
        digits += 1
        rounded = outward_to(value, digits, up=up)
    return f"{rounded:,.{max(digits, 0)}f}"


def outward_to(value: float, digits: int, *, up: bool) -> float:
    """A number rounded up or down to so many decimals.

    >>> outward_to(0.1234, 3, up=False), outward_to(0.1234, 3, up=True), outward_to(0.123, 3, up=True)
    (0.123, 0.124, 0.123)
    """
    rounded = round(value, digits) if math.isfinite(value) else value
    if rounded < value if up else rounded > value:
        rounded = round(rounded + (1 if up else -1) * 10.0**-digits, digits)
    return rounded


def nearest_inside(value: float, ends: tuple[str, str], width: float, limits: tuple[float, float]) -> str:
    """An estimate with the digits that an interval of this width deserves.

    It gets more where it would leave the interval, whose ends are given as they are shown, or where it would look like
    an end of the stated range (`limits`).

    >>> nearest_inside(49_512.3, ("49,100", "49,900"), 812.0, (0.0, 1e6))
    '49,510'
    >>> nearest_inside(1_400.0, ("1,000", "900,000"), 899_000.0, (1_000.0, 1e6))
    '1,400'
    """
    if value in limits or not (math.isfinite(value) and math.isfinite(width) and width > 0.0):
        return plain(value)
    low, high = (float(end.replace(",", "")) for end in ends)
    digits, most = digits_shown(value, width), digits_shown(value, SMALLEST_WIDTH)
    while digits < most:
        rounded = round(value, digits)
        if low <= rounded <= high and limits[0] < rounded < limits[1]:
            break
        digits += 1
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def plain(value: float) -> str:
    """A number as it was given: all of its digits, none more.

    >>> plain(1_000_000.0), plain(0.1), plain(1_234_567.891234)
    ('1,000,000', '0.1', '1,234,567.891234')
    """
    text = f"{value:,.15g}"
    return text if not math.isfinite(value) or float(text.replace(",", "")) == value else f"{value:,.17g}"


def finite(value: float) -> float | None:
    """JSON has no infinity: nothing stands for it."""
    return value if math.isfinite(value) else None


def epsilon_text(value: float) -> str:
    """ε for people."""
    return f"{value:.4g}" if math.isfinite(value) else "∞ (not private)"


def p_value_text(value: float) -> str:
    """A p-value for people: four decimals, and no more.

    >>> p_value_text(0.01234), p_value_text(1e-9), p_value_text(1.0)
    ('p = 0.0123', 'p < 0.0001', 'p = 1')
    """
    return "p < 0.0001" if value < 1e-4 else f"p = {value:.4f}" if value < 0.99995 else "p = 1"


def share_text(value: float) -> str:
    """A share that noisy answers give: for few of them it may lie outside 0 to 1, and is then one of these.

    >>> share_text(0.51234), share_text(-0.013), share_text(1.2), share_text(math.nan)
    ('0.512', 'about 0', 'about 1', 'not known')
    """
    if math.isnan(value):
        return "not known"
    return f"{value:.3f}" if 0.0 <= value <= 1.0 else "about 0" if value < 0.0 else "about 1"


def rank_text(value: float) -> str:
    """A bound of a shift in rank for people, rounded up."""
    return f"±{outward_to(value, 3, up=True):.3f} in rank" if math.isfinite(value) else "no bound"


@dataclass(frozen=True)
class ClientFacts:
    """What one client gave and paid."""

    name: str
    records: int
    asked: int
    epsilon: float
    truth_rate: float
    weight: float
    level: float
    local_rank: float
    lying_rank: float
    """How far, in rank, a lying client could push the estimate among the honest ones; ∞: no bound."""
    local_rank_interval: tuple[float, float] = (math.nan, math.nan)
    """Of its share below the quantile, at the result's confidence."""


def client_facts(plan: Plan, state: RoundState, confidence_level: float) -> tuple[ClientFacts, ...]:
    """The facts of every client after any round; of weighted records, of every weight class."""
    pooled = pooled_noise(plan.clients)
    rows = zip(plan.clients, state.asked, local_ranks(state, plan), state.window_asked, strict=True)
    return tuple(
        ClientFacts(
            name=client.name,
            records=client.records,
            asked=asked,
            epsilon=client.mechanism.epsilon,
            truth_rate=client.mechanism.truth_rate,
            weight=client.weight,
            level=client.level,
            local_rank=rank,
            lying_rank=lying_rank(client, plan.level),
            local_rank_interval=rank_interval(client, rank, answered, pooled, confidence_level),
        )
        for client, asked, rank, answered in rows
    )


def by_holder(
    plan: Plan, state: RoundState, confidence_level: float, classes: tuple[ClientFacts, ...]
) -> tuple[ClientFacts, ...]:
    """The facts of every client whose weight `classes` these are: together they count, pay and could lie."""
    pooled, z = pooled_noise(plan.clients), two_sided_z(confidence_level)
    rows = list(zip(plan.clients, classes, state.window_asked, strict=True))
    found = []
    for holder in dict.fromkeys(client.held_by for client in plan.clients):
        own = [row for row in rows if row[0].held_by == holder]
        (first, facts, _), parts = own[0], [each for _, each, _ in own]
        weight = math.fsum(each.weight for each in parts)
        rank = math.fsum(each.weight * each.local_rank for each in parts) / weight
        interval = (math.nan, math.nan)
        if all(answered for *_, answered in own):
            noise = math.fsum(
                (each.weight / weight) ** 2 * _rank_variance(client, each.local_rank, answered)
                for client, each, answered in own
            )
            error = math.sqrt(noise + pooled)
            interval = max(0.0, rank - z * error), min(1.0, rank + z * error)
        found.append(
            replace(
                facts,
                name=holder,
                records=sum(each.records for each in parts),
                asked=sum(each.asked for each in parts),
                weight=weight,
                local_rank=rank,
                lying_rank=lying_rank(replace(first, weight=weight), plan.level),
                local_rank_interval=interval,
            )
        )
    return tuple(found)


def _rank_variance(client: Client, rank: float, answered: int) -> float:
    """The noise of a client's own answers in its rank."""
    return float(client.mechanism.variance(min(max(rank, 0.0), 1.0))) / answered


def rank_interval(
    client: Client, rank: float, answered: int, pooled: float, confidence_level: float
) -> tuple[float, float]:
    """F_k(Q*) with its interval: the noise of the client's own answers, and that of the estimate they were asked about.

    The second is taken at the mixture's slope; a client with a much steeper distribution there has more.
    """
    if not answered:
        return math.nan, math.nan
    z = two_sided_z(confidence_level)
    error = math.sqrt(_rank_variance(client, rank, answered) + pooled)
    return max(0.0, rank - z * error), min(1.0, rank + z * error)


def lying_rank(client: Client, level: float) -> float:
    """How far a lying client can push the rank of the estimate among the honest: p·max(a, b)/(1 − p).

    ∞ when that leaves (0, 1): then nothing bounds it.

    >>> from privatile.core.mechanism import RandomizedResponse
    >>> round(lying_rank(Client("a", RandomizedResponse(0.5), 0.1, 0.5, 100), 0.5), 4)
    0.1111
    """
    if client.weight >= 1.0:
        return math.inf
    push = client.weight * max(client.mechanism.rise(level), client.mechanism.fall(level)) / (1.0 - client.weight)
    return push if push < min(level, 1.0 - level) else math.inf


ANY_SHAPE = "whatever the distribution"
SMOOTH = "if the values are continuous and their distribution is smooth around the quantile"
"""When an interval holds, in words."""

LISTED = 5
"""Values of a declared grid that are listed one by one."""


HEADLINES = {
    "estimate": "{}",
    "or_less": "{} or less",
    "or_more": "{} or more",
    "above": "above {}",
    "beyond": "at or beyond an end of the range",
    "not_located": "not located",
}
"""What can stand first on a page, around its number; pages in other languages have words of their own."""


def headline_parts(result: "QuantileResult") -> tuple[str, str]:
    """What stands first on a page: one of `HEADLINES`, and the number in it, empty where it has none.

    A number that is not to be relied on is not printed large.
    """
    low, high = result.confidence_interval
    known, lost = {caveat.code for caveat in result.caveats}, (result.scale.low, result.scale.high)
    if "range" in known and result.condition == ANY_SHAPE and low == high in lost:
        return ("or_less", plain(low)) if low == lost[0] else ("above", plain(high))
    one_side = result.condition == ANY_SHAPE and (low <= lost[0]) != (high >= lost[1])
    if "range" in known and not one_side:
        return "beyond", ""
    if known & {"range", "half-open"} and "unbounded" not in known:
        first, last = result.ends_shown(result.confidence_interval)
        return ("or_less", last) if low <= lost[0] else ("or_more", first)
    if not result.located:
        return "not_located", ""
    return "estimate", result.estimate_shown(result.first_interval)


def headline_of(result: "QuantileResult") -> str:
    """What stands first on a page: the estimate, or in a few words why there is none."""
    kind, number = headline_parts(result)
    return HEADLINES[kind].format(number)


def sentence_of(result: "QuantileResult") -> str:
    """What was estimated, the answer, its confidence and its condition; or, first, why there is no answer."""
    what, low, high = result.estimand, *result.confidence_interval
    percent = f"{100 * result.confidence_level:g}%"
    shown = result.estimate_shown(result.confidence_interval)
    first, last = result.ends_shown(result.confidence_interval)
    known, condition = {caveat.code for caveat in result.caveats}, result.condition_shown
    whole = " (the whole stated range)" if (low, high) == (result.scale.low, result.scale.high) else ""
    if "range" in known and "unbounded" not in known and result.condition == ANY_SHAPE:
        end, beyond = ("lower", "below") if low == result.scale.low else ("upper", "above")
        where = f"is {first}, the {end} end" if low == high else f"lies between {first} and {last}, at the {end} end"
        if low == high == result.scale.high:
            return f"{what} lies above the stated range, which ends at {last}, with {percent} confidence, {ANY_SHAPE}."
        return f"{what} {where} of the stated range, or {beyond} it, with {percent} confidence, {condition}."
    if "range" in known:
        return (
            f"{what} probably lies outside the stated range: the answers point to its end, {shown}. The {percent} "
            f"interval, {first} to {last}{whole}, is not to be relied on."
        )
    if "unbounded" in known:
        sure = f"with {percent} confidence it lies anywhere from {first} to {last}{whole}"
        return f"{what} is not located by these answers: {sure}."
    if "half-open" in known:
        bound, side = (f"{last} or less", "below") if low <= result.scale.low else (f"{first} or more", "above")
        needs = f"with {percent} confidence, {condition}" if condition else f"with {percent} confidence"
        return f"{what} is {bound} {needs}; these answers do not bound it from {side}."
    if "not-located" in known:
        return (
            f"{what} was not located: the search had not settled when it ended, so the {percent} interval, {first} to "
            f"{last}, is not to be relied on."
        )
    if result.interval_so_far is not None:
        shown = result.estimate_shown(result.interval_so_far)
        first, last = result.ends_shown(result.interval_so_far)
        return (
            f"{what} is estimated at {shown} so far; the {percent} interval valid at any time runs from {first} to "
            f"{last}, {result.first_condition}."
        )
    if "unfinished" in known:
        return f"{what} is estimated at {shown} so far; no interval is valid before the planned end yet."
    runs = f"runs from {first} to {last}"
    if result.grid_values and len(result.grid_values) <= LISTED:
        runs = f"is {grid_text(result.grid_values)}"
    ends = f"{what} is estimated at {shown}; the {percent} interval {runs}"
    if not result.reliable:
        return f"{ends}, and is not to be relied on."
    return f"{ends}, {condition}." if condition else f"{ends}."


def grid_text(values: Sequence[float] | None) -> str:
    """The values that a declared grid leaves: a few are listed, more are given by the first and the last.

    >>> grid_text((44.0, 45.0)), grid_text((7.0,)), grid_text(tuple(map(float, range(40, 50))))
    ('44 or 45', '7', 'one of the 10 values from 40 to 49')
    """
    words = [f"{value:,.10g}" for value in values or ()]
    if len(words) > LISTED:
        return f"one of the {len(words):,} values from {words[0]} to {words[-1]}"
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


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
        Row("value_kind", "values declared", result.value_kind, result.value_kind),
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
        "value_kind": result.value_kind == "any",
        "anytime_interval": result.valid_at_every_look,
    }
    hidden |= {key for key, nothing in empty.items() if nothing}
    hidden |= {row.key for row in result.diagnostics if row.value is None}
    if parse_values(result.value_kind).step is not None and not result.method.startswith("smooth"):
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
