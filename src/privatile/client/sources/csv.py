"""How a CSV file is written: its header, and what stands between columns, before decimals and beside a number.

How a CSV file is written: what stands between columns, before decimals, between thousands and beside a number.

What is not given is found out, and never guessed: marks that can be read in two ways are refused. 1.234 is one number
with a decimal point and another with points between thousands. All of it is SQL of duckdb, so that no entry leaves it;
an error names the kind of an entry, never the entry.

The first line of a CSV file: the names of its columns, unless it is a record, which must not be shown.
"""

import csv
import gzip
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from privatile.errors import DataError, InputError

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
DECIMALS = {"point": ".", "comma": ","}
THOUSANDS = {**DECIMALS, "space": " \u00a0\u2009\u202f", "apostrophe": "'\u2019", "none": ""}

MISSING_MARKS = ("", "na", "n/a", "nan", "null", "none")
"""What a CSV file may write, in any case of letters, where a value is missing."""

LONGEST_UNIT = 20


@dataclass(frozen=True)
class TextFormat:
    """What the user says about a CSV file; None where it is to be found out.

    Each mark is given by name or as itself. Unless given, thousands are separated by the other one of point and comma.

    >>> TextFormat(decimal=",").decimal, TextFormat(thousands="comma").decimal, TextFormat(delimiter="tab").delimiter
    ('comma', 'point', '\\t')
    >>> TextFormat(decimal="comma", thousands="comma")
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: decimal and thousands must be two marks; both are 'comma'.
    """

    delimiter: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None:
            mark = DELIMITERS.get(self.delimiter, "\t" if self.delimiter == "\\t" else self.delimiter)
            if len(mark) != 1 or mark.isalnum() or mark in "\"'\r\n.-+":
                raise InputError(
                    f"delimiter must be {', '.join(DELIMITERS)} or another single sign; got {self.delimiter!r:.20}."
                )
            object.__setattr__(self, "delimiter", mark)
        for option, marks in (("decimal", DECIMALS), ("thousands", THOUSANDS)):
            object.__setattr__(self, option, _name_of(option, getattr(self, option), marks))
        if self.thousands is not None and self.thousands == self.decimal:
            raise InputError(f"decimal and thousands must be two marks; both are {self.decimal!r}.")
        if self.decimal is None and self.thousands in DECIMALS:
            object.__setattr__(self, "decimal", _other(self.thousands))
        if self.unit is not None and not (
            0 < len(self.unit.strip()) <= LONGEST_UNIT and self.unit.isprintable() and not re.search(r"\d", self.unit)
        ):
            raise InputError(
                f"unit must be the text beside the numbers, such as € or USD or kg, without digits and of at most "
                f"{LONGEST_UNIT} characters."
            )

    @property
    def given(self) -> list[str]:
        """The names of what is given."""
        return [name for name in ("delimiter", "decimal", "thousands", "unit") if getattr(self, name) is not None]


def _name_of(option: str, given: str | None, marks: Mapping[str, str]) -> str | None:
    if given is None or given in marks:
        return given
    for name, mark in marks.items():
        if given and given in mark:
            return name
    raise InputError(f"{option} must be {' or '.join(marks)}; got {given!r:.20}.")


def _other(mark: str | None) -> str:
    return "point" if mark == "comma" else "comma"


class Kind(NamedTuple):
    """What an entry may be that is no number: how it looks (a regular expression), its name, and how to fix it."""

    looks: str
    words: str
    advice: str


_DAY = r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})|\d{1,2}\.?[ -]\p{L}{3,9}\.?[ -]\d{2,4}"
_DAY += r"|\p{L}{3,9}\.? \d{1,2},? \d{4})"
_DIGITS = r"[-+]?\d[\d.,'’ \x{a0}\x{2009}\x{202f}]*"

OTHER_MARKS = Kind(r"[-+]?[\d.,]*\d[\d.,]*(e[-+]?\d+)?", "a number that is written otherwise than the rest", "")

KINDS = (
    Kind(
        r"[-+]?\d[\d.,]*(_[\d.,]+)+(e[-+]?\d+)?",
        "a number with underscores between its digits",
        "Programs read such numbers in two ways: write them without underscores.",
    ),
    Kind(
        rf"{_DAY}([T ].*)?",
        "a date",
        "A date is no number: turn the column into days since a fixed day first, in your own program or in a query.",
    ),
    Kind(
        r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[AaPp]\.?[Mm]\.?)?",
        "a time of day or a duration",
        "A time is no number: turn the column into seconds or minutes first, in your own program or in a query.",
    ),
    Kind(
        rf"[-+]?([A-Z]{{0,3}}\p{{Sc}}|[A-Z]{{3}})\s*{_DIGITS}|{_DIGITS}\s*(\p{{Sc}}|[A-Z]{{3}})",
        "an amount with a currency sign",
        "If all amounts are in one currency, say how it is written: unit='EUR', for example. Otherwise convert first.",
    ),
    Kind(
        rf"{_DIGITS}\s*(%|‰|\p{{L}}[\p{{L}}.²³/]*)",
        "a number with a unit",
        "If all numbers have the same one, say how it is written: unit='kg', for example. Otherwise convert first.",
    ),
    Kind(
        r"[-+]?[1-9]\d{0,2}([ \x{a0}\x{2009}\x{202f}]\d{3})+([.,]\d*)?",
        "a number with blanks between its thousands",
        "thousands='space' reads it.",
    ),
    Kind(
        r"[-+]?[1-9]\d{0,2}(['’]\d{3})+([.,]\d*)?",
        "a number with apostrophes between its thousands",
        "thousands='apostrophe' reads it.",
    ),
    OTHER_MARKS,
)
"""In the order in which they are tried; each has its place as its code."""

SOMETHING_ELSE = len(KINDS)
"""The code of an entry of no known kind."""


@dataclass(frozen=True)
class NumberMarks:
    """How the numbers of a file are written, once that is known."""

    decimal: str = "point"
    thousands: str = "comma"
    unit: str | None = None

    def number(self, column: str) -> str:
        """SQL: the number in a column of texts; NULL where there is none."""
        text = _without_underscores(self._without_unit(column))
        grouped = text
        if self.thousands != "none":
            separators = THOUSANDS[self.thousands]
            grouped = (
                f"CASE WHEN {_looks(text, _grouped(separators, DECIMALS[self.decimal]))} "
                f"THEN regexp_replace({text}, {_sql_text(_class(separators))}, '', 'g') ELSE {text} END"
            )
        if self.decimal == "comma":
            with_point = f"CASE WHEN contains({grouped}, '.') THEN NULL ELSE replace({grouped}, ',', '.') END"
            return f"TRY_CAST({with_point} AS DOUBLE)"
        # Most files have neither units nor thousands: the rest is tried for what is no number as it is.
        plain = f"TRY_CAST({_without_underscores(column)} AS DOUBLE)"
        return plain if grouped == _without_underscores(column) else f"coalesce({plain}, TRY_CAST({grouped} AS DOUBLE))"

    def is_bad(self, column: str) -> str:
        """SQL: 1 for an entry that is neither a number nor missing, otherwise 0."""
        marks = ", ".join(_sql_text(mark) for mark in MISSING_MARKS)
        missing = f"{column} IS NULL OR lower(trim({column})) IN ({marks})"
        return f"CASE WHEN {self.number(column)} IS NOT NULL THEN 0 WHEN {missing} THEN 0 ELSE 1 END"

    def explain(self, code: int) -> tuple[str, str]:
        """What stands in the place of a number, and how to fix it, from its code (`kind_of_entry`)."""
        if code == SOMETHING_ELSE:
            return "something else", "Missing values may be left empty or written NA, NaN or null."
        if KINDS[code] is OTHER_MARKS:
            between = f"{self.thousands}s between thousands" if self.thousands in DECIMALS else "none between thousands"
            return (
                OTHER_MARKS.words,
                f"The column is read with decimal {self.decimal}s and {between}: decimal={_other(self.decimal)!r} "
                "reads it the other way round. A column must be written in one way.",
            )
        return KINDS[code].words, KINDS[code].advice

    def _without_unit(self, column: str) -> str:
        if self.unit is None:
            return f"trim({column})" if self.decimal == "comma" or self.thousands != "none" else column
        unit = re.escape(self.unit.strip())
        before, after = _sql_text(rf"^([-+]?)\s*{unit}\s*"), _sql_text(rf"\s*{unit}$")
        return f"regexp_replace(regexp_replace(trim({column}), {before}, '\\1'), {after}, '')"

    def evidence(self, column: str) -> str:
        """SQL: which marks a column has, and which of them can be read in one way only (`Evidence`)."""
        text = self._without_unit(column)
        if self.thousands not in (*DECIMALS, "none"):
            text = f"regexp_replace({text}, {_sql_text(_class(THOUSANDS[self.thousands]))}, '', 'g')"
        return ", ".join(
            f"coalesce(bool_or(CASE WHEN contains({text}, '{mark}') THEN {there} ELSE {elsewhere} END), false)"
            for mark, other in ((",", "."), (".", ","))
            for there, elsewhere in (
                (_looks(text, _grouped(mark, other)), "false"),
                (_looks(text, _sure(mark, other)), _looks(text, _grouped_twice(other))),
            )
        )


def _without_underscores(text: str) -> str:
    """SQL: the text, or NULL where it has an underscore: the engine would read 1_000, other programs do not."""
    return f"CASE WHEN contains({text}, '_') THEN NULL ELSE {text} END"


def kind_of_entry(column: str) -> str:
    """SQL: the code of what stands in a column in the place of a number."""
    kinds = (f"WHEN {_looks(f'trim({column})', kind.looks)} THEN {code}" for code, kind in enumerate(KINDS))
    return f"CASE {' '.join(kinds)} ELSE {SOMETHING_ELSE} END"


class Evidence(NamedTuple):
    """What the numbers of a file show: which marks may separate thousands, and which of them must be decimal marks."""

    comma_may_group: bool
    comma_is_decimal: bool
    point_may_group: bool
    point_is_decimal: bool


NOTHING_FOUND = Evidence(*[False] * 4)


def decimal_mark(found: Evidence, delimiter: str, columns: str, thousands: str | None = None) -> str:
    """The decimal mark of some columns, where only one is possible.

    A point is one in a file with commas between columns, where nothing speaks against it, and where something else
    separates `thousands` a lone mark is the decimal one. Where both are decimal marks
    the point is taken, and the first entry with a comma is refused when it is read.

    >>> decimal_mark(Evidence(True, True, True, False), ";", "pay")  # 12,5 and 1.234
    'comma'
    >>> decimal_mark(Evidence(True, False, True, True), ",", "pay")  # 12.5 and "1,234"
    'point'
    >>> decimal_mark(Evidence(False, False, True, False), ";", "column 'pay'")  # 1.234, and nothing but such numbers
    Traceback (most recent call last):
    ...
    privatile.errors.DataError: the numbers of column 'pay' can be read in two ways: every point in them stands \
before three digits, as a decimal point and a point between thousands may. Say which it is: decimal='point' \
or decimal='comma'.
    """
    if found.point_is_decimal:
        return "point"
    if found.comma_is_decimal:
        return "comma"
    if not found.comma_may_group and (not found.point_may_group or delimiter == "," or thousands is not None):
        return "point"
    if thousands is not None and not found.point_may_group:  # something else separates thousands
        return "comma"
    mark = "comma" if found.comma_may_group else "point"
    raise DataError(
        f"the numbers of {columns} can be read in two ways: every {mark} in them stands before three digits, "
        f"as a decimal {mark} and a {mark} between thousands may. Say which it is: decimal='point' or decimal='comma'."
    )


def in_words(delimiter: str, marks: NumberMarks, found: Evidence) -> str:
    """How a file is read: "semicolons between columns, decimal commas".

    >>> in_words(";", NumberMarks("comma", "point"), Evidence(True, True, True, False))
    'semicolons between columns, decimal commas, points between thousands'
    >>> in_words(";", NumberMarks(), NOTHING_FOUND)  # no number has a decimal
    'semicolons between columns'
    """
    name = next((name for name, mark in DELIMITERS.items() if mark == delimiter), repr(delimiter))
    words = [f"{name}s between columns"]
    has_decimals = {
        "point": found.point_is_decimal or found.point_may_group,
        "comma": found.comma_is_decimal or found.comma_may_group,
    }
    if has_decimals[marks.decimal]:
        words.append(f"decimal {marks.decimal}s")
    grouped = found.point_may_group if marks.decimal == "comma" else found.comma_may_group
    if marks.thousands not in DECIMALS or grouped:
        words.append(
            f"{marks.thousands}s between thousands" if marks.thousands != "none" else "nothing between thousands"
        )
    return ", ".join(words)


def _looks(text: str, like: str) -> str:
    return f"regexp_full_match({text}, {_sql_text(like)})"


def _grouped(mark: str, other: str) -> str:
    """A number in which `mark` may separate thousands, once or more."""
    return rf"[-+]?[1-9]\d{{0,2}}({_class(mark)}\d{{3}})+({_class(other)}\d*)?"


def _sure(mark: str, other: str) -> str:
    """A number in which `mark` can only be the decimal mark."""
    decimal, thousands = _class(mark), _class(other)
    return (
        rf"[-+]?(\d*{decimal}(\d{{0,2}}|\d{{4,}})|(0\d*|\d{{4,}}|){decimal}\d{{3}}"
        rf"|[1-9]\d{{0,2}}({thousands}\d{{3}})+{decimal}\d*)([eE][-+]?\d+)?|[-+]?\d*{decimal}\d+[eE][-+]?\d+"
    )


def _grouped_twice(mark: str) -> str:
    """A number in which `mark` stands twice, so that it can only separate thousands."""
    return rf"[-+]?[1-9]\d{{0,2}}({_class(mark)}\d{{3}}){{2,}}"


def _class(marks: str) -> str:
    return f"[{marks}]"


def _sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


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
