"""Secret keys of a site: those derived from the ledger's master key, and the key under which people are known.

A person is the BLAKE2b-128 of the text of the person column under a key that is kept in a file of its own, outside
the ledger: who finds the ledger alone cannot test whether somebody is in it. Both files can be read by their owner
only, and are made whole or not at all.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privatile.errors import LedgerError

KEY_BYTES = 32


def derive(master: bytes, purpose: str, *names: str) -> bytes:
    """A key for each purpose and names: BLAKE2b(purpose ‖ names, key = master), lengths included.

    Not HKDF: ledgers that exist were made with these keys, and another order of records would let them answer twice.

    >>> derive(b"k" * 32, "order", "ab", "c") != derive(b"k" * 32, "order", "a", "bc")
    True
    """
    digest = hashlib.blake2b(key=master, digest_size=KEY_BYTES)
    for name in (purpose, *names):
        text = name.encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
    return digest.digest()


def create_private(path: Path, fill: Callable[[Path], object]) -> None:
    """Make a file of mode 0600 at `path`, on the disk before this returns; FileExistsError where there is one.

    `fill` writes the content into a draft. The folder is made where it is missing, with mode 0700.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{secrets.token_hex(8)}.draft")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        fill(draft)
        _flush(draft)
        # A link fails where a file has appeared meanwhile; a rename would replace it.
        os.link(draft, path)
        _flush(path.parent)
    finally:
        draft.unlink()


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class PersonKey:
    """The key under which people are known; its file is made when people first answer.

    >>> key = PersonKey(b"k" * 32)
    >>> key.hash([b"ada", b"bob", b"ada"]).shape
    (3, 2)
    """

    def __init__(self, secret: bytes, path: Path | None = None, *, saved: bool = False) -> None:
        self._secret = secret
        self._path = path
        self._saved = saved or path is None

    def __repr__(self) -> str:
        return f"PersonKey({str(self._path)!r})"

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "PersonKey":
        """The key in the file at `path`; where there is none, a new one that `save` writes there."""
        where = Path(path)
        if not where.exists():
            return cls(secrets.token_bytes(KEY_BYTES), where)
        try:
            secret = where.read_bytes()
            if len(secret) == KEY_BYTES:
                where.chmod(0o600)
                return cls(secret, where, saved=True)
            problem = f"must hold {KEY_BYTES} bytes and holds {len(secret)}"
        except OSError as error:
            problem = f"cannot be read ({os.strerror(error.errno or 0)})"
        raise LedgerError(
            f"the person-key file {where} {problem}. Restore the file that belongs to this ledger: with another key "
            "everybody would look new and answer again."
        )

    def save(self) -> None:
        """Write the file, unless that has happened; never over another key."""
        if self._saved or self._path is None:
            return
        try:
            create_private(self._path, lambda draft: draft.write_bytes(self._secret))
            self._saved = True
            return
        except OSError as error:
            reason = os.strerror(error.errno or 0)
        raise LedgerError(f"the person-key file {self._path} cannot be made ({reason}).")

    @property
    def fingerprint(self) -> bytes:
        """Tells one key from another without revealing it."""
        return hashlib.blake2b(b"fingerprint", key=self._secret, digest_size=16).digest()

    def hash(self, names: Sequence[bytes]) -> NDArray[np.uint64]:
        """Two words per name: BLAKE2b-128 under this key."""
        start = hashlib.blake2b(key=self._secret, digest_size=16)
        digests = []
        for name in names:
            one = start.copy()
            one.update(name)
            digests.append(one.digest())
        return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(len(digests), 2)
