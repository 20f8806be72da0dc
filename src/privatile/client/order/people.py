"""People: known by a keyed hash, and reduced to one record each.

A person is the BLAKE2b-128 of the text of the person column under a key that is kept in a file of its own, outside
the ledger: who finds the ledger alone cannot test whether somebody is in it.

Of several records of one person, across all clients of a file, one is used: the one with the smallest tag of a
keyed stream over the rows of the file. Each is equally likely, whatever the values are, and the same key chooses
the same again.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privatile.client.order.keystream import KEY_BYTES
from privatile.client.order.spill import Buckets, Columns, Words
from privatile.errors import LedgerError


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
    def open(cls, path: str | os.PathLike[str]) -> PersonKey:
        """The key in the file at `path`; where there is none, a new one that `save` puts there."""
        where = Path(path)
        if not where.exists():
            return cls(secrets.token_bytes(KEY_BYTES), where)
        problem: str
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
        """Make the file, mode 0600, on the disk before this returns; never over another key."""
        if self._saved or self._path is None:
            return
        problem: OSError
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = self._path.with_name(f".{secrets.token_hex(8)}.draft")
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                try:
                    os.write(handle, self._secret)
                    os.fsync(handle)
                finally:
                    os.close(handle)
                os.link(draft, self._path)
            finally:
                draft.unlink()
            self._saved = True
            return
        except OSError as error:
            problem = error
        raise LedgerError(f"the person-key file {self._path} cannot be made ({os.strerror(problem.errno or 0)}).")

    @property
    def fingerprint(self) -> bytes:
        """What tells one key from another without telling the key."""
        return hashlib.blake2b(b"fingerprint", key=self._secret, digest_size=16).digest()

    def hash(self, names: Sequence[bytes]) -> Words:
        """Two words a name, BLAKE2b-128 under this key."""
        start = hashlib.blake2b(key=self._secret, digest_size=16)
        digests = []
        for name in names:
            one = start.copy()
            one.update(name)
            digests.append(one.digest())
        return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(len(digests), 2)


def one_each(people: Columns, choice: Words) -> NDArray[np.intp]:
    """Of each person the row with the smallest tag, in the order of the rows.

    >>> import numpy as np
    >>> words = lambda *numbers: np.array(numbers, dtype=np.uint64)
    >>> one_each((words(5, 7, 5, 7), words(0, 0, 0, 1)), words(9, 1, 3, 2)).tolist()
    [1, 2, 3]
    """
    high, low = people
    order = np.lexsort((choice, low, high))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (high[order][1:] != high[order][:-1]) | (low[order][1:] != low[order][:-1])
    return np.sort(order[first])


def sieve(buckets: Buckets, bucket_rows: int) -> Iterator[Columns]:
    """One row of each person, from rows (high, low, choice, tag, value, client): what is left of the last three.

    All rows of a person share a head, hence a bucket.
    """
    for bucket, rows in enumerate(buckets.cut(bucket_rows)):
        if rows:
            high, low, choice, tag, value, client = buckets.load(bucket)
            kept = one_each((high, low), choice)
            yield high[kept], low[kept], tag[kept], value[kept], client[kept]
