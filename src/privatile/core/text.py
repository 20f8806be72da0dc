"""Texts: names and numbers as people read them, terminals kept safe, and the one text that is hashed and signed.

The one text of plain values that is hashed and signed: the same content is always the same text.

The names of clients as text: one form for each, whoever wrote it down.

A client's name comes from a file, an option, a table of weights or Python. Unicode writes "ö" in two ways, and a
keyboard and a file system may differ in which. All names are compared in form NFC, without spaces around them; case
and compatibility forms are kept: two such names are two clients (`look_alikes` finds them).

What somebody may have meant: the nearest name that is known, other tools' names, and names that are gone.

Numbers in words, and texts that are safe to show.
"""

import hashlib
import json
import re
import time
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from privatile.errors import InputError

STRATA = "strata"
"""The weighting of a survey's run: every client is a stratum, with the weight that its study gives."""


class PartWords(NamedTuple):
    """One of the parts whose mixture is estimated, and several."""

    one: str
    many: str


CLIENTS = PartWords("client", "clients")


def parts_of(weighting: str) -> PartWords:
    """The words for the clients of a run with this weighting; fields of formats keep their names.

    >>> parts_of("size").many, parts_of(STRATA).many
    ('clients', 'strata')
    """
    return PartWords("stratum", "strata") if weighting == STRATA else CLIENTS


def percent_text(share: float, digits: int = 6) -> str:
    """A share as a percentage of so many significant digits.

    >>> percent_text(0.95), percent_text(1.0 - 0.05 / 3.0, 4), percent_text(0.0312, 2)
    ('95%', '98.33%', '3.1%')
    """
    return f"{100.0 * share:.{digits}g}%"


def canonical_json(plain: object) -> str:
    """One line of JSON, keys sorted, no blanks; what is not ASCII is escaped, and NaN is refused.

    >>> canonical_json({"b": 1.0, "a": ["é"]})
    '{"a":["\\\\u00e9"],"b":1.0}'
    """
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def text_digest(text: str) -> str:
    """SHA-256 of a text, in hexadecimal.

    >>> text_digest("")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(text: str) -> str:
    """Eight groups of four digits to read aloud: the first 128 bits of SHA-256 of the text.

    >>> fingerprint("a public key")
    '0b73-48fa-0389-70c4-8ec0-7cd7-3b62-57f3'
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return "-".join(digest[start : start + 4] for start in range(0, 32, 4))


class Hashed(ABC):
    """A frozen value that is named by the hash of its plain values: what everybody means by "the same study"."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain values, in the order of the file."""

    @cached_property
    def canonical(self) -> str:
        """The text that is hashed: JSON, keys sorted, no blanks."""
        return canonical_json(self.to_dict())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical text, in hexadecimal."""
        return text_digest(self.canonical)


def client_name(text: str) -> str:
    """A client's name in the one form in which names are compared: NFC, without spaces around it.

    >>> client_name(" Ko\\u0308ln ") == client_name("K\\u00f6ln") == "K\\u00f6ln"
    True
    """
    return unicodedata.normalize("NFC", text).strip()


def by_client_name(given: Mapping[str, Any]) -> dict[str, Any]:
    """The same numbers under the clients' names in that form; refused where one client is named twice.

    >>> by_client_name({"K\\u00f6ln": 1.0, "Ko\\u0308ln": 2.0})
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: names client 'Köln' more than once. Give each client one number.
    """
    named: dict[str, Any] = {}
    for text, number in given.items():
        name = client_name(str(text))
        if name in named:
            raise InputError(f"names client {name!r} more than once. Give each client one number.")
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


OTHER_NAMES = {
    "quantile": "q",
    "quantiles": "q",
    "level": "q",
    "levels": "q",
    "tau": "q",
    "percentile": "q",
    "eps": "epsilon",
    "budget": "epsilon",
    "privacy": "epsilon",
    "column": "value",
    "variable": "value",
    "col": "value",
    "group": "by",
    "groupby": "by",
    "bounds": "range",
    "limits": "range",
    "confidence": "confidence_level",
    "conf_level": "confidence_level",
    "ci": "confidence_level",
    "alpha": "confidence_level",
    "seed": "rng",
    "random_state": "rng",
    "sample_weight": "weight",
    "width": "until_width",
    "joint": "simultaneous",
    "out": "output",
    "site": "client",
}
"""A name of other tools -> ours, for options and keywords alike; used where ours is known."""

REMOVED = {
    "--install-unit": "Take a unit from the folder deploy/, and put the command into it.",
    "--log": "Use --scale, with the value log.",
    "--values": "Use --value-kind.",
    "--weights": "Use --client-weights.",
    "watch": "Use `privatile status RUN --follow`; for `watch --once`, leave out --follow; for `watch --once --json`, "
    "use `privatile report RUN --json`.",
    "federation status": "Use `privatile status FOLDER`.",
    "survey status": "Use `privatile status FOLDER`.",
    "estimate --overall-share": "Run `privatile estimate` once more without --by, with --spend-again (ε adds up).",
    "federation add --weight": "Use --client-weight.",
    "federation derive": "Use `privatile federation init NEW --from OLD --without NAME`.",
    "federation init --client": "Use --add-client.",
    "federation init --weight": "Use --client-weights.",
    "peer enroll --client": "Use --as-client.",
    "peer enroll --new-key": "A key stays for the whole run. Vote to abort, then begin a new run.",
    "peer vote --key": "A key stays for the whole run. Vote to abort, then begin a new run.",
    "peer vote --readmit": "No round closes any more. Vote to abort, then begin a new run without that organization.",
    "plan --client": "Use --add-client.",
    "study": "Use `privatile simulate`.",
    "survey init --weight": "Use --stratum-weight.",
}
"""Command, or command and option, as it was typed; or an option of every command -> what replaces it. An option stands
for its keyword and its field in a TOML file, too. `docs/upgrades.md` shows this table."""


READS_EARLIER_FORMATS = "d3633e0a"
"""The commit of this repository that reads the formats that came before those of today."""


def removed(command: str, name: str = "") -> str:
    """That a command, or its option, keyword or field `name`, is gone, and what replaces it; empty for others.

    >>> removed("estimate", "overall_share")
    'overall_share is gone. Run `privatile estimate` once more without --by, with --spend-again (ε adds up).'
    >>> removed("estimate", "epsilon")
    ''
    >>> removed("plan", "values"), removed("plan", "--values")
    ('values is gone. Use value_kind.', '--values is gone. Use --value-kind.')
    """
    option = f"--{name.lstrip('-').replace('_', '-')}"
    keys = (f"{command} {option}", option) if name else (command,)
    instead = next((REMOVED[key] for key in keys if key in REMOVED), "")
    if name and name != option and instead.startswith("Use "):
        instead = re.sub(r"--([\w-]+)", lambda found: found[1].replace("-", "_"), instead)
    return f"{name or command} is gone. {instead}" if instead else ""


def meant(given: str, known: Collection[str]) -> str | None:
    """The known name that was probably meant; words are joined with underscores.

    >>> known = ["epsilon", "max_epsilon", "q", "confidence_level"]
    >>> meant("epsilonn", known), meant("quantile", known), meant("alpha", known), meant("zebra", known)
    ('epsilon', 'q', 'confidence_level', None)
    """
    name = given.lower().replace("-", "_")
    if OTHER_NAMES.get(name) in known:
        return OTHER_NAMES[name]
    near = get_close_matches(name, known, n=1)
    begun = [one for one in known if len(name) > 2 and one.startswith(name)]
    return near[0] if near else begun[0] if len(begun) == 1 else None


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
