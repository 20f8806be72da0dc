"""The organizer's folder: study, authority, keys, roster, invitations, broker configuration; and its whole check.

DIR/study.toml              what is asked
DIR/roster.json             who has been admitted, by public key
DIR/broker.json             where the embedded broker listens
DIR/keys/                   coordinator, authority and broker keys, mode 0600
DIR/certificates/           the authority's and the broker's certificates
DIR/invitations/NAME.json   to be sent to the sites
DIR/broker/                 the embedded broker's configuration, log and streams
DIR/run.db                  the run: questions, counts, state
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from privatile.errors import InputError, PrivatileError, StoreError
from privatile.federation.setup.broker import (
    BrokerFiles,
    BrokerSettings,
    check_configuration,
    configuration_text,
    find_binary,
    reload_broker,
)
from privatile.federation.setup.certificates import (
    broken_validity,
    ends_soon,
    issue_broker,
    make_authority,
    read_certificate,
)
from privatile.federation.setup.invitation import Enrolment, Invitation, read_invitation
from privatile.federation.study.study import FederationStudy, load_study, study_toml
from privatile.federation.wire.keys import KeyPair, PublicKeys, broken_mode, read_key, same_fingerprint, write_private


def new_identity() -> str:
    """A fresh mark for a federation."""
    return secrets.token_hex(6)


@dataclass(frozen=True)
class Roster:
    """Who has been admitted: the live keys by client, and those that may never come back."""

    clients: Mapping[str, PublicKeys]
    revoked: tuple[str, ...] = ()
    """Fingerprints of keys that were revoked or replaced."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "clients": {name: keys.to_dict() for name, keys in sorted(self.clients.items())},
            "revoked": list(self.revoked),
        }


@dataclass(frozen=True)
class Directory:
    """The folder of one federation on the organizer's machine."""

    path: Path

    @property
    def study_file(self) -> Path:
        """What is asked."""
        return self.path / "study.toml"

    @property
    def roster_file(self) -> Path:
        """Who has been admitted."""
        return self.path / "roster.json"

    @property
    def settings_file(self) -> Path:
        """Where the embedded broker listens."""
        return self.path / "broker.json"

    @property
    def store_file(self) -> Path:
        """The run."""
        return self.path / "run.db"

    @property
    def pid_file(self) -> Path:
        """The coordinator's process number while it runs."""
        return self.path / "coordinator.pid"

    @property
    def key_file(self) -> Path:
        """The coordinator's secret."""
        return self.path / "keys" / "coordinator.nk"

    @property
    def authority_key(self) -> Path:
        """The authority's secret."""
        return self.path / "keys" / "authority.key"

    @property
    def authority(self) -> Path:
        """The authority's certificate."""
        return self.path / "certificates" / "authority.pem"

    @property
    def broker_files(self) -> BrokerFiles:
        """The embedded broker's files, by absolute path."""
        root = self.path.absolute()
        return BrokerFiles(root / "broker", root / "certificates" / "broker.pem", root / "keys" / "broker.key")

    def invitation_file(self, client: str) -> Path:
        """The file that is sent to one site."""
        return self.path / "invitations" / f"{client}.json"

    def study(self) -> FederationStudy:
        """The study as it stands in the file."""
        return load_study(self.study_file)

    def key(self) -> KeyPair:
        """The coordinator's key."""
        return read_key(self.key_file)

    def settings(self) -> BrokerSettings:
        """Where the embedded broker listens."""
        fields = self._json(self.settings_file)
        try:
            return BrokerSettings(str(fields["listen"]), int(fields["port"]), tuple(map(str, fields["hosts"])))
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{self.settings_file}: needs listen, port and hosts.") from None

    def roster(self) -> Roster:
        """Who has been admitted."""
        fields = self._json(self.roster_file)
        try:
            clients = {str(name): PublicKeys.from_dict(keys) for name, keys in fields["clients"].items()}
            return Roster(clients, tuple(map(str, fields["revoked"])))
        except (KeyError, AttributeError, TypeError):
            raise InputError(f"{self.roster_file}: needs clients and revoked.") from None

    @staticmethod
    def _json(path: Path) -> dict[str, Any]:
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"{path} is missing: is this the folder of `privatile federation init`?") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read ({type(error).__name__}).") from None
        if not isinstance(fields, dict):
            raise InputError(f"{path}: must hold one JSON object.")
        return fields

    def save_roster(self, roster: Roster) -> None:
        """Write the roster in one piece, then the broker's configuration from it."""
        replace_file(self.roster_file, json.dumps(roster.to_dict(), indent=2) + "\n")
        self.write_configuration(roster)

    def write_configuration(self, roster: Roster | None = None) -> None:
        """Write the embedded broker's configuration from study, roster and settings."""
        roster = roster or self.roster()
        files = self.broker_files
        files.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        study = self.study()
        known = {name: keys for name, keys in roster.clients.items() if name in study.clients}
        text = configuration_text(study.identity, self.settings(), files, self.key().public, known)
        replace_file(files.configuration, text)

    def invite(self, brokers: tuple[str, ...] = ()) -> list[Path]:
        """Write one invitation a client of the study; they hold no secret."""
        study, public = self.study(), self.key().public
        authority = self.authority.read_text(encoding="ascii")
        written = []
        for client in study.clients:
            path = self.invitation_file(client)
            Invitation(client, study, brokers or (self.settings().url,), authority, public).write(path)
            written.append(path)
        return written


def replace_file(path: Path, text: str) -> None:
    """Write a file in one piece: a reader sees the old text or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> StoreError:
    """What to say of a small file that could not be written: a full disk, most often."""
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    return StoreError(
        f"{path} could not be written ({reason}). Nothing is lost: make room, or see who may write there, and give the "
        "same command again."
    )


def initialize(
    path: Path, study: FederationStudy, settings: BrokerSettings, brokers: tuple[str, ...] = ()
) -> Directory:
    """Write a new federation's folder: study, authority, keys, empty roster, configuration, invitations."""
    directory = Directory(path)
    if path.exists() and any(path.iterdir()):
        raise InputError(f"{path} is not empty. Choose a new folder: keys are never overwritten.")
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    (path / "certificates").mkdir()
    replace_file(directory.study_file, study_toml(study))
    replace_file(directory.settings_file, json.dumps(asdict(settings), indent=2) + "\n")
    write_private(directory.key_file, KeyPair.generate().seed.encode() + b"\n")
    make_authority(directory.authority, directory.authority_key, study.title)
    renew(directory)
    directory.save_roster(Roster({}))
    directory.invite(brokers)
    return directory


def renew(
    directory: Directory, *, hosts: tuple[str, ...] = (), port: int | None = None, listen: str | None = None
) -> None:
    """Issue the broker's certificate again, for the hosts of the settings or for new ones."""
    files, settings = directory.broker_files, directory.settings()
    if hosts or port is not None or listen is not None:
        settings = BrokerSettings(listen or settings.listen, port or settings.port, hosts or settings.hosts)
        replace_file(directory.settings_file, json.dumps(asdict(settings), indent=2) + "\n")
        directory.write_configuration()
        directory.invite()
    issue_broker(directory.authority, directory.authority_key, files.certificate, files.key, settings.hosts)


def add_client(directory: Directory, client: str, epsilon: float, records: int, weight: float) -> None:
    """Add a client with `weight`, the others keeping their proportions; refused once a run has begun."""
    if directory.store_file.exists():
        raise InputError(
            "the run has begun, and a new client would change what is estimated. Begin a new federation with it."
        )
    study = directory.study()
    if client in study.clients:
        raise InputError(f"the study has a client {client!r} already.")
    if not 0.0 < weight < 1.0:
        raise InputError(f"weight must lie inside (0, 1), the others share the rest; got {weight!r}.")
    plain = study.to_dict()
    for terms in plain["clients"].values():
        terms["weight"] *= 1.0 - weight
    plain["clients"][client] = {"epsilon": epsilon, "weight": weight, "records": records}
    if plain["quorum"] == len(study.clients):
        plain["quorum"] = 0  # all of them, as before
    replace_file(directory.study_file, study_toml(FederationStudy.from_dict(plain)))
    directory.invite()
    directory.write_configuration()


def admit(directory: Directory, enrolment: Enrolment, confirmed: str) -> bool:
    """Put a site's key into the roster and the broker; `confirmed` is the fingerprint the site read out.

    A client that has a key already is rotated: the old key is out at once. Returns whether a running broker was told.
    """
    study, roster = directory.study(), directory.roster()
    if enrolment.identity != study.identity:
        raise InputError("this enrolment is for another federation. Send the site its invitation again.")
    if enrolment.client not in study.clients:
        raise InputError(
            f"the study has no client {enrolment.client!r}. Its clients: {', '.join(sorted(study.clients))}."
        )
    if not same_fingerprint(confirmed, enrolment.keys.fingerprint):
        raise InputError(
            f"the fingerprints differ: the file's is {enrolment.keys.fingerprint}. Ask the site to read out its own "
            "again; if they still differ, someone has exchanged the file on its way."
        )
    if enrolment.keys.fingerprint in roster.revoked:
        raise InputError("this key was revoked before. The site makes a new one with: privatile enroll --new-key")
    for name, keys in roster.clients.items():
        if name != enrolment.client and {keys.login, keys.signer} & {enrolment.keys.login, enrolment.keys.signer}:
            raise InputError(f"this key is already that of client {name}: every client has a key of its own.")
    old = roster.clients.get(enrolment.client)
    revoked = roster.revoked
    if old is not None and old != enrolment.keys:
        revoked = (*revoked, old.fingerprint)
    directory.save_roster(Roster({**roster.clients, enrolment.client: enrolment.keys}, revoked))
    return reload_broker(directory.broker_files)


def revoke(directory: Directory, client: str) -> bool:
    """Take a client's key out of the roster and the broker, for good. Returns whether a running broker was told."""
    roster = directory.roster()
    if client not in roster.clients:
        known = ", ".join(sorted(roster.clients)) or "nobody"
        raise InputError(f"client {client!r} has no key to revoke. Admitted: {known}.")
    left = {name: keys for name, keys in roster.clients.items() if name != client}
    directory.save_roster(Roster(left, (*roster.revoked, roster.clients[client].fingerprint)))
    return reload_broker(directory.broker_files)


@dataclass(frozen=True)
class Findings:
    """What a check found: errors stop a run, remarks do not."""

    errors: tuple[str, ...]
    remarks: tuple[str, ...]


def check(directory: Directory) -> Findings:
    """Look at everything and report everything at once."""
    errors: list[str] = []
    remarks: list[str] = []

    def attempt(look: Any) -> Any:
        try:
            return look()
        except PrivatileError as error:
            errors.extend(str(error).splitlines())
        except OSError as error:
            errors.append(f"{error.filename}: cannot be read ({type(error).__name__}).")
        return None

    study: FederationStudy | None = attempt(directory.study)
    roster: Roster | None = attempt(directory.roster)
    attempt(directory.settings)
    key: KeyPair | None = attempt(directory.key)
    files = directory.broker_files
    for path, what in (
        (directory.authority, "the authority's certificate"),
        (files.certificate, "the broker's certificate"),
    ):
        certificate = attempt(lambda path=path: read_certificate(path))
        if certificate is not None:
            errors += broken_validity(certificate, what)
            remarks += [] if broken_validity(certificate, what) else ends_soon(certificate, what)
    for secret in (directory.authority_key, files.key):
        wrong = attempt(lambda secret=secret: broken_mode(secret))
        errors += wrong or []
    if study is not None and roster is not None:
        missing = sorted(set(study.clients) - set(roster.clients))
        if missing:
            remarks.append(f"not admitted yet: {', '.join(missing)}. Their enrolments go in by `federation admit`.")
        extra = sorted(set(roster.clients) - set(study.clients))
        if extra:
            errors.append(f"{directory.roster_file}: admitted but not in the study: {', '.join(extra)}. Revoke them.")
        for client in study.clients:
            invitation = attempt(lambda client=client: read_invitation(directory.invitation_file(client)))
            if invitation is not None and invitation.study.digest != study.digest:
                errors.append(
                    f"{directory.invitation_file(client)}: is of another version of the study. "
                    "Write them again with `privatile federation invite`."
                )
            if invitation is not None and key is not None and invitation.coordinator != key.public:
                errors.append(f"{directory.invitation_file(client)}: names another coordinator's key.")
    if not files.configuration.exists():
        errors.append(f"{files.configuration} is missing: write it with `privatile federation invite`.")
    else:
        try:
            check_configuration(find_binary(), files)
        except InputError as error:
            remarks.append(str(error))
        except PrivatileError as error:
            errors.append(str(error))
    return Findings(tuple(errors), tuple(remarks))
