"""Simulations on a GPU: the same code with arrays of another library, and no array of it handed to numpy."""

import operator
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.special
from studies.coverage.heaped import Rounded
from studies.coverage.scores import on_gpu, on_processor, score
from studies.coverage.stopping import stopping

from privatile.errors import MissingExtra
from privatile.simulation.default_design import AutoCell, simulate
from privatile.simulation.populations import Cauchy, Laplace, LogNormal, Mixture, Normal, StudentT, Uniform

CELL = AutoCell((Normal(), StudentT(degrees=3.0)), (0.5, 0.9), (4000, 3000))


class DeviceArray:
    """An array that numpy can neither compute with nor read, as one on a GPU."""

    __module__ = "cupy"
    __array_ufunc__ = None

    def __init__(self, held: Any) -> None:
        self.held = held

    def __array__(self, *_: object, **__: object) -> Any:
        raise TypeError("an array of the device was handed to numpy")

    def get(self) -> Any:
        return self.held

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # numpy would read the memory by __array_interface__
            raise AttributeError(name)
        return on_device(getattr(self.held, name))

    def __getitem__(self, place: Any) -> Any:
        return on_device(self.held[from_device(place)])

    def __setitem__(self, place: Any, values: Any) -> None:
        self.held[from_device(place)] = from_device(values)

    def __len__(self) -> int:
        return len(self.held)

    def __bool__(self) -> bool:
        return bool(self.held)

    def __int__(self) -> int:
        return int(self.held)


def from_device(value: Any) -> Any:
    """What the array holds; arrays of numpy may not be mixed with those of the device."""
    if isinstance(value, tuple | list):
        return type(value)(from_device(part) for part in value)
    if isinstance(value, np.ndarray):
        raise TypeError("an array of numpy was handed to the device")
    return value.held if isinstance(value, DeviceArray) else value


def on_device(value: Any) -> Any:
    """Arrays wrapped; functions take and give wrapped ones."""
    if isinstance(value, tuple):
        return tuple(on_device(part) for part in value) if any(isinstance(p, np.ndarray) for p in value) else value
    if isinstance(value, np.ndarray | np.generic):
        return DeviceArray(np.asarray(value))
    if callable(value) and not isinstance(value, type):

        def called(*arguments: Any, **named: Any) -> Any:
            plain = {name: from_device(one) for name, one in named.items()}
            return on_device(value(*(from_device(one) for one in arguments), **plain))

        return called
    return value


def _operator(function: Callable[..., Any], swapped: bool = False) -> Callable[..., Any]:
    def applied(self: DeviceArray, *others: Any) -> Any:
        values = [self.held, *(from_device(other) for other in others)]
        return on_device(function(*(reversed(values) if swapped else values)))

    return applied


NUMERIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
LOGICAL = ("and_", "or_", "xor", "lt", "le", "gt", "ge", "eq", "ne")
for _name in (*NUMERIC, *LOGICAL):
    setattr(DeviceArray, f"__{_name.strip('_')}__", _operator(getattr(operator, _name)))
    setattr(DeviceArray, f"__r{_name.strip('_')}__", _operator(getattr(operator, _name), swapped=True))
for _name in ("neg", "abs", "invert"):
    setattr(DeviceArray, f"__{_name}__", _operator(getattr(operator, _name)))


class Library(ModuleType):
    """A library of arrays with the functions of another one."""

    def __init__(self, name: str, behind: Any) -> None:
        super().__init__(name)
        self.behind = behind

    def __getattr__(self, name: str) -> Any:
        return on_device(getattr(self.behind, name))


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What CuPy is to the code, without a device."""
    library = Library("cupy", np)
    library.linalg = Library("linalg", np.linalg)  # type: ignore[attr-defined]
    library.ndarray = DeviceArray  # type: ignore[attr-defined]

    def generator(seed: int) -> Any:
        return SimpleNamespace(binomial=on_device(np.random.default_rng(seed).binomial))

    library.random = SimpleNamespace(default_rng=generator)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", library)
    for name in ("cupyx", "cupyx.scipy"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "cupyx.scipy.special", Library("special", scipy.special))
    return library


@pytest.mark.slow
def test_the_same_draws_give_the_same_runs(cupy: ModuleType) -> None:
    gpu, processor = on_gpu(CELL, 30, seed=5), on_processor(CELL, 30, seed=5)
    assert type(gpu.fit.center).__module__ == "cupy"
    gpu = gpu.on_host()
    assert gpu.fit.center.tolist() == processor.fit.center.tolist()
    assert gpu.tuning.belief.logs.tolist() == processor.tuning.belief.logs.tolist()
    assert score(CELL, 30, 5, simulated=on_gpu) == score(CELL, 30, 5)


def test_runs_on_a_gpu_stop_where_others_do(cupy: ModuleType) -> None:
    found = [stopping(CELL, made(CELL, 8, 5), half_width=20 * CELL.bound, every=20) for made in (on_gpu, on_processor)]
    assert found[0] == found[1]


def test_every_population_stays_on_the_device(cupy: Any) -> None:
    laws = (Uniform(-1.0, 1.0), Cauchy(), Laplace(), LogNormal(), Mixture((Normal(), StudentT())), Rounded(Normal()))
    cell = AutoCell(laws, (0.5,) * 6, (400,) * 6, rounds=20)
    gpu = simulate(cell, 4, cupy.random.default_rng(3), cupy).on_host()
    assert gpu.queries.tolist() == on_processor(cell, 4, seed=3).queries.tolist()


def test_the_stand_in_refuses_numpy() -> None:
    array = DeviceArray(np.ones(3))
    for function in (np.exp, np.asarray, np.ones(3).dot, lambda values: np.where(values, 1, 0)):
        with pytest.raises(TypeError):
            function(array)


def test_without_cupy_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingExtra, match=r"\.\[gpu\]"):
        on_gpu(CELL, 2, seed=1)
