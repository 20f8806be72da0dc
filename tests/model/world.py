"""A site and its coordinator as they are, and beside them a plain list of who has answered what.

Who answers is seen at the randomizer, which gets the records themselves; every record has a value of its own. The list
is what the program is compared with; it never reads the ledger's account.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from privatile.api import local_run
from privatile.client.ledger import ledger as ledger_file
from privatile.client.ledger.account import release_run
from privatile.client.ledger.datasets import statement
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.restore import mark_restored
from privatile.client.randomizer import Randomizer
from privatile.client.responder import answer_all
from privatile.errors import PrivatileError
from privatile.planning.options import Options
from privatile.run import tables
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore

EPSILON = 1.0
ROUNDING = 1e-6

Subject = tuple[str, int]
"""Who pays: a person, or, in data without people, a record."""


class Data(NamedTuple):
    """A table, its column of values and, where people are known, whose."""

    table: np.ndarray[Any, Any]
    value: str
    person: str | None = None


def _people(base: int, people: range, form: Callable[[int], str], value: str) -> Data:
    """Two records of the first person, one of the others; each value is the record's own, and tells the person."""
    rows = [(float(base + who), form(who)) for who in people] + [(float(base + 50 + people[0]), form(people[0]))]
    return Data(np.array(rows, dtype=[(value, float), ("who", "U12")]), value, "who")


def _records(base: int, count: int, value: str) -> Data:
    return Data(np.array([(float(base + k),) for k in range(count)], dtype=[(value, float)]), value)


DATA = {
    "people": _people(100, range(8), str, "wage"),
    "people in another file": _people(200, range(4, 12), lambda who: f"+{who:03}.0", "bonus"),
    "records": _records(300, 9, "height"),
    "other records": _records(400, 6, "weight"),
}
"""Data sets; the first two share four people, in another form."""


def subject_of(value: float) -> Subject:
    """Who pays for an answer of the record with this value."""
    return ("person", int(value) % 50) if value < 300 else ("record", int(value))


class Event(NamedTuple):
    """One record has answered one question."""

    run: str
    round: int
    subject: Subject


class Killed(BaseException):
    """The process dies here."""


@dataclass
class Book:
    """A ledger's file, and what it should know: the answers written into this file, in their order."""

    path: Path
    entries: list[tuple[Event, ...]] = field(default_factory=list)
    everything: list[tuple[Event, ...]] = field(default_factory=list)
    """All answers ever written at this path, those that a restore has taken back included."""
    declared: bool = True
    """Whether the ledger has been told of every restore; then it answers for everything."""
    is_older: bool = False
    """Whether the mark beside the key shows that this is an older copy: then nobody may answer from it."""
    keeper: sqlite3.Connection | None = None
    """Another process that has the file open, so that its log is not folded in."""

    def known(self) -> list[tuple[Event, ...]]:
        return self.everything if self.declared else self.entries

    def files(self) -> list[Path]:
        return [self.path.with_name(self.path.name + suffix) for suffix in ("", "-wal", "-shm")]

    def keep_open(self, really: bool) -> None:
        if self.keeper is not None:
            self.keeper.close()
            self.keeper = None
        if really and self.path.exists():
            self.keeper = sqlite3.connect(self.path)
            self.keeper.execute("SELECT count(*) FROM answers").fetchone()


@dataclass
class Run:
    """One estimate of the operator: which data, which rules, which ledger, and its file."""

    name: str
    data: str
    options: Options
    book: Book
    counts: dict[int, list[int]] = field(default_factory=dict)
    """What each round's count was, as it left the client."""
    stored: dict[int, Path] = field(default_factory=dict)
    """Rounds whose counts have come into the run's file, and from which ledger."""


class Broken(AssertionError):
    """The program has done what it must never do."""


class World:
    """Everything on one machine: ledgers, runs, and the list of who has answered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.books = [Book(folder / f"ledger{k}" / "ledger.db") for k in range(2)]
        self.runs: list[Run] = []
        self.backups: list[tuple[Path, list[tuple[Event, ...]]]] = []
        self._pending: list[float] = []
        self._drawn = Random(0)
        """In the place of the operating system's randomness, so that a history can be repeated."""

    @contextmanager
    def _at_home(self) -> Iterator[None]:
        """Keys are drawn from this world's own generator, and lie in its folder."""
        home = {"XDG_CONFIG_HOME": str(self.folder / "config")}
        with patch.dict(os.environ, home), patch.object(secrets, "token_bytes", self._random_bytes):
            yield

    def _random_bytes(self, count: int | None = None) -> bytes:
        return self._drawn.randbytes(count or 32)

    # -- what the operator does ----------------------------------------------------------------------------------

    def begin(self, data: str, book: Book, *, spend_again: bool, max_epsilon: float | None) -> Run:
        name = f"run{len(self.runs)}"
        options = Options(
            epsilon=EPSILON,
            range=(0.0, 500.0),
            value=DATA[data].value,
            person=DATA[data].person,
            design="rounds",
            rounds=3,
            spend_again=spend_again,
            max_epsilon=max_epsilon,
            save=self.folder / f"{name}.db",
        )
        run = Run(name, data, options, book)
        self.runs.append(run)
        return run

    def go_on(self, run: Run, book: Book, rounds: int, end: str) -> str:
        """Give the command of a run (again); it is killed after some rounds, at a moment that `end` names."""
        before = _content(book.path)
        answered = len(book.everything)
        options = replace(run.options, ledger=book.path)
        current: local_run.LocalRun | None = None
        try:
            with self._at_home(), self._watched(run, book, rounds, end):
                try:
                    current = local_run.prepare(DATA[run.data].table, options)
                    current.complete()
                    outcome = "finished"
                except Killed:
                    outcome = "killed"
                except PrivatileError as error:
                    outcome = f"refused: {error}"
        finally:
            _let_go(current)
        if (
            outcome.startswith("refused")
            and len(book.everything) == answered
            and _content(book.path) != before
            and not (
                before is None and _is_new(book.path)  # made with the key that hashes people, before the file is read
            )
        ):
            raise Broken(f"a refused action has changed the ledger: {outcome}")
        return outcome

    def give_up(self, run: Run, book: Book) -> None:
        with self._at_home(), suppress(PrivatileError), Ledger.open(book.path, create=False) as ledger:
            release_run(ledger, _name_of(run))

    def back_up(self, book: Book, with_log: bool) -> bool:
        """Copy a ledger, with its write-ahead log or, carelessly, without."""
        if not book.path.exists():
            return False
        place = self.folder / f"backup{len(self.backups)}"
        place.mkdir()
        for file in book.files()[: 2 if with_log else 1]:
            if file.exists():
                shutil.copy2(file, place / file.name)
        with closing(sqlite3.connect(place / book.path.name)) as copy:
            try:
                (count,) = copy.execute("SELECT count(*) FROM answers").fetchone()
            except sqlite3.Error:  # the copy without its log is no ledger yet
                return False
        self.backups.append((place, book.entries[:count]))
        return True

    def restore(self, book: Book, backup: int, with_keys: bool = False) -> None:
        """Put a backup into the place of a ledger, `with_keys` those of that time; nobody has told the ledger."""
        place, entries = self.backups[backup]
        book.keep_open(False)
        for file in book.files():
            file.unlink(missing_ok=True)
        book.path.parent.mkdir(exist_ok=True)
        for file in place.iterdir():
            shutil.copy2(file, book.path.parent / file.name)
        book.entries = list(entries)
        # What the backup holds was written at another path, perhaps.
        book.everything += [entry for entry in entries if entry not in book.everything]
        book.declared = False
        self._settle_mark(book, with_keys)

    def _settle_mark(self, book: Book, with_keys: bool) -> None:
        with closing(sqlite3.connect(book.path)) as look:
            (key,) = look.execute("SELECT value FROM meta WHERE key = 'key'").fetchone()
            (count,) = look.execute("SELECT count(*) FROM answers").fetchone()
        mark = self.folder / "config" / "privatile" / "keys" / f"ledger-{key.hex()}.mark"
        if with_keys:
            mark.unlink(missing_ok=True)
        book.is_older = mark.exists() and int(mark.read_text().split()[0]) > count

    def declare(self, book: Book) -> None:
        """Tell the ledger that it was restored."""
        if book.path.exists():
            with self._at_home(), Ledger.open(book.path, restored=True) as ledger:
                mark_restored(ledger)
            book.declared, book.is_older = True, False

    # -- what the program does -----------------------------------------------------------------------------------

    @contextmanager
    def _watched(self, run: Run, book: Book, rounds: int, end: str) -> Iterator[None]:
        """See every record that answers, and stop the process where `end` says."""
        counter, answer, accept = Randomizer.counter, answer_all, Coordinator.accept
        left = rounds

        def watched_counter(randomizer: Randomizer, question: Any) -> Any:
            count = counter(randomizer, question)

            def watched(values: Any) -> int:
                self._pending += values.tolist()
                return count(values)

            return watched

        def watched_answers(pairs: Any) -> Any:
            self._pending = []
            answers = answer(pairs)
            # The ledger has committed: these records have answered.
            self._answered(run, book, answers[0].question.run, answers[0].question.round)
            counted = [answer.ones for answer in answers]
            number = answers[0].question.round
            if not self._pending and number in run.counts and run.counts[number] != counted:
                raise Broken(f"round {number} was answered with {run.counts[number]}, then with {counted}")
            run.counts[number] = counted
            return answers

        def watched_accept(coordinator: Coordinator, *counts: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and end == "killed before the count is stored":
                raise Killed
            accepted = accept(coordinator, *counts)
            run.stored[coordinator.done] = book.path
            if left == 0 and end == "killed after the count is stored":
                raise Killed
            return accepted

        with (
            patch.object(Randomizer, "counter", watched_counter),
            patch.object(local_run, "answer_all", watched_answers),
            patch.object(Coordinator, "accept", watched_accept),
            patch.object(Coordinator, "results", lambda coordinator: []),
            patch.object(local_run, "RunReporter", lambda *parts: None),
            # Whether files are damaged is not the question here, and takes a tenth of the time.
            patch.object(ledger_file, "check_pages", lambda *parts: None),
            patch.object(tables, "wrong_column", lambda *parts: None),
        ):
            yield

    def _answered(self, run: Run, book: Book, name: str, number: int) -> None:
        """Add an answer to the list, unless it must not have been given."""
        if not self._pending:
            return  # the stored count of a question that was asked again
        if book.is_older:
            raise Broken("an older copy of a ledger has answered")
        subjects = [subject_of(value) for value in self._pending]
        if len(set(subjects)) < len(subjects):
            raise Broken("somebody has answered the same question twice")
        known = [event for entry in book.known() for event in entry]
        elsewhere = [
            event
            for other in self.books
            for entry in other.everything
            for event in entry
            if event.run == name and run.stored.get(event.round) == other.path
        ]
        seen = {*known, *elsewhere}
        paid = Counter(event.subject for event in set(known))
        # Records that this run had reserved, and that a later run with spend_again has asked meanwhile: that run paid
        # for a second answer knowingly, since what is reserved counts as spent.
        own = next((place for place, event in enumerate(known) if event.run == name), len(known))
        willing = {_name_of(other) for other in self.runs if other.options.spend_again}
        again = Counter(event.subject for event in set(known[own:]) if event.run in willing)
        for subject in subjects:
            if any(event.run == name and event.subject == subject for event in seen):
                raise Broken(f"{subject} has answered the run twice")
            if paid[subject] - again[subject] and not run.options.spend_again:
                raise Broken(f"{subject} has answered again without spend_again")
            limit = run.options.max_epsilon
            if limit is not None and (paid[subject] + 1) * EPSILON > limit + ROUNDING:
                raise Broken(f"{subject} has paid more than max_epsilon")
        entry = tuple(Event(name, number, subject) for subject in subjects)
        book.entries.append(entry)
        book.everything.append(entry)

    def check(self, book: Book) -> None:
        """The ledger's own account is never below what it should know of."""
        if not book.path.exists():
            if book.entries:
                raise Broken("a ledger with answers is gone")
            return
        with Ledger.open(book.path, read_only=True) as ledger:
            account = statement(ledger)
        paid = Counter(event.subject for entry in book.entries for event in entry)
        people = [count for (kind, _), count in paid.items() if kind == "person"]
        if account.person_epsilon < max(people, default=0) * EPSILON - ROUNDING:
            raise Broken("the ledger says that people have paid less than they have")
        records = [count for (kind, _), count in paid.items() if kind == "record"]
        lines = [line.epsilon for line in account.datasets if not line.by_person]
        if max(lines, default=0.0) < max(records, default=0) * EPSILON - ROUNDING:
            raise Broken("the ledger says that records have paid less than they have")
        reports = sum(line.reports for line in account.datasets)
        if reports < sum(map(len, book.entries)):
            raise Broken("the ledger says that fewer have answered than have")

    def close(self) -> None:
        for book in self.books:
            book.keep_open(False)


def _content(path: Path) -> list[str] | None:
    """All that a ledger says, in its own words; None where it is not there, or knows nothing yet."""
    if not path.exists():
        return None
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as look:
        known = look.execute("SELECT 1 FROM datasets LIMIT 1").fetchone()
        return known and list(look.iterdump())


def _is_new(path: Path) -> bool:
    """Whether nobody has answered, and nothing was entered, under this ledger."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as look:
        tables = ("datasets", "splits", "runs", "answers", "charges", "people")
        return not any(look.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)


def _name_of(run: Run) -> str:
    path = Path(str(run.options.save))
    if not path.exists():
        return run.name
    with RunStore.open(path, read_only=True) as store:
        return store.run


def _let_go(current: local_run.LocalRun | None) -> None:
    """What the operating system does with a process that is over."""
    if current is not None:
        if current.store is not None:
            current.store._connection.close()
        current.ledger.close()


ENDS: Sequence[str] = ("finished", "killed after the count is stored", "killed before the count is stored")
