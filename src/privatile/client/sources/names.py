"""The names of clients and people, the same from every kind of source."""

import re
from collections.abc import Sequence

import numpy as np

from privatile.core.messages import LONGEST_NAME
from privatile.errors import DataError

WHOLE = re.compile(r"([-+]?[0-9]+)\.0*")
LARGE = re.compile(r"-?[0-9](\.[0-9]+)?e\+[0-9]{2,3}")


def check_client(value: object) -> str:
    """The name of a client, or an error that says what a name must be."""
    text = name_text(value)
    if text is None:
        raise DataError(
            "the client column is missing in some rows: nobody holds these records. Fill it in, or leave the rows out."
        )
    if not 0 < len(text) <= LONGEST_NAME or not text.isprintable():
        raise DataError(
            f"a client's name must be a printable text of 1 to {LONGEST_NAME} characters; the client column holds one "
            "that is not."
        )
    return text


def name_text(value: object) -> str | None:
    """The text of a client's or a person's entry; None where it is missing. Whole floats read as integers.

    >>> name_text(7.0), name_text(" 007"), name_text(float("nan"))
    ('7', '007', None)
    """
    if value is None or value is np.ma.masked:
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape").strip()
    if isinstance(value, float | np.floating):
        number = float(value)
        if number != number:
            return None
        return str(int(number)) if number.is_integer() else repr(number)
    text = str(value).strip()
    # pandas writes its missing marks so.
    return None if text in ("<NA>", "NaT") and not isinstance(value, str) else text


def person_text(value: object) -> str | None:
    """The text by which a person is known, the same from every kind of source; None where it is missing.

    A column of integers with gaps arrives as floats from some readers, and is written so into files: 7, 7.0, "7"
    and "7.0" are the same person, and so are 10**16 and "1e+16". Blanks around a text do not count; leading zeros
    do, as they do in names that are no numbers.

    >>> person_text(7.0), person_text("7.0"), person_text(b" 7.00 "), person_text("007"), person_text("7.5")
    ('7', '7', '7', '007', '7.5')
    """
    text = name_text(value)
    if text is None:
        return None
    if "." in text and (whole := WHOLE.fullmatch(text)):
        return "0" if whole[1] == "-0" else whole[1]
    if "e+" in text and LARGE.fullmatch(text) and (number := float(text)).is_integer():
        return str(int(number))
    return text


def person_bytes(values: Sequence[object]) -> list[bytes]:
    """The texts of a person column as bytes; a missing person is refused."""
    texts = [person_text(value) for value in values]
    if not all(texts):
        raise DataError(
            "the person column is missing in some rows: whose budget would they spend? Fill it in, or leave the rows "
            "out."
        )
    return [text.encode("utf-8", "surrogateescape") for text in texts if text is not None]
