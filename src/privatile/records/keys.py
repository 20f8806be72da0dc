"""Keys: one secret per party, made where it is used, kept in a file of mode 0600, never printed, never sent.

The secret is an nkey seed. Two Ed25519 keys are derived from it: the *login* key signs the broker's challenge, the
*signer* signs messages, enrolments and release records. They differ because a login signs whatever the broker sends:
with one key, a hostile broker could send a forged answer as its challenge and get it signed.
"""

import base64
import hmac
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from privatile.core.text import fingerprint
from privatile.errors import InputError, require
from privatile.run.files import broken_mode

nkeys = require("nkeys", "federation")


SIGNATURE_BYTES = 64
_USER_PREFIX = nkeys.PREFIX_BYTE_USER  # base32 shows it as U
_DERIVATION = b"privatile message signing 1"


class PublicKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The public half: what enrolment sends and the roster keeps."""

    login: str
    signer: str

    def __post_init__(self) -> None:
        _raw_public(self.login)
        _raw_public(self.signer)

    @property
    def fingerprint(self) -> str:
        """What two people compare by telephone; it covers both keys."""
        return fingerprint(f"{self.login}{self.signer}")


class KeyPair:
    """A secret in memory. Its text form shows the public half only."""

    def __init__(self, seed: bytes) -> None:
        try:
            prefix, raw = nkeys.decode_seed(bytearray(seed))
        except Exception:
            raise InputError("this is not a key seed. Make a key with: privatile enroll") from None
        if prefix != _USER_PREFIX or len(raw) != 32:
            raise InputError("this seed is not that of a user key. Make a key with: privatile enroll")
        self._seed = bytes(seed)
        self._signer = _nkey(hmac.digest(bytes(raw), _DERIVATION, "sha256"))
        self.public = PublicKeys(_nkey(bytes(raw)).public_key.decode(), self._signer.public_key.decode())

    def __repr__(self) -> str:
        return f"KeyPair({self.public.fingerprint})"

    @property
    def seed(self) -> str:
        """The seed, only for the broker's client library. Never print it."""
        return self._seed.decode()

    def sign(self, message: bytes) -> bytes:
        """An Ed25519 signature of 64 bytes by the signer."""
        return bytes(self._signer.sign(message))

    @classmethod
    def generate(cls) -> "KeyPair":
        """A fresh secret from the operating system's randomness."""
        return cls(bytes(nkeys.encode_seed(os.urandom(32), _USER_PREFIX)))


def _nkey(raw: bytes) -> Any:
    return nkeys.from_seed(nkeys.encode_seed(raw, _USER_PREFIX))


def _raw_public(key: object) -> bytes:
    if not isinstance(key, str) or len(key) != 56 or not key.startswith("U"):
        raise InputError("a public key is 56 characters starting with U; this is not one.")
    try:
        raw = base64.b32decode(key)
    except ValueError:
        raise InputError("a public key is 56 characters of base32 starting with U; this is not one.") from None
    if raw[0] != _USER_PREFIX or raw[-2:] != nkeys.crc16(bytearray(raw[:-2])).to_bytes(2, "little"):
        raise InputError("this public key has a wrong checksum: it was mistyped or cut off.")
    return raw[1:-2]


@lru_cache(maxsize=4096)
def _verify_key(signer: str) -> VerifyKey:
    return VerifyKey(_raw_public(signer))


def verify(signer: str, message: bytes, signature: bytes) -> bool:
    """Whether `signer` has signed `message` with this signature."""
    if len(signature) != SIGNATURE_BYTES:
        return False
    try:
        _verify_key(signer).verify(message, signature)
    except BadSignatureError:
        return False
    return True


def same_fingerprint(left: str, right: str) -> bool:
    """Whether two fingerprints are the same, however people typed them.

    >>> same_fingerprint("AB12-cd34", "ab12 cd34")
    True
    """
    plain = [text.replace("-", "").replace(" ", "").replace(":", "").lower() for text in (left, right)]
    return plain[0] == plain[1]


def read_key(path: Path) -> "KeyPair":
    """Load a seed file; refuses one that others can read."""
    try:
        wrong = broken_mode(path)
        content = path.read_bytes().strip()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no key here. Make one with: privatile enroll") from None
    except OSError as error:
        raise InputError(f"{path}: the key cannot be read ({type(error).__name__}).") from None
    if wrong:
        raise InputError(wrong[0])
    try:
        return KeyPair(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
