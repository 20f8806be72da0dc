"""Populations: what a simulated client's records look like, made up or a column of a file.

Populations: what a simulated client's records look like, as frozen values.

Every population has a CDF, its inverse, a density and a sampler. They take and return arrays of any shape, are equal by
value, and can be written in a design as a small table: `{family = "normal", location = 1.0}`.

>>> population("normal", location=1.0).quantile(0.5)
1.0
>>> Cauchy().cdf(1.0)
0.75

Survival functions on a grid: what the kernels read instead of calling a CDF ten billion times.

S = 1 − F of a standardised population at equally spaced knots, float32, with the spacing halved until a look-up is
within `ACCURACY` of the exact function: linear interpolation at every quarter of every cell, and the dither's step.
Widths and spacings are powers of two, so that the corners of a uniform population, 0 and 1, fall on knots.

Data columns as populations: the records themselves, dithered, or on a log scale; read from a file.

Nothing here shows a record: not its text, not an error, not a design.

Populations as flat arrays for the kernel that draws every record.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray

from privatile.client.sources import open_source
from privatile.core.arrays import Floats
from privatile.errors import DataError, InputError
from privatile.estimator.clients import checked_sum

_ROUNDS_OF_BISECTION = 200
"""Enough to halve the widest double interval down to neighbouring numbers near its root (2⁻²⁰⁰)."""


def as_floats(values: object) -> Floats:
    """An array of doubles."""
    return np.asarray(values, dtype=np.float64)


def _as_given(values: Any) -> Any:
    """A plain float for a number, an array for an array."""
    return float(values) if np.ndim(values) == 0 else values


def check_positive(field: str, value: float) -> None:
    """Refuse what is not a positive, finite number."""
    if not 0.0 < value < math.inf:
        raise InputError(f"{field} must be a positive number; got {value!r}.")


def _check_finite(field: str, value: float) -> None:
    if not math.isfinite(value):
        raise InputError(f"{field} must be a finite number; got {value!r}.")


class Population:
    """A distribution on the line: the law of location + scale·Z; subclasses give the CDF, density and quantile of Z."""

    family: ClassVar[str] = ""
    """Its name in designs; none where it has none."""

    in_words: ClassVar[Mapping[str, str]] = {}
    """Other names of its parameters, as people say them."""

    smooth = True
    """Whether the CDF is continuous with a bounded density: then a fine table of it serves the kernels."""

    @property
    def frame(self) -> tuple[float, float]:
        """Location and scale."""
        return 0.0, 1.0

    def _cdf(self, z: Floats) -> Any:
        raise NotImplementedError

    def _density(self, z: Floats) -> Any:
        raise NotImplementedError

    def _quantile(self, p: Floats) -> Any:
        """The inverse by bisection, for families without a closed form."""
        return bisect(self._cdf, p)

    def cdf(self, x: ArrayLike) -> Any:
        """P(X ≤ x)."""
        location, scale = self.frame
        return _as_given(self._cdf((as_floats(x) - location) / scale))

    def density(self, x: ArrayLike) -> Any:
        """The derivative of the CDF; at a jump of the density, its right limit."""
        location, scale = self.frame
        return _as_given(self._density((as_floats(x) - location) / scale) / scale)

    def quantile(self, p: ArrayLike) -> Any:
        """The smallest x with P(X ≤ x) ≥ p, 0 < p < 1."""
        levels = as_floats(p)
        if not np.all((levels > 0.0) & (levels < 1.0)):
            raise InputError("a quantile's level must lie inside (0, 1).")
        location, scale = self.frame
        return _as_given(location + scale * self._quantile(levels))

    def sample(self, size: int, rng: np.random.Generator) -> Floats:
        """`size` independent records."""
        return np.asarray(self.quantile(rng.uniform(np.finfo(float).tiny, 1.0, size)))

    def to_spec(self) -> dict[str, Any]:
        """The table that `from_spec` reads."""
        if not self.family:
            raise InputError(f"{type(self).__name__} has no name in designs.")
        return {"family": self.family} | {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


def bisect(cdf: Callable[[Floats], Any], p: Floats) -> Floats:
    """The smallest x with F(x) ≥ p, to neighbouring doubles, for any CDF."""
    low, high = np.full_like(p, -1.0), np.full_like(p, 1.0)
    while np.any(above := cdf(low) >= p):
        low[above] *= 2.0
    while np.any(below := cdf(high) < p):
        high[below] *= 2.0
    for _ in range(_ROUNDS_OF_BISECTION):
        middle = 0.5 * (low + high)
        if np.all((middle <= low) | (middle >= high)):
            break
        below = cdf(middle) < p
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high


def _two_tails(z: Floats, tail: Floats) -> Any:
    """The CDF of a symmetric law from its lower tail at −|z|."""
    return np.where(z < 0.0, tail, 1.0 - tail)


@dataclass(frozen=True)
class _LocationScale(Population):
    """A family with a location and a scale."""

    location: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_finite("location", self.location)
        check_positive("scale", self.scale)

    @property
    def frame(self) -> tuple[float, float]:
        """Location and scale."""
        return self.location, self.scale


@dataclass(frozen=True)
class Normal(_LocationScale):
    """N(location, scale²).

    >>> round(Normal().cdf(1.959964), 6)
    0.975
    """

    family = "normal"
    in_words: ClassVar[Mapping[str, str]] = {"mean": "location", "median": "location", "sd": "scale"}

    def _cdf(self, z: Floats) -> Any:
        return 0.5 * scipy.special.erfc(-z / math.sqrt(2.0))

    def _density(self, z: Floats) -> Any:
        return np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)

    def _quantile(self, p: Floats) -> Any:
        return scipy.special.ndtri(p)


@dataclass(frozen=True)
class Uniform(Population):
    """Uniform on (low, high).

    >>> Uniform(-1, 1).cdf(0.5)
    0.75
    """

    family = "uniform"

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        _check_finite("low", self.low)
        _check_finite("high", self.high)
        if not self.low < self.high:
            raise InputError(f"low must lie below high; got {self.low!r} and {self.high!r}.")

    @property
    def frame(self) -> tuple[float, float]:
        """The lower end and the length."""
        return self.low, self.high - self.low

    def _cdf(self, z: Floats) -> Any:
        return np.clip(z, 0.0, 1.0)

    def _density(self, z: Floats) -> Any:
        return np.where((z >= 0.0) & (z < 1.0), 1.0, 0.0)

    def _quantile(self, p: Floats) -> Any:
        return p


@dataclass(frozen=True)
class Cauchy(_LocationScale):
    """Cauchy(location, scale), which has no mean; its quantiles are estimated like any other's."""

    family = "cauchy"
    in_words: ClassVar[Mapping[str, str]] = {"median": "location"}

    def _cdf(self, z: Floats) -> Any:
        return 0.5 + np.arctan(z) / math.pi

    def _density(self, z: Floats) -> Any:
        return 1.0 / (math.pi * (1.0 + z**2))

    def _quantile(self, p: Floats) -> Any:
        return np.tan(math.pi * (p - 0.5))


@dataclass(frozen=True)
class Laplace(_LocationScale):
    """Laplace(location, scale)."""

    family = "laplace"
    in_words: ClassVar[Mapping[str, str]] = {"mean": "location", "median": "location"}

    def _cdf(self, z: Floats) -> Any:
        return _two_tails(z, 0.5 * np.exp(-abs(z)))

    def _density(self, z: Floats) -> Any:
        return 0.5 * np.exp(-np.abs(z))

    def _quantile(self, p: Floats) -> Any:
        return np.where(p < 0.5, np.log(2.0 * p), -np.log(2.0 * (1.0 - p)))


@dataclass(frozen=True)
class LogNormal(_LocationScale):
    """exp(N(location, scale²)): incomes, durations."""

    family = "lognormal"
    in_words: ClassVar[Mapping[str, str]] = {"median": "location", "sigma": "scale"}

    @property
    def frame(self) -> tuple[float, float]:
        """Location and scale are those of the logarithm."""
        return 0.0, 1.0

    @property
    def _logarithm(self) -> Normal:
        return Normal(self.location, self.scale)

    def _cdf(self, z: Floats) -> Any:
        return np.where(z > 0.0, self._logarithm.cdf(np.log(np.where(z > 0.0, z, 1.0))), 0.0)

    def _density(self, z: Floats) -> Any:
        positive = np.where(z > 0.0, z, 1.0)
        return np.where(z > 0.0, self._logarithm.density(np.log(positive)) / positive, 0.0)

    def _quantile(self, p: Floats) -> Any:
        return np.exp(self._logarithm.quantile(p))


@dataclass(frozen=True)
class StudentT(_LocationScale):
    """Student's t with `degrees` of freedom, moved and stretched.

    >>> round(StudentT(degrees=3.0).cdf(3.182446), 6)
    0.975
    """

    family = "student-t"
    in_words: ClassVar[Mapping[str, str]] = {"median": "location"}

    degrees: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("degrees", self.degrees)

    def _cdf(self, z: Floats) -> Any:
        shape = 0.5 * self.degrees
        return _two_tails(z, 0.5 * scipy.special.betainc(shape, 0.5, self.degrees / (self.degrees + z * z)))

    def _density(self, z: Floats) -> Any:
        nu = self.degrees
        log_peak = math.lgamma(0.5 * (nu + 1.0)) - math.lgamma(0.5 * nu) - 0.5 * math.log(nu * math.pi)
        return np.exp(log_peak - 0.5 * (nu + 1.0) * np.log1p(z**2 / nu))

    def _quantile(self, p: Floats) -> Any:
        return scipy.special.stdtrit(self.degrees, p)


@dataclass(frozen=True)
class Mixture(Population):
    """Σ w_k F_k; without weights all parts count alike. The estimand of a federation is a quantile of one of these.

    >>> halves = Mixture((Normal(0.0), Normal(2.0)))
    >>> round(halves.quantile(0.5), 12)
    1.0
    """

    family = "mixture"

    parts: tuple[Population, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.parts:
            raise InputError("parts must hold at least one population; got none.")
        weights = self.weights or (1.0 / len(self.parts),) * len(self.parts)
        if len(weights) != len(self.parts):
            raise InputError(f"weights must be as many as parts, {len(self.parts)}; got {len(weights)}.")
        checked_sum({f"part {k}": weight for k, weight in enumerate(weights, 1)})
        object.__setattr__(self, "parts", tuple(self.parts))
        object.__setattr__(self, "weights", tuple(float(weight) for weight in weights))

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether every part is."""
        return all(part.smooth for part in self.parts)

    def _cdf(self, z: Floats) -> Any:
        return sum(weight * part.cdf(z) for weight, part in zip(self.weights, self.parts, strict=True))

    def _density(self, z: Floats) -> Any:
        return sum(weight * part.density(z) for weight, part in zip(self.weights, self.parts, strict=True))

    def to_spec(self) -> dict[str, Any]:
        """The table that `from_spec` reads."""
        return {"family": "mixture", "parts": [part.to_spec() for part in self.parts], "weights": list(self.weights)}


FAMILIES: dict[str, type[Population]] = {
    kind.family: kind for kind in (Normal, Uniform, Cauchy, Laplace, LogNormal, StudentT, Mixture)
}
"""Families that can be named in a design."""


def population(family: str, **parameters: Any) -> Population:
    """The population of a named family.

    >>> population("gauss")
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: family must be one of normal, uniform, cauchy, laplace, lognormal, student-t, mixture;
    got 'gauss'.
    """
    if family not in FAMILIES:
        raise InputError(f"family must be one of {', '.join(FAMILIES)}; got {family!r}.")
    kind = FAMILIES[family]
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    unknown = [name for name in parameters if name not in known]
    if unknown:
        raise InputError(f"{family} has the parameters {', '.join(known)}; got {', '.join(unknown)}.")
    if kind is Mixture:
        parts = tuple(from_spec(part) for part in parameters.get("parts", ()))
        return Mixture(parts, tuple(parameters.get("weights", ())))
    for name, value in parameters.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{name} must be a number; got {value!r}.")
    return kind(**{name: float(value) for name, value in parameters.items()})


def from_spec(spec: object) -> Population:
    """Read a population from a design: a family's name, or a table with `family` and its parameters.

    >>> from_spec({"family": "uniform", "low": -1, "high": 1}) == Uniform(-1.0, 1.0)
    True
    """
    if isinstance(spec, str):
        return population(spec)
    if not isinstance(spec, Mapping) or not isinstance(spec.get("family"), str):
        raise InputError(f"a population is a family's name or a table with one; got {spec!r:.60}.")
    return population(spec["family"], **{name: value for name, value in spec.items() if name != "family"})


ACCURACY = 1e-6
"""Largest error of a probability. It moves a root by 1e-6/f: a thousandth of the smallest error in the paper."""

MIN_TABLE_CELLS, MAX_TABLE_CELLS = 1 << 10, 1 << 17
"""From 4 kB, well inside the first-level cache, to 512 kB, the second-level one."""


def standardize(population: Population) -> tuple[Population, float, float]:
    """(standard population, location, scale): clients that differ in these two alone share a table.

    >>> standardize(Normal(3.0, 2.0))
    (Normal(location=0.0, scale=1.0), 3.0, 2.0)
    """
    if isinstance(population, Normal | Cauchy | Laplace | StudentT):
        return replace(population, location=0.0, scale=1.0), *population.frame
    if isinstance(population, Uniform):
        return Uniform(), *population.frame
    return population, 0.0, 1.0


@dataclass(frozen=True)
class Grid:
    """Tables for a set of clients over a range of q, in the layout of the kernels."""

    tables: NDArray[np.float32]
    """One row per standard population, knots along it."""
    rows: NDArray[np.int64]
    lows: Floats
    inverses: Floats
    """For each group of equal clients: its row, its first knot and its cells per unit, in the units of q."""
    groups: NDArray[np.int64]
    """For each client its group."""


def make_grid(populations: Sequence[Population], low: float, high: float) -> Grid | None:
    """Tables that serve q in [low, high] for all clients; none when a population is too rough for one."""
    if not all(population.smooth for population in populations):
        return None
    kinds = list(dict.fromkeys(populations))
    standards = [standardize(kind) for kind in kinds]
    # Clients of one family, apart in location and scale only, share one table over the union of their ranges.
    ends: dict[Population, tuple[float, float]] = {}
    for standard, location, scale in standards:
        start, end = (low - location) / scale, (high - location) / scale
        known = ends.get(standard, (start, end))
        ends[standard] = (min(known[0], start), max(known[1], end))
    # A quarter more than the widest range, then up to a power of two: room for the first knot to be a round number.
    width = 2.0 ** math.ceil(math.log2(1.25 * max(end - start for start, end in ends.values())))
    raster = width / 8.0
    keys = [(standard, raster * math.floor(start / raster)) for standard, (start, _) in ends.items()]
    row = {standard: i for i, standard in enumerate(ends)}
    cells = MIN_TABLE_CELLS
    while any(_error(standard, first, width, cells) > ACCURACY for standard, first in keys):
        cells *= 2
        if cells > MAX_TABLE_CELLS:
            return None
    return Grid(
        tables=np.stack([_survivals(standard, first, width, cells) for standard, first in keys]),
        rows=np.array([row[standard] for standard, _, _ in standards], dtype=np.int64),
        lows=np.array([location + scale * keys[row[standard]][1] for standard, location, scale in standards]),
        inverses=np.array([cells / width / scale for _, _, scale in standards]),
        groups=np.array([kinds.index(population) for population in populations], dtype=np.int64),
    )


@lru_cache(maxsize=64)
def _survivals(population: Population, first: float, width: float, cells: int) -> NDArray[np.float32]:
    knots = first + width * np.arange(cells + 1) / cells
    table: NDArray[np.float32] = (1.0 - population.cdf(knots)).astype(np.float32)
    table.flags.writeable = False
    return table


@lru_cache(maxsize=256)
def _error(population: Population, first: float, width: float, cells: int) -> float:
    """Largest error of a look-up: of interpolation at the quarters of the cells, and half a step of the dither."""
    table = _survivals(population, first, width, cells).astype(np.float64)
    worst = 0.0
    for part in (0.25, 0.5, 0.75):
        exact = 1.0 - population.cdf(first + width * (np.arange(cells) + part) / cells)
        worst = max(worst, float(np.max(np.abs(table[:-1] + part * np.diff(table) - exact))))
    return worst + float(np.max(np.abs(np.diff(table)))) / 2048.0


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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Empirical) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.values.size} records)"

    def _cdf(self, x: Floats) -> Floats:
        return np.searchsorted(self.values, x, side="right") / self.values.size

    def _density(self, x: Floats) -> Floats:
        raise InputError("an empirical population has no density: it is all atoms. Smooth it, or dither the records.")

    def _quantile(self, p: Floats) -> Floats:
        # ⌈np⌉-th smallest; the small slack keeps p = j/n, written in doubles, at the j-th.
        rank = np.ceil(p * self.values.size - 1e-9).astype(np.int64) - 1
        return self.values[np.clip(rank, 0, self.values.size - 1)]


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
        return self.inner.cdf(np.exp(x))

    def _density(self, x: Floats) -> Any:
        values: Floats = np.exp(x)
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
    for code, name in sorted(enumerate(source.clients), key=itemgetter(1)):
        own = values[known & (codes == code)]
        if not own.size:
            raise DataError(f"{Path(path).name} has no number in column {value} for {name}; name another column.")
        found[name] = Empirical(own)
    return found


KINDS = (*(kind for kind in FAMILIES.values() if kind is not Mixture), Empirical)
"""A kind's number in the kernels is its place here."""


def sampler_arrays(populations: Sequence[Population]) -> tuple[np.ndarray[tuple[int], np.dtype[np.generic]], ...]:
    """(firsts, kinds, cumulative, locations, scales, shapes, values, sizes) of all parts.

    Client k has parts firsts[k] … firsts[k+1] − 1.
    A mixture's parts are its components with cumulative weights. `shapes` holds Student's degrees, or where an
    empirical part's records begin in `values`; `sizes` how many there are, and `scales` how far they are dithered.
    """
    firsts = [0]
    rows: list[tuple[int, float, float, float, float, int]] = []
    columns: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
    held = 0
    for population in populations:
        parts, weights = _flat(population)
        for part, upto in zip(parts, np.cumsum(weights).tolist(), strict=True):
            kind = next((code for code, kind in enumerate(KINDS) if isinstance(part, kind)), None)
            if kind is None:
                raise InputError(f"records of {type(part).__name__} cannot be drawn one by one.")
            if isinstance(part, Empirical):
                width = part.width if isinstance(part, Dithered) else 0.0
                rows.append((kind, upto, 0.0, width, float(held), part.values.size))
                columns.append(part.values)
                held += part.values.size
            elif isinstance(part, Uniform):
                rows.append((kind, upto, part.low, part.high - part.low, 0.0, 0))
            else:
                shape = part.degrees if isinstance(part, StudentT) else 0.0
                rows.append((kind, upto, part.location, part.scale, shape, 0))  # type: ignore[attr-defined]
        firsts.append(len(rows))
    kinds, cumulative, locations, scales, shapes, sizes = (np.array(column) for column in zip(*rows, strict=True))
    values = np.concatenate(columns) if columns else np.zeros(1)
    reals = (column.astype(np.float64) for column in (cumulative, locations, scales, shapes))
    return np.array(firsts, dtype=np.int64), kinds.astype(np.int64), *reals, values, sizes.astype(np.int64)


def _flat(population: Population, share: float = 1.0) -> tuple[list[Population], list[float]]:
    """A population as plain parts with weights; mixtures of mixtures are multiplied out."""
    if not isinstance(population, Mixture):
        return [population], [share]
    parts: list[Population] = []
    weights: list[float] = []
    for part, weight in zip(population.parts, population.weights, strict=True):
        inner, shares = _flat(part, share * weight)
        parts += inner
        weights += shares
    return parts, weights
