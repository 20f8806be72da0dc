"""Batches of cells: one lane per thread, as on a GPU, gives the bits of 128 lanes side by side."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import numpy as np
import pytest

from privatile.cli import main
from privatile.core.arrays import Floats
from privatile.errors import InputError, MissingExtra
from privatile.estimator.schedule import Constant, Design, Logarithmic
from privatile.simulation import kernels
from privatile.simulation.cells import Cell
from privatile.simulation.cuda import Device
from privatile.simulation.engine import Launch, run_cell, run_cells
from privatile.simulation.experiment import read_experiment
from privatile.simulation.packing import LANES, Batch, blocks_of, pack
from privatile.simulation.populations import Cauchy, Empirical, Laplace, Normal, Population, Uniform
from privatile.simulation.runner import ExperimentStore, run_experiment

SEED = 7


def one_lane(*replacements: tuple[str, str]) -> Launch:
    """The kernels as a GPU's thread runs them, one lane at a time, on the CPU; some of their text replaced."""
    source = Path(kernels.__file__).read_text(encoding="utf-8").replace("cache=True, ", "")
    for old, new in replacements:
        assert old in source
        source = source.replace(old, new)
    module = ModuleType("one_lane")
    module.__dict__["LANES"] = 1
    exec(compile(source, "one_lane", "exec"), module.__dict__)

    def launch(batch: Batch, paths: Floats) -> Floats:
        result = np.full((3, batch.start.size), np.nan)
        module.__dict__["simulate"](batch.jobs, *batch.pools(), result, paths)
        return result

    return launch


@pytest.fixture(scope="module")
def host() -> Launch:
    return one_lane()


K = 4
SHIFTED = tuple(Normal(location) for location in (0.5, -0.1, 0.6, 1.5))
MIXED: tuple[Population, ...] = (Normal(), Uniform(-1.0, 1.0), Cauchy(), Cauchy())


def cell(**changes: object) -> Cell:
    values: dict[str, object] = {
        "populations": (Normal(),) * K,
        "levels": (0.5,) * K,
        "truth_rates": (0.25,) * K,
        "weights": (1.0 / K,) * K,
        "design": Design("c1", Constant(1), mode="local", warm_up=0.05),
        "records": (300,) * K,
    }
    return Cell(**(values | changes))  # type: ignore[arg-type]


C5 = Design("c5", Constant(5), mode="local", warm_up=0.05)
LOG = Design("log", Logarithmic(), mode="local", warm_up=0.05)
DIVIDE = Design("divide", Constant(1), mode="local", step_scale=2.0)
RATES = (0.25, 0.4, 0.7, 0.9)
CELLS = {
    "C1": cell(),
    "C1, rates": cell(truth_rates=RATES, levels=(0.3, 0.4, 0.5, 0.9)),
    "C1, locations": cell(populations=SHIFTED, truth_rates=RATES),
    "C1, families": cell(populations=MIXED, truth_rates=RATES),
    "C5": cell(design=C5),
    "C5, families": cell(design=C5, populations=MIXED, truth_rates=RATES, levels=(0.8,) * K),
    "Log, locations": cell(design=LOG, populations=SHIFTED, truth_rates=RATES),
    "Log, fixed T": cell(design=replace(LOG, rounds=200), records=()),
    "DP-SGD": cell(method="dp-sgd", truth_rates=RATES),
    "DP-SGD, families": cell(method="dp-sgd", truth_rates=RATES, populations=MIXED),
    "DC": cell(method="divide", design=DIVIDE, truth_rates=RATES, levels=(0.3, 0.4, 0.5, 0.9)),
    "DC, families": cell(method="divide", design=DIVIDE, populations=MIXED),
    "cohort": cell(design=Design("cohort", Constant(7), burn_in=0.1)),
    "cohort, large": cell(design=Design("cohort", Constant(50), burn_in=0.1), records=(5000,) * K),
    "cohort, unequal": cell(design=Design("cohort", Constant(3), rounds=100), records=(300, 301, 450, 2000)),
    "unequal, local": cell(design=replace(C5, rounds=60), records=(300, 301, 450, 700), populations=SHIFTED),
    "C1, one data set": cell(fixed_data=True, fixed_step=True),
    "C5, one data set": cell(fixed_data=True, fixed_step=True, design=C5, populations=SHIFTED, truth_rates=RATES),
    "cohort, one data set": cell(fixed_data=True, design=Design("cohort", Constant(7))),
    "DP-SGD, one data set": cell(fixed_data=True, fixed_step=True, method="dp-sgd", populations=MIXED),
    "DC, one data set": cell(fixed_data=True, method="divide", design=DIVIDE, populations=MIXED),
    "far start": cell(start=Normal(0.0, 40.0), populations=(Laplace(),) * K),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_same_bits_as_the_cpu(name: str, host: Launch) -> None:
    chosen, count = CELLS[name], LANES + 30
    (ours,) = run_cells([chosen], count, SEED, host)
    theirs = run_cell(chosen, count, SEED)
    np.testing.assert_array_equal(ours.estimates, theirs.estimates)
    np.testing.assert_array_equal(ours.normalizers, theirs.normalizers)


def test_cells_of_a_batch_do_not_touch_each_other(host: Launch) -> None:
    chosen = [CELLS[name] for name in ("C5", "DC", "C1, rates", "DP-SGD, one data set", "cohort, unequal")]
    together = run_cells(chosen, 20, SEED, host)
    for one, outcome in zip(chosen, together, strict=True):
        (alone,) = run_cells([one], 20, SEED, host)
        np.testing.assert_array_equal(alone.estimates, outcome.estimates)


WRONG = {
    "truth rate off": (
        "base + slope * f[NEAR * LANES + i])\n            w[COUNT",
        "base + F32(0.98) * slope * f[NEAR * LANES + i])\n            w[COUNT",
    ),
    "a zero moves too little": ("(up if below else down))", "(up if below else U32(down + (down >> U32(12)))))"),
    "debiased too little": ("gain * I32(w[COUNT", "0.98 * gain * I32(w[COUNT"),
    "rounds one late": (
        "r = rounds[U64(job.first_round) + U64(m)]\n        step",
        "r = rounds[U64(job.first_round) + U64(max(m, 1) - 1)]\n        step",
    ),
}


# Each takes a compilation of the whole source. The same source is broken in the same ways for the processor
# (test_kernels.py), in every run of the suite.
@pytest.mark.process
@pytest.mark.skipif(not os.environ.get("PRIVATILE_LONG"), reason="a compilation each; PRIVATILE_LONG=1 runs them")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_caught(name: str) -> None:
    (ours,) = run_cells([CELLS["C5"]], 20, SEED, one_lane(WRONG[name]))
    assert np.any(ours.estimates != run_cell(CELLS["C5"], 20, SEED).estimates)


@pytest.mark.process
@pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
def test_a_gpu_gives_the_same_bits() -> None:
    try:
        device = Device()
    except InputError as error:
        pytest.skip(str(error))
    chosen = list(CELLS.values())
    for cell, ours in zip(chosen, run_cells(chosen, LANES + 30, SEED, device.launch), strict=True):
        np.testing.assert_array_equal(ours.estimates, run_cell(cell, LANES + 30, SEED).estimates)


def test_a_range_left_is_widened(host: Launch) -> None:
    """Blocks whose q left the tables run again with wider ones; the others keep their numbers."""
    asked = 0

    def counting(batch: Batch, paths: Floats) -> Floats:
        nonlocal asked
        asked += 1
        found = host(batch, paths)
        if asked == 1:
            found[2, 3] = 0.0
        return found

    chosen = CELLS["C5"]
    (ours,) = run_cells([chosen], 2 * LANES, SEED, counting)
    assert asked == 2
    theirs = run_cell(chosen, 2 * LANES, SEED)
    np.testing.assert_array_equal(ours.estimates[LANES:], theirs.estimates[LANES:])
    # A wider table is another table, the same in law: means within 5 standard errors of their difference.
    gap = np.mean(ours.estimates[:LANES]) - np.mean(theirs.estimates[:LANES])
    assert abs(gap) < 5.0 * np.std(theirs.estimates) * np.sqrt(2.0 / LANES)


def test_steps_too_large_are_named(host: Launch) -> None:
    def outside(batch: Batch, paths: Floats) -> Floats:
        found = host(batch, paths)
        found[2] = 0.0
        return found

    with pytest.raises(InputError, match="too large"):
        run_cells([cell(populations=(Normal(0.0, 1000.0),) * K, records=(20,) * K)], 5, SEED, outside)


def test_a_range_too_wide_for_tables_ends_record_by_record(host: Launch) -> None:
    def outside(batch: Batch, paths: Floats) -> Floats:
        found = host(batch, paths)
        found[2] = 0.0
        return found

    (ours,) = run_cells([CELLS["C1"]], 5, SEED, outside)
    np.testing.assert_array_equal(ours.estimates, run_cell(CELLS["C1"], 5, SEED, path="records").estimates)


def test_without_a_table_a_cell_runs_on_the_cpu(host: Launch) -> None:
    column = np.random.default_rng(1).normal(size=500)
    rough = cell(populations=(Empirical(column),) * K, records=(40,) * K)
    ours = run_cells([CELLS["C1"], rough], 20, SEED, host)[1]
    np.testing.assert_array_equal(ours.estimates, run_cell(rough, 20, SEED).estimates)


def test_equal_parts_are_stored_once() -> None:
    blocks = [block for place in range(3) for block in blocks_of(place, CELLS["C5"], 300, SEED)]
    batch = pack(blocks)
    assert batch.clients.size == K
    assert batch.rounds.size == CELLS["C5"].lengths.shape[1]


def test_longest_cells_come_first() -> None:
    short, long = CELLS["C1"], cell(design=LOG, records=(3000,) * K)
    blocks = [*blocks_of(0, short, 10, SEED), *blocks_of(1, long, 10, SEED)]
    assert [block.place for block in pack(blocks).blocks] == [1, 0]


def test_without_numba_cuda_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    with pytest.raises(MissingExtra, match=r"\.\[gpu\]"):
        Device()


def test_without_a_gpu_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba_cuda", ModuleType("numba_cuda"))
    monkeypatch.setitem(sys.modules, "numba.cuda", cast(ModuleType, SimpleNamespace(is_available=lambda: False)))
    with pytest.raises(InputError, match=r"needs an NVIDIA GPU.*--device cpu"):
        Device()


DESIGN = """
title = "two cells"
clients = 3
replications = 20
seed = 5
start = "normal"
[populations]
here = "normal"
[methods]
C5 = { lengths = 5, mode = "local", warm_up = 0.05 }
DC = { method = "divide", lengths = 1, mode = "local", step_scale = 2.0 }
[[grid]]
population = ["here"]
level = [0.5]
truth_rate = [0.5]
method = ["C5", "DC"]
records = [200]
"""


def test_an_experiment_on_a_device_stores_what_the_cpu_stores(tmp_path: Path, host: Launch) -> None:
    (tmp_path / "design.toml").write_text(DESIGN, encoding="utf-8")
    experiment = read_experiment(tmp_path / "design.toml")
    device = cast(Device, SimpleNamespace(launch=host))
    with (
        ExperimentStore.open_for(tmp_path / "cpu.db", experiment) as cpu,
        ExperimentStore.open_for(tmp_path / "gpu.db", experiment) as gpu,
    ):
        assert run_experiment(experiment, cpu) == 2
        assert run_experiment(experiment, gpu, device=device) == 2
        assert run_experiment(experiment, gpu, device=device) == 0
        for one, other in zip(cpu.rows(), gpu.rows(), strict=True):
            assert one.keys() == other.keys()
            names = [name for name in one if name != "seconds"]
            assert [repr(one[name]) for name in names] == [repr(other[name]) for name in names]
        with pytest.raises(InputError, match="takes the place of workers"):
            run_experiment(experiment, gpu, device=device, workers="dask")


@pytest.mark.parametrize("command", ["simulate", "paper"])
def test_the_command_names_the_cure(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    (tmp_path / "design.toml").write_text(DESIGN, encoding="utf-8")
    store = tmp_path / "out.db"
    arguments = {
        "simulate": ["simulate", "run", str(tmp_path / "design.toml"), "--store", str(store), "--device", "cuda"],
        "paper": ["paper", "tables", "--out", str(tmp_path / "paper"), "--device", "cuda"],
    }[command]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert not store.exists()
    assert not (tmp_path / "paper").exists()
