"""The names of clients, the same from every kind of source."""

import numpy as np

from privatile.core.client_names import client_name
from privatile.core.messages import LONGEST_NAME
from privatile.errors import DataError


def check_client(value: object, column: str | None = None) -> str:
    """The name of a client, or of a group in a named column, or an error that says what a name must be."""
    text = name_text(value)
    if text is None:
        raise DataError(
            "the client column is missing in some rows: nobody holds these records. Fill it in, or leave the rows out."
        )
    if not 0 < len(text) <= LONGEST_NAME or not text.isprintable():
        raise DataError(
            f"a client's name must be a printable text of 1 to {LONGEST_NAME} characters; the "
            f"{'client column' if column is None else f'column {column!r:.60}'} holds one that is not."
        )
    return text


def name_text(value: object) -> str | None:
    """The text of a client's entry; None where it is missing. Whole floats read as integers.

    One name in two Unicode forms is one client (`client_name`).

    >>> name_text(7.0), name_text(" 007"), name_text(float("nan"))
    ('7', '007', None)
    """
    if value is None or value is np.ma.masked:
        return None
    if isinstance(value, bytes):
        return client_name(value.decode("utf-8", "surrogateescape"))
    if isinstance(value, float | np.floating):
        number = float(value)
        if number != number:
            return None
        return str(int(number)) if number.is_integer() else repr(number)
    text = client_name(str(value))
    # pandas writes its missing marks so.
    return None if text in ("<NA>", "NaT") and not isinstance(value, str) else text
