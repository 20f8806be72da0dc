"""Who takes part without a coordinator: enrolments that all exchange, and the roster that all build from them.

Everybody builds the roster alone, from the same files. Its digest is part of the first chain value: peers with
different rosters never sign each other's history, and the fingerprint is all that people have to compare.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from privatile.core.text import canonical_json, fingerprint
from privatile.errors import InputError
from privatile.federation.setup.invitation import study_rows
from privatile.federation.study import FederationStudy
from privatile.federation.wire import NAME
from privatile.records.keys import KeyPair, PublicKeys, verify
from privatile.run.certificates import certificate_fingerprint, parse_certificate
from privatile.run.files import read_json, write_json
from privatile.run.web import address
from privatile_leaderless import quorums

Format = Literal[1]
FORMAT: Format = 1
"""Of the three files; one of another version is refused."""

MAX_HOST = 253
"""Characters of a name in the network."""

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


def check_server(host: str, port: int, cluster_port: int) -> None:
    """Refuse what is not the place of a server.

    >>> check_server("north.example", 4222, 6222)
    """
    allowed = host.isascii() and len(host) <= MAX_HOST
    if not allowed or any(not character.isalnum() and character not in ".-:_" for character in host):
        raise InputError(f"a host is a name or an address, as a.example or 10.0.0.7; got {host!r:.80}.")
    if port == cluster_port:
        raise InputError(
            f"peers and servers connect at two different ports; got {port} for both. Choose another one for either."
        )


class PeerServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A broker that an organization runs as one of the cluster."""

    host: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_HOST)]
    port: Port
    cluster_port: Port
    authority: str
    """The certificate authority of this one server, PEM."""

    def __post_init__(self) -> None:
        check_server(self.host, self.port, self.cluster_port)
        parse_certificate(self.authority.encode())

    def url(self, *, cluster: bool = False) -> str:
        """Where peers connect, or the other servers."""
        return f"tls://{address(self.host, self.cluster_port if cluster else self.port)}"


class RosterEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One organization: its keys, and its server where it runs one."""

    keys: PublicKeys
    server: PeerServer | None


class PeerEnrolment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An organization's part of the roster, signed by its key: possession is proved, identity is compared by people."""

    privatile_peer_enrolment: Format
    client: str
    study: str
    """The study's hash."""
    keys: PublicKeys
    server: PeerServer | None
    signature: bytes

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.client):
            raise InputError(f"a client's name has 1 to 40 letters, digits, - or _; got {self.client!r:.60}.")
        if not verify(self.keys.signer, _enrolled(self.client, self.study, self.keys, self.server), self.signature):
            raise InputError(
                f"the signature of {self.client}'s enrolment does not fit: the file was edited or cut off. Ask for it "
                "again."
            )

    @classmethod
    def make(cls, client: str, study: str, key: KeyPair, server: PeerServer | None) -> "PeerEnrolment":
        """Sign one's own keys and addresses for one study."""
        signature = key.sign(_enrolled(client, study, key.public, server))
        return cls(FORMAT, client, study, key.public, server, signature)


def _enrolled(client: str, study: str, keys: PublicKeys, server: PeerServer | None) -> bytes:
    plain = msgspec.to_builtins({"keys": keys, "server": server})
    return canonical_json({"kind": "peer enrolment", "client": client, "study": study, **plain}).encode()


def read_peer_enrolment(path: Path) -> PeerEnrolment:
    """Read an enrolment and check its signature."""
    return read_json(path, PeerEnrolment, "an enrolment of a peer (`privatile peer enroll` writes one)")


class PeerRoster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """All organizations of one study, in the study's order."""

    privatile_roster: Format
    study: str
    """The study's hash."""
    peers: dict[str, RosterEntry]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that all must agree on: study, keys, servers and their authorities."""
        plain = {name: msgspec.to_builtins(entry) for name, entry in self.peers.items()}
        return hashlib.sha256(
            canonical_json({"kind": "roster", "study": self.study, "peers": plain}).encode()
        ).hexdigest()

    @property
    def fingerprint(self) -> str:
        """What all compare once: it covers every key, every server and the study."""
        return fingerprint(self.digest)

    @property
    def keys(self) -> dict[str, PublicKeys]:
        """Everybody's public keys."""
        return {name: entry.keys for name, entry in self.peers.items()}

    @property
    def servers(self) -> dict[str, PeerServer]:
        """The brokers of the cluster."""
        return {name: entry.server for name, entry in self.peers.items() if entry.server is not None}

    @property
    def authorities(self) -> str:
        """The certificate authorities of all servers, one after the other: whom peers and servers trust."""
        return "".join(server.authority.strip() + "\n" for server in self.servers.values())

    def authority_of(self, url: str) -> str:
        """Whom to trust at this address: the authority of the server there, else all of them.

        So no organization can stand in for another's server with a certificate of its own.
        """
        found = [server.authority for server in self.servers.values() if server.url() == url]
        return found[0] if found else self.authorities

    @property
    def replicas(self) -> int:
        """Copies of the log: three where there are three servers, so that one may be lost."""
        return 3 if len(self.servers) >= 3 else 1

    def rows(self) -> list[tuple[str, str]]:
        """What people compare, line by line."""
        found = []
        for name, entry in self.peers.items():
            found.append((name, entry.keys.fingerprint))
            if entry.server is not None:
                authority = certificate_fingerprint(entry.server.authority.encode())
                found.append(("", f"server {entry.server.url()}, authority {authority}"))
        return [*found, ("roster", self.fingerprint)]


def build_roster(study: FederationStudy, enrolments: Sequence[PeerEnrolment]) -> PeerRoster:
    """The roster of a study from one enrolment per client; everything that is wrong is said at once."""
    wrong: list[str] = []
    found: dict[str, RosterEntry] = {}
    used: dict[str, str] = {}
    places: dict[tuple[str, int], str] = {}
    for one in enrolments:
        if one.client not in study.clients:
            wrong.append(f"the study has no client {one.client!r}. Its clients: {', '.join(study.clients)}.")
            continue
        if one.study != study.digest:
            wrong.append(f"{one.client}'s enrolment is for another study, or for another version of this one.")
        entry = RosterEntry(one.keys, one.server)
        if found.get(one.client, entry) != entry:
            wrong.append(f"there are two different enrolments of {one.client}. Ask which one holds.")
        found[one.client] = entry
        owners = {used.setdefault(key, one.client) for key in (one.keys.login, one.keys.signer)} - {one.client}
        wrong += [f"{one.client} and {owner} have the same key: every client has its own." for owner in owners]
        for port in () if one.server is None else (one.server.port, one.server.cluster_port):
            place = ("" if one.server is None else one.server.host, port)
            if places.setdefault(place, one.client) != one.client:
                wrong.append(f"{one.client} and {places[place]} have the same server address {place[0]}:{port}.")
    missing = [name for name in study.clients if name not in found]
    if missing:
        wrong.append(f"there is no enrolment of {', '.join(missing)}. Everybody's is needed: admit all at once.")
    if not wrong and not any(entry.server for entry in found.values()):
        wrong.append("nobody runs a server. At least one organization enrolls with --host; three tolerate a loss.")
    if wrong:
        raise InputError("\n".join(["the roster cannot be built:", *dict.fromkeys(wrong)]))
    return PeerRoster(FORMAT, study.digest, {name: found[name] for name in study.clients})


class _InvitationFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    privatile_peer_invitation: Format
    study: dict[str, Any]
    study_hash: str


def write_peer_invitation(path: Path, study: FederationStudy) -> None:
    """Write the one invitation for all: the study and its hash, nothing else."""
    write_json(path, _InvitationFile(FORMAT, study.to_dict(), study.digest))


@dataclass(frozen=True)
class PeerInvitation:
    """A study without a coordinator, as one of its clients sees it."""

    client: str
    study: FederationStudy
    roster: PeerRoster | None = None
    """None before anybody is admitted."""

    @property
    def asked_by(self) -> tuple[str, str]:
        """Who asks, in a word and by its fingerprint."""
        return "roster", "" if self.roster is None else self.roster.fingerprint

    def rows(self) -> list[tuple[str, str]]:
        """What an organization must know before it agrees, line by line."""
        study = self.study
        away = len(study.clients) - quorums.signing(study)
        return [
            *study_rows(study, self.client),
            (
                "silence",
                f"a round waits {study.deadline:g} seconds for all answers; after {study.patience} silent rounds of "
                "one client the run pauses",
            ),
            (
                "no coordinator",
                f"{quorums.signing(study)} of {len(study.clients)} organizations sign every round: {away} may be away, "
                f"{quorums.liars(study)} may lie",
            ),
            ("published", "the estimate, its intervals, and every count; every organization sees all noisy counts"),
            ("study hash", study.digest),
            *([] if self.roster is None else [("roster", self.roster.fingerprint)]),
        ]


def read_peer_invitation(path: Path) -> FederationStudy:
    """The study of an invitation; one that was edited is refused."""
    file = read_json(path, _InvitationFile, "an invitation of peers (`privatile federation init --leaderless`)")
    try:
        study = FederationStudy.from_dict(file.study)
    except InputError as error:
        raise InputError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None
    if study.digest != file.study_hash:
        raise InputError(f"{path}: the study does not match its hash: the file was edited. Ask for a new invitation.")
    return study
