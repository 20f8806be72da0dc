"""The smooth reading of a straddling run, and sets of grid values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from studies.any_shape.cells import GAP
from studies.any_shape.laws import Steps

from privatile.estimator.open_ended import OpenRules, begin
from privatile.estimator.search import copied
from privatile.inference.any_shape import CHECKED_AT, Grid
from privatile.inference.curve import fit_curve
from privatile.inference.inference import variance_share
from privatile.inference.reading import any_shape_of, reason_against
from privatile.inference.smooth import OPEN_BEND_DOUBT, PLACED, SmoothFits, fit_smooth, placement_factor
from privatile.laws.ratio import FiellerLaw
from privatile.simulation.default_design import AutoCell, SimulatedRuns, simulate
from privatile.simulation.populations import Normal, Population

RATE = math.tanh(0.5)


def straddled(cell: AutoCell, runs: int, seed: int) -> SimulatedRuns:
    return simulate(cell, cell.straddle_plan, runs, np.random.default_rng(seed))


def test_the_smooth_reading_covers_a_smooth_population_and_is_near_the_bound() -> None:
    cell = AutoCell((Normal(),), (RATE,), (20_000,), 0.5)
    readings = straddled(cell, 100, 1).readings()
    smooth = [reading.smooth for reading in readings if reading.smooth is not None]
    covered = [low <= 0.0 <= high for low, high in (one.interval(0.95) for one in smooth)]
    centers = np.array([one.center for one in smooth])
    # 100 runs: the standard error of the coverage is .022, of the error's ratio .075.
    assert float(np.mean(covered)) >= 0.95 - 3 * 0.022
    assert float(np.abs(centers).mean()) / (math.sqrt(2 / math.pi) * cell.bound) < 1.12 + 3 * 0.075
    low, high = np.array([reading.shown.interval(0.95) for reading in readings]).T
    assert float(((centers < low) | (centers > high)).mean()) <= 0.02


@pytest.mark.parametrize(("law", "least", "most"), [(GAP, 0.7, 1.0), (Normal(), 0.0, 0.03)])
def test_a_curve_must_agree_with_one_through_nearer_answers(law: Population, least: float, most: float) -> None:
    """In a gap answers from far away show a slope where those nearby show none."""
    cell = AutoCell((law,), (RATE,), (120_000,), 0.5)
    runs, plan = straddled(cell, 200, 5), cell.straddle_plan
    found = []
    for k, run in enumerate(runs.runs):
        variances = runs.noise[k] * variance_share(runs.state(k)[0], plan)
        fits = fit_smooth(runs.queries[k], runs.residuals[k], variances, 0.5, run, cell.information)
        assert fits.curve != fits.nearer
        ends = any_shape_of(plan, run).ends(CHECKED_AT)
        # The control: nobody to agree with.
        both = (fits, SmoothFits(fits.curve, fits.curve))
        found.append([bool(reason_against(each, ends, cell.information)) for each in both])
    contradicted, alone = np.mean(found, axis=0)
    assert least <= contradicted <= most
    assert alone <= contradicted - 0.15 if least else alone <= most


def test_without_a_known_end_chance_does_not_move_the_centre_and_placement_adds_nothing() -> None:
    """Of a hundred stretches one is 3 standard errors on the wrong side by chance; at 6 the curve has not converged."""
    queries = np.tile([-0.1, 0.1, 0.0], 60)
    noise = np.full_like(queries, 1e-3)
    answers = 0.5 - Normal().cdf(queries) + np.random.default_rng(3).normal(0.0, noise**0.5)
    plain = fit_curve(queries, answers, noise, 0.5, start=0.0, slope=0.4, window=noise > 0, bend_doubt=OPEN_BEND_DOUBT)
    begun = begin(OpenRules(0.5, -10.0, 10.0))
    begun.center, begun.slope, begun.fit.spread = 0.0, 0.25, 0.625
    centers, errors = [], []
    for score in (3.0, 6.0):
        # A place just above the fitted centre whose answers say that it lies below the quantile.
        run = copied(begun)
        asked = run.answers
        asked.places[0], asked.sums[0], asked.precisions[0] = plain.center + 0.01, score * 10.0, 100.0
        fit = fit_smooth(queries, answers, noise, 0.5, run, 0.0).curve
        centers.append(fit.center)
        errors.append(fit.error)
    assert centers == pytest.approx([plain.center, plain.center + 0.01])
    assert errors[0] == pytest.approx(plain.error)
    known = straddled(AutoCell((Normal(),), (RATE,), (800,), 0.5), 1, 3).runs[0]
    assert (placement_factor(begun), placement_factor(known)) == (1.0, PLACED)


@pytest.mark.parametrize(
    ("information", "at_every_look", "moves"), [(600.0, False, True), (600.0, True, False), (6000.0, False, False)]
)
def test_with_much_information_or_many_looks_three_standard_errors_do_not_move_the_centre(
    information: float, at_every_look: bool, moves: bool
) -> None:
    found = straddled(AutoCell((Normal(),), (RATE,), (8000,), 0.5), 1, 5)
    run, rows = found.runs[0], (found.queries[0], found.residuals[0], found.noise[0])
    run.asked.precisions[:] = 0.0

    def center() -> float:
        return fit_smooth(*rows, 0.5, run, information, at_every_look=at_every_look).curve.center

    plain = center()
    # Above it, and said to lie below.
    run.asked.places[0], run.asked.sums[0], run.asked.precisions[0] = plain + 0.01, 3.0 * 10.0, 100.0
    assert (center() != pytest.approx(plain, abs=1e-6)) == moves


def test_interval_and_p_value_of_the_corrected_law_agree_and_widen_fiellers() -> None:
    for information in (150.0, 1500.0, 60_000.0):
        law = FiellerLaw(0.12, information)
        for level in (0.8, 0.95, 0.99):
            assert law.tail(law.quantile(level)) == pytest.approx(1.0 - level, rel=1e-9)
            assert law.quantile(level) > FiellerLaw(0.12).quantile(level)


def test_a_declared_grid_gives_a_short_set_that_covers_and_a_false_one_misses() -> None:
    """The set holds the median 3 as often as the interval does. Halves declared as whole numbers: it cannot."""
    shares = (0.1, 0.2, 0.3, 0.25, 0.15)
    honest = AutoCell((Steps((1.0, 2.0, 3.0, 4.0, 5.0), shares),), (RATE,), (6_000,), 0.5, low=0.0, high=8.0)
    low, high = straddled(honest, 40, 2).ends(0.95)
    sets = [Grid(1.0).values(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True)]
    assert sum(3.0 in values for values in sets) >= 0.95 * 40
    assert float(np.median([len(values) for values in sets])) <= 2
    false = AutoCell((Steps((1.5, 2.5, 3.5, 4.5, 5.5), shares),), (RATE,), (6_000,), 0.5, low=0.0, high=8.0)
    low, high = straddled(false, 40, 3).ends(0.95)
    assert float(((low <= 3.5) & (high >= 3.5)).mean()) >= 0.95
    assert all(3.5 not in Grid(1.0).values(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True))
    assert any(Grid(1.0).contradicted(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True))


@pytest.mark.parametrize("off", [1e-6, 1e-9, 6e-11, 1e-14])
def test_ends_that_close_on_a_grid_value_leave_it(off: float) -> None:
    """Where many share a value the questions come as near to it as 10⁻¹¹: a low end just below it excludes nothing."""
    assert Grid(1.0).values(5.0 - off, 5.0 + off) == (5.0,)
    assert not Grid(1.0).contradicted(5.0 - off, 5.0 + off)
    assert Grid(1.0).values(5.0 - off, 6.3) == (5.0, 6.0)
    assert Grid(1.0).values(5.0, 6.3) == (6.0,)  # the answers at 5 itself place the quantile above it


def test_unbounded_and_long_sets() -> None:
    assert Grid(1.0).ends(-math.inf, 3.2) == (-math.inf, 3.0)
    assert Grid(1.0).count(-math.inf, 3.2) == math.inf
    assert Grid(0.1).values(0.25, 0.45) == pytest.approx((0.3, 0.4))
