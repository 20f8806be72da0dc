"""`estimate`: from data to a result, in one call."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, overload

import numpy as np

from privatile.api.groups import prepare_groups
from privatile.api.local_run import Progress, prepare
from privatile.client.sources.tables import is_stream
from privatile.core.text import meant, removed
from privatile.errors import InputError
from privatile.planning.options import Options
from privatile.result.groups import GroupResults
from privatile.result.result import QuantileResult, Results


@overload
def estimate(
    data: object,
    *,
    by: str | Sequence[str],
    q: float | Sequence[float] | Literal["curve"] = ...,
    epsilon: float | Mapping[str, float] | None = ...,
    range: tuple[float, float],
    simulate: bool = ...,
    rng: np.random.Generator | int | None = ...,
    progress: Progress | None = ...,
    **options: Any,
) -> GroupResults: ...


@overload
def estimate(
    data: object,
    *,
    q: float | Mapping[str, float] = ...,
    epsilon: float | Mapping[str, float] | None = ...,
    range: tuple[float, float],
    simulate: bool = ...,
    rng: np.random.Generator | int | None = ...,
    progress: Progress | None = ...,
    **options: Any,
) -> QuantileResult: ...


@overload
def estimate(
    data: object,
    *,
    q: Sequence[float] | Literal["curve"],
    epsilon: float | Mapping[str, float] | None = ...,
    range: tuple[float, float],
    simulate: bool = ...,
    rng: np.random.Generator | int | None = ...,
    progress: Progress | None = ...,
    **options: Any,
) -> Results: ...


def estimate(
    data: object,
    *,
    by: str | Sequence[str] | None = None,
    q: float | Sequence[float] | Mapping[str, float] | Literal["curve"] = 0.5,
    epsilon: float | Mapping[str, float] | None = None,
    range: tuple[float, float] | None = None,
    simulate: bool = False,
    rng: np.random.Generator | int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> QuantileResult | Results | GroupResults:
    """A quantile with its confidence interval under ε-local differential privacy; one result for each level in `q`.

    `data` is a mapping of client name to column, a table with a client column (`client=`), one column, a path, a
    relation of duckdb or another stream of Arrow, or a DB-API connection with `sql=`. `range` is where the quantile can
    lie, in units; `scale` is linear, log, logit or identity. With `by`, a column or several of them, every group has a
    result of its own (`GroupResults`). Every further keyword is a field of `privatile.planning.options.Options`.

    Real data takes randomness from the operating system only, and a ledger remembers who has answered. For made-up
    data `simulate=True, rng=…` seeds everything, and the result says so.

    >>> made_up = {"north": np.random.default_rng(1).normal(50, 10, 20_000),
    ...            "south": np.random.default_rng(2).normal(60, 10, 20_000)}
    >>> result = estimate(made_up, q=0.5, epsilon=1, range=(0, 100), simulate=True, rng=3)
    >>> bool(result.confidence_interval.low < 55 < result.confidence_interval.high)
    True
    """
    if rng is not None and not simulate:
        raise InputError(
            "a seed is for simulation: with a known seed every randomized answer could be undone. Leave it out for "
            "real data, or say simulate=True for made-up data."
        )
    if simulate and rng is None:
        raise InputError("a simulation needs its randomness: give rng, a numpy Generator or a seed.")
    if simulate and options.get("ledger") is not None:
        raise InputError(
            "a simulation asks no one, so nothing of it is written to a ledger. Leave out ledger; or, if these records "
            "are real, simulate and rng."
        )
    if simulate and (isinstance(data, str | os.PathLike) or options.get("sql") is not None or is_stream(data)):
        raise InputError(
            "a simulation is for made-up data in memory; this is a file or a database, so its records are taken for "
            "real. Leave out simulate and rng."
        )
    known = [*(field.name for field in fields(Options)), "rng", "simulate", "progress"]
    for name in options:
        if name not in known:
            if gone := removed("estimate", name):
                raise TypeError(f"estimate(): {gone}")
            near = "scale='log'" if name == "log" else meant(name, known)
            hint = f"Did you mean {near!r}?" if near else f"Known: {', '.join(known)}."
            raise TypeError(f"estimate() got an unexpected keyword argument {name!r}. {hint}")
    levels = tuple(q) if isinstance(q, Sequence) and not isinstance(q, str) else q
    groups = by if by is None or isinstance(by, str) else tuple(by)
    chosen = Options(q=levels, epsilon=epsilon, range=range, by=groups, **options)
    generator = np.random.default_rng(rng) if simulate else None
    if chosen.by is not None:
        return prepare_groups(data, chosen, generator).complete(progress)
    results = prepare(data, chosen, generator).complete(progress)
    return results if isinstance(q, Sequence) else results[0]
