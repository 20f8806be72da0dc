"""The design without a known end: valid at every look, and what its bets are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privatile.core.arrays import Floats
from privatile.estimator.open_candidates import add_bet, add_open_answer, log_bet, no_bets
from privatile.estimator.open_end import SEARCH, OpenEnd, OpenEndPolicy
from privatile.inference.any_shape import AnyShape, open_ends_of
from privatile.simulation.populations import Normal

RATE = math.tanh(0.5)
RUNS = 4_000
SIDE = 0.025


def test_a_bet_is_the_integral_over_positive_drifts() -> None:
    """From below, and within 2% where it matters."""
    drifts = np.linspace(0.0, 12.0, 200_001)
    step = float(drifts[1] - drifts[0])
    for total, precision, score in ((4.0, 1.0, 2.0), (30.0, 2.0, 3.0), (1.0, 1.0, 4.0)):
        sums = score * math.sqrt(total)
        prior = 2.0 * math.sqrt(precision / (2.0 * math.pi)) * np.exp(-0.5 * precision * drifts**2)
        exact = math.log(float((np.exp(drifts * sums - 0.5 * drifts**2 * total) * prior).sum()) * step)
        found = float(log_bet(np.array([sums]), np.array([total]), np.array([precision]))[0])
        assert exact - 0.1 < found <= exact + 1e-6


@pytest.mark.parametrize("repeated", [False, True])
def test_a_bet_ever_wins_against_the_truth_in_at_most_its_share_of_runs(repeated: bool) -> None:
    """Without drift and over 200 looks; an answer used three times as if it were fresh is the control."""
    rng = np.random.default_rng(1)
    low, place = np.zeros(RUNS, dtype=np.int64), np.zeros(RUNS)
    tests = add_bet(no_bets(RUNS, 4), low, place, np.full(RUNS, 20.0))
    answer = np.zeros(RUNS)
    for m in range(200):
        answer = answer if repeated and m % 3 else rng.normal(size=RUNS)
        tests = add_open_answer(tests, low, place, answer, np.ones(RUNS))
    wins = float(np.isfinite(open_ends_of(tests, 0.95)[0]).mean())
    tolerance = 4.0 * math.sqrt(SIDE * (1.0 - SIDE) / RUNS)
    assert wins > SIDE + tolerance if repeated else wins <= SIDE


def test_a_full_room_forgets_only_what_is_settled() -> None:
    low = np.zeros(1, dtype=np.int64)
    tests = no_bets(1, 2)
    for place in (0.0, 1.0):
        tests = add_bet(tests, low, np.array([place]), np.ones(1))
    assert np.array_equal(add_bet(tests, low, np.array([2.0]), np.ones(1)).places, tests.places)
    sure = add_open_answer(tests, low, np.array([0.5]), np.array([3.0]), np.array([100.0]))
    assert sorted(add_bet(sure, low, np.array([2.0]), np.ones(1)).places[0, 0].tolist()) == [1.0, 2.0]


def open_runs(runs: int, rounds: int, seed: int) -> tuple[OpenEnd, Floats, Floats]:
    """Normal values, 100 people a round: the last state, and the innermost ends of all looks."""
    policy, rng = OpenEndPolicy(0.5, -10.0, 10.0), np.random.default_rng(seed)
    state = policy.begin(runs)
    lows, highs = np.full(runs, -np.inf), np.full(runs, np.inf)
    for _ in range(rounds):
        chance = 0.5 * (1.0 - RATE) + RATE * (1.0 - Normal().cdf(state.query))
        answers = (rng.binomial(100, chance) / 100.0 - 0.5 * (1.0 - RATE)) / RATE - 0.5
        state = policy.learn(state, answers, np.full(runs, 1.0 / (400.0 * RATE**2)))
        low, high = open_ends_of(state.tests, 0.95)
        lows, highs = np.maximum(lows, low), np.minimum(highs, high)
    return state, lows, highs


def test_intervals_hold_at_all_looks_together_and_shrink_without_an_end() -> None:
    state, lows, highs = open_runs(60, 150, 2)
    assert float(((lows <= 0.0) & (highs >= 0.0)).mean()) >= 0.95
    low, high = open_ends_of(state.tests, 0.95)
    error = math.sqrt(1.0 / (4.0 * RATE**2 * 15_000)) / Normal().density(0.0)
    assert bool(np.all(np.isfinite(high - low)))
    assert float(np.median(high - low)) / (3.92 * error) < 5.0
    assert bool(np.all(state.stage != SEARCH))
    one = AnyShape(type(state.tests)(*(values[:1] for values in state.tests)))
    assert one.ends(0.95) == (float(low[0]), float(high[0]))
    assert one.p_value(float(low[0]) - 1e-9) < 0.05 < one.p_value(float(low[0]) + 1e-9)
