"""The options of an estimate, each declared once: flag, TOML field, Python keyword, check and help.

One frozen value, checked when it is made, before any record is read.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from privatile.core.decoding import read_text, read_toml
from privatile.core.kinds import (
    CURVE,
    EPSILON,
    FLAG,
    LARGEST_EPSILON,
    LEVEL,
    POSITIVE,
    ROUNDS,
    SCALE,
    WEAK_EPSILON,
    Choice,
    Conditions,
    Each,
    FilePath,
    Interval,
    Kind,
    Levels,
    Number,
    PerClient,
    Text,
    option,
    options_of,
)
from privatile.core.report_options import ReportOptions
from privatile.core.scale import Scale, make_scale
from privatile.core.text import client_name, is_address, listed, removed, short
from privatile.errors import InputError, OptionError

if TYPE_CHECKING:
    from privatile.core.mechanism import RandomizedResponse
    from privatile.estimator.plan import LocalLevel
    from privatile.estimator.schedule import Mode

ByClient = Mapping[str, float]

WHAT_EPSILON_IS = """is missing: it is yours to choose, there is no default.
  epsilon bounds what anyone can learn about one person from their one randomized bit: seeing it changes the odds of
  any guess about them by at most a factor e^epsilon.
    0.5   strong: 62% of the answers are true, odds change by at most 1.65
    1     common: 73%, 2.7
    2     moderate: 88%, 7.4
    4     weak: 98%, 55
  Smaller protects more and needs more records: half the epsilon, about four times the people for the same interval.
  Give one for all (epsilon=1) or one per client (epsilon={'north': 1, 'south': 0.5})."""

WEIGHTINGS = ("size", "equal", "precision")


class ClientWeights(PerClient):
    """A way of weighting by name, a file with one weight per client, or a weight for each."""

    metavar = "size|equal|precision|FILE|CLIENT=NUMBER"

    def checked(self, value: Any) -> Any:
        """The name of a way, or weights by client, those of a file among them."""
        if isinstance(value, str | Path):
            return value if value in WEIGHTINGS else super().checked(read_weights(Path(value)))
        if not isinstance(value, Mapping):
            raise InputError(f"must be size, equal, precision, a file or one number per client; got {short(value)}.")
        return super().checked(value)

    def parsed(self, words: Sequence[str]) -> Any:
        """A name, a file's path, or CLIENT=NUMBER for each."""
        return words[0] if len(words) == 1 and "=" not in words[0] else super().parsed(words)

    def placed(self, value: Any, folder: Path) -> Any:
        """A file lies beside the one that names it."""
        return folder / value if isinstance(value, str) and value not in WEIGHTINGS else value


def read_weights(path: Path) -> Mapping[str, float]:
    """One weight per client, from TOML, or CSV with a header."""
    kinds = "size, equal, precision, or a file with one weight per client (TOML: client = weight; CSV: client,weight)"
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        is_file = False
    if not is_file:
        raise InputError(f"takes {kinds}; {path.name!r:.60} is none of these.")
    if path.suffix == ".toml":
        document = read_toml(path)
        return document.finish(cast(dict[str, float], document.value(document.table, dict[str, float])))
    rows = list(csv.DictReader(io.StringIO(read_text(path))))
    try:
        weights = {str(row["client"]): float(row["weight"]) for row in rows}
    except (KeyError, TypeError, ValueError):
        raise InputError(f"takes {kinds}; the file {path} cannot be read.") from None
    if len(weights) < len(rows):
        raise InputError(f"takes one weight for each client; the file {path} names one more than once.")
    return weights


@dataclass(frozen=True, kw_only=True)
class Options(ReportOptions):
    """Everything that a user may choose about an estimate. What concerns one option is checked by its kind."""

    value: str | None = option(None, Text("COLUMN"), "Data", "Column with the numbers.", common=True)
    client: str | None = option(
        None, Text("COLUMN"), "Data", "Column that says who holds a record. Without it: one client, 'all'.", common=True
    )
    only: str | Mapping[str, str] | None = option(
        None,
        Conditions(),
        "Data",
        "Ask only this client's records, or only those with this entry in a column. Repeated: both must hold.",
    )
    leave_out: str | tuple[str, ...] = option(
        (),
        Each(Text("CLIENT")),
        "Data",
        "Do not ask this client; the quantile is then that of the others. As often as needed.",
    )
    by: str | tuple[str, ...] | None = option(
        None,
        Each(Text("COLUMN")),
        "Data",
        "An estimate for every group: each entry of this column is one. Repeated: every combination.",
        common=True,
    )
    person: str | None = option(
        None,
        Text("COLUMN"),
        "Privacy",
        "Column that says whose record it is. The budget is then per person, for life; several records of one person "
        "are reduced to one at random.",
    )
    q: float | tuple[float, ...] | ByClient | Literal["curve"] = option(
        0.5,
        Levels(LEVEL),
        "Question",
        "Level: 0.5 is the median (the default). Several, or curve for 0.1 … 0.9; a record answers about one.",
        common=True,
        short="-q",
    )
    epsilon: float | ByClient | None = option(
        None,
        PerClient(EPSILON),
        "Privacy",
        "Privacy budget of one record: the odds of any guess about it change by at most e^epsilon. No default.",
        common=True,
    )
    range: tuple[float, float] | None = option(
        None,
        Interval(),
        "Question",
        "Where the quantile can lie, in the data's units. State it from outside knowledge, not from the data.",
        common=True,
    )
    scale: str = option(
        "linear",
        SCALE,
        "Question",
        "Working scale (linear). log: on the logarithm, for positive values over decades.",
        common=True,
    )
    client_weights: str | ByClient = option(
        "size",
        ClientWeights(POSITIVE),
        "Question",
        "Weight of each client: its number of records (size, the default), so that the answer is the quantile of all "
        "records together; all alike (equal); a file; or a number for each.",
    )
    weight: str | None = option(
        None,
        Text("COLUMN"),
        "Question",
        "Column with the survey weight of every record: the quantile is then the weighted one. Weights, and how many "
        "records have which, are not protected.",
    )
    one_distribution: bool = option(
        False, FLAG, "Expert", "You know that all clients share one distribution: allows --client-weights precision."
    )
    rounds: int | None = option(
        None, ROUNDS, "Expert", "Number of rounds; more rounds than the smallest client has records are refused."
    )
    mode: "Mode | None" = option(
        None,
        Choice("cohort", "local"),
        "Expert",
        "cohort: all records of a round answer about the same q. local: each client moves its own q inside a round "
        "(Algorithm 1).",
    )
    local_level: "LocalLevel" = option("global", Choice("global", "own"), "Expert", "Level clients step with (global).")
    ledger: str | Path | None = option(
        None,
        FilePath(),
        "Ledger",
        "Who has answered what. One for all your runs, in your state folder, unless given.",
        common=True,
    )
    person_key: str | Path | None = option(
        None,
        FilePath(),
        "Ledger",
        "Key that hashes people; apart from the ledger, in your config folder, unless given.",
    )
    save: str | Path | None = option(
        None,
        FilePath("RUN.DB"),
        "Output",
        "Keep the run, its questions and counts, for report, compare and status. Without it a result is printed once. "
        "With --by it is a folder with a file for every group.",
        common=True,
    )
    spend_again: bool = option(
        False, FLAG, "Ledger", "Let records that have answered answer again; the ledger adds up what they spend."
    )
    new_run: bool = option(
        False,
        FLAG,
        "Ledger",
        "Give up an unfinished run of the same command and begin again with the records it has not asked.",
    )
    new_people: bool = option(
        False,
        FLAG,
        "Ledger",
        "None of the people in this file is in any other data set of the ledger. Taken on your word: a re-sorted or "
        "corrected export of the same people is then not recognised, and they answer again.",
    )
    max_epsilon: float | None = option(
        None,
        Number("TOTAL", lambda total: total > 0.0, "must be a positive number", "Leave it out if there is no limit."),
        "Ledger",
        "Most that one person may spend for life; kept in the ledger for all later runs, until another is given. Two "
        "runs over different columns without --person count twice: whose records they are is not known.",
    )
    allow_weak: bool = option(False, FLAG, "Privacy", "Accept an epsilon above 10.")
    not_private: bool = option(False, FLAG, "Privacy", "No privacy at all: every record tells the truth.")
    sql: str | None = option(
        None,
        Text("QUERY"),
        "Data",
        "Rows of a database, as a SELECT with ORDER BY: of an SQLite or DuckDB file, or of a database by its address.",
    )
    delimiter: str | None = option(
        None,
        Text("SIGN"),
        "Data",
        "Between the columns of a CSV file: comma, semicolon, tab, pipe or any sign. Found out unless given.",
    )
    decimal: str | None = option(
        None, Text("point|comma"), "Data", "Before the decimals of its numbers. Found out unless given, or refused."
    )
    thousands: str | None = option(
        None,
        Text("MARK"),
        "Data",
        "Between their thousands: point, comma, space, apostrophe or none. Unless given: comma with decimal points, "
        "point with decimal commas.",
    )
    unit: str | None = option(None, Text("TEXT"), "Data", "Beside its numbers, before or after: € or USD or kg.")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_groups()
        self._drop_left_out()
        if self.epsilon is None and not self.not_private:
            raise OptionError("epsilon", WHAT_EPSILON_IS)
        if self.epsilon is not None and self.not_private:
            raise InputError("epsilon and not_private exclude each other: give one of them.")
        for budget in self.epsilon.values() if isinstance(self.epsilon, Mapping) else (self.epsilon or 0.0,):
            if budget > WEAK_EPSILON and not self.allow_weak:
                raise InputError(
                    f"epsilon {budget:g} protects next to nothing: above {WEAK_EPSILON:g} (up to {LARGEST_EPSILON:g}) "
                    "it must be asked for with allow_weak=True."
                )
        self.working_scale  # noqa: B018  a wrong range is refused here
        if (
            None not in (self.save, self.ledger)
            and Path(self.save or "").absolute() == Path(self.ledger or "").absolute()
        ):
            raise InputError(f"save and ledger must be two files; both are {str(self.save)!r}.")
        if self.client_weights == "precision" and not self.one_distribution:
            raise InputError(
                "precision weights estimate another quantile wherever the clients' distributions differ. If you know "
                "that all clients share one distribution, state it: one_distribution=True. "
                "Otherwise take size or equal."
            )
        if self.client_weights == "precision" and self.weight is not None:
            raise InputError("precision weights and survey weights exclude each other: leave out one of them.")

    def _check_groups(self) -> None:
        """No column twice among those that divide the records."""
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
        """Who is left out needs no number of its own; weights of the others keep their proportions."""
        names = tuple(dict.fromkeys(map(client_name, self.leave_out)))
        object.__setattr__(self, "leave_out", names)
        for name in ("q", "epsilon", "client_weights"):
            numbers = getattr(self, name)
            if isinstance(numbers, Mapping) and not numbers.keys().isdisjoint(names):
                left = {client: number for client, number in numbers.items() if client not in names}
                if name == "client_weights":
                    total = math.fsum(left.values())
                    left = {client: number / total for client, number in left.items()}
                object.__setattr__(self, name, left)

    @property
    def conditions(self) -> Mapping[str, str]:
        """By column, the entries that a record must have to be asked."""
        return self.only if isinstance(self.only, Mapping) else {}

    @property
    def by_columns(self) -> tuple[str, ...]:
        """The columns whose entries are the groups; none without groups."""
        return cast(tuple[str, ...], self.by or ())

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
        without = f" without {listed(cast(tuple[str, ...], self.leave_out))}" if self.leave_out else ""
        return (self.value or "the value") + (f" at {only}" if only else "") + without

    @property
    def levels(self) -> tuple[float, ...]:
        """The run's levels; with levels of the clients' own, their mean is computed once the weights are known."""
        if isinstance(self.q, Mapping):
            return ()
        if isinstance(self.q, str):
            return CURVE
        return self.q if isinstance(self.q, tuple) else (self.q,)

    @property
    def working_scale(self) -> Scale:
        """The scale over the stated range."""
        if self.range is None:
            raise OptionError(
                "range",
                "is missing: state where the quantile can lie, in units of the data: range=(LOW, HIGH). It must "
                "not be read off the data; a generous guess costs little, and scale='log' suits ranges over decades.",
            )
        return make_scale(self.scale, *self.range)

    def mechanism(self, client: str) -> "RandomizedResponse":
        """A client's randomized response."""
        from privatile.core.mechanism import RandomizedResponse  # it needs numpy, and --help reads this module

        if self.not_private:
            return RandomizedResponse.not_private()
        budget = self.epsilon[client] if isinstance(self.epsilon, Mapping) else self.epsilon
        return RandomizedResponse.from_epsilon(cast(float, budget))

    def check_clients(self, names: Sequence[str], options: Sequence[str] = ("epsilon", "q", "client_weights")) -> None:
        """Options given by client must name each client once, and no other."""
        for name in options:
            given = getattr(self, name)
            if isinstance(given, Mapping):
                for client in given:
                    if client not in names:
                        rule = f"names {client!r}, which is no client. The clients: {listed(names)}."
                        raise OptionError(name, rule)
                for client in names:
                    if client not in given:
                        raise OptionError(name, f"is missing for client {client!r}. Give one for every client.")

    def weights_of(self, records: Mapping[str, float]) -> dict[str, float]:
        """Weights that sum to one, by client; `records` are those that may be asked, or the sums of their weights.

        They follow from sizes, budgets and options alone, never from an answer or from who is silent.
        """
        from privatile.estimator.clients import shares

        if isinstance(self.client_weights, Mapping):
            return shares({name: float(self.client_weights[name]) for name in records})
        parts = {name: 1.0 if self.client_weights == "equal" else float(count) for name, count in records.items()}
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


def _read(kind: Kind, given: Any, folder: Path) -> Any:
    return kind.checked(kind.placed(given, folder))


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
    known = options_of(Options)
    for key, given in content.items():
        if key in ON_THE_COMMAND_LINE:
            words = key.replace("_", "-")
            document.add((key,), f"goes on the command line: privatile estimate {path} --{words}.")
        elif gone := removed("estimate", key):
            document.add((key,), gone)
        elif key not in known:
            document.unknown((key,), known)
        else:
            read = partial(_read, known[key].kind, given, path.parent)
            content[key] = document.attempt((key,), read)
    document.finish()
    return None if data is None else path.parent / str(data), content
