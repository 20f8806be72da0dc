"""Silent clients in the design for values declared continuous."""

import math
import os

import numpy as np
import pytest
from studies.coverage.dropout import silent_runs

from privatile.simulation.default_design import AutoCell
from privatile.simulation.populations import Normal


@pytest.mark.slow
def test_silent_clients_widen_the_interval_and_it_still_covers() -> None:
    cell = AutoCell((Normal(),) * 4, (0.5,) * 4, (4000,) * 4)
    runs = 40 if os.environ.get("PRIVATILE_LONG") else 16
    quiet, silent = (silent_runs(cell, runs, 7, share=share, burst=4.0) for share in (1e-9, 0.2))
    assert silent[:, 0].mean() >= 0.95 - 4 * math.sqrt(0.05 * 0.95 / runs)
    # A fifth of the answers is missing, and no other noise comes in: √(1/0.8) = 1.12. Repeated answers gave 1.5.
    assert 1.04 < np.median(silent[:, 1]) / np.median(quiet[:, 1]) < 1.3
    assert quiet[:, 1].mean() < 1.3
