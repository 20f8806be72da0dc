"""Experiments as data: a TOML design, read into cells, every error named at once.

A design defines populations, levels, truth rates and methods by name, and grids that cross them:

    title = "How the median fares"
    clients = 10
    replications = 1000
    seed = 1

    [populations]
    same = "normal"
    [truth_rates]
    mixed = {from = 0.25, to = 0.9}
    [methods]
    C1 = {lengths = 1, mode = "local", warm_up = 0.05}

    [[grid]]
    population = ["same"]
    level = [0.5]
    truth_rate = [0.25, "mixed"]
    method = ["C1"]
    records = [10000]

Parts of an experiment's design: methods, populations and numbers as a TOML table gives them.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import numpy as np
from msgspec import Meta

from privatile.core.decoding import Document, Place, parse_toml, read_text
from privatile.core.kinds import declaration
from privatile.core.mechanism import RandomizedResponse
from privatile.errors import InputError
from privatile.estimator.clients import UNITY
from privatile.estimator.schedule import Constant, Design, LengthRule, Listed, Logarithmic, Mode, Power
from privatile.simulation.cells import Cell, Method
from privatile.simulation.default_design import DefaultCell
from privatile.simulation.populations import Normal, Population, from_spec, read_columns

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
    value_kind: str = "any"
    range: tuple[float, float] | None = None
    scale: Literal["linear", "log"] = "linear"

    def __post_init__(self) -> None:
        tuned = {name: getattr(self, name) != getattr(MethodSpec, name) for name in ("value_kind", "range", "scale")}
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
        declaration(self.value_kind)

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


Protocol = Literal["independent", "published"]
T = TypeVar("T")

PUBLISHED_CONSTANT, PUBLISHED_LOG = 6.74735, 6.753
"""Critical values of the authors' code: for constant lengths, and for logarithmic ones; warm-up not considered."""

Clients = Annotated[int, Meta(ge=1, le=100_000, description="a whole number from 1 to 100000")]
Replications = Annotated[int, Meta(ge=1, le=10**7, description="a whole number from 1 to 10000000")]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number from 0 to 2⁶³ − 1")]
Size = Annotated[int, Meta(ge=2, le=10**8, description="a whole number from 2 to 100000000")]
ConfidenceLevel = Annotated[float, Meta(gt=0.0, lt=1.0, description="a number inside (0, 1); 95% is 0.95")]
AnySpec = Annotated[Any, Meta(description="a table of finite numbers and names")]


@dataclass(frozen=True)
class _Settings:
    """The fields of a design."""

    title: str = ""
    protocol: Protocol = "independent"
    clients: Clients = 10
    replications: Replications = 1000
    seed: Seed = 0
    confidence_level: ConfidenceLevel = 0.95
    weights: tuple[float, ...] = ()
    start: AnySpec = "normal"
    populations: dict[str, AnySpec] = field(default_factory=dict)
    levels: dict[str, AnySpec] = field(default_factory=dict)
    truth_rates: dict[str, AnySpec] = field(default_factory=dict)
    methods: dict[str, AnySpec] = field(default_factory=dict)
    grid: tuple[AnySpec, ...] = ()


MAX_CELLS = 10_000
"""Cells of one grid; the paper's largest has 60."""

Labels = tuple[tuple[str, str], ...]
_AXES = ("population", "level", "truth_rate", "method")
_GRID = dict.fromkeys((*_AXES, "records", "rounds"))


@dataclass(frozen=True)
class Entry:
    """One cell of an experiment with the names it goes by."""

    labels: Labels
    cell: Cell | DefaultCell

    @property
    def scheduled(self) -> Cell:
        """The cell of a method with a fixed schedule."""
        if not isinstance(self.cell, Cell):
            raise TypeError(f"{self.name} runs the default design, which has no schedule")
        return self.cell

    @property
    def name(self) -> str:
        """The labels in one line."""
        return ", ".join(f"{key}={value}" for key, value in self.labels)


@dataclass(frozen=True)
class Experiment:
    """A design read: its cells in order, and how often and with which seed each is run."""

    title: str
    replications: int
    seed: int
    protocol: Protocol
    entries: tuple[Entry, ...]
    confidence_level: float = 0.95
    """Of every cell's interval."""

    @property
    def digest(self) -> str:
        """Names what a store holds: the cells, their intervals, replications and seed."""
        cells = [
            [entry.labels, entry.cell.key, entry.cell.critical, entry.cell.critical_beside, entry.cell.confidence_level]
            for entry in self.entries
        ]
        text = json.dumps([self.replications, self.seed, cells])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def updates(self) -> int:
        """Records answered in the whole experiment."""
        return self.replications * sum(entry.cell.updates for entry in self.entries)


def read_experiment(
    path: str | Path, *, protocol: Protocol | None = None, replications: int | None = None
) -> Experiment:
    """Read a design from a file; the protocol and the number of replications may be overridden."""
    file = Path(path)
    return parse_experiment(
        read_text(file), source=file.name, protocol=protocol, replications=replications, folder=file.parent
    )


def parse_experiment(
    text: str,
    *,
    source: str = "the design",
    protocol: Protocol | None = None,
    replications: int | None = None,
    folder: Path = Path(),
) -> Experiment:
    """Read a design from its text. Every error names the line, the field and the rule, all at once.

    Files of columns are looked for in `folder`, that of the design.
    """
    document = parse_toml(text, source, show_values=True)
    settings = _settings(document)
    if protocol is not None:
        settings = replace(settings, protocol=protocol)
    clients = settings.clients
    weights = _weights(document, settings)
    start = document.attempt(("start",), lambda: from_spec(settings.start))

    def named(table: str, read: Callable[[Any], T]) -> dict[str, T | None]:
        """The values of a table by name; none where the definition is wrong."""
        specs: Mapping[str, Any] = getattr(settings, table)
        return {
            name: document.attempt((table, name), lambda spec=spec: read(spec))  # type: ignore[misc]
            for name, spec in specs.items()
        }

    known: dict[str, Mapping[str, Any]] = {
        "population": named("populations", lambda spec: populations_of(spec, clients, folder)),
        "level": named("levels", lambda spec: numbers_of(spec, clients, "level")),
        "truth_rate": named("truth_rates", lambda spec: numbers_of(spec, clients, "truth_rate")),
        "method": {
            name: document.decode(MethodSpec, spec, ("methods", name)) for name, spec in settings.methods.items()
        },
    }
    if not settings.grid:
        document.add(("grid",), "a design needs at least one [[grid]].")
    entries: dict[Labels, Entry] = {}
    for index, grid in enumerate(settings.grid):
        combinations = _combinations(document, ("grid", index), grid, known, clients)
        for labels, parts in combinations if not document.errors else ():
            cell = document.attempt(
                ("grid", index),
                lambda parts=parts: _cell(parts, weights, start, settings),  # type: ignore[misc]
            )
            if labels in entries:
                document.add(("grid", index), f"the cell {entries[labels].name} appears a second time.")
            if cell is not None:
                entries[labels] = Entry(labels, cell)
    document.finish()
    repeats = settings.replications if replications is None else replications
    title, level = settings.title or source, settings.confidence_level
    return Experiment(title, repeats, settings.seed, settings.protocol, tuple(entries.values()), level)


def _label(value: object) -> str:
    """What a number, a list or a table of a grid is called.

    >>> _label(0.50), _label({"epsilon": 1}), _label({"from": 0.25, "to": 0.9})
    ('0.5', 'ε = 1', 'from = 0.25, to = 0.9')
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{'ε' if name == 'epsilon' else name} = {number}" for name, number in value.items())
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _settings(document: Document) -> _Settings:
    """The design's fields; where one is wrong its default is taken, so that the rest can be checked, too."""
    hints = get_type_hints(_Settings, include_extras=True)
    known = {field.name: field for field in fields(_Settings)}
    values: dict[str, Any] = {}
    for name, given in document.table.items():
        if name not in known:
            document.unknown((name,), known)
        elif (value := document.value(given, hints[name], (name,))) is not None:
            values[name] = value
    return _Settings(**values)


def _weights(document: Document, settings: _Settings) -> tuple[float, ...]:
    clients, given = settings.clients, settings.weights
    if given and (len(given) != clients or min(given) <= 0.0):
        document.add(("weights",), f"must hold one positive number per client, {clients}; got {len(given)} entries.")
    elif given and abs(sum(given) - 1.0) > UNITY:
        document.add(("weights",), f"must sum to 1; got {sum(given)!r}.")
    return given or (1.0 / clients,) * clients


def _combinations(
    document: Document, place: Place, grid: Any, known: Mapping[str, Mapping[str, Any]], clients: int
) -> list[tuple[Labels, dict[str, Any]]]:
    """Every combination of a grid's axes: labels and the values behind them."""
    if not isinstance(grid, Mapping):
        document.add(place, f"must be a table with {', '.join(_GRID)}; got {grid!r:.40}.")
        return []
    for name in grid:
        if name not in _GRID:
            document.unknown((*place, name), _GRID)
    if ("records" in grid) == ("rounds" in grid):
        document.add(place, "must give records or rounds, and not both.")
    axes: list[list[tuple[str, str, Any]]] = []
    for axis in _AXES:
        values = grid.get(axis)
        if not isinstance(values, list) or not values:
            document.add((*place, axis), f"must be a list of at least one {axis}; got {values!r:.40}.")
            continue
        names, points = known[axis], []
        for i, value in enumerate(values):
            if isinstance(value, str) and value in names:
                # A name whose definition is wrong has been noted there.
                points.append((axis, value, names[value]))
            elif isinstance(value, str) or axis in ("population", "method"):
                rule = f"must be the name of one of the design's {axis}s ({', '.join(names) or 'none'})"
                document.add((*place, axis, i), f"{rule}; got {value!r:.40}.")
            else:
                made = document.attempt((*place, axis, i), lambda v=value, a=axis: numbers_of(v, clients, a))  # type: ignore[misc]
                points.append((axis, _label(value), made))
        axes.append(points)
    size = "rounds" if "rounds" in grid else "records"
    sizes = grid.get(size, [])
    sizes = sizes if isinstance(sizes, list) else [sizes]
    axes.append([(size, str(n), document.value(n, Size, (*place, size, i))) for i, n in enumerate(sizes)])
    count = math.prod(len(points) for points in axes)
    if count > MAX_CELLS:
        document.add(place, f"a grid may have {MAX_CELLS:,} cells; this one has {count:,}. Cross fewer values.")
        return []
    return [
        (tuple((axis, label) for axis, label, _ in points), {axis: value for axis, _, value in points})
        for points in itertools.product(*axes)
    ]


def _cell(
    parts: Mapping[str, Any], weights: Sequence[float], start: Population | None, settings: _Settings
) -> Cell | DefaultCell:
    method: MethodSpec = parts["method"]
    if method.method == "auto":
        return _default_cell(parts, weights, settings)
    design = replace(method.design, rounds=parts["rounds"]) if "rounds" in parts else method.design
    authors = PUBLISHED_LOG if isinstance(design.rule, Logarithmic) else PUBLISHED_CONSTANT
    published = settings.protocol == "published"
    return Cell(
        populations=parts["population"],
        levels=parts["level"],
        truth_rates=parts["truth_rate"],
        weights=tuple(weights),
        design=design,
        records=(parts["records"],) * len(weights) if "records" in parts else (),
        method=method.method,
        start=start or Normal(),
        fixed_data=published,
        # The released step belongs to the synchronised runs; divide and conquer counts from its first record.
        fixed_step=published and method.method != "divide",
        critical=authors if published else None,
        critical_beside=authors if settings.confidence_level == 0.95 and not published else None,
        confidence_level=settings.confidence_level,
    )


def _default_cell(parts: Mapping[str, Any], weights: Sequence[float], settings: _Settings) -> DefaultCell:
    method: MethodSpec = parts["method"]
    if "rounds" in parts or settings.protocol == "published" or method.range is None:
        raise InputError('method "auto" needs records, fresh ones in every replication: no rounds, no published data.')
    return DefaultCell(
        populations=parts["population"],
        truth_rates=parts["truth_rate"],
        weights=tuple(weights),
        records=(parts["records"],) * len(weights),
        level=math.fsum(p * t for p, t in zip(weights, parts["level"], strict=True)),
        low=method.range[0],
        high=method.range[1],
        value_kind=method.value_kind,
        scale=method.scale,
        confidence_level=settings.confidence_level,
    )
