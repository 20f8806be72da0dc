"""The smooth reading of a straddling run, and sets of grid values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from studies.any_shape.cells import GAP
from studies.any_shape.laws import Steps

from privatile.core.arrays import Floats
from privatile.errors import InputError
from privatile.estimator.open_ended import OpenEnd, OpenEndPolicy
from privatile.inference.any_shape import CHECKED_AT, Grid, ends_of
from privatile.inference.choice import known_end, reason_against
from privatile.inference.curve import fit_curve
from privatile.inference.smooth import OPEN_BEND_DOUBT, PLACED, SmoothFits, fit_smooth, placement_factor
from privatile.laws.ratio import FiellerLaw
from privatile.simulation.default_design import AutoCell, straddle
from privatile.simulation.populations import Normal, Population

RATE = math.tanh(0.5)


def test_the_smooth_reading_covers_a_smooth_population_and_is_near_the_bound() -> None:
    cell = AutoCell((Normal(),), (RATE,), (20_000,), 0.5)
    runs = straddle(cell, 100, np.random.default_rng(1))
    fit = fit_smooth(
        runs.queries, runs.residuals, runs.noise * runs.share[:, None], 0.5, runs.state.window, cell.information
    ).curve
    laws = [FiellerLaw(float(rho), cell.information) for rho in fit.slope_error]
    reach = np.array([law.quantile(0.95) for law in laws]) * fit.error
    # 100 runs: the standard error of the coverage is .022, of the error's ratio .075.
    assert float((np.abs(fit.center) <= reach).mean()) >= 0.95 - 3 * 0.022
    assert float(np.abs(fit.center).mean()) / (math.sqrt(2 / math.pi) * cell.bound) < 1.12 + 3 * 0.075
    low, high = ends_of(runs.state.window.tests, 0.95)
    assert float(((fit.center < low) | (fit.center > high)).mean()) <= 0.02


@pytest.mark.parametrize(("law", "least", "most"), [(GAP, 0.7, 1.0), (Normal(), 0.0, 0.03)])
def test_a_curve_must_agree_with_one_through_nearer_answers(law: Population, least: float, most: float) -> None:
    """In a gap answers from far away show a slope where those nearby show none."""
    cell = AutoCell((law,), (RATE,), (120_000,), 0.5)
    runs = straddle(cell, 200, np.random.default_rng(5))
    variances = runs.noise * runs.share[:, None]
    fits = fit_smooth(runs.queries, runs.residuals, variances, 0.5, runs.state.window, cell.information)
    assert not np.array_equal(fits.curve.slope, fits.nearer.slope)
    ends = known_end(cell.straddle_plan, runs.state.window.tests).every_end(CHECKED_AT)
    contradicted, alone = (
        float((reason_against(each, *ends, cell.information) != 0).mean())
        for each in (fits, SmoothFits(fits.curve, fits.curve))
    )
    assert least <= contradicted <= most
    assert alone <= contradicted - 0.15 if least else alone <= most  # the control: nobody to agree with


def test_without_a_known_end_chance_does_not_move_the_centre_and_placement_adds_nothing() -> None:
    """Of a hundred stretches one is 3 standard errors on the wrong side by chance; at 6 the curve has not converged."""
    one, rng = np.ones(1), np.random.default_rng(3)
    queries = np.tile([-0.1, 0.1, 0.0], 60)[None]
    noise = np.full_like(queries, 1e-3)
    answers = 0.5 - Normal().cdf(queries) + rng.normal(0.0, noise**0.5)
    plain = fit_curve(
        queries, answers, noise, 0.5, start=0 * one, slope=0.4 * one, window=noise > 0, bend_doubt=OPEN_BEND_DOUBT
    )
    begun = OpenEndPolicy(0.5, -10.0, 10.0).begin()._replace(center=0 * one, slope=0.25 * one, spread=0.625 * one)

    def with_stretch(score: float) -> OpenEnd:
        """A place just above the fitted centre whose answers say that it lies below the quantile."""
        places, sums, precisions = begun.places.copy(), begun.sums.copy(), begun.precisions.copy()
        places[0, 0], sums[0, 0], precisions[0, 0] = float(plain.center[0]) + 0.01, score * 10.0, 100.0
        return begun._replace(places=places, sums=sums, precisions=precisions)

    by_chance, not_converged = (
        fit_smooth(queries, answers, noise, 0.5, with_stretch(z), 0.0).curve for z in (3.0, 6.0)
    )
    assert by_chance.center == pytest.approx(plain.center)
    assert by_chance.error == pytest.approx(plain.error)
    assert not_converged.center == pytest.approx(plain.center + 0.01)
    known = straddle(AutoCell((Normal(),), (RATE,), (800,), 0.5), 1, rng).state.window
    assert (placement_factor(begun), placement_factor(known)) == (1.0, PLACED)


@pytest.mark.parametrize(
    ("information", "at_every_look", "moves"), [(600.0, False, True), (600.0, True, False), (6000.0, False, False)]
)
def test_with_much_information_or_many_looks_three_standard_errors_do_not_move_the_centre(
    information: float, at_every_look: bool, moves: bool
) -> None:
    rng = np.random.default_rng(5)
    found = straddle(AutoCell((Normal(),), (RATE,), (8000,), 0.5), 1, rng)
    window = found.state.window

    def center(places: Floats, sums: Floats, precisions: Floats) -> float:
        own = window._replace(places=places, sums=sums, precisions=precisions)
        rows = found.queries, found.residuals, found.noise
        return float(fit_smooth(*rows, 0.5, own, information, at_every_look=at_every_look).curve.center[0])

    nowhere = np.full_like(window.places, np.inf), np.zeros_like(window.sums), np.zeros_like(window.precisions)
    plain = center(*nowhere)
    places, sums, precisions = (each.copy() for each in nowhere)
    places[0, 0], sums[0, 0], precisions[0, 0] = plain + 0.01, 3.0 * 10.0, 100.0  # above it, and said to lie below
    assert (center(places, sums, precisions) != pytest.approx(plain, abs=1e-6)) == moves


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
    low, high = ends_of(straddle(honest, 40, np.random.default_rng(2)).state.window.tests, 0.95)
    sets = [Grid(1.0).values(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True)]
    assert sum(3.0 in values for values in sets) >= 0.95 * 40
    assert float(np.median([len(values) for values in sets])) <= 2
    false = AutoCell((Steps((1.5, 2.5, 3.5, 4.5, 5.5), shares),), (RATE,), (6_000,), 0.5, low=0.0, high=8.0)
    low, high = ends_of(straddle(false, 40, np.random.default_rng(3)).state.window.tests, 0.95)
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
    with pytest.raises(InputError, match="more than 1000"):
        Grid(1.0).values(0.0, 5000.0)
    with pytest.raises(InputError, match="must be a positive number"):
        Grid(0.0)
