"""Critical values: reference numbers, agreement with the definition, and the ways input can be wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatile.core.arrays import Floats
from privatile.errors import InputError
from privatile.laws.brownian import brownian_law
from privatile.laws.critical import clock_increments, critical_value, statistic_law
from privatile.laws.ratio import RatioLaw, from_covariance


def five_after_warm_up(records: int) -> Floats:
    warm = records // 20
    return np.concatenate([np.ones(warm), np.full((records - warm) // 5, 5.0)])


def log_after_warm_up(records: int) -> Floats:
    warm = records // 20
    lengths = [1] * warm
    left, j = records - warm, 1
    while left > 0:
        lengths.append(min(math.ceil(math.log2(j + 1)), left))
        left -= lengths[-1]
        j += 1
    return np.array(lengths, dtype=float)


def jumpy_weights(seed: int, rounds: int) -> Floats:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(rounds) < 0.03, 60.0, 0.1) * rng.lognormal(0.0, 1.0, rounds)


def law_from_eigenvalues(weights: Floats, endpoint_variance: float = 1.0) -> RatioLaw:
    """The definition, by a dense covariance: a second way to the same numbers."""
    times = np.cumsum(clock_increments(weights=weights))
    trend = np.arange(1, times.size + 1) / times.size
    cov = np.minimum.outer(times, times) - np.outer(trend, times) - np.outer(times, trend) + np.outer(trend, trend)
    root = np.sqrt(clock_increments(weights=weights))
    return from_covariance(root[:, None] * cov * root, root * (times - trend), endpoint_variance)


@pytest.mark.parametrize(("level", "expected"), [(0.90, 5.323), (0.95, 6.7473), (0.99, 10.018)])
def test_constant_lengths_have_the_published_values(level: float, expected: float) -> None:
    assert critical_value(np.full(5000, 7.0), level).value == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize(
    ("lengths", "rounds", "expected"),
    [
        (five_after_warm_up(10_000), 2_400, 5.553),
        (log_after_warm_up(10_000), 1_549, 4.589),
        (log_after_warm_up(50_000), 6_783, 4.462),
    ],
    ids=["C5", "Log 10,000", "Log 50,000"],
)
def test_the_papers_schedules(lengths: Floats, rounds: int, expected: float) -> None:
    assert lengths.size == rounds
    assert critical_value(lengths).value == pytest.approx(expected, abs=0.001)


def bridge_transform(y: Floats) -> tuple[Floats, Floats]:
    """log(sinh√y/√y) and 1: the Brownian bridge is independent of its endpoint."""
    root = np.sqrt(y)
    return root + np.log(-np.expm1(-2.0 * root) / (2.0 * root)), np.ones_like(y)


def test_the_long_constant_schedule_is_the_brownian_bridge() -> None:
    bridge = RatioLaw(bridge_transform)
    for level in (0.5, 0.95, 0.999):
        # The finite sum differs from its limit by O(1/T²).
        assert critical_value(np.ones(200_000), level).value == pytest.approx(bridge.quantile(level), abs=1e-7)
    scipy_integrate = pytest.importorskip("scipy.integrate")
    v = 6.7473

    def integrand(y: float) -> float:
        return float((math.sqrt(y) / math.sinh(math.sqrt(y))) ** 0.5 / math.sqrt(y / v**2 - 1.0) / y)

    near, _ = scipy_integrate.quad(integrand, v * v, 100.0, limit=500)
    far, _ = scipy_integrate.quad(integrand, 100.0, 1e5, limit=500)
    assert bridge.tail(v) == pytest.approx((near + far) / math.pi, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "weights",
    [
        np.random.default_rng(1).lognormal(0.0, 2.0, 900),
        jumpy_weights(2, 700),
        np.r_[np.ones(60), np.full(840, 1e-3)],
        np.array([1.0, 3.0]),
        np.array([5.0, 0.2, 1.0]),
        1.0 / np.arange(1.0, 600.0),
    ],
    ids=["log-normal", "jumpy", "warm-up", "two rounds", "three rounds", "falling"],
)
def test_elimination_agrees_with_eigenvalues(weights: Floats) -> None:
    reference = law_from_eigenvalues(weights)
    for level in (0.3, 0.95, 0.999):
        assert critical_value(weights=weights, confidence_level=level).value == pytest.approx(
            reference.quantile(level), rel=1e-8
        )


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [2_000, 4_000])
def test_coarsening_changes_nothing_that_matters(rounds: int) -> None:
    rng = np.random.default_rng(rounds)
    schedules = [
        rng.lognormal(0.0, 1.5, rounds),
        jumpy_weights(rounds, rounds),
        np.where(np.arange(rounds) % 97 < 3, 40.0, 1.0),
        np.r_[np.ones(rounds // 20), 1.0 / rng.integers(1, 300, rounds - rounds // 20)],
    ]
    for weights in schedules:
        increments = clock_increments(weights=weights)
        every_round = brownian_law(increments, blocks=10**9)
        for level in (0.5, 0.95, 0.999):
            exact = every_round.quantile(level)
            assert brownian_law(increments).quantile(level) == pytest.approx(exact, rel=1e-7)
            assert brownian_law(increments, blocks=128).quantile(level) == pytest.approx(exact, rel=1e-4)


def simulated_statistics(weights: Floats, replications: int, seed: int, kappa: float = 1.0) -> Floats:
    """|S| by its definition: Brownian increments, detrended, normalised."""
    rng = np.random.default_rng(seed)
    increments = clock_increments(weights=weights)
    path = np.cumsum(rng.standard_normal((replications, weights.size)) * np.sqrt(increments), axis=1)
    end = path[:, -1].copy()
    path -= np.arange(1, weights.size + 1) / weights.size * end[:, None]
    if kappa < 1.0:
        # Given the path, the endpoint is normal with mean μ and variance 1/J; redraw it with 1 − κ less.
        steps = np.diff(path, axis=1, prepend=0.0)
        precision = float(np.sum(1.0 / increments)) / weights.size**2
        mean = -(steps / increments).sum(axis=1) / weights.size / precision
        end = mean + math.sqrt(1.0 / precision - (1.0 - kappa)) * rng.standard_normal(replications)
    statistic: Floats = np.abs(end) / np.sqrt((path * path) @ increments)
    return statistic


@pytest.mark.statistical
@pytest.mark.parametrize(
    "weights",
    [np.array([1.0, 4.0, 0.5, 2.0, 9.0]), jumpy_weights(5, 60), 1.0 / log_after_warm_up(300)],
    ids=["five rounds", "jumpy", "log"],
)
def test_simulation_of_the_definition(weights: Floats) -> None:
    replications = 200_000
    statistics = simulated_statistics(weights, replications, seed=11)
    for level in (0.5, 0.9, 0.95, 0.99):
        share = float(np.mean(statistics <= critical_value(weights=weights, confidence_level=level).value))
        error = math.sqrt(level * (1.0 - level) / replications)
        assert abs(share - level) < 4.0 * error


@pytest.mark.statistical
def test_the_constant_value_is_wrong_for_another_schedule() -> None:
    """Negative control: the paper's one value for all schedules is seen as wrong by the same check."""
    lengths = log_after_warm_up(2_000)
    replications = 20_000
    statistics = simulated_statistics(1.0 / lengths, replications, seed=12)
    share = float(np.mean(statistics <= critical_value(np.ones(lengths.size)).value))
    assert abs(share - 0.95) > 10.0 * math.sqrt(0.95 * 0.05 / replications)
    assert statistic_law(lengths=log_after_warm_up(50_000)).tail(6.7473) < 0.01


@pytest.mark.parametrize("weights", [np.ones(50), jumpy_weights(3, 80), 1.0 / log_after_warm_up(50_000)])
@pytest.mark.parametrize("level", [0.01, 0.5, 0.95, 0.9999])
def test_the_tail_inverts_the_critical_value(weights: Floats, level: float) -> None:
    v = critical_value(weights=weights, confidence_level=level)
    assert statistic_law(weights=weights).tail(v.value) == pytest.approx(1.0 - level, rel=1e-8)
    assert statistic_law(weights=weights).tail(-v.value) == statistic_law(weights=weights).tail(v.value)


def test_the_ends_of_the_tail() -> None:
    assert statistic_law(lengths=[1, 1]).tail(0.0) == 1.0
    assert statistic_law(lengths=[1, 1]).tail(math.inf) == 0.0
    far = [statistic_law(lengths=np.ones(30_000)).tail(t) for t in (20.0, 60.0, 200.0, 1000.0)]
    assert far[0] > far[1] > far[2] > far[3] >= 0.0


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.01, 100.0), min_size=2, max_size=40), st.floats(0.05, 0.995), st.floats(0.1, 50.0))
def test_values_do_not_depend_on_the_unit_and_invert(weights: list[float], level: float, unit: float) -> None:
    array = np.array(weights)
    v = critical_value(weights=array, confidence_level=level).value
    assert critical_value(weights=unit * array, confidence_level=level).value == pytest.approx(v, rel=1e-7)
    assert critical_value(lengths=unit / array, confidence_level=level).value == pytest.approx(v, rel=1e-7)
    assert statistic_law(weights=array).tail(v) == pytest.approx(1.0 - level, rel=1e-6)


@pytest.mark.slow
def test_weights_spread_over_eight_decades() -> None:
    """Very short blocks beside very long rounds: still a law, and still the one of the eigenvalues."""
    rng = np.random.default_rng(17)
    for rounds in (300, 900, 9_000):
        weights = np.exp(rng.uniform(-9.0, 9.0, rounds))
        v = critical_value(weights=weights).value
        assert statistic_law(weights=weights).tail(v) == pytest.approx(0.05, rel=1e-6)
        if rounds < 1_000:
            assert v == pytest.approx(law_from_eigenvalues(weights).quantile(0.95), rel=1e-7)
        # Far statistics: small, ordered, and never a warning or a nan.
        far = [statistic_law(weights=weights).tail(t) for t in (v, 50.0, 1e4, 1e9)]
        assert far == sorted(far, reverse=True)
        assert 0.0 <= far[-1] < 1e-6


def test_endpoint_variance_only_scales_a_constant_schedule() -> None:
    v = critical_value(np.ones(500)).value
    for kappa in (0.9, 0.5, 0.1):
        assert critical_value(np.ones(500), endpoint_variance=kappa).value == pytest.approx(
            v * math.sqrt(kappa), rel=1e-7
        )


@pytest.mark.slow
def test_endpoint_variance_with_varying_lengths() -> None:
    lengths = five_after_warm_up(1_000)
    weights = 1.0 / lengths
    least = 1.0 - 1.0 / (weights.sum() * lengths.sum() / lengths.size**2)
    kappa = (1.0 + least) / 2.0
    v = critical_value(lengths, endpoint_variance=kappa).value
    assert v == pytest.approx(law_from_eigenvalues(weights, kappa).quantile(0.95), rel=1e-6)
    plain = critical_value(lengths).value
    assert abs(v / plain - math.sqrt(kappa)) > 0.001, "scaling alone would be wrong here"
    replications = 100_000
    statistics = simulated_statistics(weights, replications, seed=13, kappa=kappa)
    assert abs(float(np.mean(statistics <= v)) - 0.95) < 4.0 * math.sqrt(0.95 * 0.05 / replications)
    # The boundary itself is a law still; below it there is none.
    assert 0.0 < critical_value(lengths, endpoint_variance=least).value < v
    with pytest.raises(InputError, match="endpoint_variance must be at least"):
        critical_value(lengths, endpoint_variance=least - 0.01)


def test_sampling_without_replacement_gives_the_lowered_endpoint() -> None:
    """Cov(S_m, S_l) = W_min(m,l) − c·m·l: detrending removes c, and Var S_T falls to W_T − c·T²."""
    weights = np.array([1.0, 0.5, 0.5, 2.0, 0.25])
    count = np.arange(1, 6)
    c = 0.1
    sums = np.minimum.outer(np.cumsum(weights), np.cumsum(weights))
    drawn = sums - c * np.outer(count, count)
    total = weights.sum()

    def law(cov: Floats) -> RatioLaw:
        detrend = np.eye(5)
        detrend[:, -1] -= count / 5
        root = np.sqrt(weights / total)
        form = root[:, None] * (detrend @ cov @ detrend.T) * root
        return from_covariance(form, root * (detrend @ cov[:, -1]), cov[-1, -1])

    kappa = (total - c * 25) / total
    v = critical_value(weights=weights, endpoint_variance=kappa).value
    assert law(drawn).quantile(0.95) == pytest.approx(v, rel=1e-8)
    assert law(sums).quantile(0.95) == pytest.approx(critical_value(weights=weights).value, rel=1e-8)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "got neither"),
        ({"lengths": [1, 2], "weights": [1, 2]}, "got both"),
        ({"lengths": []}, "at least one"),
        ({"lengths": [[1, 2]]}, "shape"),
        ({"lengths": [1, -1]}, "round 2"),
        ({"lengths": [0, 1]}, "round 1"),
        ({"weights": [1, math.nan]}, "got nan in round 2"),
        ({"weights": [1, math.inf]}, "got inf in round 2"),
        ({"weights": [1, 1e13]}, "factor"),
        ({"lengths": [3]}, "at least 2 rounds"),
        ({"lengths": "abc"}, "must be numbers"),
        ({"lengths": [1, 1], "normalizer": "l3"}, "must be one of l2, l1, sup"),
        ({"lengths": [1, 1], "endpoint_variance": 0.0}, "in \\(0, 1\\]"),
        ({"lengths": [1, 1], "endpoint_variance": 1.5}, "in \\(0, 1\\]"),
    ],
)
def test_wrong_input_is_refused_saying_how_to_fix_it(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        critical_value(**arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=words):
        statistic_law(**arguments).tail(1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95.0, math.nan])
def test_confidence_levels_outside_the_unit_interval(level: float) -> None:
    with pytest.raises(InputError, match="confidence_level"):
        critical_value([1, 1, 1], level)


def test_a_statistic_that_is_not_a_number_has_no_p_value() -> None:
    assert math.isnan(statistic_law(lengths=[1, 1]).tail(math.nan))


def test_clock_increments_are_positive_and_sum_to_one() -> None:
    times = np.cumsum(clock_increments(lengths=np.full(1_000_000, 3.0)))
    assert times[-1] == pytest.approx(1.0, abs=1e-9)
    assert np.all(np.diff(times) > 0.0)
    assert clock_increments(lengths=[2.0, 1.0, 1.0]).tolist() == [0.2, 0.4, 0.4]
    assert clock_increments(weights=[2.0, 1.0, 1.0]).tolist() == [0.5, 0.25, 0.25]
