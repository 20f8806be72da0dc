import math
from statistics import NormalDist

import numpy as np
import pytest

from privatile.inference.curve import DRIFT_BIAS, CurveFit, fit_curve
from privatile.laws.ratio import FiellerLaw, fieller_reach


def logistic(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def fitted(
    queries: np.ndarray, residuals: np.ndarray, noise: np.ndarray, level: float, *, start: float, slope: float
) -> CurveFit:
    """All rounds followed the recursion."""
    window = np.ones(queries.shape, dtype=bool)
    return fit_curve(queries, residuals, noise, level, start=start, slope=slope, window=window)


@pytest.mark.parametrize("level", [0.05, 0.5, 0.8])
def test_a_curve_without_noise_is_found_exactly(level: float) -> None:
    queries = np.linspace(9.5, 10.4, 41)
    residuals = level - logistic(math.log(level / (1 - level)) + 2.0 * (queries - 10.0))
    noise = np.full(queries.shape, 1e-3)
    fit = fitted(queries, residuals, noise, level, start=9.8, slope=level * (1 - level))
    assert fit.center == pytest.approx(10.0, abs=1e-6)
    unbiased = 1 - DRIFT_BIAS * fit.slope_error**2
    assert fit.slope == pytest.approx(2.0 * level * (1 - level) * max(unbiased, 0.1), rel=1e-5)
    assert fit.bend == pytest.approx(0.0, abs=1e-4)
    assert not fit.slope_clipped


def test_a_bend_is_learned_as_far_as_the_answers_tell() -> None:
    """Noise-free answers of a bent curve: the surer they are said to be, the more of the bend is believed."""
    queries = np.linspace(-0.7, 0.7, 41)
    bent = 0.3
    residuals = 0.5 - logistic(queries + bent * queries**2)
    found = []
    for sd in (0.5, 0.2, 0.1):
        noise = np.full(queries.shape, sd**2)
        fit = fitted(queries, residuals, noise, 0.5, start=0.1, slope=0.3)
        found.append(fit.bend)
        assert abs(fit.center) < fit.error
    assert 0.0 < found[0] < found[1] < found[2] <= bent + 0.02


def test_far_rounds_and_infinite_noise_are_left_out() -> None:
    queries = np.array([-0.4, -0.2, 0.0, 0.2, 0.4, 50.0, 0.1])
    residuals = 0.5 - logistic(queries)
    residuals[5:] = 0.9  # nonsense far away, and nonsense that does not count
    noise = np.array([1e-3] * 6 + [np.inf])
    fit = fitted(queries, residuals, noise, 0.5, start=0.0, slope=0.25)
    assert fit.center == pytest.approx(0.0, abs=1e-6)
    assert fit.used == pytest.approx(5 / 6)


def test_standard_error_and_slope_error_are_those_of_the_noise() -> None:
    """Fixed questions, Gaussian noise: the claimed errors are the observed ones."""
    rng = np.random.default_rng(4)
    runs, rounds, sd = 1500, 60, 0.035
    queries, noise = np.tile([-0.4, -0.1, 0.1, 0.4], rounds // 4), np.full(rounds, sd**2)
    answers = 0.5 - logistic(queries - 0.03) + sd * rng.standard_normal((runs, rounds))
    fits = [fitted(queries, row, noise, 0.5, start=0.0, slope=0.25) for row in answers]
    center, error, slope, slope_error = np.array([fit[:4] for fit in fits]).T
    # The standard deviation of `runs` normal draws is known within 1/√(2·runs); the prior on the bend shrinks a little.
    tolerance, unbiased = 4 / math.sqrt(2 * runs) + 0.03, 1 - DRIFT_BIAS * slope_error**2
    assert float(center.std() / (error * unbiased).mean()) == pytest.approx(1.0, abs=tolerance)
    slopes = slope / unbiased
    assert float(slopes.std() / slopes.mean() / slope_error.mean()) == pytest.approx(1.0, abs=tolerance)


@pytest.mark.parametrize("rho", [0.0, 0.1, 0.3])
def test_fieller_interval_and_p_value_agree(rho: float) -> None:
    law = FiellerLaw(rho)
    for level in (0.5, 0.9, 0.95, 0.99):
        assert law.tail(law.quantile(level)) == pytest.approx(1 - level, rel=1e-9)
    assert FiellerLaw(0.0).quantile(0.95) == pytest.approx(NormalDist().inv_cdf(0.975))
    assert law.tail(0.0) == 1.0


def test_fieller_law_holds_for_a_ratio_of_normals_and_the_plain_one_does_not() -> None:
    """(ȳ − f̂Q)/… with an independent slope of relative error ρ: coverage is exact; z = 1.96 is not."""
    rng = np.random.default_rng(5)
    runs, rho = 200_000, 0.25
    noise, slope = rng.standard_normal(runs), 1 + rho * rng.standard_normal(runs)
    # Q = 0, the questions' mean lies one standard error off: q̄ = Z₁, ȳ = −q̄ + noise, Q̂ = q̄ + ȳ/f̂.
    mean = noise * 0.9 + 0.3 * rng.standard_normal(runs)
    center = mean + (noise - mean) / slope
    error, relative = 1 / np.abs(slope), rho / np.abs(slope)
    z = NormalDist().inv_cdf(0.975)
    reach = error * fieller_reach(z, relative)
    tolerance = 4 * math.sqrt(0.05 * 0.95 / runs)
    covered = float((np.abs(center) <= reach).mean())
    assert covered == pytest.approx(0.95, abs=tolerance + 0.01)
    plain = float((np.abs(center) <= z * error).mean())
    assert plain < 0.95 - 2 * tolerance  # the negative control: a slope taken for known
