"""The default designs in simulation: many runs through the code that real runs execute, scored by what they show.

A cohort's count is one binomial draw given q (its records are fresh and independent), so nothing is approximated. The
questions are those of `estimator.straddle` and `estimator.tuned`, compiled (`compiling`); what a run shows is read from
its state by `inference.read`, as for a live run. Only the loop over rounds is written here.

One entry for both declarations. Values declared continuous are asked by the tuned design and read as smooth; all others
by the straddling design, whose any-shape interval is the headline. A declared grid changes the report alone: the
headline is then the set of grid values that the any-shape interval leaves.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Flags, Floats, Ints
from privatile.core.kinds import Declaration, IntervalName, declaration
from privatile.core.mechanism import RandomizedResponse, debias, rank_noise, yes_probability
from privatile.core.scale import Identity
from privatile.errors import InputError
from privatile.estimator import straddle, tuned
from privatile.estimator.clients import Client
from privatile.estimator.plan import Averages, Records, RoundState, normalizer_of
from privatile.estimator.pools import Heard, variance_bound
from privatile.estimator.search import MAX_SEARCH_ROUNDS, compiled, copied, records_to_ask
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle import StraddleMemory, StraddlePlan
from privatile.estimator.straddle import learn as learn_straddled
from privatile.estimator.tuned import RELAXATIONS, AutoPlan
from privatile.estimator.tuned import learn as learn_tuned
from privatile.inference.any_shape import Grid
from privatile.inference.inference import Inference
from privatile.inference.reading import Reading, any_shape_of, as_displayed, read
from privatile.inference.trajectory import Trajectory
from privatile.simulation.cells import bound_at, plain_population
from privatile.simulation.compiling import column, fast, has_numba, rows_of, run_of
from privatile.simulation.engine import Summary
from privatile.simulation.populations import Empirical, LogOf, Mixture, Population

INTERVALS: tuple[IntervalName, ...] = ("default", "any-shape")

BLOCK = 500
"""Runs in memory at a time."""

WORTH_COMPILING = 50_000
"""Rounds of all runs together from which on the rules are compiled: they take half a minute once, plain 3 s."""


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
        return bound_at(self.truth, self.populations, self.shares, self.truth_rates, self.records)

    @cached_property
    def plan(self) -> AutoPlan:
        """The plan of a real run of the design for continuous values with these clients."""
        rows = zip(self.truth_rates, self.shares, self.records, strict=True)
        clients = [Client(f"c{k}", RandomizedResponse(r), p, self.level, n) for k, (r, p, n) in enumerate(rows)]
        return AutoPlan(tuple(clients), Identity(self.low, self.high), self.rounds, self.relaxations)

    @cached_property
    def straddle_plan(self) -> StraddlePlan:
        """The plan of a real run of the default design with these clients."""
        return StraddlePlan(self.plan.clients, self.plan.scale, self.rounds)

    @property
    def information(self) -> float:
        """(τ(1 − τ))²/s²."""
        return self.plan.information


class BinomialAnswers:
    """The answers of clients whose records are drawn with replacement: a cohort's count is one binomial draw."""

    def __init__(self, cell: AutoCell, rng: np.random.Generator) -> None:
        self.rng, self.rates = rng, np.array(cell.truth_rates)
        self.kinds = list(dict.fromkeys(cell.populations))
        self.which = np.array([self.kinds.index(population) for population in cell.populations])

    def counts(self, queries: Floats, lengths: Ints) -> Ints:
        """Ones of every run's clients (runs × clients) when `lengths` records of each answer."""
        ranks = ranks_at(self.kinds, queries)[:, self.which]
        return self.rng.binomial(lengths, yes_probability(self.rates, 1.0 - ranks))


def ranks_at(kinds: Sequence[Population], queries: Floats) -> Floats:
    """F of every kind of population (columns) at every run's question (rows)."""
    return np.stack([population.cdf(queries) for population in kinds], axis=1)


@compiled
def ask_all(rules: Any, runs: Any, records: Ints, left: Ints, lengths: Ints) -> None:
    """How many records of every client the next round of every run asks (runs × clients)."""
    for k in range(len(lengths)):
        for c in range(len(records)):
            lengths[k, c] = records_to_ask(runs[k].share, rules.rounds - runs[k].done, records[c], left[k, c])


@compiled
def learn_all_straddled(rules: Any, runs: Any, residuals: Floats, variances: Floats, tested: Floats) -> None:
    """One answer to every run, with the variance that the tests take for it."""
    for k in range(len(residuals)):
        heard = Heard(runs[k].query, residuals[k], tested[k], 1.0)
        learn_straddled(rules, runs[k], residuals[k], variances[k], heard)


@compiled
def learn_all_tuned(rules: Any, runs: Any, residuals: Floats, variances: Floats, tested: Floats) -> None:
    """One answer to every run."""
    for k in range(len(residuals)):
        learn_tuned(rules, runs[k], residuals[k], variances[k])


@dataclass(frozen=True, eq=False)
class SimulatedRuns:
    """What many runs of one cell gave; the first axis is runs, rounds the second."""

    cell: AutoCell
    plan: AutoPlan | StraddlePlan
    runs: Sequence[Any]
    """What they have learned in the end."""
    queries: Floats
    residuals: Floats
    noise: Floats
    """Σp_k²/(4r_k²E_k) of every round."""
    averaged: Flags
    """Rounds of the window."""
    stages: Ints
    asked: Ints
    """Records asked so far, of all clients."""
    after: Floats
    """The query after every round."""
    ones: Ints
    window: Ints
    """Runs × clients: counts over the rounds of the window, and records asked there."""

    def state(self, run: int, rounds: int | None = None) -> tuple[RoundState, Trajectory]:
        """State and path of one run after so many rounds, as a live run has them; none: in the end.

        The clients' ranks are those of the end.
        """
        done = self.queries.shape[1] if rounds is None else rounds
        clients, averaged = len(self.cell.records), self.averaged[run, :done]
        queries, residuals, noise = (part[run, :done] for part in (self.queries, self.residuals, self.noise))
        after, weights = self.after[run, :done][averaged], noise[averaged]
        learned, number, average = self.runs[run], len(after), math.nan
        step, memory = 0.0, learned
        if isinstance(self.plan, StraddlePlan):
            memory = StraddleMemory(learned, {})
        else:
            step = learned.step
        sums = Averages(center=math.nan)
        if number >= 2:
            average, total = float(after.mean()), float(weights.sum())
            spread = normalizer_of(after, weights) * total * number * number
            sums = Averages(average, number, 0.0, total, moment2=spread)
        nothing = (0,) * clients
        state = RoundState(
            round=done,
            query=float(self.after[run, done - 1]),
            means=(math.nan,) * clients,
            noise=(math.nan,) * clients,
            used=(1,) * clients,
            heard=(float(queries[-1]),) * clients,
            silent=nothing,
            ones=nothing,
            # Only their sum is known, and looked at.
            asked=(int(self.asked[run, done - 1]), *nothing[1:]),
            window_ones=tuple(self.ones[run].tolist()),
            window_asked=tuple(self.window[run].tolist()),
            records=(Records(0),) * clients,
            averages=sums,
            memory=memory,
        )
        path = np.column_stack([queries[averaged], residuals[averaged], after, weights, np.full(number, step)])
        return state, Trajectory(path.ravel(), np.column_stack([queries, residuals, noise]).ravel())

    def ends(self, confidence_level: float) -> tuple[Floats, Floats]:
        """Both ends of the any-shape interval of every straddled run; an end that is not bounded is infinite."""
        if not isinstance(self.plan, StraddlePlan):
            raise TypeError("these runs follow the quantile")
        pairs = [any_shape_of(self.plan, run).ends(confidence_level) for run in self.runs]
        low, high = np.array(pairs).T
        return low, high

    def reading(self, run: int, settings: ReportSettings, rounds: int | None = None) -> Reading:
        """What the answers of one run say."""
        return read(settings, self.plan, *self.state(run, rounds))

    def readings(self, interval: IntervalName = "default") -> list[Reading]:
        """What the answers of every run say in the end."""
        settings = replace(settings_of(self.cell, self.plan), interval=interval)
        return [self.reading(run, settings) for run in range(len(self.runs))]


def simulate(
    cell: AutoCell, plan: AutoPlan | StraddlePlan, runs: int, rng: np.random.Generator, *, answers: Any = None
) -> SimulatedRuns:
    """Run a cell `runs` times, by its plan of either design.

    `answers` has another way to answer than `BinomialAnswers`, as given people do.
    """
    answers = answers or BinomialAnswers(cell, rng)
    rules, rounds = plan.rules, plan.rules.rounds
    weights, rates, records = np.array(cell.shares), np.array(cell.truth_rates), np.array(cell.records)
    straddles = isinstance(plan, StraddlePlan)
    # Few sizes: each is compiled for itself. A tuned run has at most 20 probes besides.
    room = 2 ** max(7, math.ceil(math.log2(MAX_SEARCH_ROUNDS * rounds + 22)))
    first: Any = straddle.begin(plan.rules, room) if isinstance(plan, StraddlePlan) else tuned.begin(plan.rules, room)
    many = runs * rounds >= WORTH_COMPILING and has_numba()
    rows: Any = [copied(first) for _ in range(0 if many else runs)]
    ask, learn = ask_all, learn_all_straddled if straddles else learn_all_tuned
    if many:
        rows, ask, learn = rows_of(first, runs), fast(ask), fast(learn)
    left = np.tile(records, (runs, 1))
    lengths = np.empty_like(left)
    queries, residuals, noise, after = (np.empty((runs, rounds)) for _ in range(4))
    stages, asked = (np.empty((runs, rounds), dtype=np.int64) for _ in range(2))
    averaged = np.empty((runs, rounds), dtype=np.bool_)
    ones, window = (np.zeros(left.shape, dtype=np.int64) for _ in range(2))
    for m in range(rounds):
        ask(rules, rows, records, left, lengths)
        left -= lengths
        queries[:, m], stages[:, m] = column(rows, "query"), column(rows, "stage")
        averaged[:, m] = stages[:, m] != straddle.SEARCH if straddles else stages[:, m] == tuned.AVERAGE
        counts = answers.counts(queries[:, m], lengths)
        residual, variance = residuals[:, m], noise[:, m]
        residual[:] = debias(rates, counts / lengths) @ weights - (1.0 - cell.level)
        variance[:] = rank_noise(weights, rates, lengths).sum(axis=1)
        ones += np.where(averaged[:, m, None], counts, 0)
        window += np.where(averaged[:, m, None], lengths, 0)
        asked[:, m] = records.sum() - left.sum(axis=1)
        tested = variance
        if isinstance(plan, StraddlePlan):
            tested = variance_bound(cell.level, weights, rates, lengths, exact=plan.exact)
        learn(rules, rows, residual.copy(), variance.copy(), tested.copy())
        after[:, m] = column(rows, "query")
    learned = [run_of(row, first) for row in rows] if many else rows
    return SimulatedRuns(cell, plan, learned, queries, residuals, noise, averaged, stages, asked, after, ones, window)


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

    def covers(self, truth: float) -> NDArray[np.bool_]:
        """Which intervals hold the truth."""
        return (self.low <= truth) & (truth <= self.high)

    @property
    def half_width(self) -> Floats:
        """Half of every interval's length."""
        return (self.high - self.low) / 2.0


def settings_of(cell: AutoCell, plan: AutoPlan | StraddlePlan) -> ReportSettings:
    """The defaults of a result of a design, for a cell."""
    values = "any" if isinstance(plan, StraddlePlan) else "continuous"
    return ReportSettings("simulated values", (cell.level,), value_kind=values)


def displayed_intervals(
    found: SimulatedRuns, levels: Sequence[float] = (0.95,), readings: Sequence[Reading] | None = None
) -> "list[DisplayedIntervals]":
    """What the results of all runs show at these confidence levels; `readings` are others than the default ones."""
    settings = settings_of(found.cell, found.plan)
    readings = found.readings() if readings is None else readings
    shown = [as_displayed(reading.shown, settings, found.plan.scale) for reading in readings]
    return [DisplayedIntervals.of(shown, level) for level in levels]


class StraddledReadings(NamedTuple):
    """Both intervals of many runs at one confidence level; an end may be infinite, a result cuts it at the range."""

    any_shape: DisplayedIntervals
    """What the results show first: values declared continuous are asked by another design."""
    smooth: DisplayedIntervals
    contradicted: Flags
    """Whether the answers contradict a smooth distribution."""


def read_straddled(found: SimulatedRuns, levels: Sequence[float] = (0.95,)) -> "list[StraddledReadings]":
    """Both readings of every run at these confidence levels."""
    readings = found.readings()
    any_shape, smooth = ([getattr(one, name) for one in readings] for name in ("any_shape", "smooth"))
    contradicted = np.array([bool(one.contradiction) for one in readings])
    return [
        StraddledReadings(DisplayedIntervals.of(any_shape, level), DisplayedIntervals.of(smooth, level), contradicted)
        for level in levels
    ]


class ShownResults(NamedTuple):
    """The results of many runs at one confidence level, in units; an end that is not bounded is infinite."""

    headline: DisplayedIntervals
    """Where a grid is declared, the first and the last grid value left, cut at the range as a result cuts them; NaN
    where the answers contradict the declaration: no set is shown, so none covers."""
    other: DisplayedIntervals
    sizes: Floats
    """Grid values left; ∞ where nothing is bounded, NaN where no set is shown: no grid, or a contradicted one."""


Runs = TypeVar("Runs", bound=tuple[Any, ...])


def join_blocks(parts: Sequence[Runs]) -> Runs:
    """Several blocks of runs as one."""
    kind: Any = type(parts[0])
    columns: Any = zip(*parts, strict=True)
    joined: Runs = kind(*(join_blocks(c) if isinstance(c[0], tuple) else np.concatenate(c) for c in columns))
    return joined


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
    return join_blocks([_block(cell, declared, size, rng, confidence_level, to_units) for size in sizes])


def _block(
    cell: AutoCell,
    declared: Declaration,
    runs: int,
    rng: np.random.Generator,
    confidence_level: float,
    to_units: Callable[[Any], Any],
) -> "ShownResults":
    if declared.continuous:
        found = simulate(cell, cell.plan, runs, rng)
        first, other = (
            displayed_intervals(found, (confidence_level,), found.readings(interval))[0] for interval in INTERVALS
        )
    else:
        both = read_straddled(simulate(cell, cell.straddle_plan, runs, rng), (confidence_level,))[0]
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

    def run(self, replications: int, seed: int, threads: int = 1) -> ShownResults:
        """All runs, in units; a block has a stream of its own, whichever thread runs it."""
        to_units = np.exp if self.scale == "log" else np.asarray

        def block(first: int) -> ShownResults:
            digest = hashlib.sha256(f"{seed}:{self.key}:{first // BLOCK}".encode()).digest()
            rng = np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
            runs = min(BLOCK, replications - first)
            return simulate_results(self.working, self.value_kind, runs, rng, self.confidence_level, to_units)

        with ThreadPoolExecutor(threads) as pool:
            return join_blocks(list(pool.map(block, range(0, replications, BLOCK))))


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
