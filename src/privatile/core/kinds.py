"""Kinds of values that a user gives: each states one rule, for the command line, TOML files and Python alike.

    field of a dataclass ──▶ kind.checked(value)     Python and TOML: the rule
                         └─▶ kind.parsed(words)      command line: words to a value, which is then checked like the rest

An error has two parts. The rule ("must lie between 0 and 1; got 2") comes from the kind. The name comes from the edge:
`q` in Python, `line 3, q` in a file, `--q` on the command line. This module imports neither numpy nor scipy, because
every `--help` reads it.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from privatile.core.scale import SCALES, check_range
from privatile.core.text import by_client_name, client_name, short
from privatile.errors import InputError, OptionError

STRONGEST_EPSILON = 1e-6
"""Below this the truth rate is so small that no realistic sample gives an answer."""

WEAK_EPSILON = 10.0
"""Above this 99.995% of the reports are true: the command asks for `--allow-weak`."""

LARGEST_EPSILON = 40.0
"""Above this 64 bits cannot hold the ratio: ask for no privacy by name instead."""

MAX_ROUNDS = 5_000_000
"""Rounds, or counts, of one run."""

Normalizer = Literal["l2", "l1", "sup"]
Target = Literal["population", "file"]
IntervalName = Literal["default", "any-shape", "smooth", "self-normalized", "paper"]


class Kind:
    """A kind of value. `several`: its option may be repeated; `arity`: words that one option takes, 0 for a flag."""

    metavar: str
    several = False
    arity = 1

    def checked(self, value: Any) -> Any:
        """The value in the form in which it is kept; an InputError that begins with the rule where it breaks it."""
        raise NotImplementedError

    def parsed(self, words: Sequence[str]) -> Any:
        """The value that words of a command line stand for."""
        return words[-1]

    def placed(self, value: Any, folder: Path) -> Any:
        """The value of a file in `folder`: a path is relative to it."""
        return value


def checked(name: str, kind: Kind, value: Any) -> Any:
    """A value of a kind, as `kind.checked`; the error names it.

    >>> checked("q", LEVEL, 2)
    Traceback (most recent call last):
    ...
    privatile.errors.OptionError: q must lie inside (0, 1); got 2. The median is 0.5.
    """
    try:
        return kind.checked(value)
    except OptionError as error:
        raise OptionError(name, error.rule) from None
    except InputError as error:
        raise OptionError(name, str(error)) from None


@dataclass(frozen=True)
class Number(Kind):
    """A finite number, with its rule in words."""

    metavar: str
    holds: Callable[[float], bool]
    rule: str
    advice: str = ""

    def checked(self, value: Any) -> float:
        """As a float; booleans and texts are none."""
        given = _plain_number(value)
        if not (math.isfinite(given) and self.holds(given)):
            raise InputError(f"{self.rule}; got {short(value)}.{self.advice and ' '}{self.advice}")
        return given

    def parsed(self, words: Sequence[str]) -> float:
        """The number in the last word."""
        return number(words[-1])


def _plain_number(value: Any) -> float:
    """A number, of another library (numpy's) too, as Python's own; infinity where no float is so large."""
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__") or getattr(value, "shape", None):
        raise InputError(f"must be a number; got {short(value)}.")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def number(word: str) -> float:
    """The number that a word of the command line is.

    >>> number("0,5")
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: takes a number; got '0,5'. Write a point before decimals and no commas; give several \
numbers one by one.
    """
    try:
        return float(word)
    except ValueError:
        commas = " Write a point before decimals and no commas; give several numbers one by one."
        raise InputError(f"takes a number; got {short(word)}.{commas if ',' in word else ''}") from None


@dataclass(frozen=True)
class WholeNumber(Kind):
    """A whole number between two others."""

    metavar: str
    low: int
    high: int

    def checked(self, value: Any) -> int:
        """As an int; a float is none, also if it has no decimals."""
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise InputError(f"must be a whole number; got {short(value)}.")
        if not self.low <= value <= self.high:
            raise InputError(f"must lie in {self.low:,} to {self.high:,}; got {short(value)}.")
        return int(value)

    def parsed(self, words: Sequence[str]) -> int | str:
        """The whole number in the last word; a word that is none is left to the check."""
        return int(words[-1]) if re.fullmatch(r"[+-]?[0-9]{1,300}", words[-1]) else words[-1]


class Choice(Kind):
    """One of several words."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.metavar = f"[{'|'.join(words)}]"

    def checked(self, value: Any) -> str:
        """The word."""
        if not isinstance(value, str) or value not in self.words:
            raise InputError(f"must be one of {', '.join(self.words)}; got {short(value)}.")
        return value


@dataclass(frozen=True)
class Text(Kind):
    """A word or a column's name."""

    metavar: str

    def checked(self, value: Any) -> str:
        """The text; the error does not repeat what is none."""
        if not isinstance(value, str):
            raise InputError(f"must be a text; got a value of type {type(value).__name__}.")
        return value


@dataclass(frozen=True)
class FilePath(Kind):
    """A path."""

    metavar: str = "FILE"

    def checked(self, value: Any) -> Path:
        """As a `Path`."""
        if not isinstance(value, str | Path):
            raise InputError(f"must be a path; got a value of type {type(value).__name__}.")
        return Path(value)

    def placed(self, value: Any, folder: Path) -> Any:
        """Relative to the folder."""
        return folder / value if isinstance(value, str) else value


class Flag(Kind):
    """Yes or no."""

    metavar, arity = "", 0

    def checked(self, value: Any) -> bool:
        """A bool, and nothing that only counts as one."""
        if not isinstance(value, bool):
            raise InputError(f"must be true or false; got {short(value)}.")
        return value


@dataclass(frozen=True)
class Each(Kind):
    """Any number of values; a single one needs no list."""

    of: Kind
    several = True

    @property
    def metavar(self) -> str:  # type: ignore[override]
        """That of one of them."""
        return self.of.metavar

    def checked(self, value: Any) -> tuple[Any, ...]:
        """All of them, each checked."""
        listed = value if isinstance(value, list | tuple) else (value,)
        return tuple(self.of.checked(one) for one in listed)

    def parsed(self, words: Sequence[str]) -> list[Any]:
        """One value for each word."""
        return [self.of.parsed((word,)) for word in words]


@dataclass(frozen=True)
class PerClient(Kind):
    """One number for all clients, or one for each by name; on the command line NUMBER, or CLIENT=NUMBER repeated."""

    of: Kind
    metavar = "NUMBER or CLIENT=NUMBER"
    several = True

    def checked(self, value: Any) -> Any:
        """The number, or the numbers under the clients' names in the form in which names are compared."""
        if not isinstance(value, Mapping):
            return self.of.checked(value)
        return {name: self.of.checked(one) for name, one in by_client_name(value).items()}

    def parsed(self, words: Sequence[str]) -> Any:
        """One number, or a number by client."""
        for_all, by_client = numbers_by_client(words)
        if for_all and by_client:
            raise InputError("takes one number for all or CLIENT=NUMBER for each, not both.")
        return by_client or one_for_all(for_all)


def numbers_by_client(words: Sequence[str]) -> tuple[tuple[float, ...], dict[str, float]]:
    """All values of a repeated option: those written `NUMBER`, and those written `CLIENT=NUMBER`.

    >>> numbers_by_client(["1", "north=0.5"])
    ((1.0,), {'north': 0.5})
    """
    for_all: list[float] = []
    by_client: dict[str, float] = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        if not equals:
            for_all.append(number(text))
        elif name in by_client:
            raise InputError(f"names client {name!r} more than once. Give each client one number.")
        else:
            by_client[name] = number(text)
    return tuple(for_all), by_client


def one_for_all(numbers: tuple[float, ...]) -> float | None:
    """The number for all clients, which may be given once at most."""
    if len(numbers) > 1:
        raise InputError(f"was given {len(numbers)} times. Give one for all, or CLIENT=NUMBER for each.")
    return numbers[0] if numbers else None


CURVE = tuple(step / 10 for step in range(1, 10))
"""Levels of a whole curve. Each gets a ninth of the records: three times the width of one level by itself."""


class Levels(PerClient):
    """One level, several, one for each client, or the word curve."""

    def checked(self, value: Any) -> Any:
        """A level, a tuple of levels, levels by client, or "curve"."""
        if isinstance(value, str):
            if value != "curve":
                raise InputError(f"must be a level, several levels or 'curve'; got {short(value)}.")
            return value
        if isinstance(value, Sequence):
            return tuple(self.of.checked(one) for one in value)
        return super().checked(value)

    def parsed(self, words: Sequence[str]) -> Any:
        """Several numbers are several levels."""
        if tuple(words) == ("curve",):
            return "curve"
        for_all, by_client = numbers_by_client(words)
        return for_all if len(for_all) > 1 and not by_client else super().parsed(words)


class Interval(Kind):
    """Two numbers, the lower first."""

    metavar, arity = "LOW HIGH", 2

    def checked(self, value: Any) -> tuple[float, float]:
        """Both as floats."""
        if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != 2:
            raise InputError(f"must be two numbers, low and high; got {short(value)}. Write (LOW, HIGH).")
        low, high = map(_plain_number, value)
        check_range(low, high)
        return low, high

    def parsed(self, words: Sequence[str]) -> tuple[float, ...]:
        """Both words as numbers."""
        if len(words) == 1 or any("," in word for word in words):
            raise InputError(f"takes two numbers apart by a blank, low and high; got {' '.join(words)!r:.60}.")
        return tuple(number(word) for word in words)


class Conditions(Kind):
    """One client by its name, or entries by their column, all of which must hold."""

    metavar, several = "CLIENT|COLUMN=VALUE", True

    def checked(self, value: Any) -> str | dict[str, str]:
        """Names in the form in which they are compared."""
        if isinstance(value, Mapping):
            return {str(column): client_name(str(entry)) for column, entry in value.items()}
        return client_name(TEXT.checked(value))

    def parsed(self, words: Sequence[str]) -> str | dict[str, str]:
        """One name, or entries by column.

        >>> Conditions().parsed(["north"]), Conditions().parsed(["region=north", "sex=f"])
        ('north', {'region': 'north', 'sex': 'f'})
        """
        if len(words) == 1 and "=" not in words[0]:
            return words[0]
        found: dict[str, str] = {}
        for text in words:
            column, equals, entry = text.partition("=")
            if not equals:
                raise InputError(f"names {short(text)} beside other conditions: write each as COLUMN=VALUE.")
            if column in found:
                raise InputError(
                    f"names column {column!r} more than once, and a record has one entry in it. For several groups "
                    f"take by={column!r}."
                )
            found[column] = entry
        return found


STEP = re.compile(r"step=([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)")


class Declaration(NamedTuple):
    """What a user declares about the values, from outside knowledge. It is never inferred from the records: that would
    be a release that nobody has paid for."""

    continuous: bool
    """Values are continuous and their distribution is smooth around the quantile."""
    step: float | None
    """Every value is a multiple of this; none: nothing is declared about that."""

    @property
    def may_be_smooth(self) -> bool:
        """Whether a smooth interval may be shown: a grid says that its condition is false.

        >>> [declaration(text).may_be_smooth for text in ("any", "continuous", "whole")]
        [True, True, False]
        """
        return self.step is None

    @property
    def grid_in_words(self) -> str:
        """What a declared grid says of every value; empty without one.

        >>> declaration("whole").grid_in_words, declaration("step=0.5").grid_in_words
        ('a whole number', 'a multiple of 0.5')
        """
        if self.step is None:
            return ""
        return "a whole number" if self.step == 1.0 else f"a multiple of {self.step:,.10g}"


def declaration(text: object) -> Declaration:
    """What `value_kind` declares; anything else is refused.

    >>> declaration("any"), declaration("step=1000").step, declaration("whole").step
    (Declaration(continuous=False, step=None), 1000.0, 1.0)
    >>> declaration("step=0")
    Traceback (most recent call last):
    ...
    privatile.errors.OptionError: value_kind must be any, continuous, whole or step=NUMBER with a positive number, \
such as step=1000; got 'step=0'.
    """
    if isinstance(text, str):
        if text in ("any", "continuous"):
            return Declaration(text == "continuous", None)
        found = STEP.fullmatch(text)
        step = 1.0 if text == "whole" else float(found[1]) if found else 0.0
        if 0.0 < step < math.inf:
            return Declaration(False, step)
    rule = "must be any, continuous, whole or step=NUMBER with a positive number, such as step=1000"
    raise OptionError("value_kind", f"{rule}; got {short(text)}.")


class ValueKind(Kind):
    """A declaration about the values, as a word."""

    metavar = "KIND"

    def checked(self, value: Any) -> str:
        """The word, which stands for a declaration."""
        declaration(value)
        return str(value)


TEXT = Text("TEXT")
FLAG = Flag()
LEVEL = Number("LEVEL", lambda level: 0.0 < level < 1.0, "must lie inside (0, 1)", "The median is 0.5.")
EPSILON = Number(
    "EPSILON",
    lambda epsilon: STRONGEST_EPSILON <= epsilon <= LARGEST_EPSILON,
    f"must lie in [{STRONGEST_EPSILON:g}, {LARGEST_EPSILON:g}]",
    "Smaller is more private; 1 is a common choice, 0.5 to 2 the usual range.",
)
CONFIDENCE = Number(
    "LEVEL",
    lambda level: 0.0 < level <= 1.0 - 1e-12,
    "must lie strictly between 0 and 1, and be at most 1 - 1e-12",
    "Write 95% as 0.95.",
)
SCALE = Choice("linear", "log", "logit", "identity")
POSITIVE = Number("NUMBER", lambda one: one > 0.0, "must be a positive number")
WIDTH = Number("WIDTH", lambda width: width > 0.0, "must be a positive width, in units of the data")
DITHER = Number("WIDTH", lambda width: width >= 0.0, "must be a width of 0 or more, in units of the data")
ROUNDS = WholeNumber("N", 1, MAX_ROUNDS)
assert set(SCALE.words) == set(SCALES)


@dataclass(frozen=True)
class Option:
    """What is known of an option besides its name and its default: its kind, and how help shows it."""

    kind: Kind
    group: str
    help: str
    common: bool = False
    """Whether short help shows it."""
    short: str = ""
    """Its one-letter form."""
    metavar: str = ""
    """In place of the kind's own."""


def option(default: Any, kind: Kind, group: str, help: str, **shown: Any) -> Any:
    """A field of a dataclass that is an option; `shown` is what else `Option` holds."""
    return field(default=default, metadata={"option": Option(kind, group, help, **shown)})


def options_of(holder: Any) -> dict[str, Option]:
    """The options of a dataclass by name, in order."""
    return {one.name: one.metadata["option"] for one in fields(holder) if "option" in one.metadata}


def check_options(holder: Any) -> None:
    """Check every option of a frozen dataclass that is not at its default, and keep it in its one form."""
    for one in fields(holder):
        given = getattr(holder, one.name)
        if "option" in one.metadata and given is not one.default:
            object.__setattr__(holder, one.name, checked(one.name, one.metadata["option"].kind, given))
