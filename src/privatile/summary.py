"""From a run's state to its result: the estimand in words, the interval, the facts and the caveats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Protocol

from privatile.auto import AutoPlan, pooled_noise, remembered
from privatile.critical import Normalizer
from privatile.diagnostics import diagnose
from privatile.errors import InputError
from privatile.estimator import Client, Plan, RoundState, local_ranks
from privatile.explain import explain
from privatile.inference import (
    Ends,
    Inference,
    Trajectory,
    endpoint_variance,
    finite_self_normalized,
    jointly,
    self_normalized,
    wider,
)
from privatile.mechanism import WEAK_EPSILON
from privatile.plug_in import Curve, plug_in
from privatile.policy import information
from privatile.result import (
    Caveat,
    ClientFacts,
    ConfidenceInterval,
    QuantileResult,
    in_units,
    interval_in_units,
    lying_rank,
)
from privatile.scale import working_range
from privatile.sequence import SequenceLaw
from privatile.spec import IntervalName, Missing, Target

NEAR_END = 0.01
"""An estimate within this share of the working range from an end is as good as stuck there."""

NOTHING_KNOWN = 25.0
"""Information below which a path that gives no slope bounds nothing by default: fewer than five standard errors to a
local spread, so the path has not settled anywhere. `--interval self-normalized` shows the asymptotic interval still."""

FIRST_LOOK = 10
"""Averaged rounds before a run may stop by its width: earlier the slope rests on the probes alone."""


class Reading(Protocol):
    """How the answers are to be read: the part of a specification that a result needs."""

    @property
    def value(self) -> str:
        """What the numbers are."""
        ...

    @property
    def design(self) -> str:
        """Name of the design."""
        ...

    @property
    def confidence_level(self) -> float:
        """Of the displayed interval."""
        ...

    @property
    def interval(self) -> IntervalName:
        """Which interval is shown."""
        ...

    @property
    def until_width(self) -> float | None:
        """Width, in units, at which the run stops; none: never early."""
        ...

    @property
    def joint(self) -> int:
        """How many levels the confidence holds for at once; 1: each by itself."""
        ...

    @property
    def normalizer(self) -> Normalizer:
        """Of the self-normalised interval."""
        ...

    @property
    def weighting(self) -> str:
        """How the weights were chosen."""
        ...

    @property
    def target(self) -> Target:
        """Population or file."""
        ...

    @property
    def missing(self) -> Missing:
        """What missing values did."""
        ...

    @property
    def dither(self) -> float:
        """Width of the dither, in units."""
        ...

    @property
    def simulated(self) -> bool:
        """Whether draws were seeded."""
        ...


def summarize(spec: Reading, plan: Plan, state: RoundState, trajectory: Trajectory, run: str) -> QuantileResult:
    """The result as it stands after any round."""
    alone, curve = read(spec, plan, state, trajectory)
    inference = kept_inside(jointly(alone, spec.joint), plan)
    interval = interval_in_units(inference, plan.scale, spec.confidence_level)
    pooled = pooled_noise(plan.clients)
    clients = tuple(
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
            local_rank_interval=rank_interval(client, rank, answered, pooled, spec.confidence_level),
        )
        for client, asked, rank, answered in zip(
            plan.clients, state.asked, local_ranks(state, plan), state.window_asked, strict=True
        )
    )
    found = diagnose(plan, state, trajectory, curve)
    anytime = None
    if curve is not None:
        sequence = kept_inside(jointly(watched(curve, plan, state), spec.joint), plan)
        anytime = interval_in_units(sequence, plan.scale, spec.confidence_level)
    return QuantileResult(
        estimand=estimand_in_words(spec, plan),
        level=common_level(plan),
        estimate=in_units(plan.scale, inference.center),
        confidence_interval=interval,
        confidence_level=spec.confidence_level,
        method=method_in_words(spec, inference),
        target=spec.target,
        rounds=state.round,
        averaged_rounds=state.averages.rounds,
        records=sum(state.asked),
        design=spec.design,
        mode=plan.mode,
        clients=clients,
        caveats=(
            *found.caveats,
            *reachable(spec, plan, state, interval),
            *heaped(spec, interval),
            *unbounded(plan, interval),
            *caveats(spec, plan, state, alone),
        ),
        run=run,
        simulated=spec.simulated,
        inference=inference,
        scale=plan.scale,
        diagnostics=found.rows,
        anytime=anytime,
        explanation=explain(plan, state, trajectory, curve),
    )


def read(spec: Reading, plan: Plan, state: RoundState, trajectory: Trajectory) -> tuple[Inference, Curve | None]:
    """The inference asked for: by default the plug-in one where its diagnostics hold, else the hull of both.

    Self-normalisation alone does not stand in: where the slope is hardly known the path has had few relaxations, and
    its law is then too narrow. A slope that may be zero leaves the whole range.
    """
    file = spec.target == "file"
    curve = None
    if plan.mode == "cohort" and state.averages.rounds >= 2:
        guess = float(remembered(state).tuning.slope[0]) if isinstance(plan, AutoPlan) else None
        curve = plug_in(state, trajectory, plan, guess=guess, file=file)
    if spec.until_width is not None:
        if curve is None:
            raise InputError("a run that stops by its width needs cohort mode; leave out --mode local.")
        return watched(curve, plan, state), curve
    chosen = spec.interval
    if chosen == "default":
        usable = curve is not None and curve.holds and spec.normalizer == "l2"
        chosen = "plug-in" if usable else "self-normalized"
        if curve is not None and not curve.holds and spec.normalizer == "l2":
            share = endpoint_variance(state, plan, trajectory) if file else 1.0
            other = self_normalized(state, trajectory, variance_share=share)
            center = other.center if curve.held else curve.inference.center
            if curve.smooth and not curve.held:
                return wider(center, (curve.inference, other), "wider of plug-in and self-normalized"), curve
            every = (curve.inference, other, curve.bracket)
            return wider(center, every, "bracketing questions, plug-in and self-normalized: the widest"), curve
        if curve is None and information(plan.level, pooled_noise(plan.clients)) < NOTHING_KNOWN:
            path = self_normalized(state, trajectory, spec.normalizer)
            return replace(path, quantile=lambda level: math.inf, tail=lambda distance: 1.0), None
    if chosen == "plug-in":
        if curve is None:
            raise InputError(
                "the plug-in interval needs cohort mode and two averaged rounds; take --interval self-normalized."
            )
        return curve.inference, curve
    share = endpoint_variance(state, plan, trajectory) if file else 1.0
    if chosen == "self-normalized" and curve is not None and curve.holds and spec.normalizer == "l2" and not file:
        return finite_self_normalized(state, trajectory, curve.slope), curve
    return self_normalized(state, trajectory, spec.normalizer, share), curve


def kept_inside(inference: Inference, plan: Plan) -> Inference:
    """The same about a centre inside the range, where the estimand is known to lie: no interval shrinks to an end.

    A centre beyond an end stands for "at or beyond": moved there with its reach. A path that stood still at an end has
    no spread to measure, so nothing bounds it.
    """
    low, high = working_range(plan.scale)
    center = min(max(inference.center, low), high)
    if inference.unit == 0.0 and center in (low, high):
        return replace(inference, center=center, unit=1.0, quantile=lambda level: math.inf, tail=lambda distance: 1.0)
    if center == inference.center:
        return inference
    if isinstance(inference, Ends):
        ends, shift = inference.ends, center - inference.center

        def moved(level: float) -> tuple[float, float]:
            first, last = ends(level)
            return first + shift, last + shift

        return Ends.of(inference.method, center, inference.unit, moved)
    return replace(inference, center=center)


def unbounded(plan: Plan, interval: ConfidenceInterval) -> list[Caveat]:
    """An interval as wide as the range says only what was known before."""
    if interval != (plan.scale.low, plan.scale.high):
        return []
    return [
        Caveat(
            "unbounded",
            "The answers do not locate the quantile: at this confidence the interval is the whole stated range. More "
            "records or a larger ε would help.",
        )
    ]


def common_level(plan: Plan) -> float:
    """τ, as it was asked for where all clients have the same: Σp_kτ_k may differ from it in the last digit."""
    levels = {client.level for client in plan.clients}
    return levels.pop() if len(levels) == 1 else plan.level


def watched(curve: Curve, plan: Plan, state: RoundState) -> Inference:
    """The confidence sequence at this look: honest however often it is looked at, and wherever the run stops."""
    time = sum(state.asked) / sum(client.records for client in plan.clients)
    law = SequenceLaw(min(time, 1.0), curve.slope_error)
    sequence = Inference("anytime", curve.inference.center, curve.inference.unit, law.quantile, law.tail)
    if curve.smooth and not curve.held:
        return sequence
    return wider(sequence.center, (sequence, curve.bracket), "anytime")


def narrow_enough(spec: Reading, plan: Plan, state: RoundState, trajectory: Trajectory) -> bool:
    """Whether a run that is to stop at a width may stop now."""
    if spec.until_width is None or state.averages.rounds < FIRST_LOOK:
        return False
    inference, curve = read(spec, plan, state, trajectory)
    low, high = interval_in_units(kept_inside(jointly(inference, spec.joint), plan), plan.scale, spec.confidence_level)
    return curve is not None and curve.holds and high - low <= spec.until_width


def estimand_in_words(spec: Reading, plan: Plan) -> str:
    """Which quantile of which mixture: changing the weights changes it when the clients differ."""
    level = common_level(plan)
    name = {0.25: " (the lower quartile)", 0.5: " (the median)", 0.75: " (the upper quartile)"}.get(level, "")
    value = spec.value + (f", dithered by ±{spec.dither / 2:g}," if spec.dither else "")
    words = f"The {level:.6g} quantile{name} of {value}"
    if len(plan.clients) > 1:
        mixture = {
            "equal": f"the mixture of {len(plan.clients)} clients with equal weight",
            "size": f"the mixture of {len(plan.clients)} clients weighted by their number of records",
            "precision": f"{len(plan.clients)} clients, said to share one distribution, weighted by precision",
        }.get(spec.weighting, f"the mixture of {len(plan.clients)} clients with the weights given")
        words += f" in {mixture}"
    if any(client.level != plan.clients[0].level for client in plan.clients):
        words += f" (clients' own levels average to {plan.level:.6g})"
    return words


def rank_interval(
    client: Client, rank: float, answered: int, pooled: float, confidence_level: float
) -> tuple[float, float]:
    """F_k(Q*) with its interval: the noise of the client's own answers, and that of the estimate they were asked about.

    The second is taken at the mixture's slope; a client with a much steeper distribution there has more.
    """
    if not answered:
        return math.nan, math.nan
    z = NormalDist().inv_cdf(0.5 + confidence_level / 2)
    error = math.sqrt(client.mechanism.variance(min(max(rank, 0.0), 1.0)) / answered + pooled)
    return max(0.0, rank - z * error), min(1.0, rank + z * error)


def rearranged(results: Sequence[QuantileResult]) -> tuple[QuantileResult, ...]:
    """Several levels of one run, so that a higher level never has a lower quantile.

    Estimates, lower and upper ends are each sorted along the levels, which moves none of them further from the truth
    (rearrangement); intervals that hold jointly go on holding jointly.
    """
    order = sorted(range(len(results)), key=lambda i: results[i].level)
    estimates = sorted(result.estimate for result in results)
    lows = sorted(result.confidence_interval.low for result in results)
    highs = sorted(result.confidence_interval.high for result in results)
    put = list(results)
    for place, i in enumerate(order):
        result = results[i]
        interval = ConfidenceInterval(lows[place], highs[place])
        if (result.estimate, result.confidence_interval) == (estimates[place], interval):
            continue
        note = Caveat("crossing", "Quantiles of neighbouring levels crossed by chance and were put in order.")
        put[i] = replace(
            result,
            estimate=estimates[place],
            confidence_interval=interval,
            inference=rearranged_inference(results, place, result.scale.to_working(estimates[place])),
            caveats=(*result.caveats, note),
        )
    return tuple(put)


def rearranged_inference(results: Sequence[QuantileResult], place: int, center: float) -> Inference:
    """The ends sorted along the levels at every confidence, so that interval and test go on agreeing."""
    inferences = [result.inference for result in results]

    def ends(level: float) -> tuple[float, float]:
        pairs = [inference.interval(level) for inference in inferences]
        low, high = sorted(low for low, _ in pairs)[place], sorted(high for _, high in pairs)[place]
        return min(low, center), max(high, center)

    own = sorted(results, key=lambda result: result.level)[place].inference
    return Ends.of(own.method, center, own.unit, ends)


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


def heaped(spec: Reading, interval: ConfidenceInterval) -> list[Caveat]:
    """The answers cannot show an atom smaller than their noise: a round value inside the interval is all there is."""
    if spec.dither or (value := round_value_inside(*interval)) is None:
        return []
    return [
        Caveat(
            "atom",
            f"The interval holds the round value {value:,.6g}. Where many records share such a value (salaries, ages, "
            "rounded measurements) the quantile sits on an atom and no interval of this kind covers it: then estimate "
            "with --dither, as wide as the values are apart.",
        )
    ]


def reachable(spec: Reading, plan: Plan, state: RoundState, interval: ConfidenceInterval) -> list[Caveat]:
    """Whether the width asked for was met; if not, what it would take."""
    width = interval.high - interval.low
    if spec.until_width is None or width <= spec.until_width or state.round < plan.rounds:
        return []
    more = (width / spec.until_width) ** 2
    rates = [client.mechanism.truth_rate for client in plan.clients]
    need = math.sqrt(more) * max(rates)
    cure = f"{more:.2g} times the records"
    if need < 1.0:
        cure += f", or ε near {2 * math.atanh(need):.2g}"
    return [
        Caveat(
            "out-of-reach", f"The asked precision, a width of {spec.until_width:g}, is out of reach: it takes {cure}."
        )
    ]


def method_in_words(spec: Reading, inference: Inference) -> str:
    """The interval's name, with its normaliser when that is not the usual one."""
    return inference.method if spec.normalizer == "l2" else f"{inference.method} ({spec.normalizer} normaliser)"


def caveats(spec: Reading, plan: Plan, state: RoundState, inference: Inference) -> list[Caveat]:
    """What a careful reader of this result must know."""
    found = []
    low, high = working_range(plan.scale)
    near = NEAR_END * (high - low)
    for stuck, word in ((inference.center <= low + near, "lower"), (inference.center >= high - near, "upper")):
        if stuck:
            found.append(
                Caveat(
                    "range",
                    f"The estimate sits at the {word} end of the stated range: the quantile probably lies outside. "
                    "Ask other people with a wider --range.",
                )
            )
    largest = max(client.mechanism.epsilon for client in plan.clients)
    if math.isinf(largest):
        found.append(Caveat("not-private", "At least one client told every truth: this result is not private."))
    elif largest > WEAK_EPSILON:
        found.append(Caveat("weak", f"ε = {largest:.3g} protects next to nothing."))
    if spec.missing == "noise":
        found.append(
            Caveat(
                "missing",
                "Missing values, if any, answered at random: a client with a share π of them counts with weight "
                "p(1 − π) instead of p.",
            )
        )
    elif spec.missing == "drop":
        found.append(
            Caveat(
                "missing",
                "Missing values were dropped: how many are missing is not protected, and shows in the counts.",
            )
        )
    if spec.dither:
        found.append(
            Caveat("dither", f"This is the quantile of values dithered by ±{spec.dither / 2:g}, not of the raw ones.")
        )
    if spec.target == "file":
        found.append(Caveat("file", "The interval is about the file's own records; it is too narrow for a population."))
    silent = sum(used > 1 for used in state.used)
    if silent:
        found.append(
            Caveat("silent", f"{silent} client(s) are silent; their last answers stand in, and widen the interval.")
        )
    return found
