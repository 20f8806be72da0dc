"""The laboratory's arrays on a GPU: swapped in, swapped back, and the same runs where the arrays are the same."""

import math
import sys
from types import ModuleType

import numpy as np
import pytest
from privatile.simulation.incomplete_beta import regularized_beta
from studies.coverage import gpu

from privatile.errors import MissingExtra
from privatile.estimator import question_policy as policy
from privatile.inference import curve
from privatile.simulation import auto_simulation as tuned
from privatile.simulation import populations
from privatile.simulation.auto_simulation import AutoCell
from privatile.simulation.populations import Normal, StudentT

CELL = AutoCell((Normal(), StudentT(degrees=3.0)), (0.5, 0.9), (4000, 3000))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """numpy under CuPy's name: what CuPy is to the code, without a device."""
    cupy = ModuleType("cupy")
    cupy.__dict__.update({name: getattr(np, name) for name in dir(np) if not name.startswith("__")})
    cupy.__dict__["asnumpy"] = np.array
    special = ModuleType("cupyx.scipy.special")
    special.__dict__.update(erfc=np.frompyfunc(math.erfc, 1, 1), betainc=regularized_beta)
    for name in ("cupyx", "cupyx.scipy"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "cupyx.scipy.special", special)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return cupy


def test_the_same_draws_give_the_same_runs(stand_in: ModuleType) -> None:
    there = gpu.simulate(CELL, 30, seed=5)
    here = tuned.simulate(CELL, 30, np.random.default_rng(5))
    assert there.fit.center.tolist() == here.fit.center.tolist()
    assert there.tuning.belief.logs.tolist() == here.tuning.belief.logs.tolist()


def test_numpy_is_back_afterwards_also_after_an_error(stand_in: ModuleType) -> None:
    def broken() -> None:
        with gpu.gpu_arrays() as cupy:
            assert curve.__dict__["np"] is cupy is stand_in
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert policy in gpu.MODULES
    assert all(module.__dict__["np"] is np for module in gpu.MODULES)
    assert populations.__dict__["regularized_beta"] is regularized_beta


def test_without_cupy_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingExtra, match=r"privatile\[gpu\]"):
        gpu.simulate(CELL, 2, seed=1)
