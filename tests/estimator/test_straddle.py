"""The straddling design: where it asks, how it recovers, and that it can be read back from what was asked."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from privatile.estimator.pools import Heard
from privatile.estimator.search import copied, records_to_ask
from privatile.estimator.straddle import (
    CENTRE,
    ENDS,
    HIGH,
    LAYOUT_OF_PLENTY,
    LAYOUT_OF_SCANT,
    LOW,
    PLENTY,
    SCANT,
    SEARCH,
    STAGES,
    USUAL,
    Asked,
    Run,
    begin,
    block_at,
    distances,
    is_last_of_its_side,
    learn,
    rules_of,
    shares_left,
    side_of,
    side_share,
    sign_change,
)
from privatile.simulation.default_design import AutoCell, simulate
from privatile.simulation.populations import Normal

RATE = math.tanh(0.5)
NORMAL = AutoCell((Normal(),), (RATE,), (20_000,), 0.5)
RULES = NORMAL.straddle_plan.rules


def answer(run: Run, residual: float, variance: float) -> None:
    """One answer; the tests take it as it is."""
    run.belief.make_room()
    learn(RULES, run, residual, variance, Heard(run.query, residual, variance))


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
        low, high = sign_change(Asked(places[order], (answers * weights)[order], weights[order]), 1.5)
        assert low == max(places[scores >= 1.5], default=-math.inf)
        assert high == min(places[scores <= -1.5], default=math.inf)


def test_blocks_cover_the_clock_and_distances_fall() -> None:
    times = np.linspace(0.0, 0.999, 400)
    blocks = [int(block_at(v)) for v in times]
    assert blocks == sorted(blocks)
    assert blocks[-1] == len(ENDS) - 1
    assert all(shares_left(v).sum() == pytest.approx(1.0 - v) for v in times)
    here = [distances(USUAL, v)[block] for v, block in zip(times, blocks, strict=True) if v > 0.06]
    assert bool(np.all(np.diff(here) <= 1e-9))


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
            assert rules_of(tau, -9.0, 9.0, 200, unit / information, 1.0 + shift).layout == layout


def test_every_layout_asks_its_centre_as_often_as_it_says() -> None:
    for layout in (USUAL, LAYOUT_OF_SCANT, LAYOUT_OF_PLENTY):
        sides = np.array([side_of(done, layout.centre_every) for done in range(400)])
        shares = [float((sides == side).mean()) for side in (LOW, HIGH, CENTRE)]
        assert np.allclose(shares, [side_share(layout)] * 2 + [1.0 / layout.centre_every], atol=0.01)
        # The last round of each side is known before it is asked: its tests spend what they have left there.
        last = [done for done in range(400) if is_last_of_its_side(done, 400, layout.centre_every)]
        assert last == sorted(int(np.flatnonzero(sides == side)[-1]) for side in range(3))


def test_questions_straddle_the_quantile_and_ask_its_centre() -> None:
    runs = simulate(NORMAL, NORMAL.straddle_plan, 60, np.random.default_rng(2))
    late = np.arange(200) >= 120
    share_below = {
        stage: float((runs.queries < NORMAL.truth)[(runs.stages == number) & late].mean())
        for number, stage in enumerate(STAGES[:3])
    }
    # At 4.5 standard errors and more from a centre known within 1.3, a side is wrong in fewer than 1% of the rounds.
    assert share_below["low"] > 0.99
    assert share_below["high"] < 0.01
    assert 0.2 < share_below["centre"] < 0.8
    centres = (runs.stages == CENTRE).sum(axis=1) / runs.averaged.sum(axis=1)
    assert bool(np.all(np.abs(centres - 1.0 / USUAL.centre_every) < 0.02))


def test_every_record_is_asked_and_none_twice() -> None:
    run, left = begin(RULES), 20_000
    for done in range(200):
        length = records_to_ask(run.share, 200 - done, 20_000, left)
        assert length >= 1
        left -= length
        answer(run, 0.01, 1.0 / (4.0 * RATE**2 * length))
    assert left == 0


@pytest.mark.parametrize("away", [-300.0, 300.0])
def test_a_search_that_ended_in_the_wrong_place_is_repaired(away: float) -> None:
    """The window begins 300 standard errors from the quantile: doubling and halving bring it back."""
    rng, off = np.random.default_rng(3), []
    for _ in range(40):
        run, left, moved = begin(RULES), 20_000, False
        for done in range(200):
            length = records_to_ask(run.share, 200 - done, 20_000, left)
            left -= length
            if run.stage != SEARCH and not moved:
                moved, wrong = True, away * NORMAL.bound
                run.fit.origin, run.window.center, run.query = (
                    place + wrong for place in (run.fit.origin, run.window.center, run.query)
                )
                for side in run.sides:
                    side.place += wrong
            share = rng.binomial(length, 0.5 * (1 - RATE) + RATE * (1 - Normal().cdf(run.query))) / length
            answer(run, (share - 0.5 * (1 - RATE)) / RATE - 0.5, 1.0 / (4.0 * RATE**2 * length))
        off.append(abs(run.window.center - NORMAL.truth) / NORMAL.bound)
    assert float(np.median(off)) < 3.0
    assert float((np.array(off) < 12.0).mean()) >= 0.9


def test_rounds_without_an_answer_change_nothing_but_the_clock() -> None:
    run = begin(RULES)
    for m in range(120):
        answer(run, 0.05 * math.sin(m), 0.01)
    silent = copied(run)
    answer(silent, math.nan, math.inf)
    assert np.array_equal(silent.sides[0].candidates.scores, run.sides[0].candidates.scores)
    assert np.array_equal(silent.fit.vector, run.fit.vector)
    assert silent.window.asked == run.window.asked + 1
