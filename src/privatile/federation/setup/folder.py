"""The organizer's folder: study, authority, keys, roster, invitations, broker configuration.

DIR/study.toml              what is asked
DIR/roster.json             who has been admitted, by public key
DIR/broker.json             where the embedded broker listens
DIR/keys/                   coordinator, authority and broker keys, mode 0600
DIR/certificates/           the authority's and the broker's certificates
DIR/invitations/NAME.json   to be sent to the sites
DIR/broker/                 the embedded broker's configuration, log and streams
DIR/run.db                  the run: questions, counts, state
"""

import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from privatile.core.extensions import of_path
from privatile.errors import InputError
from privatile.federation.setup.broker import reload_broker
from privatile.federation.setup.invitation import Enrolment, Invitation, read_invitation
from privatile.federation.setup.permissions import BrokerFiles, BrokerSettings, configuration_text
from privatile.federation.study import FederationStudy, load_study, study_toml
from privatile.records.keys import KeyPair, PublicKeys, read_key, same_fingerprint
from privatile.run.certificates import issue_broker, make_authority
from privatile.run.coordinator import Coordinator
from privatile.run.files import read_json, replace_file, write_json, write_private
from privatile.run.run_file import RunStore
from privatile.run.state import is_aborted
from privatile.run.tables import COORDINATOR_PROCESS, running_process

if TYPE_CHECKING:
    from privatile.federation.setup.check import Look


def new_identity() -> str:
    """A new random mark for a federation."""
    return secrets.token_hex(6)


class RevokedKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key that was revoked or replaced: it may never come back, but what it has signed stays signed."""

    client: str
    keys: PublicKeys


class Roster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who has been admitted: the live keys by client, and those that may never come back."""

    clients: Mapping[str, PublicKeys]
    revoked: tuple[RevokedKey, ...]


def check_coordinated(path: Path) -> None:
    """Refuse a folder, or an invitation, of an extension; anything else passes, right or wrong."""
    if (extension := of_path(path)) is not None:
        raise InputError(extension.refusal(path))


def open_folder(path: Path) -> "Directory":
    """A federation's folder as it is: an organizer's, or that of an extension's organization."""
    extension = of_path(path)
    return Directory(path) if extension is None else extension.open_folder(path)


def open_organizer(path: Path) -> "Directory":
    """An organizer's folder; any other is refused."""
    check_coordinated(path)
    return Directory(path)


class FolderWords(NamedTuple):
    """How the parts of a folder's run are called."""

    holder: str
    """Whose process runs it."""
    rounds_are: str
    """What its rounds are besides done."""


ORGANIZER = FolderWords("coordinator", "")


class Directory:
    """The folder of one federation on the organizer's machine; that of an extension's organization derives from it."""

    words = ORGANIZER
    backup_change = ""
    """What is changed in a copy of its run's file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.study_file = path / "study.toml"
        self.roster_file = path / "roster.json"
        self.settings_file = path / "broker.json"
        self.store_file = path / "run.db"
        self.pid_file = path / COORDINATOR_PROCESS
        self.key_file = path / "keys" / "coordinator.nk"
        self.authority_key = path / "keys" / "authority.key"
        self.authority = path / "certificates" / "authority.pem"
        root = path.absolute()  # the broker runs elsewhere
        self.broker_files = BrokerFiles(
            root / "broker", root / "certificates" / "broker.pem", root / "keys" / "broker.key"
        )
        self.secrets = (self.key_file, self.authority_key, self.broker_files.key)
        self.certificates = (self.authority, self.broker_files.certificate)

    def invitation_file(self, client: str) -> Path:
        """The file that is sent to one site."""
        return self.path / "invitations" / f"{client}.json"

    def study(self) -> FederationStudy:
        """The study as it stands in the file."""
        return load_study(self.study_file)

    def key(self) -> KeyPair:
        """The coordinator's key."""
        if not self.key_file.exists():
            check_coordinated(self.path)
            raise InputError(
                f"{self.key_file}: the coordinator's key is missing. Restore it from a backup; without it this "
                "federation cannot go on."
            )
        return read_key(self.key_file)

    def settings(self) -> BrokerSettings:
        """Where the embedded broker listens."""
        if not self.settings_file.exists():
            check_coordinated(self.path)
        return read_json(self.settings_file, BrokerSettings, "broker.json (`privatile federation init` writes one)")

    def roster(self) -> Roster:
        """Who has been admitted."""
        return read_json(self.roster_file, Roster, "a roster (`privatile federation init` writes one)")

    def save_roster(self, roster: Roster) -> None:
        """Write the roster in one piece, then the broker's configuration from it."""
        write_json(self.roster_file, Roster(dict(sorted(roster.clients.items())), roster.revoked))
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

    def look_over(self, look: "Look") -> list[str]:
        """Look at everything in the folder; returns who is missing."""
        absent: list[str] = []
        study, roster, key = look.attempt(self.study), look.attempt(self.roster), look.attempt(self.key)
        look.attempt(self.settings)
        if study is not None and roster is not None:
            missing = sorted(set(study.clients) - set(roster.clients))
            if missing:
                absent.append(
                    f"not admitted yet: {', '.join(missing)}. Admit their enrolments with `federation admit`."
                )
            extra = sorted(set(roster.clients) - set(study.clients))
            if extra:
                look.errors.append(
                    f"{self.roster_file}: admitted but not in the study: {', '.join(extra)}. Revoke them."
                )
            for client in study.clients:
                path = self.invitation_file(client)
                invitation = look.attempt(read_invitation, path)
                if invitation is not None and invitation.study.digest != study.digest:
                    look.errors.append(
                        f"{path}: is of another version of the study. Write them again with `privatile federation "
                        "invite`."
                    )
                if invitation is not None and key is not None and invitation.coordinator != key.public:
                    look.errors.append(f"{path}: names another coordinator's key.")
        look.server(
            self, "`privatile serve` writes it; for a broker of your own write it with `privatile federation invite`"
        )
        return absent

    def backup_files(self) -> list[str]:
        """The files of a backup, those that are not there included; without secrets and the run's file."""
        invitations = sorted((self.path / "invitations").glob("*.json"))
        return [
            *("study.toml", "roster.json", "broker.json"),
            *(f"certificates/{path.name}" for path in self.certificates),
            *(f"invitations/{path.name}" for path in invitations),
        ]

    def status_facts(self, store: RunStore | None) -> tuple[dict[str, Any], list[str]]:
        """What a status says besides, as plain values and as lines; `store` is None before the run has begun."""
        return {}, []

    def invite(self, brokers: tuple[str, ...] = ()) -> list[Path]:
        """Write one invitation per client of the study; they hold no secret."""
        study, public = self.study(), self.key().public
        authority = self.authority.read_text(encoding="ascii")
        addresses = brokers or (self.settings().url,)
        for client in study.clients:
            Invitation(client, study, addresses, authority, public).write(self.invitation_file(client))
        return [self.invitation_file(client) for client in study.clients]


def new_folder(path: Path, study: FederationStudy, settings: BrokerSettings) -> Directory:
    """Begin a federation's folder: study and settings, no keys yet."""
    if path.exists() and any(path.iterdir()):
        raise InputError(f"{path} is not empty. Choose a new folder: keys are never overwritten.")
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    (path / "certificates").mkdir()
    directory = Directory(path)
    replace_file(directory.study_file, study_toml(study))
    write_json(directory.settings_file, settings)
    return directory


def initialize(
    path: Path, study: FederationStudy, settings: BrokerSettings, brokers: tuple[str, ...] = ()
) -> Directory:
    """Write a new federation's folder: study, authority, keys, empty roster, configuration, invitations."""
    directory = new_folder(path, study, settings)
    write_private(directory.key_file, KeyPair.generate().seed.encode() + b"\n")
    make_authority(directory.authority, directory.authority_key, study.title)
    renew(directory)
    directory.save_roster(Roster({}, ()))
    directory.invite(brokers)
    return directory


def initialize_from(
    old: Directory, path: Path, without: Collection[str], weights: Mapping[str, float], **changes: Any
) -> Directory:
    """Write a new folder for the clients of `old` but those in `without`; the old one is only read.

    Coordinator, authority, broker and the other clients' admissions stay; study hash, run and estimand are new. Records
    that the old run asked do not answer again: the new study asks at most what is left of those that each client agreed
    to. `changes` are other values for `records` (by client), `rounds` or `title`.
    """
    study = old.study()
    if study.is_open:
        raise InputError(
            "an open study is not continued without a client: those who have answered do not answer again. Begin a new "
            "study with `privatile federation init --open`."
        )
    if unknown := sorted(set(without) - set(study.clients)):
        raise InputError(f"the study has no client {', '.join(unknown)}. Its clients: {', '.join(study.clients)}.")
    left = [name for name in study.clients if name not in without]
    if not without or not left:
        raise InputError("--without leaves out at least one client, and keeps at least one.")
    asked, more = _asked(old, study), changes.pop("records", None) or {}
    kept = {name: more.get(name, study.clients[name].records - asked[name]) for name in left}
    if used_up := [name for name in left if kept[name] < 1]:
        raise InputError(
            f"the run has asked all records that {', '.join(used_up)} agreed to. If others are there that have not "
            f"answered, say how many: {' '.join(f'--records {name}=NUMBER' for name in used_up)}"
        )
    if set(weights) != set(left):
        total = sum(study.clients[name].weight for name in left)
        shown = " ".join(f"--client-weights {name}={study.clients[name].weight / total:.12g}" for name in left)
        raise InputError(
            "the weights decide which mixture is estimated, and without a client it is another one: state the weight "
            f"of every client that is left. The old proportions are {shown}"
        )
    plain = study.to_dict()
    plain["clients"] = {
        name: {**plain["clients"][name], "weight": weights[name], "records": kept[name]} for name in left
    }
    plain["title"] = f"{study.title}, without {', '.join(sorted(without))}"[:200]
    plain["quorum"] = 0 if study.quorum == len(study.clients) else min(study.quorum, len(left))
    plain |= {name: value for name, value in changes.items() if value is not None}
    new = new_folder(path, FederationStudy.from_dict(plain), old.settings())
    for secret, copy in zip(old.secrets, new.secrets, strict=True):
        write_private(copy, secret.read_bytes())
    for certificate, copy in zip(old.certificates, new.certificates, strict=True):
        replace_file(copy, certificate.read_text(encoding="ascii"))
    roster, invitation = old.roster(), old.invitation_file(left[0])
    gone = tuple(RevokedKey(name, keys) for name, keys in roster.clients.items() if name not in left)
    admitted = {name: keys for name, keys in roster.clients.items() if name in left}
    new.save_roster(Roster(admitted, (*roster.revoked, *gone)))
    new.invite(read_invitation(invitation).brokers if invitation.exists() else ())
    return new


def _asked(old: Directory, study: FederationStudy) -> dict[str, int]:
    """Records that the run may have asked of each client; refused unless it is over."""
    if running_process(old.pid_file) is not None:
        raise InputError("the coordinator of the old run is running. End that run first: privatile federation abort")
    if not old.store_file.exists():
        return dict.fromkeys(study.clients, 0)
    with RunStore.open(old.store_file, read_only=True) as store:
        if store.run != study.run:
            raise InputError(f"{old.store_file} holds another run than the study's.")
        if store.finished is None and not is_aborted(store):
            raise InputError(
                f"the run of {old.path} is neither finished nor aborted, and both runs would want the same records. "
                f"End it for good first: privatile federation abort {old.path}"
            )
        coordinator = Coordinator(store)
        asked = coordinator.asked
        if store.finished is None:
            # The round that was being asked may have been answered without being counted.
            for name, questions in coordinator.questions().items():
                asked[name] += sum(question.length for question in questions)
    return asked


def renew(
    directory: Directory, *, hosts: tuple[str, ...] = (), port: int | None = None, listen: str | None = None
) -> None:
    """Issue the broker's certificate again, for the hosts of the settings or for new ones."""
    files, settings = directory.broker_files, directory.settings()
    if hosts or port is not None or listen is not None:
        settings = BrokerSettings(listen or settings.listen, port or settings.port, hosts or settings.hosts)
        write_json(directory.settings_file, settings)
        directory.write_configuration()
        directory.invite()
    issue_broker(directory.authority, directory.authority_key, files.certificate, files.key, settings.hosts)


def add_client(directory: Directory, client: str, epsilon: float, records: int, weight: float | None) -> None:
    """Add a client with `weight`, the others keeping their proportions; refused once a run has begun.

    Without a weight it counts with its records, as all others must then do.
    """
    if directory.store_file.exists():
        raise InputError(
            "the run has begun, and a new client would change what is estimated. Begin a new federation with it."
        )
    study = directory.study()
    if client in study.clients:
        raise InputError(f"the study has a client {client!r} already.")
    if weight is None:
        if not study.weighs_by_size:
            raise InputError(
                "the study's weights are not those of its clients' numbers of records: state the new client's weight "
                "(--client-weight NUMBER, a share of 1; the others share the rest)."
            )
        weight = records / (records + sum(agreement.records for agreement in study.clients.values()))
    if not 0.0 < weight < 1.0:
        raise InputError(f"weight must lie inside (0, 1), the others share the rest; got {weight!r}.")
    plain = study.to_dict()
    for agreement in plain["clients"].values():
        agreement["weight"] *= 1.0 - weight
    plain["clients"][client] = {"epsilon": epsilon, "weight": weight, "records": records}
    if plain.get("quorum") == len(study.clients):
        plain["quorum"] = 0  # all of them, as before
    replace_file(directory.study_file, study_toml(FederationStudy.from_dict(plain)))
    directory.invite()
    directory.write_configuration()


def admit(directory: Directory, enrolment: Enrolment, confirmed: str) -> bool:
    """Put a site's key into the roster and the broker; `confirmed` is the fingerprint the site read out.

    If the client has a key already, the new one replaces it at once. Returns whether a running broker was reloaded.
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
            f"the fingerprint is not that of the key in {enrolment.client}'s enrolment: {enrolment.client} was not "
            "admitted. Ask the site, by telephone, to read out what `privatile enroll` showed as `your fingerprint`, "
            "and type that. If it still differs, the file was replaced on its way: do not admit it, ask for it again."
        )
    if enrolment.keys in [old.keys for old in roster.revoked]:
        raise InputError("this key was revoked before. The site makes a new one with: privatile enroll --new-key")
    for name, keys in roster.clients.items():
        if name != enrolment.client and {keys.login, keys.signer} & {enrolment.keys.login, enrolment.keys.signer}:
            raise InputError(f"this key is already that of client {name}: every client has a key of its own.")
    old = roster.clients.get(enrolment.client)
    revoked = roster.revoked
    if old is not None and old != enrolment.keys:
        revoked = (*revoked, RevokedKey(enrolment.client, old))
    directory.save_roster(Roster({**roster.clients, enrolment.client: enrolment.keys}, revoked))
    return reload_broker(directory.broker_files)


def revoke(directory: Directory, client: str) -> bool:
    """Take a client's key out of the roster and the broker, for good. Returns whether a running broker was reloaded."""
    roster = directory.roster()
    if client not in roster.clients:
        known = ", ".join(sorted(roster.clients)) or "nobody"
        raise InputError(f"client {client!r} has no key to revoke. Admitted: {known}.")
    left = {name: keys for name, keys in roster.clients.items() if name != client}
    directory.save_roster(Roster(left, (*roster.revoked, RevokedKey(client, roster.clients[client]))))
    return reload_broker(directory.broker_files)
