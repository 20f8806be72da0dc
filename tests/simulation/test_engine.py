"""Numbers that depend on seed, cell and replication alone; known operating characteristics; bounded memory."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from privatile.errors import InputError, MissingExtra
from privatile.estimator.schedule import PRESETS, Constant, Design
from privatile.simulation.cells import Cell
from privatile.simulation.engine import Outcome, run_cell, summarize
from privatile.simulation.populations import Cauchy, Empirical, Normal, Population, Uniform

C1, C5, LOG = PRESETS["paper-c1"], PRESETS["paper-c5"], PRESETS["paper-log"]
MIXED: tuple[Population, ...] = (Normal(-1.0), Uniform(-1.0, 1.0), Cauchy())


def ten_clients(rate: float, design: Design, records: int = 10_000) -> Cell:
    return Cell((Normal(),) * 10, (0.5,) * 10, (rate,) * 10, (0.1,) * 10, design, (records,) * 10)


def three_clients(design: Design, **changes: object) -> Cell:
    made = Cell(MIXED, (0.6,) * 3, (0.4, 0.6, 0.8), (0.5, 0.25, 0.25), design, (120,) * 3)
    return replace(made, **changes)  # type: ignore[arg-type]


KINDS = {
    "C1": three_clients(C1),
    "C5": three_clients(C5),
    "cohort": three_clients(Design("cohort", Constant(30), burn_in=0.25)),
    "dp-sgd": three_clients(C1, method="dp-sgd"),
    "divide": three_clients(C1, method="divide"),
    "one data set": three_clients(C5, fixed_data=True, fixed_step=True),
    "unequal": three_clients(Design("cohort", Constant(1), rounds=40), records=(40, 90, 200)),
    "records": three_clients(C5, populations=(Empirical([0.0, 1.0, 2.0]),) * 3),
}


@pytest.mark.parametrize("name", KINDS)
def test_threads_and_blocks_change_nothing(name: str) -> None:
    cell = KINDS[name]
    whole = run_cell(cell, 300, seed=9)
    threaded = run_cell(cell, 300, seed=9, threads=2)
    pieces = [run_cell(cell, count, seed=9, first=first) for first, count in ((0, 1), (1, 150), (151, 149))]
    for field in ("estimates", "normalizers"):
        expected = getattr(whole, field)
        assert np.array_equal(getattr(threaded, field), expected)
        assert np.array_equal(np.concatenate([getattr(piece, field) for piece in pieces]), expected)
    assert np.unique(whole.estimates).size > 100
    assert not np.array_equal(run_cell(cell, 300, seed=10).estimates, whole.estimates)


def test_a_start_far_away_widens_the_tables_and_keeps_the_law() -> None:
    near = three_clients(Design("steep", Constant(1), step_scale=400.0), records=(400,) * 3)
    # The steps carry q far outside the first guess of its range in both paths.
    far = replace(near, start=Uniform(20.0, 20.5), design=replace(near.design, step_scale=2000.0))
    law = run_cell(far, 2048, seed=1, path="law").estimates
    records = run_cell(far, 2048, seed=2, path="records").estimates
    error = math.hypot(law.std(), records.std()) / math.sqrt(2048)
    assert abs(law.mean() - records.mean()) < 4 * error


def test_trajectories_end_in_the_estimate() -> None:
    cell = three_clients(Design("burned", Constant(5), burn_in=0.5))
    found = run_cell(cell, 140, seed=1, keep_paths=True)
    assert found.paths is not None
    assert found.paths.shape == (cell.lengths.shape[1] - cell.skip, 140)
    assert np.array_equal(found.paths[-1], found.estimates)
    rounds = found.paths.shape[0]
    deviations = (np.arange(1, rounds + 1) / rounds)[:, None] * (found.paths - found.paths[-1])
    shares = cell.round_weights[cell.skip :] / cell.round_weights[cell.skip :].sum()
    np.testing.assert_allclose(found.normalizers, shares @ deviations**2, rtol=1e-9)


# An independent implementation's values: coverage and MAE, with the critical value that gave them.
KNOWN = [(0.25, C1, None, 0.945, 0.0138), (0.9, C1, None, 0.947, 0.0038), (0.9, LOG, 6.753, 0.996, 0.0098)]


@pytest.mark.statistical
@pytest.mark.parametrize(("rate", "design", "critical", "coverage", "mae"), KNOWN)
def test_known_operating_characteristics(
    rate: float, design: Design, critical: float | None, coverage: float, mae: float
) -> None:
    cell = replace(ten_clients(rate, design), critical=critical)
    found = summarize(cell, run_cell(cell, 2000, seed=3, threads=2))
    # Both sides are Monte Carlo: theirs has at least 1,000 replications, and MAE is printed to four digits.
    error = math.sqrt(coverage * (1.0 - coverage) * (1 / 1000 + 1 / 2000))
    assert abs(found.coverage - coverage) < 4 * error
    assert abs(found.mae - mae) < 4 * math.hypot(found.mae_error, mae * 0.76 / math.sqrt(1000)) + 0.00005


@pytest.mark.statistical
def test_one_data_set_shows_what_the_published_rows_show() -> None:
    """r = 0.9, C1: with one data set for all replications MAE .0024 and coverage near 1, not .0038 and .95."""
    cell = replace(ten_clients(0.9, C1), fixed_data=True, fixed_step=True, critical=6.74735)
    found = summarize(cell, run_cell(cell, 1000, seed=3, threads=2))
    assert found.mae == pytest.approx(0.0024, abs=4 * found.mae_error + 0.00005)
    assert found.bias == pytest.approx(0.0017, abs=4 * found.bias_error * math.sqrt(1 + 1000 / 200) + 0.00005)
    assert found.coverage > 0.98


def test_a_summary_counts_what_it_says() -> None:
    cell = replace(ten_clients(0.5, C1, 100), critical=2.0, critical_beside=1.0)
    errors = np.array([0.0, 0.5, -1.0, 3.0])
    found = summarize(cell, Outcome(cell.truth + errors, np.array([1.0, 0.04, 0.16, 1.0])))
    # Half-widths 2, 0.4, 0.8, 2: only the first covers; with v = 1 also only the first.
    assert (found.coverage, found.coverage_beside) == (0.25, 0.25)
    assert found.mae == pytest.approx(1.125)
    assert found.bias == pytest.approx(0.625)
    assert found.rmse == pytest.approx(math.sqrt((0.25 + 1 + 9) / 4))
    assert found.width == pytest.approx(2 * (2 + 0.4 + 0.8 + 2) / 4)
    assert found.coverage_error == pytest.approx(math.sqrt(0.25 * 0.75 / 4))
    assert found.updates == 4 * 1000
    # σ² = (r⁻² − 0)/4 = 1 at the median, Σp² = 1/10, n = 100, f = φ(0).
    assert found.bound == pytest.approx(math.sqrt(0.1 / 100) / 0.3989422804, rel=1e-9)


def test_paths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="no smooth CDF"):
        run_cell(KINDS["records"], 1, seed=1, path="law")
    with pytest.raises(InputError, match="never drawn"):
        run_cell(KINDS["one data set"], 1, seed=1, path="records")
    with pytest.raises(InputError, match="replications must be at least 1"):
        run_cell(KINDS["C1"], 0, seed=1)


MEMORY = """
import re, sys
from pathlib import Path
from privatile.estimator.schedule import Design, Constant
from privatile.simulation.cells import Cell
from privatile.simulation.engine import run_cell
from privatile.simulation.populations import Normal
cell = Cell((Normal(),), (0.5,), (0.9,), (1.0,), Design("long", Constant(1)), (int(sys.argv[1]),))
run_cell(cell, 256, seed=1, threads=2)
# The process's own account: getrusage would count the parent's memory at the fork.
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.process
def test_memory_stays_where_it_is_when_rounds_grow() -> None:
    def peak(rounds: int) -> int:
        run = subprocess.run([sys.executable, "-c", MEMORY, str(rounds)], capture_output=True, text=True, check=True)
        return int(run.stdout) * 1024

    short, long = peak(1_000), peak(1_000_000 if os.environ.get("PRIVATILE_LONG") else 400_000)
    # A million rounds: three tables of doubles and their makings, 8 MB each, where kept paths would be 2 GB (in the
    # short form 3 MB each, and 0.8 GB).
    assert long < 500e6
    assert long - short < 150e6


def test_without_numba_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[simulation\]'"):
        run_cell(KINDS["C1"], 1, seed=1)
