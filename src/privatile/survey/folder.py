"""A survey's folder: the study, the two databases, one-time codes and secrets.

A code has 128 bits from the operating system: the right of one person to answer once. It travels in the fragment of a
link, which browsers do not send, and in the body of a request. The server keeps its SHA-256 only: 2¹²⁸ codes cannot be
tried, so a plain hash is as good as a slow one.

survey.toml       the study: everything public
survey.db         codes by their hashes, counts of the open round (private; 0600)
run.db            questions and counts of closed rounds (public)
codes.csv         the codes, for whoever gives them away (0600); delete it once they are given away
links.csv         the same as full links, for a mail merge (0600)
sheet.html        the same as QR codes to cut out (0600)
token.sha256      the hash of the organiser's token
organiser.key     signs the release record (0600)
"""

import csv
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from privatile.errors import InputError
from privatile.records.keys import KeyPair, read_key
from privatile.run.files import replace_file, write_private
from privatile.survey.run import run_spec
from privatile.survey.sheets import csv_table, mail_merge, sheet
from privatile.survey.store import SurveyStore
from privatile.survey.study import SurveyStudy, study_toml


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


def read_codes(path: str | Path) -> list[IssuedCode]:
    """Read the codes that `initialize` wrote."""
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            return [IssuedCode(row["stratum"], int(row["number"]), row["code"]) for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError):
        raise InputError(f"{path}: these are no codes of a survey. Give the file that `survey init` wrote.") from None


MAX_CARDS = 2_000
"""Codes for which a sheet is drawn, some 5 ms each: more are not cut out by hand."""


class SurveyFolder:
    """Where everything of one survey lies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.study_file = path / "survey.toml"
        self.store_file = path / "survey.db"
        self.run_file = path / "run.db"
        self.codes_file = path / "codes.csv"
        self.links_file = path / "links.csv"
        self.sheet_file = path / "sheet.html"
        self.token_file = path / "token.sha256"
        self.key_file = path / "organiser.key"
        self.pid_file = path / "gateway.pid"
        """Locked by the gateway while it runs."""
        self.trial = path / "trial"
        """A certificate for trying things on this machine."""
        self.close_request = path / "close.request"
        """Whoever makes this file asks the gateway to end the survey after the open round."""

    def study(self) -> SurveyStudy:
        """The study."""
        return SurveyStudy.load(self.study_file)

    def key(self) -> KeyPair:
        """The organiser's key."""
        if not self.key_file.exists():
            raise InputError(
                f"{self.key_file}: the survey's key is not here. Put it back from a copy; no other key can sign this "
                "survey's record."
            )
        return read_key(self.key_file)

    def opens_with(self, token: str) -> bool:
        """Whether this is the organiser's token."""
        try:
            known = self.token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return False
        return hmac.compare_digest(hashlib.sha256(token.encode()).hexdigest(), known)


def new_survey() -> str:
    """A survey's own mark."""
    return secrets.token_hex(6)


def initialize(folder: SurveyFolder, study: SurveyStudy, *, draw_sheet: bool = True) -> str:
    """Write a new survey; gives the organiser's token, which is kept nowhere."""
    run_spec(study)  # what a run refuses is refused before anything is written
    if folder.path.exists() and any(folder.path.iterdir()):
        raise InputError(f"{folder.path} is not empty. Name a new folder for the survey.")
    folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    token = secrets.token_urlsafe(24)
    issued = [
        IssuedCode(name, number, new_code())
        for name, stratum in study.strata.items()
        for number in range(1, stratum.codes + 1)
    ]
    places = {name: place for place, name in enumerate(study.strata)}
    write_private(folder.codes_file, csv_table(IssuedCode._fields, issued).encode())
    cards = [(one.code, one.stratum) for one in issued]
    write_private(folder.links_file, mail_merge(study, cards).encode())
    if draw_sheet and len(cards) <= MAX_CARDS:
        write_private(folder.sheet_file, sheet(study, cards).encode())
    write_private(folder.key_file, KeyPair.generate().seed.encode())
    write_private(folder.token_file, hashlib.sha256(token.encode()).hexdigest().encode() + b"\n")
    replace_file(folder.study_file, study_toml(study))
    hashes = ((code_hash(one.code), places[one.stratum]) for one in issued)
    SurveyStore.create(folder.store_file, study.digest, len(places), hashes)
    return token


def parse_strata(given: Sequence[str], codes: int | None) -> dict[str, int]:
    """`NAME=N` for each stratum, or one number for all.

    >>> parse_strata(["north=10", "south=20"], None), parse_strata([], 5)
    ({'north': 10, 'south': 20}, {'all': 5})
    """
    if bool(given) == (codes is not None):
        raise InputError("say how many codes there are, in one way: --codes N, or --stratum NAME=N for each stratum.")
    if codes is not None:
        return {"all": codes}
    found: dict[str, int] = {}
    for entry in given:
        name, equals, number = entry.rpartition("=")
        if not equals or not name or not number.isdecimal():
            raise InputError(f"--stratum takes NAME=NUMBER OF CODES; got {entry!r:.60}.")
        if name in found:
            raise InputError(f"--stratum names {name!r:.60} more than once.")
        found[name] = int(number)
    return found
