import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatile.errors import InputError
from privatile.estimator.plan import Averages, add, normalizer, normalizer_of


def direct(queries: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Q_T and V from the formula, in extended precision."""
    x, w = queries.astype(np.longdouble), weights.astype(np.longdouble)
    rounds = np.arange(1, len(x) + 1)
    running = np.cumsum(x) / rounds
    total = (w * (rounds / len(x)) ** 2 * (running - running[-1]) ** 2).sum()
    return float(running[-1]), float(total / w.sum())


def online(queries: np.ndarray, weights: np.ndarray, center: float) -> Averages:
    sums = Averages(center=center)
    for query, weight in zip(queries.tolist(), weights.tolist(), strict=True):
        sums = add(sums, query, weight)
    return sums


@given(st.lists(st.tuples(st.floats(-100, 100), st.floats(0.01, 1)), min_size=2, max_size=50))
def test_algorithm_2_equals_the_formula(rounds: list[tuple[float, float]]) -> None:
    queries, weights = np.array(rounds).T
    estimate, value = direct(queries, weights)
    sums = online(queries, weights, queries[0])
    assert sums.estimate == pytest.approx(estimate, abs=1e-9)
    assert normalizer(sums) == pytest.approx(value, rel=1e-9, abs=1e-12)
    assert normalizer_of(queries, weights) == pytest.approx(value, rel=1e-9, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("base", [0.0, 1e8])
def test_many_rounds_near_a_hundred_million_lose_nothing(base: float) -> None:
    rounds = 1_000_000 if os.environ.get("PRIVATILE_LONG") else 300_000
    rng = np.random.default_rng(20260101)
    noise = rng.standard_normal(rounds)
    steps = 20.0 / (np.arange(rounds) ** 0.51 + 100.0)
    path, value = np.empty(rounds), 3.0
    for m in range(rounds):
        value += steps[m] * (0.4 * (0.0 - value) + noise[m])
        path[m] = value
    queries = base + path
    weights = 1.0 / np.ceil(np.log2(np.arange(rounds) + 2))
    # Compare with the formula on the offsets that doubles near `base` really hold: subtracting base is exact.
    _, exact = direct(queries - base, weights)
    assert normalizer(online(queries, weights, base)) == pytest.approx(exact, rel=1e-9)


def test_the_listing_s_raw_sums_would_fail_here() -> None:
    """Negative control: the four sums of Algorithm 2 without centring lose everything at 10⁸."""
    rng = np.random.default_rng(7)
    queries = 1e8 + np.cumsum(rng.standard_normal(2000)) * 0.01
    weights = np.ones(2000)
    _, exact = direct(queries - 1e8, weights)
    rounds = np.arange(1, 2001)
    running = np.cumsum(queries) / rounds
    last = running[-1]
    raw = (rounds**2 * running**2).sum() - 2 * (rounds**2 * running).sum() * last + (rounds**2).sum() * last**2
    assert abs(raw / (2000**2 * 2000) / exact - 1) > 1e-3
    assert normalizer(online(queries, weights, 1e8)) == pytest.approx(exact, rel=1e-9)


def test_l1_and_sup_follow_their_definitions() -> None:
    queries, weights = np.array([0.0, 6.0, 3.0]), np.array([1.0, 2.0, 1.0])
    deviations = np.array([abs(0 - 3) / 3, abs(3 - 3) * 2 / 3, 0.0])
    assert normalizer_of(queries, weights, "l1") == pytest.approx((deviations * weights).sum() / 4)
    assert normalizer_of(queries, weights, "sup") == pytest.approx(1.0)


def test_bad_input() -> None:
    with pytest.raises(InputError, match="one of l2"):
        normalizer_of(np.ones(2), np.ones(2), "l3")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="one weight per round"):
        normalizer_of(np.ones(2), np.ones(3))
