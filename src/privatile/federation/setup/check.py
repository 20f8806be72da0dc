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
from privatile.federation.wire.keys import broken_mode

T = TypeVar("T")


@dataclass(frozen=True)
class Findings:
    """What a check found: errors stop a run, remarks do not, and without who is missing its first round waits."""

    errors: tuple[str, ...]
    remarks: tuple[str, ...]
    missing: tuple[str, ...] = ()


def check(directory: Directory) -> Findings:
    """Look at everything and report everything at once."""
    if not directory.path.is_dir() or not any(directory.path.iterdir()):
        begin = f"Begin one with: privatile federation init {directory.path}"
        return Findings((f"{directory.path}: there is no federation here. {begin}",), ())
    errors: list[str] = []
    remarks: list[str] = []
    absent: list[str] = []

    def attempt(read: Callable[..., T], *arguments: object) -> T | None:
        try:
            return read(*arguments)
        except PrivatileError as error:
            errors.extend(str(error).splitlines())
        except OSError as error:
            errors.append(f"{error.filename}: cannot be read ({type(error).__name__}).")
        return None

    study, roster, key = attempt(directory.study), attempt(directory.roster), attempt(directory.key)
    attempt(directory.settings)
    files = directory.broker_files
    for path, what in ((directory.authority, "the authority's"), (files.certificate, "the broker's")):
        certificate = attempt(read_certificate, path)
        if certificate is not None:
            invalid = broken_validity(certificate, f"{what} certificate")
            errors += invalid
            remarks += [] if invalid else ends_soon(certificate, f"{what} certificate")
    for secret in (directory.authority_key, files.key):
        errors += attempt(broken_mode, secret) or []
    if study is not None and roster is not None:
        missing = sorted(set(study.clients) - set(roster.clients))
        if missing:
            absent.append(f"not admitted yet: {', '.join(missing)}. Admit their enrolments with `federation admit`.")
        extra = sorted(set(roster.clients) - set(study.clients))
        if extra:
            errors.append(f"{directory.roster_file}: admitted but not in the study: {', '.join(extra)}. Revoke them.")
        for client in study.clients:
            path = directory.invitation_file(client)
            invitation = attempt(read_invitation, path)
            if invitation is not None and invitation.study.digest != study.digest:
                errors.append(
                    f"{path}: is of another version of the study. Write them again with `privatile federation invite`."
                )
            if invitation is not None and key is not None and invitation.coordinator != key.public:
                errors.append(f"{path}: names another coordinator's key.")
    if not files.configuration.exists():
        remarks.append(
            f"{files.configuration} is not there: `privatile serve` writes it; for a broker of your own write it with "
            "`privatile federation invite`."
        )
    else:
        try:
            check_configuration(find_binary().path, files)
        except InputError as error:
            remarks.append(str(error))
        except PrivatileError as error:
            errors.append(str(error))
    return Findings(tuple(errors), tuple(remarks), tuple(absent))
