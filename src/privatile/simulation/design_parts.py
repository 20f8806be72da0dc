"""Parts of an experiment's design: methods, populations and numbers as a TOML table gives them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from privatile.core.mechanism import RandomizedResponse
from privatile.errors import InputError
from privatile.estimator.schedule import Constant, Design, LengthRule, Listed, Logarithmic, Mode, Power
from privatile.estimator.values import parse_values
from privatile.simulation.cells import Method
from privatile.simulation.columns import read_columns
from privatile.simulation.populations import Population, from_spec

RoundLengths = Annotated[
    int | Literal["log"] | dict[str, float] | list[int],
    Meta(description='a whole number, "log", {power = 0.5} or a list of whole numbers'),
]


_FIXED = ("lengths", "mode", "warm_up", "burn_in", "step_scale", "step_exponent", "step_offset")
"""What the default design has no use for."""


@dataclass(frozen=True)
class MethodSpec:
    """What is run: a method with its round lengths, mode, warm-up, burn-in and step; or the default design, `auto`."""

    method: Method | Literal["auto"] = "estimator"
    lengths: RoundLengths = 1
    mode: Mode = "cohort"
    warm_up: float = Design.warm_up
    burn_in: float = Design.burn_in
    step_scale: float = Design.step_scale
    step_exponent: float = Design.step_exponent
    step_offset: float = Design.step_offset
    values: str = "any"
    range: tuple[float, float] | None = None
    scale: Literal["linear", "log"] = "linear"

    def __post_init__(self) -> None:
        tuned = {name: getattr(self, name) != getattr(MethodSpec, name) for name in ("values", "range", "scale")}
        if self.method != "auto":
            if given := [name for name, is_set in tuned.items() if is_set]:
                raise InputError(f'{", ".join(given)} goes with method = "auto" only.')
            self.design.steps(2, 1.0)
            return
        fixed = [name for name in _FIXED if getattr(self, name) != getattr(MethodSpec, name)]
        if fixed:
            raise InputError(f'method "auto" chooses its own rounds: leave out {", ".join(fixed)}.')
        if self.range is None or not self.range[0] < self.range[1]:
            raise InputError('method "auto" needs range = [low, high], where the quantile can lie.')
        parse_values(self.values)

    @property
    def design(self) -> Design:
        """The schedule's design."""
        steps = {name: getattr(self, name) for name in ("step_scale", "step_exponent", "step_offset")}
        return Design("experiment", self._rule(), self.mode, self.warm_up, self.burn_in, **steps)

    def _rule(self) -> LengthRule:
        if isinstance(self.lengths, int):
            return Constant(self.lengths)
        if isinstance(self.lengths, str):
            return Logarithmic()
        if isinstance(self.lengths, list):
            return Listed(tuple(self.lengths))
        if set(self.lengths) != {"power"}:
            raise InputError(f"a table of lengths must be {{power = …}}; got {', '.join(self.lengths) or 'none'}.")
        return Power(self.lengths["power"])


def populations_of(spec: Any, clients: int, folder: Path) -> tuple[Population, ...]:
    """One population for all, a list of one per client, or parameters that are lists of one number per client.

    A table with `file` and `value` is a column of a file, with `client` one population for each name there.
    """
    if isinstance(spec, Mapping) and "file" in spec:
        known = {"file", "value", "client"}
        if not {"file", "value"} <= set(spec) <= known or not all(isinstance(part, str) for part in spec.values()):
            raise InputError(
                f"a column is {{file = …, value = …}}, and client where it is wanted; got {', '.join(spec)}."
            )
        found = tuple(read_columns(folder / spec["file"], spec["value"], spec.get("client")).values())
        if "client" in spec and len(found) != clients:
            raise InputError(
                f"must give one population per client, {clients}; {spec['client']} has {len(found)} names."
            )
        return found if "client" in spec else found * clients
    if isinstance(spec, list):
        counted: list[Population] = []
        for part in spec:
            count = part.get("count", 1) if isinstance(part, Mapping) else 1
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise InputError(f"count must be a whole number of at least 1; got {count!r:.40}.")
            plain = {k: v for k, v in part.items() if k != "count"} if isinstance(part, Mapping) else part
            counted += [from_spec(plain)] * min(count, clients + 1)
        if len(counted) != clients:
            raise InputError(f"must give one population per client, {clients}; got {len(counted)}.")
        return tuple(counted)
    if isinstance(spec, Mapping) and spec.get("family") != "mixture":
        lists = {name: value for name, value in spec.items() if isinstance(value, list)}
        for name, value in lists.items():
            if len(value) != clients:
                raise InputError(f"{name} must hold one number per client, {clients}; got {len(value)}.")
        return tuple(
            from_spec({name: value[k] if name in lists else value for name, value in spec.items()})
            for k in range(clients)
        )
    return (from_spec(spec),) * clients


def numbers_of(spec: Any, clients: int, kind: str) -> tuple[float, ...]:
    """One number for all, a list, {from, to} spread evenly over the clients, or for truth rates {epsilon}."""
    if isinstance(spec, Mapping) and set(spec) == {"epsilon"} and kind == "truth_rate":
        return (RandomizedResponse.from_epsilon(float(spec["epsilon"])).truth_rate,) * clients
    if isinstance(spec, Mapping):
        if set(spec) != {"from", "to"}:
            raise InputError(f"must be a number, a list, or a table with from and to; got {', '.join(spec) or 'none'}.")
        ends = numbers_of([spec["from"], spec["to"]], 2, kind)
        return tuple(np.linspace(ends[0], ends[1], clients).tolist())
    values = spec if isinstance(spec, list) else [spec] * clients
    if len(values) != clients:
        raise InputError(f"must hold one number per client, {clients}; got {len(values)}.")
    rule = "inside (0, 1)" if kind == "level" else "in (0, 1]"
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"a {kind} must be a number {rule}, or a name defined under {kind}s; got {value!r}.")
        if not 0.0 < value <= 1.0 or (kind == "level" and value == 1.0):
            raise InputError(f"a {kind} must lie {rule}; got {value!r}.")
    return tuple(float(value) for value in values)
