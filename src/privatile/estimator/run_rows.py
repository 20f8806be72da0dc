"""Some of the runs of a state whose arrays have a leading axis of runs: taken out, and put back."""

from typing import Any, NamedTuple, TypeVar

from numpy.typing import NDArray

from privatile.core.arrays import Ints

State = TypeVar("State", bound=NamedTuple)


def take_rows(state: State, runs: Ints, keep: tuple[str, ...] = ()) -> State:
    """The rows of some runs, in every array of a named tuple and of those inside it; fields of `keep` stay whole.

    >>> import numpy as np
    >>> from typing import NamedTuple
    >>> class Pair(NamedTuple):
    ...     left: NDArray[np.float64]
    ...     right: NDArray[np.float64]
    >>> pair = Pair(np.arange(4.0), np.arange(4.0) ** 2)
    >>> take_rows(pair, np.array([1, 3]))
    Pair(left=array([1., 3.]), right=array([1., 9.]))
    >>> put_rows(pair, np.array([1, 3]), Pair(np.zeros(2), np.ones(2)))
    Pair(left=array([0., 0., 2., 0.]), right=array([0., 1., 4., 1.]))
    """
    if _is_all(state, runs, keep):
        return state
    parts = (
        value if name in keep else take_rows(value, runs) if hasattr(value, "_fields") else value[runs]
        for name, value in zip(state._fields, state, strict=True)
    )
    return state._make(parts)


def put_rows(state: State, runs: Ints, newer: State, keep: tuple[str, ...] = ()) -> State:
    """The state with the rows of some runs replaced by those of `newer`; fields of `keep` stay as they are."""
    if _is_all(state, runs, keep):
        return newer._replace(**{name: getattr(state, name) for name in keep})
    parts = (
        value if name in keep else (put_rows if isinstance(value, tuple) else put_values)(value, runs, news)
        for name, value, news in zip(state._fields, state, newer, strict=True)
    )
    return state._make(parts)


def _is_all(state: NamedTuple, runs: Ints, keep: tuple[str, ...]) -> bool:
    """Whether these are all runs, which are then in order."""
    arrays = (value for name, value in zip(state._fields, state, strict=True) if name not in keep)
    first = next(value for value in arrays if not isinstance(value, tuple))
    return len(runs) == len(first)


def put_values(values: NDArray[Any], runs: Ints, newer: NDArray[Any]) -> NDArray[Any]:
    """A copy of an array with the rows of some runs replaced.

    >>> import numpy as np
    >>> put_values(np.zeros(3), np.array([0, 2]), np.ones(2)).tolist()
    [1.0, 0.0, 1.0]
    """
    changed = values.copy()
    changed[runs] = newer
    return changed
