"""The audit passes the shipped client and catches every broken one; its bounds are exact."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from privatile.core.mechanism import RandomizedResponse
from privatile.federation.audit.audit import ALPHA, POWER, audit, find_ratio, own_client
from privatile.federation.audit.ratio import clopper_pearson, ratio_bounds, reports_needed

pytestmark = pytest.mark.network

BROKEN = Path(__file__).parent / "broken_clients"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))


def failures(epsilon: float, command: list[str] | None, off: float = 0.5) -> dict[str, str]:
    return {one.name: one.text for one in audit(epsilon, command, off=off).findings if not one.passed}


def test_the_shipped_client_passes() -> None:
    found = audit(1.0, own_client())
    assert found.passed, found.to_text()
    assert found.reports > 6e5


@pytest.mark.parametrize("factor", ["1.02", "0.98"])
def test_a_truth_rate_off_by_two_percent_is_caught_on_either_side(factor: str) -> None:
    # A larger epsilon shows the same relative error with fewer reports.
    found = failures(3.0, [sys.executable, str(BROKEN / "wrong_rate.py"), factor], off=0.02)
    assert set(found) == {"ratio"}, found


def test_seeded_randomness_is_caught() -> None:
    found = failures(1.0, [sys.executable, str(BROKEN / "seeded.py")])
    assert set(found) == {"fresh"}, found


def test_a_record_that_answers_twice_is_caught() -> None:
    found = failures(1.0, [sys.executable, str(BROKEN / "twice.py")])
    assert "once" in found, found


def test_a_raw_value_in_a_log_is_caught() -> None:
    found = failures(1.0, [sys.executable, str(BROKEN / "leaky.py")])
    assert set(found) == {"quiet"}, found
    assert "output.log" in found["quiet"]


@pytest.mark.parametrize(
    ("ones", "trials"), [(0, 10), (10, 10), (3, 17), (731, 1000), (219_000, 300_000), (1, 300_000)]
)
def test_bounds_are_those_of_clopper_and_pearson(ones: int, trials: int) -> None:
    low, high = clopper_pearson(ones, trials, ALPHA)
    exact = stats.binomtest(ones, trials).proportion_ci(1 - 2 * ALPHA, method="exact")
    assert low == pytest.approx(exact.low, rel=1e-9, abs=1e-12)
    assert high == pytest.approx(exact.high, rel=1e-9)


def test_a_ratio_that_the_counts_do_not_bound_is_infinite() -> None:
    (low, high), _ = ratio_bounds(10, 0, 10, ALPHA)
    assert low > 0.0
    assert high == float("inf")


@pytest.mark.statistical
def test_the_sample_size_has_its_power() -> None:
    """The ratio's rule on simulated counts: a rate off by 2% is found, a right one passes."""
    mechanism = RandomizedResponse.from_epsilon(1.0)
    side = reports_needed(mechanism.truth_rate, 0.02, ALPHA, POWER)
    assert 5e5 < 2 * side < 8e5
    rng = np.random.default_rng(11)

    def caught(rate: float) -> int:
        p = (1 + rate) / 2
        above, below = rng.binomial(side, p, 100), rng.binomial(side, 1 - p, 100)
        return sum(not find_ratio(1.0, [int(a)], [int(b)], side).passed for a, b in zip(above, below, strict=True))

    assert caught(mechanism.truth_rate) <= 2  # a thousandth is expected: P(more than 2 of 100) < 2e-4
    for factor in (1.02, 0.98):
        assert caught(mechanism.truth_rate * factor) >= 97  # 99.9% are expected: P(fewer than 97 of 100) < 4e-6
