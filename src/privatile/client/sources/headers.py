"""The first line of a CSV file: the names of its columns, unless it is a record, which must not be shown."""

import csv
import gzip
import io
import re
from collections.abc import Sequence
from pathlib import Path

from privatile.client.sources.text_format import MISSING_MARKS
from privatile.errors import DataError

LONGEST_HEADER = 1 << 20


def read_header(path: Path) -> str:
    """The first line of a file, or more where a quoted name holds a line break."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as stream:
            line = stream.readline(LONGEST_HEADER)
            # A quoted name may hold a line break.
            while line.count('"') % 2 and len(line) < LONGEST_HEADER and (more := stream.readline(LONGEST_HEADER)):
                line += more
            return line
    except (OSError, EOFError, UnicodeError):
        pass
    raise DataError(
        f"{path} cannot be read as text: it is damaged, half-written, or not in UTF-8. Spreadsheets write that as "
        '"CSV UTF-8".'
    )


def names_in(header: str, delimiter: str) -> list[str]:
    """The names of columns that a first line shows under a delimiter; none where it is no line of a CSV file."""
    try:
        return [name.strip() for name in next(csv.reader(io.StringIO(header), delimiter=delimiter, strict=False), [])]
    except csv.Error:
        return []


def refuse_headless(path: Path, names: Sequence[str]) -> None:
    """The first line of a file without a header is a record, and must not be shown."""
    if not any(names):
        raise DataError(
            f"{path} is empty, or its first line names nothing. Give a file whose first line names the columns."
        )
    if any(_may_be_a_record(name) for name in names):
        raise DataError(
            f"the first line of {path} does not name the columns asked for. It is not shown, since it could be a "
            "record. Give a file whose first line names the columns."
        )


def _may_be_a_record(name: str) -> bool:
    """Names of columns begin with a letter, hold no number as a word, no decimals, and at most four digits in a row."""
    words = re.split(r"[\s,;:|]+", name)
    looks = re.match(r"[^\W\d]", name) and not re.search(r"\d{5}|\d[.,]\d", name) and name.lower() not in MISSING_MARKS
    return not looks or any(re.fullmatch(r"[-+.\d]+(e[-+\d]+)?", word, re.IGNORECASE) for word in words)
