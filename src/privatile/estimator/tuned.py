"""The design for values declared continuous: it follows the quantile with a step that it tunes itself.

Three stages share the records:

1. `search`: place the quantile by a belief that sharpens (module `search`), in short rounds, until its error is below
   0.8 local spreads. A round asks just enough records that the answer's noise matches the belief's own doubt.
2. `probe`: ask above and below in turn, 10% of the records, to learn slope and curvature.
3. `average`: all other records, in equal rounds, by the recursion q ← q + γ(τ − F̂(q)) with one constant step
   γ = N/(T·f), at most 1/(2f). Nothing adapts inside this window.

Unit-free throughout: σ is the local spread τ(1 − τ)/f on the working scale, s² = Σp_k²/(4r_k²n_k) the noise that is
left in a rank when every record has answered. One run, one `TunedRun`.

It lies outside Assumptions 2–3: its step depends on the number of rounds and on the answers. The evidence for it is the
coverage study (`studies/coverage`), not the paper's theorems.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from privatile.core.scale import working_range
from privatile.errors import ClientTooSmall, InputError
from privatile.estimator.clients import check_clients, pooled_noise
from privatile.estimator.plan import Ask, Plan, RoundState, drift, round_weight
from privatile.estimator.search import (
    MAX_SEARCH_ROUNDS,
    MAX_SEARCH_SHARE,
    ROOM,
    Belief,
    begin_belief,
    best_question,
    compiled,
    copied,
    learn_in_search,
    records_to_ask,
    search_is_over,
    search_share,
    search_shares,
    summarize,
)

SEARCH, PROBE, AVERAGE = 0, 1, 2
STAGES = ("search", "probe", "average")

RELAXATIONS = 30.0
"""N = f·Σγ over the window. The estimate does not depend on it to first order; more lets q wander (√(N/2) standard
errors) where the curve bends, less leaves the plain average of the path short of independent stretches."""

STABLE = 0.5
"""Largest γ·f: the recursion overshoots above 1 and diverges above 2."""

LOCATED = 0.8
"""The search ends when the belief's error of the quantile falls below this many local spreads."""

PROBE_SHARE = 0.10
"""Records for the probes. They lie near enough to be used in the fit, so little is lost."""

PROBE_REACH = 0.45
"""Probes lie this many local spreads from the centre at most: the chord's slope is then off by 2% for a log-normal's
median, 1% for a normal's, …"""

PROBE_ERRORS = 17.0
"""… and this many final standard errors: 10% of the records there know the slope within 1/(17·√0.10) = 19%, the window
adds its own 26%. Further out a density that breaks off near the quantile would bend the slope."""


class TunedRules(NamedTuple):
    """What is fixed before the first question."""

    level: float
    low: float
    high: float
    rounds: int
    noise: float
    """s²."""
    probes: int
    """Rounds of probes: an even number, a tenth of the rounds, at most 20."""
    least: float
    most: float
    """Smallest and largest share of the records in one round of the search."""
    relaxations: float = RELAXATIONS
    boundary: float = 1.0
    """What the boundary of every decision is multiplied by; see `Plan.with_boundaries_moved`."""


def tuned_rules(level: float, low: float, high: float, rounds: int, noise: float, boundary: float = 1.0) -> TunedRules:
    """The rules of a run from its level, range, number of rounds and noise s²."""
    probes = max(2, 2 * (min(20, rounds // 10) // 2))
    return TunedRules(level, low, high, rounds, noise, probes, *search_shares(noise, rounds), boundary=boundary)


@dataclass
class TunedRun:
    """All that the next question of one run depends on, and that question."""

    belief: Belief
    stage: int = SEARCH
    query: float = math.nan
    """The next question, on the working scale."""
    share: float = math.nan
    """Share of every client's records it asks; NaN in the window, whose rounds are equal."""
    done: int = 0
    """Rounds done."""
    searched: int = 0
    probed: int = 0
    center: float = math.nan
    """Centre of the current pair of probes."""
    step: float = math.nan
    """γ of the window; NaN before."""
    slope: float = math.nan
    """f as it was believed when last asked; fixed from the window's start on."""
    spent: float = 0.0
    """Share of the records spent on the search."""
    gave_up: bool = False
    """Whether the search ended before it had located the quantile."""


def begin(rules: TunedRules, room: int = ROOM) -> TunedRun:
    """A run before its first round, with its first question; `room` is that of its belief."""
    run = TunedRun(begin_belief(rules, room))
    ask(rules, run)
    return run


@compiled
def learn(rules: TunedRules, run: TunedRun, residual: float, variance: float) -> None:
    """An answer to the question asked, y = Σp_k·y_k − (1 − τ), and its variance; then the next question."""
    run.done += 1
    if run.stage == AVERAGE:
        run.query = min(max(run.query + run.step * residual, rules.low), rules.high)
        return
    learn_in_search(rules, run.belief, run.query, residual, variance)
    if run.stage == SEARCH:
        run.searched += 1
        run.spent += run.share
    else:
        run.probed += 1
    ask(rules, run)


@compiled
def ask(rules: TunedRules, run: TunedRun) -> None:
    """Decide stage, question and share of the next round of a run that is not yet averaging."""
    known = summarize(rules, run.belief)
    found = search_is_over(rules, known, LOCATED)
    out_of_rounds = run.searched >= MAX_SEARCH_ROUNDS * rules.rounds
    if run.stage == SEARCH and (found or out_of_rounds or run.spent >= MAX_SEARCH_SHARE * rules.boundary):
        run.stage = PROBE
    if run.stage == PROBE and run.probed >= rules.probes:
        run.stage = AVERAGE
        run.gave_up = not found
    query = known.quantile
    run.slope = rules.level * (1.0 - rules.level) / known.spread
    run.share = math.nan
    if run.stage == SEARCH:
        query, doubt = best_question(rules, run.belief, rules.noise / rules.most)
        run.share = search_share(rules.noise, doubt, rules.least, rules.most, rules.boundary)
    elif run.stage == PROBE:
        reach = min(PROBE_REACH * known.spread, PROBE_ERRORS * math.sqrt(rules.noise) / run.slope)
        above = run.probed % 2 == 0
        run.center = known.quantile if above else run.center
        query = run.center + (reach if above else -reach)
        run.share = PROBE_SHARE / rules.probes
    else:
        run.step = min(rules.relaxations / max(rules.rounds - run.done, 1), STABLE) / run.slope
    run.query = min(max(query, rules.low), rules.high)


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

MIN_ROUNDS = 20
"""Half of them place the quantile and probe; fewer leave nothing to average."""

MIN_RECORDS = 4
"""Records per round of the smallest client where the design may choose: with fewer the search costs whole percents."""

SUPPORTED = 150.0
"""Least information (τ(1 − τ))²/Σ(p_k²/4r_k²n_k) for which the study validates the smooth interval. Below it only the
any-shape interval is shown."""


def supported(have: float) -> bool:
    """Whether the smooth interval is validated with this information; the tolerance keeps rounding from deciding."""
    return have >= SUPPORTED * (1.0 - 1e-9)


def chosen_rounds(wanted: int | None, smallest: int, whose: str = "") -> int:
    """The rounds asked for, or as many of 200 as the smallest client can fill with four records each.

    >>> chosen_rounds(None, 10_000), chosen_rounds(None, 240), chosen_rounds(50, 100)
    (200, 60, 50)
    """
    if smallest < MIN_ROUNDS:
        rule = f"design auto needs at least {MIN_ROUNDS} records at every client, for each level; "
        if not whose:
            raise InputError(f"{rule}there are {smallest}. Ask more people.")
        cure = "Leave it out, or merge it with another: both change whose quantile it is."
        raise ClientTooSmall(f"{rule}{whose} has {smallest}.", whose, cure)
    if wanted is None:
        return min(ROUNDS, max(smallest // MIN_RECORDS, min(smallest, 2 * MIN_ROUNDS)))
    if not MIN_ROUNDS <= wanted <= smallest:
        raise InputError(
            f"rounds must be at least {MIN_ROUNDS} for design auto (design='rounds' takes fewer) and at most the "
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

    @property
    def information(self) -> float:
        """How much the records can say at this level."""
        return information(self.level, pooled_noise(self.clients))


@dataclass(frozen=True, eq=False)
class AutoPlan(SelfTuningPlan):
    """Search, probe, average, as the plan of a run."""

    relaxations: float = RELAXATIONS
    """N of the window; a study may vary it."""

    @cached_property
    def rules(self) -> TunedRules:
        """The rules, with this run's numbers."""
        low, high = working_range(self.scale)
        boundary = 1.0 + self.boundary_shift
        rules = tuned_rules(self.level, low, high, self.rounds, pooled_noise(self.clients), boundary)
        return rules._replace(relaxations=self.relaxations)

    @property
    def start(self) -> float:
        """The first question: the middle of the range, where a flat belief asks first."""
        return begin(self.rules).query

    def initial_memory(self) -> TunedRun:
        """Nothing learned, nothing asked."""
        return begin(self.rules)

    def ask(self, state: RoundState) -> Ask | None:
        """The next question, asked of its share of every client's records."""
        if state.round >= self.rounds:
            return None
        run, left = tuned_run(state), self.rounds - state.round
        rows = zip(self.clients, state.records, strict=True)
        lengths = tuple(records_to_ask(run.share, left, client.records, one.left) for client, one in rows)
        averaged = run.stage == AVERAGE
        return Ask(float(run.query), lengths, run.step if averaged else 0.0, averaged, STAGES[run.stage])

    def learn(self, ask: Ask, state: RoundState) -> TunedRun:
        """The belief after a round."""
        run = tuned_run(state)
        run = copied(run, shared="belief" if run.stage == AVERAGE else "")
        # What was asked counts: in a replay it may differ from this machine's own question in the last bits.
        run.query, run.step = ask.query, ask.step if ask.averaged else run.step
        learn(self.rules, run, drift(state, self), round_weight(state))
        return run

    def standard_error(self, state: RoundState, ask: Ask) -> float:
        """The belief's own error of the quantile; in the window, whose step is fixed, the run's final error s/f."""
        run = tuned_run(state)
        return math.sqrt(self.rules.noise) / run.slope if ask.averaged else summarize(self.rules, run.belief).error


def tuned_run(state: RoundState) -> TunedRun:
    """What a run of this design has learned."""
    if not isinstance(state.memory, TunedRun):
        raise TypeError("this run does not follow design auto")
    return state.memory
