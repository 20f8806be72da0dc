"""One open-ended run with random arrivals, through the program itself (`LevelRun`): what its intervals did."""

import math
from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from studies.arrivals.people import Ints, liars_in, rounds_of, taken_in_order

from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.clients import UNKNOWN_SIZE
from privatile.estimator.open_ended import ACCEPTED, End, OpenPlan, OpenRun, open_memory
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.estimator.tuned import information
from privatile.inference.any_shape import AnyShape
from privatile.inference.reading import read
from privatile.inference.series import bit_influences, largest_influences
from privatile.run.coordinator import LevelRun

WEIGHTS = (0.5, 0.3, 0.2)
"""The smallest stratum has a twentieth of the arrivals and a fifth of the weight."""

MEANS = (0.0, 0.5, 1.0)
MECHANISM = RandomizedResponse.from_epsilon(1.0)
LEVEL_RANGE = (-10.0, 10.0)


class Cell(NamedTuple):
    """What is run: the arrivals, about how many people, the level, and who lies."""

    process: str
    people: int
    level: float = 0.5
    who: str = "nobody"
    liars: float = 0.0

    @property
    def name(self) -> str:
        """In words."""
        lying = f", {100 * self.liars:g}% lie: {self.who}" if self.liars else ""
        return f"{self.process}, {self.people:,} people, τ = {self.level:g}{lying}"


class Outcome(NamedTuple):
    """One run."""

    people: int
    information: float
    bounded: bool
    ever_missed: bool
    width: float
    """Of the anytime any-shape interval at the end, over that of the oracle's Wald interval."""
    known_width: float
    """The same of a run with as many people known beforehand; NaN where none was made."""
    smooth_covers: bool
    smooth_width: float
    error: float
    """Of the smooth estimate, in standard errors of the efficiency bound."""
    rank: float
    """F(Q̂) − τ; infinite without a result."""
    liars_bound: float
    """Sum of the largest influences of as many bits as there were liars; NaN without any."""
    alarm: bool
    """Whether the change alarm rang at the end."""


def cdf(stratum: int, query: float) -> float:
    """F of a stratum."""
    return NormalDist(MEANS[stratum]).cdf(query)


def mixture(query: float) -> float:
    """F of the mixture."""
    return math.fsum(weight * cdf(k, query) for k, weight in enumerate(WEIGHTS))


def true_quantile(level: float) -> float:
    """By bisection."""
    low, high = LEVEL_RANGE
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if mixture(middle) < level else (low, middle)
    return middle


def spec_of(cell: Cell, records: tuple[int, ...] | None = None) -> RunSpec:
    """An open-ended run with an end date; with `records`, the default design."""
    sizes = records or (UNKNOWN_SIZE,) * len(WEIGHTS)
    rows = enumerate(zip(WEIGHTS, sizes, strict=True))
    clients = tuple(ClientSpec(f"stratum {k}", MECHANISM.threshold, weight, size) for k, (weight, size) in rows)
    low, high = LEVEL_RANGE
    spec = RunSpec("value", (cell.level,), clients, "identity", low, high, weighting="given", simulated=True)
    return spec if records else replace(spec, design="open", end=End(date="2027-01-31T18:00:00Z"))


def counts(query: float, lengths: Ints, liars: Ints, rng: np.random.Generator) -> list[int | None]:
    """What comes back: liars always say yes."""
    rate = MECHANISM.truth_rate
    found: list[int | None] = []
    for k, (length, lying) in enumerate(zip(lengths.tolist(), liars.tolist(), strict=True)):
        yes = 0.5 + rate * (0.5 - cdf(k, query))
        found.append(lying + int(rng.binomial(length - lying, yes)) if length else None)
    return found


def bound(level: float, records: Ints) -> float:
    """The efficient standard error at the quantile, in units."""
    truth, rate = true_quantile(level), MECHANISM.truth_rate
    density = math.fsum(weight * NormalDist(MEANS[k]).pdf(truth) for k, weight in enumerate(WEIGHTS))
    rows = zip(WEIGHTS, records.tolist(), [cdf(k, truth) for k in range(len(WEIGHTS))], strict=True)
    variance = math.fsum(p * p * (rate**-2 - (2.0 * f - 1.0) ** 2) / (4.0 * n) for p, n, f in rows)
    return math.sqrt(variance) / density


def simulate(cell: Cell, seed: tuple[int, ...], known: bool = False) -> Outcome:
    """One run; `known` makes the run with known numbers beside it."""
    rng = np.random.default_rng(seed)
    rounds = rounds_of(cell.process, cell.people, rng)
    liars = np.zeros_like(rounds)
    if cell.who == "heaviest":
        liars = heaviest_liars(cell, rounds, seed)
    elif cell.liars:
        liars = liars_in(rounds, cell.who, cell.liars)
    track, truth = LevelRun(spec_of(cell), 0), true_quantile(cell.level)
    missed = False
    for lengths, lying in zip(rounds, liars, strict=True):
        ask = track.ask
        assert ask is not None
        track.advance(counts(ask.query, lengths, lying, rng), (), lengths.tolist())
        if not missed and track.state.averages.rounds:
            missed = _misses(open_memory(track.state).run, truth)
    track.end("date")
    plan = track.plan.so_far(track.state)
    assert isinstance(plan, OpenPlan)
    found = read(track.spec, plan, track.state, track.trajectory) if track.state.averages.give_interval else None
    if found is None or found.any_shape is None or found.smooth is None or found.fit is None:
        return _without_result(rounds, missed)
    people, wald = rounds.sum(axis=0), 2.0 * 1.959964 * bound(cell.level, rounds.sum(axis=0))
    low, high = found.any_shape.interval(0.95)  # as it is shown: liars may have made the ends cross
    first, last = found.smooth.interval(0.95)
    number = int(liars.sum())
    center = found.fit.center
    worst = largest_influences(plan.clients, track.trajectory.by_client, center, (number,)) if number else ()
    return Outcome(
        people=int(people.sum()),
        information=information(cell.level, math.fsum(client.noise(client.records) for client in plan.clients)),
        bounded=math.isfinite(high - low),
        ever_missed=missed,
        width=(high - low) / wald,
        known_width=_known_width(cell, tuple(people.tolist()), rng) / wald if known else math.nan,
        smooth_covers=first <= truth <= last,
        smooth_width=(last - first) / wald,
        error=(found.smooth.center - truth) / (wald / (2.0 * 1.959964)),
        rank=mixture(found.smooth.center) - cell.level,
        liars_bound=worst[0].rank if worst else math.nan,
        alarm=_alarm(track),
    )


def _without_result(rounds: Ints, missed: bool) -> Outcome:
    """A run whose search has not placed the quantile when it ends."""
    nothing = math.inf
    return Outcome(
        int(rounds.sum()), 0.0, False, missed, nothing, math.nan, False, nothing, nothing, nothing, 0.0, False
    )


def heaviest_liars(cell: Cell, rounds: Ints, seed: tuple[int, ...]) -> Ints:
    """Liars in the rounds and strata where, had everybody been honest, single bits would have weighed most."""
    rng, track = np.random.default_rng((*seed, 1)), LevelRun(spec_of(cell), 0)
    nobody = np.zeros(len(WEIGHTS), dtype=np.int64)
    for lengths in rounds:
        ask = track.ask
        assert ask is not None
        track.advance(counts(ask.query, lengths, nobody, rng), (), lengths.tolist())
    plan, answers = track.plan.so_far(track.state), track.trajectory.by_client
    weighed = np.zeros(rounds.shape)
    weighed[len(rounds) - len(answers.queries) :] = bit_influences(plan.clients, answers, true_quantile(cell.level))[0]
    order = np.argsort(-weighed, axis=None, kind="stable")
    return taken_in_order(rounds.ravel(), order, round(cell.liars * int(rounds.sum()))).reshape(rounds.shape)


def _misses(run: OpenRun, truth: float) -> bool:
    """Whether the 95% interval misses; most often no candidate beyond the truth is accepted, which is seen at once."""
    bets = run.sides[0].bets, run.sides[1].bets
    if not any(
        bool(((one.places > place) & np.isfinite(one.places) & (one.peaks >= 0.99 * ACCEPTED)).any())
        for one, place in zip(bets, (truth, -truth), strict=True)
    ):
        return False
    low, high = AnyShape(bets).ends(0.95)
    return low > truth or high < truth


def _alarm(track: LevelRun) -> bool:
    from privatile.inference.series import change

    return change(track.trajectory.by_client, np.array(WEIGHTS), track.state.round - track.state.averages.rounds).alarm


def _known_width(cell: Cell, records: tuple[int, ...], rng: np.random.Generator) -> float:
    """The any-shape interval of the default design, which knows the numbers."""
    track = LevelRun(spec_of(cell, records), 0)
    while (ask := track.ask) is not None:
        nobody = np.zeros(len(records), dtype=np.int64)
        track.advance(counts(ask.query, np.array(ask.lengths), nobody, rng))
    low, high = read(track.spec, track.plan, track.state, track.trajectory).shown.interval(0.95)
    return high - low
