"""Before anyone is asked: how narrow the interval will be, or what it takes to make it so.

In rank, the interval's half-width is known from the clients' records and budgets alone:

    h = z·s·a,   s² = Σ p_k²σ_k²/n_k,   σ_k² = (r_k⁻² − (2τ − 1)²)/4

a ≥ 1 is what search, bend and the estimated slope add (`inflation`). Divided by the density at the quantile this is
the half-width in units. Where the clients' distributions differ σ_k² is a little smaller than at rank τ, so h errs on
the wide side.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from privatile.core.mechanism import LARGEST_EPSILON, STRONGEST_EPSILON, RandomizedResponse
from privatile.errors import InputError
from privatile.estimator.auto import SUPPORTED, chosen_rounds, supported
from privatile.estimator.clients import Client, check_level, pooled_noise
from privatile.estimator.question_policy import PROBE_ERRORS, PROBE_REACH, PROBE_SHARE, RELAXATIONS, STABLE, information
from privatile.laws.critical import checked_level
from privatile.laws.normal import two_sided_z

LOST = 1.2
"""Search and bend raise the standard error by the factor 1 + LOST/√I: 4% at I = 1,000, as the coverage study found."""


@dataclass(frozen=True)
class RunPlan:
    """What a run with these clients would give."""

    level: float
    clients: tuple[Client, ...]
    confidence_level: float
    rounds: int
    information: float
    rank_half_width: float
    half_width: float | None
    """In units; none without a density."""
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
        return {**vars(self), "supported": self.supported, "clients": clients}

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
        percent = f"{100 * self.confidence_level:g}%"
        low, high = max(0.0, self.level - self.rank_half_width), min(1.0, self.level + self.rank_half_width)
        lines += [
            "",
            f"The {percent} interval for level {self.level:g} would reach from about the {low:.4f} to the {high:.4f} "
            f"quantile, in {self.rounds} rounds.",
        ]
        if self.half_width is not None:
            lines.append(f"That is ± {self.half_width:.4g} in units of the data.")
        words = "enough" if self.supported else f"too little: {SUPPORTED:,.0f} are needed for honest coverage"
        lines.append(f"Information: {self.information:,.0f}, {words}.")
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


def inflation(info: float, rounds: int, confidence_level: float = 0.95) -> float:
    """a: how much wider than with known slope and no search.

    The slope is learned from the probes, reach·√share standard errors apart in units of the local spread, and from the
    window's N relaxations: 1/ρ² = (reach/λ)²·share + N/2, λ = 1/√I. The interval is 1/√(1 − z²ρ²) wider for it.

    >>> round(inflation(1000, 200), 3), round(inflation(100_000, 200), 3)
    (1.115, 1.063)
    """
    z = two_sided_z(confidence_level)
    unit = 1.0 / math.sqrt(info)
    reach = min(PROBE_REACH, PROBE_ERRORS * unit)
    relaxed = min(RELAXATIONS, STABLE * 0.8 * rounds)
    slope_variance = 1.0 / ((reach / unit) ** 2 * PROBE_SHARE + relaxed / 2.0)
    rest = 1.0 - z * z * slope_variance
    if rest <= 0.0:
        return math.inf
    return (1.0 + LOST * unit) * (1.0 + slope_variance / 2.0) / math.sqrt(rest)


def rank_half_width(level: float, clients: Sequence[Client], confidence_level: float, inflated: float) -> float:
    """h: the interval's expected half-width in rank, with the factor that its method adds."""
    error = math.sqrt(math.fsum(client.rank_variance(level) for client in clients))
    return inflated * two_sided_z(confidence_level) * error


def plan_run(
    level: float,
    clients: Sequence[Client],
    *,
    confidence_level: float = 0.95,
    rounds: int | None = None,
    density: float | None = None,
    half_width: float | None = None,
) -> RunPlan:
    """What these clients give, and what a target half-width would take. Weights may have any sum.

    Without `density` the target is in rank: 0.01 asks for the interval from the (τ − 0.01) to the (τ + 0.01) quantile.

    >>> coin = RandomizedResponse.from_epsilon(1.0)
    >>> clients = [Client(f"c{k}", coin, 0.1, 0.5, records=5000) for k in range(10)]
    >>> round(plan_run(0.5, clients).rank_half_width, 4)
    0.0103
    """
    check_level(level)
    checked_level(confidence_level)
    if not clients:
        raise InputError("a plan needs at least one client.")
    for name, value in (("density", density), ("half_width", half_width)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} must be a positive number; got {value!r}.")
    total = math.fsum(client.weight for client in clients)
    planned = tuple(replace(client, weight=client.weight / total) for client in clients)
    planned_rounds = chosen_rounds(rounds, min(client.records for client in planned))

    def reached(members: Sequence[Client], rounds: int) -> float:
        inflated = inflation(information(level, pooled_noise(members)), rounds, confidence_level)
        return rank_half_width(level, members, confidence_level, inflated)

    def with_records(factor: float) -> float:
        members = [replace(client, records=max(20, round(client.records * factor))) for client in planned]
        smallest = min(client.records for client in members)
        return reached(members, chosen_rounds(None, smallest) if rounds is None else min(rounds, smallest))

    def with_epsilon(factor: float) -> float:
        budgets = [min(max(c.mechanism.epsilon * factor, STRONGEST_EPSILON), LARGEST_EPSILON) for c in planned]
        coins = map(RandomizedResponse.from_epsilon, budgets)
        return reached([replace(c, mechanism=coin) for c, coin in zip(planned, coins, strict=True)], planned_rounds)

    reach = reached(planned, planned_rounds)
    target = None if half_width is None else half_width * (density or 1.0)
    best = 1.0 / math.fsum(client.weight**2 / client.rank_variance(level) for client in planned)
    return RunPlan(
        level=level,
        clients=planned,
        confidence_level=confidence_level,
        rounds=planned_rounds,
        information=information(level, pooled_noise(planned)),
        rank_half_width=reach,
        half_width=None if density is None else reach / density,
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
