"""Key files: secrets that lie apart from the ledger, in files that only their owner can read.

    the user's configuration folder ($XDG_CONFIG_HOME/privatile, usually ~/.config/privatile)
        keys/ledger-FINGERPRINT.key    the key of one ledger, which holds the same fingerprint
        keys/ledger-FINGERPRINT.mark   how far that ledger had come (`marks`)
        keys/ledger-FINGERPRINT.given-up    which runs have given up records (hashes): a restored ledger forgets it
        person.key                     the key under which people are known (`keys`)

Who finds a ledger without its key can test no value against it. A key file is made whole or not at all, before the
ledger that needs it, and is never replaced: with another key every record would look new and answer again.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from privatile.errors import LedgerError

KEY_BYTES = 32
FINGERPRINT_BYTES = 16


def user_folder(variable: str, usual: str) -> Path:
    """The folder of privatile that an XDG variable names, or the usual one below the user's home.

    A relative path is ignored, as the XDG rules say: every working folder would have a ledger of its own.
    """
    named = Path(os.environ.get(variable) or "")
    return (named if named.is_absolute() else Path.home() / usual) / "privatile"


def config_folder() -> Path:
    """The user's configuration folder for privatile."""
    return user_folder("XDG_CONFIG_HOME", ".config")


def key_folder() -> Path:
    """Where the keys of ledgers lie unless another folder is named."""
    return config_folder() / "keys"


def default_person_key() -> Path:
    """Where the key that hashes people lies unless another file is named."""
    return config_folder() / "person.key"


def create_private(path: Path, fill: Callable[[Path], object]) -> None:
    """Make a file of mode 0600 at `path`, on the disk before this returns; FileExistsError where there is one.

    `fill` writes the content into a draft. The folder is made where it is missing, and the one that it lies in, with
    mode 0700.
    """
    for folder in (path.parent.parent, path.parent):  # the mode is the last folder's only
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{secrets.token_hex(8)}.draft")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        fill(draft)
        _flush(draft)
        # A link fails where a file has appeared meanwhile; a rename would replace it.
        os.link(draft, path)
        _flush(path.parent)
    finally:
        draft.unlink(missing_ok=True)  # another process may have removed it (`remove_drafts`)


def remove_drafts(path: Path) -> None:
    """Remove other names of this file that `create_private` left where it was killed."""
    own = path.stat()
    if own.st_nlink > 1:
        for draft in path.parent.glob(".*.draft"):
            with suppress(OSError):
                if draft.lstat().st_ino == own.st_ino and draft.lstat().st_dev == own.st_dev:
                    draft.unlink()


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class SecretKey:
    """A secret of 32 bytes and the file that holds it; without a path it lives in memory only."""

    what = "key"
    """What messages call the file."""
    fix = "Restore the file that belongs to this ledger: with another key everybody would look new and answer again."

    def __init__(self, secret: bytes, path: Path | None = None, *, saved: bool = False) -> None:
        self.secret = secret
        self.path = path
        self._saved = saved or path is None
        self._made = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """The key in the file at `path`; where there is none, a new one that `save` writes there."""
        where = Path(path)
        return cls.read(where) if where.exists() else cls(secrets.token_bytes(KEY_BYTES), where)

    @classmethod
    def read(cls, where: Path) -> Self:
        """The key in the file at `where`, which must be there."""
        try:
            secret = where.read_bytes()
            if len(secret) == KEY_BYTES:
                if stat.S_IMODE(where.stat().st_mode) != 0o600:
                    with suppress(OSError):  # on a read-only mount the key can be read all the same
                        where.chmod(0o600)
                return cls(secret, where, saved=True)
            problem = f"must hold {KEY_BYTES} bytes and holds {len(secret)}"
        except OSError as error:
            problem = f"cannot be read ({os.strerror(error.errno or 0)})"
        raise LedgerError(f"the {cls.what} file {where} {problem}. {cls.fix}")

    def save(self) -> None:
        """Write the file, unless that has happened; never over another key."""
        if self._saved or self.path is None:
            return
        try:
            create_private(self.path, lambda draft: draft.write_bytes(self.secret))
            self._saved = self._made = True
            return
        except OSError as error:
            reason = os.strerror(error.errno or 0)
        raise LedgerError(f"the {self.what} file {self.path} cannot be made ({reason}).")

    def take_back(self) -> None:
        """Remove the file that this process has just made: what needed it was not made."""
        if self._made and self.path is not None:
            self.path.unlink(missing_ok=True)
            self._saved = self._made = False

    @property
    def fingerprint(self) -> bytes:
        """Tells one key from another without revealing it."""
        return hashlib.blake2b(b"fingerprint", key=self.secret, digest_size=FINGERPRINT_BYTES).digest()


class LedgerKey(SecretKey):
    """The key of one ledger: the order of records, digests of contents, chain and seal are derived from it.

    >>> LedgerKey.new(None).path is None
    True
    """

    what = "ledger-key"

    @classmethod
    def new(cls, folder: Path | None) -> "LedgerKey":
        """A new key, whose file `save` makes in `folder`."""
        key = cls(secrets.token_bytes(KEY_BYTES))
        return key if folder is None else cls(key.secret, _file_in(folder, key.fingerprint))

    @classmethod
    def find(cls, folder: Path, fingerprint: bytes, ledger: Path | None) -> "LedgerKey":
        """The key with this fingerprint; an error that says how to fix it where it is missing or another one."""
        where = _file_in(folder, fingerprint)
        if not where.exists():
            raise LedgerError(
                f"the key of the ledger {ledger} is missing: there is no file {where}. Restore that file from your "
                "backup of the keys, or set XDG_CONFIG_HOME to the folder that holds privatile/keys. Never make a "
                "new one: records could answer twice."
            )
        key = cls.read(where)
        if key.fingerprint != fingerprint:
            raise LedgerError(
                f"the file {where} holds the key of another ledger, not of {ledger}. Restore the right one from your "
                "backup of the keys. Never make a new one: records could answer twice."
            )
        return key

    def note_given_up(self, run: str) -> None:
        """Remember, outside the ledger, that a run has given up records which others may ask from now on."""
        if self.path is None:
            return
        note = self.path.with_suffix(".given-up")
        try:
            handle = os.open(note, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            try:
                os.write(handle, self._mark(run) + b"\n")
                os.fsync(handle)
            finally:
                os.close(handle)
            return
        except OSError as error:
            reason = os.strerror(error.errno or 0)
        raise LedgerError(
            f"{note} cannot be written ({reason}), so the records stay reserved. Make the folder writable, then "
            "release them."
        )

    def has_given_up(self, run: str) -> bool:
        """Whether a run has ever given up records; unreadable notes count as a yes."""
        if self.path is None:
            return False
        try:
            return self._mark(run) in self.path.with_suffix(".given-up").read_bytes().split(b"\n")
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def _mark(self, run: str) -> bytes:
        text = run.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, key=self.secret, digest_size=16).hexdigest().encode()


def _file_in(folder: Path, fingerprint: bytes) -> Path:
    return folder / f"ledger-{fingerprint.hex()}.key"
