"""The design without a known end: valid at every look, and what its bets are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privatile.core.arrays import Floats
from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import Identity
from privatile.estimator.clients import Client
from privatile.estimator.open_ended import (
    SEARCH,
    TRUST,
    OpenEnd,
    OpenEndPolicy,
    OpenPlan,
    add_bet,
    add_open_answer,
    log_bet,
    no_bets,
)
from privatile.estimator.plan import Ask, begin
from privatile.estimator.straddle import add_round
from privatile.inference.any_shape import AnyShape, open_ends_of
from privatile.simulation.populations import Normal
from tests.inference.any_shape_p_values import p_value

RATE = math.tanh(0.5)
RUNS = 4_000
SIDE = 0.025


def test_a_bet_is_the_integral_over_positive_drifts() -> None:
    """From below, and within a tenth where it matters."""
    factors = np.linspace(0.0, 12.0, 200_001)
    step = float(factors[1] - factors[0])
    prior = np.exp(-0.5 * TRUST * (factors - 1.0) ** 2)
    prior /= prior.sum() * step
    for total, won in ((4.0, 8.0), (9.0, 9.0), (30.0, 20.0), (60.0, 12.0)):
        exact = math.log(float((np.exp(factors * won - 0.5 * factors**2 * total) * prior).sum()) * step)
        found = float(log_bet(np.array([won]), np.array([total]))[0])
        assert exact - 0.1 < found <= exact + 1e-3


@pytest.mark.parametrize("repeated", [False, True])
def test_a_bet_ever_wins_against_the_truth_in_at_most_its_share_of_runs(repeated: bool) -> None:
    """Without drift and over 200 looks; an answer used three times as if it were fresh is the control."""
    rng = np.random.default_rng(1)
    low, place = np.zeros(RUNS, dtype=np.int64), np.zeros(RUNS)
    tests = add_bet(no_bets(RUNS, 4), low, place, np.full(RUNS, 20.0))
    answer = np.zeros(RUNS)
    for m in range(200):
        answer = answer if repeated and m % 3 else rng.normal(size=RUNS)
        tests = add_open_answer(tests, low, place, answer, np.ones(RUNS), np.full(RUNS, 0.3))
    wins = float(np.isfinite(open_ends_of(tests, 0.95)[0]).mean())
    tolerance = 4.0 * math.sqrt(SIDE * (1.0 - SIDE) / RUNS)
    assert wins > SIDE + tolerance if repeated else wins <= SIDE


def test_a_full_room_forgets_only_what_is_settled() -> None:
    low = np.zeros(1, dtype=np.int64)
    tests = no_bets(1, 2)
    for place in (0.0, 1.0):
        tests = add_bet(tests, low, np.array([place]), np.ones(1))
    assert np.array_equal(add_bet(tests, low, np.array([2.0]), np.ones(1)).places, tests.places)
    sure = add_open_answer(tests, low, np.array([0.5]), np.array([3.0]), np.array([100.0]), np.ones(1))
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
    assert p_value(one, float(low[0]) - 1e-9) < 0.05 < p_value(one, float(low[0]) + 1e-9)


def test_runs_of_a_batch_do_not_influence_each_other() -> None:
    """Runs with answers of unlike precision: a batch of two asks what two batches of one ask."""
    policy = OpenEndPolicy(0.5, -10.0, 10.0)
    answers, variances = np.random.default_rng(3).normal(0.0, 0.2, (60, 2)), np.array([0.002, 0.05])
    both, alone = policy.begin(2), [policy.begin(1), policy.begin(1)]
    stages = set()
    for answer in answers:
        both = policy.learn(both, answer, variances)
        alone = [policy.learn(one, answer[k : k + 1], variances[k : k + 1]) for k, one in enumerate(alone)]
        assert both.query.tolist() == [float(one.query[0]) for one in alone]
        stages.add(tuple((both.stage == SEARCH).tolist()))
    assert len(stages) > 1  # one of them had ended its search before the other


def test_open_and_planned_ends_wait_for_silent_clients_by_one_rule() -> None:
    """A round that all have answered keeps its place: answers that wait from further out do not move it there."""
    clients = tuple(Client(name, RandomizedResponse(RATE), 0.5, 0.5, 1000) for name in "ab")
    plan = OpenPlan(clients, Identity(-10.0, 10.0))
    begun = begin(plan)
    asks = [Ask(place, (10, 10), 0.0, True, "low") for place in (1.0, 2.0)]
    first = plan.learn(asks[0], begun._replace(means=(0.5, 0.5), used=(1, 2)))
    second = plan.learn(asks[1], begun._replace(means=(0.5, 0.5), used=(1, 1), memory=first))
    assert second.pools["low"].places == first.pools["low"].places == (1.0,)
    pools, _ = add_round({}, "low", 1.0, (10, 10), (0.5, None), clients, 0.5)
    pools, heard = add_round(pools, "low", 2.0, (10, 10), (0.5, 0.5), clients, 0.5)
    assert (heard.place, pools) == (2.0, second.pools)


def test_a_search_that_liars_led_astray_begins_again() -> None:
    """The first 600 people all say yes; the bets of before are kept, and honest runs never begin again."""
    policy, rng, runs = OpenEndPolicy(0.5, -10.0, 10.0), np.random.default_rng(2), 20
    for lying in (24, 0):
        state = policy.begin(runs)
        for number in range(160):
            chance = 0.5 * (1.0 - RATE) + RATE * (1.0 - Normal().cdf(state.query))
            ones = np.full(runs, 25) if number < lying else rng.binomial(100, chance)
            people = 25 if number < lying else 100
            answers = (ones / people - 0.5 * (1.0 - RATE)) / RATE - 0.5
            state = policy.learn(state, answers, np.full(runs, 1.0 / (4.0 * RATE**2 * people)))
        assert bool((state.begun > 0.0).all()) == bool(lying)
        assert np.abs(state.center).max() < 0.25
        if not lying:
            assert not state.begun.any()


def test_some_runs_of_a_batch_begin_again() -> None:
    """One of two hears liars at first: each asks what it would ask alone."""
    policy, rng = OpenEndPolicy(0.5, -10.0, 10.0), np.random.default_rng(4)
    both, alone, variances = policy.begin(2), [policy.begin(1), policy.begin(1)], np.full(2, 0.005)
    for number in range(90):
        chance = 1.0 - Normal().cdf(both.query)
        answers = chance - 0.5 + rng.normal(0.0, variances**0.5)
        answers[0] = (1.0 + RATE) / (2.0 * RATE) - 0.5 if number < 25 else answers[0]
        both = policy.learn(both, answers, variances)
        alone = [policy.learn(one, answers[k : k + 1], variances[k : k + 1]) for k, one in enumerate(alone)]
        assert both.query.tolist() == [float(one.query[0]) for one in alone]
    assert (both.begun > 0.0).tolist() == [True, False]
    assert np.abs(both.center).max() < 0.25
