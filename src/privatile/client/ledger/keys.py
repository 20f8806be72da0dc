"""Keys derived from a ledger's key, and the key under which people are known.

A person is the BLAKE2b-128 of the text of the person column under a key that is kept in a file of its own, outside
the ledger: who finds the ledger alone cannot test whether somebody is in it (`key_files`).
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger.key_files import KEY_BYTES, SecretKey
from privatile.errors import LedgerError


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


class PersonKey(SecretKey):
    """The key under which people are known; its file is made before the first hash.

    >>> key = PersonKey(b"k" * 32)
    >>> key.hash([b"ada", b"bob", b"ada"]).shape
    (3, 2)
    """

    what = "person-key"

    def hash(self, names: Sequence[bytes]) -> NDArray[np.uint64]:
        """Two words per name: BLAKE2b-128 under this key, once it is in its file (`Ledger.person_key`)."""
        if not self._saved:
            raise LedgerError(
                f"the {self.what} file {self.path} is not made yet. Save the key before it hashes people."
            )
        start = hashlib.blake2b(key=self.secret, digest_size=16)
        digests = []
        for name in names:
            one = start.copy()
            one.update(name)
            digests.append(one.digest())
        return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(len(digests), 2)
