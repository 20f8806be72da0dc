"""`privatile federation check`: look at everything in a folder and report everything at once."""

from collections.abc import Callable
from typing import TypeVar

from privatile.errors import InputError, PrivatileError
from privatile.federation.setup.broker import check_configuration, find_binary
from privatile.federation.setup.folder import Directory
from privatile.run.certificates import broken_validity, ends_soon, read_certificate
from privatile.run.files import broken_mode

T = TypeVar("T")


class Look:
    """What was found. A folder looks itself over with it (`Directory.look_over`)."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        """They stop a run."""
        self.remarks: list[str] = []
        self.missing: list[str] = []
        """Without them the first round waits."""

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


def check(directory: Directory) -> Look:
    """Look at everything and report everything at once."""
    look = Look()
    if directory.path.is_dir() and any(directory.path.iterdir()):
        look.missing = directory.look_over(look)
    else:
        begin = f"Begin one with: privatile federation init {directory.path}"
        look.errors.append(f"{directory.path}: there is no federation here. {begin}")
    return look
