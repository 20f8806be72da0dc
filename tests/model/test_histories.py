"""Random histories of runs, kills, backups, restores and copies, compared with a plain list of who has answered.

120 histories in the suite, 10,000 with PRIVATILE_LONG=1. The controls break the program on purpose: the machine must
find each.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from privatile.api.local_run import LocalRun
from privatile.client.ledger.account import Account, SpendingRules
from privatile.client.ledger.integrity import Mark
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.people import LifetimeBudgets
from privatile.client.responder import Responder
from privatile.errors import LedgerError
from tests.model import world as model
from tests.model.world import DATA, ENDS, Broken, World

LONG = bool(os.environ.get("PRIVATILE_LONG"))
HISTORIES = 10_000 if LONG else 120
STEPS = 6 if LONG else 4
pytestmark = pytest.mark.timeout(14_400 if LONG else 600)
IN_MEMORY = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)
"""A file system in memory, where there is one: a history has dozens of commits."""


class Histories(RuleBasedStateMachine):
    """What an operator may do, in any order."""

    actions: Sequence[str] = (
        *("begin", "begin", "go on", "go on", "go on elsewhere", "give up", "back up", "restore"),
        "restore and say so",
    )
    done = 0
    commands = 0
    answers = 0

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=IN_MEMORY))
        self.world = World(self.folder)

    @rule(
        number=st.integers(0, 99),
        which=st.integers(0, 5),
        data=st.sampled_from(sorted(DATA)),
        spend_again=st.booleans(),
        max_epsilon=st.sampled_from([None, 1.0, 2.0]),
        rounds=st.integers(1, 3),
        end=st.sampled_from(ENDS),
        open_elsewhere=st.booleans(),
    )
    def act(
        self,
        number: int,
        which: int,
        data: str,
        spend_again: bool,
        max_epsilon: float | None,
        rounds: int,
        end: str,
        open_elsewhere: bool,
    ) -> None:
        """One thing that the operator does; `which` chooses a ledger, a run or a backup."""
        world, book = self.world, self.world.books[which % 2]
        action = self.actions[number % len(self.actions)]
        if action == "back up":
            world.back_up(book, with_log=spend_again)
        elif action.startswith("restore") and world.backups:
            # Into its own place or, as a copy, into that of the other ledger.
            world.restore(book, which // 2 % len(world.backups), with_keys=spend_again)
            if action == "restore and say so":
                world.declare(book)
        elif action == "begin" or not world.runs:
            run = world.begin(data, book, spend_again=spend_again, max_epsilon=max_epsilon)
            self._command(run, book, rounds, end, open_elsewhere)
        else:
            run = world.runs[which % len(world.runs)]
            if action == "give up":
                world.give_up(run, run.book)
            elif action == "go on elsewhere":
                self._command(run, world.books[1 - world.books.index(run.book)], rounds, end, open_elsewhere)
            else:
                self._command(run, run.book, rounds, end, open_elsewhere)

    def _command(self, run: model.Run, book: model.Book, rounds: int, end: str, open_elsewhere: bool) -> None:
        self.world.go_on(run, book, rounds, end)
        book.keep_open(open_elsewhere)
        type(self).commands += 1

    def teardown(self) -> None:
        for book in self.world.books:
            self.world.check(book)
            type(self).answers += sum(map(len, book.everything))
        self.world.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        type(self).done += 1


def run(machine: type[Histories], histories: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            deadline=None,
            derandomize=not LONG,
            print_blob=False,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,),
        ),
    )


def test_no_history_makes_anybody_answer_or_pay_twice() -> None:
    class Counted(Histories):
        done = commands = answers = 0

    for _ in range(10 if LONG else 1):
        run(Counted, HISTORIES // (10 if LONG else 1), STEPS)
        counts = f"{Counted.done} histories, {Counted.commands} commands, {Counted.answers} answers"
        print(f"{counts}, no difference", flush=True)
    assert Counted.done >= HISTORIES
    assert Counted.answers > HISTORIES


# -- controls: each breaks one promise on purpose --------------------------------------------------------------------


def cursor_stands_still(patch: pytest.MonkeyPatch) -> None:
    """Every question asks the run's first records again."""
    state = Account.state

    def stuck(account: Account) -> Any:
        now = state(account)
        return now if now.first is None else now._replace(cursor=now.first)

    patch.setattr(Account, "state", stuck)


def any_ledger_will_do(patch: pytest.MonkeyPatch) -> None:
    """A resumed run does not look whether the ledger holds what its file says."""
    patch.setattr(LocalRun, "_check_past", lambda run, store: None)


def nobody_is_charged(patch: pytest.MonkeyPatch) -> None:
    """People answer, and their account stays as it is."""
    patch.setattr(LifetimeBudgets, "charge", lambda budgets, groups, epsilon: None)


def limit_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Whatever `max_epsilon` says, there is no limit."""
    patch.setattr(SpendingRules, "lifetime_limit", property(lambda rules: float("inf")))


def refusal_leaves_a_mark(patch: pytest.MonkeyPatch) -> None:
    """What was reserved stays reserved where the run is refused."""

    def respond(responder: Responder, question: Any) -> Any:
        responder.ledger.seal.write()
        responder.ledger.execute("COMMIT")
        responder.ledger.execute("BEGIN")
        raise LedgerError("refused, after all")

    patch.setattr(Responder, "_respond", respond)


BROKEN: list[tuple[Callable[[pytest.MonkeyPatch], None], str, Sequence[str]]] = [
    (cursor_stands_still, "has answered the run twice", ("begin", "go on")),
    (any_ledger_will_do, "has answered the run twice", ("begin", "go on", "go on elsewhere")),
    (nobody_is_charged, "has answered again|have paid less", ("begin",)),
    (limit_is_forgotten, "has paid more than max_epsilon", ("begin",)),
    (refusal_leaves_a_mark, "a refused action has changed the ledger", ("begin",)),
]
"""What is broken, how it shows, and the actions that lead to it."""


@pytest.mark.parametrize(("breaks", "message", "actions"), BROKEN, ids=[breaks.__name__ for breaks, *_ in BROKEN])
def test_a_broken_ledger_is_found(
    breaks: Callable[[pytest.MonkeyPatch], None], message: str, actions: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the actions that lead there, so that few histories are enough."""
    breaks(monkeypatch)
    monkeypatch.setattr(Histories, "actions", actions)
    with pytest.raises(Broken, match=message):
        run(Histories, 500, 5)


def restored_with_two_studies(world: World) -> list[str]:
    """Two studies of people are half done, backed up and finished; the backup comes back, and both are begun again."""
    book = world.books[0]
    first = [world.begin(data, book, spend_again=False, max_epsilon=None) for data in ("records", "other records")]
    for run in first:
        world.go_on(run, book, 1, "killed after the count is stored")
    assert world.back_up(book, with_log=True)
    for run in first:
        assert world.go_on(run, book, 9, "finished") == "finished"
    world.restore(book, 0)
    world.declare(book)
    for run in first:
        world.give_up(run, book)
    again = [world.begin(data, book, spend_again=False, max_epsilon=None) for data in ("records", "other records")]
    return [world.go_on(run, book, 9, "finished") for run in again]


def test_after_a_restore_nobody_of_any_study_is_asked_again(tmp_path: Path) -> None:
    outcomes = restored_with_two_studies(World(tmp_path))
    assert [outcome.partition(":")[0] for outcome in outcomes] == ["refused", "refused"]


def test_a_restore_that_marks_one_study_only_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_only(ledger: Ledger) -> None:
        with ledger.transaction():
            ledger.update("datasets", "lost = 1", (), "id = 1", ())
        ledger.mark.put(ledger.position)

    monkeypatch.setattr(model, "mark_restored", one_only)
    with pytest.raises(Broken, match="has answered again without spend_again"):
        restored_with_two_studies(World(tmp_path))


def restored_and_nobody_told(world: World) -> str:
    """A study is half done, backed up and finished; the backup comes back, and another is begun."""
    book = world.books[0]
    first = world.begin("records", book, spend_again=False, max_epsilon=None)
    world.go_on(first, book, 1, "killed after the count is stored")
    assert world.back_up(book, with_log=True)
    assert world.go_on(first, book, 9, "finished") == "finished"
    world.restore(book, 0)
    world.give_up(first, book)
    return world.go_on(world.begin("records", book, spend_again=False, max_epsilon=None), book, 9, "finished")


def test_an_older_copy_answers_nobody_though_nobody_told_of_a_restore(tmp_path: Path) -> None:
    assert "this is an older copy" in restored_and_nobody_told(World(tmp_path))


def test_an_older_copy_that_answers_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mark, "check", lambda mark, ledger: None)
    with pytest.raises(Broken, match="an older copy of a ledger has answered"):
        restored_and_nobody_told(World(tmp_path))


def test_a_run_that_a_restored_ledger_cannot_prove_reserves_nothing(tmp_path: Path) -> None:
    """It is refused at its next question: until then it must not keep records that it will never ask."""
    world = World(tmp_path)
    book = world.books[1]
    run = world.begin("people", book, spend_again=True, max_epsilon=None)
    world.go_on(run, book, 2, "killed before the count is stored")
    world.back_up(book, with_log=True)
    world.restore(book, 0, with_keys=True)
    world.declare(book)
    assert world.go_on(run, book, 2, "finished").startswith("refused")  # and nothing has changed: `go_on` compares
