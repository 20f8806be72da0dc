"""Accounts: the rules by which records answer, for one run at one client.

- A record answers once. A run walks the order forward from the cursor; past the last record it is refused.
- `spend_again` lets a run walk on into records that have answered; the ledger adds up what they have spent.
- A round asked again with the identical question gets the stored count; with any field changed it is refused.
- A new run is admitted by what the ledger knows of its records (`admission`).
- A run may reserve the records it will ask; other runs then walk behind them. What was reserved and not asked is
  released at the run's end, or when the run is given up.
- `max_epsilon` bounds what a person spends for life: by name, and in all data sets without a person column, where
  every record counts as one person. The last one that was given is kept in the ledger, and a run without one takes it.
  It is looked up and checked at every answer, and what other runs have reserved counts as spent.
- After a restore only what the run had reserved may answer, once its coordinator has shown what it asked (`restores`).
- Where people arrive while a run goes on, its data set is the column itself, whatever it holds today (`arrivals`). No
  cursor says who has answered: every person is looked up.

Opening an account writes nothing; the first answer does.
"""

import logging
import math
import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger.admission import admit, over_limit, price
from privatile.client.ledger.arrivals import as_arriving, note_arrived
from privatile.client.ledger.datasets import NEW_PEOPLE, Content, dataset_id, enter_dataset, own_spent, spent_elsewhere
from privatile.client.ledger.ledger import Ledger, Position
from privatile.client.ledger.record_limits import RecordLimit
from privatile.client.ledger.reservations import release, reserved_by_others
from privatile.client.ledger.spending_rules import SpendingRules
from privatile.client.ledger.stored_answers import Stored, stored_answer
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.core.words import counted
from privatile.errors import AlreadyAnswered, Equivocation, LedgerError, OtherContent

log = logging.getLogger("privatile.client")


class AccountState(NamedTuple):
    """The ledger's entry for an account: data set, next position, the run's first position (None: it has not begun).

    `reserved` is where the run's reserved span ends; None where it has none, and walks at the data set's cursor.
    `end` is that cursor: everything answered or reserved, by whichever run, lies before it. `entries` is how many the
    run has, `asked` how many records it has asked. `lost`: the data set was there when the ledger was restored.
    `unproven`: so was the run, and nobody has shown since what it had asked.
    """

    dataset: int | None
    cursor: int
    first: int | None = None
    lost_through: int = 0
    reserved: int | None = None
    end: int = 0
    entries: int = 0
    asked: int = 0
    lost: bool = False
    unproven: bool = False


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
        if self.rules.arriving:
            self.content = as_arriving(self.ledger, self.content)
        self._limit = RecordLimit(self.ledger, self.run, self.content, self.rules.new_people)
        self._is_kept = False
        """Whether the ledger has what the holder said with this run: from then on, the limit is the ledger's."""
        self._open()

    # -- opening -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        content = self.content
        if content.person_key is not None:
            self.ledger.check_person_key(content.person_key)
        row = self.ledger.execute(
            "SELECT d.digest, d.column, r.threshold, r.epsilon, r.spend_again, r.asked FROM runs r"
            " JOIN datasets d ON d.id = r.dataset WHERE r.run = ? AND r.client = ?",
            (self.run, content.client),
        ).fetchone()
        if row is not None:
            digest, column, threshold, epsilon, spend_again, asked = row
            if column != content.column or digest != content.digest:
                raise OtherContent(
                    f"run {self.run!r} began at client {content.client!r}, column {column!r}, with other content, or "
                    f"in another order, of which {counted(asked, 'record')} answered, and cannot continue with this "
                    "one: records could answer twice. Give the same file unchanged (a database query needs an ORDER "
                    "BY), or start a new run."
                )
            if threshold != self._threshold:
                raise LedgerError(
                    f"run {self.run!r} began at {content} with epsilon {epsilon:.6g}; got {self.epsilon:.6g}. A run "
                    "keeps its budget: start a new run to use another."
                )
            if spend_again:
                self.rules = replace(self.rules, spend_again=True)
            if not self.rules.arriving:  # else the column may hold others than the last time
                return
        admit(self._limit, self.epsilon, self.in_force())
        start, limit = self.window()
        if start == limit and (not self.rules.arriving or self.state().lost):
            raise self.refusal(asked=None, left=0)

    # -- state ---------------------------------------------------------------------------------------------------

    def state(self) -> AccountState:
        """The ledger's entry for this run and its data set, as it is now."""
        content = self.content
        row = self.ledger.execute(
            "SELECT d.id, coalesce(r.next, d.cursor), r.first, coalesce(r.lost_through, 0), r.reserved, d.cursor,"
            " coalesce(r.answers, 0), coalesce(r.asked, 0), d.lost, coalesce(r.unproven, 0) FROM datasets d"
            " LEFT JOIN runs r ON r.run = ? AND r.client = d.client AND r.dataset = d.id"
            " WHERE d.client = ? AND d.column = ? AND d.digest = ?",
            (self.run, content.client, content.column, content.digest),
        ).fetchone()
        return AccountState(None, 0) if row is None else AccountState(*row)

    def window(self, state: AccountState | None = None) -> tuple[int, int]:
        """The positions this run may still walk: up to where a record would answer again, or another run's begin."""
        state = state or self.state()
        if self.rules.arriving:
            return 0, 0 if state.lost else self.content.records
        start = state.cursor
        if state.lost and not self.rules.spend_again:
            return start, max(start, state.reserved or 0)
        if state.reserved is not None and state.end > state.reserved:
            return start, max(start, state.reserved)
        # Within one run a record answers once, whatever may be spent again.
        origin = (start if state.first is None else state.first) if self.rules.spend_again else 0
        return start, max(start, origin + self.content.records)

    def in_force(self) -> SpendingRules:
        """The rules, with the last limit that was given in the ledger; no run exceeds the one it was given itself."""
        own, kept = self.rules.max_epsilon, self.ledger.max_epsilon
        if own is None or (kept is not None and kept < own and self._is_kept):
            return replace(self.rules, max_epsilon=kept)
        return self.rules

    def may_answer(self, people: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of these people the rules let answer this run."""
        spent = self.ledger.lifetime_budgets.spent(people)
        allowed = np.ones(len(people), dtype=np.bool_) if self.rules.spend_again else spent == 0.0
        rules = self.in_force()
        if rules.max_epsilon is not None:
            # What people of a data set that was lost in a restore have spent is not known.
            elsewhere = math.inf if self.state().lost else self._limit.spent_elsewhere()
            allowed &= spent + elsewhere + self.epsilon <= rules.lifetime_limit
        return allowed

    def asked(self) -> int:
        """How many records this run has asked."""
        return self.state().asked

    def check_limit(self, start: int, stop: int) -> None:
        """Refuse records, at these positions, that would spend more than is allowed for life."""
        rules = self.in_force()
        if rules.max_epsilon is None or self.content.by_person:
            return  # people are looked at one by one (`may_answer`)
        spent = self._limit.spent_within(start, stop)
        if spent + self._limit.spent_elsewhere() + self.epsilon > rules.lifetime_limit:
            raise self.refusal(stop - start, 0, spent)

    # -- what others have seen -----------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Where this run stands: the number of its own entries, and the head of the ledger's chain at the last."""
        row = self.ledger.execute(
            "SELECT number, head FROM answers WHERE run = ? AND client = ? ORDER BY sequence DESC LIMIT 1",
            (self.run, self.content.client),
        ).fetchone()
        return Position() if row is None else Position(*row)

    def confirm(self, seen: Position) -> None:
        """Refuse to continue where somebody has seen this run further on, or with another past.

        A ledger restored from a backup, a new one, or one of two copies in use, lacks entries that `seen` knows of.
        The head covers the entries of all runs before it: another past of any of them is found.
        """
        row = (Position().head,)
        if seen.sequence:
            row = self.ledger.execute(
                "SELECT head FROM answers WHERE run = ? AND client = ? AND number = ?",
                (self.run, self.content.client, seen.sequence),
            ).fetchone()
        if row is None:
            raise LedgerError(
                f"the ledger {self.ledger.path} has {self.position.sequence} entries of run {self.run!r}, but "
                f"{seen.sequence} were seen before: it was restored from a backup, or is not the ledger that answered. "
                "Give that ledger. Where it is lost, and this one is from a backup, `privatile join … --restored` "
                "counts as spent whatever is not provably unasked, and goes on with the rest."
            )
        if row[0] != seen.head:
            raise LedgerError(
                f"the ledger {self.ledger.path} has another past than the one seen at entry {seen.sequence} of run "
                f"{self.run!r}: two copies of it are in use. Stop both, keep the one with more entries, and start "
                "that with `privatile join … --restored`: the other's answers then count as spent."
            )

    def prove(self) -> None:
        """After a restore: the run's coordinator has shown what it asked, and the ledger holds all of it."""
        if self.state().unproven:
            with self.ledger.transaction(), self._changing_run():
                self.ledger.execute(
                    "UPDATE runs SET unproven = 0 WHERE run = ? AND client = ?", (self.run, self.content.client)
                )

    # -- answering -----------------------------------------------------------------------------------------------

    def has_answered(self, question: Question) -> bool:
        """Whether this round and level were answered, with this question or another."""
        found = self.ledger.execute(
            "SELECT 1 FROM answers WHERE run = ? AND client = ? AND round = ? AND level = ?",
            (self.run, self.content.client, question.round, question.level),
        )
        return found.fetchone() is not None

    def replay(self, question: Question) -> Stored | AccountState:
        """The stored answer to the identical question; the account's state if the round is new; refused otherwise."""
        if question.run != self.run:
            raise Equivocation(f"this account is for run {self.run!r}; a question of run {question.run!r} is refused.")
        found = stored_answer(self.ledger, self.run, self.content.client, question)
        if found is not None:
            if found.question == question.to_json():
                return found
            self._refuse(question, "was answered, and is asked again with another question")
        state = self.state()
        if question.round <= state.lost_through:
            self._refuse(question, "was answered before this ledger was restored; its count is lost")
        if state.unproven:
            raise LedgerError(
                f"the ledger {self.ledger.path} was restored from a backup, and nobody has shown since what run "
                f"{self.run!r} had asked by then: its records count as spent. Ask new people."
            )
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
        with self._changing_run():
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
        if self.state().cursor != state.cursor:
            raise LedgerError(f"{self.content} has moved on while a question was answered. Ask again.")
        if self.rules.arriving:
            self._open()  # what was admitted when the column was read may have changed since
            stop = state.cursor + length
            note_arrived(self.ledger, self.content, stop)
        self._keep_word(state.dataset)
        number = state.entries + 1
        with self._changing_run():
            self.ledger.execute(
                "UPDATE runs SET answers = ?, asked = asked + ?,"
                " next = CASE WHEN reserved IS NULL THEN NULL ELSE ? END, reserved = max(reserved, ?)"
                " WHERE run = ? AND client = ?",
                (number, length, stop, stop, self.run, self.content.client),
            )
        with self.ledger.seal.changing("datasets", "id = ?", (state.dataset,)):
            self.ledger.execute("UPDATE datasets SET cursor = max(cursor, ?) WHERE id = ?", (stop, state.dataset))
        if people:
            self.ledger.lifetime_budgets.charge(people, self.epsilon)
        return self.ledger.append(self.run, self.content.client, number, question, (state.cursor, stop), length, ones)

    def _keep_word(self, dataset: int | None) -> None:
        """Keep what the holder has said with this run, before anybody answers it."""
        self.ledger.moves[self.content.split] += 1
        if self._is_kept:
            return
        if self.rules.max_epsilon is not None:
            self.ledger.keep("max_epsilon", float(self.rules.max_epsilon))
        if self.rules.new_people:
            self.ledger.keep(NEW_PEOPLE.format(dataset), b"\x01")
        self.ledger.on_commit.append(partial(setattr, self, "_is_kept", True))

    def _changing_run(self) -> AbstractContextManager[None]:
        return self.ledger.seal.changing("runs", "run = ? AND client = ?", (self.run, self.content.client))

    def _enter(self, first: int) -> None:
        """Enter the data set and the run in the ledger, the first time."""
        content = self.content
        # Another process may have begun since this account was opened; under the write lock the rules hold.
        self._open()
        dataset = enter_dataset(self.ledger, content)
        with self._changing_run():
            self.ledger.execute(
                "INSERT INTO runs (run, client, dataset, threshold, epsilon, first, spend_again)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (self.run, content.client, dataset, self._threshold, self.epsilon, first, self.rules.spend_again),
            )
        if content.person_key is not None:
            with self.ledger.seal.changing("meta", "key = 'person key'", ()):
                self.ledger.execute(
                    "INSERT OR IGNORE INTO meta (key, value) VALUES ('person key', ?)",
                    (content.person_key.fingerprint,),
                )

    # -- reserving -----------------------------------------------------------------------------------------------

    def reserve(self, start: int, stop: int) -> None:
        """Keep the positions from `start` up to `stop` for this run. Call inside the ledger's transaction."""
        if self.state().first is None:
            self._enter(start)
        with self._changing_run():
            self.ledger.execute(
                "UPDATE runs SET next = ?, reserved = ? WHERE run = ? AND client = ?",
                (start, stop, self.run, self.content.client),
            )
        dataset = dataset_id(self.ledger, self.content)
        with self.ledger.seal.changing("datasets", "id = ?", (dataset,)):
            self.ledger.execute("UPDATE datasets SET cursor = max(cursor, ?) WHERE id = ?", (stop, dataset))
        self._keep_word(dataset)

    def release(self) -> None:
        """Release what this run has reserved and not asked, unless a later run already stands behind it."""
        with self.ledger.transaction():
            release(self.ledger, self.run, self.content.client)

    # -- refusing ------------------------------------------------------------------------------------------------

    def refusal(self, asked: int | None, left: int, spent: float | None = None) -> AlreadyAnswered:
        """The error for a question that asks more records than may answer.

        `spent` is the most that one of them has spent: in this data set or, where people are known, by name.
        """
        dataset, rules = dataset_id(self.ledger, self.content), self.in_force()
        if spent is None:
            spent = 0.0 if dataset is None else own_spent(self.ledger, dataset)
        own, is_limited = spent, rules.max_epsilon is not None
        spent += self._limit.spent_elsewhere() if is_limited else spent_elsewhere(self.ledger, self.content)
        one, whose = ("person", "people") if self.content.by_person else ("record", "records")
        wanted = "" if asked is None else f"; {asked:,} are needed"
        reserved = reserved_by_others(self.ledger, dataset, self.run)
        if self.state().lost and not self.rules.spend_again:
            history = f"The ledger was restored from a backup: what was asked since is not known. Ask new {whose}."
        elif spent == 0:
            fewer = "There are no more: ask fewer."
            history = "" if reserved else fewer
        elif own + self.epsilon <= rules.lifetime_limit < spent + self.epsilon:
            why = over_limit(self.epsilon, own, spent - own, rules, self._limit)
            history = why[0].upper() + why[1:]
        elif spent + self.epsilon > rules.lifetime_limit:
            limit = f"{rules.max_epsilon:.6g}"
            history = f"{price(spent, self.epsilon)}, above what is allowed for life (max_epsilon={limit}). "
            history += f"Ask new {whose}."
        elif self.rules.spend_again:
            history = f"{price(spent, self.epsilon)}. Within a run each answers once: ask fewer, or new {whose}."
        else:
            history = f"{price(spent, self.epsilon)}. {self.rules.way_out(whose)}"
        if reserved:
            where = "" if self.ledger.path is None else f" --ledger {shlex.quote(str(self.ledger.path))}"
            names = ", ".join(f"{count:,} by run {run!r}" for run, count in reserved)
            history = (
                f"Reserved, and not asked yet: {names}. Let that run end, or continue it. If it will not go on (it was "
                "broken off, or belongs to an earlier version of a study), give it up, and they are free again: "
                f"privatile ledger release {shlex.quote(reserved[0][0])}{where}. {history}"
            )
        text = f"{self.content} has {counted(left, one, whose)} left that may answer{wanted}. {history}"
        return AlreadyAnswered(text.rstrip())
