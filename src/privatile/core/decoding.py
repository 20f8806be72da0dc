r"""Settings read from outside (TOML, JSON), checked against a dataclass: all errors at once, each with its line.

A field's type hint is its rule: a whole number is `int`, a choice is a `Literal`, a nested table is another dataclass,
`Annotated[float, Meta(gt=0, description="a positive number")]` adds a limit and its words. Rules between fields belong
in the dataclass's `__post_init__`; the `InputError` raised there is reported in the same way.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Limits:
    ...     max_epsilon: Annotated[float, Meta(gt=0, description="a positive number: the budget of one person")]
    ...     values: tuple[str, ...] = ()
    >>> document = parse_toml('max_epsilon = 1', "limits.toml")
    >>> document.finish(document.decode(Limits))
    Limits(max_epsilon=1.0, values=())
    >>> document = parse_toml('max_epsilon = true\nvalue = "wage"', "limits.toml")
    >>> document.finish(document.decode(Limits))
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: limits.toml has 2 errors:
      line 1, max_epsilon: must be a positive number: the budget of one person; got true or false.
      line 2, value: there is no such setting. Did you mean 'values'?

Where in a TOML text a value stands, so that an error can name its line.
"""

import dataclasses
import difflib
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from privatile.core.text import printable, removed
from privatile.errors import InputError, OptionError

Place = tuple[str | int, ...]
"""The keys and indices that lead to a value."""

# Each repeat can match in one way only: a line that does not fit is refused in one pass, however long it is.
_HEADER = re.compile(r"^\s*+(\[\[?)([^\[\]]++)\]\]?\s*+(#.*)?$")
_KEY = re.compile(r"""^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=""")
_NAME = re.compile(r""""([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+)""")
_QUOTED_OR_COMMENT = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'|#.*$""")


def line_numbers(text: str) -> dict[Place, int]:
    """The line of every table and key written on a line of its own.

    >>> line_numbers('seed = 1\\n[[grid]]\\nlevel = [\\n  0.5,\\n]\\n[[grid]]\\nlevel = 1')[("grid", 1, "level")]
    7
    """
    lines: dict[Place, int] = {}
    table: Place = ()
    counts: dict[Place, int] = {}
    depth = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if depth == 0 and (header := _HEADER.match(line)):
            table = _names(header.group(2))
            if header.group(1) == "[[":
                counts[table] = counts.get(table, -1) + 1
                lines.setdefault(table, number)
                table = (*table, counts[table])
            lines[table] = number
            continue
        if depth == 0 and (key := _KEY.match(line)):
            lines[table + _names(key.group(1))] = number
        bare = _QUOTED_OR_COMMENT.sub("", line)
        depth += sum(bare.count(mark) for mark in "[{") - sum(bare.count(mark) for mark in "]}")
    return lines


def _names(dotted: str) -> Place:
    return tuple(next(part for part in match.groups() if part is not None) for match in _NAME.finditer(dotted))


def nearest_line(lines: Mapping[Place, int], path: Place) -> int:
    """The line of a value, or of the closest thing around it that has one; 0 where nothing has."""
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return 0


T = TypeVar("T")

KINDS: dict[Any, tuple[str, str]] = {
    bool: ("true or false", "true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a finite number", "finite numbers"),
    str: ("a text", "texts"),
}
"""The words for a kind of value: one, several."""

LARGEST_WHOLE = (1 << 63) - 1
"""The largest whole number that is read: SQLite, numpy and every reader of the wire hold it. Larger ones are refused
before anything computes with them."""

DEEPEST = 30
"""Tables inside tables; no file of ours has more than five."""

LARGEST_FILE = 1 << 25
"""Bytes of a file that is read whole: a study of 100,000 clients has 10 MB."""

LONGEST_RULE = 1_000
"""Characters of one error: a rule may quote what breaks it, and that may be a whole file."""

MOST_ERRORS = 100
"""Errors that are looked into and shown; a file that has more is not a file with errors but another file."""

_PATH = re.compile(r"`(?:key` in `)?\$\.?([a-z_]+(?:\[(?:\d+|\.\.\.)\])*(?:\.[a-z_]+(?:\[(?:\d+|\.\.\.)\])*)*)`")


def broken_rule(error: msgspec.ValidationError, whole: str) -> str:
    """The rule that a text from outside breaks, as a printable sentence; `whole` names the text in it.

    A hostile text must not write its own words into a log, so a field that does not exist and a value that is none of
    the allowed ones are not quoted, and a place is named only where it consists of names of fields.

    >>> broken_rule(msgspec.ValidationError("Expected `int` >= 1 - at `$.asks[0].length[...]`"), "the body")
    'asks[0].length[...]: expected `int` >= 1.'
    >>> broken_rule(msgspec.ValidationError("Object contains unknown field `age`"), "the body")
    'the body has a field or a value that is not of this format.'
    """
    text = str(error)
    # These two quote the text, which may imitate the place that follows.
    if text.startswith(("Object contains", "Invalid")):
        return f"{whole} has a field or a value that is not of this format."
    rule, _, place = text.rpartition(" - at ")
    path = _PATH.fullmatch(place)
    if path is None and rule.startswith(("Expected", "Object missing")):
        where = whole
    elif path is None:
        where, rule = whole, text
    else:
        where = path[1]
    return printable(f"{where}: {rule[:1].lower()}{rule[1:].rstrip('.')}.")


def name_of(place: Place) -> str:
    """A place as people write it: `grid[1].level`."""
    return printable("".join(f"[{part + 1}]" if isinstance(part, int) else f".{part:.60}" for part in place)[1:])


class BrokenRules(InputError):
    """All rules that a value breaks, each with the place of what breaks it."""

    def __init__(self, rules: Sequence[tuple[Place, str]]) -> None:
        super().__init__("\n".join(f"{name_of(place)}: {rule}" if place else rule for place, rule in rules))
        self.rules = rules


class Document:
    """A table from outside, and what is wrong with it. Errors are collected; `finish` raises them together."""

    def __init__(
        self,
        table: Mapping[str, Any],
        source: str,
        lines: Mapping[Place, int] | None = None,
        *,
        show_values: bool = False,
    ) -> None:
        self.table = table
        self.source = source
        self.show_values = show_values
        """Whether an error may repeat the value it is about: only where a table can hold no secret and no record."""
        self.errors: list[tuple[int, str]] = []
        self._lines = lines or {}
        for place, rule in _unreadable(table):
            self.add(place, rule)
            self.finish()

    def add(self, place: Place, rule: str) -> None:
        """Note an error at a place: the keys and indices that lead to it, `("grid", 0, "level")`."""
        if len(self.errors) > MOST_ERRORS:
            return
        line = nearest_line(self._lines, place)
        text = ", ".join(part for part in (f"line {line}" if line else "", name_of(place)) if part)
        rule = rule if len(rule) <= LONGEST_RULE else f"{rule[:LONGEST_RULE]}…"
        self.errors.append((line, f"{text}: {rule}" if text else rule))

    def attempt(self, place: Place, make: Callable[[], T]) -> T | None:
        """What `make` returns; none, and its error noted, when it raises an `InputError`."""
        try:
            return make()
        except BrokenRules as error:
            for inner, rule in error.rules:
                self.add((*place, *inner), rule)
        except OptionError as error:
            self.add(place if error.name in place else (*place, error.name), error.rule)
        except InputError as error:
            for rule in str(error).splitlines():
                self.add(place, rule)
        return None

    def finish(self, value: T | None = None) -> T:
        """The value, unless an error was noted."""
        if self.errors:
            count = len(self.errors)
            words = "1 error" if count == 1 else f"{count} errors" if count <= MOST_ERRORS else "too many errors"
            texts = "\n".join(f"  {text}" for _, text in sorted(self.errors[:MOST_ERRORS], key=lambda error: error[0]))
            raise InputError(f"{self.source} has {words}:\n{texts}")
        return cast(T, value)

    def decode(self, kind: type[T], table: object = None, place: Place = ()) -> T | None:
        """The table (by default the whole document) as a dataclass; none when an error was noted."""
        table = self.table if table is None else table
        known = {field.name: field for field in dataclasses.fields(cast(Any, kind)) if field.init}
        if not isinstance(table, Mapping):
            self.add(place, f"must be a table with {', '.join(known)}; got {kind_of(table)}.")
            return None
        before = len(self.errors)
        for key in table:
            if key not in known:
                self.unknown((*place, str(key)), known)
        hints = _hints(cast(Any, kind))
        values = {}
        for name, field in known.items():
            if name in table:
                values[name] = self.value(table[name], hints[name], (*place, name))
            elif field.default is field.default_factory is dataclasses.MISSING:
                self.add((*place, name), f"is missing. It must be {in_words(hints[name])}.")
        if len(self.errors) > before:
            return None
        return self.attempt(place, lambda: kind(**values))

    def unknown(self, place: Place, known: Mapping[str, object]) -> None:
        """Note a key that is not known, with the one that was probably meant."""
        name = f"{place[-1]:.60}"
        gone = removed("", name)
        if not set(re.findall(r"\w+", gone)).isdisjoint(known):
            self.add(place, gone)
            return
        near = difflib.get_close_matches(name, known, n=1) if len(self.errors) < MOST_ERRORS else []
        fix = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}."
        self.add(place, f"there is no such setting. {fix}")

    def value(self, given: object, hint: Any, place: Place = ()) -> Any:
        """A value of the kind that the type hint says; none, and an error noted, when it is another."""
        plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        parts: tuple[Any, ...] = get_args(plain)
        if dataclasses.is_dataclass(plain):
            return self.decode(cast(type, plain), given, place)
        entry_kind = next((part for part in parts if dataclasses.is_dataclass(part)), None)
        if entry_kind is not None and type(None) in parts and given is not None:
            return self.decode(cast(type, entry_kind), given, place)
        by_name = isinstance(get_origin(plain), type) and issubclass(get_origin(plain), Mapping)
        if entry_kind is not None and by_name and isinstance(given, Mapping):
            return {name: self.value(entry, entry_kind, (*place, name)) for name, entry in given.items()}
        if entry_kind is not None and not by_name and isinstance(given, list):
            return tuple(self.value(entry, entry_kind, (*place, index)) for index, entry in enumerate(given))
        try:
            converted = msgspec.convert(given, _without_paths(hint))
            if _finite(given):
                return converted
        except msgspec.ValidationError:
            pass
        got = f"{given!r:.40}" if self.show_values else kind_of(given, hint)
        self.add(place, f"must be {in_words(hint)}; got {got}.")
        return None


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    """A dataclass's type hints; kept, because a study may have thousands of tables of one kind."""
    return get_type_hints(kind, include_extras=True)


def parse_toml(text: str, source: str, *, show_values: bool = False) -> Document:
    """A document from a TOML text."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source} is not valid TOML: {error}.") from None
    except (ValueError, RecursionError):  # a number of thousands of digits; thousands of brackets
        raise InputError(f"{source} is not valid TOML: a number is too long, or tables are nested too deep.") from None
    return Document(table, source, line_numbers(text), show_values=show_values)


def parse_json(text: str | bytes, source: str) -> Any:
    """The value of a JSON text: finite numbers of a size that can be computed with, nested as deep as ours are.

    >>> parse_json('{"rounds": 200}', "the run")
    {'rounds': 200}
    >>> parse_json("9" * 400, "the run")
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: the run: a whole number must lie within ±9223372036854775807; got one of more digits.
    """
    try:
        value = json_value(text)
    except msgspec.ValidationError as error:
        raise InputError(f"{source} cannot be read: {broken_rule(error, 'it')}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{source} is not JSON that can be read: it is damaged, or not what it should be.") from None
    for place, rule in _unreadable(value):
        raise InputError(f"{source}{', ' if place else ''}{name_of(place)}: {rule}")
    return value


def decode_json(content: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """What a decoder reads; refused where an object has a key twice, of which the decoder alone takes the last.

    >>> decode_json(b'{"a": 1}', msgspec.json.Decoder(dict[str, int]))
    {'a': 1}
    >>> decode_json(b'{"a": 1, "a": 2}', msgspec.json.Decoder(dict[str, int]))
    Traceback (most recent call last):
    ...
    msgspec.ValidationError: an object has a key twice
    """
    value = decoder.decode(content)
    json_value(content)
    return value


def json_value(text: str | bytes) -> Any:
    """The value of a JSON text; a ValueError where it is none, or where an object has a key twice.

    Readers differ in which of the two they take: one text would be two messages.
    """
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_without_repeats)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise msgspec.ValidationError("an object has a key twice")  # not quoted: it may be hostile
    return found


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _unreadable(value: object) -> Iterator[tuple[Place, str]]:
    """Where a value from outside holds a number that is too large, or is nested too deep."""
    waiting: list[tuple[Place, object]] = [((), value)]
    while waiting:
        place, inner = waiting.pop()
        if isinstance(inner, int) and abs(inner) > LARGEST_WHOLE:
            yield place, f"a whole number must lie within ±{LARGEST_WHOLE}; got one of more digits."
        items = inner.items() if isinstance(inner, Mapping) else enumerate(inner) if isinstance(inner, list) else ()
        if items and len(place) >= DEEPEST:
            yield place[:3], f"tables and lists may be nested {DEEPEST} deep; these are deeper."
            return
        waiting += [((*place, key if isinstance(key, int) else str(key)), entry) for key, entry in items]


def read_toml(path: Path) -> Document:
    """A document from a TOML file."""
    return parse_toml(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a file, UTF-8 with or without a byte order mark."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) <= LARGEST_FILE:
            return content.decode("utf-8-sig")
        raise InputError(f"{path} cannot be read: it has more than {LARGEST_FILE:,} bytes. Is it the right file?")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {(error.strerror or 'it failed').lower()}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} cannot be read: it is not UTF-8 text. Save it as UTF-8.") from None


def in_words(hint: Any, *, several: bool = False) -> str:
    """What a type hint asks for.

    >>> in_words(float | tuple[float, float] | Mapping[str, float] | None), in_words(Literal["cohort", "local"])
    ('a finite number, a list of 2 finite numbers or a table of name = a finite number', 'one of cohort, local')
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        words = [meta.description for meta in parts[1:] if isinstance(meta, Meta) and meta.description]
        return words[0] if words else in_words(parts[0], several=several)
    if origin in (Union, UnionType):
        options = [in_words(part) for part in parts if part not in (NoneType, Path)]
        return " or ".join(filter(None, (", ".join(options[:-1]), options[-1])))
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}" if len(parts) > 1 else repr(parts[0])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a table of name = {in_words(parts[1])}"
    if origin in (list, tuple):
        count = f"{len(parts)} " if origin is tuple and ... not in parts else ""
        return f"a list of {count}{in_words(parts[0], several=True)}"
    if dataclasses.is_dataclass(hint):
        names = ", ".join(field.name for field in dataclasses.fields(hint))
        return f"tables with {names}" if several else f"a table with {names}"
    return KINDS[hint][several]


def kind_of(given: object, hint: Any = None) -> str:
    """The kind of a value, never the value itself; only a wrong choice is shown, up to 40 characters."""
    if isinstance(given, str) and any(get_origin(part) is Literal for part in (hint, *get_args(hint))):
        return f"{given!r:.40}"
    if isinstance(given, Mapping):
        return "a table"
    if isinstance(given, list | tuple):
        kinds = list(dict.fromkeys(KINDS.get(type(entry), ("", "tables or lists"))[1] for entry in given))
        return f"a list of {len(given)} {' and '.join(kinds) or 'entries'}"
    if isinstance(given, float):
        return "a number" if math.isfinite(given) else "a number that is not finite"
    return KINDS.get(type(given), ("nothing" if given is None else f"a {type(given).__name__}", ""))[0]


def _finite(given: object) -> bool:
    """Whether every number in a value is finite."""
    if isinstance(given, Mapping):
        return all(map(_finite, given.values()))
    if isinstance(given, list | tuple):
        return all(map(_finite, given))
    return not isinstance(given, float) or math.isfinite(given)


def _without_paths(hint: Any) -> Any:
    """The hint as a file can hold it: a path is a text."""
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(part for part in get_args(hint) if part is not Path)]  # noqa: UP007  built at run time
    return str if hint is Path else hint
