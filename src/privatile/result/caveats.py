"""Caveats: the registry of their kinds, and what a careful reader of a result must know from the run as a whole.

`caveats.toml` holds every kind with its severity, title and texts. What the answers themselves show (drift, fit,
support) is found by `diagnostics`.
"""

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal, NamedTuple

from privatile.core.kinds import WEAK_EPSILON
from privatile.core.scale import working_range
from privatile.core.text import CLIENTS, PartWords, listed, parts_of, percent_text
from privatile.estimator.clients import Client, pooled_noise
from privatile.estimator.open_ended import OpenPlan, open_memory
from privatile.estimator.plan import Plan, RoundState, TablePlan
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle import StraddlePlan
from privatile.estimator.tuned import AutoPlan, information, supported
from privatile.inference.inference import Inference

Severity = Literal["unreliable", "act", "note", "standing"]


@dataclass(frozen=True)
class CaveatKind:
    """One kind of caveat; `texts` by variant, with the names of the numbers in them."""

    severity: Severity
    title: str
    texts: Mapping[str, str]
    loses: bool
    """Whether the answers have not placed the quantile: its estimate is no number to print large."""


def _read_kinds() -> dict[str, CaveatKind]:
    text = (resources.files("privatile.result") / "caveats.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)
    kinds = {}
    for code, kind in found.items():
        of = found[kind["text_of"]] if "text_of" in kind else kind
        texts = of["texts"] if "texts" in of else {"": of["text"]}
        kinds[code] = CaveatKind(kind["severity"], kind["title"], texts, kind.get("loses", False))
    return kinds


CAVEATS = _read_kinds()
"""Of every code its kind, the most important first."""

MAX_TO_ACT_ON = 3
"""Lines that a reader must act on before anything else; more than these are read by nobody."""

_ORDER = {code: place for place, code in enumerate(CAVEATS)}


class Caveat(NamedTuple):
    """A limit of this result, in words; the code, one of `CAVEATS`, is stable for programs."""

    code: str
    text: str

    @property
    def kind(self) -> CaveatKind:
        """What is true of every caveat with its code."""
        return CAVEATS[self.code]

    @property
    def severity(self) -> Severity:
        """How much it weighs."""
        return self.kind.severity

    def facts(self) -> dict[str, str]:
        """As the JSON of a result has it."""
        return {"code": self.code, "severity": self.severity, "text": self.text}


def caveat(code: str, variant: str = "", **values: object) -> Caveat:
    """Make a caveat of this kind; `values` are the numbers and words of its text.

    >>> caveat("weak", epsilon=12.3456)
    Caveat(code='weak', text='ε = 12.3 protects next to nothing.')
    """
    return Caveat(code, CAVEATS[code].texts[variant].format(**values))


def most_important_first(*found: Caveat) -> tuple[Caveat, ...]:
    """In the order of the registry: a quantile outside the range comes before all else.

    >>> found = caveat("central"), Caveat("range", ""), unweighted()
    >>> [each.code for each in most_important_first(*found)]
    ['range', 'central', 'unweighted']
    """
    return tuple(sorted(found, key=lambda one: _ORDER[one.code]))


def to_act_on_and_rest(found: Iterable[Caveat]) -> tuple[list[Caveat], list[Caveat]]:
    """At most `MAX_TO_ACT_ON` that a reader must act on, then all others that are not standing remarks.

    >>> codes = ("central", "dominance", "weak", "slope", "misfit", "range")
    >>> first, rest = to_act_on_and_rest(Caveat(code, "") for code in codes)
    >>> [one.code for one in first], [one.code for one in rest]
    (['range', 'misfit', 'slope'], ['weak', 'dominance'])
    """
    shown = [one for one in most_important_first(*found) if one.severity != "standing"]
    first = [one for one in shown if one.severity in ("unreliable", "act")][:MAX_TO_ACT_ON]
    return first, [one for one in shown if one not in first]


NEAR_END = 0.01
"""An estimate this share of the working range from an end, its interval reaching it, is as good as stuck there."""

MUCH_SILENCE = 0.05
"""Share of the records; more that have not answered are something to look into before the result is used."""


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
        (missed, name), lacking = max(silent), sum(missing)
        planned = sum(state.asked) + lacking
        silent_now = any(used > 1 for used in state.used)
        yield caveat(
            "much-silence" if lacking > MUCH_SILENCE * planned or silent_now else "silent",
            number=len(silent),
            clients=len(plan.clients),
            name=name,
            missed=missed,
            rounds=state.round,
            lacking=lacking,
            planned=planned,
            percent=percent_text(lacking / planned, 2),
        )


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
        yield caveat("nobody-yet", names=listed(nobody))
    waiting, all_answers = sum(open_memory(state).waiting), sum(state.asked)
    if not nobody and waiting > MUCH_SILENCE * all_answers:
        rare = min(zip(state.asked, (client.name for client in plan.clients), strict=True))[1]
        yield caveat("waiting", waiting=waiting, answers=all_answers, stratum=rare)


def caveats_beforehand(settings: ReportSettings, clients: Sequence[Client], *, any_shape: bool) -> Iterator[Caveat]:
    """Those that follow from what is to be asked of whom: a dry run says them before anybody has answered."""
    largest = max(client.mechanism.epsilon for client in clients)
    if math.isinf(largest):
        yield caveat("not-private")
    elif largest > WEAK_EPSILON:
        yield caveat("weak", epsilon=largest)
    if settings.missing in CAVEATS["missing"].texts:
        yield caveat("missing", settings.missing)
    if settings.dither:
        yield caveat("dither", half=settings.dither / 2)
    if settings.target == "file":
        yield caveat("file", "any-shape" if any_shape else "smooth")
    if settings.person:
        yield caveat("person")
    yield caveat("central")
    if settings.survey is None:
        yield unweighted(parts_of(settings.weighting))
    else:
        took_part = sum(client.records for client in clients)
        yield caveat("survey-weights", text=settings.survey.to_text(len(clients), took_part))
        if settings.survey.costly:
            yield caveat("thin-tail", text=settings.survey.costly)


def unweighted(parts: PartWords = CLIENTS) -> Caveat:
    """No record counts more than another of its client."""
    return caveat("unweighted", part=parts.one)


def _range_caveats(settings: ReportSettings, plan: Plan, inference: Inference) -> Iterator[Caveat]:
    """What the answers say about the ends of the stated range."""
    low, high = working_range(plan.scale)
    near, (first, last) = NEAR_END * (high - low), inference.interval(settings.confidence_level)
    if inference.is_any_shape and last <= low:
        yield caveat("range", "below", level=plan.level, end=plan.scale.low)
    elif inference.is_any_shape and first >= high:
        yield caveat("range", "above", share=1.0 - plan.level, end=plan.scale.high)
    else:
        straddles = isinstance(plan, StraddlePlan | OpenPlan)
        # A straddled run that bounds nothing points nowhere.
        free = straddles and first <= low and last >= high
        at_low = inference.center <= low + near and first <= low and not free
        at_high = inference.center >= high - near and last >= high and not free
        for stuck, end in ((at_low, "lower"), (at_high, "upper")):
            if stuck:
                yield caveat("range", "interval" if straddles and inference.is_any_shape else "estimate", end=end)


def interval_caveats(
    settings: ReportSettings, plan: Plan, state: RoundState, interval: tuple[float, float], *, any_shape: bool
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
        yield caveat("unbounded", "whole", helps=what_helps(plan))
    elif at_low or at_high:
        enough = supported(information(plan.level, pooled_noise(plan.clients)))
        yield open_on_one_side("one-sided" if enough else "half-open", at_low=at_low, helps=what_helps(plan))
    elif any_shape or settings.dither:
        return
    elif value is not None:
        yield caveat("atom", "round", value=value)
    elif high - low < 1.0 and min(abs(low), abs(high)) > 1.0:
        yield caveat("atom", "whole")


def out_of_reach(asked: float, width: float, clients: Sequence[Client]) -> Caveat:
    """All records together give a `width` above the one that was asked for: what it takes."""
    return caveat("out-of-reach", width=asked, takes=what_it_takes((width / asked) ** 2, clients))


def what_it_takes(more: float, clients: Sequence[Client]) -> str:
    """What gives `more` times the information: so many records, or budgets with truth rates √more times as large."""
    digits = 2 if more >= 1.1 else 3
    words = f"{rounded_text(more, digits)} times the records"
    need = math.sqrt(more) * max(client.mechanism.truth_rate for client in clients)
    # A truth rate ends at 1: beyond, only records help.
    if need < 1.0:
        alike = len({client.mechanism.epsilon for client in clients}) == 1
        words += f", or {'' if alike else 'the largest '}ε near {rounded_text(2.0 * math.atanh(need), digits)}"
    return words


def rounded_text(value: float, digits: int = 2) -> str:
    """So many significant digits, never in powers of ten. Three where two would say "1 times".

    >>> rounded_text(943.0), rounded_text(1.52), rounded_text(31_400.0), rounded_text(1.0109, 3)
    ('940', '1.5', '31,000', '1.01')
    """
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def said_once(of_the_interval: Iterable[Caveat], of_the_run: Iterable[Caveat]) -> tuple[Caveat, ...]:
    """Both, without what says again of one end that it is open: an interval at an end of the range says so already."""
    found = (*of_the_interval, *of_the_run)
    if any(one.code == "range" for one in found):
        return tuple(one for one in found if one.code not in ("half-open", "one-sided"))
    return found


MORE = "More records or a larger ε"
"""What helps where the answers say too little."""


def what_helps(plan: Plan) -> str:
    """The same for a run's plan: no design that it has, and no larger ε where there is no privacy left to give."""
    helps = MORE if any(math.isfinite(client.mechanism.epsilon) for client in plan.clients) else "More records"
    tuned = isinstance(plan, StraddlePlan | AutoPlan | OpenPlan)
    return helps if tuned else f"Design auto, {helps[0].lower()}{helps[1:]}"


def open_on_one_side(code: str, *, at_low: bool, helps: str = MORE) -> Caveat:
    """One end of the interval is an end of the stated range; "half-open" if the answers are too few for an estimate."""
    side, end, other = ("below", "lower", "upper") if at_low else ("above", "upper", "lower")
    if code == "one-sided":
        return caveat("one-sided", side=side, end=end)
    return caveat("half-open", side=side, end=other, helps=helps)


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
