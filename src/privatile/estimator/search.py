"""The search for the quantile: a belief that every answer sharpens, and where pooled answers change sign.

Between which places the answers change sign, for any distribution: a falling step function through them.

τ − F never rises. The falling function nearest to the answers (pool adjacent violators) is

    μ_i = min over a ≤ i of max over b ≥ i of the mean answer from a to b

and is constant on stretches. A stretch whose pooled answer is z ≥ 2.5 standard errors above zero lies below the
quantile, one at z ≤ −2.5 above it. This places questions; it is no test. Every array has a leading axis of runs.

Where is the quantile, and how wide is its surrounding? A belief that every answer sharpens.

The distribution near the quantile is taken for a logistic curve on the working scale, F(q) = L((q − c)/s), with unknown
centre c and spread s; the quantile is u = c + s·logit τ. A grid over (c, log s) holds the belief. It zooms in as it
sharpens, so a range of six decades costs some thirty rounds, and zooms out again when an edge gathers weight.

No real distribution is logistic. An answer asked far from u, in logits, says less about u than the curve implies: its
variance grows by (D·F(1 − F)·|logit F − logit τ|)², D = 1/4: the curve's steepness between q and u may be off by a
quarter. The belief only places the questions; no estimate or interval is taken from it.

Every array has a leading axis of runs, so that the study of thousands of runs executes this very code.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, array_namespace

ALIKE = 1e-12
"""Places closer than this share of the largest are one place."""

CERTAIN = 2.5
"""Standard errors of a stretch's pooled answer that tell its side."""


def sign_change(places: Floats, sums: Floats, precisions: Floats, z: float = CERTAIN) -> tuple[Floats, Floats]:
    """The last place certainly below the quantile (−∞: none) and the first certainly above (∞: none).

    Runs × places: the question, Σp·y and Σp of its answers; a place without answers has precision 0.

    >>> import numpy as np
    >>> asked, answers = np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([[0.3, 0.2, 0.25, -0.5]])
    >>> [float(end[0]) for end in sign_change(asked, 100 * answers, np.full((1, 4), 100.0))]
    [3.0, 4.0]
    """
    xp = array_namespace(places)
    places = xp.where(precisions > 0.0, places, xp.inf)
    order = xp.argsort(places, axis=1)
    places, sums, precisions = (xp.take_along_axis(values, order, axis=1) for values in (places, sums, precisions))
    filled = precisions > 0.0
    used = max(int(filled.sum(axis=1).max()), 1)
    places, sums, precisions, filled = places[:, :used], sums[:, :used], precisions[:, :used], filled[:, :used]
    sums, precisions = _merged(xp, places, sums, precisions, filled)
    filled &= precisions > 0.0
    level = _falling_fit(xp, sums, precisions)
    same = level[:, :, None] == level[:, None, :]
    weight = xp.where(same, precisions[:, None, :], 0.0).sum(axis=2)
    score = xp.where(filled, level, 0.0) * xp.sqrt(weight)
    low = xp.where(filled & (score >= z), places, -xp.inf).max(axis=1)
    high = xp.where(filled & (score <= -z), places, xp.inf).min(axis=1)
    return low, high


def _merged(xp: Any, places: Floats, sums: Floats, precisions: Floats, filled: Any) -> tuple[Floats, Floats]:
    """Answers to one question asked at several times go to its first place; `ALIKE` forgives a place's last bits."""
    known = xp.where(filled, places, 0.0)
    close = ALIKE * (xp.abs(known).max(axis=1) + 1e-300)
    neighbours = (xp.abs(known[:, 1:] - known[:, :-1]) <= close[:, None]) & filled[:, 1:]
    chosen = xp.flatnonzero(neighbours.any(axis=1))
    if not len(chosen):
        return sums, precisions
    known, filled = known[chosen], filled[chosen]
    gap = xp.abs(known[:, :, None] - known[:, None, :])
    same = (gap <= close[chosen, None, None]) & filled[:, :, None] & filled[:, None, :]
    first = xp.argmax(same, axis=2) == xp.arange(known.shape[1])
    merged = []
    for values in (sums, precisions):
        total = xp.where(same, values[chosen][:, None, :], 0.0).sum(axis=2)
        values = values.copy()
        values[chosen] = xp.where(first & filled, total, 0.0)
        merged.append(values)
    return merged[0], merged[1]


def _falling_fit(xp: Any, sums: Floats, precisions: Floats) -> Floats:
    """μ of every place, by the formula above; a place without answers takes part in no mean."""
    runs, count = sums.shape
    nothing = xp.zeros((runs, 1))
    total = xp.concatenate([nothing, xp.cumsum(sums, axis=1)], axis=1)
    weight = xp.concatenate([nothing, xp.cumsum(precisions, axis=1)], axis=1)
    # Rows a, columns b: the mean answer from place a to place b.
    mass = weight[:, None, 1:] - weight[:, :-1, None]
    means = (total[:, None, 1:] - total[:, :-1, None]) / xp.where(mass > 0.0, mass, 1.0)
    places = xp.arange(count)
    means = xp.where((places[:, None] <= places[None, :]) & (mass > 0.0), means, -xp.inf)
    levels: Floats = xp.empty((runs, count))
    highest = xp.full((runs, count), -xp.inf)
    for i in range(count - 1, -1, -1):
        highest = xp.maximum(highest, means[:, :, i])
        levels[:, i] = highest[:, : i + 1].min(axis=1)
    return levels


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

CANDIDATES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Quantiles of the belief about c that are tried as the next question, beside u and one error either side of it."""


class Belief(NamedTuple):
    """What has been learned, one row per run."""

    level: float
    low: float
    high: float
    boxes: Floats
    """Runs × 4: the grid's ends in c and in log s."""
    queries: Floats
    residuals: Floats
    variances: Floats
    """Runs × answers so far; an infinite variance marks an answer that is none."""
    logs: Floats
    """Runs × centres × spreads: log-weights."""

    @property
    def weights(self) -> Floats:
        """The belief, summing to one in each run."""
        xp = array_namespace(self.logs)
        raised = xp.exp(self.logs - self.logs.max(axis=(1, 2), keepdims=True))
        shares: Floats = raised / raised.sum(axis=(1, 2), keepdims=True)
        return shares

    def take(self, runs: NDArray[np.int64]) -> "Belief":
        """Some of the runs."""
        return self._replace(**{name: getattr(self, name)[runs] for name in _BY_RUN})

    def put(self, runs: NDArray[np.int64], newer: "Belief") -> "Belief":
        """The same with some runs one answer further; the others get an answer that is none."""
        xp = array_namespace(self.boxes)
        if len(runs) == len(self.boxes):
            return newer
        boxes, logs = self.boxes.copy(), self.logs.copy()
        boxes[runs], logs[runs] = newer.boxes, newer.logs

        def joined(name: str, absent: float) -> Floats:
            column = xp.full(len(self.boxes), absent)
            column[runs] = getattr(newer, name)[:, -1]
            answers: Floats = xp.column_stack([getattr(self, name), column])
            return answers

        answers = (joined("queries", 0.0), joined("residuals", 0.0), joined("variances", math.inf))
        return Belief(self.level, self.low, self.high, boxes, *answers, logs)

    def forgotten(self, runs: NDArray[np.int64]) -> "Belief":
        """The same with some runs as before their first answer."""
        boxes, logs, variances = self.boxes.copy(), self.logs.copy(), self.variances.copy()
        fresh = begin(self.level, self.low, self.high, len(runs), array_namespace(self.boxes))
        boxes[runs], logs[runs], variances[runs] = fresh.boxes, fresh.logs, math.inf
        return self._replace(boxes=boxes, logs=logs, variances=variances)


_BY_RUN = ("boxes", "queries", "residuals", "variances", "logs")


class Summary(NamedTuple):
    """The belief in four numbers per run."""

    quantile: Floats
    error: Floats
    spread: Floats
    spread_error: Floats
    """Standard error of log s."""


def begin(level: float, low: float, high: float, runs: int = 1, xp: Any = np) -> "Belief":
    """Anywhere in the range, at any spread; `xp` is the library of the arrays."""
    width = high - low
    box = xp.array([low, high, math.log(width * NARROWEST), math.log(width * WIDEST)])
    nothing = xp.zeros((runs, 0))
    flat = xp.zeros((runs, CENTERS, SPREADS))
    return Belief(level, low, high, xp.tile(box, (runs, 1)), nothing, nothing, nothing, flat)


def learn(
    belief: "Belief", queries: Floats, residuals: Floats, variances: Floats, boundary_shift: float = 0.0
) -> "Belief":
    """One answer per run: y = τ − F(q) + noise of the given variance.

    `boundary_shift` moves the boundary of every decision by a share of it (`Plan.with_boundaries_moved`), here and in
    `best_question`.
    """
    xp = array_namespace(queries)
    added = belief._replace(
        queries=xp.column_stack([belief.queries, queries]),
        residuals=xp.column_stack([belief.residuals, residuals]),
        variances=xp.column_stack([belief.variances, variances]),
        logs=belief.logs + _log_likelihood(belief.boxes, belief.level, queries, residuals, variances),
    )
    return _zoom(added, boundary_shift)


def _axes(boxes: Floats) -> tuple[Floats, Floats, Floats]:
    """Centres and spreads of the grid's cells, and the spreads widened by half a cell of the centre."""
    xp = array_namespace(boxes)
    cell = (boxes[:, 1] - boxes[:, 0]) / CENTERS
    centers = boxes[:, :1] + cell[:, None] * (xp.arange(CENTERS) + 0.5)
    spreads = xp.exp(boxes[:, 2:3] + ((boxes[:, 3] - boxes[:, 2]) / SPREADS)[:, None] * (xp.arange(SPREADS) + 0.5))
    # A cell stands for all centres inside it: a curve narrower than the cell is smeared over it.
    return centers, spreads, xp.hypot(spreads, 0.5 * cell[:, None])


def _curve(boxes: Floats, queries: Floats) -> tuple[Floats, Floats]:
    """Logits and ranks of the questions under every grid point."""
    xp = array_namespace(boxes)
    centers, _, smeared = _axes(boxes)
    logits = (queries[:, None, None] - centers[:, :, None]) / smeared[:, None, :]
    return logits, 0.5 * (1.0 + xp.tanh(0.5 * logits))


def _logit(level: float) -> float:
    return math.log(level / (1.0 - level))


def _discrepancy(logits: Floats, ranks: Floats, level: float) -> Floats:
    result: Floats = (DISCREPANCY * ranks * (1.0 - ranks) * (logits - _logit(level))) ** 2
    return result


def _log_likelihood(boxes: Floats, level: float, queries: Floats, residuals: Floats, variances: Floats) -> Floats:
    xp = array_namespace(boxes)
    real = xp.isfinite(variances)
    if not real.any():
        nothing: Floats = xp.zeros((len(boxes), CENTERS, SPREADS))
        return nothing
    noise = xp.where(real, variances, 1.0)[:, None, None]
    logits, ranks = _curve(boxes, xp.where(real, queries, 0.0))
    variance = noise + _discrepancy(logits, ranks, level)
    gap = residuals[:, None, None] - (level - ranks)
    logs: Floats = xp.where(real[:, None, None], -0.5 * (gap * gap / variance + xp.log(variance / noise)), 0.0)
    return logs


def _zoom(belief: "Belief", boundary_shift: float) -> "Belief":
    """Move the grid where the belief fills too little of it or leans on an edge, and weigh all answers again."""
    xp = array_namespace(belief.boxes)
    weights, boxes = belief.weights, belief.boxes
    width = belief.high - belief.low
    center_box, center_moves = _fitted(weights.sum(axis=2), boxes[:, :2], belief.low, belief.high, boundary_shift)
    ends = math.log(width * NARROWEST), math.log(width * WIDEST)
    spread_box, spread_moves = _fitted(weights.sum(axis=1), boxes[:, 2:], *ends, boundary_shift)
    chosen = xp.flatnonzero(center_moves | spread_moves)
    if not len(chosen):
        return belief
    new_boxes, logs = boxes.copy(), belief.logs.copy()
    new_boxes[chosen] = xp.column_stack([center_box, spread_box])[chosen]
    chosen_boxes = new_boxes[chosen]
    total = xp.zeros((len(chosen), CENTERS, SPREADS))
    for m in range(belief.queries.shape[1]):
        answers = (belief.queries[chosen, m], belief.residuals[chosen, m], belief.variances[chosen, m])
        total += _log_likelihood(chosen_boxes, belief.level, *answers)
    logs[chosen] = total
    return belief._replace(boxes=new_boxes, logs=logs)


def _fitted(
    weights: Floats, box: Floats, low: float, high: float, boundary_shift: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """Along one side of the grid: the box that the belief fills well, and whether it is worth moving to.

    It moves when the belief fills less than 40% of it, or when an edge short of the range's end holds more than EDGE.
    """
    xp = array_namespace(box)
    size = weights.shape[1]
    over = weights.cumsum(axis=1)
    moved = 1.0 + boundary_shift
    first = (over < TAIL * moved).sum(axis=1)
    last = xp.minimum((over < 1.0 - TAIL * moved).sum(axis=1), size - 1)
    cell = (box[:, 1] - box[:, 0]) / size
    filled = last - first + 1
    inside = 1e-9 * (high - low)
    lean_low = (weights[:, 0] > EDGE * moved) & (box[:, 0] > low + inside)
    lean_high = (weights[:, -1] > EDGE * moved) & (box[:, 1] < high - inside)
    margin = 1.0 + 0.4 * filled
    start = xp.maximum(box[:, 0] + cell * (first - margin - xp.where(lean_low, size, 0)), low)
    end = xp.minimum(box[:, 0] + cell * (last + 1 + margin + xp.where(lean_high, size, 0)), high)
    # Weighing all answers again costs a pass over them: not for less than a tenth of the box.
    worth = (end - start < 0.9 * moved * (box[:, 1] - box[:, 0])) & (filled <= 0.4 * size)
    return xp.column_stack([start, end]), worth | lean_low | lean_high


def summarize(belief: "Belief") -> Summary:
    """Mean and error of the quantile, mean and log-error of the spread.

    The spread's plain mean: while it is hardly known, the geometric one follows the narrow spreads, which nothing has
    spoken against yet, and questions placed by it would learn nothing.
    """
    xp = array_namespace(belief.boxes)
    weights, (centers, spreads, _) = belief.weights, _axes(belief.boxes)
    quantiles = centers[:, :, None] + spreads[:, None, :] * _logit(belief.level)
    mean = (weights * quantiles).sum(axis=(1, 2))
    variance = (weights * (quantiles - mean[:, None, None]) ** 2).sum(axis=(1, 2))
    cell = (belief.boxes[:, 1] - belief.boxes[:, 0]) / CENTERS
    logs, by_spread = xp.log(spreads), weights.sum(axis=1)
    center = (by_spread * logs).sum(axis=1)
    spread_variance = (by_spread * (logs - center[:, None]) ** 2).sum(axis=1)
    typical = (by_spread * spreads).sum(axis=1)
    return Summary(mean, xp.sqrt(variance + cell * cell / 12.0), typical, xp.sqrt(spread_variance))


def best_question(belief: "Belief", variance: Floats | float, boundary_shift: float = 0.0) -> tuple[Floats, Floats]:
    """The candidate whose answer is expected to sharpen u most, and the belief's variance of F there.

    A linear reading of the answer lowers the variance of u by Cov(F(q), u)²/(Var F(q) + noise); `variance` is that of
    the noise, one for all runs or one each.
    """
    xp = array_namespace(belief.boxes)
    weights, (centers, spreads, _) = belief.weights, _axes(belief.boxes)
    quantiles = centers[:, :, None] + spreads[:, None, :] * _logit(belief.level)
    mean = (weights * quantiles).sum(axis=(1, 2))
    off = quantiles - mean[:, None, None]
    error = xp.sqrt((weights * off * off).sum(axis=(1, 2)))
    over = weights.sum(axis=2).cumsum(axis=1)
    candidates = [_quantile(belief.boxes, over, share) for share in CANDIDATES]
    candidates += [mean, mean - error, mean + error]
    best, query, rank_variance = xp.full(len(mean), -1.0), mean, xp.zeros(len(mean))
    for candidate in candidates:
        asked = xp.clip(candidate, belief.low, belief.high)
        logits, ranks = _curve(belief.boxes, asked)
        average = (weights * ranks).sum(axis=(1, 2))
        spread = xp.maximum((weights * ranks * ranks).sum(axis=(1, 2)) - average**2, 0.0)
        doubt = (weights * _discrepancy(logits, ranks, belief.level)).sum(axis=(1, 2))
        gain = (weights * ranks * off).sum(axis=(1, 2)) ** 2 / (spread + doubt + xp.maximum(variance, spread / 1.2))
        better = gain > best * (1.0001 * (1.0 + boundary_shift))
        best, query = xp.where(better, gain, best), xp.where(better, asked, query)
        rank_variance = xp.where(better, spread, rank_variance)
    return query, rank_variance


def _quantile(boxes: Floats, over: Floats, share: float) -> Floats:
    """A quantile of the belief about c, linear inside a cell."""
    xp = array_namespace(boxes)
    runs = xp.arange(len(boxes))
    cell = (boxes[:, 1] - boxes[:, 0]) / CENTERS
    k = xp.minimum((over < share).sum(axis=1), CENTERS - 1)
    below = xp.where(k > 0, over[runs, xp.maximum(k - 1, 0)], 0.0)
    inside = (share - below) / xp.maximum(over[runs, k] - below, 1e-12)
    result: Floats = boxes[:, 0] + cell * (k + xp.clip(inside, 0.0, 1.0))
    return result
