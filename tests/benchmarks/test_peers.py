"""The peers do what their papers say: privacy of each report, and estimates that close in on the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import peer_methods as peers

EPSILON = 1.0
LOW, HIGH = -4.0, 4.0


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_square_wave_is_a_law_with_the_stated_privacy(epsilon: float) -> None:
    matrix = peers.square_wave_matrix(epsilon, 64)
    np.testing.assert_allclose(matrix.sum(axis=0), 1.0, atol=1e-12)
    assert (matrix.max(axis=1) / matrix.min(axis=1)).max() <= math.exp(epsilon) * (1.0 + 1e-9)
    # Optimal: a wave a fifth wider or narrower tells less about the value.
    best = _information(epsilon, peers.square_wave_width(epsilon))
    for factor in (0.8, 1.2):
        assert _information(epsilon, factor * peers.square_wave_width(epsilon)) < best


def _information(epsilon: float, b: float) -> float:
    """Their criterion: the upper bound log(1 + 2b) − h on the mutual information of a report and a uniform value."""
    e = math.exp(epsilon)
    q = 1.0 / (2.0 * b * e + 1.0)
    p = e * q
    return math.log(2.0 * b + 1.0) + 2.0 * b * p * math.log(p) + q * math.log(q)


@pytest.mark.parametrize("value", [0.0, 0.37, 1.0])
def test_square_wave_reports_follow_the_matrix(value: float) -> None:
    count, cells = 200_000, 32
    b = peers.square_wave_width(EPSILON)
    reports = peers.square_wave(np.full(count, value), EPSILON, np.random.default_rng(1))
    assert reports.min() >= -b
    assert reports.max() <= 1.0 + b
    edges = np.linspace(-b, 1.0 + b, cells + 1)
    q = 1.0 / (2.0 * b * math.e + 1.0)
    near = np.maximum(np.minimum(edges[1:], value + b) - np.maximum(edges[:-1], value - b), 0.0)
    expected = count * (q * np.diff(edges) + (math.e - 1.0) * q * near)
    observed = np.histogram(reports, edges)[0]
    # χ² with 31 degrees of freedom lies below 75 but for one case in 50,000.
    assert float(((observed - expected) ** 2 / expected).sum()) < 75.0


def test_em_recovers_a_known_distribution() -> None:
    """From exact report frequencies EM climbs to the distribution behind them; from those of another it does not."""
    cells = 16
    matrix = peers.square_wave_matrix(3.0, cells)
    truth = np.arange(1.0, cells + 1.0) / np.sum(np.arange(1.0, cells + 1.0))
    found = peers.expectation_maximization(matrix, 1e6 * (matrix @ truth), smooth=False, tolerance=1e-9)
    assert np.abs(np.cumsum(found - truth)).max() < 2e-3
    other = peers.expectation_maximization(matrix, 1e6 * (matrix @ truth[::-1]), smooth=False, tolerance=1e-9)
    assert np.abs(np.cumsum(other - truth)).max() > 0.1


def test_unary_frequencies_are_unbiased_with_the_known_variance() -> None:
    counts = np.array([0, 100, 400, 500])
    rng = np.random.default_rng(2)
    found = np.array([peers.unary_frequencies(counts, EPSILON, rng) for _ in range(4000)])
    variance = 4.0 * math.e / (math.e - 1.0) ** 2 / 1000.0
    # 4e^ε/(e^ε − 1)² a person at share 0, a little more at others: 5 standard errors of a mean of 4,000.
    assert np.abs(found.mean(axis=0) - counts / 1000.0).max() < 5.0 * math.sqrt(1.5 * variance / 4000.0)
    # The relative error of a variance from 4,000 draws is √(2/4000) = 2%.
    assert float(np.var(found[:, 0])) == pytest.approx(variance, rel=0.12)


def test_consistency_is_the_least_squares_tree() -> None:
    rng = np.random.default_rng(3)
    levels = [rng.normal(size=3), rng.normal(size=9)]
    ours = peers.consistent(levels, 3)
    np.testing.assert_allclose(ours[0].sum(), 1.0)
    np.testing.assert_allclose(ours[1].reshape(3, 3).sum(axis=1), ours[0])
    # Leaves of the same problem by plain least squares, the sum of all pinned to 1 by a heavy row.
    design = np.vstack([np.kron(np.eye(3), np.ones(3)), np.eye(9), 1e6 * np.ones(9)])
    leaves = np.linalg.lstsq(design, np.concatenate([*levels, [1e6]]), rcond=None)[0]
    np.testing.assert_allclose(ours[1], leaves, atol=1e-5)


@pytest.mark.parametrize(
    "method",
    [
        peers.square_wave_quantile,
        peers.square_wave_plain,
        peers.hierarchy_quantile,
        peers.binary_search_quantile,
        peers.sample_quantile,
    ],
)
@pytest.mark.parametrize(("level", "truth"), [(0.5, 0.3), (0.8, 0.3 + 0.8416212)])
def test_peers_close_in_on_the_truth(method: object, level: float, truth: float) -> None:
    """With 400,000 people and ε = 3 every method errs by less than a tenth; asked for another level it does not."""
    assert callable(method)
    rng = np.random.default_rng(4)
    records = rng.normal(0.3, 1.0, 400_000)
    assert abs(method(records, level, 3.0, LOW, HIGH, rng) - truth) < 0.1
    assert abs(method(records, 0.3, 3.0, LOW, HIGH, rng) - truth) > 0.2


def test_binary_search_splits_people() -> None:
    """Every person is asked in one step only: as many reports as people."""
    drawn: list[int] = []

    class Counting(np.random.Generator):
        def uniform(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            found = super().uniform(*args, **kwargs)  # type: ignore[call-overload]
            drawn.append(np.size(found))
            return found

    rng = Counting(np.random.PCG64(5))
    peers.binary_search_quantile(rng.normal(size=10_000), 0.5, EPSILON, LOW, HIGH, rng)
    assert sum(drawn) == 10_000
