"""What a run would cost and give, before anyone is asked.

Without the data's density the width in units is unknown, but its width in *rank* is not: the interval will reach from
about the (τ − h) to the (τ + h) quantile, with the h of `planning.expected_width`. Where the result will show an
interval of which no width was measured (that of fixed designs), the preview says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privatile.estimator.clients import Client
from privatile.estimator.schedule import SELF_TUNING
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.inference.inference import level_each
from privatile.laws.critical import critical_value
from privatile.laws.normal import two_sided_z
from privatile.planning.expected_width import ExpectedWidth, both_in_words, expected_widths, rank_half_width
from privatile.result.both_readings import may_stand_beside
from privatile.result.diagnostics import Support, support_of
from privatile.result.number_words import epsilon_text, finite

SELF_NORMALIZED_COST = 1.30
"""A self-normalised interval is this many times as wide as one with known variance, on average (constant lengths)."""


@dataclass(frozen=True)
class Preview:
    """Who would pay what, and the interval's expected reach in rank."""

    spec: RunSpec
    widths: tuple[tuple[ExpectedWidth, ...], ...]
    """Of each level: the interval that the result would show first, and the one beside it where there is one."""
    rounds: tuple[int, ...]
    support: tuple[Support, ...]
    """Of each level, in the words that its result will use."""

    @property
    def rank_half_widths(self) -> tuple[float, ...]:
        """Of each level, the reach in rank of the interval that the result would show first; NaN if unknown."""
        return tuple(shown[0].rank_half_width for shown in self.widths)

    def to_dict(self) -> dict[str, Any]:
        """All facts as plain values."""
        return {
            "dry_run": True,
            "levels": list(self.spec.levels),
            "expected_half_width_in_rank": [finite(reach) for reach in self.rank_half_widths],
            "expected_intervals": [
                [
                    {
                        "method": one.method,
                        "condition": one.condition,
                        "half_width_in_rank": finite(one.rank_half_width),
                    }
                    for one in shown
                ]
                for shown in self.widths
            ],
            "rounds": list(self.rounds),
            "information": [support.row.value for support in self.support],
            "caveats": [
                {"level": level, "code": caveat.code, "text": caveat.text}
                for level, support in zip(self.spec.levels, self.support, strict=True)
                for caveat in support.caveats
            ],
            "confidence_level": self.spec.confidence_level,
            "simultaneous": self.spec.joint > 1,
            # Of weighted records, the weight classes.
            "clients": [
                {
                    "name": client.name,
                    "records": client.records,
                    "epsilon": finite(client.mechanism.epsilon),
                    "truth_rate": client.mechanism.truth_rate,
                    "weight": client.weight,
                    **({} if client.weights is None else {"weights": list(client.weights)}),
                }
                for client in self.spec.clients
            ],
        }

    def to_text(self) -> str:
        """The same for a terminal."""
        spec = self.spec
        lines = [
            f"Dry run: {sum(client.records for client in spec.clients):,} records would answer once each; no one was."
        ]
        holders: dict[str, list[ClientSpec]] = {}
        for client in spec.clients:
            holders.setdefault(client.holder or client.name, []).append(client)
        gap = max(6, *map(len, holders))
        lines += ["", f"{'client':<{gap}}  {'records':>12}  {'ε':>8}  {'weight':>8}"]
        for name, parts in holders.items():
            epsilon, weight = epsilon_text(parts[0].mechanism.epsilon), sum(part.weight for part in parts)
            lines.append(f"{name:<{gap}}  {sum(part.records for part in parts):>12,}  {epsilon:>8}  {weight:>8.4f}")
        if spec.survey is not None:
            took_part = sum(client.records for client in spec.clients)
            lines += ["", f"Beware: {spec.survey.to_text(len(spec.clients), took_part)}"]
        lines.append("")
        if spec.joint > 1:
            lines.append(f"The confidence is that all {spec.joint} intervals hold at once.")
        for level, shown, rounds, support in zip(spec.levels, self.widths, self.rounds, self.support, strict=True):
            lines.append(f"level {level:g}: {rounds} rounds. {support.row.label.capitalize()} {support.row.text}.")
            words = both_in_words(shown, level, spec.confidence_level, enough=not support.caveats)
            lines += [f"- {text}" for text in words]
            lines += [f"Beware: {caveat.text}" for caveat in support.caveats]
        return "\n".join(lines)


def preview(spec: RunSpec) -> Preview:
    """Work it out from the specification alone."""
    widths: list[tuple[ExpectedWidth, ...]] = []
    rounds, support = [], []
    for index in range(len(spec.levels)):
        plan = spec.plan(index)
        widths.append(_widths(spec, plan.level, plan.clients, plan.rounds))
        rounds.append(plan.rounds)
        support.append(support_of(plan.level, plan.clients))
    return Preview(spec, tuple(widths), tuple(rounds), tuple(support))


def _widths(spec: RunSpec, level: float, clients: Sequence[Client], rounds: int) -> tuple[ExpectedWidth, ...]:
    """The interval that `inference.choice.choose_interval` will show first, and one whose width is known beside it."""
    confidence = level_each(spec.confidence_level, spec.joint)

    def self_normalized() -> ExpectedWidth:
        path = rank_half_width(level, clients, confidence, _self_normalized_cost(confidence))
        return ExpectedWidth("self-normalized", "", path, None)

    if spec.needs_path or spec.round_mode == "local":
        return (self_normalized(),)
    any_shape, smooth = expected_widths(level, clients, rounds, confidence_level=confidence)
    first_smooth = spec.interval == "smooth" or (spec.interval == "default" and spec.declared.continuous)
    if spec.design not in SELF_TUNING:
        return (smooth if first_smooth else any_shape)._replace(rank_half_width=math.nan), self_normalized()
    if first_smooth:
        return smooth, any_shape
    # Measured for questions on both sides of the quantile only; others give another width.
    shown = any_shape if spec.design == "straddle" else any_shape._replace(rank_half_width=math.nan)
    return (shown, smooth) if may_stand_beside(spec) else (shown,)


def _self_normalized_cost(confidence_level: float) -> float:
    """`SELF_NORMALIZED_COST` at another level: the self-normalised quantile grows faster than the normal one."""
    if confidence_level == 0.95:
        return SELF_NORMALIZED_COST
    constant = [1] * 1000
    at = float(critical_value(constant, confidence_level)) / float(critical_value(constant, 0.95))
    return SELF_NORMALIZED_COST * at * two_sided_z(0.95) / two_sided_z(confidence_level)
