"""Populations: what a simulated client's records look like, as frozen values.

Every population has a CDF, its inverse, a density and a sampler. They take and return arrays of any shape, are equal by
value, and can be written in a design as a small table: `{family = "normal", location = 1.0}`. An array that lives on a
GPU (CuPy) gives an array there.

>>> population("normal", location=1.0).quantile(0.5)
1.0
>>> Cauchy().cdf(1.0)
0.75
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.special
from numpy.typing import ArrayLike

from privatile.core.arrays import Floats, array_namespace, special_functions
from privatile.errors import InputError
from privatile.estimator.clients import checked_sum

_ROUNDS_OF_BISECTION = 200
"""Enough to halve the widest double interval down to neighbouring numbers near its root (2⁻²⁰⁰)."""


def as_floats(values: object) -> Floats:
    """An array of doubles, where the values are."""
    if hasattr(values, "__array_ufunc__"):
        array: Floats = array_namespace(values).asarray(values, dtype=float)
        return array
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
        family = next(name for name, kind in FAMILIES.items() if kind is type(self))
        return {"family": family} | {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


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
    return array_namespace(z).where(z < 0.0, tail, 1.0 - tail)


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

    def _cdf(self, z: Floats) -> Any:
        return 0.5 * special_functions(z).erfc(-z / math.sqrt(2.0))

    def _density(self, z: Floats) -> Any:
        return np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)

    def _quantile(self, p: Floats) -> Any:
        return special_functions(p).ndtri(p)


@dataclass(frozen=True)
class Uniform(Population):
    """Uniform on (low, high).

    >>> Uniform(-1, 1).cdf(0.5)
    0.75
    """

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
        return array_namespace(z).clip(z, 0.0, 1.0)

    def _density(self, z: Floats) -> Any:
        return np.where((z >= 0.0) & (z < 1.0), 1.0, 0.0)

    def _quantile(self, p: Floats) -> Any:
        return p


@dataclass(frozen=True)
class Cauchy(_LocationScale):
    """Cauchy(location, scale), which has no mean; its quantiles are estimated like any other's."""

    def _cdf(self, z: Floats) -> Any:
        return 0.5 + array_namespace(z).arctan(z) / math.pi

    def _density(self, z: Floats) -> Any:
        return 1.0 / (math.pi * (1.0 + z**2))

    def _quantile(self, p: Floats) -> Any:
        return np.tan(math.pi * (p - 0.5))


@dataclass(frozen=True)
class Laplace(_LocationScale):
    """Laplace(location, scale)."""

    def _cdf(self, z: Floats) -> Any:
        return _two_tails(z, 0.5 * array_namespace(z).exp(-abs(z)))

    def _density(self, z: Floats) -> Any:
        return 0.5 * np.exp(-np.abs(z))

    def _quantile(self, p: Floats) -> Any:
        return np.where(p < 0.5, np.log(2.0 * p), -np.log(2.0 * (1.0 - p)))


@dataclass(frozen=True)
class LogNormal(_LocationScale):
    """exp(N(location, scale²)): incomes, durations."""

    @property
    def frame(self) -> tuple[float, float]:
        """Location and scale are those of the logarithm."""
        return 0.0, 1.0

    @property
    def _logarithm(self) -> Normal:
        return Normal(self.location, self.scale)

    def _cdf(self, z: Floats) -> Any:
        xp = array_namespace(z)
        return xp.where(z > 0.0, self._logarithm.cdf(xp.log(xp.where(z > 0.0, z, 1.0))), 0.0)

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

    degrees: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("degrees", self.degrees)

    def _cdf(self, z: Floats) -> Any:
        shape = 0.5 * self.degrees
        return _two_tails(z, 0.5 * special_functions(z).betainc(shape, 0.5, self.degrees / (self.degrees + z * z)))

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
    "normal": Normal,
    "uniform": Uniform,
    "cauchy": Cauchy,
    "laplace": Laplace,
    "lognormal": LogNormal,
    "student-t": StudentT,
    "mixture": Mixture,
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
