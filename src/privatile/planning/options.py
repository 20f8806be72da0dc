"""The options of an estimate, from the command line, a TOML file or Python.

One frozen value, checked when it is made, before any record is read.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast, get_type_hints

from privatile.core.decoding import read_text, read_toml
from privatile.core.mechanism import LARGEST_EPSILON, WEAK_EPSILON, RandomizedResponse
from privatile.core.scale import Scale, make_scale
from privatile.core.text import by_client_name, client_name, is_address, listed, removed, short
from privatile.errors import InputError
from privatile.estimator.clients import check_level, shares
from privatile.estimator.plan import LocalLevel
from privatile.estimator.schedule import Mode
from privatile.estimator.settings import ReportOptions

PerClient = Mapping[str, float]

CURVE = tuple(step / 10 for step in range(1, 10))
"""Levels of a whole curve. Each gets a ninth of the records: three times the width of one level by itself."""

WHAT_EPSILON_IS = """epsilon is missing: it is yours to choose, there is no default.
  epsilon bounds what anyone can learn about one person from their one randomized bit: seeing it changes the odds of
  any guess about them by at most a factor e^epsilon.
    0.5   strong: 62% of the answers are true, odds change by at most 1.65
    1     common: 73%, 2.7
    2     moderate: 88%, 7.4
    4     weak: 98%, 55
  Smaller protects more and needs more records: half the epsilon, about four times the people for the same interval.
  Give one for all (epsilon=1) or one per client (epsilon={'north': 1, 'south': 0.5})."""


@dataclass(frozen=True, kw_only=True)
class Options(ReportOptions):
    """Everything that a user may choose about an estimate."""

    q: float | tuple[float, ...] | PerClient | Literal["curve"] = 0.5
    epsilon: float | PerClient | None = None
    range: tuple[float, float] | None = None
    scale: str = "linear"
    value: str | None = None
    client: str | None = None
    only: str | Mapping[str, str] | None = None
    """One client; or, by column, the entries that a record must have, all of them."""
    leave_out: str | tuple[str, ...] = ()
    """Clients that are not asked, and not part of the estimand; by their names."""
    by: str | tuple[str, ...] | None = None
    """Columns whose entries are the groups: an estimate for each."""
    person: str | None = None
    sql: str | None = None
    """Query over a database, whose rows are the records."""
    delimiter: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    unit: str | None = None
    """How a CSV file is written; found out where it is not given."""
    client_weights: str | PerClient = "size"
    weight: str | None = None
    """Column with a survey weight for every record."""
    rounds: int | None = None
    mode: Mode | None = None
    local_level: LocalLevel = "global"
    one_distribution: bool = False
    not_private: bool = False
    allow_weak: bool = False
    spend_again: bool = False
    new_people: bool = False
    max_epsilon: float | None = None
    ledger: str | Path | None = None
    save: str | Path | None = None
    new_run: bool = False
    person_key: str | Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in fields(self):
            if field.type is bool and not isinstance(given := getattr(self, field.name), bool):
                raise InputError(f"{field.name} must be True or False; got {short(given)}.")
        self._check_groups()
        for option in ("q", "epsilon", "client_weights"):
            given = getattr(self, option)
            if isinstance(given, Mapping):
                object.__setattr__(self, option, by_client_name(option, given))
        self._drop_left_out()
        levels = list(self.q.values()) if isinstance(self.q, Mapping) else list(self.levels)
        for level in levels:
            check_level(level)
        if self.epsilon is None and not self.not_private:
            raise InputError(WHAT_EPSILON_IS)
        if self.epsilon is not None and self.not_private:
            raise InputError("epsilon and not_private exclude each other: give one of them.")
        budgets = self.epsilon.values() if isinstance(self.epsilon, Mapping) else [self.epsilon]
        for budget in budgets:
            if budget is not None:
                self._check_epsilon(budget)
        self.working_scale  # noqa: B018  a wrong range is refused here
        if (
            self.save is not None
            and self.ledger is not None
            and Path(self.save).absolute() == Path(self.ledger).absolute()
        ):
            raise InputError(f"save and ledger must be two files; both are {str(self.save)!r}.")
        if isinstance(self.client_weights, str) and self.client_weights not in WEIGHTINGS:
            raise InputError(
                f"client_weights must be size, equal, precision or one number per client; got "
                f"{self.client_weights!r:.60}."
            )
        if self.client_weights == "precision" and not self.one_distribution:
            raise InputError(
                "precision weights estimate another quantile wherever the clients' distributions differ. If you know "
                "that all clients share one distribution, state it: one_distribution=True. "
                "Otherwise take size or equal."
            )
        if self.client_weights == "precision" and self.weight is not None:
            raise InputError("precision weights and survey weights exclude each other: leave out one of them.")

    def _check_groups(self) -> None:
        """Conditions and groups: names in the form in which they are compared, no column twice."""
        if isinstance(self.only, Mapping):
            conditions = {str(column): client_name(str(entry)) for column, entry in self.only.items()}
            object.__setattr__(self, "only", conditions)
        elif self.only is not None:
            object.__setattr__(self, "only", client_name(self.only))
        by = self.by_columns
        for column in by:
            if by.count(column) > 1 or column == self.client or column in self.conditions:
                raise InputError(
                    f"by names column {column!r}, which is named by by, client or only as well. Groups come from "
                    "columns of their own; for one group alone take only."
                )
        if by and isinstance(self.only, str):
            raise InputError("by with only: give the condition with its column, only={'COLUMN': 'ENTRY'}.")
        if by and isinstance(self.q, Mapping):
            raise InputError("by takes the same levels for all groups; got one level per client.")

    def _drop_left_out(self) -> None:
        """Whoever is left out needs no number of its own; weights of the others keep their proportions."""
        given = (self.leave_out,) if isinstance(self.leave_out, str) else self.leave_out
        names = tuple(dict.fromkeys(map(client_name, given)))
        object.__setattr__(self, "leave_out", names)
        for option in ("q", "epsilon", "client_weights"):
            numbers = getattr(self, option)
            if isinstance(numbers, Mapping) and not numbers.keys().isdisjoint(names):
                left = {name: number for name, number in numbers.items() if name not in names}
                if option == "client_weights":
                    total = math.fsum(left.values())
                    left = {name: number / total for name, number in left.items()}
                object.__setattr__(self, option, left)

    @property
    def conditions(self) -> Mapping[str, str]:
        """By column, the entries that a record must have to be asked."""
        return self.only if isinstance(self.only, Mapping) else {}

    @property
    def by_columns(self) -> tuple[str, ...]:
        """The columns whose entries are the groups; none without groups."""
        return (self.by,) if isinstance(self.by, str) else self.by or ()

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns that divide the records beside the client's."""
        return (*self.by_columns, *self.conditions)

    @property
    def value_in_words(self) -> str:
        """What the numbers are, and of whom.

        >>> Options(epsilon=1, range=(0, 9), value="pay", only={"sex": "f", "region": "north"}).value_in_words
        'pay at north, f'
        >>> Options(epsilon=1, range=(0, 9), value="pay", leave_out="south").value_in_words
        'pay without south'
        """
        only = self.only
        if isinstance(only, Mapping):
            only = ", ".join(only[column] for column in sorted(only))
        without = f" without {listed(self.leave_out)}" if self.leave_out else ""
        return (self.value or "the value") + (f" at {only}" if only else "") + without

    def _check_epsilon(self, budget: float) -> None:
        RandomizedResponse.from_epsilon(budget)
        if budget > WEAK_EPSILON and not self.allow_weak:
            raise InputError(
                f"epsilon {budget:g} protects next to nothing: above {WEAK_EPSILON:g} (up to {LARGEST_EPSILON:g}) it "
                "must be asked for with allow_weak=True."
            )

    @property
    def levels(self) -> tuple[float, ...]:
        """The run's levels; with levels of the clients' own, their mean is computed once the weights are known."""
        if isinstance(self.q, Mapping):
            return ()
        if isinstance(self.q, str):
            if self.q != "curve":
                raise InputError(f"q must be a level, several levels or 'curve'; got {self.q!r:.60}.")
            return CURVE
        return tuple(float(level) for level in self.q) if isinstance(self.q, Sequence) else (float(self.q),)

    @property
    def working_scale(self) -> Scale:
        """The scale over the stated range."""
        if self.range is None:
            raise InputError(
                "range is missing: state where the quantile can lie, in units of the data: range=(LOW, HIGH). It must "
                "not be read off the data; a generous guess costs little, and scale='log' suits ranges over decades."
            )
        if len(tuple(self.range)) != 2:
            raise InputError(f"range must be two numbers, low and high; got {len(tuple(self.range))}.")
        return make_scale(self.scale, *self.range)

    def mechanism(self, client: str) -> RandomizedResponse:
        """A client's randomized response."""
        if self.not_private:
            return RandomizedResponse.not_private()
        if isinstance(self.epsilon, Mapping):
            return RandomizedResponse.from_epsilon(self.epsilon[client])
        return RandomizedResponse.from_epsilon(cast(float, self.epsilon))

    def check_clients(self, names: Sequence[str], options: Sequence[str] = ("epsilon", "q", "client_weights")) -> None:
        """Options given by client must name each client once, and no other."""
        for option in options:
            given = getattr(self, option)
            if isinstance(given, Mapping):
                for name in given:
                    if name not in names:
                        raise InputError(f"{option} names {name!r}, which is no client. The clients: {listed(names)}.")
                for name in names:
                    if name not in given:
                        raise InputError(f"{option} is missing for client {name!r}. Give one for every client.")

    def weights_of(self, records: Mapping[str, float]) -> dict[str, float]:
        """Weights that sum to one, by client; `records` are those that may be asked, or the sums of their weights.

        They follow from sizes, budgets and options alone, never from an answer or from who is silent.
        """
        if isinstance(self.client_weights, Mapping):
            return shares({name: float(self.client_weights[name]) for name in records})
        parts = (
            dict.fromkeys(records, 1.0) if self.client_weights == "equal" else {k: float(n) for k, n in records.items()}
        )
        if self.client_weights == "precision":
            # p ∝ n/σ², σ² ≈ 1/(4r²) whatever the data (Theorem 3.1's variance at rank ½).
            parts = {name: count * self.mechanism(name).truth_rate ** 2 for name, count in records.items()}
        total = math.fsum(parts.values())
        return {name: part / total for name, part in parts.items()}

    @property
    def report_options(self) -> dict[str, Any]:
        """The options that a run's specification takes as they are."""
        return {field.name: getattr(self, field.name) for field in fields(ReportOptions)}

    @property
    def weighting(self) -> str:
        """How the weights were chosen, in one word."""
        return self.client_weights if isinstance(self.client_weights, str) else "given"


WEIGHTINGS = ("size", "equal", "precision")


def read_weights(given: str, folder: Path = Path()) -> str | dict[str, float]:
    """A way of weighting by name, or a file in `folder` with one weight per client (TOML, or CSV with a header)."""
    if given in WEIGHTINGS:
        return given
    path = folder / given
    kinds = "size, equal, precision, or a file with one weight per client (TOML: client = weight; CSV: client,weight)"
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        is_file = False
    if not is_file:
        raise InputError(f"client_weights takes {kinds}; {given!r:.60} is none of these.")
    if path.suffix == ".toml":
        document = read_toml(path)
        return document.finish(cast(dict[str, float], document.value(document.table, dict[str, float])))
    rows = list(csv.DictReader(io.StringIO(read_text(path))))
    try:
        weights = {str(row["client"]): float(row["weight"]) for row in rows}
    except (KeyError, TypeError, ValueError):
        raise InputError(f"the weights file {path} cannot be read. client_weights takes {kinds}.") from None
    if len(weights) < len(rows):
        raise InputError(f"the weights file {path} names a client more than once.")
    return weights


ON_THE_COMMAND_LINE = (
    "yes",
    "keep",
    "json",
    "dry_run",
    "explain",
    "dashboard",
    "dashboard_at",
    "dashboard_tls",
    "database_url_env",
    "database_url_file",
)
"""How a result is shown: not part of the options of an estimate."""


def read_options(path: Path, *, needs_data: bool = True) -> tuple[Path | None, dict[str, Any]]:
    """A TOML file with every option; `data` names the file, relative to the TOML's own folder.

    A database by its address takes the place of `data`; then there is none (`needs_data`).

    All that is wrong with it is said at once.
    """
    document = read_toml(path)
    content = dict(document.table)
    data = content.pop("data", None)
    if not isinstance(data, str) and (needs_data or data is not None):
        document.add(("data",), 'must name a file: data = "salaries.csv".')
    elif data is not None and is_address(data):
        document.add(("data",), "must name a file; a database's address goes into a file: --database-url-file FILE.")
    hints = get_type_hints(Options)
    for key, given in content.items():
        if key in ON_THE_COMMAND_LINE:
            option = key.replace("_", "-")
            document.add((key,), f"goes on the command line: privatile estimate {path} --{option}.")
        elif gone := removed("estimate", key):
            document.add((key,), gone)
        elif key not in hints:
            document.unknown((key,), hints)
        else:
            document.value(given, hints[key], (key,))
    document.finish()
    for key in ("range", "q", "by", "leave_out"):
        if isinstance(content.get(key), list):
            content[key] = tuple(content[key])
    for key in ("ledger", "save", "person_key"):
        if key in content:
            content[key] = path.parent / content[key]
    if isinstance(content.get("client_weights"), str):
        content["client_weights"] = read_weights(content["client_weights"], path.parent)
    return None if data is None else path.parent / str(data), content
