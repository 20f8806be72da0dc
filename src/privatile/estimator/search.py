"""The search for the quantile: a belief that every answer sharpens. All designs that tune themselves begin with it.

Where is the quantile, and how wide is its surrounding? The distribution near the quantile is taken for a logistic curve
on the working scale, F(q) = L((q − c)/s), with unknown centre c and spread s; the quantile is u = c + s·logit τ. A grid
over (c, log s) holds the belief. It zooms in as it sharpens, so a range of six decades costs some thirty rounds, and
zooms out again when an edge gathers weight.

No real distribution is logistic. An answer asked far from u, in logits, says less about u than the curve implies: its
variance grows by (D·F(1 − F)·|logit F − logit τ|)², D = 1/4: the curve's steepness between q and u may be off by a
quarter. The belief only places the questions; no estimate or interval is taken from it.

A function marked `compiled` uses numbers, small arrays and the attributes of a run and its parts only, and changes them
in place. Here it is plain Python. Simulations compile the same source by numba (`simulation.compiling`): their runs are
the rows of one array of records, with the same attributes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar, get_origin

import numpy as np

from privatile.core.arrays import Floats

Function = TypeVar("Function", bound=Callable[..., Any])
State = TypeVar("State")

COMPILED: list[Callable[..., Any]] = []
"""Functions that simulations compile."""


def compiled(function: Function) -> Function:
    """Mark a function as one that simulations compile; it stays as it is."""
    COMPILED.append(function)
    return function


def copied(part: State, shared: str = "") -> State:
    """A run, or a part of one, that answers to the other do not change, with room for another answer.

    What is `shared` is not copied: nothing changes it any more.
    """
    kind: Any = type(part)
    new: State = object.__new__(kind)
    values = new.__dict__
    values.update(vars(part))
    arrays, pairs, parts = _inside(kind)
    for name in arrays:
        values[name] = values[name].copy()
    for name in pairs:
        values[name] = tuple(map(copied, values[name]))
    for name in parts:
        if name != shared:
            values[name] = copied(values[name])
    if isinstance(new, Belief):
        new.make_room()
    return new


@cache
def _inside(kind: Any) -> tuple[list[str], list[str], list[str]]:
    """Names of the fields of a run, or of a part of one, that are arrays, pairs of parts, and parts."""
    types = {one.name: one.type for one in fields(kind)}
    arrays = [name for name, of in types.items() if of is Floats]
    pairs = [name for name, of in types.items() if get_origin(of) is tuple]
    return arrays, pairs, [name for name, of in types.items() if is_dataclass(of)]


CENTERS, SPREADS = 32, 8
"""Grid points: the zoom keeps a cell of the centre within half of the belief's own error."""

DISCREPANCY = 0.25
"""Relative error of the curve's steepness between a question and the quantile."""

NARROWEST, WIDEST = 1e-9, 1.0 / 3.0
"""Spreads thought possible, as shares of the range."""

TAIL = 2e-4
"""Weight that a zoom may leave outside on each side; what was cut off wrongly shows as weight on an edge."""

EDGE = 1e-3
"""Weight in an edge cell that makes the grid zoom out."""

TRIED = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Quantiles of the belief about c that are tried as the next question, beside u and one error either side of it."""

ROOM = 64
"""Answers that a new belief has room for."""

SPREAD_KNOWN = 1.0
"""A search ends only with the spread known within a factor of e."""

MAX_SEARCH_ROUNDS, MAX_SEARCH_SHARE = 0.35, 0.10
"""Where the search gives up: shares of the rounds and of the records."""


class Bounds(Protocol):
    """What the search needs of a design's rules."""

    @property
    def level(self) -> float:
        """τ."""

    @property
    def low(self) -> float:
        """The range's low end, on the working scale."""

    @property
    def high(self) -> float:
        """Its high end."""

    @property
    def boundary(self) -> float:
        """What the boundary of every decision is multiplied by; see `Plan.with_boundaries_moved`."""


@dataclass
class Belief:
    """Weights of logistic curves on a grid over (centre, log spread)."""

    box: Floats
    """The grid's ends in the centre and in the log spread."""
    queries: Floats
    residuals: Floats
    variances: Floats
    """Its answers: a grid that has moved weighs them again."""
    answers: int = 0
    logs: Floats = field(default_factory=lambda: np.zeros((CENTERS, SPREADS)))
    """Log-weights."""

    def make_room(self) -> None:
        """Room for another answer."""
        if self.answers == len(self.queries):
            for name in ("queries", "residuals", "variances"):
                setattr(self, name, np.concatenate([getattr(self, name), np.zeros(max(self.answers, ROOM))]))


class Summary(NamedTuple):
    """The belief in four numbers."""

    quantile: float
    error: float
    spread: float
    spread_error: float
    """Standard error of log s."""


def begin_belief(bounds: Bounds, room: int = ROOM) -> Belief:
    """Anywhere in the range, at any spread."""
    belief = Belief(np.zeros(4), np.zeros(room), np.zeros(room), np.zeros(room))
    forget(bounds, belief)
    return belief


@compiled
def forget(bounds: Bounds, belief: Belief) -> None:
    """As before the first answer."""
    width = bounds.high - bounds.low
    belief.box[0], belief.box[1] = bounds.low, bounds.high
    belief.box[2], belief.box[3] = math.log(width * NARROWEST), math.log(width * WIDEST)
    belief.answers = 0
    belief.logs[:, :] = 0.0


@compiled
def learn_in_search(bounds: Bounds, belief: Belief, query: float, residual: float, variance: float) -> None:
    """One answer, y = τ − F(q) + noise of a variance; an infinite one says that there was none."""
    if math.isfinite(variance):
        if belief.answers >= len(belief.queries):
            raise IndexError("the belief has no room for another answer")
        belief.queries[belief.answers] = query
        belief.residuals[belief.answers] = residual
        belief.variances[belief.answers] = variance
        belief.answers += 1
        belief.logs[:, :] = belief.logs + log_likelihood(belief.box, bounds.level, query, residual, variance)
    zoom(bounds, belief)


@compiled
def axes(box: Floats) -> tuple[Floats, Floats, float]:
    """Centres and spreads of the grid's cells, and how wide a cell is in the centre."""
    cell = (box[1] - box[0]) / CENTERS
    centers = box[0] + cell * (np.arange(CENTERS) + 0.5)
    spreads = np.exp(box[2] + (box[3] - box[2]) / SPREADS * (np.arange(SPREADS) + 0.5))
    return centers, spreads, cell


@compiled
def curves(box: Floats, query: float) -> tuple[Floats, Floats]:
    """Logits and ranks of a question under every curve of the grid."""
    centers, spreads, cell = axes(box)
    # A cell stands for all centres inside it: a curve narrower than the cell is smeared over it.
    logits = (query - centers.reshape(CENTERS, 1)) / np.hypot(spreads, 0.5 * cell)
    return logits, 0.5 * (1.0 + np.tanh(0.5 * logits))


@compiled
def logit(level: float) -> float:
    """The quantile of a logistic curve, in spreads."""
    return math.log(level / (1.0 - level))


@compiled
def discrepancy(logits: Floats, ranks: Floats, level: float) -> Floats:
    """Variance of a rank because the curve is not logistic."""
    return (DISCREPANCY * ranks * (1.0 - ranks) * (logits - logit(level))) ** 2


@compiled
def log_likelihood(box: Floats, level: float, query: float, residual: float, variance: float) -> Floats:
    """Of an answer, under every curve of the grid."""
    logits, ranks = curves(box, query)
    total = variance + discrepancy(logits, ranks, level)
    gap = residual - (level - ranks)
    return -0.5 * (gap * gap / total + np.log(total / variance))


@compiled
def weights_of(belief: Belief) -> Floats:
    """The belief, summing to one."""
    raised = np.exp(belief.logs - belief.logs.max())
    shares: Floats = raised / raised.sum()
    return shares


@compiled
def zoom(bounds: Bounds, belief: Belief) -> None:
    """Move the grid where the belief fills too little of it or leans on an edge, and weigh all answers again."""
    weights, box, width = weights_of(belief), belief.box, bounds.high - bounds.low
    narrowest, widest = math.log(width * NARROWEST), math.log(width * WIDEST)
    first, last, centers_move = fitted(weights.sum(axis=1), box[0], box[1], bounds.low, bounds.high, bounds.boundary)
    least, most, spreads_move = fitted(weights.sum(axis=0), box[2], box[3], narrowest, widest, bounds.boundary)
    if not (centers_move or spreads_move):
        return
    box[0], box[1], box[2], box[3] = first, last, least, most
    belief.logs[:, :] = 0.0
    for m in range(belief.answers):
        belief.logs[:, :] = belief.logs + log_likelihood(
            box, bounds.level, belief.queries[m], belief.residuals[m], belief.variances[m]
        )


@compiled
def fitted(
    weights: Floats, begin: float, end: float, low: float, high: float, boundary: float
) -> tuple[float, float, bool]:
    """Along one side of the grid: the ends that the belief fills well, and whether it is worth moving there.

    It moves when the belief fills less than 40% of it, or when an edge short of the range's end holds more than EDGE.
    """
    size, over = len(weights), np.cumsum(weights)
    first = (over < TAIL * boundary).sum()
    last = min((over < 1.0 - TAIL * boundary).sum(), size - 1)
    cell, filled, inside = (end - begin) / size, last - first + 1, 1e-9 * (high - low)
    lean_low = weights[0] > EDGE * boundary and begin > low + inside
    lean_high = weights[size - 1] > EDGE * boundary and end < high - inside
    margin = 1.0 + 0.4 * filled
    new_begin = max(begin + cell * (first - margin - (size if lean_low else 0)), low)
    new_end = min(begin + cell * (last + 1 + margin + (size if lean_high else 0)), high)
    # Weighing all answers again costs a pass over them: not for less than a tenth of the box.
    worth = new_end - new_begin < 0.9 * boundary * (end - begin) and filled <= 0.4 * size
    return new_begin, new_end, worth or lean_low or lean_high


@compiled
def summarize(bounds: Bounds, belief: Belief) -> Summary:
    """Mean and error of the quantile, mean and log-error of the spread.

    The spread's plain mean: while it is hardly known, the geometric one follows the narrow spreads, which nothing has
    spoken against yet, and questions placed by it would learn nothing.
    """
    weights, (centers, spreads, cell) = weights_of(belief), axes(belief.box)
    quantiles = centers.reshape(CENTERS, 1) + spreads * logit(bounds.level)
    mean = (weights * quantiles).sum()
    variance = (weights * (quantiles - mean) ** 2).sum()
    by_spread, logs = weights.sum(axis=0), np.log(spreads)
    spread_variance = (by_spread * (logs - (by_spread * logs).sum()) ** 2).sum()
    error = math.sqrt(variance + cell * cell / 12.0)
    return Summary(mean, error, (by_spread * spreads).sum(), math.sqrt(spread_variance))


@compiled
def best_question(bounds: Bounds, belief: Belief, noise: float) -> tuple[float, float]:
    """The question whose answer is expected to sharpen u most, and the belief's variance of F there.

    A linear reading of the answer lowers the variance of u by Cov(F(q), u)²/(Var F(q) + noise); `noise` is the least
    variance that an answer may have.
    """
    weights, (centers, spreads, cell) = weights_of(belief), axes(belief.box)
    quantiles = centers.reshape(CENTERS, 1) + spreads * logit(bounds.level)
    mean = (weights * quantiles).sum()
    off = quantiles - mean
    error = math.sqrt((weights * off * off).sum())
    over = np.cumsum(weights.sum(axis=1))
    tried = np.empty(len(TRIED) + 3)
    for k, share in enumerate(TRIED):
        i = min((over < share).sum(), CENTERS - 1)
        below = over[i - 1] if i > 0 else 0.0
        inside = (share - below) / max(over[i] - below, 1e-12)
        tried[k] = belief.box[0] + cell * (i + min(max(inside, 0.0), 1.0))
    tried[len(TRIED)], tried[len(TRIED) + 1], tried[len(TRIED) + 2] = mean, mean - error, mean + error
    best, query, rank_variance = -1.0, mean, 0.0
    for wanted in tried:
        place = min(max(wanted, bounds.low), bounds.high)
        logits, ranks = curves(belief.box, place)
        likely = weights * ranks
        spread = max((likely * ranks).sum() - likely.sum() ** 2, 0.0)
        doubt = (weights * discrepancy(logits, ranks, bounds.level)).sum()
        gain = (likely * off).sum() ** 2 / (spread + doubt + max(noise, spread / 1.2))
        if gain > best * (1.0001 * bounds.boundary):
            best, query, rank_variance = gain, place, spread
    return query, rank_variance


@compiled
def search_is_over(bounds: Bounds, known: Summary, located: float) -> bool:
    """Whether the quantile is placed within so many spreads, and the spread known."""
    found = known.error < located * bounds.boundary * known.spread
    return found and known.spread_error < SPREAD_KNOWN * bounds.boundary


def search_shares(noise: float, rounds: int) -> tuple[float, float]:
    """Smallest and largest share of the records in one round of the search.

    Noise of 0.4 in a rank (6s²) decides between far below and far above; few rounds need longer ones.

    >>> search_shares(0.0001, 200), search_shares(0.01, 200)
    ((0.0006000000000000001, 0.003), (0.06, 0.06))
    """
    least = max(6.0 * noise, 0.0005)
    return least, max(least, 0.003, 0.6 / rounds)


@compiled
def search_share(noise: float, doubt: float, least: float, most: float, boundary: float) -> float:
    """Share of the records to ask next: just enough that the answer's noise matches the belief's own doubt."""
    # The boundary moves it as well: how many records a share is, is rounded.
    return min(max(1.2 * boundary * noise / max(doubt, 1e-12), least), most)


@compiled
def records_to_ask(share: float, rounds_left: int, records: int, left: int) -> int:
    """Of one client that has `left` of its records: a share of all, or an even one (NaN) of those left.

    At least one, and one is left for every later round.

    >>> records_to_ask(0.1, 4, 100, 80), records_to_ask(math.nan, 4, 100, 80)
    (10, 20)
    """
    if math.isnan(share):
        return left // max(rounds_left, 1)
    return max(min(int(np.rint(share * records)), max(left - (rounds_left - 1), 1)), 1)
