"""`privatile federation check`: look at everything in the organizer's folder and report everything at once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from privatile.errors import InputError, PrivatileError
from privatile.federation.setup.broker import check_configuration
from privatile.federation.setup.broker_binary import find_binary
from privatile.federation.setup.certificates import broken_validity, ends_soon, read_certificate
from privatile.federation.setup.directory import Directory
from privatile.federation.setup.invitation import read_invitation
from privatile.federation.setup.peer_folder import PeerFolder
from privatile.federation.wire.keys import broken_mode

T = TypeVar("T")


@dataclass(frozen=True)
class Findings:
    """What a check found: errors stop a run, remarks do not, and without who is missing its first round waits."""

    errors: tuple[str, ...]
    remarks: tuple[str, ...]
    missing: tuple[str, ...] = ()


class _Look:
    """What was found so far."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.remarks: list[str] = []

    def attempt(self, read: Callable[..., T], *arguments: object) -> T | None:
        """Read something; what is wrong with it is noted."""
        try:
            return read(*arguments)
        except PrivatileError as error:
            self.errors.extend(str(error).splitlines())
        except OSError as error:
            self.errors.append(f"{error.filename}: cannot be read ({type(error).__name__}).")
        return None

    def server(self, directory: Directory, written_by: str) -> None:
        """Look at certificates, secrets and configuration of a broker; `written_by` says what writes the last."""
        files = directory.broker_files
        for path, what in ((directory.authority, "the authority's"), (files.certificate, "the broker's")):
            certificate = self.attempt(read_certificate, path)
            if certificate is not None:
                invalid = broken_validity(certificate, f"{what} certificate")
                self.errors += invalid
                self.remarks += [] if invalid else ends_soon(certificate, f"{what} certificate")
        for secret in (directory.authority_key, files.key):
            self.errors += self.attempt(broken_mode, secret) or []
        if not files.configuration.exists():
            self.remarks.append(f"{files.configuration} is not there: {written_by}.")
            return
        try:
            check_configuration(find_binary().path, files)
        except InputError as error:
            self.remarks.append(str(error))
        except PrivatileError as error:
            self.errors.append(str(error))


def check(directory: Directory) -> Findings:
    """Look at everything and report everything at once."""
    if not directory.path.is_dir() or not any(directory.path.iterdir()):
        begin = f"Begin one with: privatile federation init {directory.path}"
        return Findings((f"{directory.path}: there is no federation here. {begin}",), ())
    return _check_peer(directory) if isinstance(directory, PeerFolder) else _check_organizer(directory)


def _check_organizer(directory: Directory) -> Findings:
    look = _Look()
    absent: list[str] = []
    study, roster, key = look.attempt(directory.study), look.attempt(directory.roster), look.attempt(directory.key)
    look.attempt(directory.settings)
    if study is not None and roster is not None:
        missing = sorted(set(study.clients) - set(roster.clients))
        if missing:
            absent.append(f"not admitted yet: {', '.join(missing)}. Admit their enrolments with `federation admit`.")
        extra = sorted(set(roster.clients) - set(study.clients))
        if extra:
            look.errors.append(
                f"{directory.roster_file}: admitted but not in the study: {', '.join(extra)}. Revoke them."
            )
        for client in study.clients:
            path = directory.invitation_file(client)
            invitation = look.attempt(read_invitation, path)
            if invitation is not None and invitation.study.digest != study.digest:
                look.errors.append(
                    f"{path}: is of another version of the study. Write them again with `privatile federation invite`."
                )
            if invitation is not None and key is not None and invitation.coordinator != key.public:
                look.errors.append(f"{path}: names another coordinator's key.")
    look.server(
        directory,
        "`privatile serve` writes it; for a broker of your own write it with `privatile federation invite`",
    )
    return Findings(tuple(look.errors), tuple(look.remarks), tuple(absent))


def _check_peer(directory: PeerFolder) -> Findings:
    look = _Look()
    study, key = look.attempt(directory.study), look.attempt(directory.key)
    if not directory.roster_file.exists():
        command = f"privatile peer admit {directory.path} *.peer.json"
        return Findings(tuple(look.errors), (), (f"nobody is admitted yet: when everybody's file is here, {command}",))
    roster = look.attempt(directory.peers)
    if study is not None and roster is not None and key is not None:
        if roster.keys.get(directory.client) != key.public:
            look.remarks.append(
                f"the roster has another key of {directory.client} than this folder: it counts only if the others have "
                "voted for it"
            )
        if directory.client in roster.servers:
            look.server(directory, "`privatile peer run` writes it")
        if len(roster.servers) < 3:
            look.remarks.append(
                f"{len(roster.servers)} of the organizations run a server: with fewer than three, the log is lost with "
                "one of them until it is back"
            )
    return Findings(tuple(look.errors), tuple(look.remarks))
