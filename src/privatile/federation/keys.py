"""Keys: one Ed25519 pair a party, in the broker's own notation (nkeys), made where it is used and never printed.

A seed file has mode 0600 and never leaves its machine. The public part is one line starting with U. The fingerprint is
what two people read to each other over the telephone.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from functools import lru_cache
from pathlib import Path

from privatile.errors import InputError, require

nkeys = require("nkeys", "federation")
require("cryptography", "federation")

from cryptography.exceptions import InvalidSignature  # noqa: E402  (after the check that gives the cure)
from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: E402
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

SIGNATURE_BYTES = 64
_USER_PREFIX = 20 << 3  # nkeys' version byte of a user key; base32 shows it as U


class KeyPair:
    """A private key in memory. Its text forms show the public part only."""

    def __init__(self, seed: bytes) -> None:
        try:
            prefix, raw = nkeys.decode_seed(bytearray(seed))
        except Exception:
            raise InputError("this is not a key seed. Make a key with: privatile enroll") from None
        if prefix != _USER_PREFIX or len(raw) != 32:
            raise InputError("this seed is not that of a user key. Make a key with: privatile enroll")
        self._private = Ed25519PrivateKey.from_private_bytes(bytes(raw))
        self._seed = bytes(seed)
        self.public: str = nkeys.from_seed(bytearray(seed)).public_key.decode()

    def __repr__(self) -> str:
        return f"KeyPair({self.public})"

    @property
    def seed(self) -> str:
        """The seed, for the broker's client library alone. Never print it."""
        return self._seed.decode()

    def sign(self, message: bytes) -> bytes:
        """An Ed25519 signature of 64 bytes."""
        return self._private.sign(message)

    @classmethod
    def generate(cls) -> KeyPair:
        """A fresh key from the operating system's randomness."""
        return cls(bytes(nkeys.encode_seed(os.urandom(32), _USER_PREFIX)))


@lru_cache(maxsize=4096)
def _public(key: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(_public_bytes(key))


def _public_bytes(key: str) -> bytes:
    if not isinstance(key, str) or len(key) != 56 or not key.startswith("U"):
        raise InputError("a public key is 56 characters starting with U; this is not one.")
    try:
        raw = base64.b32decode(key)
    except ValueError:
        raise InputError("a public key is 56 characters of base32 starting with U; this is not one.") from None
    checksum = nkeys.crc16(bytearray(raw[:-2])).to_bytes(2, "little")
    if raw[0] != _USER_PREFIX or raw[-2:] != checksum:
        raise InputError("this public key has a wrong check sum: it was mistyped or cut.")
    return raw[1:-2]


def verify(public: str, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is that of `public` under `message`."""
    try:
        _public(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def check_public(key: str) -> str:
    """The key itself if it is well formed, else an error that says what is wrong."""
    _public_bytes(key)
    return key


def fingerprint(public: str) -> str:
    """Eight groups of four digits to read aloud: the first 128 bits of SHA-256 of the text.

    >>> fingerprint("a public key")
    '0b73-48fa-0389-70c4-8ec0-7cd7-3b62-57f3'
    """
    digest = hashlib.sha256(public.encode()).hexdigest()[:32]
    return "-".join(digest[start : start + 4] for start in range(0, 32, 4))


def same_fingerprint(left: str, right: str) -> bool:
    """Whether two fingerprints are the same, however people typed them."""
    plain = [text.replace("-", "").replace(" ", "").replace(":", "").lower() for text in (left, right)]
    return plain[0] == plain[1]


def write_private(path: Path, content: bytes) -> None:
    """Create a file that only its owner can read; never overwrite one."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError(f"{path} exists already and holds a private key: move it away first.") from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_key(path: Path) -> KeyPair:
    """Load a seed file; refuses one that others can read."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        content = path.read_bytes().strip()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no key here. Make one with: privatile enroll") from None
    except OSError as error:
        raise InputError(f"{path}: the key cannot be read ({type(error).__name__}).") from None
    if mode & 0o077:
        raise InputError(f"{path}: a private key must be readable by its owner alone (mode 0600); it has {mode:04o}.")
    try:
        return KeyPair(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
