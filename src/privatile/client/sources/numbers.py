"""Columns of numbers from any library, as doubles. No error here contains a value."""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privatile.client.sources.people import MISSING_IDENTIFIERS
from privatile.core.arrays import Floats
from privatile.errors import DataError


def numbers(name: str, values: object) -> Floats:
    """A column as doubles, NaN where missing; a column of anything but numbers is refused."""
    array = _plain(values)
    if array.ndim != 1:
        raise DataError(f"column {name!r} must have one dimension; it has {array.ndim}.")
    if np.ma.isMaskedArray(array):
        mask = np.ma.getmaskarray(array)
        return np.where(mask, np.nan, numbers(name, np.ma.getdata(array)))
    if array.dtype.kind in "iuf":
        return array.astype(np.float64, copy=False)
    if array.dtype.kind == "O":
        return np.array([number(name, value) for value in array], dtype=np.float64)
    raise not_numeric(name, str(array.dtype))


def _plain(values: Any) -> NDArray[Any]:
    """A numpy array of a column, of whatever library it comes from."""
    if isinstance(values, np.ndarray):
        return values
    dtype = getattr(values, "dtype", getattr(values, "type", None))  # pyarrow says type
    if str(dtype).lower().startswith("decimal"):
        return np.array(entries(values), dtype=object)
    if type(values).__module__.startswith("pyarrow"):
        return from_arrow(values)
    if getattr(dtype, "kind", "O") in "iuf" and not isinstance(dtype, np.dtype):  # nullable columns of pandas
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy())
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise DataError(f"a column must be a sequence of numbers; got {type(values).__name__}.")
    return np.array(values, dtype=object)


def from_arrow(values: Any) -> NDArray[Any]:
    """A column of pyarrow as an array of numpy, NaN where a number is missing.

    Where no number is missing it does without pyarrow's own `to_numpy`, which imports pandas where that is installed: a
    third of the time that the command takes.
    """
    plain = str(values.type).startswith(("int", "uint", "float", "double")) and not values.null_count
    if plain and hasattr(values, "__dlpack__"):
        return np.from_dlpack(values)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def entries(column: Any) -> list[Any]:
    """A column as Python objects."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "mM":
        return list(column)  # as Python objects they would be plain numbers
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)


def is_copy(column: Sequence[object], values: Floats) -> bool:
    """Whether the entries of a column, numbers or texts of them, are these values, missing where they are missing.

    >>> is_copy(["1.50", "", 3], np.array([1.5, np.nan, 3.0])), is_copy(["a", "", 3], np.array([1.5, np.nan, 3.0]))
    (True, False)
    """
    # Stops at the first row that differs: nearly always the first one.
    return all(
        (found := _as_float(entry)) == value or (found != found and value != value)
        for entry, value in zip(column, values, strict=False)
    )


def _as_float(entry: Any) -> float | None:
    """An entry of whatever kind as a number, NaN where it is missing, None where it is no number."""
    try:
        return float(entry)
    except OverflowError:
        return math.inf if entry > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan if str(entry).strip().lower() in MISSING_IDENTIFIERS else None


def number(name: str, value: object) -> float:
    """One entry of a column of Python objects, NaN where missing."""
    if value is None or value is np.ma.masked:
        return float("nan")
    if isinstance(value, int | float | Decimal | np.integer | np.floating) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if type(value).__name__ == "NAType":
        return float("nan")
    raise not_numeric(name, type(value).__name__)


def not_numeric(name: str, kind: str) -> DataError:
    """The error for a column of something else.

    >>> str(not_numeric("born", "DATE"))
    "column 'born' must hold numbers; it holds DATE. Turn it into days since a fixed day first."
    """
    fix = "Name a numeric column, or convert it first."
    if kind.lower().startswith(("date", "timestamp")):
        fix = "Turn it into days since a fixed day first."
    elif kind in ("str", "VARCHAR"):
        fix = "Name a numeric column, or convert it first; in a query with CAST(… AS DOUBLE)."
    return DataError(f"column {name!r} must hold numbers; it holds {kind}. {fix}")
