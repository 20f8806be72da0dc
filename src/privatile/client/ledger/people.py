"""Lifetime budgets: what each person has spent for life.

A cohort of people lies scattered over the whole index of people, so updating it answer by answer would rewrite most
of it each time. Charges are appended instead, one row per group, and folded into the index when enough have gathered;
until then they are kept in memory too. What a person has spent is the sum of both.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger.integrity import MODULUS
from privatile.core.arrays import Floats
from privatile.errors import LedgerError

if TYPE_CHECKING:
    from privatile.client.ledger.ledger import Ledger


FOLD = 1 << 18
"""Charges kept in memory before they are folded: about 40 MB of Python objects."""

FOLD_ROWS = 1 << 12
"""Rows of charges kept before they are folded: a process reads them all (10 ms) after another one has answered."""

LARGEST_INDEX = 400_000
"""An index of up to so many people is compared before it first decides (1 s); a larger one by `verify` only."""

LOOKUP = 500
"""People looked up by one statement; SQLite allows 999 values in its oldest builds."""


class LifetimeBudgets:
    """The people of one ledger."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._pending: dict[int, float] = {}
        self._through = 0
        self._folded = 0
        self._rollbacks = 0
        self._is_checked = False

    def spent(self, people: NDArray[np.uint64]) -> Floats:
        """What each of these people has spent up to now."""
        self._catch_up()
        indexed = self._ledger.execute("SELECT 1 FROM people LIMIT 1").fetchone() is not None
        self._check_index()
        if not indexed and not self._pending:
            return np.zeros(len(people))
        names = people.view(np.int64).tolist()
        known = self._indexed(names) if indexed else {}
        return np.array([self._pending.get(name, 0.0) + known.get(name, 0.0) for name in names])

    def charge(self, groups: Sequence[NDArray[np.uint64]], epsilon: float) -> None:
        """Add ε to what these people have spent; call inside a transaction."""
        self._catch_up()
        last = self._through
        for number, group in enumerate(groups, last + 1):
            self._ledger.insert("charges", id=number, epsilon=epsilon, people=group.tobytes())
        self._catch_up()
        if len(self._pending) > FOLD or self._through - self._folded > FOLD_ROWS:
            self._fold()

    def totals(self) -> tuple[int, float]:
        """How many people are known, and the most any of them has spent."""
        self._catch_up()
        count, most = self._ledger.execute("SELECT count(*), coalesce(max(epsilon), 0.0) FROM people").fetchone()
        known = self._indexed(list(self._pending))
        spent = (epsilon + known.get(name, 0.0) for name, epsilon in self._pending.items())
        return count + len(self._pending) - len(known), max([most, *spent])

    def _indexed(self, names: list[int]) -> dict[int, float]:
        """What these people have spent by the index; those that it does not hold are left out."""
        found: dict[int, float] = {}
        for start in range(0, len(names), LOOKUP):
            part = names[start : start + LOOKUP]
            marks = ",".join("?" * len(part))
            found.update(self._ledger.execute(f"SELECT person, epsilon FROM people WHERE person IN ({marks})", part))
        return found

    def _catch_up(self) -> None:
        """Read charges added since the last look, by whoever; start over after a fold or a rollback."""
        (folded,) = self._ledger.execute("SELECT coalesce(max(value), 0) FROM meta WHERE key = 'folded'").fetchone()
        if (folded, self._ledger.rollbacks) != (self._folded, self._rollbacks):
            self._pending, self._through = {}, folded
            self._folded, self._rollbacks = folded, self._ledger.rollbacks
        rows = self._ledger.execute(
            "SELECT id, epsilon, people FROM charges WHERE id > ? ORDER BY id", (self._through,)
        )
        for number, epsilon, people in rows:
            for name in np.frombuffer(people, dtype=np.int64).tolist():
                self._pending[name] = self._pending.get(name, 0.0) + epsilon
            self._through = number

    def _fold(self) -> None:
        """Move all charges into the index, in the index's order: each of its pages is written once."""
        seal, pending = self._ledger.seal, sorted(self._pending.items())
        known = self._indexed([name for name, _ in pending])
        total = self._stored_sum()
        for name, epsilon in pending:
            before = known.get(name)
            if before is not None:
                total -= seal.number("people", (name, before))
            total += seal.number("people", (name, epsilon if before is None else before + epsilon))
        self._ledger.execute_many(
            "INSERT INTO people (person, epsilon) VALUES (?, ?)"
            " ON CONFLICT (person) DO UPDATE SET epsilon = epsilon + excluded.epsilon",
            pending,
        )
        self._ledger.delete("charges")
        self._ledger.put("indexed", self.indexed() + len(pending) - len(known))
        self._ledger.put("people", seal.mask(self._through, total % MODULUS))
        self._ledger.put("folded", self._through)
        self._catch_up()

    def indexed(self) -> int:
        """How many people the index holds, as it was after the last fold."""
        row = self._ledger.execute("SELECT value FROM meta WHERE key = 'indexed'").fetchone()
        return 0 if row is None else int(row[0])

    def _stored_sum(self) -> int:
        """The sum over the index, as it was after the last fold."""
        stored = self._ledger.meta("people")
        if stored is None:
            return 0
        (folded,) = self._ledger.execute("SELECT value FROM meta WHERE key = 'folded'").fetchone()
        return int.from_bytes(self._ledger.seal.mask(folded, int.from_bytes(stored, "little")), "little")

    def check_again(self) -> None:
        """Compare the index anew before it next decides: the file was opened, or somebody has written to it."""
        self._is_checked = False

    def _check_index(self) -> None:
        if not self._is_checked:
            with self._ledger.reading():
                if self.indexed() <= LARGEST_INDEX:
                    self.verify()
            self._is_checked = True

    def verify(self) -> None:
        """Refuse an index of people that is not the one that was written."""
        rows = self._ledger.execute("SELECT person, epsilon FROM people")
        total = sum(self._ledger.seal.number("people", row) for row in rows) % MODULUS
        if total != self._stored_sum():
            raise LedgerError(
                f"the ledger {self._ledger.path} was altered: what its people have spent is not what was written. "
                "Restore it from a backup, then mark as spent what was answered since."
            )
