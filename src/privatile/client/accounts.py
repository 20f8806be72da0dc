"""Accounts: the rules by which records answer, for one run at one client.

- A record answers once. A run walks the order forward from the cursor; past the last record it is refused.
- `spend_again` lets a run walk on into records that have answered; the ledger adds up what they have spent.
- A round asked again with the identical question gets the stored count; with any field changed it is refused.
- Content that differs from what the ledger knows for this client and column is refused; `new_people` says that
  they are others. With a person column the people themselves are known, and other content is welcome.
- The same content under another name, or the same column split among other clients (`kin`), is refused: its records
  have answered. `spend_again` adds it up.
- People are known by one column: another one would make everybody new, and is refused unless `new_people`.
- A run may reserve the records it will ask; other runs then walk behind them.
- `max_epsilon` bounds what a person (without a person column: a record) spends for life.

Opening an account writes nothing; the first answer does.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from privatile.client.kin import Cut, kin, most_spent, own_spent, spent_by_kin
from privatile.client.ledger import Ledger, Position
from privatile.client.people import PersonKey
from privatile.errors import AlreadyAnswered, Equivocation, InputError, LedgerError, OtherContent
from privatile.mechanism import RandomizedResponse
from privatile.protocol import Question

log = logging.getLogger("privatile.client")

ROUNDING = 1e-9
"""Realised ε falls short of the nominal one by up to 1e-10; a lifetime's sums must not trip over that."""


class Content(Protocol):
    """What the ledger needs to know of a column; a `ShuffledColumn` is one."""

    @property
    def client(self) -> str:
        """Who holds the records."""
        ...

    @property
    def column(self) -> str:
        """The name of the values."""
        ...

    @property
    def digest(self) -> bytes:
        """Keyed digest of the content, in its order."""
        ...

    @property
    def values_digest(self) -> bytes:
        """Keyed digest of its values alone, before reduction to one a person."""
        ...

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The whole column it is a part of and the split, and itself as a whole."""
        ...

    @property
    def records(self) -> int:
        """How many records, after reduction to one a person."""
        ...

    @property
    def person_column(self) -> str | None:
        """The name of the person column."""
        ...

    @property
    def person_key(self) -> PersonKey | None:
        """The key under which its people are known; None without a person column."""
        ...


@dataclass(frozen=True)
class Terms:
    """What the holder of the data allows beyond the rule "once".

    >>> Terms(max_epsilon=-1)
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: max_epsilon must be a positive number; got -1.
    """

    spend_again: bool = False
    new_people: bool = False
    max_epsilon: float | None = None

    def __post_init__(self) -> None:
        limit = self.max_epsilon
        if limit is not None and not limit > 0:
            raise InputError(f"max_epsilon must be a positive number; got {limit!r}.")


@dataclass(frozen=True)
class Stored:
    """An answer that was given: its count, and where the ledger stood."""

    ones: int
    position: Position


class Stand(NamedTuple):
    """Where an account stands: data set, next position, the run's first position (None: it has not begun).

    `reserved` is where the run's reserved span ends; None where it has none, and walks at the data set's cursor.
    """

    dataset: int | None
    cursor: int
    first: int | None
    lost_through: int
    reserved: int | None = None
    last: bool = True
    """Nobody has answered or reserved behind this run's span."""


class Account:
    """One run at one client: what it may ask, what it has asked."""

    def __init__(
        self, ledger: Ledger, run: str, content: Content, mechanism: RandomizedResponse, terms: Terms | None = None
    ) -> None:
        self.ledger = ledger
        self.run = run
        self.content = content
        self.terms = terms or Terms()
        self.epsilon = mechanism.epsilon
        self._threshold = str(mechanism.threshold)
        self._spend_again = self.terms.spend_again
        self._open()

    # -- opening -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        content, name = self.content, self._name
        if content.person_key is not None:
            self.ledger.know_person_key(content.person_key.fingerprint)
        row = self.ledger.execute(
            "SELECT d.digest, d.column, r.threshold, r.epsilon, r.spend_again FROM runs r"
            " JOIN datasets d ON d.id = r.dataset WHERE r.run = ? AND r.client = ?",
            (self.run, content.client),
        ).fetchone()
        if row is not None:
            digest, column, threshold, epsilon, spend_again = row
            if column != content.column or bytes(digest) != content.digest:
                raise OtherContent(
                    f"run {self.run!r} began at {self._name_of(column)} with other content, or in another order, and "
                    "cannot go on with this one: records could answer twice. Give the same file unchanged (a database "
                    "query needs an ORDER BY), or start a new run."
                )
            if threshold != self._threshold:
                raise LedgerError(
                    f"run {self.run!r} began at {name} with epsilon {epsilon:.6g}; got {self.epsilon:.6g}. A run keeps "
                    "its budget: start a new run to use another."
                )
            self._spend_again = self._spend_again or bool(spend_again)
            return
        self._refuse_other_person_column()
        self._refuse_kin()
        self._refuse_other_content()
        self._refuse_over_limit()
        start, limit = self.window()
        if start == limit:
            raise self._spent_out(asked=None, left=0)

    def _refuse_other_person_column(self) -> None:
        column = self.content.person_column
        if column is None or self.terms.new_people:
            return
        row = self.ledger.execute(
            "SELECT person FROM datasets WHERE person IS NOT NULL AND person <> ? LIMIT 1", (column,)
        ).fetchone()
        if row is not None:
            raise OtherContent(
                f"the ledger knows people by a column {row[0]!r}; got {column!r}. By another column everybody would "
                f"look new and answer again. Give --person {row[0]} (rename the column where it holds the same "
                "names); if these are other people, say so (--new-people)."
            )

    def _kin(self) -> tuple[list[int], list[int]]:
        """The data sets that share records with this one: all of them, and those identical to it."""
        content = self.content
        by_person = content.person_key is not None
        found = kin(self.ledger, content.cuts, content.column, by_person, content.values_digest)
        return [each.dataset for each in found], [each.dataset for each in found if each.identical]

    def _elsewhere(self) -> float:
        """The most that one of these records has spent under other names."""
        content = self.content
        by_person = content.person_key is not None
        return spent_by_kin(self.ledger, content.cuts, content.column, by_person, content.values_digest)

    def _refuse_kin(self) -> None:
        shared, identical = self._kin()
        known = identical if self.terms.new_people else shared
        if self._spend_again or not known:
            return
        client, column = self.ledger.execute("SELECT client, column FROM datasets WHERE id = ?", known[:1]).fetchone()
        same = "the same values" if identical else "the same column, split among other clients,"
        spent = self._elsewhere()
        cure = "" if identical else " If these are other people, say so (--new-people)."
        person = "" if self.content.person_key is None else " (--person counts from the first run on)"
        raise AlreadyAnswered(
            f"{self._name} holds records that have answered before: {same} as client {client!r}, column {column!r}"
            f"{person}. Up to epsilon {spent:.6g} each is spent; another run over them would make it "
            f"{spent + self.epsilon:.6g}. Accept that with --spend-again.{cure}"
        )

    def _refuse_other_content(self) -> None:
        content = self.content
        rows = self.ledger.execute(
            "SELECT id, digest, person IS NOT NULL FROM datasets WHERE client = ? AND column = ?",
            (content.client, content.column),
        ).fetchall()
        if self.terms.new_people or any(bytes(digest) == content.digest for _, digest, _ in rows):
            return
        added_up, _ = self._kin()
        strangers = [
            int(key)
            for key, _, by_person in rows
            if not (by_person and content.person_key is not None) and key not in added_up
        ]
        if strangers:
            spent = max(most_spent(self.ledger, key) for key in strangers)
            raise OtherContent(
                f"{self._name} has answered before with other content (up to epsilon {spent:.6g} a record). A new "
                "export of the same people would let them answer again. Give the same file unchanged; if these are "
                "other people, say so (--new-people); with a person column (--person, from the first run on) the "
                "ledger recognises people itself."
            )

    def _refuse_over_limit(self) -> None:
        limit = self.terms.max_epsilon
        if limit is None:
            return
        if self.epsilon > limit + ROUNDING:
            raise InputError(
                f"{self._name} allows epsilon {limit:.6g} for life (--max-epsilon), and one answer at epsilon "
                f"{self.epsilon:.6g} is more. Ask with a smaller epsilon, or allow more."
            )
        spent = self._elsewhere()
        if self.content.person_key is None:
            dataset = self.stand().dataset
            if dataset is not None and self._spend_again:
                spent += own_spent(self.ledger, dataset)
        if spent + self.epsilon > limit + ROUNDING:
            raise AlreadyAnswered(
                f"{self._name} allows epsilon {limit:.6g} for life; this run would spend {self.epsilon:.6g} on top of "
                f"{spent:.6g} already spent. Ask with a smaller epsilon."
            )

    # -- where it stands -----------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return self._name_of(self.content.column)

    def _name_of(self, column: str) -> str:
        return f"client {self.content.client!r}, column {column!r},"

    def stand(self) -> Stand:
        """Where the ledger has this run and its data set."""
        content = self.content
        row = self.ledger.execute(
            "SELECT d.id, coalesce(r.next, d.cursor), r.first, r.lost_through, r.reserved, d.cursor <= r.reserved"
            " FROM datasets d LEFT JOIN runs r"
            " ON r.run = ? AND r.client = d.client AND r.dataset = d.id"
            " WHERE d.client = ? AND d.column = ? AND d.digest = ?",
            (self.run, content.client, content.column, content.digest),
        ).fetchone()
        if row is None:
            return Stand(None, 0, None, 0)
        dataset, cursor, first, lost_through, reserved, last = row
        return Stand(dataset, cursor, first, lost_through or 0, reserved, reserved is None or bool(last))

    def window(self, stand: Stand | None = None) -> tuple[int, int]:
        """The positions this run may still walk: up to where a record would answer again, or another run's begin."""
        stand = stand or self.stand()
        start = stand.cursor
        if stand.reserved is not None and not stand.last:
            return start, max(start, stand.reserved)
        # Within one run a record answers once, whatever may be spent again.
        origin = (start if stand.first is None else stand.first) if self._spend_again else 0
        return start, max(start, origin + self.content.records)

    def may_answer(self, people: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of these people the rules let answer this run."""
        spent = self.ledger.purses.spent(people)
        allowed = np.ones(len(people), dtype=np.bool_) if self._spend_again else spent == 0.0
        if self.terms.max_epsilon is not None:
            allowed &= spent + self._elsewhere() + self.epsilon <= self.terms.max_epsilon + ROUNDING
        return allowed

    # -- answering -----------------------------------------------------------------------------------------------

    def replay(self, question: Question) -> Stored | Stand:
        """The stored answer to the identical question; where it stands if the round is new; refused otherwise."""
        if question.run != self.run:
            raise Equivocation(f"this account is for run {self.run!r}; a question of run {question.run!r} is refused.")
        row = self.ledger.execute(
            "SELECT question, ones, sequence, head FROM answers WHERE run = ? AND client = ? AND round = ?"
            " AND level = ?",
            (self.run, self.content.client, question.round, question.level),
        ).fetchone()
        if row is not None:
            if row[0] == question.to_json():
                return Stored(int(row[1]), Position(int(row[2]), bytes(row[3])))
            self._refuse(question, "was answered, and is asked again with another question")
        stand = self.stand()
        if question.round <= stand.lost_through:
            self._refuse(question, "was answered before this ledger was restored; its count is lost")
        return stand

    def _refuse(self, question: Question, why: str) -> None:
        log.warning("refused run=%r client=%r round=%d: it %s", self.run, self.content.client, question.round, why)
        raise Equivocation(
            f"round {question.round} of run {self.run!r} at {self._name} {why}. Nothing was answered. The coordinator "
            "must repeat a question as it was, or ask a new round."
        )

    def record(
        self,
        question: Question,
        stand: Stand,
        stop: int,
        ones: int,
        people: Sequence[NDArray[np.uint64]] = (),
    ) -> Stored:
        """Write an answer down. Call inside the ledger's transaction; it counts once that has ended."""
        asked = (question.round, question.level, question.to_json())
        return Stored(ones, self._charge(asked, stand, stop, question.length, ones, people))

    def record_lost(
        self, stand: Stand, stop: int, length: int, through_round: int, people: Sequence[NDArray[np.uint64]] = ()
    ) -> None:
        """Mark records as spent whose answers a restored ledger does not hold."""
        self._charge(None, stand, stop, length, None, people)
        self.ledger.execute(
            "UPDATE runs SET lost_through = max(lost_through, ?) WHERE run = ? AND client = ?",
            (through_round, self.run, self.content.client),
        )

    def _charge(
        self,
        asked: tuple[int, float, str] | None,
        stand: Stand,
        stop: int,
        length: int,
        ones: int | None,
        people: Sequence[NDArray[np.uint64]],
    ) -> Position:
        if stand.first is None:
            self._enter(stand.cursor)
            stand = self.stand()
        if stand.reserved is None:
            moved = self.ledger.execute(
                "UPDATE datasets SET cursor = ? WHERE id = ? AND cursor = ?", (stop, stand.dataset, stand.cursor)
            )
        else:
            moved = self.ledger.execute(
                "UPDATE runs SET next = ?, reserved = max(reserved, ?) WHERE run = ? AND client = ? AND next = ?",
                (stop, stop, self.run, self.content.client, stand.cursor),
            )
            self.ledger.execute("UPDATE datasets SET cursor = max(cursor, ?) WHERE id = ?", (stop, stand.dataset))
        if moved.rowcount != 1:
            raise LedgerError(f"{self._name} has moved on while a question was answered. Ask again.")
        if people:
            self.ledger.purses.charge(people, self.epsilon)
        return self.ledger.append(self.run, self.content.client, asked, (stand.cursor, stop), length, ones)

    def _enter(self, first: int) -> None:
        """Enter the data set and the run in the books, the first time."""
        content = self.content
        # Another process may have begun since this account was opened; under the write lock the rules hold.
        self._open()
        self.ledger.execute(
            "INSERT INTO datasets (client, column, digest, content, person, records, cursor)"
            " VALUES (?, ?, ?, ?, ?, ?, 0) ON CONFLICT DO NOTHING",
            (
                *(content.client, content.column, content.digest, content.values_digest),
                *(content.person_column, content.records),
            ),
        )
        for source, split in content.cuts:
            self.ledger.execute(
                "INSERT INTO splits (source, split, column, dataset) SELECT ?, ?, column, id FROM datasets"
                " WHERE client = ? AND column = ? AND digest = ? ON CONFLICT DO NOTHING",
                (source, split, content.client, content.column, content.digest),
            )
        self.ledger.execute(
            "INSERT INTO runs (run, client, dataset, threshold, epsilon, first, spend_again)"
            " SELECT ?, client, id, ?, ?, ?, ? FROM datasets WHERE client = ? AND column = ? AND digest = ?",
            (
                *(self.run, self._threshold, self.epsilon, first, self._spend_again),
                *(content.client, content.column, content.digest),
            ),
        )
        if content.person_key is not None:
            # The key must be safe before the ledger holds a person known by it.
            content.person_key.save()
            self.ledger.keep_person_key(content.person_key.fingerprint)

    # -- reserving -----------------------------------------------------------------------------------------------

    def asked(self) -> int:
        """How many records this run has asked."""
        (asked,) = self.ledger.execute(
            "SELECT coalesce(sum(length), 0) FROM answers WHERE run = ? AND client = ?", (self.run, self.content.client)
        ).fetchone()
        return int(asked)

    def after_all(self) -> Stand:
        """Where a new span of this run would begin: behind everything answered or reserved."""
        stand = self.stand()
        row = self.ledger.execute("SELECT cursor FROM datasets WHERE id = ?", (stand.dataset,)).fetchone()
        return stand if row is None else stand._replace(cursor=row[0], last=True)

    def reserve(self, start: int, stop: int) -> None:
        """Keep the positions from `start` up to `stop` for this run. Call inside the ledger's transaction."""
        if self.stand().first is None:
            self._enter(start)
        self.ledger.execute(
            "UPDATE runs SET next = ?, reserved = ? WHERE run = ? AND client = ?",
            (start, stop, self.run, self.content.client),
        )
        self.ledger.execute("UPDATE datasets SET cursor = max(cursor, ?) WHERE id = ?", (stop, self.stand().dataset))

    def release(self) -> None:
        """Give back what this run has reserved and not asked, unless a later run already stands behind it."""
        with self.ledger.transaction():
            release(self.ledger, self.run, self.content.client)

    def _spent_out(self, asked: int | None, left: int, spent: float | None = None) -> AlreadyAnswered:
        dataset = self.stand().dataset
        if spent is None:
            spent = self._elsewhere() if dataset is None else most_spent(self.ledger, dataset)
        whose = "people" if self.content.person_key is not None else "records"
        wanted = "" if asked is None else f", {asked} were asked"
        limit = self.terms.max_epsilon
        total = spent + self.epsilon
        if spent == 0:
            history = f"Ask fewer {whose} (shorter rounds, or fewer of them)."
        else:
            history = f"Up to epsilon {spent:.6g} each is spent; another run over them would make it {total:.6g}"
            if limit is not None and total > limit + ROUNDING:
                history += f", above the {limit:.6g} allowed for life (--max-epsilon). Ask new {whose}."
            elif self._spend_again:
                history += f". Within a run each answers once: ask fewer, or new {whose}."
            else:
                history += f". Accept that with --spend-again, or ask new {whose}."
        return AlreadyAnswered(f"{self._name} has {left} {whose} left that may answer{wanted}. {history}")

    def refuse_more(self, asked: int | None, left: int, spent: float | None = None) -> AlreadyAnswered:
        """The error for a question that asks more records than may answer, the most of which have `spent` so much."""
        return self._spent_out(asked, left, spent)


def release(ledger: Ledger, run: str, client: str) -> None:
    """Give back a run's reserved records that were not asked; call inside a transaction.

    The cursor returns to the last position that is answered or still reserved. Records before it that nobody asked
    stay unasked: no order of events makes a record answer twice.
    """
    ledger.execute("UPDATE runs SET reserved = next WHERE run = ? AND client = ? AND reserved > next", (run, client))
    ledger.execute(
        "UPDATE datasets SET cursor = max("
        " (SELECT coalesce(max(r.reserved), 0) FROM runs r WHERE r.dataset = datasets.id),"
        " (SELECT coalesce(max(a.stop), 0) FROM runs r JOIN answers a ON a.run = r.run AND a.client = r.client"
        "  WHERE r.dataset = datasets.id))"
        " WHERE id = (SELECT dataset FROM runs WHERE run = ? AND client = ? AND reserved IS NOT NULL)",
        (run, client),
    )
