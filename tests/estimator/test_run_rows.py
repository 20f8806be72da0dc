"""Rows of some runs, whatever library holds the arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from privatile.estimator.window import put_rows, take_rows


class Elsewhere:
    """An array of another library, as on an accelerator: no numpy array, and no tuple."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Elsewhere:
        return Elsewhere([self.values[row] for row in rows])

    def __setitem__(self, rows: Any, newer: Elsewhere) -> None:
        for row, value in zip(rows, newer.values, strict=True):
            self.values[row] = value

    def copy(self) -> Elsewhere:
        return Elsewhere(list(self.values))


class Inner(NamedTuple):
    right: Any


class Outer(NamedTuple):
    left: Any
    inner: Inner


def test_arrays_of_another_library_are_taken_out_and_put_back() -> None:
    state = Outer(Elsewhere([0.0, 1.0, 2.0]), Inner(Elsewhere([3.0, 4.0, 5.0])))
    runs = np.array([0, 2])
    taken = take_rows(state, runs)
    assert (taken.left.values, taken.inner.right.values) == ([0.0, 2.0], [3.0, 5.0])
    back = put_rows(state, runs, Outer(Elsewhere([7.0, 8.0]), Inner(Elsewhere([9.0, 6.0]))))
    assert (back.left.values, back.inner.right.values) == ([7.0, 1.0, 8.0], [9.0, 4.0, 6.0])
    assert state.left.values == [0.0, 1.0, 2.0]
