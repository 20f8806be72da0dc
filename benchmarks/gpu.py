"""All 336 cells of the paper's tables on one GPU, each held against the CPU's kernels.

Where the CPU's kernels are (numba), once:       python benchmarks/gpu.py --write-reference reference.npz
Where the GPU is (with numba and numba-cuda): python benchmarks/gpu.py --reference reference.npz --out gpu.json

Device time is the GPU's own clock around the kernel, the median of five launches after a first; the whole run is the
wall clock of this process from its first line to the last summary, compilation of the kernel included.
--sweep also times other block sizes, and each method alone.
"""

from __future__ import annotations

import time

BEGUN = time.perf_counter()

import argparse  # noqa: E402
import datetime  # noqa: E402
import json  # noqa: E402
import platform  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

from privatile.simulation.cells import Cell  # noqa: E402
from privatile.simulation.cuda import Device  # noqa: E402
from privatile.simulation.engine import Outcome, run_cell, run_cells, summarize  # noqa: E402
from privatile.simulation.experiment import read_experiment  # noqa: E402
from privatile.simulation.packing import Batch, blocks_of, pack  # noqa: E402
from privatile.simulation.runner import cores  # noqa: E402

DESIGNS = Path(__file__).resolve().parents[1] / "studies" / "paper"
OUTSIDE = 4.0
"""Standard errors of a difference beyond which a cell counts as outside the Monte Carlo error."""


def paper_cells() -> tuple[list[Cell], list[str], int]:
    experiments = [read_experiment(DESIGNS / f"table{number}.toml") for number in (1, 2, 3, 4)]
    names = [f"table{n + 1}: {entry.name}" for n, experiment in enumerate(experiments) for entry in experiment.entries]
    return [entry.scheduled for experiment in experiments for entry in experiment.entries], names, experiments[0].seed


def write_reference(path: Path, replications: int) -> None:
    cells, names, seed = paper_cells()
    found = []
    for number, cell in enumerate(cells):
        found.append(run_cell(cell, replications, seed, threads=cores()))
        print(f"\r{number + 1} of {len(cells)} cells", end="", flush=True)
    print()
    save(path, cells, names, found)


def save(path: Path, cells: list[Cell], names: list[str], found: list[Outcome]) -> None:
    np.savez(
        path,
        keys=np.array([cell.key for cell in cells]),
        names=np.array(names),
        estimates=np.array([outcome.estimates for outcome in found]),
        normalizers=np.array([outcome.normalizers for outcome in found]),
    )


def compare(cells: list[Cell], names: list[str], ours: list[Outcome], reference: Path) -> dict[str, object]:
    """How many cells have the CPU's bits, and how many lie outside its Monte Carlo error."""
    with np.load(reference) as kept:
        keys = list(kept["keys"])
        estimates, normalizers = kept["estimates"], kept["normalizers"]
    same, outside, worst = 0, [], 0.0
    for cell, name, outcome in zip(cells, names, ours, strict=True):
        row = keys.index(cell.key)
        theirs = Outcome(estimates[row], normalizers[row])
        same += bool(np.array_equal(outcome.estimates, theirs.estimates)) and bool(
            np.array_equal(outcome.normalizers, theirs.normalizers)
        )
        one, other = summarize(cell, outcome), summarize(cell, theirs)
        pooled = (one.coverage + other.coverage + 1.0 / one.replications) / (2.0 + 2.0 / one.replications)
        coverage_error = np.sqrt(2.0 * pooled * (1.0 - pooled) / one.replications)
        gaps = (
            abs(one.coverage - other.coverage) / coverage_error,
            abs(one.mae - other.mae) / np.hypot(one.mae_error, other.mae_error),
            abs(one.bias - other.bias) / np.hypot(one.bias_error, other.bias_error),
        )
        worst = max(worst, *gaps)
        if max(gaps) > OUTSIDE:
            outside.append(name)
    return {
        "cells": len(cells),
        "cells_with_the_same_bits": same,
        "cells_outside_monte_carlo_error": len(outside),
        "outside": outside,
        "largest_gap_in_standard_errors": round(float(worst), 3),
    }


def device_times(device: Device, batch: Batch, repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        before = device.seconds
        device.launch(batch)
        times.append(device.seconds - before)
    return times


def sweep(batch: Batch, names: list[str]) -> None:
    for threads, blocks in ((32, 20), (64, 8), (64, 10), (64, 12), (64, 14), (128, 5), (128, 6)):
        median = float(np.median(device_times(Device(threads, blocks), batch, 4)[1:]))
        print(f"{threads:4d} threads per block, {blocks:2d} blocks per multiprocessor: {median:.4f} s", flush=True)
    device = Device()
    for method in ("C1", "C5", "Log", "DP-SGD (C1)", "DC"):
        part = pack([block for block in batch.blocks if f"method={method}," in names[block.place]])
        median = float(np.median(device_times(device, part, 4)[1:]))
        rate = sum(block.cell.updates for block in part.blocks) * 128 / median
        print(f"{method:12s} alone: {median:.4f} s, {rate:.3g} updates/s", flush=True)
    for method in ("C1", "C5", "Log", "DP-SGD (C1)", "DC"):
        for population in ("homogeneous", "Hete L", "Hete D"):
            for size in ("records=50000", "rounds=10000"):
                fits = [n for n in names if all(part in f"{n}," for part in (f"method={method},", population, size))]
                own = [block for block in batch.blocks if fits and names[block.place] == fits[-1]]
                if own:
                    median = float(np.median(device_times(device, pack(own), 4)[1:]))
                    turns = own[0].cell.lengths.shape[1] * len(own[0].cell.populations)
                    each = 1e9 * median / own[0].cell.updates
                    print(
                        f"{fits[-1]}: {median:.4f} s, {each:.1f} ns per update, {1e9 * median / turns:.1f} ns per turn"
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write-reference", type=Path, metavar="FILE")
    parser.add_argument("--reference", type=Path, metavar="FILE")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args()
    if options.write_reference:
        write_reference(options.write_reference, options.replications)
        return
    laps = {"imports": time.perf_counter() - BEGUN}
    at = time.perf_counter()
    device = Device()
    laps["device and kernel"], at = time.perf_counter() - at, time.perf_counter()
    cells, names, seed = paper_cells()
    laps["designs"], at = time.perf_counter() - at, time.perf_counter()
    ours = run_cells(cells, options.replications, seed, device.launch)
    laps["cells"], at = time.perf_counter() - at, time.perf_counter()
    first = device.seconds
    for cell, outcome in zip(cells, ours, strict=True):
        summarize(cell, outcome)
    laps["summaries"] = time.perf_counter() - at
    whole = time.perf_counter() - BEGUN
    batch = pack([b for place, cell in enumerate(cells) for b in blocks_of(place, cell, options.replications, seed)])
    times = device_times(device, batch, options.repeats)
    updates = options.replications * sum(cell.updates for cell in cells)
    median = float(np.median(times))
    report: dict[str, object] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "gpu": device.name,
        "python": platform.python_version(),
        "replications": options.replications,
        "updates": updates,
        "device_seconds": {"first": round(first, 4), "median": round(median, 4), "all": [round(t, 4) for t in times]},
        "updates_per_second": float(f"{updates / median:.4g}"),
        "whole_run_seconds": round(whole, 3),
        "of_which": {name: round(lap, 3) for name, lap in laps.items()},
    }
    if options.sweep:
        sweep(batch, names)
    if options.reference:
        report["against_cpu"] = compare(cells, names, ours, options.reference)
    text = json.dumps(report, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
