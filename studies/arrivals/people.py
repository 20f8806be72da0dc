"""Who comes when: how many people of every stratum come to each round of an open-ended run, and who of them lies.

A round closes when `round_length` people have come, or a quarter of a day after it began if anybody has; the last one
at the end date. Numbers of people and times decide, so all rounds are known before anybody is asked.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from privatile.estimator.open_ended import round_length

Ints = NDArray[np.int64]
Times = NDArray[np.float64]

DAYS = 14.0
RATES = (0.7, 0.25, 0.05)
"""Shares of the arrivals by stratum; the weights are others (`simulate.WEIGHTS`)."""

LONGEST = 0.25
"""Days after which a round is closed."""


def steady(rng: np.random.Generator, people: float) -> list[Times]:
    """Poisson arrivals."""
    return [np.asarray(rng.uniform(0.0, DAYS, rng.poisson(people * rate))) for rate in RATES]


def _after_mails(rng: np.random.Generator, mails: Times, expected: float, zeal: Times) -> Times:
    """Answers to mails, most of them within an hour or two; how many answer differs much from mail to mail."""
    sizes = rng.poisson(expected * zeal / zeal.sum())
    times = np.repeat(mails, sizes) + rng.exponential(0.05, int(sizes.sum()))
    return np.asarray(times[times < DAYS])


def bursts(rng: np.random.Generator, people: float) -> list[Times]:
    """Some forty mails to everybody: nothing comes in between."""
    mails = np.asarray(rng.uniform(0.0, DAYS, rng.poisson(40) + 1))
    zeal = np.asarray(rng.gamma(2.0, size=len(mails)))
    return [_after_mails(rng, mails, people * rate, zeal) for rate in RATES]


def apart(rng: np.random.Generator, people: float) -> list[Times]:
    """Mails to some hundred people of one stratum at a time: the strata hardly ever come together."""
    found = []
    for rate in RATES:
        mails = np.asarray(rng.uniform(0.0, DAYS, rng.poisson(people * rate / 300.0) + 1))
        found.append(_after_mails(rng, mails, people * rate, np.asarray(rng.gamma(2.0, size=len(mails)))))
    return found


def day_and_night(rng: np.random.Generator, people: float) -> list[Times]:
    """Twenty times as many at noon as at midnight."""
    found = []
    for rate in RATES:
        times = rng.uniform(0.0, DAYS, rng.poisson(people * rate * 2.0 / 1.05))
        kept = rng.random(len(times)) < 0.5 * (1.05 - 0.95 * np.cos(2.0 * np.pi * times))
        found.append(np.asarray(times[kept]))
    return found


PROCESSES: dict[str, Callable[[np.random.Generator, float], list[Times]]] = {
    "poisson": steady,
    "bursts": bursts,
    "day and night": day_and_night,
    "apart": apart,
}


def rounds_of(process: str, people: float, rng: np.random.Generator) -> Ints:
    """Rounds × strata: how many came, of about so many people in all."""
    times = PROCESSES[process](rng, people)
    when = np.concatenate(times)
    order = np.argsort(when)
    when, stratum = when[order], np.repeat(np.arange(len(RATES)), [len(one) for one in times])[order]
    rows, first = [], 0
    began = 0.0
    while first < len(when):
        full = first + round_length(first)
        late = int(np.searchsorted(when, max(began + LONGEST, when[first]), side="right"))
        last = min(full, late, len(when))
        rows.append(np.bincount(stratum[first:last], minlength=len(RATES)))
        began, first = float(when[last - 1]), last
    return np.array(rows)


def liars_in(rounds: Ints, who: str, share: float) -> Ints:
    """How many of every round and stratum lie; `share` is theirs of all people.

    `first` and `last` come before and after all others; `smallest, first` and `smallest, last` are all of the smallest
    stratum. `spread` are everywhere alike. (`heaviest` depends on what was asked: `simulate.heaviest_liars`.)
    """
    number = round(share * int(rounds.sum()))
    if who == "spread":
        return np.asarray(np.rint(rounds * share), dtype=np.int64)
    order = rounds.copy()
    if who.startswith("smallest"):
        order[:, :2] = 0
    flat = order.ravel()
    return taken_in_order(flat, np.arange(len(flat))[:: -1 if who.endswith("last") else 1], number).reshape(order.shape)


def taken_in_order(sizes: Ints, order: Ints, number: int) -> Ints:
    """So many people out of places of these sizes, those of the first place in the order before those of the next.

    >>> taken_in_order(np.array([5, 2, 4]), np.array([2, 0, 1]), 6).tolist()
    [2, 0, 4]
    """
    before = np.concatenate([[0], np.cumsum(sizes[order])[:-1]])
    taken = np.zeros_like(sizes)
    taken[order] = np.clip(number - before, 0, sizes[order])
    return taken
