"""Many runs of one design: its functions compiled by numba, and its runs as records of one array.

The rules of a design are written for one run (`estimator.search.compiled`). Compiled, the same source serves the runs
of a simulation, which are the rows of one array of records: a row has the attributes of a run.
"""

import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privatile.errors import require
from privatile.estimator.search import COMPILED

_FAST: dict[Callable[..., Any], Any] = {}


def has_numba() -> bool:
    """Whether functions can be compiled here."""
    return importlib.util.find_spec("numba") is not None


def fast(function: Callable[..., Any]) -> Any:
    """The compiled counterpart of a marked function.

    numba's cache notices edits in the file of a function, and none in those that it calls: the names under which it
    keeps compiled functions carry a hash of all their files.
    """
    if function not in _FAST:
        compile_it = require("numba", "simulation").njit(cache=True, nogil=True)
        spaces: dict[str, dict[str, Any]] = {}
        for one in [one for one in COMPILED if one not in _FAST]:
            space = spaces.setdefault(one.__module__, dict(one.__globals__))
            twin = FunctionType(one.__code__, space, one.__name__, one.__defaults__)
            twin.__qualname__ = f"{one.__name__}_{_digest()}"
            _FAST[one] = compile_it(twin)
        for space in spaces.values():
            marked = {name: value for name, value in space.items() if isinstance(value, FunctionType)}
            space.update({name: _FAST[value] for name, value in marked.items() if value in _FAST})
    return _FAST[function]


@cache
def _digest() -> str:
    """Of all files of this package with functions that are compiled together."""
    files = {one.__code__.co_filename for one in COMPILED if one.__module__.startswith("privatile.")}
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in sorted(files))).hexdigest()[:12]


def rows_of(run: Any, runs: int) -> Any:
    """So many runs that stand where this one does: an array of records."""
    return np.array([_values_of(run)] * runs, dtype=_type_of(run)).view(np.recarray)


def run_of(row: Any, like: Any) -> Any:
    """A row as a run again; `like` is any run of its kind."""
    if isinstance(like, tuple):
        return tuple(run_of(row[k], like[k]) for k in range(len(like)))
    if isinstance(like, np.ndarray):
        return np.array(row)
    if not is_dataclass(like):
        return type(like)(row)
    kind: Any = type(like)
    return kind(**{one.name: run_of(row[one.name], getattr(like, one.name)) for one in fields(like)})


def column(runs: Any, name: str) -> NDArray[Any]:
    """An attribute of all runs, rows or not."""
    return np.array([getattr(run, name) for run in runs]) if isinstance(runs, list) else runs[name].copy()


def _type_of(value: Any) -> np.dtype[Any]:
    if isinstance(value, tuple):
        return np.dtype((_type_of(value[0]), (len(value),)))
    if isinstance(value, np.ndarray):
        return np.dtype((value.dtype, value.shape))
    if not is_dataclass(value):
        return np.dtype(type(value))
    return np.dtype([(one.name, _type_of(getattr(value, one.name))) for one in fields(value)], align=True)


def _values_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_values_of(one) for one in value]
    return tuple(_values_of(getattr(value, one.name)) for one in fields(value)) if is_dataclass(value) else value
