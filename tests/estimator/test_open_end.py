"""The design without a known end: valid at every look, and what its bets are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import Identity
from privatile.estimator.clients import Client
from privatile.estimator.open_ended import (
    BETS,
    SETTLED,
    TRUST,
    Bets,
    OpenPlan,
    OpenRules,
    OpenRun,
    add_bet,
    bet_on,
    learn,
    log_bet,
)
from privatile.estimator.open_ended import begin as begin_run
from privatile.estimator.plan import Ask, begin
from privatile.estimator.pools import add_round
from privatile.estimator.straddle import SEARCH
from privatile.inference.any_shape import AnyShape
from privatile.simulation.populations import Normal
from tests.inference.any_shape_p_values import p_value

RATE = math.tanh(0.5)
RUNS = 3_000
RULES = OpenRules(0.5, -10.0, 10.0)
SIDE = 0.025


def test_a_bet_is_the_integral_over_positive_drifts() -> None:
    """From below, and within a tenth where it matters."""
    factors = np.linspace(0.0, 12.0, 200_001)
    step = float(factors[1] - factors[0])
    prior = np.exp(-0.5 * TRUST * (factors - 1.0) ** 2)
    prior /= prior.sum() * step
    for total, won in ((4.0, 8.0), (9.0, 9.0), (30.0, 20.0), (60.0, 12.0)):
        exact = math.log(float((np.exp(factors * won - 0.5 * factors**2 * total) * prior).sum()) * step)
        found = log_bet(won, total)
        assert exact - 0.1 < found <= exact + 1e-3


@pytest.mark.parametrize("repeated", [False, True])
def test_a_bet_ever_wins_against_the_truth_in_at_most_its_share_of_runs(repeated: bool) -> None:
    """Without drift and over 200 looks; an answer used three times as if it were fresh is the control."""
    rng, wins = np.random.default_rng(1), 0
    for answers in rng.normal(size=(RUNS, 60)).tolist():
        bets = Bets()
        add_bet(bets, 0.0, 20.0)
        for m in range(60):
            bet_on(bets, 0.0, answers[m - m % 3 if repeated else m], 1.0, 0.6)
        wins += math.isfinite(AnyShape((bets, Bets())).ends(0.95)[0])
    tolerance = 4.0 * math.sqrt(SIDE * (1.0 - SIDE) / RUNS)
    assert wins / RUNS > SIDE + tolerance if repeated else wins / RUNS <= SIDE


def test_a_full_room_forgets_only_what_is_settled() -> None:
    bets = Bets()
    for place in range(BETS):
        add_bet(bets, float(place), 1.0)
    full = bets.places.copy()
    add_bet(bets, float(BETS), 1.0)
    assert np.array_equal(bets.places, full)
    bets.peaks[0] = SETTLED
    add_bet(bets, float(BETS), 1.0)
    assert sorted(bets.places) == [*range(1, BETS + 1)]


def heard(run: OpenRun, rng: np.random.Generator, people: int, lying: bool = False) -> None:
    """One round of normal values, or of people who all say yes."""
    chance = 0.5 * (1.0 - RATE) + RATE * (1.0 - Normal().cdf(run.query))
    ones = people if lying else rng.binomial(people, chance)
    run.belief.make_room()
    learn(RULES, run, (ones / people - 0.5 * (1.0 - RATE)) / RATE - 0.5, 1.0 / (4.0 * RATE**2 * people))


def test_intervals_hold_at_all_looks_together_and_shrink_without_an_end() -> None:
    rng, held, widths = np.random.default_rng(2), 0, []
    for _ in range(60):
        run, lows, highs = begin_run(RULES), -math.inf, math.inf
        for _ in range(150):
            heard(run, rng, 100)
            shape = AnyShape((run.sides[0].bets, run.sides[1].bets))
            low, high = shape.ends(0.95)
            lows, highs = max(lows, low), min(highs, high)
        held += lows <= 0.0 <= highs
        widths.append(high - low)
        assert run.stage != SEARCH
    assert held / 60 >= 0.95
    error = math.sqrt(1.0 / (4.0 * RATE**2 * 15_000)) / Normal().density(0.0)
    assert bool(np.all(np.isfinite(widths)))
    assert float(np.median(widths)) / (3.92 * error) < 5.0
    assert p_value(shape, low - 1e-9) < 0.05 < p_value(shape, low + 1e-9)


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
    rng = np.random.default_rng(2)
    for lying in (24, 0):
        for _ in range(20):
            run = begin_run(RULES)
            for number in range(160):
                heard(run, rng, 25 if number < lying else 100, lying=number < lying)
            assert (run.begun > 0.0) == bool(lying)
            assert abs(run.center) < 0.25
