"""The ledger: who has answered, kept in one SQLite file that is durable before any answer leaves.

    meta      secret keys of this ledger (order, digest, chain), person-key fingerprint
    datasets  a client's column, known by a keyed digest of its content: records, cursor
    splits    the whole columns that data sets are parts of, by keyed digest, and how they are split (`datasets`)
    runs      a run at a client: threshold and ε, where it began, the span it has reserved
    answers   every answer: question, span of the order, count; each row carries the head of a hash chain
    people    keyed hash of a person -> ε spent for life
    charges   what people have spent since they were last folded into that index (`lifetime_budgets`)

The cursor counts positions of a fixed random order (`shuffle`). Position p is record p mod n: a run walks forward
from the cursor, and only a run that may spend again walks past n. Nothing in the file is a record's value.

The file is made at the first commit: opening a ledger and reading from it writes nothing.
"""

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from privatile.client.ledger.keys import KEY_BYTES, create_private, derive
from privatile.client.ledger.ledger_file import connect, explain, fresh
from privatile.client.ledger.lifetime_budgets import LifetimeBudgets
from privatile.core.messages import Question
from privatile.errors import LedgerError

HEAD_BYTES = 16


class Position(NamedTuple):
    """How far a ledger's chain has come: the number of its entries, and the head of the chain over them."""

    sequence: int = 0
    head: bytes = bytes(HEAD_BYTES)


class Ledger:
    """The ledger of one site.

    >>> with Ledger.in_memory() as ledger:
    ...     ledger.position.sequence
    0
    """

    def __init__(self, connection: sqlite3.Connection, path: Path | None, *, on_disk: bool) -> None:
        """Use `open` or `in_memory`."""
        self._connection = connection
        self.path = path
        self._on_disk = on_disk
        self.lifetime_budgets = LifetimeBudgets(self)
        self.rollbacks = 0
        """How many transactions were undone: what was read inside them is not true."""
        self._depth = 0
        self._tip: Position | None = None
        """The last entry, known while a transaction lasts."""
        self._lock = threading.RLock()
        self._master = self._meta("master") or b""
        if len(self._master) != KEY_BYTES:
            raise LedgerError(f"the ledger {path} is damaged: its key is missing. Restore it from a backup.")
        self._chain_key = derive(self._master, "chain")

    # -- opening and closing -------------------------------------------------------------------------------------

    @classmethod
    def in_memory(cls, master: bytes | None = None) -> "Ledger":
        """A ledger that lives as long as this process: for simulation and tests, whose `master` key may be seeded."""
        return cls(fresh(master), None, on_disk=False)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, create: bool = True, read_only: bool = False) -> "Ledger":
        """The ledger at `path`; where there is none, one that will be made there at the first commit."""
        where = Path(path)
        if not where.exists() and not where.is_symlink():
            if read_only or not create:
                raise LedgerError(f"there is no ledger at {where}. One is made when records first answer.")
            return cls(fresh(), where, on_disk=False)
        if not where.is_file():
            raise LedgerError(f"the ledger {where} is not a file. Give the path of a ledger file.")
        return cls(connect(where, read_only=read_only), where, on_disk=True)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __del__(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path) if self.path else 'in memory'!r})"

    # -- reading and writing -------------------------------------------------------------------------------------

    def execute(self, sql: str, values: Iterable[Any] = ()) -> sqlite3.Cursor:
        """Run one statement; SQLite's failures become ledger errors."""
        return self._call(self._connection.execute, sql, tuple(values))

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row."""
        self._call(self._connection.executemany, sql, rows)

    def _call(self, call: Callable[[str, Any], sqlite3.Cursor], sql: str, values: object) -> sqlite3.Cursor:
        try:
            return call(sql, values)
        except sqlite3.Error as error:
            problem = explain(self.path, error)
        raise problem

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, on the disk when it ends. Inner transactions join the outer one.

        The write lock is taken at the start, so what is read inside is still true at the commit, whoever else
        has the file open.
        """
        with self._lock:
            if self._depth == 0:
                self._tip = None  # another process may have added entries since
                self.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
                if self._depth == 1:
                    self.execute("COMMIT")
                    if self.path is not None and not self._on_disk:
                        # Until this succeeds nothing is released: a repeated question ends here again.
                        self._make_file()
            except BaseException:
                if self._depth == 1:
                    self.rollbacks += 1
                if self._depth == 1 and self._connection.in_transaction:
                    with suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise
            finally:
                self._depth -= 1

    def _make_file(self) -> None:
        """Put the new ledger at its path."""
        if self.path is None:
            return
        try:
            create_private(self.path, self._copy_to)
            problem = None
        except (OSError, sqlite3.Error) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "SQLite failed"
            problem = f"cannot be made ({reason}). Nothing was answered. Give a path where you may write."
            if isinstance(error, FileExistsError) and self.path.exists():
                problem = "was made by another process just now. Start again."
        if problem:
            raise LedgerError(f"the ledger {self.path} {problem}")
        self._connection.close()
        self._connection = connect(self.path, read_only=False)
        self._on_disk = True

    def _copy_to(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as copy:
            self._connection.backup(copy)

    def _meta(self, key: str) -> bytes | None:
        row = self.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    # -- keys ----------------------------------------------------------------------------------------------------

    def key(self, purpose: Literal["order", "digest", "choice"], *names: str) -> bytes:
        """A key: of the order of a client's column, of digests of contents, of the choice of a person's record."""
        return derive(self._master, purpose, *names)

    def check_person_key(self, fingerprint: bytes) -> None:
        """Refuse a person key other than the one under which people are already known."""
        known = self._meta("person key")
        if known is not None and known != fingerprint:
            raise LedgerError(
                f"the person key is not the one with which the ledger {self.path} knows its people; with another key "
                "everybody would look new and answer again. Restore the person-key file that belongs to this ledger."
            )

    # -- the chain -----------------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """The number of entries and the head of the chain over all of them."""
        row = self.execute("SELECT sequence, head FROM answers ORDER BY sequence DESC LIMIT 1").fetchone()
        return Position() if row is None else Position(*row)

    def confirm(self, seen: Position) -> None:
        """Refuse to continue where somebody has seen this ledger further on, or with another past.

        A ledger restored from a backup, or one of two copies in use, has lost entries that `seen` knows of.
        """
        row = self.execute("SELECT head FROM answers WHERE sequence = ?", (seen.sequence,)).fetchone()
        if seen.sequence == 0:
            row = (Position().head,)
        if row is None:
            raise LedgerError(
                f"the ledger {self.path} has {self.position.sequence} entries, but {seen.sequence} were seen before: "
                "it was restored from a backup. Mark the answers since then as spent before answering again."
            )
        if row[0] != seen.head:
            raise LedgerError(
                f"the ledger {self.path} has another past than the one seen at entry {seen.sequence}: two copies of "
                "it are in use. Stop both, keep the one with more entries, and mark the other's answers as spent."
            )

    def append(
        self, run: str, client: str, question: Question | None, span: tuple[int, int], length: int, ones: int | None
    ) -> Position:
        """Add an entry and link it; without a question, records that count as spent. Call inside a transaction.

        headₙ = BLAKE2b(headₙ₋₁ ‖ entry), keyed, so that a head tells nothing about counts.
        """
        last = self._tip or self.position
        asked = (None, None, None) if question is None else (question.round, question.level, question.to_json())
        entry = (run, client, *asked, *span, length, ones)
        self._tip = Position(last.sequence + 1, self._link(last.head, entry))
        self.execute(
            "INSERT INTO answers (sequence, head, run, client, round, level, question, start, stop, length, ones)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*self._tip, *entry),
        )
        return self._tip

    def _link(self, head: bytes, entry: tuple[object, ...]) -> bytes:
        text = json.dumps(entry, separators=(",", ":")).encode()
        return hashlib.blake2b(head + text, key=self._chain_key, digest_size=HEAD_BYTES).digest()

    def verify(self) -> int:
        """Walk the whole chain; the number of entries, or an error at the first that was altered or removed."""
        head, count = Position().head, 0
        rows = self.execute(
            "SELECT sequence, head, run, client, round, level, question, start, stop, length, ones"
            " FROM answers ORDER BY sequence"
        )
        for sequence, stored, *entry in rows:
            count += 1
            head = self._link(head, tuple(entry))
            if sequence != count or head != stored:
                raise LedgerError(
                    f"the ledger {self.path} was altered at entry {count}: its chain is broken there. Restore it from "
                    "a backup, then mark as spent what was answered since."
                )
        return count
