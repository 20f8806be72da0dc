"""Data columns as populations: the records themselves, dithered, or on a log scale; read from a file.

Nothing here shows a record: not its text, not an error, not a design.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privatile.client.sources import open_source
from privatile.core.arrays import Floats, array_namespace
from privatile.errors import DataError, InputError
from privatile.simulation.populations import Population, as_floats, bisect, check_positive


class Empirical(Population):
    """A data column as a population: every record equally likely, drawn with replacement.

    >>> Empirical([3.0, 1.0, 2.0, 2.0]).quantile(0.5)
    2.0
    """

    smooth = False

    def __init__(self, values: ArrayLike) -> None:
        column = np.sort(as_floats(values).ravel())
        if column.size == 0 or not np.all(np.isfinite(column)):
            raise InputError("values must be finite numbers, at least one of them.")
        column.flags.writeable = False
        self.values: Floats = column
        self._copies: dict[str, Any] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Empirical) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.values.size} records)"

    def _cdf(self, x: Floats) -> Floats:
        xp = array_namespace(x)
        if xp.__name__ not in self._copies:
            self._copies[xp.__name__] = xp.asarray(self.values)  # on a GPU once, not in every round
        ranks: Floats = xp.searchsorted(self._copies[xp.__name__], x, side="right") / self.values.size
        return ranks

    def _density(self, x: Floats) -> Floats:
        raise InputError("an empirical population has no density: it is all atoms. Smooth it, or dither the records.")

    def _quantile(self, p: Floats) -> Floats:
        # ⌈np⌉-th smallest; the small slack keeps p = j/n, written in doubles, at the j-th.
        rank = np.ceil(p * self.values.size - 1e-9).astype(np.int64) - 1
        return self.values[np.clip(rank, 0, self.values.size - 1)]

    def to_spec(self) -> dict[str, Any]:
        """Refused: a design holds no records."""
        raise InputError("an empirical population cannot be written into a design: records stay out of it.")


class Dithered(Empirical):
    """A data column whose every record is moved by a uniform amount of ±width/2: atoms become a density.

    F(x) = mean of clip((x − v)/width + ½, 0, 1) over the records v.

    >>> Dithered([0.0, 10.0], width=4.0).cdf([-2.0, 0.0, 5.0, 11.0]).tolist()
    [0.0, 0.25, 0.5, 0.875]
    """

    def __init__(self, values: ArrayLike, width: float) -> None:
        super().__init__(values)
        check_positive("width", width)
        self.width = float(width)
        self._sums = np.concatenate([[0.0], np.cumsum(self.values)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dithered) and self.width == other.width and super().__eq__(other)

    def __hash__(self) -> int:
        return hash((super().__hash__(), self.width))

    def _near(self, x: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ranks between which the records lie that a dither may carry across x."""
        low = np.searchsorted(self.values, x - self.width / 2.0, side="right")
        high = np.searchsorted(self.values, x + self.width / 2.0, side="right")
        return low, high

    def _cdf(self, x: Floats) -> Floats:
        low, high = self._near(x)
        inside = (high - low) * (x / self.width + 0.5) - (self._sums[high] - self._sums[low]) / self.width
        return np.asarray((low + inside) / self.values.size)

    def _density(self, x: Floats) -> Floats:
        low, high = self._near(x)
        return np.asarray((high - low) / (self.values.size * self.width))

    def _quantile(self, p: Floats) -> Floats:
        return bisect(self._cdf, p)


@dataclass(frozen=True)
class LogOf(Population):
    """log X for X from another population; X below zero lies below every question that a log scale can ask.

    >>> law = LogOf(Dithered([100.0, 200.0], 10.0))
    >>> round(float(law.cdf(np.log(100.0))), 6), round(float(np.exp(law.quantile(0.25))), 6)
    (0.25, 100.0)
    """

    inner: Population

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """As smooth as the population itself."""
        return self.inner.smooth

    def _cdf(self, x: Floats) -> Any:
        return self.inner.cdf(array_namespace(x).exp(x))

    def _density(self, x: Floats) -> Any:
        values: Floats = array_namespace(x).exp(x)
        return self.inner.density(values) * values


def read_columns(path: str | Path, value: str, client: str | None = None) -> "dict[str, Empirical]":
    """A column of a file (CSV, Parquet, JSON, also gzip) as a population, or one population per client.

    Records without a number are left out: a simulation has no answers for them.
    """
    source = open_source(path, value=value, client=client)
    rows = [batch._replace(texts=None) for batch in source.batches()]
    values = np.concatenate([batch.values for batch in rows]) if rows else np.empty(0)
    codes = np.concatenate(
        [np.zeros(len(batch.values), dtype=np.int64) if batch.codes is None else batch.codes for batch in rows]
        or [np.zeros(0, dtype=np.int64)]
    )
    known = np.isfinite(values)
    found = {}
    for code, name in enumerate(source.clients):
        own = values[known & (codes == code)]
        if not own.size:
            raise DataError(f"{Path(path).name} has no number in column {value} for {name}; name another column.")
        found[name] = Empirical(own)
    return found
