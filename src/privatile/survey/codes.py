"""One-time codes: 128 bits from the operating system, the right of one person to answer once.

A code travels in the fragment of a link, which browsers do not send, and in the body of a request. The server keeps
its SHA-256 only: 2¹²⁸ codes cannot be tried, so a plain hash is as good as a slow one.
"""

import csv
import hashlib
import io
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from privatile.errors import InputError


class IssuedCode(NamedTuple):
    """A code as the organiser gives it away."""

    stratum: str
    number: int
    """From 1 within the stratum; a line's number in no order but that of the file."""
    code: str


def new_code() -> str:
    """A code that nobody can guess; none begins with "-", which a spreadsheet would take for a formula.

    >>> len(new_code()), new_code() != new_code()
    (22, True)
    """
    while (code := secrets.token_urlsafe(16)).startswith("-"):
        pass
    return code


def code_hash(code: str) -> bytes:
    """What the server keeps of a code.

    >>> len(code_hash(new_code()))
    32
    """
    return hashlib.sha256(code.encode("ascii", "replace")).digest()


def issue(strata: Sequence[tuple[str, int]]) -> Iterator[IssuedCode]:
    """New codes, so many for each stratum."""
    for stratum, count in strata:
        for number in range(1, count + 1):
            yield IssuedCode(stratum, number, new_code())


def write_codes(path: Path, issued: Sequence[IssuedCode]) -> None:
    """The codes as CSV, for the organiser alone."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(IssuedCode._fields)
    writer.writerows(issued)
    write_secret(path, text.getvalue())


def write_secret(path: Path, text: str) -> None:
    """A file with codes in it, which its owner alone can read; none is overwritten."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError(f"{path} exists already and holds codes: move it away first.") from None
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read_codes(path: str | Path) -> list[IssuedCode]:
    """Read what `write_codes` wrote."""
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            return [IssuedCode(row["stratum"], int(row["number"]), row["code"]) for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError):
        raise InputError(f"{path}: these are no codes of a survey. Give the file that `survey init` wrote.") from None
