"""Accounts: the rules by which records answer, for one run at one client.

- A record answers once. A run walks the order forward from the cursor; past the last record it is refused.
- `spend_again` lets a run walk on into records that have answered; the ledger adds up what they have spent.
- A round asked again with the identical question gets the stored count; with any field changed it is refused.
- A new run is admitted by what the ledger knows of its records (`admission`).
- A run may reserve the records it will ask; other runs then walk behind them. What was reserved and not asked is
  released at the run's end, or when the run is given up.
- `max_epsilon` bounds what a person (without a person column: a record) spends for life.

Opening an account writes nothing; the first answer does.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger.admission import admit, price
from privatile.client.ledger.datasets import Content, dataset_id, most_spent, spent_elsewhere
from privatile.client.ledger.ledger import Ledger, Position
from privatile.client.ledger.spending_rules import SpendingRules
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.errors import AlreadyAnswered, Equivocation, InputError, LedgerError, OtherContent

log = logging.getLogger("privatile.client")


@dataclass(frozen=True)
class Stored:
    """An answer that was given: its count, and the position of the ledger's chain after it."""

    ones: int
    position: Position


class AccountState(NamedTuple):
    """The ledger's entry for an account: data set, next position, the run's first position (None: it has not begun).

    `reserved` is where the run's reserved span ends; None where it has none, and walks at the data set's cursor.
    `end` is that cursor: everything answered or reserved, by whichever run, lies before it.
    """

    dataset: int | None
    cursor: int
    first: int | None = None
    lost_through: int = 0
    reserved: int | None = None
    end: int = 0


@dataclass(eq=False, repr=False)
class Account:
    """One run at one client: what it may ask, what it has asked."""

    ledger: Ledger
    run: str
    content: Content
    mechanism: RandomizedResponse
    rules: SpendingRules

    def __post_init__(self) -> None:
        self.epsilon = self.mechanism.epsilon
        self._threshold = str(self.mechanism.threshold)
        self._open()

    # -- opening -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        content = self.content
        if content.person_key is not None:
            self.ledger.check_person_key(content.person_key.fingerprint)
        row = self.ledger.execute(
            "SELECT d.digest, d.column, r.threshold, r.epsilon, r.spend_again FROM runs r"
            " JOIN datasets d ON d.id = r.dataset WHERE r.run = ? AND r.client = ?",
            (self.run, content.client),
        ).fetchone()
        if row is not None:
            digest, column, threshold, epsilon, spend_again = row
            if column != content.column or digest != content.digest:
                raise OtherContent(
                    f"run {self.run!r} began at client {content.client!r}, column {column!r}, with other content, or "
                    "in another order, and cannot continue with this one: records could answer twice. Give the same "
                    "file unchanged (a database query needs an ORDER BY), or start a new run."
                )
            if threshold != self._threshold:
                raise LedgerError(
                    f"run {self.run!r} began at {content} with epsilon {epsilon:.6g}; got {self.epsilon:.6g}. A run "
                    "keeps its budget: start a new run to use another."
                )
            if spend_again:
                self.rules = replace(self.rules, spend_again=True)
            return
        admit(self.ledger, content, self.epsilon, self.rules)
        start, limit = self.window()
        if start == limit:
            raise self.refusal(asked=None, left=0)

    # -- state ---------------------------------------------------------------------------------------------------

    def state(self) -> AccountState:
        """The ledger's entry for this run and its data set, as it is now."""
        content = self.content
        row = self.ledger.execute(
            "SELECT d.id, coalesce(r.next, d.cursor), r.first, coalesce(r.lost_through, 0), r.reserved, d.cursor"
            " FROM datasets d"
            " LEFT JOIN runs r ON r.run = ? AND r.client = d.client AND r.dataset = d.id"
            " WHERE d.client = ? AND d.column = ? AND d.digest = ?",
            (self.run, content.client, content.column, content.digest),
        ).fetchone()
        return AccountState(None, 0) if row is None else AccountState(*row)

    def window(self, state: AccountState | None = None) -> tuple[int, int]:
        """The positions this run may still walk: up to where a record would answer again, or another run's begin."""
        state = state or self.state()
        start = state.cursor
        if state.reserved is not None and state.end > state.reserved:
            return start, max(start, state.reserved)
        # Within one run a record answers once, whatever may be spent again.
        origin = (start if state.first is None else state.first) if self.rules.spend_again else 0
        return start, max(start, origin + self.content.records)

    def may_answer(self, people: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of these people the rules let answer this run."""
        spent = self.ledger.lifetime_budgets.spent(people)
        allowed = np.ones(len(people), dtype=np.bool_) if self.rules.spend_again else spent == 0.0
        if self.rules.max_epsilon is not None:
            total = spent + spent_elsewhere(self.ledger, self.content) + self.epsilon
            allowed &= total <= self.rules.lifetime_limit
        return allowed

    def asked(self) -> int:
        """How many records this run has asked."""
        (asked,) = self.ledger.execute(
            "SELECT coalesce(sum(length), 0) FROM answers WHERE run = ? AND client = ?", (self.run, self.content.client)
        ).fetchone()
        return int(asked)

    # -- answering -----------------------------------------------------------------------------------------------

    def replay(self, question: Question) -> Stored | AccountState:
        """The stored answer to the identical question; the account's state if the round is new; refused otherwise."""
        if question.run != self.run:
            raise Equivocation(f"this account is for run {self.run!r}; a question of run {question.run!r} is refused.")
        row = self.ledger.execute(
            "SELECT question, ones, sequence, head FROM answers WHERE run = ? AND client = ? AND round = ?"
            " AND level = ?",
            (self.run, self.content.client, question.round, question.level),
        ).fetchone()
        if row is not None:
            if row[0] == question.to_json():
                return Stored(row[1], Position(*row[2:]))
            self._refuse(question, "was answered, and is asked again with another question")
        state = self.state()
        if question.round <= state.lost_through:
            self._refuse(question, "was answered before this ledger was restored; its count is lost")
        return state

    def _refuse(self, question: Question, why: str) -> None:
        log.warning("refused run=%r client=%r round=%d: it %s", self.run, self.content.client, question.round, why)
        raise Equivocation(
            f"round {question.round} of run {self.run!r} at {self.content} {why}. Nothing was answered. The "
            "coordinator must repeat a question as it was, or ask a new round."
        )

    def record_lost(
        self, state: AccountState, stop: int, length: int, through_round: int, people: Sequence[NDArray[np.uint64]]
    ) -> None:
        """Mark records as spent whose answers a restored ledger does not hold."""
        self.record(None, state, stop, length, None, people)
        self.ledger.execute(
            "UPDATE runs SET lost_through = max(lost_through, ?) WHERE run = ? AND client = ?",
            (through_round, self.run, self.content.client),
        )

    def record(
        self,
        question: Question | None,
        state: AccountState,
        stop: int,
        length: int,
        ones: int | None,
        people: Sequence[NDArray[np.uint64]],
    ) -> Position:
        """Write an answer down. Call inside the ledger's transaction; it counts once that has ended."""
        if state.first is None:
            self._enter(state.cursor)
            state = self.state()
        if state.reserved is None:
            moved = self.ledger.execute(
                "UPDATE datasets SET cursor = ? WHERE id = ? AND cursor = ?", (stop, state.dataset, state.cursor)
            )
        else:
            moved = self.ledger.execute(
                "UPDATE runs SET next = ?, reserved = max(reserved, ?) WHERE run = ? AND client = ? AND next = ?",
                (stop, stop, self.run, self.content.client, state.cursor),
            )
            self.ledger.execute("UPDATE datasets SET cursor = max(cursor, ?) WHERE id = ?", (stop, state.dataset))
        if moved.rowcount != 1:
            raise LedgerError(f"{self.content} has moved on while a question was answered. Ask again.")
        if people:
            self.ledger.lifetime_budgets.charge(people, self.epsilon)
        return self.ledger.append(self.run, self.content.client, question, (state.cursor, stop), length, ones)

    def _enter(self, first: int) -> None:
        """Enter the data set and the run in the ledger, the first time."""
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
        dataset = dataset_id(self.ledger, content)
        self.ledger.execute_many(
            "INSERT INTO splits (source, split, column, dataset) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            [(source, split, content.column, dataset) for source, split in content.splits],
        )
        self.ledger.execute(
            "INSERT INTO runs (run, client, dataset, threshold, epsilon, first, spend_again)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (self.run, content.client, dataset, self._threshold, self.epsilon, first, self.rules.spend_again),
        )
        if content.person_key is not None:
            # The key must be safe before the ledger holds a person known by it.
            content.person_key.save()
            self.ledger.execute(
                "INSERT OR IGNORE INTO meta (key, value) VALUES ('person key', ?)", (content.person_key.fingerprint,)
            )

    # -- reserving -----------------------------------------------------------------------------------------------

    def reserve(self, start: int, stop: int) -> None:
        """Keep the positions from `start` up to `stop` for this run. Call inside the ledger's transaction."""
        if self.state().first is None:
            self._enter(start)
        self.ledger.execute(
            "UPDATE runs SET next = ?, reserved = ? WHERE run = ? AND client = ?",
            (start, stop, self.run, self.content.client),
        )
        self.ledger.execute(
            "UPDATE datasets SET cursor = max(cursor, ?) WHERE id = ?", (stop, dataset_id(self.ledger, self.content))
        )

    def release(self) -> None:
        """Release what this run has reserved and not asked, unless a later run already stands behind it."""
        with self.ledger.transaction():
            release(self.ledger, self.run, self.content.client)

    # -- refusing ------------------------------------------------------------------------------------------------

    def refusal(self, asked: int | None, left: int, spent: float | None = None) -> AlreadyAnswered:
        """The error for a question that asks more records than may answer; `spent` is the most that one has spent."""
        dataset = dataset_id(self.ledger, self.content)
        if spent is None and dataset is not None:
            spent = most_spent(self.ledger, dataset)
        elif spent is None:
            spent = spent_elsewhere(self.ledger, self.content)
        whose = "people" if self.content.by_person else "records"
        wanted = "" if asked is None else f", {asked} were asked"
        if spent == 0:
            history = f"Ask fewer {whose} (shorter rounds, or fewer of them)."
        elif spent + self.epsilon > self.rules.lifetime_limit:
            limit = f"{self.rules.max_epsilon:.6g}"
            history = f"{price(spent, self.epsilon)}, above what is allowed for life (max_epsilon={limit}). "
            history += f"Ask new {whose}."
        elif self.rules.spend_again:
            history = f"{price(spent, self.epsilon)}. Within a run each answers once: ask fewer, or new {whose}."
        else:
            history = f"{price(spent, self.epsilon)}. Accept that with spend_again=True, or ask new {whose}."
        reserved = self.ledger.execute(
            "SELECT run, reserved - next FROM runs WHERE dataset = ? AND run <> ? AND reserved > next",
            (dataset, self.run),
        ).fetchall()
        if reserved:
            names = ", ".join(repr(run) for run, _ in reserved)
            where = "" if self.ledger.path is None else f" --ledger {self.ledger.path}"
            history = (
                f"{sum(count for _, count in reserved)} are reserved for a run that is in progress or was broken off "
                f"({names}): let it end, resume it, or give it up (privatile ledger release {reserved[0][0]}{where}). "
                f"{history}"
            )
        return AlreadyAnswered(f"{self.content} has {left} {whose} left that may answer{wanted}. {history}")


def release(ledger: Ledger, run: str, client: str) -> None:
    """Release a run's reserved records that were not asked; call inside a transaction.

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


def release_run(ledger: Ledger, run: str) -> int:
    """Release what a run has reserved and not asked at all its clients; how many records that is."""
    with ledger.transaction():
        rows = ledger.execute("SELECT client, coalesce(reserved - next, 0) FROM runs WHERE run = ?", (run,)).fetchall()
        if not rows:
            raise InputError(f"the ledger {ledger.path} knows no run {run!r}.")
        for client, _ in rows:
            release(ledger, run, client)
    return sum(count for _, count in rows)
