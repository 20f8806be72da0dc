"""Before anyone is asked: how narrow the interval will be, or what it takes to make it so."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from privatile.core.mechanism import LARGEST_EPSILON, STRONGEST_EPSILON, RandomizedResponse
from privatile.errors import InputError
from privatile.estimator.auto import chosen_rounds, supported
from privatile.estimator.clients import Client, check_level, pooled_noise
from privatile.estimator.question_policy import information
from privatile.estimator.values import parse_values
from privatile.laws.critical import checked_level
from privatile.planning.expected_width import TOO_LITTLE, ExpectedWidth, both_in_words, expected_widths
from privatile.result.number_words import finite


@dataclass(frozen=True)
class RunPlan:
    """What a run with these clients would give."""

    level: float
    clients: tuple[Client, ...]
    confidence_level: float
    rounds: int
    information: float
    values: str
    """What is declared about the values; `continuous` makes the smooth interval the first one."""
    headline: ExpectedWidth
    """Of the interval that the result would show first."""
    other: ExpectedWidth
    """Of the one that would stand beside it."""
    density: float | None
    target_half_width: float | None
    records_factor: float | None
    """How many times the records meet the target; none without one, or when nothing does."""
    epsilon_factor: float | None
    """How many times every ε meets the target; none when not even no privacy does."""
    weights_cost: float
    """Standard error over that of precision weights: the cost of these weights where all clients share one law."""

    @property
    def supported(self) -> bool:
        """Whether the coverage study validates it."""
        return supported(self.information)

    @property
    def shown(self) -> tuple[ExpectedWidth, ...]:
        """Both intervals, the first one first; the smooth one not where a declared grid contradicts it."""
        return (self.headline,) if parse_values(self.values).step is not None else (self.headline, self.other)

    @property
    def rank_half_width(self) -> float:
        """Of the interval that the result would show first."""
        return self.headline.rank_half_width

    @property
    def half_width(self) -> float | None:
        """The same in units; none without a density."""
        return self.headline.half_width

    def to_dict(self) -> dict[str, Any]:
        """All facts as plain values."""
        total = math.fsum(client.rank_variance(self.level) for client in self.clients)
        clients = [
            {
                "name": client.name,
                "records": client.records,
                "epsilon": client.mechanism.epsilon,
                "truth_rate": client.mechanism.truth_rate,
                "weight": client.weight,
                "variance_share": client.rank_variance(self.level) / total,
            }
            for client in self.clients
        ]
        intervals = [
            {**one._asdict(), "rank_half_width": finite(one.rank_half_width), "half_width": _finite(one.half_width)}
            for one in self.shown
        ]
        plain = {name: value for name, value in vars(self).items() if name not in ("headline", "other")}
        return {
            **plain,
            "rank_half_width": finite(self.rank_half_width),
            "half_width": _finite(self.half_width),
            "intervals": intervals,
            "supported": self.supported,
            "clients": clients,
        }

    def to_json(self) -> str:
        """The same as one JSON object."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_text(self) -> str:
        """A table and what follows from it."""
        facts = self.to_dict()
        gap = max(6, *(len(client.name) for client in self.clients))
        lines = [f"{'client':<{gap}}  {'records':>10}  {'ε':>7}  {'weight':>7}  {'of the variance':>15}"]
        lines += [
            f"{row['name']:<{gap}}  {row['records']:>10,}  {row['epsilon']:>7.4g}  {row['weight']:>7.4f}  "
            f"{100 * row['variance_share']:>14.1f}%"
            for row in facts["clients"]
        ]
        lines += [
            "",
            f"Level {self.level:g}, {self.rounds} rounds.",
            *(
                f"- {text}"
                for text in both_in_words(self.shown, self.level, self.confidence_level, enough=self.supported)
            ),
            f"Information: {self.information:,.0f}{', enough' if self.supported else f'. {TOO_LITTLE}'}.",
        ]
        if self.target_half_width is not None:
            lines.append(self._target_words())
        if self.weights_cost > 1.005:
            lines.append(
                f"These weights cost {100 * (self.weights_cost - 1):.0f}% in width over precision weights, which are "
                "for clients that share one distribution only."
            )
        return "\n".join(lines)

    def _target_words(self) -> str:
        aim = f"A half-width of {self.target_half_width:g} takes"
        if self.records_factor is None:
            return f"{aim} more records than there are people."
        words = f"{aim} {self.records_factor:.3g} times the records"
        if self.epsilon_factor is None:
            return f"{words}; no ε reaches it with these records."
        return f"{words}, or {self.epsilon_factor:.3g} times every ε."


def plan_run(
    level: float,
    clients: Sequence[Client],
    *,
    confidence_level: float = 0.95,
    rounds: int | None = None,
    density: float | None = None,
    half_width: float | None = None,
    values: str = "any",
) -> RunPlan:
    """What these clients give, and what a target half-width would take. Weights may have any sum.

    Without `density` the target is in rank: 0.01 asks for the interval from the (τ − 0.01) to the (τ + 0.01) quantile.
    The target is for the interval that the result would show first: the smooth one where `values` is `continuous`.

    >>> coin = RandomizedResponse.from_epsilon(1.0)
    >>> clients = [Client(f"c{k}", coin, 0.1, 0.5, records=5000) for k in range(10)]
    >>> plans = [plan_run(0.5, clients, values=values) for values in ("any", "continuous")]
    >>> [round(plan.rank_half_width, 4) for plan in plans]
    [0.031, 0.0104]
    """
    check_level(level)
    checked_level(confidence_level)
    continuous = parse_values(values).continuous
    if not clients:
        raise InputError("a plan needs at least one client.")
    for name, value in (("density", density), ("half_width", half_width)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} must be a positive number; got {value!r}.")
    total = math.fsum(client.weight for client in clients)
    planned = tuple(replace(client, weight=client.weight / total) for client in clients)
    planned_rounds = chosen_rounds(rounds, min(client.records for client in planned))

    def widths(members: Sequence[Client], rounds: int) -> tuple[ExpectedWidth, ExpectedWidth]:
        any_shape, smooth = expected_widths(level, members, rounds, confidence_level=confidence_level, density=density)
        return (smooth, any_shape) if continuous else (any_shape, smooth)

    def reached(members: Sequence[Client], rounds: int) -> float:
        return widths(members, rounds)[0].rank_half_width

    def with_records(factor: float) -> float:
        members = [replace(client, records=max(20, round(client.records * factor))) for client in planned]
        smallest = min(client.records for client in members)
        return reached(members, chosen_rounds(None, smallest) if rounds is None else min(rounds, smallest))

    def with_epsilon(factor: float) -> float:
        budgets = [min(max(c.mechanism.epsilon * factor, STRONGEST_EPSILON), LARGEST_EPSILON) for c in planned]
        coins = map(RandomizedResponse.from_epsilon, budgets)
        return reached([replace(c, mechanism=coin) for c, coin in zip(planned, coins, strict=True)], planned_rounds)

    headline, other = widths(planned, planned_rounds)
    target = None if half_width is None else half_width * (density or 1.0)
    best = 1.0 / math.fsum(client.weight**2 / client.rank_variance(level) for client in planned)
    return RunPlan(
        level=level,
        clients=planned,
        confidence_level=confidence_level,
        rounds=planned_rounds,
        information=information(level, pooled_noise(planned)),
        values=values,
        headline=headline,
        other=other,
        density=density,
        target_half_width=half_width,
        records_factor=None if target is None else _factor(target, with_records, 1e9),
        epsilon_factor=None if target is None else _factor(target, with_epsilon, 1e6),
        weights_cost=math.sqrt(math.fsum(client.rank_variance(level) for client in planned) / best),
    )


def _factor(target: float, reached: Callable[[float], float], most: float) -> float | None:
    """The least factor at which a falling function meets the target; none when it never does.

    By bisection in logs: whole records make it a staircase, and the factor must lie on the side that meets the target.
    """
    low, high = 1.0 / most, most
    if reached(high) > target:
        return None
    for _ in range(80):
        middle = math.sqrt(low * high)
        if reached(middle) > target:
            low = middle
        else:
            high = middle
    return high


def _finite(value: float | None) -> float | None:
    return None if value is None else finite(value)
