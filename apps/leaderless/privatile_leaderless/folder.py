"""The folder of one organization in a federation without a coordinator; it stands where an organizer's folder stands.

DIR/study.toml              what is asked
DIR/peer.json               who this organization is, where its site's folder lies, where its server listens
DIR/NAME.peer.json          to be sent to all others
DIR/roster.json             everybody's keys and servers, the same at everybody
DIR/keys/                   the private keys of its server and of that server's authority, mode 0600
DIR/certificates/           their certificates, and those of all authorities in the roster
DIR/broker/                 its server's configuration, log and streams
DIR/run.db                  the run: committed rounds, the entries of the log, what was signed
SITE/                       key, limits and ledger, as those of every site (`federation/site/folder.py`)
"""

from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from privatile.core.extensions import of_path
from privatile.errors import InputError
from privatile.federation.setup.check import Look
from privatile.federation.setup.folder import Directory, FolderWords, Roster
from privatile.federation.setup.permissions import BrokerSettings
from privatile.federation.study import FederationStudy, study_toml
from privatile.records.keys import KeyPair, read_key, same_fingerprint
from privatile.run.certificates import issue_broker, make_authority
from privatile.run.files import read_json, replace_file, write_json
from privatile.run.run_file import RunStore
from privatile.run.state import is_aborted
from privatile_leaderless import PEER_FILE, PEER_PROCESS, extension, quorums
from privatile_leaderless.cluster import cluster_text
from privatile_leaderless.roster import (
    PeerEnrolment,
    PeerRoster,
    PeerServer,
    build_roster,
    check_server,
    read_peer_enrolment,
)
from privatile_leaderless.undecided import read_undecided


class PeerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who this organization is."""

    client: str
    site: str
    """Its site's folder."""
    listen: str
    """The address on which its server listens, for peers and for other servers."""


class ServerPlace(NamedTuple):
    """Where an organization's server is reached; without a host it runs none."""

    host: str = ""
    port: int = 4222
    cluster_port: int = 6222
    listen: str = ""
    """The address to listen on: that of the host where it is this machine's own, else all."""


class PeerFolder(Directory):
    """The folder of one peer."""

    words = FolderWords("peer", "committed")
    # A copy forgets what is signed after it: it says that it is one.
    backup_change = "UPDATE peer SET restored = 1"

    def __init__(self, path: Path, own: PeerSettings) -> None:
        """Use `open`."""
        super().__init__(path)
        self.client = own.client
        self.listen = own.listen
        self.site = Path(own.site)
        self.ledger_file = self.site / "ledger.db"
        self.key_file = self.site / f"{own.client}.key"
        self.pid_file = path / PEER_PROCESS
        self.enrolment_file = path / f"{own.client}.peer.json"
        self.authorities_file = path.absolute() / "certificates" / "authorities.pem"

    @classmethod
    def open(cls, path: Path) -> Self:
        """The folder that `make_peer_folder` has made."""
        own = read_json(path / PEER_FILE, PeerSettings, "a peer's settings (`privatile peer enroll` writes them)")
        return cls(path, own)

    def key(self) -> KeyPair:
        """This organization's key."""
        return read_key(self.key_file)

    def peers(self) -> PeerRoster:
        """Everybody's keys and servers."""
        if not self.roster_file.exists():
            raise InputError(
                f"{self.roster_file}: there is no roster yet. When everybody's enrolment is here: privatile peer admit "
                f"{self.path} *.peer.json"
            )
        roster = read_json(self.roster_file, PeerRoster, "a roster (`privatile peer admit` writes one)")
        if roster.study != self.study().digest:
            raise InputError(f"{self.roster_file}: the roster is for another version of the study than study.toml.")
        return roster

    def roster(self) -> Roster:
        """Everybody's keys, as an organizer's roster has them; empty before anybody is admitted."""
        return Roster(self.peers().keys if self.roster_file.exists() else {}, ())

    def server(self) -> PeerServer | None:
        """The server that this organization runs, where it runs one."""
        return self.peers().servers.get(self.client)

    def settings(self) -> BrokerSettings:
        """Where its server listens for peers."""
        server = self.server()
        if server is None:
            raise InputError(
                f"{self.client} runs no server of the cluster: start with --broker, or enroll with --host."
            )
        return BrokerSettings(self.listen, server.port, (server.host,))

    def write_configuration(self, roster: Roster | None = None) -> None:
        """Write its server's configuration from study and roster; `roster` has the keys, where some were replaced."""
        peers, files = self.peers(), self.broker_files
        files.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(self.authorities_file, peers.authorities)
        replace_file(
            files.configuration,
            cluster_text(
                self.study().identity,
                peers,
                self.client,
                self.settings(),
                files,
                str(self.authorities_file),
                None if roster is None else roster.clients,
            ),
        )

    def look_over(self, look: Look) -> list[str]:
        """Look at everything in the folder; returns who is missing."""
        study, key = look.attempt(self.study), look.attempt(self.key)
        if not self.roster_file.exists():
            command = f"privatile peer admit {self.path} *.peer.json"
            return [f"nobody is admitted yet: when everybody's file is here, {command}"]
        roster = look.attempt(self.peers)
        if study is not None and roster is not None and key is not None:
            if roster.keys.get(self.client) != key.public:
                look.remarks.append(
                    f"the roster has another key of {self.client} than this folder: it counts only if the others have "
                    "voted for it"
                )
            if self.client in roster.servers:
                look.server(self, "`privatile peer run` writes it")
            if len(roster.servers) < 3:
                look.remarks.append(
                    f"{len(roster.servers)} of the organizations run a server: with fewer than three, the log is lost "
                    "with one of them until it is back"
                )
        return []

    def backup_files(self) -> list[str]:
        """The files of a backup, those that are not there included; without secrets and the run's file."""
        return [*super().backup_files(), PEER_FILE, *(path.name for path in sorted(self.path.glob("*.peer.json")))]

    def status_facts(self, store: RunStore | None) -> tuple[dict[str, Any], list[str]]:
        """What a status says besides, as plain values and as lines; `store` is None before the run has begun."""
        over = store is None or is_aborted(store) or store.finished is not None
        undecided = () if store is None or over else read_undecided(store)
        needed = quorums.signing(self.study())
        votes = [{**one._asdict(), "voters": list(one.voters), "needed": needed} for one in undecided]
        lines = [
            f"votes        {len(one.voters)} of {needed} votes {one.words}: {', '.join(one.voters)}"
            for one in undecided
        ]
        return {"peer": self.client, "votes": votes}, lines

    def check(self, study: FederationStudy, client: str) -> None:
        """Refuse another study, or another client, than this folder's."""
        if (study.digest, client) != (self.study().digest, self.client):
            raise InputError(f"{self.path} is the folder of {self.client} in another study, or of another client.")

    def write_enrolment(self, key: KeyPair) -> None:
        """Write the enrolment again, with a new key and the same server: a quorum of the others votes for it."""
        write_json(self.enrolment_file, PeerEnrolment.make(self.client, self.study().digest, key, self.server()))

    def admit(self, enrolments: list[Path], confirmed: str | None = None) -> PeerRoster:
        """Build the roster from everybody's enrolments; `confirmed` is the fingerprint that all have compared."""
        study = self.study()
        given = [read_peer_enrolment(path) for path in [*enrolments, self.enrolment_file]]
        roster = build_roster(study, given)
        if confirmed is not None and not same_fingerprint(confirmed, roster.fingerprint):
            raise InputError(
                f"the roster's fingerprint is {roster.fingerprint}, and {confirmed!r:.60} was given: nothing was "
                "admitted. Compare the fingerprints of each organization with `privatile peer admit DIR FILES`; one of "
                "the files was replaced on its way, or somebody has another set."
            )
        if self.roster_file.exists() and self.peers() != roster and self.store_file.exists():
            raise InputError(
                "the run has begun with another roster. A new key of a client is a decision of all: privatile peer vote"
            )
        write_json(self.roster_file, roster)
        return roster


def open_peer(path: Path) -> PeerFolder:
    """A peer's folder; any other is refused."""
    if (path / PEER_FILE).is_file():
        return PeerFolder.open(path)
    if of_path(path) is extension:
        raise InputError(extension.refusal(path))
    raise InputError(f"{path} is not a peer's folder: there is no {PEER_FILE}. `privatile peer enroll` makes one.")


def check_new_folder(path: Path, study: FederationStudy, client: str, at: ServerPlace) -> None:
    """Refuse a study with a coordinator, a client it has not, a server's place that is none, a folder in use.

    All of it before anything is written: what was refused can be given again, for the same folder.
    """
    if not quorums.is_leaderless(study):
        raise InputError("this study has a coordinator: its sites run `privatile enroll` and `privatile join`.")
    if client not in study.clients:
        raise InputError(f"the study has no client {client!r}. Its clients: {', '.join(study.clients)}.")
    if at.host:
        check_server(at.host, at.port, at.cluster_port)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file. Choose a new folder.")
    if path.exists() and any(path.iterdir()):
        raise InputError(f"{path} is not empty. Choose a new folder: keys are never overwritten.")


def make_peer_folder(
    path: Path,
    study: FederationStudy,
    client: str,
    site: Path,
    key: KeyPair,
    at: ServerPlace | None = None,
) -> PeerFolder:
    """Begin a peer's folder, with the enrolment to send to all others."""
    at = at or ServerPlace()
    check_new_folder(path, study, client, at)
    (path / "certificates").mkdir(parents=True, mode=0o700)
    replace_file(path / "study.toml", study_toml(study))
    listen = at.listen or (at.host if at.host in ("localhost", "127.0.0.1", "::1") else "0.0.0.0")
    own = PeerSettings(client, str(site.absolute()), listen)
    write_json(path / PEER_FILE, own)
    folder = PeerFolder(path, own)
    server = None
    if at.host:
        make_authority(folder.authority, folder.authority_key, f"{study.title} {client}")
        files = folder.broker_files
        issue_broker(folder.authority, folder.authority_key, files.certificate, files.key, (at.host,), cluster=True)
        server = PeerServer(at.host, at.port, at.cluster_port, folder.authority.read_text(encoding="ascii"))
    write_json(folder.enrolment_file, PeerEnrolment.make(client, study.digest, key, server))
    return folder
