"""The straddling design: where it asks, how it recovers, and that it can be read back from what was asked."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from privatile.estimator.search import sign_change
from privatile.estimator.straddle import SEARCH, STAGES, StraddlePolicy
from privatile.estimator.window import (
    CENTRE,
    ENDS,
    HIGH,
    LAYOUT_OF_PLENTY,
    LAYOUT_OF_SCANT,
    LOW,
    PLENTY,
    SCANT,
    USUAL,
    block_at,
    distances,
    last_of_its_side,
    shares_left,
    side_of,
)
from privatile.simulation.default_design import AutoCell, straddle
from privatile.simulation.populations import Normal

RATE = math.tanh(0.5)
NORMAL = AutoCell((Normal(),), (RATE,), (20_000,), 0.5)


def pooled(places: list[float], answers: list[float], weights: list[float]) -> tuple[list[float], list[float]]:
    """Pool adjacent violators, the plain way: levels and weights of every place."""
    stretches: list[list[float]] = []
    for answer, weight in zip(answers, weights, strict=True):
        stretches.append([answer * weight, weight, 1])
        while len(stretches) > 1 and stretches[-1][0] / stretches[-1][1] >= stretches[-2][0] / stretches[-2][1]:
            last = stretches.pop()
            stretches[-1] = [one + other for one, other in zip(stretches[-1], last, strict=True)]
    levels = [total / weight for total, weight, count in stretches for _ in range(int(count))]
    masses = [weight for _, weight, count in stretches for _ in range(int(count))]
    return levels, masses


def test_the_sign_change_is_that_of_pooled_adjacent_violators() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        count = int(rng.integers(1, 12))
        places = np.sort(rng.normal(size=count))
        weights = rng.uniform(0.5, 20.0, count)
        answers = -places + rng.normal(size=count)
        levels, masses = pooled(places.tolist(), answers.tolist(), weights.tolist())
        scores = np.array(levels) * np.sqrt(masses)
        order = rng.permutation(count)
        low, high = sign_change(places[order][None], (answers * weights)[order][None], weights[order][None], 1.5)
        assert low[0] == max(places[scores >= 1.5], default=-math.inf)
        assert high[0] == min(places[scores <= -1.5], default=math.inf)


def test_blocks_cover_the_clock_and_distances_fall() -> None:
    times = np.linspace(0.0, 0.999, 400)
    assert np.allclose(shares_left(times).sum(axis=1), 1.0 - times)
    block = block_at(times)
    assert bool(np.all(np.diff(block) >= 0))
    assert block[-1] == len(ENDS) - 1
    here = distances(times, USUAL)[np.arange(400), block]
    assert bool(np.all(np.diff(here[times > 0.06]) <= 1e-9))


@pytest.mark.parametrize("level", [0.1, 0.5, 0.8])
def test_the_layout_follows_from_the_level_and_the_noise_alone(level: float) -> None:
    """One rule: nearer questions where a side can show little."""
    unit = (level * (1.0 - level)) ** 2
    # A side shows at most min(τ, 1 − τ)/s = √I/max(τ, 1 − τ) standard errors.
    scant = (SCANT * max(level, 1.0 - level)) ** 2
    for information, layout in (
        (0.99 * scant, LAYOUT_OF_SCANT),
        (1.01 * scant, USUAL),
        (0.99 * PLENTY, USUAL),
        (1.01 * PLENTY, LAYOUT_OF_PLENTY),
        (1e7, LAYOUT_OF_PLENTY),
    ):
        for tau, shift in itertools.product((level, 1.0 - level), (-1e-6, 0.0, 1e-6)):
            policy = StraddlePolicy(tau, -9.0, 9.0, 200, unit / information, shift)
            assert policy.layout == layout


def test_every_layout_asks_its_centre_as_often_as_it_says() -> None:
    for layout in (USUAL, LAYOUT_OF_SCANT, LAYOUT_OF_PLENTY):
        sides = side_of(np.arange(400), layout.centre_every)
        shares = [float((sides == side).mean()) for side in (LOW, HIGH, CENTRE)]
        assert np.allclose(shares, [layout.side_share, layout.side_share, 1.0 / layout.centre_every], atol=0.01)
        # The last round of each side is known before it is asked: its tests spend what they have left there.
        last = last_of_its_side(np.arange(400), np.full(400, 400), layout.centre_every)
        assert np.flatnonzero(last).tolist() == sorted(int(np.flatnonzero(sides == side)[-1]) for side in range(3))


def test_questions_straddle_the_quantile_and_ask_its_centre() -> None:
    runs = straddle(NORMAL, 60, np.random.default_rng(2))
    late = np.arange(200) >= 120
    share_below = {
        stage: float((runs.queries < NORMAL.truth)[(runs.stages == number) & late].mean())
        for number, stage in enumerate(STAGES[:3])
    }
    # At 4.5 standard errors and more from a centre known within 1.3, a side is wrong in fewer than 1% of the rounds.
    assert share_below["low"] > 0.99
    assert share_below["high"] < 0.01
    assert 0.2 < share_below["centre"] < 0.8
    window = runs.stages != SEARCH
    centres = (runs.stages == STAGES.index("centre")).sum(axis=1) / window.sum(axis=1)
    assert bool(np.all(np.abs(centres - 1.0 / USUAL.centre_every) < 0.02))


def test_every_record_is_asked_and_none_twice() -> None:
    policy = NORMAL.straddle_plan.policy
    state, left = policy.begin(), np.array([[20_000]])
    for _ in range(200):
        lengths = policy.lengths(state, np.array([20_000]), left)
        assert int(lengths.min()) >= 1
        left = left - lengths
        state = policy.learn(state, np.array([0.01]), np.array([1.0 / (4.0 * RATE**2 * float(lengths[0, 0]))]))
    assert left[0, 0] == 0


@pytest.mark.parametrize("away", [-300.0, 300.0])
def test_a_search_that_ended_in_the_wrong_place_is_repaired(away: float) -> None:
    """The window begins 300 standard errors from the quantile: doubling and halving bring it back."""
    policy = NORMAL.straddle_plan.policy
    rng = np.random.default_rng(3)
    state, left, moved = policy.begin(40), np.full((40, 1), 20_000), np.zeros(40, dtype=bool)
    for _ in range(200):
        lengths = policy.lengths(state, np.array([20_000]), left)
        left = left - lengths
        fresh = (state.stage != SEARCH) & ~moved
        if fresh.any():
            wrong = np.where(fresh, away * NORMAL.bound, 0.0)
            window = state.window
            window = window._replace(
                origin=window.origin + wrong, center=window.center + wrong, sides=window.sides + wrong[:, None]
            )
            query = np.where(fresh, state.query + wrong, state.query)
            state, moved = state._replace(window=window, query=query), moved | fresh
        share = rng.binomial(lengths[:, 0], 0.5 * (1 - RATE) + RATE * (1 - Normal().cdf(state.query))) / lengths[:, 0]
        answers = (share - 0.5 * (1 - RATE)) / RATE - 0.5
        state = policy.learn(state, answers, 1.0 / (4.0 * RATE**2 * lengths[:, 0].astype(np.float64)))
    off = np.abs(state.window.center - NORMAL.truth) / NORMAL.bound
    assert float(np.median(off)) < 3.0
    assert float((off < 12.0).mean()) >= 0.9


def test_no_question_depends_on_anything_but_the_answers() -> None:
    policy = StraddlePolicy(0.5, -9.0, 9.0, 60, 0.001)
    one, other = policy.begin(), policy.begin(3)
    for m in range(60):
        assert np.all(one.query[0] == other.query)
        answer = 0.1 * math.sin(m)
        one = policy.learn(one, np.array([answer]), np.array([0.05]))
        other = policy.learn(other, np.full(3, answer), np.full(3, 0.05))


def test_rounds_without_an_answer_change_nothing_but_the_clock() -> None:
    policy = NORMAL.straddle_plan.policy
    runs = straddle(NORMAL, 1, np.random.default_rng(6))
    before = runs.state
    state = policy.begin()
    for m in range(120):
        state = policy.learn(state, runs.residuals[:, m], runs.noise[:, m])
    silent = policy.learn(state, np.array([math.nan]), np.array([math.inf]))
    assert np.array_equal(silent.window.tests.scores, state.window.tests.scores)
    assert np.array_equal(silent.window.vector, state.window.vector)
    assert int(silent.window.asked[0]) == int(state.window.asked[0]) + 1 <= int(before.window.asked[0])
