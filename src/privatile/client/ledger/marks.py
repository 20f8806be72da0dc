"""The mark: how far a ledger had come when it was last looked at, kept beside its key.

An older copy of a ledger verifies like the newest, and a restored state folder holds older runs with it. The mark lies
in another folder. It is written after a commit, never ahead of one, so a ledger that lacks the marked entry is an older
copy, and one that holds another entry there is one of two copies in use. Both are refused until the restore is
declared (`restores`), which sets the mark anew. A mark may lag by a few seconds of answers; where state and keys come
from the same backup, so does the mark, and it shows nothing. A copy that `privatile federation backup` made says so
itself (`MARK_COPY`), and is refused likewise, wherever it is put back.
"""

import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from privatile.core.words import printable
from privatile.errors import LedgerError

if TYPE_CHECKING:
    from privatile.client.ledger.ledger import Ledger, Position

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

    def advance(self, position: "Position") -> None:
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

    def put(self, position: "Position") -> None:
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
