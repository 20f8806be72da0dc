"""Cells on a GPU: the kernels compiled by numba, one thread per replication, the same numbers as on the CPU.

Nothing here is needed to run an experiment; where there is no numba-cuda or no GPU the message says so.
"""

import importlib.util
from typing import Any

import numpy as np

from privatile.core.arrays import Floats
from privatile.errors import InputError, require
from privatile.simulation.engine import load_kernels
from privatile.simulation.packing import LANES, Batch

THREADS = 64
"""Threads per block: small, so that the processors stay evenly loaded when the last long cells finish."""


def gpu_kernels() -> Any:
    """The kernels' file, loaded once more for the GPU: one lane per thread."""
    spec = importlib.util.find_spec(load_kernels().__name__)
    if spec is None or spec.loader is None:
        raise InputError("the kernels are missing from this installation: reinstall privatile.")
    module = importlib.util.module_from_spec(spec)
    module.TARGET = "gpu"  # type: ignore[attr-defined]
    spec.loader.exec_module(module)
    return module


def compile_exactly() -> None:
    """Make NVVM compile a·b + c as two operations, as the CPU does: numba has no option for it."""
    nvvm: Any = require("numba.cuda.cudadrv.nvvm", "gpu")
    if not hasattr(nvvm, "contracting_compile_ir"):
        nvvm.contracting_compile_ir = nvvm.compile_ir
        nvvm.compile_ir = lambda code, **options: nvvm.contracting_compile_ir(code, **{**options, "fma": False})


class Device:
    """The first GPU, with the kernel compiled for it."""

    def __init__(self, threads: int = THREADS, blocks: int | None = None) -> None:
        require("numba_cuda", "gpu")
        self._cuda: Any = require("numba.cuda", "gpu")
        if not self._cuda.is_available():
            raise InputError("--device cuda needs an NVIDIA GPU; numba finds none. Use --device cpu.")
        compile_exactly()
        name = self._cuda.get_current_device().name
        self.name: str = (
            name.decode() if isinstance(name, bytes) else name
        )  # text or bytes, by the version of numba-cuda
        bounds = {} if blocks is None else {"launch_bounds": (threads, blocks)}
        self._kernel = self._cuda.jit(gpu_kernels().simulate_on_gpu, lto=False, **bounds)
        self._threads = threads
        self.seconds = 0.0
        """Time the GPU has spent in the kernel, by its own clock."""

    def launch(self, batch: Batch, paths: Floats | None = None) -> Floats:
        """Copy, run, copy back; running means are not kept."""
        cuda = self._cuda
        arrays = [cuda.to_device(array) for array in (batch.jobs, *batch.pools())]
        result = cuda.to_device(np.full((3, batch.start.size), np.nan))
        begin, end = cuda.event(timing=True), cuda.event(timing=True)
        begin.record()
        self._kernel[len(batch.blocks) * (LANES // self._threads), self._threads](*arrays, result)
        end.record()
        end.synchronize()
        self.seconds += cuda.event_elapsed_time(begin, end) / 1e3
        found: Floats = result.copy_to_host()
        return found


def open_device(name: str) -> Device | None:
    """The GPU for `cuda`, none for `cpu`.

    >>> open_device("cpu") is None
    True
    """
    if name not in ("cpu", "cuda"):
        raise InputError(f"device must be cpu or cuda; got {name!r}.")
    return Device() if name == "cuda" else None
