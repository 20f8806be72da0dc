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
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from privatile.core.mechanism import RandomizedResponse
from privatile.core.toml_lines import Place, line_numbers, nearest_line
from privatile.errors import InputError
from privatile.estimator.schedule import Constant, Design, LengthRule, Listed, Logarithmic, Power
from privatile.simulation.cells import METHODS, Cell
from privatile.simulation.populations import Normal, Population, from_spec

Protocol = Literal["independent", "published"]
T = TypeVar("T")

PUBLISHED_CONSTANT, PUBLISHED_LOG = 6.74735, 6.753
"""Critical values of the authors' code: for constant lengths, and for logarithmic ones; warm-up not considered."""

FIELDS = {
    "title": str, "protocol": str, "clients": int, "replications": int, "seed": int, "confidence_level": float,
    "weights": list, "start": object, "populations": dict, "levels": dict, "truth_rates": dict, "methods": dict,
    "grid": list,
}  # fmt: skip
GRID_FIELDS = ("population", "level", "truth_rate", "method", "records", "rounds")
METHOD_FIELDS = ("method", "lengths", "mode", "warm_up", "burn_in", "step_scale", "step_exponent", "step_offset")


@dataclass(frozen=True)
class Entry:
    """One cell of an experiment with the names it goes by."""

    labels: tuple[tuple[str, str], ...]
    cell: Cell

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


class _Notes:
    """Errors as they are found; all are shown together."""

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self.lines = line_numbers(text)
        self.found: list[tuple[int, str]] = []

    def add(self, place: Place, rule: str) -> None:
        """Note an error at a place."""
        name = ""
        for part in place:
            name += f"[{part + 1}]" if isinstance(part, int) else f"{'.' if name else ''}{part}"
        line = nearest_line(self.lines, place) or 1
        self.found.append((line, f"line {line}, {name or 'the design'}: {rule}"))

    def attempt(self, place: Place, make: Callable[[], T]) -> T | None:
        """The value, or a note of what is wrong with it."""
        try:
            return make()
        except InputError as error:
            self.add(place, str(error))
            return None

    def finish(self) -> None:
        """Refuse the design if anything was noted."""
        if self.found:
            count = len(self.found)
            lines = "\n".join(f"  {text}" for _, text in sorted(self.found))
            raise InputError(f"{self.source} has {count} error{'s' if count > 1 else ''}:\n{lines}")


def read_experiment(
    path: str | Path, *, protocol: Protocol | None = None, replications: int | None = None
) -> Experiment:
    """Read a design from a file; the protocol and the number of replications may be overridden."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the design {file} cannot be read: {error}.") from None
    return parse_experiment(text, source=file.name, protocol=protocol, replications=replications)


def parse_experiment(
    text: str, *, source: str = "the design", protocol: Protocol | None = None, replications: int | None = None
) -> Experiment:
    """Read a design from its text. Every error names the line, the field and the rule, all at once."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source} is not valid TOML: {error}.") from None
    notes = _Notes(source, text)
    for field, value in raw.items():
        if field not in FIELDS:
            notes.add((field,), f"no such field; a design has {', '.join(FIELDS)}.")
        elif not isinstance(value, FIELDS[field]) or isinstance(value, bool):
            notes.add((field,), f"must be of kind {FIELDS[field].__name__}; got {value!r:.40}.")
    clients = _whole(notes, raw, "clients", 10, 1, 100_000)
    repeats = replications if replications is not None else _whole(notes, raw, "replications", 1000, 1, 10_000_000)
    seed = _whole(notes, raw, "seed", 0, 0, 2**63)
    confidence = raw.get("confidence_level", 0.95)
    if not isinstance(confidence, float) or not 0.0 < confidence < 1.0:
        notes.add(("confidence_level",), f"must lie inside (0, 1); got {confidence!r:.40}. Write 95% as 0.95.")
    chosen = protocol or raw.get("protocol", "independent")
    if chosen not in get_args(Protocol):
        notes.add(("protocol",), f"must be independent or published; got {chosen!r:.40}.")
    weights = _weights(notes, raw, clients)
    start = notes.attempt(("start",), lambda: from_spec(raw.get("start", "normal"))) or Normal()
    named: dict[str, Mapping[str, Any]] = {
        "population": _named(notes, raw, "populations", lambda spec: _populations(spec, clients)),
        "level": _named(notes, raw, "levels", lambda spec: _numbers(spec, clients, "level")),
        "truth_rate": _named(notes, raw, "truth_rates", lambda spec: _numbers(spec, clients, "truth_rate")),
        "method": _named(notes, raw, "methods", _method),
    }
    entries: list[Entry] = []
    grids = raw.get("grid", [])
    if not grids:
        notes.add(("grid",), "a design needs at least one [[grid]].")
    for index, grid in enumerate(grids if isinstance(grids, list) else []):
        axes = _axes(notes, ("grid", index), grid, named, clients)
        if axes is None or notes.found:
            continue
        for labels, parts in axes:
            place: Place = ("grid", index)
            made = notes.attempt(
                place,
                lambda p=parts: _cell(p, weights, start, chosen, confidence),  # type: ignore[misc]
            )
            if made is not None:
                entries.append(Entry(labels, made))
    seen: dict[tuple[tuple[str, str], ...], int] = {}
    for entry in entries:
        seen[entry.labels] = seen.get(entry.labels, 0) + 1
    for labels, times in seen.items():
        if times > 1:
            notes.add(("grid",), f"the cell {', '.join(f'{k}={v}' for k, v in labels)} appears {times} times.")
    notes.finish()
    return Experiment(str(raw.get("title", source)), repeats, seed, chosen, tuple(entries), confidence)


def _whole(notes: _Notes, raw: Mapping[str, Any], field: str, default: int, low: int, high: int) -> int:
    value = raw.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        if isinstance(value, int) and not isinstance(value, bool):
            notes.add((field,), f"must be a whole number from {low} to {high}; got {value!r}.")
        return default
    return value


def _weights(notes: _Notes, raw: Mapping[str, Any], clients: int) -> tuple[float, ...]:
    given = raw.get("weights")
    if given is None or not isinstance(given, list):
        return (1.0 / clients,) * clients
    if len(given) != clients or not all(isinstance(w, int | float) and w > 0 for w in given):
        notes.add(("weights",), f"must hold one positive number a client, {clients}; got {len(given)} entries.")
        return (1.0 / clients,) * clients
    if abs(sum(given) - 1.0) > 1e-9:
        notes.add(("weights",), f"must sum to 1; got {sum(given)!r}.")
    return tuple(float(w) for w in given)


def _named(notes: _Notes, raw: Mapping[str, Any], field: str, read: Callable[[Any], T]) -> dict[str, T | None]:
    """The named values of a table; none where the definition is wrong."""
    values: dict[str, T | None] = {}
    table = raw.get(field, {})
    for name, spec in table.items() if isinstance(table, dict) else ():
        values[name] = notes.attempt((field, name), lambda s=spec: read(s))  # type: ignore[misc]
    return values


def _populations(spec: Any, clients: int) -> tuple[Population, ...]:
    """One population for all, a list of one a client, or parameters that are lists of one number a client."""
    if isinstance(spec, list):
        counted: list[Population] = []
        for part in spec:
            count = part.get("count", 1) if isinstance(part, Mapping) else 1
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise InputError(f"count must be a whole number of at least 1; got {count!r}.")
            plain = {k: v for k, v in part.items() if k != "count"} if isinstance(part, Mapping) else part
            counted += [from_spec(plain)] * count
        if len(counted) != clients:
            raise InputError(f"must give one population a client, {clients}; got {len(counted)}.")
        return tuple(counted)
    if isinstance(spec, Mapping) and spec.get("family") != "mixture":
        lists = {name: value for name, value in spec.items() if isinstance(value, list)}
        for name, value in lists.items():
            if len(value) != clients:
                raise InputError(f"{name} must hold one number a client, {clients}; got {len(value)}.")
        return tuple(
            from_spec({name: value[k] if name in lists else value for name, value in spec.items()})
            for k in range(clients)
        )
    return (from_spec(spec),) * clients


def _numbers(spec: Any, clients: int, kind: str) -> tuple[float, ...]:
    """One number for all, a list, {from, to} spread evenly over the clients, or for truth rates {epsilon}."""
    if isinstance(spec, Mapping) and set(spec) == {"epsilon"} and kind == "truth_rate":
        return (RandomizedResponse.from_epsilon(float(spec["epsilon"])).truth_rate,) * clients
    if isinstance(spec, Mapping):
        if set(spec) != {"from", "to"}:
            raise InputError(f"must be a number, a list, or a table with from and to; got {', '.join(spec) or 'none'}.")
        ends = _numbers([spec["from"], spec["to"]], 2, kind)
        return tuple(np.linspace(ends[0], ends[1], clients).tolist())
    values = spec if isinstance(spec, list) else [spec] * clients
    if len(values) != clients:
        raise InputError(f"must hold one number a client, {clients}; got {len(values)}.")
    rule = "inside (0, 1)" if kind == "level" else "in (0, 1]"
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"a {kind} must be a number {rule}, or a name defined under {kind}s; got {value!r}.")
        if not 0.0 < value <= 1.0 or (kind == "level" and value == 1.0):
            raise InputError(f"a {kind} must lie {rule}; got {value!r}.")
    return tuple(float(value) for value in values)


def _method(spec: Any) -> dict[str, Any]:
    """A method: what is run, its round lengths, mode, warm-up, burn-in and step."""
    if not isinstance(spec, Mapping):
        raise InputError(f"must be a table with any of {', '.join(METHOD_FIELDS)}; got {spec!r:.40}.")
    unknown = [name for name in spec if name not in METHOD_FIELDS]
    if unknown:
        raise InputError(f"has no field {', '.join(unknown)}; a method has {', '.join(METHOD_FIELDS)}.")
    method = spec.get("method", "estimator")
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}; got {method!r}.")
    numbers: dict[str, Any] = {name: spec[name] for name in METHOD_FIELDS[3:] if name in spec}
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{name} must be a number; got {value!r}.")
        numbers[name] = float(value)
    design = Design(
        "experiment",
        _rule(spec.get("lengths", 1)),
        mode=spec.get("mode", "cohort"),
        **numbers,
    )
    design.steps(2, 1.0)
    return {"method": method, "design": design}


def _rule(spec: Any) -> LengthRule:
    """Round lengths: a number, "log", {power = β}, or a list."""
    if spec == "log":
        return Logarithmic()
    if isinstance(spec, int) and not isinstance(spec, bool):
        return Constant(spec)
    if isinstance(spec, Mapping) and set(spec) == {"power"}:
        return Power(float(spec["power"]))
    if isinstance(spec, list) and all(isinstance(length, int) for length in spec):
        return Listed(tuple(spec))
    raise InputError(f'lengths must be a whole number, "log", {{power = 0.5}} or a list; got {spec!r:.40}.')


_Cross = list[tuple[tuple[tuple[str, str], ...], dict[str, Any]]]


def _axes(
    notes: _Notes, place: Place, grid: Any, named: Mapping[str, Mapping[str, Any]], clients: int
) -> _Cross | None:
    """Every combination of a grid's axes: labels and the values behind them."""
    if not isinstance(grid, Mapping):
        notes.add(place, f"must be a table with {', '.join(GRID_FIELDS)}; got {grid!r:.40}.")
        return None
    before = len(notes.found)
    for field in grid:
        if field not in GRID_FIELDS:
            notes.add((*place, field), f"no such field; a grid has {', '.join(GRID_FIELDS)}.")
    if ("records" in grid) == ("rounds" in grid):
        notes.add(place, "must give records or rounds, and not both.")
    axes: list[list[tuple[str, str, Any]]] = []
    for field in ("population", "level", "truth_rate", "method"):
        values = grid.get(field)
        if not isinstance(values, list) or not values:
            notes.add((*place, field), f"must be a list of at least one {field}; got {values!r:.40}.")
            continue
        axis: list[tuple[str, str, Any]] = []
        for i, value in enumerate(values):
            where = (*place, field, i)
            known = named[field]
            if isinstance(value, str) and value in known:
                # A name whose definition is wrong has been noted there.
                axis.append((field, value, known[value]))
            elif isinstance(value, str) or field in ("population", "method"):
                names = ", ".join(known) or "none"
                notes.add(where, f"must be the name of one of the design's {field}s ({names}); got {value!r:.40}.")
            else:
                made = notes.attempt(where, lambda v=value, f=field: _numbers(v, clients, f))  # type: ignore[misc]
                axis.append((field, f"{value:g}" if isinstance(value, int | float) else str(value), made))
        axes.append(axis)
    size = "rounds" if "rounds" in grid else "records"
    sizes = grid.get(size, [])
    sizes = sizes if isinstance(sizes, list) else [sizes]
    for i, value in enumerate(sizes):
        if isinstance(value, bool) or not isinstance(value, int) or not 2 <= value <= 10**8:
            notes.add((*place, size, i), f"must be a whole number from 2 to 100000000; got {value!r:.40}.")
    axes.append([(size, str(value), value) for value in sizes])
    if len(notes.found) > before:
        return None
    return [
        (tuple((field, label) for field, label, _ in combination), {field: value for field, _, value in combination})
        for combination in itertools.product(*axes)
    ]


def _cell(
    parts: Mapping[str, Any], weights: Sequence[float], start: Population, protocol: Protocol, confidence: float
) -> Cell:
    design: Design = parts["method"]["design"]
    if "rounds" in parts:
        design = replace(design, rounds=parts["rounds"])
    authors = PUBLISHED_LOG if isinstance(design.rule, Logarithmic) else PUBLISHED_CONSTANT
    published = protocol == "published"
    at_95 = confidence == 0.95
    return Cell(
        populations=parts["population"],
        levels=parts["level"],
        truth_rates=parts["truth_rate"],
        weights=tuple(weights),
        design=design,
        records=(parts["records"],) * len(weights) if "records" in parts else (),
        method=parts["method"]["method"],
        start=start,
        fixed_data=published,
        # The released step belongs to the synchronised runs; divide and conquer counts from its first record.
        held_step=published and parts["method"]["method"] != "divide",
        critical=authors if published else None,
        critical_beside=authors if at_95 and not published else None,
        confidence_level=confidence,
    )
