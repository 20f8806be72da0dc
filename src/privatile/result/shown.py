"""What a reader sees of a result: every number with the digits it deserves, every condition, in one place.

`shown_of` computes it once per result, `QuantileResult.shown` keeps it; text, HTML, pages, dashboard, status and
surveys take it from there. `rows_of` gives the facts of a result, one row each: a key and a value for programs, a label
and a text for people. Ends of intervals are rounded outward.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from privatile.core.kinds import declaration
from privatile.core.text import PartWords, percent_text
from privatile.estimator.clients import Client, pooled_noise
from privatile.estimator.plan import Plan, RoundState, local_ranks
from privatile.inference.any_shape import Grid
from privatile.laws.ratio import two_sided_z
from privatile.result.caveats import Caveat, to_act_on_and_rest

if TYPE_CHECKING:
    from privatile.result.result import QuantileResult


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


def client_facts(
    plan: Plan, state: RoundState, confidence_level: float, *, by_holder: bool = False
) -> tuple[ClientFacts, ...]:
    """The facts of every client after any round; of weighted records, of every weight class.

    `by_holder`: those of every client whose weight classes they are. Together they count, pay and could lie.
    """
    rows: dict[str, list[tuple[Client, int, float, int]]] = {}
    for row in zip(plan.clients, state.asked, local_ranks(state, plan), state.window_asked, strict=True):
        rows.setdefault(row[0].held_by if by_holder else row[0].name, []).append(row)
    pooled = pooled_noise(plan.clients)
    return tuple(_facts(name, own, plan.level, pooled, confidence_level) for name, own in rows.items())


def _facts(
    name: str, parts: Sequence[tuple[Client, int, float, int]], level: float, pooled: float, confidence_level: float
) -> ClientFacts:
    """The facts of one client: `parts` are its weight classes with their records asked, ranks and answers."""
    client = parts[0][0]
    weight = math.fsum(each.weight for each, *_ in parts)
    shares = [each.weight / weight for each, *_ in parts]
    rank = math.fsum(share * own for share, (_, _, own, _) in zip(shares, parts, strict=True))
    interval = (math.nan, math.nan)
    if all(answered for *_, answered in parts):
        # The noise of the client's own answers, and that of the estimate they were asked about. The second is taken at
        # the mixture's slope; a client with a much steeper distribution there has more.
        noise = math.fsum(
            share**2 * float(each.mechanism.variance(min(max(own, 0.0), 1.0))) / answered
            for share, (each, _, own, answered) in zip(shares, parts, strict=True)
        )
        reach = two_sided_z(confidence_level) * math.sqrt(noise + pooled)
        interval = max(0.0, rank - reach), min(1.0, rank + reach)
    return ClientFacts(
        name=name,
        records=sum(each.records for each, *_ in parts),
        asked=sum(asked for _, asked, *_ in parts),
        epsilon=client.mechanism.epsilon,
        truth_rate=client.mechanism.truth_rate,
        weight=weight,
        level=client.level,
        local_rank=rank,
        lying_rank=lying_rank(replace(client, weight=weight), level),
        local_rank_interval=interval,
    )


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


Condition = Literal["any-shape", "smooth"]

CONDITIONS: dict[Condition, str] = {
    "any-shape": "whatever the distribution",
    "smooth": "if the values are continuous and their distribution is smooth around the quantile",
}
"""When an interval holds, in words."""

NAMED_LEVELS = {0.25: "lower quartile", 0.5: "median", 0.75: "upper quartile"}


def level_name(level: float) -> str:
    """A level in words.

    >>> level_name(0.5), level_name(0.9)
    ('median', '0.9 quantile')
    """
    return NAMED_LEVELS.get(level, f"{level:g} quantile")


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


@dataclass(frozen=True)
class ShownInterval:
    """One interval of a result as it is read."""

    low: float
    high: float
    ends: tuple[str, str]
    """The first and the last value that a declared grid leaves; without one, `rounded`."""
    rounded: tuple[str, str]
    """Both ends, rounded outward; an end of the stated range as it is, and no other end as one of these."""
    drawn: tuple[float, float]
    """The ends as numbers: those of a declared grid, or the interval's own."""
    text: str
    """As tables have it; one or two values of a grid are listed, and a quantile beyond the range is in no interval."""
    estimate: str
    """The estimate with the digits that this interval deserves, and as many as keep it inside."""
    condition: str
    """In words, when it holds as it is shown."""
    condition_code: Condition | Literal["grid", ""]
    width: float
    """Decides how many digits are shown: twice the bounded side's width where the other side is open."""


@dataclass(frozen=True)
class Shown:
    """A result as it is read: every number and condition, computed once."""

    kind: str
    """What stands first on a page, one of `HEADLINES`."""
    number: str
    """The number in it; empty where it has none."""
    headline: str
    percent: str
    own: ShownInterval
    """The run's own interval; while the run is unfinished it may hold at the planned end only."""
    anytime: ShownInterval | None
    other: ShownInterval | None
    first: ShownInterval
    """The one that stands first: while the run is unfinished the anytime one, if there is one, and else `own`."""
    values_left: str
    """The values that a declared grid leaves of the first interval, if they are shown; else empty."""
    undeclared: str
    """Then `own` without the declaration, and when it holds; else empty."""
    listed: str
    """The first interval where there is room: up to `LISTED` values of a grid are listed."""
    sentence: str
    act: tuple[Caveat, ...]
    """What a reader must act on before anything else."""
    rest: tuple[Caveat, ...]
    """All other caveats that are no standing remarks."""

    @property
    def is_so_far(self) -> bool:
        """Whether the interval of an unfinished run stands first."""
        return self.first is self.anytime

    @property
    def first_name(self) -> str:
        """What the interval that stands first is called."""
        return "anytime interval" if self.is_so_far else "interval"


def shown_of(result: "QuantileResult") -> Shown:
    """Everything that a reader sees of a result."""
    codes = {one.code for one in result.caveats}
    own = _interval(result, result.confidence_interval, result.condition)
    anytime = None if result.anytime is None else _interval(result, result.anytime, result.anytime_condition)
    other = None if result.other is None else _interval(result, result.other.interval, result.other.condition)
    if other is not None and result.other is not None and result.other.at_planned_end:
        other = replace(other, condition=f"{other.condition}, at the planned end only")
    kind, number = _headline(result, codes, own, anytime if "unfinished" in codes and anytime else own)
    headline = HEADLINES[kind].format(number)
    own = replace(own, text=_table_text(result, own, headline))
    anytime = None if anytime is None else replace(anytime, text=_table_text(result, anytime, headline))
    first = anytime if "unfinished" in codes and anytime is not None else own
    declared = first.condition_code == "grid"
    left = grid_text(result.grid_values) if declared and result.located else ""
    listed = left if (first.low, first.high) == (own.low, own.high) and len(result.grid_values or ()) <= LISTED else ""
    act, rest = to_act_on_and_rest(result.caveats)
    percent = percent_text(result.confidence_level)
    return Shown(
        kind=kind,
        number=number,
        headline=headline,
        percent=percent,
        own=own,
        anytime=anytime,
        other=other,
        first=first,
        values_left=left,
        undeclared=undeclared_text(result, own) if declared else "",
        listed=listed or first.text,
        sentence=_sentence(result, codes, percent, own, first),
        act=tuple(act),
        rest=tuple(rest),
    )


def undeclared_text(result: "QuantileResult", own: ShownInterval) -> str:
    """The interval without what was declared, and when it holds."""
    return f"{' … '.join(own.rounded)}, {CONDITIONS[result.condition]}"


def _interval(result: "QuantileResult", interval: tuple[float, float], code: Condition | None) -> ShownInterval:
    """One interval of a result. A declared grid speaks of the result's own one, or of any that holds at every look."""
    low, high = interval
    open_low, open_high = low <= result.scale.low, high >= result.scale.high
    width = high - low
    if open_low != open_high:
        width = 2.0 * ((high - result.estimate) if open_low else (result.estimate - low)) or width
    limits = (result.scale.low, result.scale.high)
    rounded = outward(low, width, up=False, limits=limits), outward(high, width, up=True, limits=limits)
    ends, drawn, condition = rounded, (low, high), CONDITIONS[code] if code else ""
    shown_code: Condition | Literal["grid", ""] = code or ""
    if result.grid_values and (interval == result.confidence_interval or result.valid_at_every_look):
        declared = declaration(result.value_kind)
        grid = Grid(declared.step or 1.0)
        first, last = grid.ends(*grid.inside(low, high, *limits))
        if math.isfinite(last - first):
            ends, drawn = (plain(first), plain(last)), (first, last)
            condition, shown_code = f"if every value is {declared.grid_in_words}", "grid"
    estimate = plain(result.estimate) if result.grid_values else nearest_inside(result.estimate, ends, width, limits)
    text = " … ".join(ends)
    return ShownInterval(low, high, ends, rounded, drawn, text, estimate, condition, shown_code, width)


def _table_text(result: "QuantileResult", one: ShownInterval, headline: str) -> str:
    """An interval in a table: one or two values of a grid are listed; a quantile beyond the range is in none."""
    if one.low == one.high in (result.scale.low, result.scale.high) and not result.located:
        return headline
    few = result.grid_values and len(result.grid_values) <= 2 and (one.low, one.high) == result.confidence_interval
    return grid_text(result.grid_values) if few else one.text


def _headline(result: "QuantileResult", known: set[str], own: ShownInterval, first: ShownInterval) -> tuple[str, str]:
    """What stands first on a page: one of `HEADLINES`, and the number in it, empty where it has none.

    A number that is not to be relied on is not printed large.
    """
    at_low, at_high = own.low <= result.scale.low, own.high >= result.scale.high
    any_shape = result.condition == "any-shape"
    if "range" in known and any_shape and own.low == own.high in (result.scale.low, result.scale.high):
        return ("or_less", plain(own.low)) if at_low else ("above", plain(own.high))
    if "range" in known and not (any_shape and at_low != at_high):
        return "beyond", ""
    if known & {"range", "half-open"} and "unbounded" not in known:
        return ("or_less", own.ends[1]) if at_low else ("or_more", own.ends[0])
    return ("estimate", first.estimate) if result.located else ("not_located", "")


def _sentence(result: "QuantileResult", known: set[str], percent: str, own: ShownInterval, shown: ShownInterval) -> str:
    """What was estimated, the answer, its confidence and its condition; or, first, why there is no answer."""
    what, (first, last), stated = result.estimand, own.ends, (result.scale.low, result.scale.high)
    whole = " (the whole stated range)" if (own.low, own.high) == stated else ""
    if "range" in known and "unbounded" not in known and result.condition == "any-shape":
        if own.low == own.high == stated[1]:
            sure = f"with {percent} confidence, {CONDITIONS[result.condition]}"
            return f"{what} lies above the stated range, which ends at {last}, {sure}."
        end, beyond = ("lower", "below") if own.low == stated[0] else ("upper", "above")
        is_end = own.low == own.high
        where = f"is {first}, the {end} end" if is_end else f"lies between {first} and {last}, at the {end} end"
        return f"{what} {where} of the stated range, or {beyond} it, with {percent} confidence, {own.condition}."
    if "range" in known:
        return (
            f"{what} probably lies outside the stated range: the answers point to its end, {own.estimate}. The "
            f"{percent} interval, {first} to {last}{whole}, is not to be relied on."
        )
    if "unbounded" in known:
        sure = f"with {percent} confidence it lies anywhere from {first} to {last}{whole}"
        return f"{what} is not located by these answers: {sure}."
    if "half-open" in known:
        bound, side = (f"{last} or less", "below") if own.low <= stated[0] else (f"{first} or more", "above")
        return (
            f"{what} is {bound} with {percent} confidence, {own.condition}; these answers do not bound it from {side}."
        )
    if "not-located" in known:
        return (
            f"{what} was not located: the search had not settled when it ended, so the {percent} interval, {first} to "
            f"{last}, is not to be relied on."
        )
    if shown is not own:
        return (
            f"{what} is estimated at {shown.estimate} so far; the {percent} interval valid at any time runs from "
            f"{shown.ends[0]} to {shown.ends[1]}, {shown.condition}."
        )
    if "unfinished" in known:
        return f"{what} is estimated at {own.estimate} so far; no interval is valid before the planned end yet."
    few = result.grid_values and len(result.grid_values) <= LISTED
    runs = f"is {grid_text(result.grid_values)}" if few else f"runs from {first} to {last}"
    end = f", {own.condition}" if result.reliable else ", and is not to be relied on"
    return f"{what} is estimated at {own.estimate}; the {percent} interval {runs}{end}."


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
    shown = result.shown
    first = result.rounds - result.averaged_rounds
    rounds = f"{result.rounds:,}" + (f", the first {first:,} of them to find the place" if first else "")
    if result.method.startswith("self-normalized"):  # only this estimate is an average of the others
        rounds += f"; the last {result.averaged_rounds:,} are averaged" if first else ", all of them averaged"
    return [
        Row("estimand", "what", result.estimand, result.estimand),
        Row("estimate", "estimate", result.estimate if result.located else None, shown.headline),
        *_interval_rows(result, shown),
        Row("confidence_level", "confidence level", result.confidence_level, shown.percent),
        Row("method", "interval method", result.method, result.method),
        Row("target", "target", result.target, TARGETS[result.target]),
        Row("records", "records asked", result.records, f"{result.records:,}, each once in this run"),
        Row("rounds", "rounds", result.rounds, rounds),
        Row("averaged_rounds", "averaged rounds", result.averaged_rounds, f"{result.averaged_rounds:,}"),
        Row("design", "design", result.design, f"{result.design}, {result.mode} mode"),
        Row("mode", "mode", result.mode, result.mode),
        Row("missing", "missing values", result.missing, MISSING[result.missing]),
        *_anytime_rows(shown.anytime, result.anytime_condition),
        *result.diagnostics,
        Row("level", "level", result.level, f"{result.level:g}"),
        Row("epsilon", "largest ε, this run", finite(result.epsilon), epsilon_text(result.epsilon)),
        Row("run", "run", result.run, result.run),
        Row("simulated", "simulated", result.simulated, "yes: seeded, on made-up data" if result.simulated else "no"),
    ]


def _interval_rows(result: "QuantileResult", shown: Shown) -> list[Row]:
    """The interval, the values of a declared grid before it; the other reading, and what the answers contradict."""
    own, other, condition = shown.own, result.other, CONDITIONS[result.condition]
    ends, name = {"low": own.low, "high": own.high}, f"{shown.percent} interval"
    rows = [
        Row("confidence_interval", name, ends, f"{own.text}, {condition}"),
        Row("grid_values", "values left", None, ""),
    ]
    if result.grid_values:
        left = grid_text(result.grid_values) if result.located else own.text
        rows = [
            Row("grid_values", name, list(result.grid_values), f"{left}, {own.condition}"),
            Row("confidence_interval", "if it is not so", ends, undeclared_text(result, own)),
        ]
    text, facts = "none", None
    if other is not None and shown.other is not None:
        text = f"{shown.other.text} ({other.method}), {shown.other.condition}; {other.how}"
        facts = {"low": other.interval.low, "high": other.interval.high, "method": other.method}
        facts |= {"condition": shown.other.condition, "how": other.how}
    return [
        *rows,
        Row("condition", "it holds", condition, condition),
        Row("other_interval", f"other {name}", facts, text),
        Row("contradiction", "beside it", result.contradiction, result.contradiction),
        Row("value_kind", "values declared", result.value_kind, result.value_kind),
    ]


def _anytime_rows(anytime: ShownInterval | None, condition: Condition | None) -> list[Row]:
    if anytime is None or condition is None:
        return []
    text = f"{' … '.join(anytime.rounded)}, however often it is looked at, {CONDITIONS[condition]}"
    return [Row("anytime_interval", "anytime interval", {"low": anytime.low, "high": anytime.high}, text)]


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
    if declaration(result.value_kind).step is not None and not result.method.startswith("smooth"):
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
