"""The identifier of a person, the same from every kind of source and in every form that means the same.

Who is recognised answers once. So forms are brought together generously: two people who become one by these rules
only cost one of them an answer, while one person who becomes two answers twice.
"""

import datetime
import math
import re
import unicodedata
import uuid
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from privatile.errors import DataError

LONGEST_IDENTIFIER = 1_000
"""Characters of an identifier; a longer entry is no identifier, and folding it would take memory."""

LARGEST_EXACT = 1 << 53
"""From here on neighbouring whole numbers are one double: two people would share a number, or one get another's."""

UUID_BYTES = 16

FEW_DIGITS = 20
"""Digits that are converted or written out: more than any exact double has. Longer numbers stay digits and exponent."""

MISSING_IDENTIFIERS = frozenset(("", "na", "n/a", "nan", "null", "none", "<na>", "nat"))
"""What files and libraries write where an identifier is missing; the marks of missing values, and those of pandas."""

_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_CONTROL = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
_REMOVED = re.compile(f"[{_CONTROL}{_INVISIBLE}]")
_DASHES = re.compile("[\u02d7\u058a\u1806\u2010-\u2015\u2043\u2212\u2e3a\u2e3b\ufe58\ufe63\uff0d]")
_APOSTROPHES = re.compile(
    "[\u02b9\u02bb-\u02bd\u02c8\u02ca\u02cb\u055a\u05f3\u2018-\u201b\u2032\u2035\ua78c]|(?<=\\S)\\s+[\u0301\u0313\u0314]"
)
"""The second part is an accent that stands alone (´): NFKC makes a blank and a combining accent of it."""
_DIGITS = re.compile(r"[^\x00-\x7f]")

_DECIMAL = re.compile(r"([-+]?)([0-9]*)(?:\.([0-9]*))?(?:e([-+]?)0*([0-9]{1,9}))?")
_GROUPS = re.compile(r"[-+]?[0-9]{1,3}(?:([,' _])[0-9]{3})(?:\1[0-9]{3})*(?:\.0*)?")
_COMMA = re.compile(r"([-+]?[0-9]+),0*")
_MOMENT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[t ]([0-9:]{5,8})(?:\.([0-9]+))?(?:z|[-+]00(?::?00)?| ?utc)?")
_UUID = re.compile(
    r"[{(]?(?:urn:uuid:)?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})[)}]?"
)


def person_text(value: object, *, exact_below: int = LARGEST_EXACT) -> str:
    """The text by which a person is known. One person, however written, has one text:

    - Text is compared in Unicode's form NFKC, without case (`casefold`; Turkish dotless and dotted i are i), without
      blanks around it, with one blank where there are several, without invisible characters. All dashes and minus
      signs are one, all apostrophes are one, digits of all scripts are those of ASCII.
    - A number is its value: 7, "7", "007", "+7", 7.0, "7.0", "7,0", "7e0" are one person, so are 0 and "-0", and
      "1000", "1e3", "1,000" and "1 000". −7 is another.
    - A UUID is its 32 digits, with or without hyphens and braces. Sixteen bytes are a UUID unless all of them are
      printable ASCII, as those of no UUID of RFC 9562 are. Other bytes are UTF-8 text; where they are not, their
      hexadecimal digits.
    - A date is YYYY-MM-DD, also where it has the time 00:00; a time of day follows it, without time zone UTC.

    Refused: an entry that is missing or empty; a float, or a text written as one ("1e+16", "9007199254740993.0"), from
    2⁵³ on (`exact_below`: less for narrower floats), since it may be a neighbour's number; true and false; entries of
    more than 1,000 characters; anything but texts, bytes, numbers, dates and UUIDs. No error shows the entry.

    >>> {person_text(form) for form in (7, 7.0, "007", " +7.00", b"7", "\\uff17", "7e0", Decimal("7.00"))}
    {'7'}
    >>> person_text("  Zo\\u0308e\\u00a0\\u200b O\\u2019NEILL ")
    "zöe o'neill"
    >>> person_text(2.0**53)
    Traceback (most recent call last):
    ...
    privatile.errors.DataError: the person column holds whole numbers of 9007199254740992 or more as floats, which are \
no longer exact: two people could share one. Read or write the column as integers or as text.
    """
    if isinstance(value, str):
        return _folded(value, exact_below)
    if isinstance(value, bool | np.bool_):
        raise DataError("the person column holds true and false, which are no identifiers. Name another column.")
    if isinstance(value, int | np.integer):
        if abs(int(value)).bit_length() > 3 * LONGEST_IDENTIFIER:
            raise _too_long()
        return _folded(str(int(value)), exact_below)
    if isinstance(value, float | np.floating):
        return _of_float(float(value), exact_below)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise _missing()
        return _as_number(str(value).lower())
    if isinstance(value, bytes | bytearray | memoryview):
        return _of_bytes(bytes(value), exact_below)
    if isinstance(value, uuid.UUID):
        return _folded(value.hex, exact_below)
    if isinstance(value, np.datetime64):
        return _folded(str(value), exact_below)
    if type(value).__name__ in ("NAType", "NaTType", "NoneType", "MaskedConstant"):
        raise _missing()
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC)
    if isinstance(value, datetime.date | datetime.time):
        return _folded(str(value), exact_below)
    raise DataError(
        f"the person column holds entries of the kind {type(value).__name__}. An identifier is a text, a whole number, "
        "bytes, a date or a UUID: convert the column first."
    )


def person_bytes(values: Sequence[object], exact_below: int = LARGEST_EXACT) -> list[bytes]:
    """The texts of a person column as bytes."""
    return [person_text(value, exact_below=exact_below).encode("utf-8", "surrogatepass") for value in values]


def exact_below(column: object) -> int:
    """From which whole number on a column's floats are not exact; that of doubles for columns of anything else.

    >>> exact_below(np.zeros(1, dtype=np.float32)) == 2**24
    True
    """
    kind = str(getattr(column, "dtype", getattr(column, "type", ""))).lower().removesuffix("[pyarrow]")
    return {"float32": 1 << 24, "float": 1 << 24, "float16": 1 << 11, "halffloat": 1 << 11}.get(kind, LARGEST_EXACT)


def _missing() -> DataError:
    return DataError(
        "the person column is missing in some rows (empty, NaN, NA, null or none): whose budget would they spend? Fill "
        "it in, or leave the rows out."
    )


def _too_long() -> DataError:
    return DataError(
        f"the person column holds entries of more than {LONGEST_IDENTIFIER} characters. An identifier is short: name "
        "another column."
    )


def _inexact(exact_below: int) -> DataError:
    return DataError(
        f"the person column holds whole numbers of {exact_below} or more as floats, which are no longer exact: two "
        "people could share one. Read or write the column as integers or as text."
    )


def _of_float(number: float, exact_below: int) -> str:
    if not math.isfinite(number):
        raise _missing()
    if abs(number) >= exact_below:
        raise _inexact(exact_below)
    return str(int(number)) if number.is_integer() else _as_number(repr(number))


def _as_number(text: str) -> str:
    """The text of a number whose kind says that it is exact."""
    if len(text) > LONGEST_IDENTIFIER:
        raise _too_long()
    return _number(text, None) or text


def _of_bytes(value: bytes, exact_below: int) -> str:
    if len(value) == UUID_BYTES and not (value.isascii() and value.decode("ascii").isprintable()):
        return _folded(value.hex(), exact_below)
    try:
        return _folded(value.decode("utf-8"), exact_below)
    except UnicodeDecodeError:
        return _folded(value.hex(), exact_below)


def _folded(text: str, exact_below: int) -> str:
    """A text in the one form of all that mean the same."""
    if len(text) > LONGEST_IDENTIFIER:
        raise _too_long()
    if not text.isascii():
        text = _ascii_where_possible(text)
    text = text.strip().casefold()
    if text.isdecimal() and len(text) <= FEW_DIGITS:
        return text.lstrip("0") or "0"
    if not text.isalnum():
        text = " ".join(_REMOVED.sub("", text).replace("`", "'").split())
    if text in MISSING_IDENTIFIERS:
        raise _missing()
    if found := _UUID.fullmatch(text):
        text = "".join(found.groups())
    return _number(text, exact_below) or _moment(text) or text


def _ascii_where_possible(text: str) -> str:
    """NFKC and casefold, as Unicode's caseless matching of identifiers does it, and the signs that look alike."""
    text = _REMOVED.sub("", text)  # first: it may stand between a letter and its accent
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", text).casefold())
    # A folded text may decompose further, and a composed one fold again.
    text = unicodedata.normalize("NFKC", text.casefold())
    text = (
        _APOSTROPHES.sub("'", _DASHES.sub("-", _REMOVED.sub("", text))).replace("i\u0307", "i").replace("\u0131", "i")
    )
    return _DIGITS.sub(lambda found: str(unicodedata.decimal(found[0], found[0])), text)


def _number(text: str, exact_below: int | None) -> str | None:
    """The value of a number as text, digits and exponent; None where the text is no number.

    The digits are never converted: a long number, or a large exponent, costs nothing. `exact_below` refuses what was
    written as a float and is not below it; hexadecimal digits may look like "12e34", so a float has a point or a plus.
    """
    if not text or text[-1] not in "0123456789.,":
        return None
    if _GROUPS.fullmatch(text):
        text = re.sub("[,' _]", "", text)
    elif found := _COMMA.fullmatch(text):
        text = found[1]
    found = _DECIMAL.fullmatch(text)
    if found is None or not (found[2] or found[3]):
        return None
    sign, whole, fraction, exponent_sign, exponent = found.groups()
    fraction = fraction or ""
    digits = (whole + fraction).lstrip("0")
    power = int((exponent_sign or "") + (exponent or "0")) - len(fraction)
    shortened = digits.rstrip("0")
    if not shortened:
        return "0"
    power += len(digits) - len(shortened)
    places = power + len(shortened)
    """How many digits stand before the point."""
    if exact_below is not None and ("." in text or "e+" in text) and places > 0:
        whole_part = int(shortened[:places]) * 10 ** max(0, power) if places <= FEW_DIGITS else exact_below
        if whole_part >= exact_below:
            raise _inexact(exact_below)
    minus = "-" if sign == "-" else ""
    return f"{minus}{shortened}{'0' * power}" if 0 <= power <= FEW_DIGITS else f"{minus}{shortened}e{power}"


def _moment(text: str) -> str | None:
    """A date, with its time of day where that is not 00:00; None where the text is neither."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    date, time, fraction = found.groups()
    time = time.removesuffix(":00") if len(time) == 8 else time
    fraction = (fraction or "").rstrip("0")
    if time == "00:00" and not fraction:
        return date
    return f"{date} {time}.{fraction}" if fraction else f"{date} {time}"
