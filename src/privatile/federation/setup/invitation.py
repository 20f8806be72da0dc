"""Invitations and enrolments: the two files that people send each other. Neither holds a secret.

invitation   organizer -> site: the study, where the broker is, whom to trust
enrolment    site -> organizer: the site's public keys, signed by them
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from privatile.errors import InputError
from privatile.federation.setup.certificates import certificate_fingerprint, parse_certificate
from privatile.federation.study.study import FederationStudy
from privatile.federation.wire.keys import KeyPair, PublicKeys, verify
from privatile.federation.wire.subjects import NAME

FORMAT = 1


def check_url(url: object) -> str:
    """A broker's address: tls://host:port.

    >>> check_url("tls://broker.example:4222")
    'tls://broker.example:4222'
    """
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        good = parts is not None and parts.scheme == "tls" and bool(parts.hostname) and parts.port is not None
        good = good and parts is not None and not (parts.username or parts.password or parts.path.strip("/"))
    except ValueError:
        good = False
    if not good:
        raise InputError(f"a broker's address has the form tls://host:port; got {url!r:.80}.")
    return str(url)


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

    def rows(self) -> list[tuple[str, str]]:
        """What a site must know before it agrees, line by line."""
        study, terms = self.study, self.study.clients[self.client]
        total = max(terms.records, 1)
        return [
            ("study", study.title),
            ("asked by", study.asked_by),
            ("value", study.value),
            ("question", f"are you above q? q within {study.range[0]:g} to {study.range[1]:g}"),
            _levels_row(study.levels),
            ("this client", f"{self.client}, weight {terms.weight:g} of 1"),
            ("epsilon", f"{terms.epsilon:g} for each record, which answers once"),
            ("records", f"{total:,} at most, in {study.rounds:,} rounds"),
            ("study hash", study.digest),
            ("coordinator", self.coordinator.fingerprint),
            ("broker", ", ".join(self.brokers)),
            ("broker's authority", certificate_fingerprint(self.authority.encode())),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "privatile_invitation": FORMAT,
            "client": self.client,
            "study": self.study.to_dict(),
            "study_hash": self.study.digest,
            "brokers": list(self.brokers),
            "authority": self.authority,
            "coordinator": self.coordinator.to_dict(),
        }

    def write(self, path: Path) -> None:
        """Write the file that is sent to the site."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")


def _levels_row(levels: tuple[float, ...]) -> tuple[str, str]:
    if len(levels) == 1:
        return "level", f"{levels[0]:g} ({'the median' if levels[0] == 0.5 else 'quantile'})"
    return "levels", ", ".join(f"{level:g}" for level in levels) + " (each record answers about one of them)"


def read_invitation(path: Path) -> Invitation:
    """Read an invitation; anything missing, extra or inconsistent is refused."""
    fields = _read_json(path, "an invitation", "privatile_invitation")
    expected = {"client", "study", "study_hash", "brokers", "authority", "coordinator"}
    if set(fields) != expected:
        raise InputError(f"{path}: an invitation has exactly the fields {', '.join(sorted(expected))}.")
    if not isinstance(fields["brokers"], list) or not isinstance(fields["authority"], str):
        raise InputError(f"{path}: brokers must be a list of addresses and authority a certificate.")
    try:
        study = FederationStudy.from_dict(fields["study"])
        if study.digest != fields["study_hash"]:
            raise InputError("the study does not match its hash: the file was edited. Ask for a new invitation.")
        return Invitation(
            str(fields["client"]),
            study,
            tuple(fields["brokers"]),
            fields["authority"],
            PublicKeys.from_dict(fields["coordinator"]),
        )
    except InputError as error:
        raise InputError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


@dataclass(frozen=True)
class Enrolment:
    """A site's public keys, signed by themselves: possession is proved, identity is confirmed by people."""

    client: str
    identity: str
    keys: PublicKeys
    signature: bytes

    @staticmethod
    def _text(client: str, identity: str, keys: PublicKeys) -> bytes:
        return f"privatile enrolment 1\n{identity}\n{client}\n{keys.login}\n{keys.signer}".encode()

    @classmethod
    def make(cls, client: str, identity: str, key: KeyPair) -> Enrolment:
        """Sign one's own public keys for one federation."""
        return cls(client, identity, key.public, key.sign(cls._text(client, identity, key.public)))

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.client):
            raise InputError("the client's name is not one.")
        if not verify(self.keys.signer, self._text(self.client, self.identity, self.keys), self.signature):
            raise InputError("the enrolment's signature does not fit: it was edited or cut on the way.")

    def write(self, path: Path) -> None:
        """Write the file that is sent to the organizer."""
        fields = {
            "privatile_enrolment": FORMAT,
            "client": self.client,
            "identity": self.identity,
            "keys": self.keys.to_dict(),
            "signature": base64.b64encode(self.signature).decode(),
        }
        path.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def read_enrolment(path: Path) -> Enrolment:
    """Read an enrolment and check its signature."""
    fields = _read_json(path, "an enrolment", "privatile_enrolment")
    if set(fields) != {"client", "identity", "keys", "signature"}:
        raise InputError(f"{path}: an enrolment has exactly the fields client, identity, keys and signature.")
    try:
        signature = base64.b64decode(str(fields["signature"]), validate=True)
        return Enrolment(
            str(fields["client"]), str(fields["identity"]), PublicKeys.from_dict(fields["keys"]), signature
        )
    except binascii.Error:
        raise InputError(f"{path}: the signature is not base64.") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _read_json(path: Path, what: str, mark: str) -> dict[str, Any]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except (OSError, ValueError, RecursionError):
        raise InputError(f"{path}: cannot be read as {what}.") from None
    if not isinstance(fields, dict) or fields.pop(mark, None) != FORMAT:
        raise InputError(f"{path}: is not {what} of this version of privatile.")
    return fields
