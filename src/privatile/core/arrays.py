"""Arrays: their type, and which library one belongs to, so that one function serves numpy's and a GPU's."""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def array_namespace(array: object) -> Any:
    """The library that made an array: numpy, or CuPy, which has the same functions under the same names.

    >>> import numpy as np
    >>> array_namespace(np.zeros(3)) is np
    True
    """
    return np if isinstance(array, np.ndarray) else import_module(_library(array))


def special_functions(array: object) -> Any:
    """scipy.special, or its counterpart for CuPy's arrays, cupyx.scipy.special."""
    library = _library(array)
    return import_module("scipy.special" if library == "numpy" else f"{library}x.scipy.special")


def _library(array: object) -> str:
    return type(array).__module__.partition(".")[0]
