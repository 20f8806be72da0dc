"""What a few people could do who lie: the sum of the k largest influences of single bits.

An honest person of client k adds the debiased value of a randomized bit to its mean, on average 0 or 1. Whoever lies
sends the bit that they like, and it counts as (1 + r_k)/(2r_k) for yes and −(1 − r_k)/(2r_k) for no: the mean of N_k
people moves by at most (1 + r_k)/(2r_k) of one share 1/N_k, and the rank by p_k times that. With one client and equal
shares k people move the rank by at most k/n·(1 + r)/(2r): 1.58·k/n at ε = 1.

Shares are not equal: the estimate reads every client's answers by a line (`client_curves`), with mean question q̄_k,
weight W_k = Σw and S_k = Σw(q − q̄_k)², w = 4r_k²E of a round. At the estimate Q̂ the line's height has the leverage

    h = w·( 1/W_k + (Q̂ − q̄_k)(q − q̄_k)/S_k )

of the round, a bit of it h/E. Liars choose their time and their stratum, so the largest of these are added up. This is
about the curve's quantile and the questions that were asked. What a bit moves by leading later questions elsewhere is
not in it: the answers there correct it. Nor are the tests of the any-shape interval, which keep what they have
accepted: where that interval excludes the curve's quantile nothing is bounded, and the result says so (`diagnostics`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.estimator.clients import Client
from privatile.inference.trajectory import ClientAnswers

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
