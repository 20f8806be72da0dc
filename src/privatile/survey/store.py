"""The private file of a survey, `survey.db`: codes, which of them are spent, and the counts of the open round.

    codes   one row per code: its hash, its stratum, its state. Rows lie in the order of the hashes, no row has a time
            or a round, and none has an answer.
    counts  of the open round, per stratum: how many came, and how many ones.
    late    per stratum: answers that came after their round; they are spent and not counted, their bits are not kept.

A spent flag and its count are written in one transaction. So the difference of two snapshots of this file, or its
write-ahead log, tells the sum of the (randomized) bits of the codes that were spent in between; between two snapshots
around one commit that may be one code. The log is emptied after every round. `docs/survey-limits.md` says so.

Every process that begins to write takes the next number (`writers`), and every transaction requires that it is still
the newest: of two gateways on one folder the older one writes nothing more, and acknowledges nothing.

What was answered in closed rounds is in the run's file alone (`run.db`, public), and is added to it in three steps,
each of which may be repeated after a kill: fix the counts here, give them to the run, begin the next round here.

In memory the codes are a table: a look-up takes no disk. A million codes take 19 MB. Of a hash the first 128 bits are
kept there, as many as a code has; the file has all of it, and every change is made there by the whole hash.

The mark says how many changes the codes had seen, and lies outside the survey's folder. Two files restored from one old
backup agree with each other, and codes that were spent since then would answer again. The mark lies with the user's
keys. It is written after a commit, never ahead of one, so codes with fewer changes than it says are an older copy:
refused until `privatile survey serve --restored` says that it is meant. A mark may lag by the last seconds before a
power cut or a kill. Where it was restored with the folder, or on another machine, it shows nothing.
"""

import math
import os
import sqlite3
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from privatile.core.private_files import key_folder
from privatile.core.sqlite_types import is_as_declared
from privatile.core.text import counted, printable
from privatile.errors import StoreError
from privatile.estimator.open_ended import REASONS
from privatile.run.rounds import OpenRound, Phase
from privatile.survey.study import SurveyStudy

EVERY_SECONDS = 2.0
"""How much the mark may lag behind a gateway that runs."""


class SurveyMark:
    """The mark of one survey."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = -EVERY_SECONDS

    @classmethod
    def of(cls, study: SurveyStudy) -> Self:
        """That of a study, in the user's key folder."""
        return cls(key_folder() / f"survey-{study.survey}-{study.digest[:16]}.mark")

    def read(self) -> int:
        """Changes that were seen; 0 where there is no mark, or none that a program wrote."""
        try:
            return int(self.path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    @property
    def is_due(self) -> bool:
        """Whether it is time to write it again."""
        return time.monotonic() - self._written > EVERY_SECONDS

    def advance(self, changes: int) -> None:
        """Move the mark up to changes that are on the disk; OSError where it cannot be written."""
        self._written = time.monotonic()
        if changes > self.read():
            self.put(changes)

    def put(self, changes: int) -> None:
        """Set the mark, back too; OSError where it cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_text(f"{changes}\n", encoding="ascii")
        draft.replace(self.path)


HASH = 32
"""Bytes of a code's hash."""

AT_ONCE = 50_000
"""Rows that are read together."""


class CodeTable:
    """Codes in the order of their hashes; `states` and `strata` are read by place."""

    def __init__(self, hashes: "Sequence[array[int]]", strata: "array[int]", states: bytearray) -> None:
        """Use `read`. `hashes` has the first 64 bits of every hash, and the next 64."""
        self._first, self._second = hashes
        self.strata = strata
        self.states = states

    @classmethod
    def read(cls, rows: Iterable[tuple[bytes, int, int]]) -> Self:
        """The table of rows (hash, stratum, state), which must come in the order of the hashes.

        >>> table = CodeTable.read([(b"a" * 32, 0, 0), (b"b" * 32, 1, 2)])
        >>> place = table.find(b"b" * 32)
        >>> place, table.strata[place], table.states[place], table.find(b"c" * 32), len(table)
        (1, 1, 2, None, 2)
        """
        hashes = array("Q"), array("Q")
        strata, states = array("H"), bytearray()
        left = iter(rows)
        while part := list(islice(left, AT_ONCE)):
            names, places, found = zip(*part, strict=True)
            if any(len(name) != HASH for name in names):
                raise ValueError(f"a hash has {HASH} bytes")
            numbers = np.frombuffer(b"".join(names), dtype=">u8").reshape(len(part), -1)
            for half, column in zip(hashes, numbers.T[:2], strict=True):
                half.frombytes(column.astype("=u8").tobytes())
            strata.extend(places)
            states += bytes(found)
        numbers = np.frombuffer(hashes[0], dtype=np.uint64)
        if np.any(numbers[1:] < numbers[:-1]):
            raise ValueError("the codes are not in the order of their hashes")
        return cls(hashes, strata, states)

    def __len__(self) -> int:
        return len(self.states)

    @property
    def changes(self) -> int:
        """A number that grows with every change of a state: 1 for a question handed out, 2 for a spent code.

        >>> CodeTable.read([(b"a" * 32, 0, 0), (b"b" * 32, 0, 1), (b"c" * 32, 0, 3)]).changes
        3
        """
        return 2 * len(self.states) - 2 * self.states.count(0) - self.states.count(1)

    def find(self, code: bytes) -> int | None:
        """The place of a code by its hash; none for one that was never issued."""
        first, second = int.from_bytes(code[:8], "big"), int.from_bytes(code[8:16], "big")
        place = bisect_left(self._first, first)
        while place < len(self._first) and self._first[place] == first:
            if self._second[place] == second:
                return place
            place += 1
        return None


FORMAT = 1

FREE, HANDED, COUNTED, LATE = range(4)
"""States of a code: nothing happened; its question was handed out; its answer counted; its answer came too late."""

SPENT = (COUNTED, LATE)
"""States after which nothing changes."""

TABLES = (
    "CREATE TABLE survey (format INTEGER NOT NULL, digest TEXT NOT NULL, created REAL NOT NULL,"
    " restored INTEGER NOT NULL, writers INTEGER NOT NULL)",
    "CREATE TABLE codes (hash BLOB PRIMARY KEY, stratum INTEGER NOT NULL, state INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE counts (stratum INTEGER PRIMARY KEY, came INTEGER NOT NULL, ones INTEGER NOT NULL)",
    "CREATE TABLE late (stratum INTEGER PRIMARY KEY, answers INTEGER NOT NULL)",
    "CREATE TABLE round (number INTEGER NOT NULL, phase TEXT NOT NULL, since REAL NOT NULL,"
    " counted_before INTEGER NOT NULL, ending TEXT NOT NULL)",
)

PAGE = 1024
"""Bytes of a page: a changed code costs one, and codes that come together lie far apart."""

CACHE = 16 << 20
"""Bytes of pages that the writer keeps in memory: the codes of some 400,000 people."""

MOST_IN_LOG = 16 << 20
"""Bytes of the log before it is folded into the file in the middle of a round: that holds up a commit."""

LOCK_WAIT = 1.0
"""Seconds that a thread waits for a lock which another process holds."""


class Count(NamedTuple):
    """What a round has of one stratum."""

    came: int
    ones: int


class About(NamedTuple):
    """A survey's file."""

    created: float
    """When the codes were made, in seconds since 1970."""
    restored: int
    """How often it was restored from a backup, as the organiser declared."""
    writers: int
    """How many processes have begun to write it, one after another."""


class Changed(NamedTuple):
    """A code whose state changes."""

    code: bytes
    """Its hash."""
    place: int
    """Where the codes in memory have it (`code_table`)."""
    before: int
    after: int


class Altered(StoreError):
    """Codes are not in the state that they were read in."""


class Superseded(StoreError):
    """Another process has begun to write the file."""


class SurveyStore:
    """The file, written by one process. A connection is used by one thread at a time, which may wait for a lock."""

    def __init__(self, connection: sqlite3.Connection, path: Path, strata: int) -> None:
        self._connection = connection
        self.path = path
        self.strata = strata
        self._writer: int | None = None
        """This process's number among those that have begun to write; none: it only reads, or has not begun."""

    @staticmethod
    def create(path: Path, digest: str, strata: int, codes: Iterable[tuple[bytes, int]]) -> None:
        """Make the file with all its codes, all or nothing."""
        if path.exists():
            raise StoreError(f"{path} exists already: this folder has a survey. Name another folder.")
        # The permissions are set before SQLite opens the file, the size of its pages before anything is in it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with closing(_connect(path, read_only=False)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE}")
            connection.execute("PRAGMA journal_mode = WAL")
            try:
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    for statement in TABLES:
                        connection.execute(statement)
                    connection.execute("INSERT INTO survey VALUES (?, ?, ?, 0, 0)", (FORMAT, digest, time.time()))
                    connection.executemany("INSERT INTO codes VALUES (?, ?, 0)", sorted(codes))
                    for table in ("INSERT INTO counts VALUES (?, 0, 0)", "INSERT INTO late VALUES (?, 0)"):
                        connection.executemany(table, [(place,) for place in range(strata)])
                    connection.execute("INSERT INTO round VALUES (1, 'open', ?, 0, '')", (time.time(),))
            except sqlite3.Error as error:
                raise StoreError(f"{path} cannot be written ({printable(error):.200}).") from None

    @classmethod
    def open(cls, path: Path, digest: str, strata: int, *, read_only: bool = False) -> Self:
        """Open a survey's file; one of another study is refused."""
        if not path.is_file():
            raise StoreError(f"there is no survey file {path}. `privatile survey init` makes one.")
        try:
            connection = _connect(path, read_only=read_only)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise StoreError(f"{path} cannot be opened ({printable(error):.200}).") from None
        store = cls(connection, path, strata)
        try:
            store._check(digest)
            if not read_only:
                store._check_codes()
        except (sqlite3.DatabaseError, UnicodeDecodeError, ValueError, TypeError):
            connection.close()
            raise StoreError(f"{path} is no survey file, or a damaged one. Restore it from a backup.") from None
        except StoreError:
            connection.close()
            raise
        return store

    def _check(self, digest: str) -> None:
        """Refuse a file that is not this survey's, or that somebody has altered."""
        if not is_as_declared(self._connection, "".join(f"{statement};\n" for statement in TABLES)):
            raise ValueError("other tables")
        ((found, written, created, *numbers),) = self._connection.execute("SELECT * FROM survey").fetchall()
        if not math.isfinite(created) or any(type(one) is not int or one < 0 for one in numbers):
            raise ValueError("a survey has a beginning")
        if found != FORMAT or written != digest:
            raise StoreError(
                f"{self.path} holds the codes of another study: the study was edited after `survey init`, or the file "
                "is that of another survey. Undo the edit."
            )
        ((number, phase, since, before, ending),) = self._connection.execute("SELECT * FROM round").fetchall()
        whole = [number, before, *self.late(), *(part for one in self.counts() for part in one)]
        if not all(type(one) is int and one >= 0 for one in whole) or ending not in ("", *REASONS):
            raise ValueError("numbers are whole")
        if not (number >= 1 and math.isfinite(since) and phase in list(Phase)):
            raise ValueError("a round has a number, a phase and a time")
        if not len(self.late()) == len(self.counts()) == self.strata or any(
            one.ones > one.came for one in self.counts()
        ):
            raise ValueError("every stratum has its counts")

    def _check_codes(self) -> None:
        """The same for every code: a million take a quarter of a second."""
        wrong = (
            "typeof(hash) <> 'blob' OR typeof(stratum) <> 'integer' OR stratum < 0 OR stratum >= ? OR "
            "typeof(state) <> 'integer' OR state NOT BETWEEN 0 AND 3"
        )
        if self._connection.execute(f"SELECT 1 FROM codes WHERE {wrong} LIMIT 1", (self.strata,)).fetchone():
            raise ValueError("a code has a hash, a stratum and a state")

    # What anybody may read.

    def about(self) -> About:
        """What does not change from answer to answer."""
        return About(*self._connection.execute("SELECT created, restored, writers FROM survey").fetchone())

    def round(self) -> OpenRound:
        """The round that is open, as it was written last."""
        number, phase, since, before, ending = self._connection.execute("SELECT * FROM round").fetchone()
        return OpenRound(number, Phase(phase), since, sum(one.came for one in self.counts()), before, ending)

    def counts(self) -> list[Count]:
        """Of the open round, per stratum."""
        rows = self._connection.execute("SELECT came, ones FROM counts ORDER BY stratum").fetchall()
        return [Count(*row) for row in rows]

    def late(self) -> list[int]:
        """Answers that came too late, per stratum."""
        return [row[0] for row in self._connection.execute("SELECT answers FROM late ORDER BY stratum")]

    def codes(self) -> CodeTable:
        """Every code with its stratum and its state; a million take a second."""
        try:
            return CodeTable.read(self._connection.execute("SELECT hash, stratum, state FROM codes ORDER BY hash"))
        except (sqlite3.DatabaseError, ValueError, TypeError, OverflowError):
            raise StoreError(f"{self.path} is damaged: its codes cannot be read. Restore it from a backup.") from None

    def totals(self) -> list[list[int]]:
        """How many codes are in each state, per stratum."""
        found = [[0, 0, 0, 0] for _ in range(self.strata)]
        rows = self._connection.execute("SELECT stratum, state, count(*) FROM codes GROUP BY stratum, state")
        try:
            for stratum, state, number in rows:
                found[stratum][state] = number
        except (sqlite3.DatabaseError, IndexError, TypeError):
            raise StoreError(f"{self.path} is damaged: its codes cannot be counted. Restore a backup.") from None
        return found

    def claim(self) -> None:
        """Become the file's writer, before anything is read from it: from now on the former one writes nothing."""
        self._writer = None
        try:
            with self.transaction():
                self._connection.execute("UPDATE survey SET writers = writers + 1")
                self._writer = self.about().writers
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} cannot be written ({printable(error):.200}).") from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A group of changes, all durable at the end or none; refused if another process has become the writer.

        Waits up to `LOCK_WAIT` seconds if another process holds the file's lock; then it is refused.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.path} cannot be written ({printable(error):.200}). If it is locked, end the program that "
                "holds it; if the disk is full, free it."
            ) from None
        try:
            self.require_writer()
            yield
            self.commit()
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def require_writer(self) -> None:
        """Refuse to go on if another process has become the writer since `claim`."""
        if self._writer is not None and self._writer != self.about().writers:
            raise Superseded(
                f"another gateway, or `privatile survey close`, has begun to write {self.path}: this one stops, and "
                "acknowledges nothing more. Let one gateway serve a folder."
            )

    # Changes, within a transaction.

    def change(self, changed: Sequence[Changed]) -> None:
        """Give codes their new states; each must be in the state that it is believed to have."""
        rows = [(after, code, before) for code, _, before, after in changed]
        written = self._connection.executemany("UPDATE codes SET state = ? WHERE hash = ? AND state = ?", rows).rowcount
        if written != len(rows):
            raise Altered(
                f"{self.path} was altered while it was used: {counted(len(rows) - written, 'code')} not as read."
            )

    def add(self, came: Sequence[Count], late: Sequence[int]) -> None:
        """Add to the counts of the open round and to the late answers, per stratum."""
        for place, one in enumerate(came):
            if one.came:
                self._connection.execute(
                    "UPDATE counts SET came = came + ?, ones = ones + ? WHERE stratum = ?", (*one, place)
                )
        for place, number in enumerate(late):
            if number:
                self._connection.execute("UPDATE late SET answers = answers + ? WHERE stratum = ?", (number, place))

    def mark_restored(self) -> None:
        """This is a copy from a backup: any code may have been used since, and counts as handed out."""
        self._connection.execute("UPDATE survey SET restored = restored + 1")
        self._connection.execute("UPDATE codes SET state = 1 WHERE state = 0")

    def set_round(self, state: OpenRound, *, clear: bool = False) -> None:
        """Write where the round is; with `clear` it begins without answers."""
        self._connection.execute(
            "UPDATE round SET number = ?, phase = ?, since = ?, counted_before = ?, ending = ?",
            (state.number, state.phase.value, state.since, state.counted_before, state.ending),
        )

        if clear:
            self._connection.execute("UPDATE counts SET came = 0, ones = 0")

    def commit(self) -> None:
        """Make the group of changes durable; returns once the disk has them."""
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} could not be written ({printable(error):.200}). Free the disk.") from None

    def empty_log(self) -> bool:
        """Fold the write-ahead log into the file and empty it: it holds every commit, in order.

        False where another program is reading the file: the log stays as it is.
        """
        busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """A connection without transactions of its own; another thread may wait for its disk (`intake`)."""
    mode = "ro" if read_only else "rw"
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}",
        uri=True,
        timeout=LOCK_WAIT,
        isolation_level=None,
        check_same_thread=False,
    )
    if not read_only:
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute(f"PRAGMA cache_size=-{CACHE >> 10}")
        connection.execute(f"PRAGMA wal_autocheckpoint={MOST_IN_LOG // PAGE}")
    return connection
