"""A client for programs: answers a survey for one person, with one bit, exactly once.

The same protocol as the page (openapi.json), the same rules: the question is fetched only to be answered, the coin
comes from the operating system and from nowhere else, the bit is on the disk before it is sent, a repeat sends the same
bit, and no reply of a server makes the device draw a second coin for the same survey or the same code.

What a program's device remembers: one answer per survey and per code, on the disk before it is sent.

The browser's page keeps the same in IndexedDB. Whoever restores an older copy of this file makes the device forget.
"""

import contextlib
import http.client
import json
import math
import numbers
import os
import re
import secrets
import socket
import sqlite3
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from privatile.client.randomizer import OperatingSystemCoins
from privatile.core.decoding import json_value
from privatile.core.kinds import WEAK_EPSILON
from privatile.core.mechanism import COINS, RandomizedResponse
from privatile.errors import AlreadyAnswered, DataError, InputError, ProtocolError, StoreError
from privatile.survey.study import CODE, LATEST_ROUND, survey_address

Outcome = Literal["counted", "late"]

TABLES = """
CREATE TABLE IF NOT EXISTS answers (
  survey TEXT PRIMARY KEY, code TEXT NOT NULL UNIQUE, address TEXT NOT NULL, round INTEGER NOT NULL,
  query TEXT NOT NULL, threshold TEXT NOT NULL, answer INTEGER NOT NULL, outcome TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS asked (code TEXT PRIMARY KEY) STRICT;
"""

FIELDS = "survey, code, address, round, query, threshold, answer, outcome"


class StoredAnswer(NamedTuple):
    """The one bit of a survey. The value that it came from is stored nowhere."""

    survey: str
    code: str
    address: str
    round: int
    query: str
    threshold: str
    answer: bool
    outcome: Outcome | None = None
    """None until the survey has said what became of it."""


class AnswerFile:
    """An SQLite file; its writers wait for each other."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Use `open`."""
        self._file = connection

    @classmethod
    @contextmanager
    def open(cls, path: str | Path) -> Iterator[Self]:
        """The file of a device, made where there is none; closed at the end."""
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            # Resolved: ":memory:" would be a device without a memory.
            connection = sqlite3.connect(Path(path).resolve(), timeout=60.0, isolation_level=None)
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(TABLES)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"{path}: the file of answers cannot be used ({error}). Without it nothing is answered: a device that "
                "cannot remember its answer might give a second one. Give a path that can be written."
            ) from None
        with contextlib.closing(connection):
            yield cls(connection)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Until the end nobody else writes; then everything is on the disk, or nothing where an error came."""
        self._file.execute("BEGIN IMMEDIATE")
        with self._file:
            yield

    def find(self, survey: str, code: str) -> StoredAnswer | None:
        """The answer that was drawn for this survey or with this code."""
        found = f"SELECT {FIELDS} FROM answers WHERE survey = ? OR code = ?"
        row = self._file.execute(found, (survey, code)).fetchone()
        return None if row is None else StoredAnswer._make(row)._replace(answer=bool(row[6]))

    def has_answered_at(self, address: str) -> bool:
        """Whether some answer was drawn for a survey at this address."""
        return self._file.execute("SELECT 1 FROM answers WHERE address = ?", (address,)).fetchone() is not None

    def add(self, answer: StoredAnswer) -> None:
        """Store a new answer; there can be one per survey and per code only."""
        self._file.execute(f"INSERT INTO answers ({FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", answer)

    def settle(self, survey: str, outcome: Outcome) -> None:
        """Store what became of an answer."""
        self._file.execute("UPDATE answers SET outcome = ? WHERE survey = ?", (outcome, survey))

    def has_asked(self, code: str) -> bool:
        """Whether this device itself has fetched a question with the code."""
        return self._file.execute("SELECT 1 FROM asked WHERE code = ?", (code,)).fetchone() is not None

    def remember_asking(self, code: str) -> None:
        """Store that it has."""
        self._file.execute("INSERT OR IGNORE INTO asked VALUES (?)", (code,))


QUERY = re.compile(r"-?\d{1,400}(\.\d{1,400})?(e[-+]?\d{1,3})?", re.IGNORECASE | re.ASCII)
THRESHOLD = re.compile(r"\d{19,20}", re.ASCII)
WEAKEST = RandomizedResponse.from_epsilon(WEAK_EPSILON).threshold

ROUNDING = 1 << 20
"""By which thresholds of the same epsilon may differ between machines that round otherwise."""

BETWEEN = 1e-6
"""Steps by which a multiple of a step may be off: doubles round, 0.1 is none of theirs."""

MAX_REPLY = 1 << 16
REQUEST_SECONDS = 20.0
FIRST_CONTACT = 5.0
"""Seconds to wait for somebody who listens, where this device has fetched no question with the code yet."""

SAME_LENGTH = 120
"""Bytes of a request: a yes is as long as a no."""

REFUSALS = {
    404: "this survey does not know the code: check the link.",
    409: "the code has been used already, and not by this device.",
    410: "the survey is closed.",
}


class SentAnswer(NamedTuple):
    """What left the device, and what became of it."""

    answer: bool
    """The randomized bit: the opposite of the truth in `lies_per_100` of 100 cases."""
    query: float
    """The question was: is the value above this?"""
    lies_per_100: float
    outcome: Outcome
    """`counted`, or `late`: spent and not counted."""


class SurveyClient:
    """A survey at an address, answered from this device; `store` is the file in which it remembers that it has.

    `epsilon` is the largest privacy budget that the person spends, as they were told it: a survey that asks
    for more gets nothing, since a dishonest one could ask this device alone for nearly the truth. `cafile` names a
    certificate to trust besides the system's; every connection is checked, and http is refused outside this machine.
    """

    def __init__(self, address: str, store: str | Path, *, epsilon: float, cafile: str | Path | None = None) -> None:
        self._address = survey_address(address)
        self._store = store
        self._visit = secrets.token_hex(8)  # where a reply is lost the survey knows this client again
        self._weakest = min(RandomizedResponse.from_epsilon(epsilon).threshold + ROUNDING, WEAKEST)
        context = ssl.create_default_context()
        if cafile is not None:
            context.load_verify_locations(cafile)
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects())

    def answer(self, code: str, value: float, *, confirmed: bool = False, patience: float = 120.0) -> SentAnswer:
        """Answer with a code, or send the answer again that was drawn before.

        Where the survey cannot be reached within `patience` seconds a ConnectionError ends it. Then call it again: the
        bit, once drawn, stays the same. Where nobody listens at the address at all, and no question was fetched with
        the code before, it ends after a few seconds: no coin is drawn before the question was fetched.

        `confirmed` says that the person has not answered elsewhere; it is needed where the question was handed out
        before, or where this device has answered another survey at this address.
        """
        if not CODE.fullmatch(code):
            raise InputError("a code has 22 letters, digits, - and _; what was given does not look like one.")
        given: object = value
        if isinstance(given, bool) or not isinstance(given, numbers.Real):
            raise InputError(f"the value must be a number; got one of type {type(value).__name__}. Give 12, not '12'.")
        if math.isnan(value):
            raise DataError("the value is missing: a person without one does not answer.")
        deadline = time.monotonic() + patience
        with AnswerFile.open(self._store) as file:
            # A bit may have been drawn with a code that was used here before: it is delivered with all patience.
            contact = math.inf if file.has_asked(code) else time.monotonic() + FIRST_CONTACT
            survey, mechanism, step = self._settings(deadline, contact)
            stored = file.find(survey, code)
            if stored is None:
                if step and not (math.isfinite(value) and abs(math.remainder(value, step)) <= BETWEEN * step):
                    raise DataError(f"this survey takes multiples of {step:g} only, and the value is none.")
                stored = self._draw(file, survey, mechanism, code, float(value), confirmed, deadline)
            if stored.code != code:
                raise AlreadyAnswered(
                    "this device has answered this survey with another code; it never answers a second time."
                )
            return self._deliver(file, stored, deadline)

    def _settings(self, deadline: float, contact: float) -> tuple[str, RandomizedResponse, float]:
        facts = self._request(
            "survey.json", None, deadline, lambda reply: isinstance(reply.get("survey"), str), contact
        )
        mechanism = read_threshold(facts.get("threshold"))
        if mechanism.threshold > self._weakest:
            most = RandomizedResponse.from_threshold(self._weakest).epsilon
            raise ProtocolError(
                f"the survey asks for an answer at epsilon {mechanism.epsilon:.4g}, and this device was told to spend "
                f"at most {most:.4g}. Nothing was sent. If the person agrees to that, give it as epsilon."
            )
        step = facts.get("step")
        return facts["survey"], mechanism, step if isinstance(step, int | float) and 0 < step < math.inf else 0.0

    def _draw(
        self,
        file: AnswerFile,
        survey: str,
        mechanism: RandomizedResponse,
        code: str,
        value: float,
        confirmed: bool,
        deadline: float,
    ) -> StoredAnswer:
        """Fetch the question, draw the one coin and store the bit."""
        self._check_other(file, confirmed)
        question = self._request(
            "question",
            {"code": code, "visit": self._visit},
            deadline,
            lambda reply: reply.get("survey") == survey and _is_round(reply.get("round")) and _is_query(reply),
        )
        if question.get("handed_before") and not confirmed and not file.has_asked(code):
            raise AlreadyAnswered(
                "the question for this code was fetched before, perhaps by another device; a second answer would "
                "reveal more about the person. If the person has not answered, say so with confirmed=True."
            )
        file.remember_asking(code)
        with file.alone():
            if stored := file.find(survey, code):
                return stored
            self._check_other(file, confirmed)  # another process may have answered meanwhile
            coin = int(OperatingSystemCoins().draw(1)[0])
            answer = randomized(value > float(question["query"]), coin, mechanism)
            query, threshold = question["query"], str(mechanism.threshold)
            stored = StoredAnswer(survey, code, self._address, question["round"], query, threshold, answer)
            file.add(stored)
        return stored

    def _check_other(self, file: AnswerFile, confirmed: bool) -> None:
        if not confirmed and file.has_answered_at(self._address):
            raise AlreadyAnswered(
                "this device has answered another survey at this address, and it may be the same one by another name. "
                "If the person has not answered this one, say so with confirmed=True."
            )

    def _deliver(self, file: AnswerFile, stored: StoredAnswer, deadline: float) -> SentAnswer:
        outcome = stored.outcome
        if outcome is None:
            body = {"code": stored.code, "round": stored.round, "answer": stored.answer}
            reply = self._request("answer", body, deadline, lambda reply: isinstance(reply.get("counted"), bool))
            outcome = "counted" if reply["counted"] else "late"
            file.settle(stored.survey, outcome)
        lies = 100.0 * (COINS - int(stored.threshold)) / COINS
        return SentAnswer(stored.answer, float(stored.query), lies, outcome)

    def _request(
        self,
        path: str,
        body: dict[str, Any] | None,
        deadline: float,
        is_readable: Callable[[dict[str, Any]], bool],
        contact: float = math.inf,
    ) -> dict[str, Any]:
        """A request, repeated as it is until the survey says something final; until `contact` somebody must listen."""
        data = None if body is None else json.dumps(body).encode().ljust(SAME_LENGTH)
        pause = 1.0
        while True:
            request = urllib.request.Request(self._address + path, data, {"Content-Type": "application/json"})
            wait, trouble, nobody = pause, "its reply cannot be read", False
            try:
                with self._opener.open(request, timeout=REQUEST_SECONDS) as reply:
                    text, until = b"", max(deadline, time.monotonic() + REQUEST_SECONDS)
                    # Byte by byte a server could hold this device for ever.
                    while time.monotonic() < until and (piece := reply.read1(MAX_REPLY - len(text))):
                        text += piece
                with contextlib.suppress(ValueError, RecursionError):
                    content = json_value(text)
                    if isinstance(content, dict) and is_readable(content):
                        return content
            except urllib.error.HTTPError as error:
                trouble = f"status {error.code}"
                if error.code in (408, 429, 503):
                    wait = _seconds(error.headers.get("Retry-After")) or pause
                elif error.code < 500:
                    raise ProtocolError(REFUSALS.get(error.code, f"the survey refuses: {trouble}.")) from None
            except http.client.HTTPException:
                pass  # no HTTP, or cut off
            except OSError as error:
                reason = getattr(error, "reason", error)
                if isinstance(reason, ssl.SSLCertVerificationError):
                    raise ConnectionError(
                        f"the certificate of {self._address} is not trusted ({reason.verify_message}). If it is the "
                        "survey's own, name the file of its authority as cafile; nothing was sent."
                    ) from None
                trouble = str(reason)
                nobody = isinstance(reason, ConnectionRefusedError | socket.gaierror)
            contact = contact if nobody else math.inf  # somebody is there
            if contact < math.inf and time.monotonic() + wait > min(contact, deadline):
                raise ConnectionError(
                    f"nobody listens at {self._address} ({trouble}): nothing was sent, and no coin was drawn. Check "
                    "the address, and that the survey is served (`privatile survey serve`), then call this again."
                )
            if time.monotonic() + wait > deadline:
                raise ConnectionError(
                    f"the survey at {self._address} gives no answer ({trouble}). Try again later: a bit that has been "
                    "drawn stays the same."
                )
            time.sleep(wait)
            pause = min(2.0 * pause, 30.0)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A code goes to the address that it was given for, and to no other."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


def read_threshold(text: object) -> RandomizedResponse:
    """The mechanism of a survey; refused where an answer would hide too little.

    >>> round(read_threshold("13485650502877570762").epsilon, 6)
    1.0
    >>> read_threshold("18446744073709551616")
    Traceback (most recent call last):
    ...
    privatile.errors.ProtocolError: the survey's threshold must be a whole number above 2^63 and at most
    18445906630844105940 (epsilon 10): beyond it an answer hides too little, and this device sends none.
    """
    if isinstance(text, str) and THRESHOLD.fullmatch(text) and COINS // 2 < int(text) <= WEAKEST:
        return RandomizedResponse.from_threshold(int(text))
    raise ProtocolError(
        f"the survey's threshold must be a whole number above 2^63 and at most {WEAKEST} (epsilon {WEAK_EPSILON:g}): "
        "beyond it an answer hides too little, and this device sends none."
    )


def randomized(truth: bool, coin: int, mechanism: RandomizedResponse) -> bool:
    """One report: the truth where the coin falls below the threshold.

    >>> [randomized(True, coin, RandomizedResponse(0.5)) for coin in (0, 2**64 - 1)]
    [True, False]
    """
    (report,) = mechanism.respond(np.array([truth]), np.array([coin], dtype=np.uint64)).tolist()
    return bool(report)


def _is_round(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 1 <= number < LATEST_ROUND


def _is_query(reply: dict[str, Any]) -> bool:
    text = reply.get("query")
    return isinstance(text, str) and QUERY.fullmatch(text) is not None and math.isfinite(float(text))


def _seconds(text: str | None) -> float:
    """A Retry-After header in seconds, at most a minute; 0 where there is none."""
    return min(float(text), 60.0) if text is not None and re.fullmatch(r"\d{1,6}", text) else 0.0
