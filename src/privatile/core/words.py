"""Numbers in words, and texts that are safe to show."""

import json
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime


def duration(seconds: float) -> str:
    """A duration in the unit that suits it.

    >>> duration(0.25), duration(7.2), duration(600), duration(90_000), duration(400_000)
    ('0.2 s', '7 s', '10 min', '25.0 h', '4.6 days')
    """
    if seconds < 90:
        return f"{max(seconds, 0.0):.1f} s" if seconds < 1 else f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def counted(number: int, noun: str, several: str = "") -> str:
    """A number of things; `several` is what more of them are called, unless that is the noun with an s.

    >>> counted(1, "cell"), counted(1200, "cell"), counted(1, "entry", "entries"), counted(0, "entry", "entries")
    ('1 cell', '1,200 cells', '1 entry', '0 entries')
    """
    return f"{number:,} {noun if number == 1 else several or f'{noun}s'}"


def moment(seconds: float) -> str | None:
    """A time in seconds since 1970 as UTC in ISO 8601; none where it is no time of our calendar.

    >>> moment(0.0), moment(1e300)
    ('1970-01-01T00:00:00Z', None)
    """
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return None


def clock_time(seconds: float, now: float) -> str:
    """A time of day on this machine's clock; with its date where it was not today.

    >>> len(clock_time(3600.0, 3601.0)), len(clock_time(3600.0, 400_000.0)), clock_time(1e300, 0.0)
    (8, 19, '?')
    """
    try:
        at = time.localtime(seconds)
        return time.strftime("%H:%M:%S" if at[:3] == time.localtime(now)[:3] else "%Y-%m-%d %H:%M:%S", at)
    except (ValueError, OverflowError, OSError):
        return "?"


def event_line(at: float, kind: str, client: str | None, number: int | None, text: str, *, now: float) -> str:
    """Something that happened in a run: when, what, to whom, in which round, and why.

    >>> event_line(1.0, "closed without", "uni", 12, "by vote", now=2.0)[8:]
    ' closed without uni, round 12: by vote'
    """
    who = (f" {client}" if client else "") + (f", round {number:,}" if number else "")
    return f"{clock_time(at, now)} {printable(f'{kind}{who}: {text}')}"


def week(seconds: float) -> str | None:
    """The ISO week of a time, in UTC; none where it is no time of our calendar.

    >>> week(0.0), week(1e300), week(float("nan"))
    ('1970-W01', None, None)
    """
    try:
        return "{:04}-W{:02}".format(*datetime.fromtimestamp(seconds, UTC).isocalendar()[:2])
    except (ValueError, OverflowError, OSError):
        return None


def printable(text: object) -> str:
    """A text without line breaks and terminal escapes: each character that cannot be printed becomes a mark.

    >>> printable("a\\x1b[2Jb\\n")
    'a�[2Jb�'
    """
    return "".join(character if character.isprintable() else "�" for character in str(text))


def disarmed(text: object) -> str:
    """A text of several lines without terminal escapes, by `printable`.

    >>> disarmed("a\\x1b[2J\\nb")
    'a�[2J\\nb'
    """
    return "\n".join(map(printable, str(text).split("\n")))


def disarmed_json(text: str) -> str:
    """The same JSON, with what cannot be printed as the escapes of JSON.

    >>> disarmed_json('{"a": "\\x9b2J"}')
    '{"a": "\\\\u009b2J"}'
    """
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def listed(names: Sequence[str], most: int = 8) -> str:
    """The first names, and how many more; apart by semicolons where a name has a comma.

    >>> listed(list("abcdef")), listed(list("abcdef"), 4), listed(["f, north", "m, north"])
    ('a, b, c, d, e, f', 'a, b, c, d and 2 more', 'f, north; m, north')
    """
    shown = ("; " if any(", " in name for name in names) else ", ").join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


LONGEST_SCHEME = 40
"""Letters of the name before an address's colon that are looked at."""


def is_address(text: str) -> bool:
    """Whether a text is the address of a database, or holds one, rather than the name of a file. It is never shown.

    One slash is enough: a path joins two to one.

    >>> [is_address(text) for text in ("postgresql://me:secret@host/pay", "conf/postgresql:/me:secret@host")]
    [True, True]
    >>> [is_address(text) for text in ("C:/pay.csv", "pay/2024-05.csv")]
    [False, False]
    """
    # What stands before each colon, and no more of it than a name has: a long text is read once.
    names = (text[max(0, colon.start() - LONGEST_SCHEME) : colon.start()] for colon in re.finditer(":/", text))
    return any(re.search(r"[A-Za-z][\w+.-]+$", name) for name in names)


def short(value: object) -> str:
    """A value that breaks a rule, in at most 60 characters.

    Python itself refuses to write a number of thousands of digits, and a long one tells nobody anything.

    >>> short(-1), short("x" * 100)[:5], short(10**5000)
    ('-1', "'xxxx", 'a whole number of more than 60 digits')
    """
    is_long = isinstance(value, int) and value.bit_length() > 200
    return "a whole number of more than 60 digits" if is_long else f"{value!r:.60}"
