"""Invitations and enrolments: the two files that people send each other. Neither holds a secret.

invitation   organizer -> site: the study, where the broker is, whom to trust
enrolment    site -> organizer: the site's public keys, signed by them
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from privatile.client.order.weights import WIDEST
from privatile.core.kinds import WEAK_EPSILON, declaration
from privatile.core.messages import Missing
from privatile.core.text import READS_EARLIER_FORMATS, counted, listed
from privatile.errors import InputError
from privatile.estimator.clients import UNITY
from privatile.estimator.schedule import Mode
from privatile.federation.study import ClientAgreement, FederationStudy
from privatile.federation.wire import NAME
from privatile.records.keys import KeyPair, PublicKeys, verify
from privatile.run.certificates import certificate_fingerprint, parse_certificate
from privatile.run.files import read_json, write_json
from privatile.run.rounds import ROUND_LENGTH

InvitationFormat = Literal[3]
INVITATION: InvitationFormat = 3
"""3: of a federation whose answers have a length per level, and positions as pairs."""

EnrolmentFormat = Literal[1]
ENROLMENT: EnrolmentFormat = 1
"""A file of another version is refused."""


def check_url(url: str) -> str:
    """Refuse what is not a broker's address: tls://host:port.

    >>> check_url("tls://broker.example:4222")
    'tls://broker.example:4222'
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme == "tls" and bool(parts.hostname) and parts.port is not None
        good = good and not (parts.username or parts.password or parts.path.strip("/"))
    except ValueError:
        good = False
    if not good:
        raise InputError(f"a broker's address has the form tls://host:port; got {url!r:.80}.")
    return url


class _InvitationFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An invitation's fields, in the order of the file."""

    privatile_invitation: InvitationFormat
    client: str
    study: dict[str, Any]
    study_hash: str
    brokers: tuple[str, ...]
    authority: str
    coordinator: PublicKeys


@dataclass(frozen=True)
class Invitation:
    """All that a site needs to take part, and nothing secret."""

    client: str
    study: FederationStudy
    brokers: tuple[str, ...]
    authority: str
    """The certificate authority of the broker, PEM."""
    coordinator: PublicKeys

    def __post_init__(self) -> None:
        if self.client not in self.study.clients:
            raise InputError(f"the study has no client named {self.client!r:.60}.")
        if not self.brokers:
            raise InputError("an invitation names at least one broker.")
        for url in self.brokers:
            check_url(url)
        parse_certificate(self.authority.encode())

    @property
    def asked_by(self) -> tuple[str, str]:
        """Who asks, in a word and by its fingerprint."""
        return "coordinator", self.coordinator.fingerprint

    def rows(self) -> list[tuple[str, str]]:
        """What a site must know before it agrees, line by line: every field of the study."""
        study, count = self.study, len(self.study.clients)
        silence = (
            "silence",
            f"a round waits {study.deadline:g} seconds, or for {study.quorum} of {count} answers; after "
            f"{study.patience} silent rounds of one client the run pauses",
        )
        return [
            *study_rows(study, self.client),
            *([] if study.is_open else [silence]),
            ("published", f"the estimate, its {100 * study.confidence_level:g}% intervals, and every count"),
            ("study hash", study.digest),
            ("coordinator", self.coordinator.fingerprint),
            ("broker", ", ".join(self.brokers)),
            ("broker's authority", certificate_fingerprint(self.authority.encode())),
        ]

    def write(self, path: Path) -> None:
        """Write the file that is sent to the site."""
        path.parent.mkdir(parents=True, exist_ok=True)
        study = self.study
        fields = (self.client, study.to_dict(), study.digest, self.brokers, self.authority, self.coordinator)
        write_json(path, _InvitationFile(INVITATION, *fields))


def study_rows(study: FederationStudy, client: str) -> list[tuple[str, str]]:
    """What a study asks of one of its clients, whoever asks it."""
    agreement = study.clients[client]
    others = [name for name in study.clients if name != client]
    low, high = study.range
    weak = (
        f"; an epsilon above {WEAK_EPSILON:g}, which protects next to nothing, is allowed" if study.allow_weak else ""
    )
    return [
        ("study", f"{study.title} (federation {study.identity})"),
        ("asked by", study.asked_by),
        ("value", study.value),
        ("question", f"are you above q? q within {low:,.10g} to {high:,.10g}, {study.scale} scale"),
        _levels_row(study.levels if agreement.level is None else (agreement.level,)),
        ("values declared", f"{study.value_kind}: {values_words(study.value_kind)}"),
        ("missing values", f"{study.missing}: {MISSING_WORDS[study.missing]}"),
        ("this client", f"{client}, weight {agreement.weight:g} of 1"),
        *([] if agreement.weights is None else [("survey weights", _class_words(agreement))]),
        ("other clients", listed(others) if others else "none"),
        ("epsilon", f"{agreement.epsilon:g} for each record, which answers once{weak}"),
        *_rounds_rows(study, agreement.records),
    ]


MISSING_WORDS: dict[Missing, str] = {
    "noise": "a record without a value answers at random, so nobody learns that it has none",
    "drop": "a record without a value is left out; that it has none is not protected",
    "fail": "with a record without a value this site does not take part",
}
VALUES_WORDS = {
    "any": "nothing is said about them; the interval holds for every distribution",
    "continuous": "they are continuous and their distribution is smooth around the quantile; if that is false here, "
    "the interval may be too narrow",
}


def values_words(values: str) -> str:
    """What a study's declaration says about the records of every site.

    >>> values_words("step=1000")
    'every one is a multiple of 1,000; if that is false here, the published set of values may miss the quantile'
    """
    grid = declaration(values).grid_in_words
    if not grid:
        return VALUES_WORDS[values]
    return f"every one is {grid}; if that is false here, the published set of values may miss the quantile"


MODE_WORDS: dict[Mode, str] = {
    "cohort": "all records of a round answer about the same q",
    "local": "q moves after every record, here at the site; one count leaves it",
}


def _rounds_rows(study: FederationStudy, records: int) -> list[tuple[str, str]]:
    arrivals = study.arrivals
    if arrivals is None:
        return [
            ("records", f"{records:,} are needed here, each asked once, in {counted(study.rounds, 'round')}"),
            ("rounds", f"{study.mode} mode, design {study.design}: {MODE_WORDS[study.mode]}"),
        ]
    until = arrivals.round_answers or ROUND_LENGTH
    ends = [
        f"at {arrivals.end_date}" if arrivals.end_date else "",
        f"after {arrivals.end_answers:,} answers" if arrivals.end_answers else "",
        f"when the interval is {arrivals.end_width:g} wide" if arrivals.end_width else "",
    ]
    return [
        ("records", f"{records:,} at most, as they arrive; each person answers once, by the column of the person"),
        ("rounds", f"design {study.design}: {MODE_WORDS['cohort']}; how many have come to a round is told"),
        ("a round closes", f"after {study.deadline:g} seconds, or after {until} answers"),
        ("the run ends", ", or ".join(filter(None, [*ends, "by command"]))),
    ]


def _class_words(agreement: ClientAgreement) -> str:
    low, high = agreement.weights or (0.0, 0.0)
    words = (
        f"records of {agreement.site} with weights from {low:g} to {high:g}; each takes part with probability weight / "
        f"{high:g}, drawn once by the site; weights and sizes of classes are not protected"
    )
    if high <= WIDEST * (1.0 + UNITY) * low:
        return words
    return (
        f"{words}; beware: a class has weights that differ by a factor of {WIDEST:g} at most as a rule, and here it is "
        f"{high / low:.3g}: of the lightest records about {1.0 - low / high:.0%} are never asked, and the interval is "
        "wider"
    )


def _levels_row(levels: tuple[float, ...]) -> tuple[str, str]:
    if len(levels) == 1:
        return "level", f"{levels[0]:g} ({'the median' if levels[0] == 0.5 else 'quantile'})"
    return "levels", ", ".join(f"{level:g}" for level in levels) + " (each record answers about one of them)"


def read_invitation(path: Path) -> Invitation:
    """Read an invitation; anything missing, extra or inconsistent is refused."""
    what = "an invitation of this version of privatile"
    found = read_json(path, dict[str, Any], what).get("privatile_invitation")
    if type(found) is int and found < INVITATION:
        raise InputError(
            f"{path}: is an invitation of format {found}; this privatile reads format {INVITATION}. Ask for a new one, "
            f"or join with commit {READS_EARLIER_FORMATS} of privatile, which reads format 2."
        )
    file = read_json(path, _InvitationFile, what)
    try:
        study = FederationStudy.from_dict(file.study)
        if study.digest != file.study_hash:
            raise InputError("the study does not match its hash: the file was edited. Ask for a new invitation.")
        return Invitation(file.client, study, file.brokers, file.authority, file.coordinator)
    except InputError as error:
        raise InputError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


class Enrolment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A site's public keys, signed by themselves: possession is proved, identity is confirmed by people."""

    privatile_enrolment: EnrolmentFormat
    client: str
    identity: str
    keys: PublicKeys
    signature: bytes

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.client):
            raise InputError(f"a client's name has 1 to 40 letters, digits, - or _; got {self.client!r:.60}.")
        if not verify(self.keys.signer, self._text(self.client, self.identity, self.keys), self.signature):
            raise InputError(
                "the enrolment's signature does not fit: the file was edited or cut off. Ask the site to send it again."
            )

    @staticmethod
    def _text(client: str, identity: str, keys: PublicKeys) -> bytes:
        return f"privatile enrolment 1\n{identity}\n{client}\n{keys.login}\n{keys.signer}".encode()

    @classmethod
    def make(cls, client: str, identity: str, key: KeyPair) -> "Enrolment":
        """Sign one's own public keys for one federation."""
        return cls(ENROLMENT, client, identity, key.public, key.sign(cls._text(client, identity, key.public)))


def read_enrolment(path: Path) -> "Enrolment":
    """Read an enrolment and check its signature."""
    return read_json(path, Enrolment, "an enrolment of this version of privatile")
