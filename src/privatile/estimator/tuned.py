"""The design for values declared continuous: it follows the quantile with a step that it tunes itself.

The default design as a pure policy: the answers so far in, the next question out.

Three stages share the records:

1. `search`: place the quantile by a belief that sharpens (`search_belief`), in short rounds, until its error is below
   0.8 local spreads. A round asks just enough records that the answer's noise matches the belief's own doubt.
2. `probe`: ask above and below in turn, 10% of the records, to learn slope and curvature.
3. `average`: all other records, in equal rounds, by the recursion q ← q + γ(τ − F̂(q)) with one constant step
   γ = N/(T·f), at most 1/(2f). Nothing adapts inside this window.

Unit-free throughout: σ is the local spread τ(1 − τ)/f on the working scale, s² = Σp_k²/(4r_k²n_k) the noise that is
left in a rank when every record has answered. The arrays have a leading axis of runs.

The default design: a plan that tunes itself (`question_policy`, for one run).

It lies outside Assumptions 2–3: its step depends on the number of rounds and on the answers. The evidence for it is the
coverage study (`studies/coverage`), not the paper's theorems.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, Ints, array_namespace
from privatile.core.scale import working_range
from privatile.errors import ClientTooSmall, InputError
from privatile.estimator import search
from privatile.estimator.clients import check_clients, pooled_noise
from privatile.estimator.plan import Ask, Plan, RoundState, drift, round_weight
from privatile.estimator.search import Belief
from privatile.estimator.window import put_values

SEARCH, PROBE, AVERAGE = 0, 1, 2
STAGES = ("search", "probe", "average")

RELAXATIONS = 30.0
"""N = f·Σγ over the window. The estimate does not depend on it to first order; more lets q wander (√(N/2) standard
errors) where the curve bends, less leaves the plain average of the path short of independent stretches."""

STABLE = 0.5
"""Largest γ·f: the recursion overshoots above 1 and diverges above 2."""

LOCATED = 0.8
"""The search ends when the belief's error of the quantile falls below this many local spreads, …"""

SPREAD_KNOWN = 1.0
"""… and the spread is known within a factor of e."""

PROBE_SHARE = 0.10
"""Records for the probes. They lie near enough to be used in the fit, so little is lost."""

PROBE_REACH = 0.45
"""Probes lie this many local spreads from the centre at most: the chord's slope is then off by 2% for a log-normal's
median, 1% for a normal's, …"""

PROBE_ERRORS = 17.0
"""… and this many final standard errors: 10% of the records there know the slope within 1/(17·√0.10) = 19%, the window
adds its own 26%. Further out a density that breaks off near the quantile would bend the slope."""

LARGEST_SEARCH_ROUNDS = 0.35
LARGEST_SEARCH_SHARE = 0.10
"""Where the search gives up: shares of the rounds and of the records."""


class Tuning(NamedTuple):
    """The state of the policy, one row per run: all that the next question depends on."""

    belief: Belief
    stage: Ints
    done: Ints
    """Rounds done."""
    searched: Ints
    probed: Ints
    center: Floats
    """Centre of the current pair of probes."""
    query: Floats
    """The next question, on the working scale."""
    share: Floats
    """Share of every client's records it asks; NaN in the window, whose rounds are equal."""
    step: Floats
    """γ of the window; NaN before."""
    slope: Floats
    """f as it was believed when last asked; fixed from the window's start on."""
    spent: Floats
    """Share of the records spent on the search."""
    gave_up: NDArray[np.bool_]
    """Whether the search ended before it had located the quantile."""


@dataclass(frozen=True)
class QuestionPolicy:
    """The rules of the three stages, for a level, a range, a number of rounds and the noise s² of `pooled_noise`."""

    level: float
    low: float
    high: float
    rounds: int
    noise: float
    relaxations: float = RELAXATIONS
    boundary_shift: float = 0.0
    """Share by which the boundary of every decision is moved; see `Plan.with_boundaries_moved`."""

    @property
    def probes(self) -> int:
        """Rounds of probes: an even number, a tenth of the rounds, at most 20."""
        return max(2, 2 * (min(20, self.rounds // 10) // 2))

    @property
    def shares(self) -> tuple[float, float]:
        """Smallest and largest share of the records in one round of the search."""
        return search_shares(self.noise, self.rounds)

    def begin(self, runs: int = 1, xp: Any = np) -> Tuning:
        """Before the first round; `xp` is the library of the arrays."""
        none, whole = xp.full(runs, math.nan), xp.zeros(runs, dtype=xp.int64)
        tuning = Tuning(
            search.begin(self.level, self.low, self.high, runs, xp),
            *(whole, whole, whole, whole),
            *(none, none, none, none, none),
            xp.zeros(runs),
            xp.zeros(runs, dtype=xp.bool_),
        )
        return self._ask(tuning)

    def learn(self, tuning: Tuning, residuals: Floats, variances: Floats) -> Tuning:
        """Answers to the questions asked: y = Σp_k·y_k − (1 − τ) and their variances; then the next questions."""
        xp = array_namespace(residuals)
        searching, probing = tuning.stage == SEARCH, tuning.stage == PROBE
        averaging = tuning.stage == AVERAGE
        belief = tuning.belief
        active = xp.flatnonzero(~averaging)
        if len(active):
            newer = search.learn(
                belief.take(active), tuning.query[active], residuals[active], variances[active], self.boundary_shift
            )
            belief = belief.put(active, newer)
        moved = xp.clip(tuning.query + xp.where(averaging, tuning.step, 0.0) * residuals, self.low, self.high)
        return self._ask(
            tuning._replace(
                belief=belief,
                done=tuning.done + 1,
                searched=tuning.searched + searching,
                probed=tuning.probed + probing,
                query=xp.where(averaging, moved, tuning.query),
                spent=tuning.spent + xp.where(searching, tuning.share, 0.0),
            )
        )

    def _ask(self, tuning: Tuning) -> Tuning:
        """Decide stage, question and share of the next round, for the runs that are not yet averaging."""
        xp = array_namespace(tuning.query)
        runs = xp.flatnonzero(tuning.stage != AVERAGE)
        if not len(runs):
            return tuning
        belief = tuning.belief.take(runs)
        known = search.summarize(belief)
        slope = self.level * (1.0 - self.level) / known.spread
        boundary = 1.0 + self.boundary_shift
        found = (known.error < LOCATED * boundary * known.spread) & (known.spread_error < SPREAD_KNOWN * boundary)
        out = (tuning.searched[runs] >= LARGEST_SEARCH_ROUNDS * self.rounds) | (
            tuning.spent[runs] >= LARGEST_SEARCH_SHARE * boundary
        )
        stage, probed = tuning.stage[runs], tuning.probed[runs]
        stage = xp.where((stage == SEARCH) & (found | out), PROBE, stage)
        stage = xp.where((stage == PROBE) & (probed >= self.probes), AVERAGE, stage)

        reach = xp.minimum(PROBE_REACH * known.spread, PROBE_ERRORS * math.sqrt(self.noise) / slope)
        above = probed % 2 == 0
        center = xp.where(above, known.quantile, tuning.center[runs])
        query = xp.where(stage == PROBE, center + xp.where(above, reach, -reach), known.quantile)
        share = xp.where(stage == PROBE, PROBE_SHARE / self.probes, math.nan)
        seeking = xp.flatnonzero(stage == SEARCH)
        if len(seeking):
            least, most = self.shares
            query[seeking], doubt = search.best_question(belief.take(seeking), self.noise / most, self.boundary_shift)
            # Moved as well: how many records a share is, is rounded.
            share[seeking] = xp.clip(1.2 * boundary * self.noise / xp.maximum(doubt, 1e-12), least, most)
        left = xp.maximum(self.rounds - tuning.done[runs], 1)
        step = xp.where(stage == AVERAGE, xp.minimum(self.relaxations / left, STABLE) / slope, math.nan)
        return tuning._replace(
            stage=put_values(tuning.stage, runs, stage),
            center=put_values(tuning.center, runs, center),
            query=put_values(tuning.query, runs, xp.clip(query, self.low, self.high)),
            share=put_values(tuning.share, runs, share),
            step=put_values(tuning.step, runs, step),
            slope=put_values(tuning.slope, runs, slope),
            gave_up=put_values(tuning.gave_up, runs, (stage == AVERAGE) & ~found),
        )

    def lengths(self, tuning: Tuning, records: Ints, left: Ints) -> Ints:
        """Records to ask of every client (runs × clients), at least one, leaving one for every later round."""
        return round_lengths(tuning.share, tuning.stage == AVERAGE, self.rounds - tuning.done, records, left)


def search_shares(noise: float, rounds: int) -> tuple[float, float]:
    """Smallest and largest share of the records in one round of the search.

    Noise of 0.4 in a rank (6s²) decides between far below and far above; few rounds need longer ones.

    >>> search_shares(0.0001, 200), search_shares(0.01, 200)
    ((0.0006000000000000001, 0.003), (0.06, 0.06))
    """
    least = max(6.0 * noise, 0.0005)
    return least, max(least, 0.003, 0.6 / rounds)


def round_lengths(share: Floats, evenly: NDArray[np.bool_], rounds_left: Ints, records: Ints, left: Ints) -> Ints:
    """Records to ask of every client (runs × clients): a share of all, or those that are left, spread `evenly`.

    At least one of each, and one is left for every later round.

    >>> runs = (np.array([0.1, 0.1]), np.array([False, True]), np.array([4, 4]), np.array([[100], [100]]))
    >>> round_lengths(*runs, np.array([[80], [80]])).tolist()
    [[10], [20]]
    """
    xp = array_namespace(left)
    rest = rounds_left[:, None]
    even = left // xp.maximum(rest, 1)
    wanted = xp.where(xp.isnan(share), 0.0, share)[:, None]
    short = xp.clip(xp.rint(wanted * records).astype(xp.int64), 1, xp.maximum(left - (rest - 1), 1))
    lengths: Ints = xp.where(evenly[:, None], even, short)
    return lengths


def probe_reach(level: float, noise: float, slope: float) -> float:
    """How far from the quantile the probes lie, on the working scale; anywhere where no slope is known.

    >>> round(probe_reach(0.5, 0.01, 2.0), 3), probe_reach(0.5, 0.01, 0.0)
    (0.056, inf)
    """
    if slope <= 0.0:
        return math.inf
    return min(PROBE_REACH * level * (1.0 - level), PROBE_ERRORS * math.sqrt(noise)) / slope


def information(level: float, noise: float) -> float:
    """(τ(1 − τ))²/s², s² = Σp_k²/(4r_k²n_k): how many local spreads to a standard error, squared.

    >>> round(information(0.5, 1 / (4 * 0.25 * 10_000)))  # one client, r = 0.5, 10,000 records
    625
    """
    return (level * (1.0 - level)) ** 2 / noise


ROUNDS = 200
"""Rounds when none are asked for: 10,000 would lower the error by less than 3%."""

FEWEST_ROUNDS = 20
"""Half of them place the quantile and probe; fewer leave nothing to average."""

SHORTEST = 4
"""Records per round of the smallest client where the design may choose: with fewer the search costs whole percents."""

SUPPORTED = 150.0
"""Least information (τ(1 − τ))²/Σ(p_k²/4r_k²n_k) for which the study validates the smooth interval. Below it only the
any-shape interval is shown."""


def supported(have: float) -> bool:
    """Whether the smooth interval is validated with this information; the tolerance keeps rounding from deciding."""
    return have >= SUPPORTED * (1.0 - 1e-9)


class Memory(NamedTuple):
    """What a run of this design has learned."""

    tuning: Tuning


def chosen_rounds(wanted: int | None, smallest: int, whose: str = "") -> int:
    """The rounds asked for, or as many of 200 as the smallest client can fill with four records each.

    >>> chosen_rounds(None, 10_000), chosen_rounds(None, 240), chosen_rounds(50, 100)
    (200, 60, 50)
    """
    if smallest < FEWEST_ROUNDS:
        rule = f"design auto needs at least {FEWEST_ROUNDS} records at every client, for each level; "
        if not whose:
            raise InputError(f"{rule}there are {smallest}. Ask more people.")
        cure = "Leave it out, or merge it with another: both change whose quantile it is."
        raise ClientTooSmall(f"{rule}{whose} has {smallest}.", whose, cure)
    if wanted is None:
        return min(ROUNDS, max(smallest // SHORTEST, min(smallest, 2 * FEWEST_ROUNDS)))
    if not FEWEST_ROUNDS <= wanted <= smallest:
        raise InputError(
            f"rounds must be at least {FEWEST_ROUNDS} for design auto (design='rounds' takes fewer) and at most the "
            f"number of records of the smallest client, {smallest}; got {wanted}. Ask for fewer or more rounds."
        )
    return wanted


@dataclass(frozen=True, eq=False)
class SelfTuningPlan(Plan):
    """A plan that chooses the number of rounds, unless one is wanted, and asks cohorts."""

    wanted: int | None = None

    def __post_init__(self) -> None:
        check_clients(self.clients)
        if self.mode != "cohort":
            raise InputError("design auto asks cohorts: leave out mode='local', or take another design.")
        self.rounds  # noqa: B018  a number of rounds that does not fit is refused here

    @cached_property
    def rounds(self) -> int:
        """How many rounds there are."""
        smallest = min(self.clients, key=lambda client: client.records)
        return chosen_rounds(self.wanted, smallest.records, smallest.held_by if len(self.clients) > 1 else "")


@dataclass(frozen=True, eq=False)
class AutoPlan(SelfTuningPlan):
    """Search, probe, average: see `QuestionPolicy`."""

    @cached_property
    def policy(self) -> QuestionPolicy:
        """The rules, with this run's numbers."""
        low, high = working_range(self.scale)
        return QuestionPolicy(
            self.level, low, high, self.rounds, pooled_noise(self.clients), boundary_shift=self.boundary_shift
        )

    @property
    def start(self) -> float:
        """The first question: the middle of the range, where a flat belief asks first."""
        return float(self.policy.begin().query[0])

    @property
    def information(self) -> float:
        """How much the records can say at this level; see `information`."""
        return information(self.level, self.policy.noise)

    def initial_memory(self) -> Memory:
        """Nothing learned, nothing asked."""
        return Memory(self.policy.begin())

    def ask(self, state: RoundState) -> Ask | None:
        """The policy's next question, asked of its share of every client's records."""
        if state.round >= self.rounds:
            return None
        tuning = memory_of(state).tuning
        records = np.array([client.records for client in self.clients])
        lengths = self.policy.lengths(tuning, records, np.array([[one.left for one in state.records]]))[0]
        averaged = bool(tuning.stage[0] == AVERAGE)
        return Ask(
            query=float(tuning.query[0]),
            lengths=tuple(lengths.tolist()),
            step=float(tuning.step[0]) if averaged else 0.0,
            averaged=averaged,
            stage=STAGES[int(tuning.stage[0])],
        )

    def learn(self, ask: Ask, state: RoundState) -> Memory:
        """The belief after a round."""
        tuning = memory_of(state).tuning
        # What was asked counts: in a replay it may differ from this machine's own question in the last bits.
        step = np.array([ask.step]) if ask.averaged else tuning.step
        tuning = tuning._replace(query=np.array([ask.query]), step=step)
        return Memory(self.policy.learn(tuning, np.array([drift(state, self)]), np.array([round_weight(state)])))

    def standard_error(self, state: RoundState, ask: Ask) -> float:
        """The belief's own error of the quantile; in the window, whose step is fixed, the run's final error s/f."""
        tuning = memory_of(state).tuning
        if ask.averaged:
            return math.sqrt(self.policy.noise) / float(tuning.slope[0])
        return float(search.summarize(tuning.belief).error[0])


def memory_of(state: RoundState) -> Memory:
    """The memory of a run of this design."""
    if not isinstance(state.memory, Memory):
        raise TypeError("this run does not follow design auto")
    return state.memory
