import math

import numpy as np
import pytest
from studies.coverage.sequence import reached

from privatile.errors import InputError
from privatile.inference.anytime import REACHED, THRESHOLDS, AnytimeLaw, mixture_bound


def test_the_mixture_bound_holds_at_all_looks_and_the_fixed_one_does_not() -> None:
    """A standardised random walk looked at 200 times: ever outside with probability at most α."""
    rng = np.random.default_rng(1)
    walks, looks = 20_000, 200
    paths = np.cumsum(rng.standard_normal((walks, looks)), axis=1) / np.sqrt(np.arange(1, looks + 1))
    bounds = np.array([mixture_bound((m + 1) / looks) for m in range(looks)])
    missed = float((np.abs(paths) > bounds).any(axis=1).mean())
    assert missed <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / walks)
    assert missed > 0.03  # and hardly wider than it must be
    assert float((np.abs(paths) > 1.96).any(axis=1).mean()) > 0.3  # the negative control


def test_interval_and_test_agree_and_later_looks_are_tighter() -> None:
    for time in (0.1, 0.5, 1.0):
        law = AnytimeLaw(time, 0.1)
        for level in (0.9, 0.95, 0.99):
            assert law.tail(law.quantile(level)) == pytest.approx(1 - level, rel=1e-6)
    assert mixture_bound(1.0) < mixture_bound(0.5) < mixture_bound(0.1)
    assert AnytimeLaw(0.5, 0.4).quantile(0.95) == math.inf


def test_time_is_a_share() -> None:
    with pytest.raises(InputError, match="share"):
        mixture_bound(0.0)


def test_the_table_of_thresholds_is_rederived() -> None:
    """Drifts from the mixture itself: how many paths have log M ≥ x by the end. The table may only err upwards."""
    paths = 20_000
    best = reached(paths, seed=2, times=np.geomspace(2e-3, 1.0, 300))
    for threshold, share in zip(THRESHOLDS, REACHED, strict=True):
        found, error = float((best >= threshold).mean()), math.sqrt(share * (1 - share) / paths)
        assert found <= share + 4 * error
        if 1.0 <= threshold <= 8.0:
            # 300 looks see a little less than all of them.
            assert found >= 0.93 * share - 4 * error
