"""What one run may ask at one client, and has asked: admission, limits, reservations, answers.

What the holder of the data allows beyond the rule that a record answers once.

What records have spent, or have reserved for other runs: looked at before a run asks them, at every answer.

An answer is checked against what is true now, not against what was true when the run was opened: other runs may have
answered or reserved the same records meanwhile. Reading all spans takes as long as there are answers, so it is done
again only where another run has moved.

Reservations: records that a run keeps for itself until it has asked them or is given up.

People who arrive while a run goes on: a file that grows, a query that gives more rows every week.

Such a run asks whoever is in the column today and has not answered. Its data set is the column by its name and that of
the person column, not by content: rows may come, go, change their places and their values. Who has answered is known
person by person; positions only count the people who have answered, one after the other.

Every content that was asked is noted by its digests: the same records without a person column are recognised later.

Admission: which columns a new run may not ask, by what the ledger knows of their records.

- People are known by one column: by another everybody would look new.
- The same content under another name, or the same column split among other clients or read otherwise (`datasets`): its
  records have answered.
- Other content for a client and column that have answered: a new export of the same people, unless `new_people`.
- More than `max_epsilon` allows for life, what other runs have reserved included, and in all data sets without a person
  column, unless `new_people`.
- After a restore everything that the ledger does not know: it may have been asked since the backup.

Nothing is written here.

Accounts: the rules by which records answer, for one run at one client.

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

import hashlib
import logging
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.client.ledger.datasets import (
    NEW_PEOPLE,
    Content,
    Span,
    added_up,
    any_lost,
    apart,
    dataset_id,
    enter_dataset,
    most_by_name,
    most_spent,
    most_within,
    nameless,
    overlapping_datasets,
    own_spent,
    part_in_words,
    said_new,
    sharing_datasets,
    spans_of,
    spent_elsewhere,
    stored_identity,
)
from privatile.client.ledger.ledger import Ledger
from privatile.client.sources.source import UNNAMED
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Answer, Position, Question
from privatile.core.text import counted
from privatile.errors import AlreadyAnswered, Equivocation, InputError, LedgerError, OtherContent

ROUNDING = 1e-9
"""Realised ε falls short of the nominal one by up to 1e-10; the sum of a lifetime must not exceed its limit by that."""


@dataclass(frozen=True)
class SpendingRules:
    """`spend_again`: records that have answered may answer again. `new_people`: these are in no other data set.

    `max_epsilon` is the most that a person may spend for life; the ledger keeps the last one that was given, and a run
    without one takes it. `in_federation`: it is agreed that everybody answers once, and nobody at the site can accept
    more. `arriving`: people come while the run goes on, and every answer is from the column as it is then; needs a
    person column.

    >>> SpendingRules(max_epsilon=-1)
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: max_epsilon must be a positive number; got -1. Leave it out for no limit.
    """

    spend_again: bool = False
    new_people: bool = False
    max_epsilon: float | None = None
    in_federation: bool = False
    arriving: bool = False

    def __post_init__(self) -> None:
        limit = self.max_epsilon
        if limit is not None and not limit > 0:
            raise InputError(f"max_epsilon must be a positive number; got {limit!r}. Leave it out for no limit.")

    def way_out(self, whose: str) -> str:
        """What to do about records or people that have answered.

        >>> SpendingRules().way_out("people")
        'Accept that with spend_again=True, or ask new people.'
        >>> SpendingRules(in_federation=True).way_out("people")
        'In a federation everybody answers once: ask new people.'
        """
        if self.in_federation:
            return f"In a federation everybody answers once: ask new {whose}."
        return f"Accept that with spend_again=True, or ask new {whose}."

    @property
    def lifetime_limit(self) -> float:
        """No total above this is allowed; ∞ without a limit."""
        return math.inf if self.max_epsilon is None else self.max_epsilon + ROUNDING


@dataclass(eq=False)
class RecordLimit:
    """The records of one data set, as one run at one client sees them."""

    ledger: Ledger
    run: str
    content: Content
    new_people: bool
    """Whether the run's holder says that these people are in no other data set."""
    _others: tuple[tuple[float, ...], list[Span]] | None = field(default=None, init=False)
    """How far other runs of the data set have come, and the spans they have answered or reserved."""
    _elsewhere: tuple[object, float] | None = field(default=None, init=False)
    """The state of the ledger's other splits, and what was spent there."""

    def spent_within(self, start: int, stop: int) -> float:
        """The most that one record at these positions has spent in this data set, or has reserved for another run."""
        dataset = dataset_id(self.ledger, self.content)
        if dataset is None:
            return 0.0
        own = (self.run, self.content.client)
        moved = self.ledger.execute(
            "SELECT count(*), total(answers), total(next), total(reserved) FROM runs"
            " WHERE dataset = ? AND (run, client) <> (?, ?)",
            (dataset, *own),
        ).fetchone()
        moved = self.ledger.rollbacks, *moved
        if self._others is None or self._others[0] != moved:
            self._others = moved, spans_of(self.ledger, dataset, reserved=True, but=own)
        return most_within(self._others[1], self.content.records, (start, stop))

    def spent_elsewhere(self) -> float:
        """The most that a person here may have spent, or runs have reserved, in other data sets; people not by name."""
        (version,) = self.ledger.execute("PRAGMA data_version").fetchone()
        moves, own = self.ledger.moves, self.content.split
        state = version, self.ledger.rollbacks, moves.total() - moves[own]
        if self._elsewhere is None or self._elsewhere[0] != state:
            self._elsewhere = state, self._look(own, state)
        return self._elsewhere[1]

    def is_apart(self) -> bool:
        """Whether by the holder's word these people are in no other data set, and no digest contradicts it."""
        is_new = self.new_people or dataset_id(self.ledger, self.content) in said_new(self.ledger)
        return is_new and not sharing_datasets(self.ledger, self.content)

    def _look(self, own: object, state: object) -> float:
        ledger, content = self.ledger, self.content
        if self.is_apart():
            return 0.0
        # Elsewhere nothing was answered since a restore but what was reserved before it, and counted as spent.
        if any_lost(ledger, overlapping_datasets(ledger, content)):
            return math.inf
        if own not in ledger.nameless or ledger.nameless[own][0] != state:
            ledger.nameless[own] = state, apart(ledger), {}
        _, new, sums = ledger.nameless[own]
        # Nothing of this run is entered yet, so a data set that shares a digest with it may look new by itself.
        left_out = frozenset(new - sharing_datasets(ledger, content).keys())
        if left_out not in sums:
            sums[left_out] = nameless(ledger, left_out, reserved=True), most_by_name(ledger, left_out)
        sets, by_name = sums[left_out]
        others = added_up((part, epsilon) for other, part, epsilon in sets if not content.same_split(other))
        return others if content.by_person else others + by_name


def reserved_by_others(ledger: Ledger, dataset: int | None, run: str) -> list[tuple[str, int]]:
    """The other runs that have reserved records of a data set, and how many each."""
    return ledger.execute(
        "SELECT run, reserved - next FROM runs WHERE dataset = ? AND run <> ? AND reserved > next", (dataset, run)
    ).fetchall()


def release(ledger: Ledger, run: str, client: str) -> None:
    """Release a run's reserved records that were not asked; call inside a transaction.

    The cursor returns to the last position that is answered or still reserved. Records before it that nobody asked
    stay unasked: no order of events makes a record answer twice. What a restore has marked as lost stays lost.
    """
    own = (run, client)
    ledger.moves[None] += 1
    row = ledger.execute("SELECT 1 FROM runs WHERE run = ? AND client = ? AND reserved > next", own).fetchone()
    if row is None:
        return
    ledger.secret.note_given_up(run)  # first: a ledger restored to before this moment must not give them back
    ledger.update("runs", "reserved = next", (), "run = ? AND client = ?", own)
    ledger.update(
        "datasets",
        "cursor = max((SELECT max(r.reserved) FROM runs r WHERE r.dataset = datasets.id),"
        " (SELECT coalesce(max(a.stop), 0) FROM runs r JOIN answers a ON a.run = r.run AND a.client = r.client"
        "  WHERE r.dataset = datasets.id))",
        (),
        "id = (SELECT dataset FROM runs WHERE run = ? AND client = ?)",
        own,
    )


def release_run(ledger: Ledger, run: str) -> int:
    """Release what a run has reserved and not asked at all its clients; how many records that is."""
    with ledger.transaction():
        rows = ledger.execute("SELECT client, reserved - next FROM runs WHERE run = ?", (run,)).fetchall()
        if not rows:
            raise InputError(f"the ledger {ledger.path} knows no run {run!r}.")
        for client, _ in rows:
            release(ledger, run, client)
    return sum(count for _, count in rows)


def as_arriving(ledger: Ledger, content: Content) -> Content:
    """The same column, known by its name alone; refused where its people are not known."""
    if not content.by_person:
        raise InputError(
            f"{content} has no person column. Where records arrive while a run goes on, nobody could tell who has "
            "answered: name the column of the person (person=COLUMN)."
        )
    known_by = f"people as they arrive, by {content.person_column}".encode("utf-8", "surrogateescape")
    digest = hashlib.blake2b(known_by, key=ledger.key("digest"), digest_size=len(content.digest)).digest()
    return replace(content, digest=digest)


def note_arrived(ledger: Ledger, content: Content, answered: int) -> None:
    """Note what the column holds today, and that `answered` of its people have answered; inside a transaction."""
    dataset = enter_dataset(ledger, content)
    ledger.update("datasets", "records = max(records, ?, ?)", (content.records, answered), "id = ?", (dataset,))


def admit(limit: RecordLimit, epsilon: float, rules: SpendingRules) -> None:
    """Refuse a run that would ask these records at ε against the rules."""
    ledger, content = limit.ledger, limit.content
    _refuse_unknown_after_restore(ledger, content, rules)
    _refuse_other_person_column(ledger, content, rules)
    _refuse_answered_records(ledger, content, epsilon, rules)
    _refuse_other_content(ledger, content, rules)
    _refuse_over_limit(limit, epsilon, rules)


def price(spent: float, epsilon: float) -> str:
    """What another run over records that have spent so much would cost them."""
    return f"Up to epsilon {spent:.6g} each is spent; another run over them would make it {spent + epsilon:.6g}"


def over_limit(epsilon: float, own: float, elsewhere: float, rules: SpendingRules, limit: RecordLimit) -> str:
    """Why a run may not ask people who may have spent so much here and in other data sets, and the ways out."""
    ways = "Ask with a smaller epsilon, or allow more with max_epsilon=TOTAL."
    if rules.in_federation:
        ways = "Take part in a study with a smaller epsilon, or allow more in this site's policy file (max_epsilon)."
    if own + epsilon <= rules.lifetime_limit:
        ways = f"Data sets without a person column add up: each of their records may be anybody's. {ways}"
        if not sharing_datasets(limit.ledger, limit.content):
            ways += (
                f"{_name_it(limit.content)} Only if none of these people is in any other data set of this ledger: say "
                "so with new_people=True or, of an earlier data set, with `privatile ledger new-people NUMBER`"
            )
            ways += "." if rules.in_federation else "; or give a ledger of their own (ledger=FILE)."
    return (
        f"this run would spend {epsilon:.6g} on top of {own + elsewhere:.6g} already spent or reserved, above what is "
        f"allowed for life (max_epsilon={rules.max_epsilon:.6g}, the last limit given in this ledger). {ways}"
    )


def _name_it(content: Content) -> str:
    """What to do first about values that came without a name: two such columns look like one."""
    return " First name the column, which had no name: value=NAME." if content.column == UNNAMED else ""


def _refuse_unknown_after_restore(ledger: Ledger, content: Content, rules: SpendingRules) -> None:
    accepted = rules.spend_again and rules.max_epsilon is None  # whatever they have spent
    if ledger.meta("restored") is None or rules.new_people or accepted:
        return
    # What is known and was lost has no records left, which is said where they are counted.
    if dataset_id(ledger, content) is None:
        raise AlreadyAnswered(
            f"{content} may not be asked: the ledger {ledger.path} was restored from a backup, and what was asked "
            "since that backup is not known. These records may be among it, so they count as spent. If these are other "
            "people, whom nobody asked since the backup, say so with new_people=True."
        )


def _refuse_other_person_column(ledger: Ledger, content: Content, rules: SpendingRules) -> None:
    column = content.person_column
    if column is None or rules.new_people:
        return
    row = ledger.execute(
        "SELECT person FROM datasets WHERE person IS NOT NULL AND person <> ? LIMIT 1", (column,)
    ).fetchone()
    if row is not None:
        raise OtherContent(
            f"the ledger knows people by a column {row[0]!r}; got {column!r}. By another column everybody would look "
            f"new and answer again. Give person={row[0]!r} (rename the column where it holds the same names); if these "
            "are other people, say so with new_people=True."
        )


def _refuse_answered_records(ledger: Ledger, content: Content, epsilon: float, rules: SpendingRules) -> None:
    shared = overlapping_datasets(ledger, content)
    identical = [dataset for dataset, other in shared.items() if other.values_digest == content.values_digest]
    known = identical if rules.new_people else list(shared)
    if rules.spend_again or not known:
        return
    client, column, holder = ledger.execute(
        "SELECT client, column, holder FROM datasets WHERE id = ?", known[:1]
    ).fetchone()
    same = "the same values" if identical else "the same column, split among other clients or read otherwise,"
    person = ", where no person column was named: whose records they were is not known" if content.by_person else ""
    other_people = "" if identical else " If these are other people, say so with new_people=True."
    raise AlreadyAnswered(
        f"{content} holds records that have answered before: {same} as {part_in_words(client, holder)}, "
        f"column {column!r}{person}. "
        f"{price(spent_elsewhere(ledger, content), epsilon)}. "
        f"{rules.way_out('people' if content.by_person else 'records')}{other_people}"
    )


def _refuse_other_content(ledger: Ledger, content: Content, rules: SpendingRules) -> None:
    if rules.new_people or dataset_id(ledger, content) is not None:
        return
    rows = ledger.execute(
        "SELECT id, client, person IS NOT NULL FROM datasets WHERE holder = ? AND column = ?",
        (content.holder, content.column),
    ).fetchall()
    added_up = overlapping_datasets(ledger, content) if rows else {}
    strangers = [
        dataset
        for dataset, client, by_person in rows
        if not (by_person and content.by_person)
        and dataset not in added_up
        # Another weight class of the same file.
        and not (client != content.client and stored_identity(ledger, dataset).same_split(content))
    ]
    if strangers:
        spent = max(most_spent(ledger, dataset) for dataset in strangers)
        raise OtherContent(
            f"{content} has answered before with other content (up to epsilon {spent:.6g} per record): in a new export "
            f"the same people would answer again. Give the same file unchanged.{_name_it(content)} If none of these "
            "people is in any other data set of this ledger, say so with new_people=True."
        )


def _refuse_over_limit(limit: RecordLimit, epsilon: float, rules: SpendingRules) -> None:
    if rules.max_epsilon is None:
        return
    allowed = f"{limit.content} allows epsilon {rules.max_epsilon:.6g} for life"
    if epsilon > rules.lifetime_limit:
        raise InputError(
            f"{allowed} (max_epsilon={rules.max_epsilon:.6g}), and one answer at epsilon {epsilon:.6g} is more. Ask "
            "with a smaller epsilon, or allow more."
        )
    own, elsewhere = 0.0, limit.spent_elsewhere()
    if not limit.content.by_person and rules.spend_again:
        dataset = dataset_id(limit.ledger, limit.content)
        own = 0.0 if dataset is None else own_spent(limit.ledger, dataset, reserved=True)
    if own + elsewhere + epsilon > rules.lifetime_limit:
        raise AlreadyAnswered(f"{allowed}; {over_limit(epsilon, own, elsewhere, rules, limit)}")


log = logging.getLogger("privatile.client")


class AccountState(NamedTuple):
    """The ledger's entry for an account: data set, next position, the run's first position (None: it has not begun).

    `reserved` is where the run's reserved span ends; 0 if nothing of it is left, and it walks at the data set's cursor.
    `end` is that cursor: everything answered or reserved, by whichever run, lies before it. `entries` is how many the
    run has, `asked` how many records it has asked. `lost`: the data set was there when the ledger was restored.
    `unproven`: so was the run, and nobody has shown since what it had asked.
    """

    dataset: int | None
    cursor: int
    first: int | None = None
    lost_through: int = 0
    reserved: int = 0
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
            "SELECT d.digest, d.column, r.epsilon, r.spend_again, r.asked FROM runs r"
            " JOIN datasets d ON d.id = r.dataset WHERE r.run = ? AND r.client = ?",
            (self.run, content.client),
        ).fetchone()
        if row is not None:
            digest, column, epsilon, spend_again, asked = row
            if column != content.column or digest != content.digest:
                raise OtherContent(
                    f"run {self.run!r} began at client {content.client!r}, column {column!r}, with other content, or "
                    f"in another order, of which {counted(asked, 'record')} answered. Give the same file unchanged (a "
                    "database query needs an ORDER BY), or start a new run."
                )
            if epsilon != self.epsilon:
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
            "SELECT d.id, iif(r.reserved > r.next, r.next, d.cursor), r.first, coalesce(r.lost_through, 0),"
            " iif(r.reserved > r.next, r.reserved, 0), d.cursor,"
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
            return start, max(start, state.reserved)
        if 0 < state.reserved < state.end:
            return start, state.reserved
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
                "Give that one or, if it is lost, count as spent what may be: `privatile join … --restored`."
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
            with self.ledger.transaction():
                self._update_run("unproven = 0")

    # -- answering -----------------------------------------------------------------------------------------------

    def has_answered(self, question: Question) -> bool:
        """Whether this round and level were answered, with this question or another."""
        return self.stored(question) is not None

    def stored(self, question: Question) -> Answer | None:
        """What this round and level was answered with, whatever the question was."""
        return self.ledger.answer(self.run, self.content.client, question.round, question.level)

    def answered(self) -> int:
        """How many records have answered this run; those that a restore has written off are not among them."""
        own = "SELECT total(length) FROM answers WHERE run = ? AND client = ? AND ones IS NOT NULL"
        return int(self.ledger.execute(own, (self.run, self.content.client)).fetchone()[0])

    def last_round(self) -> int:
        """The last round of this run that was answered, or whose answers may be lost; 0 before the first."""
        own = "SELECT coalesce(max(round), 0) FROM answers WHERE run = ? AND client = ?"
        return int(self.ledger.execute(own, (self.run, self.content.client)).fetchone()[0])

    def replay(self, question: Question) -> Answer | AccountState:
        """The stored answer to the identical question; the account's state if the round is new; refused otherwise."""
        if question.run != self.run:
            raise Equivocation(f"this account is for run {self.run!r}; a question of run {question.run!r} is refused.")
        found = self.stored(question)
        if found is not None:
            if found.question == question:
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
        self._update_run("lost_through = max(lost_through, ?)", through_round)

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
        if self.rules.arriving:
            self._open()  # what was admitted when the column was read may have changed since
            stop = state.cursor + length
            note_arrived(self.ledger, self.content, stop)
        self._keep_word(state.dataset)
        number = state.entries + 1
        own = ", next = ?, reserved = max(reserved, ?)" if state.reserved else ""
        values = (number, length, *((stop, stop) if state.reserved else ()))
        self._update_run(f"answers = ?, asked = asked + ?{own}", *values)
        if stop > state.end:
            self._move_cursor(state.dataset, stop)
        if people:
            self.ledger.lifetime_budgets.charge(people, self.epsilon)
        return self.ledger.append(self.run, self.content.client, number, question, (state.cursor, stop), length, ones)

    def _keep_word(self, dataset: int | None) -> None:
        """Keep what the holder has said with this run, before anybody answers it."""
        self.ledger.moves[self.content.split] += 1
        if self._is_kept:
            return
        if self.rules.max_epsilon is not None:
            self.ledger.put("max_epsilon", float(self.rules.max_epsilon))
        if self.rules.new_people:
            self.ledger.put(NEW_PEOPLE.format(dataset), b"\x01")
        self.ledger.on_commit.append(partial(setattr, self, "_is_kept", True))

    def _update_run(self, change: str, *values: object) -> None:
        self.ledger.update("runs", change, values, "run = ? AND client = ?", (self.run, self.content.client))

    def _move_cursor(self, dataset: int | None, stop: int) -> None:
        self.ledger.update("datasets", "cursor = max(cursor, ?)", (stop,), "id = ?", (dataset,))

    def _enter(self, first: int) -> None:
        """Enter the data set and the run in the ledger, the first time."""
        content = self.content
        # Another process may have begun since this account was opened; under the write lock the rules hold.
        self._open()
        dataset = enter_dataset(self.ledger, content)
        self.ledger.insert(
            "runs",
            run=self.run,
            client=content.client,
            dataset=dataset,
            epsilon=self.epsilon,
            first=first,
            spend_again=self.rules.spend_again,
        )
        if content.person_key is not None:
            self.ledger.insert("meta", if_absent=True, key="person key", value=content.person_key.fingerprint)

    # -- reserving -----------------------------------------------------------------------------------------------

    def reserve(self, start: int, stop: int) -> None:
        """Keep the positions from `start` up to `stop` for this run. Call inside the ledger's transaction."""
        if self.state().first is None:
            self._enter(start)
        self._update_run("next = ?, reserved = ?", start, stop)
        dataset = dataset_id(self.ledger, self.content)
        self._move_cursor(dataset, stop)
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
