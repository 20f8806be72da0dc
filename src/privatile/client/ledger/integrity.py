"""What shows that a ledger is the one that was written: its keys, its seal, and the mark beside the key.

Key files: secrets that lie apart from the ledger, in files that only their owner can read.

    the user's configuration folder ($XDG_CONFIG_HOME/privatile, usually ~/.config/privatile)
        keys/ledger-FINGERPRINT.key    the key of one ledger, which holds the same fingerprint
        keys/ledger-FINGERPRINT.mark   how far that ledger had come (`marks`)
        keys/ledger-FINGERPRINT.given-up    which runs have given up records (hashes): a restored ledger forgets it
        person.key                     the key under which people are known (`keys`)

Who finds a ledger without its key can test no value against it. A key file is made whole or not at all, before the
ledger that needs it, and is never replaced: with another key every record would look new and answer again.

Keys derived from a ledger's key, and the key under which people are known.

A person is the BLAKE2b-64 of the text of the person column under a key that is kept in a file of its own, outside
the ledger: who finds the ledger alone cannot test whether somebody is in it (`key_files`).

The mark: how far a ledger had come when it was last looked at, kept beside its key.

An older copy of a ledger verifies like the newest, and a restored state folder holds older runs with it. The mark lies
in another folder. It is written after a commit, never ahead of one, so a ledger that lacks the marked entry is an older
copy, and one that holds another entry there is one of two copies in use. Both are refused until the restore is
declared (`restores`), which sets the mark anew. A mark may lag by a few seconds of answers; where state and keys come
from the same backup, so does the mark, and it shows nothing. A copy that `privatile federation backup` made says so
itself (`MARK_COPY`), and is refused likewise, wherever it is put back.

The seal: a keyed digest of every row that decides who may answer, bound to the last entry of the chain.

    sum  = Σ BLAKE2b(table, row) mod 2¹²⁸ over data sets, splits, runs (with reservations and lost marks), charges
           and the ledger's own facts, keyed; it is kept up to date row by row and never stored
    seal = BLAKE2b(number of entries ‖ head of the chain ‖ sum), keyed, stored with every commit

A cursor set back, a reservation removed or a charge deleted changes the sum, and whoever lacks the key can neither
compute it nor learn it from the seals. The index of people is large and has a sum of its own, which is compared with
the chain over all answers: when a ledger is opened to answer, up to a size (`Ledger.check_rows`), and by `verify`. Not
found by any seal: a ledger that is replaced as a whole by an older copy of itself, and what somebody
writes who has the key.
"""

import hashlib
import logging
import os
import secrets
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from privatile.core.messages import Position
from privatile.core.private_files import create_private
from privatile.core.text import printable
from privatile.errors import LedgerError

if TYPE_CHECKING:
    from privatile.client.ledger.ledger import Ledger


KEY_BYTES = 32
FINGERPRINT_BYTES = 16


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

    >>> people = PersonKey(b"k" * 32).hash([b"ada", b"bob", b"ada"])
    >>> bool(people[0] == people[2] != people[1])
    True
    """

    what = "person-key"

    def hash(self, names: Sequence[bytes]) -> NDArray[np.uint64]:
        """A word per name: BLAKE2b-64 under this key, once it is in its file (`Ledger.person_key`).

        Of ten million people two share a word with a probability of 3·10⁻⁶; that costs one of them an answer.
        """
        if not self._saved:
            raise LedgerError(
                f"the {self.what} file {self.path} is not made yet. Save the key before it hashes people."
            )
        start = hashlib.blake2b(key=self.secret, digest_size=8)
        digests = []
        for name in names:
            one = start.copy()
            one.update(name)
            digests.append(one.digest())
        return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64, copy=False)


EVERY_SECONDS = 2.0
"""How much a mark may lag behind a process that answers."""

COPY = "copy"
"""The entry of `meta` in a copy of a ledger that a backup made; the seal leaves it out: a backup needs no key."""

MARK_COPY = f"INSERT OR REPLACE INTO meta (key, value) VALUES ('{COPY}', x'01')"
"""Run on a copy, never on the ledger in use."""

log = logging.getLogger("privatile.client")


class Mark:
    """The mark of one ledger; without a key file there is none."""

    def __init__(self, key_file: Path | None) -> None:
        self._path = None if key_file is None else key_file.with_suffix(".mark")
        self._written = -EVERY_SECONDS
        self._noted: Position | None = None
        self._is_told = False

    def read(self) -> tuple[int, bytes] | None:
        """Number and head of the marked entry; None where there is no mark, or none that a program wrote."""
        if self._path is None:
            return None
        try:
            number, head = self._path.read_text(encoding="ascii").split()
            return int(number), bytes.fromhex(head)
        except (OSError, ValueError):
            return None

    def check(self, ledger: "Ledger") -> None:
        """Refuse a backup's copy, and a ledger that lacks the marked entry or holds another one in its place."""
        if ledger.meta(COPY) is not None:
            raise _undeclared(ledger, "it is a copy from a backup, and what was asked since it was made is not known")
        seen = self.read()
        if seen is None or seen[0] == 0:
            return
        number, head = seen
        row = ledger.execute("SELECT head FROM answers WHERE sequence = ?", (number,)).fetchone()
        if row is None:
            problem = f"it has {ledger.position.sequence} entries, and had {number} before: this is an older copy"
        elif row[0] != head:
            problem = f"its entry {number} is not the one that was seen before: two copies are in use"
        else:
            return
        raise _undeclared(ledger, f"{problem} (by {self._path})")

    def advance(self, position: Position) -> None:
        """Note an entry that is on the disk; the file is written now and then."""
        self._noted = position
        if time.monotonic() - self._written > EVERY_SECONDS:
            self.settle()

    def settle(self) -> None:
        """Move the mark up to the last entry that was noted."""
        position, self._noted = self._noted, None
        if self._path is None or position is None:
            return
        seen = self.read()
        if position.sequence > (0 if seen is None else seen[0]):
            self.put(position)
        self._written = time.monotonic()

    def put(self, position: Position) -> None:
        """Set the mark, back too; where the folder cannot be written that is told once."""
        if self._path is None:
            return
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            handle = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
            try:
                os.write(handle, f"{position.sequence} {position.head.hex()}\n".encode())
            finally:
                os.close(handle)
            draft.replace(self._path)
        except OSError as error:
            if not self._is_told:
                reason = os.strerror(error.errno or 0)
                log.warning(
                    "%s cannot be written (%s): an older copy of the ledger is not found.",
                    printable(self._path),
                    reason,
                )
            self._is_told = True


def _undeclared(ledger: "Ledger", problem: str) -> LedgerError:
    return LedgerError(
        f"the ledger {ledger.path} may not answer: {problem}. Restore the newest one; where that is lost, declare it "
        "with `privatile ledger restored` (a client of a federation: `privatile join --restored`): what is not "
        "provably unasked counts as spent."
    )


SUM_BYTES = 16
MODULUS = 1 << (8 * SUM_BYTES)
TABLES = ("meta", "datasets", "splits", "runs", "charges")
"""What the sum covers; of `meta` all but the seal itself, and but what says that this is a backup's copy."""

SEALED = {"meta": f"key NOT IN ('seal', '{COPY}')"}
"""Which rows of a table, where not all of them."""


class Seal:
    """The seal of one ledger."""

    def __init__(self, ledger: "Ledger", master: bytes) -> None:
        self._ledger = ledger
        self._row_key, self._key = derive(master, "row"), derive(master, "seal")
        self._sum = 0
        self._stored: bytes | None = None
        """The seal that belongs to `_sum`; None: look at the tables."""
        self._version: int | None = None
        """SQLite's number that changes when another connection has written."""

    def add(self, table: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Keep the sum up to date: these rows are in the table from now on."""
        self._sum = (self._sum + sum(self.number(table, row) for row in rows)) % MODULUS

    def remove(self, table: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Keep the sum up to date: these rows are gone, or will be changed."""
        self._sum = (self._sum - sum(self.number(table, row) for row in rows)) % MODULUS

    def check(self, *, new: bool) -> None:
        """Refuse rows that do not belong to the seal; call at the start of a transaction.

        Where nobody else has written since this process did, its own sum is still right and nothing is read. Who
        writes by the rules writes another seal: where another connection has written and the seal is the same, all
        rows are looked at.
        """
        stored = self._ledger.meta("seal")
        (version,) = self._ledger.execute("PRAGMA data_version").fetchone()
        is_same = stored is not None and stored == self._stored
        if is_same and version == self._version:
            return
        self._ledger.check_tables()
        self._version = version
        self._sum = 0
        for table in TABLES:
            self.add(table, self._ledger.execute(f"SELECT * FROM {table} WHERE {SEALED.get(table, '1')}"))
        self._stored = stored
        if stored is None and new:
            return
        if last := self._ledger.tip.sequence:
            self._ledger.check_links(last, last)
        if stored != self._expected():
            raise LedgerError(
                f"the ledger {self._ledger.path} was altered: its data sets, runs, reservations or charges are not "
                "those that its seal was made over. Restore it from a backup, then mark as spent what was answered "
                "since."
            )
        if is_same:
            self._ledger.check_rows()

    def write(self) -> None:
        """Store the seal of what the tables hold now; call before the commit."""
        expected = self._expected()
        if expected != self._stored:
            self._ledger.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('seal', ?)", (expected,))
            self._stored = expected

    def forget(self) -> None:
        """What was counted inside a transaction that was undone is not true."""
        self._stored = None

    def number(self, table: str, row: tuple[object, ...]) -> int:
        """A row as a number that nobody without the key can compute."""
        # SQLite gives 1.0 of a table back as 1 while it is written.
        plain = tuple(int(cell) if isinstance(cell, float) and cell.is_integer() else cell for cell in row)
        digest = hashlib.blake2b(repr((table, plain)).encode(), key=self._row_key, digest_size=SUM_BYTES)
        return int.from_bytes(digest.digest(), "little")

    def mask(self, folded: int, total: int) -> bytes:
        """A sum made unreadable with a pad for each `folded`; the same call on the result gives the sum back."""
        pad = self.number("pad", (folded,))
        return (total ^ pad).to_bytes(SUM_BYTES, "little")

    def _expected(self) -> bytes:
        sequence, head = self._ledger.tip
        text = sequence.to_bytes(8, "little") + head + self._sum.to_bytes(SUM_BYTES, "little")
        return hashlib.blake2b(text, key=self._key, digest_size=SUM_BYTES).digest()
