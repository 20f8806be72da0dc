"""The any-shape interval: its level under the hardest distributions, and controls that must fail."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from studies.any_shape.laws import Steps
from studies.any_shape.worst import cell_of

from privatile.core.arrays import Floats
from privatile.estimator.candidates import Candidates, add_answer, add_candidate, no_candidates
from privatile.estimator.window import take_rows
from privatile.inference.any_shape import AnyShape, accepted_at, critical_values, ends_of
from privatile.inference.choice import any_shape_inference
from privatile.inference.inference import SMALLEST_P
from privatile.laws.ratio import one_sided_z
from privatile.simulation.default_design import AutoCell, straddle
from privatile.simulation.populations import Normal
from tests.inference.any_shape_p_values import candidate_p_values, p_value

RUNS = 8_000
SIDE = 0.025
TOLERANCE = 4.0 * math.sqrt(SIDE * (1.0 - SIDE) / RUNS)
"""Four standard errors of a share at the level of one side: .0070."""


def flat(places: Floats) -> Floats:
    """τ − F where F = τ everywhere: any finite low end is an error."""
    return np.zeros_like(places)


def jump(places: Floats) -> Floats:
    """τ − F where F jumps to exactly τ at 0: a low end at 0 or above is an error."""
    return np.where(places < 0.0, 0.6, 0.0)


def adaptive_tests(
    shape: object, *, seed: int, rounds: int = 16, repeated: bool = False, forgotten: bool = False
) -> Candidates:
    """Low questions that go where the tests look best: up after a good answer, down after a bad one.

    `repeated` uses every answer twice as if it were fresh; `forgotten` does not take the answers' weights off the
    budget.
    """
    rng = np.random.default_rng(seed)
    tests, low, place = no_candidates(RUNS, rounds + 1), np.zeros(RUNS, dtype=np.int64), rng.normal(size=RUNS)
    answer = np.zeros(RUNS)
    for m in range(rounds):
        tests = add_candidate(tests, low, place)
        if forgotten:
            tests = tests._replace(budgets=np.ones_like(tests.budgets))
        rates = np.where(tests.places <= place[:, None, None], tests.budgets * rounds / (rounds - m), 0.0)
        fresh = not (repeated and m % 2)
        answer = rng.normal(size=RUNS) if fresh else answer
        score = shape(place) + answer  # type: ignore[operator]
        share, last = np.full(RUNS, 1.0 / rounds), np.full(RUNS, m == rounds - 1)
        tests = add_answer(tests._replace(rates=rates), low, place, share, score, last)
        place = place + 0.4 * np.sign(score) * rng.uniform(size=RUNS) * fresh
    return tests


def innermost_accepted(tests: Candidates) -> Floats:
    """The control: the largest accepted candidate instead of the hull from outside."""
    accepted = accepted_at(tests, SIDE) & np.isfinite(tests.places)
    found: Floats = np.where(accepted, tests.places, -np.inf).max(axis=2)[:, 0]
    return found


@pytest.mark.parametrize(("shape", "truth"), [(flat, -1e9), (jump, 0.0)])
def test_a_side_errs_at_most_in_its_share_of_runs_and_the_controls_in_more(shape: object, truth: float) -> None:
    tests = adaptive_tests(shape, seed=1)
    honest = float((ends_of(tests, 0.95)[0] >= truth).mean())
    assert honest <= SIDE + TOLERANCE
    assert float((ends_of(tests, 0.95, exact=True)[0] >= truth).mean()) <= SIDE / 2
    assert float((innermost_accepted(tests) >= truth).mean()) > SIDE + TOLERANCE
    for control in ({"repeated": True}, {"forgotten": True}):
        wrong = adaptive_tests(shape, seed=2, **control)
        assert float((ends_of(wrong, 0.95)[0] >= truth).mean()) > SIDE + TOLERANCE, control


def test_the_bound_is_used_and_not_only_kept() -> None:
    """One question asked all the time: the error of a side is its whole share."""
    rng = np.random.default_rng(3)
    low, place = np.zeros(RUNS, dtype=np.int64), np.zeros(RUNS)
    tests = add_candidate(no_candidates(RUNS, 2), low, place)
    for m in range(50):
        rates = np.where(tests.places <= 0.0, tests.budgets * 50.0 / (50 - m), 0.0)
        last = np.full(RUNS, m == 49)
        tests = add_answer(tests._replace(rates=rates), low, place, np.full(RUNS, 0.02), rng.normal(size=RUNS), last)
    found = float(np.isfinite(ends_of(tests, 0.95)[0]).mean())
    assert abs(found - SIDE) <= TOLERANCE


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.99, 0.999])
def test_critical_values_are_nested_and_spend_the_error(level: float) -> None:
    alpha = 0.5 * (1.0 - level)
    final, early = critical_values(alpha)
    spent = 0.5 * math.erfc(final / math.sqrt(2)) + 0.5 * math.erfc((2 * early - final) / math.sqrt(2))
    assert spent == pytest.approx(alpha, rel=1e-9)
    assert final < early
    assert all(one > other for one, other in zip(critical_values(0.9 * alpha), (final, early), strict=True))


@pytest.mark.parametrize("exact", [False, True])
def test_interval_and_p_value_never_disagree(exact: bool) -> None:
    tests = adaptive_tests(jump, seed=4, rounds=12)
    for run in range(15):
        found = AnyShape(take_rows(tests, np.array([run])), exact)
        ends = [found.ends(level) for level in (0.5, 0.8, 0.95, 0.99)]
        assert all(wide[0] <= narrow[0] for narrow, wide in itertools.pairwise(ends))
        for value in np.linspace(-1.5, 1.5, 13):
            p = p_value(found, float(value))
            for level, (low, high) in zip((0.5, 0.8, 0.95, 0.99), ends, strict=True):
                assert (low <= value <= high) == (p > 1.0 - level), (run, value, level)


@pytest.mark.parametrize("exact", [False, True])
def test_a_result_tests_by_the_p_values_of_its_candidates(exact: bool) -> None:
    """Inverting the interval that is shown finds the p-value that the tests themselves give."""
    cell = AutoCell((Normal(),), (math.tanh(0.5),), (3_000,), 0.5, rounds=60)
    tests = straddle(cell, 3, np.random.default_rng(11)).state.window.tests
    for run in range(3):
        shape = AnyShape(take_rows(tests, np.array([run])), exact)
        low, high = shape.ends(0.95)
        shown = any_shape_inference(shape, 0.5 * (low + high), 0.1)
        for value in (low - 0.1, low - 1e-6, low + 1e-6, high - 1e-6, high + 1e-6, high + 0.1):
            expected = p_value(shape, value)
            assert shown.test(value)[1] == pytest.approx(expected if expected >= SMALLEST_P else 0.0, rel=1e-6)


def test_p_values_of_candidates_are_the_levels_at_which_they_are_accepted() -> None:
    tests = take_rows(adaptive_tests(flat, seed=5, rounds=8), np.arange(50))
    values = candidate_p_values(tests)
    for alpha in (0.2, 0.025, 0.001):
        inside = np.isfinite(tests.places)
        assert np.array_equal(accepted_at(tests, alpha)[inside], (values <= alpha)[inside])


def test_whole_runs_hold_on_an_atom_at_the_quantile_and_are_short_there() -> None:
    """60% of the people share one value: the interval closes on it."""
    cell = AutoCell((Steps((0.0, 1.0, 2.0), (0.2, 0.6, 0.2)),), (math.tanh(0.5),), (6_000,), 0.5, low=-3.0, high=5.0)
    low, high = ends_of(straddle(cell, 80, np.random.default_rng(6)).state.window.tests, 0.95)
    assert float(((low <= 1.0) & (high >= 1.0)).mean()) >= 0.95
    assert float(np.isfinite(high - low).mean()) >= 0.97
    assert float(np.median(high - low)) < 0.2


def test_whole_runs_hold_on_a_normal_population_within_the_promised_width() -> None:
    cell = AutoCell((Normal(),), (math.tanh(0.5),), (20_000,), 0.5)
    low, high = ends_of(straddle(cell, 80, np.random.default_rng(7)).state.window.tests, 0.95)
    wald = 2.0 * one_sided_z(SIDE) * cell.bound
    assert float(((low <= 0.0) & (high >= 0.0)).mean()) >= 0.98
    assert bool(np.all(np.isfinite(high - low)))
    assert float(np.median(high - low)) / wald < 3.4


@pytest.mark.parametrize("rank", [0.7, 0.47])
def test_the_interval_closes_on_an_end_of_the_range_only_where_the_quantile_is_there(rank: float) -> None:
    """At rank 0.7 of the low end the quantile is that end, at 0.47 it is above."""
    law = Steps((0.0, 1.0, 2.0), (rank, 0.9 - rank, 0.1))
    cell = AutoCell((law,), (math.tanh(0.5),), (8_000,), 0.5, low=0.0, high=2.0, rounds=100)
    low, high = ends_of(straddle(cell, 60, np.random.default_rng(8)).state.window.tests, 0.95)
    closed = float((high == 0.0).mean())
    # The range bounds the low side; 0.47 is 2.5 standard errors from the level, so an error is rare there.
    assert bool(np.all(high < math.inf))
    assert bool(np.all(np.isinf(low))) == (rank > 0.5)
    assert (closed >= 0.9) if rank > 0.5 else (closed <= 2 / 60)


def test_a_flat_stretch_beside_an_atom_is_crossed(monkeypatch: pytest.MonkeyPatch) -> None:
    """90% share one value and the level is 0.9: the high side must cross a stretch 10⁸ spreads long."""
    cell = AutoCell((Steps((0.0, 1.0), (0.9, 0.1)),), (math.tanh(0.5),), (20_000,), 0.9, low=-2.0, high=3.0, rounds=100)

    def bounded() -> float:
        low, high = ends_of(straddle(cell, 40, np.random.default_rng(9)).state.window.tests, 0.95)
        return float(np.isfinite(high - low).mean())

    assert bounded() >= 0.9
    monkeypatch.setattr("privatile.estimator.straddle.BESIDE_ATOM", (0,) * 7)
    assert bounded() <= 0.6


def test_whole_runs_err_no_more_than_allowed_where_the_level_is_used_up() -> None:
    """F jumps to exactly the level: the small form of `studies.any_shape.worst`; the control is far above."""
    runs = 120
    tests = straddle(cell_of("low", 0.5, 0.905), runs, np.random.default_rng(10)).state.window.tests
    allowed = SIDE + 3.0 * math.sqrt(SIDE * (1.0 - SIDE) / runs)
    assert float((ends_of(tests, 0.95)[0] >= 0.0).mean()) <= allowed
    forgotten = tests._replace(scores=tests.scores * math.sqrt(2.0), peaks=tests.peaks * math.sqrt(2.0))
    assert float((ends_of(forgotten, 0.95)[0] >= 0.0).mean()) > allowed


def ends_at(low: float, high: float) -> Candidates:
    """One certain candidate on each side."""
    tests = no_candidates(1, 2)
    places, peaks = tests.places.copy(), tests.peaks.copy()
    places[0, :, 0], peaks[0, :, 0] = (low, -high), 9.0
    return tests._replace(places=places, peaks=peaks)


@pytest.mark.parametrize("center", [0.0, 1.0, 1.4, 2.0, 9.0])
def test_ends_that_cross_give_both_and_never_a_point(center: float) -> None:
    """Above 2 and at or below 1 at once: the interval holds both ends, and interval and test still agree."""
    crossing = AnyShape(ends_at(2.0, 1.0))
    found = any_shape_inference(crossing, center, 0.1)
    assert 1.0 <= found.center <= 2.0
    assert {found.interval(level) for level in (0.3, 0.8, 0.95, 0.999)} == {(1.0, 2.0)}
    assert found.test(1.0)[1] == 1.0
    assert found.test(2.5)[1] < 1e-6
    assert bool(crossing.crossed(0.95)[0])
    # The control: ends in order are as they were.
    ordered = any_shape_inference(AnyShape(ends_at(1.0, 2.0)), center, 0.1)
    assert ordered.interval(0.95) == (1.0, 2.0)
    assert not bool(AnyShape(ends_at(1.0, 2.0)).crossed(0.95)[0])
