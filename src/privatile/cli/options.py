"""Options of commands: short forms of the kinds that recur, and how their values are read.

An option that is not given is None, so that what a file says in its place stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from privatile.errors import InputError

Decorator = Callable[[Any], Any]


def text(name: str, metavar: str, help: str) -> Decorator:
    """An option with a word as its value."""
    return click.option(name, metavar=metavar, help=help)


def number(name: str, metavar: str, help: str) -> Decorator:
    """An option with a number as its value."""
    return click.option(name, type=float, metavar=metavar, help=help)


def file(name: str, metavar: str, help: str) -> Decorator:
    """An option with a path as its value."""
    return click.option(name, type=click.Path(path_type=Path), metavar=metavar, help=help)


def choice(name: str, choices: Sequence[str], help: str) -> Decorator:
    """An option with one of several words as its value."""
    return click.option(name, type=click.Choice(choices), help=help)


def flag(name: str, help: str) -> Decorator:
    """An option without a value."""
    return click.option(name, is_flag=True, default=None, help=help)


def json_flag(what: str) -> Decorator:
    """--json, which the command gets as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=f"{what} as JSON.")


def parse_number(option: str, given: str) -> float:
    """The number in an option's text."""
    try:
        return float(given)
    except ValueError:
        raise InputError(f"--{option} takes a number; got {given!r}.") from None


def numbers_by_client(option: str, given: Sequence[str]) -> tuple[float, ...] | dict[str, float]:
    """All values of a repeated option: `NUMBER`, or `CLIENT=NUMBER` for each client.

    >>> numbers_by_client("q", ["0.2", "0.8"]), numbers_by_client("epsilon", ["north=1", "south=0.5"])
    ((0.2, 0.8), {'north': 1.0, 'south': 0.5})
    """
    pairs = [entry.rpartition("=") for entry in given]
    names = [name for name, equals, _ in pairs if equals]
    if not names:
        return tuple(parse_number(option, entry) for entry in given)
    if len(names) < len(pairs):
        raise InputError(f"--{option} takes one number for all or CLIENT=NUMBER for each, not both.")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--{option} names client {name!r} more than once.")
    return {name: parse_number(option, entry) for name, _, entry in pairs}
