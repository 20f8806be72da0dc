"""The seal: a keyed digest of every row that decides who may answer, bound to the last entry of the chain.

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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from privatile.client.ledger.keys import derive
from privatile.client.ledger.marks import COPY
from privatile.errors import LedgerError

if TYPE_CHECKING:
    from privatile.client.ledger.ledger import Ledger

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

    @contextmanager
    def changing(self, table: str, where: str, values: Iterable[object]) -> Iterator[None]:
        """Keep the sum up to date over a change of these rows."""
        keys = tuple(values)
        self._sum -= self._total(table, where, keys)
        yield
        self._sum = (self._sum + self._total(table, where, keys)) % MODULUS

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
        self._version = version
        self._sum = sum(self._total(table, SEALED.get(table, "1"), ()) for table in TABLES)
        self._sum %= MODULUS
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
        digest = hashlib.blake2b(repr((table, row)).encode(), key=self._row_key, digest_size=SUM_BYTES)
        return int.from_bytes(digest.digest(), "little")

    def mask(self, folded: int, total: int) -> bytes:
        """A sum made unreadable with a pad for each `folded`; the same call on the result gives the sum back."""
        pad = self.number("pad", (folded,))
        return (total ^ pad).to_bytes(SUM_BYTES, "little")

    def _total(self, table: str, where: str, values: tuple[object, ...]) -> int:
        rows = self._ledger.execute(f"SELECT * FROM {table} WHERE {where}", values)
        return sum(self.number(table, row) for row in rows)

    def _expected(self) -> bytes:
        sequence, head = self._ledger.tip
        text = sequence.to_bytes(8, "little") + head + self._sum.to_bytes(SUM_BYTES, "little")
        return hashlib.blake2b(text, key=self._key, digest_size=SUM_BYTES).digest()
