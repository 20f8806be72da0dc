"""The study file of a survey, and what gateway, clients and links agree on.

What the gateway, its clients and its links agree on: a code, a round's number, an address.

The study file of a survey: everything public about it. One TOML file, checked whole, hashed once.

What is asked, how private an answer is, how much every stratum counts and when the survey ends are fixed before the
first code is given away. The digest of the canonical text names the study; the release record holds it.
"""

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta

from privatile.core.decoding import BrokenRules, Document, Place, read_toml
from privatile.core.kinds import CONFIDENCE, STRONGEST_EPSILON, WEAK_EPSILON, checked, declaration
from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import check_range, make_scale
from privatile.core.text import Hashed, client_name, short
from privatile.errors import InputError
from privatile.estimator.clients import ROUNDED, UNITY, shares
from privatile.estimator.open_ended import MIN_ROUND_LENGTH, answers_before_interval, seconds_of
from privatile.run.rounds import ROUND_LENGTH
from privatile.run.web import is_loopback

CODE = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")
"""16 bytes in base64url without padding: the last character has two bits."""

LATEST_ROUND = 1 << 53
"""Beyond this JavaScript has no whole numbers."""


def survey_address(text: str) -> str:
    """The address below which a survey is served: https (on this machine also http), with a slash at the end.

    >>> survey_address("https://survey.example.org")
    'https://survey.example.org/'
    >>> survey_address("http://survey.example.org/")
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: the survey's address must begin with https://, since browsers answer only over a secure
    connection; got 'http://survey.example.org/'.
    """
    parts = urlsplit(text)
    if not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))):
        raise InputError(
            "the survey's address must begin with https://, since browsers answer only over a secure "
            f"connection; got {short(text)}."
        )
    if not parts.hostname or parts.query or parts.fragment or parts.username:
        raise InputError(
            f"the survey's address must be https://HOST/ or https://HOST/FOLDER/ and no more; got {short(text)}."
        )
    return text if text.endswith("/") else text + "/"


def link(address: str, code: str, epsilon: float) -> str:
    """The link of one person, with the privacy budget that the person was told: the page refuses to spend more.

    >>> link("https://survey.example.org/", "AAAAAAAAAAAAAAAAAAAAAA", 1.0)
    'https://survey.example.org/#c=AAAAAAAAAAAAAAAAAAAAAA&e=1'
    """
    return f"{survey_address(address)}#c={code}&e={epsilon:.12g}"


IDENTITY = re.compile(r"[0-9a-f]{12}")
"""A survey's own mark: 48 random bits. A device stores its answer under it."""

LANGUAGE = re.compile(r"[a-z]{2}(-[A-Z]{2})?")
HASH = re.compile(r"[0-9a-f]{64}")

UNSTATED = "not stated"
"""What `asked_by` says where nobody has said who asks."""

MAX_CODES = 10_000_000
MAX_STRATA = 1_000
MAX_TEXT = 500
"""Characters of a text that the page shows."""

FORMULA = re.compile(r"""(?:^|[,;|])[\s"]*[=+\-@]""")
"""What a spreadsheet takes for a formula, in a cell of its own too where it divides cells at another sign."""
NO_FORMULA = (
    "must not have = + - or @, of whatever width, at its beginning or after a comma, a semicolon or |: a spreadsheet "
    "that opens links.csv would take it for a formula."
)

MAX_ROUND_SECONDS = 366 * 86_400.0
MAX_GRACE = 3_600.0


@dataclass(frozen=True)
class Stratum:
    """A group of people with codes of its own: one client of the run."""

    codes: int
    """Codes issued."""
    weight: float = 0.0
    """Share in the estimand, fixed beforehand; 0: by the codes issued, never by who comes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", float(self.weight))


@dataclass(frozen=True)
class SurveyStudy(Hashed):
    """A validated survey. `digest` is what everybody means by "the same survey".

    >>> study = SurveyStudy("0123456789ab", "What we earn", "monthly salary", "€", 1.0, (0, 20_000),
    ...                     strata={"all": Stratum(2_000)})
    >>> study.strata["all"].weight, study.round_answers, study.lies_per_100, len(study.digest)
    (1.0, 0, 27, 64)
    >>> SurveyStudy.from_dict(study.to_dict()) == study
    True
    """

    survey: str
    title: str
    value: str
    """In words, what people are asked for."""
    unit: str
    epsilon: Annotated[
        float,
        Meta(
            description="a finite number, the privacy budget of each person, chosen by people, never by default: 1 is "
            "a common choice, 0.5 to 2 the usual range"
        ),
    ]
    range: tuple[float, float]
    level: float = 0.5
    scale: str = "linear"
    confidence_level: float = 0.95
    value_kind: str = "any"
    asked_by: str = UNSTATED
    round_answers: int = 0
    """Answers after which a round hands out its question no more; 0: as many as `round_length` says."""
    round_seconds: float = 0.0
    """Seconds after which it hands it out no more, once somebody has answered; 0: only the number counts."""
    grace: float = 5.0
    """Seconds that a round then still waits for answers to questions that were handed out."""
    end_date: str = ""
    """Date or moment (ISO 8601; a moment without a zone is UTC) at which the survey ends; empty: none."""
    end_answers: int = 0
    """Counted answers after which it ends; 0: none."""
    end_width: float = 0.0
    """Width of the interval, in units, at which it ends; 0: none."""
    address: str = ""
    """Where people find the survey; the gateway answers to this name."""
    languages: tuple[str, ...] = ("en",)
    page_sha256: str = ""
    """The hash of the answering page and its script."""
    strata: Mapping[str, Stratum] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("epsilon", "level", "confidence_level", "round_seconds", "grace", "end_width"):
            object.__setattr__(self, key, float(getattr(self, key)))
        object.__setattr__(self, "range", (float(self.range[0]), float(self.range[1])))
        object.__setattr__(self, "languages", tuple(self.languages))
        if broken := list(_broken_rules(self)):
            raise BrokenRules(broken)
        weights = {name: stratum.weight for name, stratum in self.strata.items()}
        if not any(weights.values()):
            weights = {name: stratum.codes / self.codes for name, stratum in self.strata.items()}
        if abs(math.fsum(weights.values()) - 1.0) > UNITY:  # written ones; ours are read back as they are
            weights = shares(weights)
        # In one order, whatever that of the file: codes name their stratum by its place, and the digest sees no order.
        strata = {name: Stratum(self.strata[name].codes, weights[name]) for name in sorted(weights)}
        object.__setattr__(self, "strata", strata)

    @property
    def codes(self) -> int:
        """Codes issued, over all strata."""
        return sum(stratum.codes for stratum in self.strata.values())

    @cached_property
    def mechanism(self) -> RandomizedResponse:
        """Randomized response with everybody's budget."""
        return RandomizedResponse.from_epsilon(self.epsilon)

    @property
    def lies_per_100(self) -> int:
        """How often in 100 times a device says the opposite of the truth, rounded."""
        return round(50.0 * (1.0 - self.mechanism.truth_rate))

    @property
    def first_interval_after(self) -> int:
        """About how many answers it takes until there is an interval; without one there is no result."""
        length = self.round_answers or MIN_ROUND_LENGTH
        return answers_before_interval(self.mechanism.truth_rate, self.level, length)

    @property
    def most_answers(self) -> int:
        """How many answers it can have: one per code, and none after its end."""
        return min(self.codes, self.end_answers or self.codes)

    @cached_property
    def ends_at(self) -> float:
        """When the survey ends, in seconds since 1970; infinity without a date."""
        return seconds_of(self.end_date) if self.end_date else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in the order of the file."""
        plain: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            plain[item.name] = list(value) if isinstance(value, tuple) else value
        plain["strata"] = {name: {"codes": one.codes, "weight": one.weight} for name, one in self.strata.items()}
        return plain

    @property
    def run(self) -> str:
        """The name of the one run that this survey has."""
        return f"{self.survey}-{self.digest[:16]}"

    @classmethod
    def from_dict(cls, table: object) -> "SurveyStudy":
        """Read plain values; every broken rule is reported at once."""
        if not isinstance(table, Mapping):
            raise InputError("a survey's study must be a table of settings.")
        document = Document(table, "the survey's study")
        return document.finish(document.decode(cls))

    @classmethod
    def load(cls, path: Path) -> "SurveyStudy":
        """Read a study file; all errors at once, each with its line."""
        if not path.exists():
            raise InputError(f"{path}: there is no survey here. Make one with: privatile survey init")
        document = read_toml(path)
        return document.finish(document.decode(cls))


def _has_formula(text: str) -> bool:
    """Whether a text, its full-width signs read as the plain ones, has a formula for some spreadsheet."""
    return FORMULA.search(unicodedata.normalize("NFKC", text)) is not None


def _check_date(text: str) -> None:
    try:
        seconds_of(text)
    except (ValueError, OverflowError):
        raise InputError(f"must be a date such as 2027-01-31, or 2027-01-31T18:00Z; got {text!r:.40}.") from None


def _broken_rules(study: SurveyStudy) -> Iterator[tuple[Place, str]]:
    """Every rule that a study breaks, each with the place of the setting."""
    if not IDENTITY.fullmatch(study.survey):
        yield ("survey",), "must be 12 digits of 0-9 and a-f, as `privatile survey init` makes them."
    for name in ("title", "value", "unit", "asked_by"):
        text = getattr(study, name)
        if not text.isprintable() or len(text) > MAX_TEXT or not (text.strip() or name == "unit"):
            yield (name,), f"must be one line of 1 to {MAX_TEXT} printable characters."
    for name in ("title", "address"):
        if _has_formula(getattr(study, name)):
            yield (name,), NO_FORMULA
    epsilon = study.epsilon
    if not STRONGEST_EPSILON <= epsilon <= WEAK_EPSILON:
        rule = f"must lie in [{STRONGEST_EPSILON:g}, {WEAK_EPSILON:g}]; got {epsilon}."
        truth = "Above that nearly every answer is the truth, and no page of a survey asks so."
        yield ("epsilon",), f"{rule} {truth if epsilon > WEAK_EPSILON else 'Below that an answer says nothing.'}"
    if not 0.0 < study.level < 1.0:
        yield ("level",), f"must lie inside (0, 1); got {study.level}. The median is 0.5."
    place = "range"
    try:
        check_range(*study.range)
        place = "scale"
        make_scale(study.scale, *study.range)
    except InputError as error:
        yield (place,), str(error).removeprefix("range ")
    for place, check in (
        ("confidence_level", lambda: checked("confidence_level", CONFIDENCE, study.confidence_level)),
        ("value_kind", lambda: declaration(study.value_kind)),
        ("address", lambda: survey_address(study.address) if study.address else None),
        ("end_date", lambda: _check_date(study.end_date) if study.end_date else None),
    ):
        try:
            check()
        except InputError as error:
            yield (place,), str(error)
    for name, least, most in (
        ("round_answers", 0, MAX_CODES),
        ("end_answers", 0, MAX_CODES),
        ("round_seconds", 0.0, MAX_ROUND_SECONDS),
        ("grace", 0.0, MAX_GRACE),
        ("end_width", 0.0, math.inf),
    ):
        number = getattr(study, name)
        if not (math.isfinite(number) and least <= number <= most):
            yield (name,), f"must lie in {least:g} to {most:,g}; got {short(number)}."
    if not study.languages or len(set(study.languages)) < len(study.languages):
        yield ("languages",), "must name at least one language, each once."
    yield from (
        (("languages",), f"{name!r:.20} is no language: write en, de or pt-BR.")
        for name in study.languages
        if not LANGUAGE.fullmatch(name)
    )
    if study.page_sha256 and not HASH.fullmatch(study.page_sha256):
        yield ("page_sha256",), "must be 64 digits of 0-9 and a-f."
    yield from _broken_strata(study.strata)


def _broken_strata(strata: Mapping[str, Stratum]) -> Iterator[tuple[Place, str]]:
    if not 1 <= len(strata) <= MAX_STRATA:
        yield ("strata",), f"a survey has 1 to {MAX_STRATA:,} strata; this one has {len(strata):,}."
        return
    for name, stratum in strata.items():
        if name != client_name(name) or not name.isprintable() or not 1 <= len(name) <= 60:
            yield ("strata", name), "a stratum's name has 1 to 60 printable characters, none of them blank at its ends."
        if _has_formula(name):
            yield ("strata", name), NO_FORMULA
        if not 1 <= stratum.codes <= MAX_CODES:
            yield ("strata", name, "codes"), f"must lie in 1 to {MAX_CODES:,}; got {short(stratum.codes)}."
        if not (math.isfinite(stratum.weight) and stratum.weight >= 0.0):
            yield ("strata", name, "weight"), f"must be a share above 0; got {stratum.weight}."
    if (codes := sum(one.codes for one in strata.values())) > MAX_CODES:
        yield ("strata",), f"a survey has at most {MAX_CODES:,} codes; this one has {codes:,}."
    weights = [one.weight for one in strata.values()]
    if any(weights) and not all(weights):
        yield ("strata",), "give every stratum a weight, or none: without weights each counts by its codes."
    elif any(weights) and abs((total := math.fsum(weights)) - 1.0) > ROUNDED * len(weights):
        yield ("strata",), f"weights must sum to 1; they sum to {total:.12g}. Divide each by {total:.12g}."


REMARKS = {
    "survey": "  # this survey's own mark; do not change",
    "value": "  # in words, what people are asked for",
    "epsilon": "  # the privacy budget of each person",
    "level": "  # 0.5 is the median",
    "scale": "  # linear, log or logit between the ends of the range, or identity",
    "value_kind": "  # any; continuous; whole or step=NUMBER where every value is a multiple of it",
    "round_answers": f"  # answers after which a round ends (0: {ROUND_LENGTH}), …",
    "round_seconds": "  # … or seconds, once somebody has answered; 0: only the number counts",
    "grace": "  # seconds that a round waits for answers that are under way",
    "end_date": "  # the survey ends at this date, …",
    "end_answers": "  # … after so many counted answers, …",
    "end_width": "  # … or when the interval is so narrow, in units; all empty: by command",
    "address": "  # where people find it; it is in the links",
    "page_sha256": "  # the hash of the answering page",
}


def study_toml(study: SurveyStudy) -> str:
    """The study as a commented TOML file; `SurveyStudy.load` reads back an equal study."""
    lines = [
        "# Everything public about this survey. No edit once a code has been given away: the codes belong to it.",
        "",
    ]
    for name, value in study.to_dict().items():
        if name != "strata":
            lines.append(f"{name} = {json.dumps(value, ensure_ascii=False, allow_nan=False)}{REMARKS.get(name, '')}")
    for name, stratum in study.strata.items():
        lines += ["", f"[strata.{json.dumps(name, ensure_ascii=False)}]"]
        lines += [f"codes = {stratum.codes}", f"weight = {json.dumps(stratum.weight)}"]
    return "\n".join(lines) + "\n"
