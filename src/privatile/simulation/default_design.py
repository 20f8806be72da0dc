"""The default designs in simulation: many runs through the code that real runs execute, scored by what they show.

The design auto in simulation: thousands of runs at once, through the code that real runs execute.

A cohort's count is one binomial draw given q (its records are fresh and independent), so nothing is approximated.

The intervals that results would show, for many simulated runs: the rule is `inference.choice`'s own.

Many runs of the default design at once, through the code that real runs execute, and both intervals of each.

The questions are `StraddlePolicy`'s, the ends `inference.any_shape`'s, the curve `inference.smooth_reading`'s, and the
headline follows `inference.readings`. Only the loop is written here: arrays with a leading axis of runs take the place
of one run's state.

What a reader of many simulated results is shown: the headline of each, and the interval that stands beside it.

One entry for both declarations. Values declared continuous are asked by the tuned design and read as smooth; all others
by the straddling design, whose any-shape interval is the headline. A declared grid changes the report alone: the
headline is then the set of grid values that the any-shape interval leaves.

Cells of an experiment that are run as `privatile estimate` runs its default design, and scored by what it shows.

`shown_results` has the rule; here are the key, the streams and the summary that every cell of an experiment has.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, array_namespace
from privatile.core.kinds import Declaration, IntervalName, declaration
from privatile.core.mechanism import RandomizedResponse, debias, rank_noise, yes_probability
from privatile.core.scale import Identity
from privatile.errors import InputError
from privatile.estimator.clients import Client
from privatile.estimator.plan import normalizer_of
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle import SEARCH, StraddlePlan, StraddlePolicy, Straddling, variance_bound
from privatile.estimator.tuned import AVERAGE, RELAXATIONS, AutoPlan, QuestionPolicy, Tuning
from privatile.estimator.window import Answers
from privatile.inference.any_shape import CHECKED_AT, Grid
from privatile.inference.choice import Evidence, as_displayed, choose_interval, known_end, reason_against
from privatile.inference.curve import CurveFit, curve_of, fit_curve
from privatile.inference.inference import Inference, known_share
from privatile.inference.self_normalized import AveragedPath
from privatile.inference.smooth import fit_smooth
from privatile.laws.ratio import fieller_reach, low_information_factor, two_sided_z
from privatile.simulation.cells import plain_population
from privatile.simulation.engine import Summary
from privatile.simulation.populations import Empirical, LogOf, Mixture, Population
from privatile.simulation.theory import efficiency_bound

BLOCK = 500
"""Runs in memory at a time: the beliefs of more would leave the processor's cache."""

FITTED = 40
"""Curves fitted at a time on a processor."""


@dataclass(frozen=True)
class AutoCell:
    """One setting: the clients, the level, the stated range and the rounds."""

    populations: tuple[Population, ...]
    truth_rates: tuple[float, ...]
    records: tuple[int, ...]
    level: float = 0.5
    weights: tuple[float, ...] = ()
    """None: equal."""
    low: float = -10.0
    high: float = 10.0
    rounds: int | None = None
    relaxations: float = RELAXATIONS
    name: str = field(default="", compare=False)

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The clients' weights."""
        return self.weights or (1.0 / len(self.populations),) * len(self.populations)

    @cached_property
    def mixture(self) -> Mixture:
        """The clients' populations together."""
        return Mixture(self.populations, self.shares)

    @cached_property
    def truth(self) -> float:
        """Q*."""
        return float(self.mixture.quantile(self.level))

    @cached_property
    def bound(self) -> float:
        """The efficiency bound, a standard error."""
        ranks = [float(population.cdf(self.truth)) for population in self.populations]
        densities = [float(population.density(self.truth)) for population in self.populations]
        return efficiency_bound(self.shares, self.truth_rates, ranks, densities, self.records)

    @cached_property
    def plan(self) -> AutoPlan:
        """The plan of a real run with these clients."""
        rows = zip(self.truth_rates, self.shares, self.records, strict=True)
        clients = [Client(f"c{k}", RandomizedResponse(r), p, self.level, n) for k, (r, p, n) in enumerate(rows)]
        return AutoPlan(tuple(clients), Identity(self.low, self.high), self.rounds)

    @cached_property
    def straddle_plan(self) -> StraddlePlan:
        """The plan of a real run of the default design with these clients."""
        return StraddlePlan(self.plan.clients, self.plan.scale, self.rounds)

    @property
    def information(self) -> float:
        """(τ(1 − τ))²/s²."""
        return self.plan.information

    @cached_property
    def policy(self) -> QuestionPolicy:
        """The rules, with this cell's numbers."""
        return replace(self.plan.policy, relaxations=self.relaxations)


@dataclass(frozen=True, eq=False)
class AutoRuns:
    """What many runs of one cell gave; the first axis is runs, rounds the second."""

    level: float
    queries: Floats
    residuals: Floats
    noise: Floats
    """Σp_k²/(4r_k²E_k) of every round; infinite for a round that is left out."""
    averaged: NDArray[np.bool_]
    asked: Floats
    """Share of all records asked so far, after every round."""
    after: Floats
    """The query after every round."""
    share: Floats
    """What knowing the clients' ranks takes off the noise."""
    tuning: Tuning

    @cached_property
    def fit(self) -> CurveFit:
        """The curve through the answers of every run, as `fit_run` fits it."""
        xp, averaged = array_namespace(self.queries), self.averaged
        start = xp.where(averaged, self.queries, 0.0).sum(axis=1) / xp.maximum(averaged.sum(axis=1), 1)

        def part(runs: slice) -> CurveFit:
            return fit_curve(
                self.queries[runs],
                self.residuals[runs],
                (self.noise * self.share[:, None])[runs],
                self.level,
                start=start[runs],
                slope=self.tuning.slope[runs],
                window=averaged[runs],
            )

        # Runs of one fit wait for its slowest: on a processor few at a time.
        size = len(start) if xp is not np else FITTED
        parts = [part(slice(first, first + size)) for first in range(0, len(start), size)]
        return CurveFit(*(xp.concatenate(column) for column in zip(*parts, strict=True)))

    def until(self, last: int) -> "AutoRuns":
        """The runs as they stood after round `last` (counted from 0)."""
        xp = array_namespace(self.queries)
        seen = xp.arange(self.queries.shape[1]) <= last
        noise, averaged = xp.where(seen, self.noise, xp.inf), self.averaged & seen
        return replace(self, noise=noise, averaged=averaged, asked=self.asked[:, : last + 1])

    def on_host(self) -> "AutoRuns":
        """The same with numpy's arrays, the curves fitted where the runs were simulated."""
        if array_namespace(self.queries) is np:
            return self
        host = AutoRuns(*(on_host(getattr(self, part.name)) for part in fields(self)))
        host.__dict__["fit"] = on_host(self.fit)
        return host


def on_host(value: Any) -> Any:
    """Arrays of a GPU as numpy's; also inside tuples."""
    if isinstance(value, tuple):
        parts = [on_host(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value.get() if hasattr(value, "get") else value


class Drawn:
    """The answers of clients whose records are drawn with replacement: a cohort's count is one binomial draw."""

    def __init__(self, cell: AutoCell, rng: Any, xp: Any = np) -> None:
        self.rng, self.rates = rng, xp.array(cell.truth_rates)
        self.kinds = list(dict.fromkeys(cell.populations))
        self.which = xp.array([self.kinds.index(population) for population in cell.populations])

    def counts(self, queries: Floats, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ones of every run's clients (runs × clients) when `lengths` records of each answer."""
        ranks = ranks_at(self.kinds, queries)[:, self.which]
        ones: NDArray[np.int64] = self.rng.binomial(lengths, yes_probability(self.rates, 1.0 - ranks))
        return ones


def simulate(cell: AutoCell, runs: int, rng: Any, xp: Any = np, *, answers: Any = None) -> "AutoRuns":
    """Run a cell `runs` times; `xp` is the library of the arrays and `rng` a generator of it.

    `answers` has another way to answer than `Drawn`, as given people do.
    """
    answers = answers or Drawn(cell, rng, xp)
    policy, rounds = cell.policy, cell.policy.rounds
    weights, rates = xp.array(cell.shares), xp.array(cell.truth_rates)
    records = xp.array(cell.records, dtype=xp.int64)
    tuning = policy.begin(runs, xp)
    left = xp.tile(records, (runs, 1))
    queries, residuals, noise, asked, after = (xp.empty((runs, rounds)) for _ in range(5))
    averaged = xp.empty((runs, rounds), dtype=xp.bool_)
    ones, window = xp.zeros((runs, len(records))), xp.zeros((runs, len(records)))
    for m in range(rounds):
        lengths = policy.lengths(tuning, records, left)
        left -= lengths
        query, now = tuning.query, tuning.stage == AVERAGE
        counts = answers.counts(query, lengths)
        means = debias(rates, counts / lengths)
        queries[:, m], averaged[:, m] = query, now
        residuals[:, m] = means @ weights - (1.0 - cell.level)
        noise[:, m] = rank_noise(weights, rates, lengths).sum(axis=1)
        ones += xp.where(now[:, None], counts, 0)
        window += xp.where(now[:, None], lengths, 0)
        tuning = policy.learn(tuning, residuals[:, m], noise[:, m])
        asked[:, m] = 1.0 - left.sum(axis=1) / records.sum()
        after[:, m] = tuning.query
    local = 1.0 - debias(rates, ones / window)
    share = known_share(weights, rates, records, local, window)
    return AutoRuns(cell.level, queries, residuals, noise, averaged, asked, after, share, tuning)


def ranks_at(kinds: Sequence[Population], queries: Floats) -> Floats:
    """F of every kind of population (columns) at every run's question (rows)."""
    ranks: Floats = array_namespace(queries).stack([population.cdf(queries) for population in kinds], axis=1)
    return ranks


class DisplayedIntervals(NamedTuple):
    """Estimates and intervals of many runs at one confidence; an end may be infinite, a result cuts it at the range."""

    center: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, inferences: Iterable[Inference], confidence_level: float) -> "DisplayedIntervals":
        """The intervals of inferences."""
        rows = [(inference.center, *inference.interval(confidence_level)) for inference in inferences]
        return cls(*np.array(rows, dtype=np.float64).reshape(-1, 3).T)

    @classmethod
    def joined(cls, parts: "Sequence[DisplayedIntervals]") -> "DisplayedIntervals":
        """Several blocks of runs as one."""
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def covers(self, truth: float) -> NDArray[np.bool_]:
        """Which intervals hold the truth."""
        return (self.low <= truth) & (truth <= self.high)

    @property
    def half_width(self) -> Floats:
        """Half of every interval's length."""
        return (self.high - self.low) / 2.0


def settings_of(cell: AutoCell) -> ReportSettings:
    """The defaults of a result of the design for continuous values, for a cell."""
    return ReportSettings("simulated values", (cell.level,), value_kind="continuous")


def displayed_intervals(
    cell: AutoCell, runs: AutoRuns, levels: Sequence[float] = (0.95,), interval: IntervalName = "default"
) -> "list[DisplayedIntervals]":
    """What the results of all runs show at these confidence levels."""
    settings = replace(settings_of(cell), interval=interval)
    inferences = [
        as_displayed(choose_interval(settings, evidence), settings, cell.plan.scale)
        for evidence in evidence_of(cell, runs)
    ]
    return [DisplayedIntervals.of(inferences, level) for level in levels]


def evidence_of(cell: AutoCell, runs: AutoRuns) -> Iterator[Evidence]:
    """The evidence of every run, as `gather_evidence` gives it for a real one."""
    table = np.stack([runs.queries, runs.residuals, runs.noise])
    for run, came in enumerate(np.isfinite(runs.noise)):
        curve = curve_of(runs.fit.of_run(run), table[:, run, came], cell.level)

        def path(run: int = run) -> AveragedPath:
            averaged = runs.averaged[run]
            after, noise = runs.after[run, averaged], runs.noise[run, averaged]
            steps = np.full(len(after), runs.tuning.step[run])
            return AveragedPath(float(after.mean()), normalizer_of(after, noise), after, noise, steps)

        yield Evidence(curve, path, cell.information, float(runs.asked[run, -1]))


class StraddledRuns(NamedTuple):
    """What many runs of one cell gave; the first axis is runs, rounds the second."""

    queries: Floats
    residuals: Floats
    noise: Floats
    stages: NDArray[np.int64]
    share: Floats
    """What knowing the clients' ranks takes off the noise."""
    state: Straddling


def straddle(
    cell: AutoCell,
    runs: int,
    rng: Any,
    xp: Any = np,
    *,
    policy: StraddlePolicy | None = None,
    answers: Any = None,
) -> StraddledRuns:
    """Run a cell `runs` times; `xp` is the library of the arrays and `rng` a generator of it.

    `answers` has another way to answer than `Drawn`, as a fixed file does.
    """
    policy = policy or cell.straddle_plan.policy
    answers = answers or Drawn(cell, rng, xp)
    rounds = policy.rounds
    weights, rates = xp.array(cell.shares), xp.array(cell.truth_rates)
    records = xp.array(cell.records, dtype=xp.int64)
    state = policy.begin(runs, xp)
    left = xp.tile(records, (runs, 1))
    queries, residuals, noise = (xp.empty((runs, rounds)) for _ in range(3))
    stages = xp.empty((runs, rounds), dtype=xp.int64)
    ones, window = xp.zeros((runs, len(records))), xp.zeros((runs, len(records)))
    for m in range(rounds):
        lengths = policy.lengths(state, records, left)
        left -= lengths
        counts = answers.counts(state.query, lengths)
        means = debias(rates, counts / lengths)
        queries[:, m], stages[:, m] = state.query, state.stage
        residuals[:, m] = means @ weights - (1.0 - cell.level)
        noise[:, m] = rank_noise(weights, rates, lengths).sum(axis=1)
        now = (state.stage != SEARCH)[:, None]
        ones += xp.where(now, counts, 0)
        window += xp.where(now, lengths, 0)
        tested = variance_bound(cell.level, weights, rates, lengths, exact=cell.straddle_plan.exact)
        heard = Answers(state.query, residuals[:, m], tested, xp.ones(runs))
        state = policy.learn(state, residuals[:, m], noise[:, m], heard)
    local = 1.0 - debias(rates, ones / window)
    share = known_share(weights, rates, records, local, window)
    return StraddledRuns(queries, residuals, noise, stages, share, state)


class StraddledReadings(NamedTuple):
    """Both intervals of many runs at one confidence level; an end may be infinite, a result cuts it at the range."""

    any_shape: DisplayedIntervals
    """What the results show first: values declared continuous are asked by another design."""
    smooth: DisplayedIntervals
    reason: NDArray[np.int64]
    """What contradicts a smooth distribution: a place in `readings.REASONS`, 0 for nothing."""

    @classmethod
    def joined(cls, parts: "Sequence[StraddledReadings]") -> "StraddledReadings":
        """Several blocks of runs as one."""
        return cls(
            DisplayedIntervals.joined([part.any_shape for part in parts]),
            DisplayedIntervals.joined([part.smooth for part in parts]),
            np.concatenate([part.reason for part in parts]),
        )


def read_straddled(
    cell: AutoCell, found: StraddledRuns, levels: Sequence[float] = (0.95,)
) -> "list[StraddledReadings]":
    """Both readings of every run at these confidence levels, as `readings.readings` gives them for one run."""
    xp = array_namespace(found.queries)
    plan = cell.straddle_plan
    shape, variances = known_end(plan, found.state.window.tests), found.noise * found.share[:, None]
    fits = fit_smooth(found.queries, found.residuals, variances, cell.level, found.state.window, plan.information)
    fit, reason = fits.curve, on_host(reason_against(fits, *shape.every_end(CHECKED_AT), plan.information))
    inside, ends = shape.around(xp.clip(fit.center, cell.low, cell.high))
    known = on_host((cell.level * (1.0 - cell.level)) ** 2 * (1.0 / found.noise).sum(axis=1))
    center, error, slope_error = (on_host(column) for column in (fit.center, fit.error, fit.slope_error))
    parts = []
    for level in levels:
        z = two_sided_z(level) * low_information_factor(known)
        reach = fieller_reach(z, slope_error) * error
        any_shape = DisplayedIntervals(*on_host((inside, *ends(level))))
        parts.append(StraddledReadings(any_shape, DisplayedIntervals(center, center - reach, center + reach), reason))
    return parts


class ShownResults(NamedTuple):
    """The results of many runs at one confidence level, in units; an end that is not bounded is infinite."""

    headline: DisplayedIntervals
    """Where a grid is declared, the first and the last grid value left, cut at the range as a result cuts them; NaN
    where the answers contradict the declaration: no set is shown, so none covers."""
    other: DisplayedIntervals
    sizes: Floats
    """Grid values left; ∞ where nothing is bounded, NaN where no set is shown: no grid, or a contradicted one."""

    @classmethod
    def joined(cls, parts: "Sequence[ShownResults]") -> "ShownResults":
        """Several blocks of runs as one."""
        headlines, others, sizes = zip(*parts, strict=True)
        return cls(DisplayedIntervals.joined(headlines), DisplayedIntervals.joined(others), np.concatenate(sizes))


def simulate_results(
    cell: AutoCell,
    values: str,
    runs: int,
    rng: np.random.Generator,
    confidence_level: float = 0.95,
    to_units: Callable[[Any], Any] = np.asarray,
) -> "ShownResults":
    """The results of `runs` runs with these values declared, `BLOCK` at a time.

    `to_units` maps the cell's working scale to units, in which a grid is declared.
    """
    declared = declaration(values)
    sizes = [min(BLOCK, runs - first) for first in range(0, runs, BLOCK)]
    return ShownResults.joined([_block(cell, declared, size, rng, confidence_level, to_units) for size in sizes])


def _block(
    cell: AutoCell,
    declared: Declaration,
    runs: int,
    rng: np.random.Generator,
    confidence_level: float,
    to_units: Callable[[Any], Any],
) -> "ShownResults":
    if declared.continuous:
        found = simulate(cell, runs, rng)
        first, other = (
            displayed_intervals(cell, found, (confidence_level,), interval)[0] for interval in ("default", "any-shape")
        )
    else:
        both = read_straddled(cell, straddle(cell, runs, rng), (confidence_level,))[0]
        first, other = both.any_shape, both.smooth
    first, other = (DisplayedIntervals(*map(to_units, part)) for part in (first, other))
    if declared.step is None:
        return ShownResults(first, other, np.full(runs, np.nan))
    return grid_results(first, other, Grid(declared.step), float(to_units(cell.low)), float(to_units(cell.high)))


def grid_results(
    any_shape: DisplayedIntervals, other: DisplayedIntervals, grid: Grid, lowest: float, highest: float
) -> "ShownResults":
    """The grid values that any-shape intervals leave, in units; `lowest` and `highest` are the stated range.

    >>> low, high = np.array([43.2, 43.2, -np.inf]), np.array([45.0, 43.7, 1.0])
    >>> pairs = DisplayedIntervals(high, low, high)
    >>> shown = grid_results(pairs, pairs, Grid(1.0), 0.0, 120.0)
    >>> shown.sizes.tolist(), shown.headline.low.tolist(), shown.headline.covers(44.0).tolist()
    ([2.0, nan, 2.0], [44.0, nan, 0.0], [True, False, False])
    """
    pairs = [
        grid.inside(low, high, lowest, highest)
        for low, high in zip(any_shape.low.tolist(), any_shape.high.tolist(), strict=True)
    ]
    ends = np.array([grid.ends(low, high) for low, high in pairs]).reshape(-1, 2)
    sizes = np.array([grid.count(low, high) for low, high in pairs])
    return ShownResults(DisplayedIntervals(any_shape.center, ends[:, 0], ends[:, 1]), other, sizes)


@dataclass(frozen=True)
class DefaultCell:
    """One setting: who the clients are, what is declared about their values, and the range that is stated."""

    populations: tuple[Population, ...]
    """One per client."""
    truth_rates: tuple[float, ...]
    weights: tuple[float, ...]
    records: tuple[int, ...]
    level: float
    low: float
    high: float
    value_kind: str = "any"
    scale: Literal["linear", "log"] = "linear"
    confidence_level: float = 0.95
    critical: ClassVar[None] = None
    critical_beside: ClassVar[None] = None

    def __post_init__(self) -> None:
        declaration(self.value_kind)
        if self.scale == "log" and self.low <= 0.0:
            raise InputError(f"a log scale needs a range above zero; got {self.low:g} to {self.high:g}.")
        if not self.low <= self.truth <= self.high:
            raise InputError(
                f"the range {self.low:g} to {self.high:g} does not hold the quantile of level {self.level:g}. Widen it."
            )
        self.working.plan  # noqa: B018  too few records for the design are refused here

    @cached_property
    def working(self) -> AutoCell:
        """The same on the working scale."""
        laws, ends = self.populations, (self.low, self.high)
        if self.scale == "log":
            logs = {law: LogOf(law) for law in laws}
            laws, ends = tuple(logs[law] for law in laws), (math.log(self.low), math.log(self.high))
        return AutoCell(laws, self.truth_rates, self.records, self.level, self.weights, low=ends[0], high=ends[1])

    @cached_property
    def truth(self) -> float:
        """Q*, in units."""
        return float(AutoCell(self.populations, self.truth_rates, self.records, self.level, self.weights).truth)

    @cached_property
    def bound(self) -> float:
        """The efficiency bound, in units; NaN without a density."""
        if any(isinstance(law, Empirical) for law in self.populations):
            return math.nan
        return self.working.bound * (self.truth if self.scale == "log" else 1.0)

    @property
    def updates(self) -> int:
        """Records answered in one replication, over all clients."""
        return sum(self.records)

    @cached_property
    def key(self) -> str:
        """Digest of all that decides the law of a replication."""
        plain: dict[str, Any] = {
            "populations": [plain_population(population) for population in self.populations],
            **{name: getattr(self, name) for name in ("truth_rates", "weights", "records", "level", "low", "high")},
            **{name: getattr(self, name) for name in ("value_kind", "scale")},
        }
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    def block(self, index: int, runs: int, seed: int) -> ShownResults:
        """Some of the runs, in units; a block has a stream of its own, whichever thread runs it."""
        digest = hashlib.sha256(f"{seed}:{self.key}:{index}".encode()).digest()
        rng = np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
        to_units = np.exp if self.scale == "log" else np.asarray
        return simulate_results(self.working, self.value_kind, runs, rng, self.confidence_level, to_units)

    def run(self, replications: int, seed: int, threads: int = 1) -> ShownResults:
        """All runs."""
        sizes = [min(BLOCK, replications - first) for first in range(0, replications, BLOCK)]
        with ThreadPoolExecutor(threads) as pool:
            return ShownResults.joined(
                list(pool.map(lambda item: self.block(item[0], item[1], seed), enumerate(sizes)))
            )


def summarize_default(cell: DefaultCell, shown: ShownResults) -> Summary:
    """The operating characteristics of what the results show; widths are those of the bounded intervals."""
    replications = len(shown.sizes)
    error = shown.headline.center - cell.truth
    covered, other = (float(part.covers(cell.truth).mean()) for part in (shown.headline, shown.other))
    bounded, beside = (np.isfinite(part.half_width) for part in (shown.headline, shown.other))
    widths = 2.0 * shown.headline.half_width[bounded]
    size = 2.0 * shown.other.half_width[beside]
    sizes = shown.sizes[~np.isnan(shown.sizes)]
    root = math.sqrt(replications)
    return Summary(
        replications=replications,
        truth=cell.truth,
        critical_value=math.nan,
        coverage=covered,
        coverage_error=math.sqrt(covered * (1.0 - covered)) / root,
        coverage_beside=math.nan,
        mae=float(np.abs(error).mean()),
        mae_error=float(np.abs(error).std()) / root,
        bias=float(error.mean()),
        bias_error=float(error.std()) / root,
        rmse=float(np.sqrt(np.mean(error**2))),
        width=float(np.median(widths)) if widths.size else math.inf,
        width_error=math.nan,
        bound=cell.bound,
        updates=replications * cell.updates,
        bounded=float(bounded.mean()),
        other_coverage=other,
        other_width=float(np.median(size)) if size.size else math.inf,
        values_left=float(np.median(sizes)) if sizes.size else math.nan,
    )
