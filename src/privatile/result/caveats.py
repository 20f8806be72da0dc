"""Caveats: what a careful reader of a result must know, from the run as a whole.

What the answers themselves show (drift, fit, support) is said by `diagnostics`.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from privatile.core.mechanism import WEAK_EPSILON
from privatile.core.scale import working_range
from privatile.core.text import listed
from privatile.estimator.clients import Client, pooled_noise
from privatile.estimator.open_ended import OpenPlan, open_memory
from privatile.estimator.plan import Plan, RoundState, TablePlan
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle import StraddlePlan
from privatile.estimator.tuned import AutoPlan, information, supported
from privatile.inference.inference import Inference
from privatile.result.diagnostics import cure
from privatile.result.result import Caveat, ConfidenceInterval
from privatile.result.shown import CLIENTS, PartWords, parts_of

NEAR_END = 0.01
"""An estimate this share of the working range from an end, its interval reaching it, is as good as stuck there."""

MUCH_SILENCE = 0.05
"""Share of the records; more that have not answered are something to look into before the result is used."""

PERSON = Caveat(
    "person",
    "The unit of privacy is the person: where a person has several records, one of them counts, chosen at random. So "
    "the estimand counts people, not rows.",
)
CENTRAL = Caveat(
    "central",
    "Whoever holds all the data in one place could release this quantile with far less noise under central "
    "differential privacy; local privacy is for data whose owners do not trust one holder.",
)
MISSING_CAVEATS = {
    "noise": "Missing values, if any, answered at random: a client with a share π of them counts with weight p(1 − π) "
    "instead of p.",
    "drop": "Missing values were dropped: how many are missing is not protected, and shows in the counts.",
}


def caveats(settings: ReportSettings, plan: Plan, state: RoundState, inference: Inference) -> Iterator[Caveat]:
    """What a careful reader of this result must know."""
    yield from _range_caveats(settings, plan, inference)
    yield from _arrivals(plan, state) if isinstance(plan, OpenPlan) else _silence(plan, state)
    yield from caveats_beforehand(settings, plan.clients, any_shape=inference.is_any_shape)


def _silence(plan: Plan, state: RoundState) -> Iterator[Caveat]:
    """Clients that were asked and did not answer; not those whose missed records have all been asked later."""
    missing = unanswered(plan, state)
    rows = zip(state.silent, missing, plan.clients, strict=True)
    silent = [(rounds, client.name) for rounds, lacks, client in rows if rounds and lacks]
    if silent:
        (rounds, name), lacking = max(silent), sum(missing)
        planned = sum(state.asked) + lacking
        text = (
            f"Silent clients: {len(silent)} of {len(plan.clients)}, most often {name} ({rounds:,} of {state.round:,} "
            f"rounds); {lacking:,} of the {planned:,} records planned for these rounds have not answered "
            f"({100.0 * lacking / planned:.2g}%). Weights stay as they are, and fewer answers make the interval wider. "
            "That is no help where answers were left out because of what they say."
        )
        silent_now = any(used > 1 for used in state.used)
        much = lacking > MUCH_SILENCE * planned or silent_now
        yield Caveat("much-silence", text) if much else Caveat("silent", text)


def unanswered(plan: Plan, state: RoundState) -> list[int]:
    """Every client's records that were planned for the rounds so far and have not answered.

    Fixed tables never ask the records of a missed round again. A design that tunes itself spreads those of which no
    coin was drawn (`missed_records`) over the rounds that are left, so they are missing only once there are none.
    """
    if isinstance(plan, TablePlan):
        planned = plan.lengths[:, : state.round].sum(axis=1).tolist()
    else:
        # Without an averaged round the search ended the run: what is left was never planned.
        over = 0 < plan.rounds <= state.round and state.averages.rounds > 0
        rows = zip(plan.clients, state.records, state.silent, strict=True)
        planned = [client.records - (0 if over and missed else one.left) for client, one, missed in rows]
    return [all_of_them - asked for all_of_them, asked in zip(planned, state.asked, strict=True)]


def _arrivals(plan: OpenPlan, state: RoundState) -> Iterator[Caveat]:
    """Of an open-ended run: strata of which nobody came, and answers that wait for one of them."""
    nobody = [client.name for client, asked in zip(plan.clients, state.asked, strict=True) if not asked]
    if nobody:
        text = (
            f"Nobody of {listed(nobody)} has answered yet. The estimand is the mixture of all strata with the weights "
            "given beforehand, so nothing can be said about it: the answers of the others wait."
        )
        yield Caveat("nobody-yet", text)
    waiting, all_answers = sum(open_memory(state).waiting), sum(state.asked)
    if not nobody and waiting > MUCH_SILENCE * all_answers:
        rare = min(zip(state.asked, (client.name for client in plan.clients), strict=True))[1]
        text = (
            f"{waiting:,} of {all_answers:,} answers wait and are not used yet: a question counts once somebody of "
            f"every stratum has answered it, and of {rare} few come."
        )
        yield Caveat("waiting", text)


def caveats_beforehand(settings: ReportSettings, clients: Sequence[Client], *, any_shape: bool) -> Iterator[Caveat]:
    """Those that follow from what is to be asked of whom: a dry run says them before anybody has answered."""
    largest = max(client.mechanism.epsilon for client in clients)
    if math.isinf(largest):
        yield Caveat("not-private", "At least one client told every truth: this result is not private.")
    elif largest > WEAK_EPSILON:
        yield Caveat("weak", f"ε = {largest:.3g} protects next to nothing.")
    if settings.missing in MISSING_CAVEATS:
        yield Caveat("missing", MISSING_CAVEATS[settings.missing])
    if settings.dither:
        yield Caveat(
            "dither", f"This is the quantile of values dithered by ±{settings.dither / 2:g}, not of the raw ones."
        )
    if settings.target == "file" and any_shape:
        text = "The any-shape interval is that of a population; the file's own records would need a narrower one."
        yield Caveat("file", text)
    elif settings.target == "file":
        yield Caveat("file", "The interval is about the file's own records; it is too narrow for a population.")
    if settings.person:
        yield PERSON
    yield CENTRAL
    if settings.survey is None:
        yield unweighted(parts_of(settings.weighting))
    else:
        took_part = sum(client.records for client in clients)
        yield Caveat("survey-weights", settings.survey.to_text(len(clients), took_part))
        if settings.survey.costly:
            yield Caveat("thin-tail", settings.survey.costly)


def unweighted(parts: PartWords = CLIENTS) -> Caveat:
    """No record counts more than another of its client."""
    return Caveat("unweighted", f"Records count alike within a {parts.one}: no survey weights were given.")


def _range_caveats(settings: ReportSettings, plan: Plan, inference: Inference) -> Iterator[Caveat]:
    """What the answers say about the ends of the stated range."""
    low, high = working_range(plan.scale)
    near, (first, last) = NEAR_END * (high - low), inference.interval(settings.confidence_level)
    if inference.is_any_shape and last <= low:
        yield Caveat(
            "range",
            f"At least a share {plan.level:.6g} of the values is {plan.scale.low:,.10g} or less, the lower end of the "
            "stated range. Where no value can be lower, that is the quantile; otherwise it lies below: ask other "
            "people with a wider range.",
        )
    elif inference.is_any_shape and first >= high:
        yield Caveat(
            "range",
            f"More than a share {1.0 - plan.level:.6g} of the values is above {plan.scale.high:,.10g}, the upper end "
            "of the stated range: the quantile lies outside. Ask other people with a wider range.",
        )
    else:
        # A straddled run that bounds nothing points nowhere.
        free = isinstance(plan, StraddlePlan | OpenPlan) and first <= low and last >= high
        at_low = inference.center <= low + near and first <= low and not free
        at_high = inference.center >= high - near and last >= high and not free
        for stuck, word in ((at_low, "lower"), (at_high, "upper")):
            if stuck:
                text = (
                    f"The estimate sits at the {word} end of the stated range: the quantile probably lies outside. Ask"
                )
                if isinstance(plan, StraddlePlan | OpenPlan) and inference.is_any_shape:
                    text = (
                        f"The interval lies at the {word} end of the stated range. Where values can lie beyond it, ask"
                    )
                yield Caveat("range", f"{text} other people with a wider range.")


def interval_caveats(
    settings: ReportSettings, plan: Plan, state: RoundState, interval: ConfidenceInterval, *, any_shape: bool
) -> Iterator[Caveat]:
    """What the displayed interval itself shows: a width that was not met, no bound, or round values inside.

    The answers cannot show an atom smaller than their noise: what a smooth interval says about round values is all.
    """
    low, high = interval
    if settings.until_width is not None and high - low > settings.until_width and 0 < plan.rounds <= state.round:
        yield out_of_reach(settings.until_width, high - low, plan.clients)
    value = round_value_inside(low, high)
    at_low, at_high = low <= plan.scale.low < high, low < plan.scale.high <= high
    if at_low and at_high:
        yield not_located(True, what_helps(plan))
    elif at_low or at_high:
        end: Literal["lower", "upper"] = "lower" if at_low else "upper"
        enough = supported(information(plan.level, pooled_noise(plan.clients)))
        yield one_sided(end) if enough else half_open(end, what_helps(plan))
    elif any_shape or settings.dither:
        return
    elif value is not None:
        text = (
            f"The interval holds the round value {value:,.6g}. Where many records share such a value (salaries, ages, "
            "rounded measurements) the quantile sits on an atom and no interval of this kind covers it: read the one "
            "that holds whatever the distribution (interval any-shape)."
        )
        yield Caveat("atom", text)
    elif high - low < 1.0 and min(abs(low), abs(high)) > 1.0:
        text = (
            "The interval is narrower than 1. If the values are whole numbers (ages, counts, scores) the quantile is "
            "one of them and no interval of this kind covers it: then report it with values declared whole."
        )
        yield Caveat("atom", text)


def out_of_reach(asked: float, width: float, clients: Sequence[Client]) -> Caveat:
    """All records together give a `width` above the one that was asked for: what it takes."""
    takes = cure((width / asked) ** 2, clients)
    return Caveat("out-of-reach", f"The asked precision, a width of {asked:g}, is out of reach: it takes {takes}.")


def said_once(of_the_interval: Iterable[Caveat], of_the_run: Iterable[Caveat]) -> tuple[Caveat, ...]:
    """Both, without what says again of one end that it is open: an interval at an end of the range says so already."""
    found = (*of_the_interval, *of_the_run)
    if any(caveat.code == "range" for caveat in found):
        return tuple(caveat for caveat in found if caveat.code not in ("half-open", "one-sided"))
    return found


MORE = "more records or a larger ε"
"""What helps where the answers say too little."""


def what_helps(plan: Plan) -> str:
    """The same for a run's plan: no design that it has, and no larger ε where there is no privacy left to give."""
    helps = MORE if any(math.isfinite(client.mechanism.epsilon) for client in plan.clients) else "more records"
    return helps if isinstance(plan, StraddlePlan | AutoPlan | OpenPlan) else f"design auto, {helps}"


def not_located(whole_range: bool, helps: str = MORE) -> Caveat:
    """The answers of a level say nothing about where its quantile lies."""
    text = "The answers do not locate the quantile: at this confidence "
    if whole_range:
        text += "the interval is the whole stated range."
    else:
        text += "they leave the whole stated range, and the ends of the interval are those of other levels."
    return Caveat("unbounded", f"{text} {helps[0].upper()}{helps[1:]} would help.")


def one_sided(end: Literal["lower", "upper"]) -> Caveat:
    """One end of the interval is an end of the stated range."""
    side = "below" if end == "lower" else "above"
    text = f"The answers do not bound the quantile from {side}: that end of the interval is the {end} end of the "
    return Caveat("one-sided", f"{text}stated range.")


def half_open(end: Literal["lower", "upper"], helps: str = MORE) -> Caveat:
    """The same where the answers are too few for an estimate without a bound on that side."""
    side, other = ("below", "upper") if end == "lower" else ("above", "lower")
    text = f"The answers are few and do not bound the quantile from {side}: of the interval rely on the {other} end "
    return Caveat("half-open", f"{text}alone. {helps[0].upper()}{helps[1:]} would help.")


def round_value_inside(low: float, high: float) -> float | None:
    """A number of two significant digits inside the interval; none where zero is inside, or none is round there.

    >>> round_value_inside(48_700.0, 50_100.0), round_value_inside(55_100.0, 55_900.0)
    (49000.0, None)
    """
    if low <= 0.0 <= high or not math.isfinite(high - low):
        return None
    unit = 10.0 ** (math.floor(math.log10(max(abs(low), abs(high)))) - 1)
    first = math.ceil(low / unit) * unit
    return first if first <= high else None
