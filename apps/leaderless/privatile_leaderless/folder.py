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

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from privatile.core.extensions import of_path
from privatile.errors import InputError
from privatile.federation import wire
from privatile.federation.setup.check import Look
from privatile.federation.setup.folder import Directory, FolderWords, Roster
from privatile.federation.setup.permissions import (
    CLIENT_LIMITS,
    BrokerFiles,
    BrokerSettings,
    server_settings,
    user,
    written,
)
from privatile.federation.study import FederationStudy, study_toml
from privatile.records.keys import KeyPair, PublicKeys, read_key, same_fingerprint
from privatile.run.certificates import issue_broker, make_authority
from privatile.run.files import read_json, replace_file, write_json
from privatile.run.run_file import RunStore
from privatile.run.state import is_aborted
from privatile.run.web import address
from privatile_leaderless import PEER_FILE, PEER_PROCESS, extension, quorums
from privatile_leaderless.peer_file import abort_voters
from privatile_leaderless.roster import (
    PeerEnrolment,
    PeerRoster,
    PeerServer,
    build_roster,
    check_server,
    read_peer_enrolment,
)

LOG_ACCOUNT = "log"
"""The account that holds the stream."""

READING = ("STREAM.INFO.*", "STREAM.MSG.GET.*", "CONSUMER.CREATE.*", "CONSUMER.MSG.NEXT.*.*")
"""Requests to the broker that every peer may make about the log: look at it, read it. None deletes or purges."""

MAKING = "STREAM.CREATE.*"
"""The request to make it, only for organizations that run a server. Whoever makes a stream chooses where the broker
sends what comes in (`republish`), its own requests included: that could delete the log, as a server's operator can."""


def log_subject(identity: str, epoch: int | str, peer: str) -> str:
    """Where one peer, and no other, publishes its entries of one epoch.

    >>> log_subject("0123456789ab", 0, "north")
    'privatile.0123456789ab.log.0.north'
    """
    return f"privatile.{identity}.log.{epoch}.{peer}"


def log_stream(identity: str, epoch: int) -> str:
    """The stream that keeps the entries of one epoch in order.

    >>> log_stream("0123456789ab", 0)
    'PRIVATILE_0123456789ab_LOG0'
    """
    return f"PRIVATILE_{identity}_LOG{epoch}"


def log_request(verb: str) -> str:
    """What a peer asks of the log's account, as its own account names it.

    `$JS.API` itself always means streams of one's own account, and an organization's has none.
    """
    return f"LOG.API.{verb}"


def peer_permissions(identity: str, peer: str, verbs: Sequence[str] = READING) -> tuple[list[str], list[str]]:
    """(may publish, may subscribe) of one peer that may make these requests."""
    publish = [log_subject(identity, "*", peer), *(log_request(verb) for verb in verbs)]
    return publish, [f"{wire.inbox_prefix(peer)}.>"]


def cluster_accounts(identity: str, keys: Mapping[str, PublicKeys], makers: Collection[str]) -> dict[str, Any]:
    """The log's account, and one account for every organization; the same on every server.

    `makers` run a server: they may make the log.
    """
    accounts = [_account(peer) for peer in keys]
    exports = [
        # One request for the next entries has many replies.
        {"service": f"$JS.API.{verb}", "accounts": accounts, "response_type": "stream" if "NEXT" in verb else "single"}
        for verb in READING
    ]
    exports.append({"service": f"$JS.API.{MAKING}", "accounts": [_account(peer) for peer in keys if peer in makers]})
    found: dict[str, Any] = {}
    for peer, own_keys in keys.items():
        own = log_subject(identity, "*", peer)
        verbs = (MAKING, *READING) if peer in makers else READING
        exports.append({"service": own, "accounts": [_account(peer)]})
        found[_account(peer)] = {
            "limits": CLIENT_LIMITS,
            "users": [user(own_keys, peer_permissions(identity, peer, verbs))],
            "imports": [
                {"service": {"account": LOG_ACCOUNT, "subject": own}},
                *(
                    {"service": {"account": LOG_ACCOUNT, "subject": f"$JS.API.{verb}"}, "to": log_request(verb)}
                    for verb in verbs
                ),
            ],
        }
    return {LOG_ACCOUNT: {"jetstream": True, "exports": exports}, **found}


def _account(peer: str) -> str:
    return f"peer_{peer}"


def cluster_text(
    identity: str,
    roster: PeerRoster,
    peer: str,
    settings: BrokerSettings,
    files: BrokerFiles,
    authorities: str,
) -> str:
    """The configuration file of one peer's server; `authorities` is the file with those of all servers."""
    made = server_settings(f"privatile_{identity}_{peer}", settings, files, most_stored=16 << 30)
    made["accounts"] = cluster_accounts(identity, roster.keys, roster.servers)
    others = [one.url(cluster=True) for name, one in roster.servers.items() if name != peer]
    if others:
        made["cluster"] = {
            "name": f"privatile_{identity}",
            "listen": address(settings.listen, roster.servers[peer].cluster_port),
            # Both sides show a certificate that an authority of the roster has signed.
            "tls": {**made["tls"], "ca_file": authorities, "verify": True},
            "routes": others,
            "no_advertise": True,
        }
    return written(made)


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
        self.vote_file = path / "abort.vote"
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
        """Write its server's configuration from study and roster, which it reads itself."""
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
                look.errors.append(f"the roster has another key of {self.client} than this folder: put that key back")
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
        voters = () if store is None or is_aborted(store) or store.finished is not None else abort_voters(store)
        needed = quorums.signing(self.study())
        lines = [f"votes        {len(voters)} of {needed} votes to abort: {', '.join(voters)}"] if voters else []
        return {"peer": self.client, "abort_votes": list(voters), "abort_votes_needed": needed}, lines

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
                "the run has begun with another roster: a key stays for the whole run. Vote to abort (`privatile peer "
                "vote DIR --abort`), then begin a new run. Records that answered stay spent."
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
