"""Cells on a GPU: the CUDA source compiled at run time, one thread per replication, the same numbers as on the CPU.

Nothing here is needed to run an experiment; where there is no CuPy or no GPU the message says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import numpy as np

from privatile.core.arrays import Floats
from privatile.errors import InputError, require
from privatile.simulation.cells import Cell
from privatile.simulation.engine import WIDENINGS, Outcome, left_every_range, run_cell
from privatile.simulation.packing import LANES, Batch, blocks_of, grid_of, pack

THREADS = 64
"""Threads per block: small, so that the processors stay evenly loaded when the last long cells finish."""

OPTIONS = ("-fmad=false", "-std=c++17", f"-DTHREADS={THREADS}")
"""Without contraction of a·b + c the arithmetic is that of the CPU's kernels to the last bit."""

Launch = Callable[[Batch], Floats]
"""Runs a batch; returns three rows by lane: estimate, normaliser, and 1 where q stayed in range."""


def source() -> str:
    """The CUDA source, from the package."""
    return resources.files("privatile.simulation").joinpath("kernels.cu").read_text(encoding="utf-8")


class Device:
    """The first GPU, with the kernel compiled for it."""

    def __init__(self, options: tuple[str, ...] = OPTIONS, threads: int = THREADS) -> None:
        self._cupy: Any = require("cupy", "gpu")
        try:
            found = self._cupy.cuda.runtime.getDeviceCount()
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            raise InputError(f"--device cuda needs an NVIDIA GPU; CuPy reports: {error}. Use --device cpu.") from None
        if not found:
            raise InputError("--device cuda needs an NVIDIA GPU; CuPy finds none. Use --device cpu.")
        properties = self._cupy.cuda.runtime.getDeviceProperties(0)
        self.name: str = properties["name"].decode()
        self._module = self._cupy.RawModule(code=source(), options=options)
        self._kernel = self._module.get_function("simulate")
        self._threads = threads
        self.seconds = 0.0
        """Time the GPU has spent in the kernel, by its own clock."""

    def launch(self, batch: Batch) -> Floats:
        """Copy, run, copy back."""
        cupy = self._cupy
        arrays = [cupy.asarray(array.view(np.uint8) if array.dtype.names else array) for array in batch.arrays()]
        result = cupy.full((3, batch.start.size), np.nan)
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        grid = (len(batch.blocks) * (LANES // self._threads),)
        begin.record()
        self._kernel(grid, (self._threads,), (*arrays, result, np.int32(LANES)))
        end.record()
        end.synchronize()
        self.seconds += cupy.cuda.get_elapsed_time(begin, end) / 1e3
        found: Floats = cupy.asnumpy(result)
        return found

    def wrong_quotients(self) -> int:
        """How many of all 2²³ quotients that a Laplace variate may need this GPU gets wrong."""
        wrong = self._cupy.zeros(1, dtype=np.int32)
        self._module.get_function("divisions")((1 << 15,), (1 << 8,), (wrong,))
        return int(wrong[0])


def open_device(name: str) -> Device | None:
    """The GPU for `cuda`, none for `cpu`.

    >>> open_device("cpu") is None
    True
    """
    if name not in ("cpu", "cuda"):
        raise InputError(f"device must be cpu or cuda; got {name!r}.")
    return Device() if name == "cuda" else None


def run_cells(cells: Sequence[Cell], replications: int, seed: int, launch: Launch) -> list[Outcome]:
    """Replications 0 … replications − 1 of every cell, all cells at once.

    The numbers are those of `engine.run_cell`. A block whose q left its tables runs again with wider ones; a cell
    whose populations have no table runs on the CPU.
    """
    if replications < 1:
        raise InputError(f"replications must be at least 1; got {replications}.")
    blocks = [block for place, cell in enumerate(cells) for block in blocks_of(place, cell, replications, seed)]
    kept = {place: np.empty((2, -(-replications // LANES) * LANES)) for place in range(len(cells))}
    outcomes: dict[int, Outcome] = {}
    for _ in range(WIDENINGS):
        for block in blocks:
            if block.place not in outcomes and grid_of(block) is None:
                outcomes[block.place] = run_cell(block.cell, replications, seed)
        blocks = [block for block in blocks if block.place not in outcomes]
        if not blocks:
            break
        batch = pack(blocks)
        found = launch(batch).reshape(3, -1, LANES)
        blocks = []
        for i, block in enumerate(batch.blocks):
            if found[2, i].all():
                kept[block.place][:, block.first : block.first + LANES] = found[:2, i]
            else:
                blocks.append(block.wider())
    if blocks:
        raise left_every_range(blocks[0].low, blocks[0].high)
    for place, values in kept.items():
        outcomes.setdefault(place, Outcome(values[0, :replications].copy(), values[1, :replications].copy()))
    return [outcomes[place] for place in range(len(cells))]
