"""Seeded Monte Carlo with fresh data: the preset C1 covers as it says, and forgetting to debias is caught.

Thousands of replications run side by side as arrays; a second test replays some of their counts through the
package's own `step` and finds the same estimate and normaliser, so what is measured is what ships.
"""

import math
import os
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import Identity
from privatile.estimator.clients import Client
from privatile.estimator.plan import normalizer, plan_from_design, replay
from privatile.estimator.schedule import PRESETS
from privatile.laws.critical import critical_value

pytestmark = pytest.mark.statistical

REPLICATIONS = 1000 if os.environ.get("PRIVATILE_LONG") else 300

GRID = np.linspace(-10.0, 10.0, 10_001)
TABLE = np.array([NormalDist().cdf(x) for x in GRID])


def normal_cdf(x: Floats) -> Floats:
    """Φ by table; the spacing of 0.002 errs below 3·10⁻⁷."""
    result: Floats = np.interp(x, GRID, TABLE)
    return result


@dataclass
class Replications:
    estimates: Floats
    normalizers: Floats
    counts: NDArray[np.uint8]
    """Rounds × clients of the first replications, to replay."""


def run_c1(
    centers: list[float], rates: list[float], records: int, replications: int, seed: int, debias: bool = True
) -> Replications:
    """C1 (one record a client and round) for normal clients, level ½; reports drawn from their law given q."""
    rng = np.random.default_rng(seed)
    steps = 20.0 * np.mean(rates) / (np.arange(records) ** 0.51 + 100.0)
    rate, center = np.array(rates)[:, None], np.array(centers)[:, None]
    q = rng.standard_normal(replications)  # the paper's start
    q[:4] = 0.0  # the ones that are replayed start where a plan starts
    running, moments = np.zeros(replications), np.zeros((3, replications))
    kept = np.zeros((records, len(rates)), dtype=np.uint8)
    start = q.copy()
    for m in range(1, records + 1):
        above = normal_cdf(center - q[None, :])
        ones = rng.random((len(rates), replications)) < (1 - rate) / 2 + rate * above
        kept[m - 1] = ones[:, 0]
        shares = (ones - (1 - rate) / 2) / rate if debias else ones
        q = q + steps[m - 1] * (shares.mean(axis=0) - 0.5)
        running += (q - start - running) / m
        moments += m * m * np.stack([np.ones(replications), running, running**2])
    value = (moments[2] - 2 * moments[1] * running + moments[0] * running**2) / (records * float(records) ** 2)
    return Replications(start + running, value, kept)


@pytest.fixture(scope="module")
def strong() -> Replications:
    return run_c1([0.0] * 10, [0.25] * 10, 10_000, REPLICATIONS, seed=25)


@pytest.fixture(scope="module")
def light() -> Replications:
    return run_c1([0.0] * 10, [0.9] * 10, 10_000, REPLICATIONS, seed=90)


def check_cell(cell: Replications, truth: float, mae: float) -> None:
    errors = np.abs(cell.estimates - truth)
    v = critical_value([1] * 10_000).value
    covered = np.mean(errors <= v * np.sqrt(cell.normalizers))
    noise = math.sqrt(0.95 * 0.05 / len(errors))
    # The known coverage is .945–.955; four standard errors of the replications on either side.
    assert 0.945 - 4 * noise < covered < 0.955 + 4 * noise
    # The known error is rounded to four decimals.
    assert abs(errors.mean() - mae) < 4 * errors.std() / math.sqrt(len(errors)) + 0.00005


def test_c1_covers_and_errs_as_known_at_truth_rate_one_quarter(strong: Replications) -> None:
    check_cell(strong, 0.0, 0.0138)


def test_c1_covers_and_errs_as_known_at_truth_rate_nine_tenths(light: Replications) -> None:
    check_cell(light, 0.0, 0.0038)


def test_the_check_fails_for_a_truth_rate_off_by_a_third(strong: Replications) -> None:
    """Negative control: errors a third too large are not waved through."""
    with pytest.raises(AssertionError):
        check_cell(Replications(strong.estimates * 1.33, strong.normalizers, strong.counts), 0.0, 0.0138)


def test_the_package_s_own_step_gives_the_same_numbers(strong: Replications) -> None:
    clients = [Client(f"c{k}", RandomizedResponse(0.25), 0.1, 0.5, 10_000) for k in range(10)]
    plan = plan_from_design(PRESETS["paper-c1"], clients, Identity(-50, 50), start=0.0)
    state = replay(plan, strong.counts.tolist())
    assert state.averages.estimate == pytest.approx(strong.estimates[0], abs=1e-9)
    assert normalizer(state.averages) == pytest.approx(strong.normalizers[0], rel=1e-6)


def test_forgetting_to_debias_finds_the_wrong_root() -> None:
    """Clients N(0,1) with r = .9 and N(2,1) with r = .3: the right root is 1.0, the undebiased one 0.383."""
    right = run_c1([0.0, 2.0], [0.9, 0.3], 10_000, 200, seed=4)
    wrong = run_c1([0.0, 2.0], [0.9, 0.3], 10_000, 200, seed=4, debias=False)
    noise = right.estimates.std() / math.sqrt(200)
    # A start up to a few spreads away leaves a transient of about 1/Σγf in the plain average.
    assert abs(right.estimates.mean() - 1.0) < 4 * noise + 0.02
    assert abs(wrong.estimates.mean() - 0.383) < 4 * wrong.estimates.std() / math.sqrt(200) + 0.02
