"""Options of commands: short forms of the kinds that recur, and how their values are read.

An option that is not given is None, so that what a file says in its place stays.
"""

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


def existing(_context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """The file that an option names; one that is not there is an error of use, no finding about its content."""
    if path is None or (path.exists() and not path.is_dir()):
        return path
    why = f"{path} is a folder, not a file" if path.is_dir() else f"there is no file {path}"
    raise InputError(f"{parameter.opts[0]}: {why}. Give the path of the run's file (run.db).")


def choice(name: str, choices: Sequence[str], help: str) -> Decorator:
    """An option with one of several words as its value."""
    return click.option(name, type=click.Choice(choices), help=help)


def flag(name: str, help: str) -> Decorator:
    """An option without a value."""
    return click.option(name, is_flag=True, default=None, help=help)


def json_flag(what: str) -> Decorator:
    """--json, which the command gets as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=f"{what} as JSON.")


def numbers_by_client(option: str, given: Sequence[str]) -> tuple[tuple[float, ...], dict[str, float]]:
    """All values of a repeated option: those written `NUMBER`, and those written `CLIENT=NUMBER`.

    >>> numbers_by_client("epsilon", ["1", "north=0.5"])
    ((1.0,), {'north': 0.5})
    """
    for_all: list[float] = []
    by_client: dict[str, float] = {}
    for entry in given:
        name, equals, text = entry.rpartition("=")
        if equals and name in by_client:
            raise InputError(f"--{option} names client {name!r} more than once. Give each client one number.")
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"--{option} takes a number; got {text!r}.{_about_commas(option, text)}") from None
        if equals:
            by_client[name] = value
        else:
            for_all.append(value)
    return tuple(for_all), by_client


def _about_commas(option: str, text: str) -> str:
    """How to write what was written with commas: several levels, or a number with decimals or thousands.

    >>> _about_commas("q", "0.1, 0.5")
    ' Give several one by one: --q 0.1 --q 0.5.'
    >>> _about_commas("q", "0,5") == _about_commas("epsilon", "0.1,0.5") != _about_commas("q", "much")
    True
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1:
        return ""
    if option == "q" and all("." in part for part in parts):
        return f" Give several one by one: {' '.join(f'--q {part}' for part in parts)}."
    return " Give one, without a comma and with a point before decimals, or CLIENT=NUMBER for each client."


def one_for_all(option: str, numbers: tuple[float, ...]) -> float | None:
    """The number for all clients, which may be given once at most."""
    if len(numbers) > 1:
        raise InputError(f"--{option} was given {len(numbers)} times. One for all, or CLIENT=NUMBER for each.")
    return numbers[0] if numbers else None


def conditions(given: Sequence[str]) -> str | dict[str, str] | None:
    """What `--only` says: one client by its name, or entries by their column, all of which must hold.

    >>> conditions(["north"]), conditions(["region=north", "sex=f"])
    ('north', {'region': 'north', 'sex': 'f'})
    """
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    found: dict[str, str] = {}
    for text in given:
        column, equals, entry = text.partition("=")
        if not equals:
            raise InputError(f"--only {text} beside another --only: write each of them as COLUMN=VALUE.")
        if column in found:
            raise InputError(
                f"--only names column {column!r} more than once, and a record has one entry in it. For several groups "
                f"take --by {column}."
            )
        found[column] = entry
    return found or None
