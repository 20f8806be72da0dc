"""Run an experiment: cells not yet in the store, one after the other or spread over workers, each kept when finished.

The numbers are the same wherever a cell runs: its streams are named by seed and cell alone.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from privatile.errors import InputError, require
from privatile.simulation.cells import Cell
from privatile.simulation.cuda import Device
from privatile.simulation.default_cells import DefaultCell, summarize_default
from privatile.simulation.engine import Summary, run_cell, run_cells, summarize
from privatile.simulation.experiment import Experiment
from privatile.simulation.store import ExperimentStore

Progress = Callable[[int, int], None]
"""(updates done so far, updates of the whole experiment)."""


MOST_UPDATES = 10**12
"""A launch's work: some seconds on a large GPU."""
MOST_LANES = 1 << 22
"""A launch's replications: 200 MB of generators, starts and results."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def evaluate(
    place: int, cell: Cell | DefaultCell, replications: int, seed: int, threads: int = 1
) -> tuple[int, Summary, float]:
    """The place of a cell, its summary and the seconds it took."""
    begun = time.perf_counter()
    if isinstance(cell, DefaultCell):
        summary = summarize_default(cell, cell.run(replications, seed, threads))
    else:
        summary = summarize(cell, run_cell(cell, replications, seed, threads=threads))
    return place, summary, time.perf_counter() - begun


def run_experiment(
    experiment: Experiment,
    store: ExperimentStore,
    *,
    workers: str = "threads",
    address: str | None = None,
    threads: int | None = None,
    device: Device | None = None,
    progress: Progress = lambda done, total: None,
) -> int:
    """Run what is missing; returns how many cells were run.

    workers: "threads" (this machine), "dask", or the name of any registered joblib backend. device: a GPU, which then
    takes the place of the workers. Interrupted at any moment, the store holds every finished cell.
    """
    done = store.finished()
    missing = [(place, entry) for place, entry in enumerate(experiment.entries) if place not in done]
    repeats, seed, total = experiment.replications, experiment.seed, experiment.updates
    so_far = repeats * sum(experiment.entries[place].cell.updates for place in done)
    progress(so_far, total)

    def keep(place: int, summary: Summary, seconds: float) -> None:
        nonlocal so_far
        store.add(place, experiment.entries[place], summary, seconds)
        so_far += summary.updates
        progress(so_far, total)

    if device is not None:
        if workers != "threads":
            raise InputError(f"a GPU takes the place of workers: leave out --device cuda or --workers {workers}.")
        compiled = [(place, entry.cell) for place, entry in missing if isinstance(entry.cell, Cell)]
        for group in _groups(compiled, repeats):
            begun = time.perf_counter()
            outcomes = run_cells([cell for _, cell in group], repeats, seed, device.launch)
            each = (time.perf_counter() - begun) / len(group)
            for (place, cell), outcome in zip(group, outcomes, strict=True):
                keep(place, summarize(cell, outcome), each)
        # The kernels have fixed schedules; the default design runs on the processor.
        for place, entry in missing:
            if not isinstance(entry.cell, Cell):
                keep(*evaluate(place, entry.cell, repeats, seed, threads or cores()))
    elif workers == "threads":
        for place, entry in missing:
            keep(*evaluate(place, entry.cell, repeats, seed, threads or cores()))
    elif missing:
        # The largest cells first: no worker is left alone with one at the end.
        missing.sort(key=lambda item: -item[1].cell.updates)
        with _backend(workers, address, threads) as joblib:
            jobs = (joblib.delayed(evaluate)(place, entry.cell, repeats, seed) for place, entry in missing)
            for found in joblib.Parallel(n_jobs=threads or -1, return_as="generator_unordered")(jobs):
                keep(*found)
    return len(missing)


def _groups(missing: Sequence[tuple[int, Cell]], replications: int) -> Iterator[list[tuple[int, Cell]]]:
    """Cells to launch together: many, so that the GPU is full; not all, so that an interruption loses seconds."""
    group: list[tuple[int, Cell]] = []
    updates = lanes = 0
    for item in missing:
        more = replications * item[1].updates
        if group and (updates + more > MOST_UPDATES or lanes + replications > MOST_LANES):
            yield group
            group, updates, lanes = [], 0, 0
        group.append(item)
        updates, lanes = updates + more, lanes + replications
    if group:
        yield group


@contextmanager
def _backend(name: str, address: str | None, threads: int | None) -> Iterator[Any]:
    """joblib with the named backend active; for dask also a client, of the cluster at `address` or a local one."""
    joblib = require("joblib", "dask")
    if name == "dask":
        distributed = require("distributed", "dask")
        if address is not None:
            try:
                client = distributed.Client(address)
            except (OSError, ValueError):
                raise InputError(
                    f"no Dask scheduler answers at {address!r}. --scheduler takes its address, as in "
                    "tcp://127.0.0.1:8786; without it a local cluster is started."
                ) from None
        else:
            # Its own page on any free port: another study may run on this machine.
            client = distributed.Client(
                n_workers=threads or cores(), threads_per_worker=1, dashboard_address="127.0.0.1:0"
            )
        with client, joblib.parallel_config(backend="dask"):
            yield joblib
        return
    if address is not None:
        raise InputError(f"--scheduler goes with --workers dask; the workers are {name!r}.")
    try:
        configuration = joblib.parallel_config(backend=name)
    except ValueError:
        raise InputError(
            f"workers must be threads, dask or a registered joblib backend (loky, …); got {name!r}."
        ) from None
    with configuration:
        yield joblib
