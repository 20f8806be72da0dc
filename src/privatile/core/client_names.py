"""The names of clients as text: one form for each, whoever wrote it down.

A client's name comes from a file, an option, a table of weights or Python. Unicode writes "ö" in two ways, and a
keyboard and a file system may differ in which. All names are compared in form NFC, without spaces around them; case
and compatibility forms are kept: two such names are two clients (`look_alikes` finds them).
"""

import unicodedata
from collections.abc import Iterable, Mapping
from itertools import groupby

from privatile.errors import InputError


def client_name(text: str) -> str:
    """A client's name in the one form in which names are compared: NFC, without spaces around it.

    >>> client_name(" Ko\\u0308ln ") == client_name("K\\u00f6ln") == "K\\u00f6ln"
    True
    """
    return unicodedata.normalize("NFC", text).strip()


def by_client_name(what: str, given: Mapping[str, float]) -> dict[str, float]:
    """The same numbers under the clients' names in that form; refused where one client is named twice.

    >>> by_client_name("epsilon", {"K\\u00f6ln": 1.0, "Ko\\u0308ln": 2.0})
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: epsilon names client 'Köln' more than once. Give each client one number.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"{what} must name its clients; got {given!r:.60}. Give a number for each: {{'north': 1.0}}.")
    named: dict[str, float] = {}
    for text, number in given.items():
        name = client_name(str(text))
        if name in named:
            raise InputError(f"{what} names client {name!r} more than once. Give each client one number.")
        named[name] = number
    return named


def look_alikes(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Names that differ only by case or by compatibility form, such as full-width letters: perhaps one client.

    >>> look_alikes(["north", "North", "south"])
    [('North', 'north')]
    """
    groups = (tuple(group) for _, group in groupby(sorted(names, key=lambda name: (_folded(name), name)), _folded))
    return [group for group in groups if len(group) > 1]


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
