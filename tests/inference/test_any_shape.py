"""The any-shape interval: its level under the hardest distributions, and controls that must fail."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from studies.any_shape.laws import Steps
from studies.any_shape.worst import cell_of

from privatile.estimator.straddle import Candidates
from privatile.inference.any_shape import AnyShape, accepted_at, critical_values
from privatile.inference.inference import MIN_P
from privatile.inference.reading import any_shape_inference, any_shape_of
from privatile.laws.ratio import one_sided_z
from privatile.simulation.default_design import AutoCell, simulate
from privatile.simulation.populations import Normal
from tests.inference.any_shape_p_values import candidate_p_values, p_value
from tests.inference.one_side import SIDE, accepted_share, adaptive, asked_all_the_time

RUNS = 8_000
TOLERANCE = 4.0 * math.sqrt(SIDE * (1.0 - SIDE) / RUNS)
"""Four standard errors of a share at the level of one side: .0070."""


def flat(place: float) -> float:
    """τ − F where F = τ everywhere: any finite low end is an error."""
    return 0.0


def jump(place: float) -> float:
    """τ − F where F jumps to exactly τ at 0: a low end at 0 or above is an error."""
    return 0.6 if place < 0.0 else 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("drift", "truth"), [(flat, -1e9), (jump, 0.0)])
def test_a_side_errs_at_most_in_its_share_of_runs_and_the_controls_in_more(
    drift: Callable[[float], float], truth: float
) -> None:
    rng = np.random.default_rng(1)
    sides = [adaptive(drift, rng, 16) for _ in range(RUNS)]
    assert accepted_share(sides, truth) <= SIDE + TOLERANCE
    assert accepted_share(sides, truth, exact=True) <= SIDE / 2
    # The control: the innermost accepted candidate instead of the hull from outside.
    innermost = [side.places[accepted_at(side, SIDE) & np.isfinite(side.places)].max(initial=-np.inf) for side in sides]
    assert float((np.array(innermost) >= truth).mean()) > SIDE + TOLERANCE
    for control in ({"repeated": True}, {"forgotten": True}):
        wrong = [adaptive(drift, rng, 16, **control) for _ in range(RUNS // 2)]
        assert accepted_share(wrong, truth) > SIDE + 2.0 * TOLERANCE, control


def test_the_bound_is_used_and_not_only_kept() -> None:
    """One question asked all the time: the error of a side is its whole share."""
    scores = np.random.default_rng(3).normal(size=(RUNS, 20))
    assert abs(accepted_share([asked_all_the_time(row) for row in scores]) - SIDE) <= TOLERANCE


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
    rng = np.random.default_rng(4)
    for run in range(15):
        found = AnyShape((adaptive(jump, rng, 12), Candidates()), exact)
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
    for run in simulate(cell, cell.straddle_plan, 3, np.random.default_rng(11)).runs:
        shape = replace(any_shape_of(cell.straddle_plan, run), exact=exact)
        low, high = shape.ends(0.95)
        shown = any_shape_inference(shape, 0.5 * (low + high), 0.1)
        for value in (low - 0.1, low - 1e-6, low + 1e-6, high - 1e-6, high + 1e-6, high + 0.1):
            expected = p_value(shape, value)
            assert shown.test(value)[1] == pytest.approx(expected if expected >= MIN_P else 0.0, rel=1e-6)


def test_p_values_of_candidates_are_the_levels_at_which_they_are_accepted() -> None:
    rng = np.random.default_rng(5)
    for side in (adaptive(flat, rng, 8) for _ in range(50)):
        values, inside = candidate_p_values(side), np.isfinite(side.places)
        for alpha in (0.2, 0.025, 0.001):
            assert np.array_equal(accepted_at(side, alpha)[inside], (values <= alpha)[inside])


def test_whole_runs_hold_on_an_atom_at_the_quantile_and_are_short_there() -> None:
    """60% of the people share one value: the interval closes on it."""
    cell = AutoCell((Steps((0.0, 1.0, 2.0), (0.2, 0.6, 0.2)),), (math.tanh(0.5),), (6_000,), 0.5, low=-3.0, high=5.0)
    low, high = simulate(cell, cell.straddle_plan, 80, np.random.default_rng(6)).ends(0.95)
    assert float(((low <= 1.0) & (high >= 1.0)).mean()) >= 0.95
    assert float(np.isfinite(high - low).mean()) >= 0.97
    assert float(np.median(high - low)) < 0.2


def test_whole_runs_hold_on_a_normal_population_within_the_promised_width() -> None:
    cell = AutoCell((Normal(1.0),), (math.tanh(0.5),), (20_000,), 0.5)
    low, high = simulate(cell, cell.straddle_plan, 80, np.random.default_rng(7)).ends(0.95)
    wald = 2.0 * one_sided_z(SIDE) * cell.bound
    assert float(((low <= 1.0) & (high >= 1.0)).mean()) >= 0.98
    assert bool(np.all(np.isfinite(high - low)))
    assert float(np.median(high - low)) / wald < 3.4


@pytest.mark.parametrize("rank", [0.7, 0.47])
def test_the_interval_closes_on_an_end_of_the_range_only_where_the_quantile_is_there(rank: float) -> None:
    """At rank 0.7 of the low end the quantile is that end, at 0.47 it is above."""
    law = Steps((0.0, 1.0, 2.0), (rank, 0.9 - rank, 0.1))
    cell = AutoCell((law,), (math.tanh(0.5),), (8_000,), 0.5, low=0.0, high=2.0, rounds=100)
    low, high = simulate(cell, cell.straddle_plan, 60, np.random.default_rng(8)).ends(0.95)
    closed = float((high == 0.0).mean())
    # The range bounds the low side; 0.47 is 2.5 standard errors from the level, so an error is rare there.
    assert bool(np.all(high < math.inf))
    assert bool(np.all(np.isinf(low))) == (rank > 0.5)
    assert (closed >= 0.9) if rank > 0.5 else (closed <= 2 / 60)


def test_a_flat_stretch_beside_an_atom_is_crossed(monkeypatch: pytest.MonkeyPatch) -> None:
    """90% share one value and the level is 0.9: the high side must cross a stretch 10⁸ spreads long."""
    cell = AutoCell((Steps((0.0, 1.0), (0.9, 0.1)),), (math.tanh(0.5),), (20_000,), 0.9, low=-2.0, high=3.0, rounds=100)

    def bounded() -> float:
        low, high = simulate(cell, cell.straddle_plan, 40, np.random.default_rng(10)).ends(0.95)
        return float(np.isfinite(high - low).mean())

    assert bounded() >= 0.9
    monkeypatch.setattr("privatile.estimator.straddle.BESIDE_ATOM", np.zeros(7, dtype=int))
    assert bounded() <= 0.6


def test_whole_runs_err_no_more_than_allowed_where_the_level_is_used_up() -> None:
    """F jumps to exactly the level: the small form of `studies.any_shape.worst`; the control is far above."""
    runs, cell = 120, cell_of("low", 0.5, 0.905)
    plan = cell.straddle_plan
    shapes = [any_shape_of(plan, run) for run in simulate(cell, plan, runs, np.random.default_rng(10)).runs]
    allowed = SIDE + 3.0 * math.sqrt(SIDE * (1.0 - SIDE) / runs)
    assert np.mean([shape.ends(0.95)[0] >= 0.0 for shape in shapes]) <= allowed
    forgotten = [shape.with_boundaries_moved(math.sqrt(2.0) - 1.0) for shape in shapes]
    assert np.mean([shape.ends(0.95)[0] >= 0.0 for shape in forgotten]) > allowed


def ends_at(low: float, high: float) -> AnyShape:
    """One certain candidate on each side."""
    sides = (Candidates(), Candidates())
    for side, place in zip(sides, (low, -high), strict=True):
        side.places[0], side.peaks[0] = place, 9.0
    return AnyShape(sides)


@pytest.mark.parametrize("center", [0.0, 1.0, 1.4, 2.0, 9.0])
def test_ends_that_cross_give_both_and_never_a_point(center: float) -> None:
    """Above 2 and at or below 1 at once: the interval holds both ends, and interval and test still agree."""
    crossing = ends_at(2.0, 1.0)
    found = any_shape_inference(crossing, center, 0.1)
    assert 1.0 <= found.center <= 2.0
    assert {found.interval(level) for level in (0.3, 0.8, 0.95, 0.999)} == {(1.0, 2.0)}
    assert found.test(1.0)[1] == 1.0
    assert found.test(2.5)[1] < 1e-6
    assert crossing.crossed(0.95)
    # The control: ends in order are as they were.
    ordered = any_shape_inference(ends_at(1.0, 2.0), center, 0.1)
    assert ordered.interval(0.95) == (1.0, 2.0)
    assert not ends_at(1.0, 2.0).crossed(0.95)
