"""Open-ended runs over time: whether the distribution changed, the quantile per period, what liars could do.

Whether the distribution around the quantile has changed during a run: at most 5% false alarms over a whole study.

Without a change the mean of an answer depends on its question q alone, μ(q) = τ − F(q), and falls in q; nothing else is
assumed about F. Answers y_i have known precisions p_i and are sub-Gaussian with variance 1/p_i, and every question is
fixed before its answers come. For any predictions m_i that are fixed as early, and for the true μ,

    E_t(μ) = exp( ½·Σp_i(y_i − μ_i)² − ½·Σp_i(y_i − m_i)² ) = Π exp( λ_i(y_i − μ_i) − λ_i²/(2p_i) )

with μ_i = μ(q_i) and λ_i = p_i(m_i − μ_i) is a supermartingale that starts at 1. μ is not known, but the falling
function that fits all answers best has a smaller first sum. So with the least sum N_t over all falling functions (pool
adjacent violators)

    E_t = exp( ½·N_t − ½·Σp_i(y_i − m_i)² ) ≤ E_t(μ),  P(E_t ever reaches 1/α) ≤ α

by Ville's inequality, for every F, at all looks and wherever the run ends. The same holds for averages of such E over
several predictions. Here they are the answers of a curve with a jump δ in rank after round s: y = A − f·d − h·d² + δ,
d the distance from the first questions, all of A, f, h, δ normal around what the design believed when its window began.
The average over them is a Gaussian integral (its predictions need never be written down), and that over s is a sum. The
curve need not be right: a wrong one only finds less. So is that over several bets, each on the answers after some time.

With several clients a half of the bet is on the answers of complete rounds together, a half on the clients one by one.
Only rounds of the window are used. What is found is a change of the share below the questions near the quantile. Those
who come late may differ from those who come early: that is a change, too.

What a few people could do who lie: the sum of the k largest influences of single bits.

An honest person of client k adds the debiased value of a randomized bit to its mean, on average 0 or 1. Whoever lies
sends the bit that they like, and it counts as (1 + r_k)/(2r_k) for yes and −(1 − r_k)/(2r_k) for no: the mean of N_k
people moves by at most (1 + r_k)/(2r_k) of one share 1/N_k, and the rank by p_k times that. With one client and equal
shares k people move the rank by at most k/n·(1 + r)/(2r): 1.58·k/n at ε = 1.

Shares are not equal: the estimate reads every client's answers by a line (`curve.fit_client_lines`), with mean question
q̄_k, weight W_k = Σw and S_k = Σw(q − q̄_k)², w = 4r_k²E of a round. At the estimate Q̂ the line's height has the leverage

    h = w·( 1/W_k + (Q̂ − q̄_k)(q − q̄_k)/S_k )

of the round, a bit of it h/E. Liars choose their time and their stratum, so the largest of these are added up. This is
about the curve's quantile and the questions that were asked. What a bit moves by leading later questions elsewhere is
not in it: the answers there correct it. Nor are the tests of the any-shape interval, which keep what they have
accepted: where that interval excludes the curve's quantile nothing is bounded, and the result says so (`diagnostics`).

The quantile as a series over periods, weeks say: each person once, in the period in which they answered.

Client k's answers of period j have mean question q̄, mean ȳ and weight W = Σ4r_k²E. They follow a line whose slope −b_k
is the same in all periods and is found from the differences within them, so that a move between periods does not tilt
it. As for silent clients (`curve.fit_client_lines`), with f = Σp_k·b_k,

    Q̂_j = Σp_k(ȳ + b_k·q̄)/f,  error²·f² = Σp_k²/W + Σp_k²(q̄ − Q̂_j)²/S_k

S_k the weighted squares of the questions around their periods' means. The interval is Fieller's, ρ² = ΣS_k⁻¹p_k²/f². It
is for one period that was chosen before it was looked at: of twenty honest ones, one misses. It needs a distribution
that is smooth around the quantile; the any-shape tests cannot bound a short period, whose questions lie close together.
Where nobody of a client came, a period says nothing. Whether the quantile has moved at all is decided by `change`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.estimator.clients import Client
from privatile.inference.trajectory import ClientAnswers
from privatile.laws.ratio import fieller_reach, two_sided_z

FALSE_ALARMS = 0.05
"""Over a whole study."""

JUMPS = (0.02, 0.1)
"""Standard deviations of δ, in rank; each has half of the bet."""

GROWTH, TIMES = 1.2, 12
"""A change may have come wherever the information has grown by this factor since the bet began; …"""

AGAIN, BETS = 2.0, 16
"""… and a new bet, on the later answers alone, begins wherever it has grown by this one: it knows fewer questions,
which lie closer together, so less is lost to the best falling function."""

EVENLY = 0.8
"""The first `TIMES` and `BETS` share this part evenly, all later ones the rest, as 1/(j(j + 1))."""

MIN_ANSWERS = 8
"""Answers below which nothing is said."""


class Change(NamedTuple):
    """What the answers say about a change."""

    log_evidence: float
    """log E."""
    round: int
    """After which round it is most likely to have come."""
    jump: float
    """δ: how much larger the answers are since then, in rank. Above zero the quantile has risen."""

    @property
    def alarm(self) -> bool:
        """Whether it is beyond the chance of a false alarm."""
        return self.log_evidence >= -math.log(FALSE_ALARMS)


NO_CHANGE = Change(-math.inf, 0, 0.0)


def least_falling_sum(places: Floats, values: Floats, precisions: Floats) -> float:
    """The least Σp(y − μ(q))² over all functions μ that never rise: pool adjacent violators.

    >>> one = np.ones(3)
    >>> least_falling_sum(np.array([1.0, 2.0, 3.0]), np.array([3.0, 1.0, 2.0]), one)
    0.5
    """
    order = np.argsort(places, kind="stable")
    distinct, place = np.unique(places[order], return_inverse=True)
    weight = np.bincount(place, precisions[order], len(distinct))
    mean = np.bincount(place, (precisions * values)[order], len(distinct)) / weight
    pools: list[list[float]] = []
    for level, mass in zip(mean.tolist(), weight.tolist(), strict=True):
        pools.append([level, mass])
        while len(pools) > 1 and pools[-2][0] < pools[-1][0]:
            last, before = pools.pop(), pools.pop()
            total = before[1] + last[1]
            pools.append([(before[0] * before[1] + last[0] * last[1]) / total, total])
    explained = math.fsum(level * level * mass for level, mass in pools)
    return max(0.0, float(precisions @ (values * values)) - explained)


def shares(number: int, first: int) -> Floats:
    """How a bet is divided among the first `number` of endlessly many: the first ones evenly, later ones less and less.

    >>> shares(3, 2).round(4).tolist(), round(float(shares(100_000, 16).sum()), 3)
    ([0.4, 0.4, 0.05], 1.0)
    """
    places = np.arange(1.0, number + 1)
    later = (1.0 - EVENLY) * (first + 1) / (places * (places + 1.0))
    result: Floats = np.where(places <= first, EVENLY / first, later)
    return result


def change_in(queries: Floats, residuals: Floats, precisions: Floats, rounds: Sequence[int]) -> Change:
    """The evidence of one row of answers, in the order in which they came; `rounds` are their numbers."""
    if len(queries) < MIN_ANSWERS:
        return NO_CHANGE
    gathered = np.cumsum(precisions)
    starts = np.unique(np.searchsorted(gathered, gathered[0] * AGAIN ** np.arange(200.0)))
    starts = starts[starts <= len(queries) - MIN_ANSWERS]
    found = [one_bet(queries[k:], residuals[k:], precisions[k:], rounds[k:]) for k in starts.tolist()]
    logs = np.array([one.log_evidence for one in found]) + np.log(shares(len(starts), BETS))
    if not bool(np.isfinite(logs).any()):
        return NO_CHANGE
    return found[int(logs.argmax())]._replace(log_evidence=_log_sum(logs))


def one_bet(queries: Floats, residuals: Floats, precisions: Floats, rounds: Sequence[int]) -> Change:
    """The evidence of the bet that begins with the first of these answers.

    The first two questions, most often on both sides of the quantile, give the unit of d and are not bet on.
    """
    middle, unit = 0.5 * (queries[0] + queries[1]), 0.5 * abs(queries[1] - queries[0])
    if not unit > 0.0:
        return NO_CHANGE
    y, p, d = residuals[2:], precisions[2:], (queries[2:] - middle) / unit
    gathered = np.cumsum(precisions)
    steep = 4.5 / math.sqrt(gathered[1])  # what the design expects: 4.5 standard errors at one unit
    spreads = np.array([steep, steep, 0.3 * steep])
    features = np.stack([np.ones_like(d), -d, -d * d], axis=1) * spreads
    rest = y + steep * d
    # Times: the first answer after which the information has grown by another factor.
    times = np.unique(np.searchsorted(gathered[2:], gathered[1] * GROWTH ** np.arange(1.0, 200.0)))
    times = times[times < len(y) - 1]
    if not len(times):
        return NO_CHANGE
    weighted = p[:, None] * features
    matrix, vector = weighted.T @ features, weighted.T @ rest
    # Sums over the answers after each time.
    after = np.concatenate([np.cumsum(weighted[::-1], axis=0)[::-1], np.zeros((1, 3))])[times + 1]
    mass = np.concatenate([np.cumsum(p[::-1])[::-1], [0.0]])[times + 1]
    signal = np.concatenate([np.cumsum((p * rest)[::-1])[::-1], [0.0]])[times + 1]
    prior = shares(len(times), TIMES)
    base = 0.5 * least_falling_sum(queries[2:], y, p) - 0.5 * float(p @ (rest * rest))
    best, logs, found = -math.inf, [], NO_CHANGE
    for scale in JUMPS:
        full = np.zeros((len(times), 4, 4))
        full[:, :3, :3] = matrix
        full[:, :3, 3] = full[:, 3, :3] = scale * after
        full[:, 3, 3] = scale * scale * mass
        full += np.eye(4)
        right = np.concatenate([np.broadcast_to(vector, (len(times), 3)), (scale * signal)[:, None]], axis=1)
        solved = np.linalg.solve(full, right[..., None])[..., 0]
        evidence = base + 0.5 * (right * solved).sum(axis=1) - 0.5 * np.linalg.slogdet(full)[1]
        evidence += np.log(prior / len(JUMPS))
        logs.append(evidence)
        if float(evidence.max()) > best:
            place = int(evidence.argmax())
            best = float(evidence[place])
            found = Change(best, rounds[2 + int(times[place])], scale * float(solved[place, 3]))
    return found._replace(log_evidence=_log_sum(np.concatenate(logs)))


def _log_sum(logs: Floats) -> float:
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


def change(answers: ClientAnswers, weights: Floats, first: int) -> Change:
    """The evidence of a run; `weights` are p_k, and the window begins after `first` rounds."""
    numbers = np.arange(first, len(answers.queries))
    queries = answers.queries[first:]
    residuals, precisions = answers.residuals[first:], answers.precisions[first:]
    came = precisions > 0.0
    complete = came.all(axis=1)
    noise = (weights**2 / np.where(came, precisions, 1.0)).sum(axis=1)[complete]
    rows = [(queries[complete], residuals[complete] @ weights, 1.0 / noise, numbers[complete] + 1)]
    if len(weights) > 1:
        rows += [
            (queries[came[:, k]], residuals[came[:, k], k], precisions[came[:, k], k], numbers[came[:, k]] + 1)
            for k in range(len(weights))
        ]
    parts = [1.0] if len(rows) == 1 else [0.5, *[0.5 / len(weights)] * len(weights)]
    found = [change_in(q, y, p, m.tolist()) for q, y, p, m in rows]
    logs = np.array([one.log_evidence + math.log(part) for one, part in zip(found, parts, strict=True)])
    if not bool(np.isfinite(logs).any()):
        return NO_CHANGE
    return found[int(logs.argmax())]._replace(log_evidence=_log_sum(logs))


SHOWN = (1, 10, 100, 1000)
"""Numbers of liars that a result shows."""


class Influence(NamedTuple):
    """So many people, and how far they could move the rank of the estimate."""

    people: int
    rank: float


def bit_influences(clients: Sequence[Client], answers: ClientAnswers, center: float) -> "tuple[Floats, Floats]":
    """The influence of one bit of every round and client (both rounds × clients), and how many bits there are."""
    rates = np.array([client.mechanism.truth_rate for client in clients])
    weights = np.array([client.weight for client in clients])
    per_person = 4.0 * rates**2
    precisions = answers.precisions
    total = precisions.sum(axis=0)
    known = total > 0.0
    safe = np.where(known, total, 1.0)
    asked = (precisions * answers.queries[:, None]).sum(axis=0) / safe
    off = answers.queries[:, None] - asked
    spread = (precisions * off**2).sum(axis=0)
    tilt = np.where(spread > 0.0, (center - asked) * off / np.where(spread > 0.0, spread, 1.0), 0.0)
    leverage = per_person * np.abs(1.0 / safe + tilt)
    moved = weights * (1.0 + rates) / (2.0 * rates) * leverage
    return np.where(known & (precisions > 0.0), moved, 0.0), precisions / per_person


def largest_influences(
    clients: Sequence[Client], answers: ClientAnswers, center: float, people: Sequence[int] = SHOWN
) -> tuple[Influence, ...]:
    """For every number of `people` up to all who have answered, the sum of so many of the largest influences.

    >>> from privatile.core.mechanism import RandomizedResponse
    >>> one = Client("all", RandomizedResponse.from_epsilon(1.0), 1.0, 0.5, 1000)
    >>> rate = one.mechanism.truth_rate
    >>> rounds = ClientAnswers(np.array([-1.0, 1.0]), np.zeros((2, 1)), np.full((2, 1), 4.0 * rate**2 * 500))
    >>> [(each.people, round(each.rank, 5)) for each in largest_influences((one,), rounds, 0.0)]  # 1.582·k/n
    [(1, 0.00158), (10, 0.01582), (100, 0.1582), (1000, 1.58198)]
    """
    each, bits = bit_influences(clients, answers, center)
    order = np.argsort(-each, axis=None, kind="stable")
    each, ends = each.ravel()[order], np.cumsum(np.rint(bits.ravel()[order]))
    sums = np.cumsum(each * np.diff(ends, prepend=0.0))
    found = []
    for number in people:
        if number > ends[-1]:
            break
        place = int(np.searchsorted(ends, number))
        before, had = (sums[place - 1], ends[place - 1]) if place else (0.0, 0.0)
        found.append(Influence(number, float(before + (number - had) * each[place])))
    return tuple(found)


class Part(NamedTuple):
    """One period, on the working scale; NaN and ∓∞ where some client has no answer in it."""

    people: int
    estimate: float
    low: float
    high: float


def series(
    answers: ClientAnswers, periods: Sequence[int], weights: Floats, rates: Floats, confidence_level: float
) -> list[Part]:
    """One part per period; `periods` gives every round's, counted from 0. `weights` and `rates` are p_k and r_k."""
    number, clients = np.asarray(periods), len(weights)
    count = int(number.max()) + 1 if len(number) else 0
    precisions, queries = answers.precisions, answers.queries[:, None]

    def sums(values: Floats) -> Floats:
        return np.stack([np.bincount(number, values[:, k], count) for k in range(clients)], axis=1)

    total = sums(precisions)
    safe = np.where(total > 0.0, total, 1.0)
    asked, means = sums(precisions * queries) / safe, sums(precisions * answers.residuals) / safe
    off = queries - asked[number]
    spread = (precisions * off**2).sum(axis=0)
    falls = -(precisions * off * (answers.residuals - means[number])).sum(axis=0)
    known = spread > 0.0
    people = np.rint((total / (4.0 * rates**2)).sum(axis=1)).astype(int).tolist()
    slope = float(weights[known] @ (falls[known] / spread[known])) if bool(known.all()) and clients else 0.0
    if not slope > 0.0:
        return [Part(each, math.nan, -math.inf, math.inf) for each in people]
    slopes = falls / spread
    rough = float((weights**2 / spread).sum()) ** 0.5 / slope
    reach = float(fieller_reach(two_sided_z(confidence_level), rough))
    found = []
    for j in range(count):
        if not bool(np.all(total[j] > 0.0)):
            found.append(Part(people[j], math.nan, -math.inf, math.inf))
            continue
        center = float(weights @ (means[j] + slopes * asked[j])) / slope
        noise = weights**2 / total[j] + weights**2 * (asked[j] - center) ** 2 / spread
        half = reach * float(noise.sum()) ** 0.5 / slope
        found.append(Part(people[j], center, center - half, center + half))
    return found
