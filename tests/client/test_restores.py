"""After a restore everything counts as spent that is not provably unasked; the limit for life holds at every answer."""

from __future__ import annotations

import contextlib
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from privatile.cli.ledger import ledger as ledger_command
from privatile.client.ledger.account import SpendingRules, release_run
from privatile.client.ledger.datasets import statement
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.restore import mark_restored
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import SeededCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Missing, Question
from privatile.errors import AlreadyAnswered, LedgerError
from tests.marks import forget_marks

N = 30
KEY = PersonKey(b"k" * 32)


def site(
    ledger: Ledger,
    run: str,
    value: str = "x",
    people: bool = False,
    epsilon: float = 1.0,
    missing: Missing = "noise",
    **rules: Any,
) -> Responder:
    first = ord(value[0])
    data = np.array([(float(first + k), f"p{k}") for k in range(N)], dtype=[(value, float), ("who", "U9")])
    if missing == "drop":
        data[value][::3] = np.nan
    source = open_source(data, value=value, person="who" if people else None)
    column = shuffle(source, ledger, missing=missing, person_key=KEY if people else None)["all"]
    coins = SeededCoins(np.random.default_rng(0))
    mechanism = RandomizedResponse.from_epsilon(epsilon)
    return Responder(run, column, mechanism, ledger, coins, missing=missing, rules=SpendingRules(**rules))


def ask(responder: Responder, run: str, number: int, length: int) -> None:
    responder.answer(Question(run=run, round=number, level=0.5, query=3.0, length=length))


def copied(path: Path, to: Path) -> Path:
    with Ledger.open(path) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(path, to)
    return to


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Two studies on one column; a copy is made; then both go on, a third begins, and another column is asked."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        one, two = site(ledger, "one"), site(ledger, "two")
        one.reserve(10)
        ask(one, "one", 1, 2)
        two.reserve(10)
        ask(two, "two", 1, 2)
    old = copied(path, tmp_path / "backup.db")
    with Ledger.open(path) as ledger:
        ask(site(ledger, "one"), "one", 2, 3)
        ask(site(ledger, "two"), "two", 2, 3)
        ask(site(ledger, "three"), "three", 1, 10)
        ask(site(ledger, "four", "y"), "four", 1, N)
    forget_marks()
    return old


def test_a_second_studys_records_are_not_asked_again_after_a_restore(backup: Path) -> None:
    """The first study's coordinator tells what it asked; of the others nobody does. Before, all of them went on."""
    with Ledger.open(backup) as ledger:
        (line,) = mark_restored(ledger)
        assert str(line) == (
            "client 'all', column 'x': 10 records counted as spent from now on; "
            "16 kept for the runs that had reserved them"
        )
        one, two = site(ledger, "one"), site(ledger, "two")
        one.mark_spent(3, through_round=2)
        one.account.prove()
        ask(one, "one", 3, 5)  # the rest of what it had reserved, and no more
        with pytest.raises(AlreadyAnswered, match="was restored from a backup"):
            ask(one, "one", 4, 1)
        with pytest.raises(LedgerError, match="nobody has shown since what run 'two' had asked"):
            ask(two, "two", 2, 1)
        with pytest.raises(AlreadyAnswered):  # its records were asked since the backup, by a run it does not know
            site(ledger, "three")
        with pytest.raises(AlreadyAnswered, match=r"restored from a backup.*new_people=True"):
            site(ledger, "four", "y")
        spans = ledger.execute("SELECT start, stop FROM answers ORDER BY start").fetchall()
        assert spans == [(0, 2), (2, 5), (5, 10), (10, 12)]
        # A site goes on with other people, and their second run needs no word about it.
        ask(site(ledger, "five", "z", new_people=True), "five", 1, 5)
        assert site(ledger, "six", "z").available() == N - 5
        assert (statement(ledger).datasets[0].epsilon, statement(ledger).datasets[0].unasked) == (math.inf, 0)
        # Whoever accepts that records spend again, without a limit, accepts what is not known as well.
        assert site(ledger, "four", "y", spend_again=True).available() == N
        with pytest.raises(AlreadyAnswered):
            site(ledger, "four", "y", spend_again=True, max_epsilon=10.0)


def test_without_the_mark_they_are_asked_again(backup: Path) -> None:
    """Negative control: positions 20 to 30 were asked by run three, which the backup does not know."""
    with Ledger.open(backup) as ledger:
        ask(site(ledger, "three again"), "three again", 1, 10)
        assert ledger.execute("SELECT start FROM answers ORDER BY start DESC").fetchone() == (20,)


def test_a_run_that_was_given_up_since_the_backup_gets_nothing_back(tmp_path: Path) -> None:
    """Its records went to another run, which the restored ledger does not know."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        one = site(ledger, "one")
        one.reserve(N)
        ask(one, "one", 1, 2)
    old = copied(path, tmp_path / "backup.db")
    with Ledger.open(path) as ledger:
        release_run(ledger, "one")
        ask(site(ledger, "two"), "two", 1, N - 2)
    with Ledger.open(old, restored=True) as ledger:
        (line,) = mark_restored(ledger)
        assert (line.lost, line.kept) == (N - 2, 0)
        one = site(ledger, "one")
        one.account.prove()
        with pytest.raises(AlreadyAnswered, match="was restored from a backup"):
            ask(one, "one", 2, 1)


def test_a_second_restore_doubts_every_run_whatever_else_was_asked_meanwhile(backup: Path, tmp_path: Path) -> None:
    """With another data set asked between the restores, run one went on where its second backup had it: the records at
    positions 2 to 5 answered twice."""
    with Ledger.open(backup) as ledger:
        mark_restored(ledger)
        site(ledger, "one").account.prove()
        ask(site(ledger, "five", "z", new_people=True), "five", 1, 5)
    second = copied(backup, tmp_path / "second.db")
    with Ledger.open(backup) as ledger:
        ask(site(ledger, "one"), "one", 3, 3)
    forget_marks()
    with Ledger.open(second) as ledger:
        mark_restored(ledger)
        with pytest.raises(LedgerError, match="nobody has shown since what run 'one' had asked"):
            ask(site(ledger, "one"), "one", 4, 3)


def test_people_whose_records_a_run_had_reserved_may_have_answered_another(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        one = site(ledger, "one", people=True)
        one.reserve(10)
        ask(one, "one", 1, 2)
    old = copied(path, tmp_path / "backup.db")
    with Ledger.open(path) as ledger:
        ask(site(ledger, "two", "y", people=True), "two", 1, N - 2)  # everybody else, by another column
    with Ledger.open(old, restored=True) as ledger:
        (line,) = mark_restored(ledger)
        assert line.kept == 0
        one = site(ledger, "one", people=True)
        one.account.prove()
        with pytest.raises(AlreadyAnswered):
            ask(one, "one", 2, 1)
        with pytest.raises(AlreadyAnswered):
            site(ledger, "two", "y", people=True)


def test_a_restored_ledger_is_marked_by_hand_where_there_is_no_coordinator(backup: Path) -> None:
    done = CliRunner().invoke(ledger_command, ["restored", "--ledger", str(backup)])
    assert (done.exit_code, done.output.splitlines()[0][:56]) == (
        0,
        "client 'all', column 'x': 10 records counted as spent fr",
    )
    with Ledger.open(backup) as ledger, pytest.raises(LedgerError, match="count as spent"):
        ask(site(ledger, "one"), "one", 2, 1)


# -- the limit for life ------------------------------------------------------------------------------------------


def spent(ledger: Ledger) -> float:
    return statement(ledger).datasets[0].epsilon


def test_a_run_that_is_resumed_does_not_exceed_the_limit() -> None:
    """Reserved, then overtaken by two runs that spend again: 3 of 2 before."""
    ledger = Ledger.in_memory()
    rules: dict[str, Any] = {"spend_again": True, "max_epsilon": 2.0}
    site(ledger, "one", **rules).reserve(N)
    ask(site(ledger, "two", **rules), "two", 1, N)
    with contextlib.suppress(AlreadyAnswered):
        ask(site(ledger, "three", **rules), "three", 1, N)
    resumed = site(ledger, "one", **rules)
    resumed.reserve(N)
    ask(resumed, "one", 1, N)
    assert spent(ledger) == pytest.approx(2.0)


def test_a_run_overtaken_by_one_with_a_larger_limit_is_checked_at_every_answer() -> None:
    """It stops early, then its records answer a run that may spend more: before, ε = 2 was spent where 1 is allowed."""
    ledger = Ledger.in_memory()
    one = site(ledger, "one", max_epsilon=1.0)
    one.reserve(N)
    ask(one, "one", 1, 5)
    ask(site(ledger, "two", spend_again=True, max_epsilon=2.0), "two", 1, N)
    for run in (one, site(ledger, "one", max_epsilon=1.0)):
        with pytest.raises(AlreadyAnswered, match="above what is allowed for life"):
            ask(run, "one", 2, 5)
    with pytest.raises(AlreadyAnswered, match="above what is allowed for life"):
        one.reserve(N)  # said at the start, too


def test_the_limit_holds_where_missing_values_are_dropped() -> None:
    """How far an answer goes is known only once it was given; then it is checked, and undone."""
    ledger = Ledger.in_memory()
    rules: dict[str, Any] = {"missing": "drop", "spend_again": True}
    one, two = site(ledger, "one", max_epsilon=1.0, missing="drop"), site(ledger, "two", max_epsilon=1.5, **rules)
    one.reserve(N * 2 // 3)
    ask(one, "one", 1, 5)
    with pytest.raises(AlreadyAnswered, match="above what is allowed for life"):
        two.reserve(10)
    ask(site(ledger, "two", max_epsilon=2.0, **rules), "two", 1, N * 2 // 3)
    with pytest.raises(AlreadyAnswered, match="above what is allowed for life"):
        ask(one, "one", 2, 5)
    assert one.account.state().asked == 5
    assert spent(ledger) == pytest.approx(2.0)


def test_two_runs_asked_in_turns_stay_within_the_limit() -> None:
    ledger = Ledger.in_memory()
    ask(site(ledger, "old"), "old", 1, N)
    one, two = (site(ledger, name, spend_again=True, max_epsilon=2.0) for name in ("one", "two"))
    for number in range(1, 12):
        for name, run in (("one", one), ("two", two)):
            with contextlib.suppress(AlreadyAnswered):
                ask(run, name, number, 4)
    assert spent(ledger) == pytest.approx(2.0)


def test_what_another_run_has_reserved_counts_as_spent() -> None:
    ledger = Ledger.in_memory()
    one, two = (site(ledger, name, spend_again=True, max_epsilon=1.5) for name in ("one", "two"))
    one.reserve(20)
    with pytest.raises(AlreadyAnswered, match="above what is allowed for life"):
        two.reserve(20)
    one.account.release()
    two.reserve(20)


def test_a_smaller_limit_holds_for_a_run_that_began_under_a_larger_one() -> None:
    ledger = Ledger.in_memory()
    ask(site(ledger, "old"), "old", 1, N)
    run = site(ledger, "new", spend_again=True, max_epsilon=2.0)
    run.reserve(N)
    ask(run, "new", 1, 5)
    lowered = site(ledger, "new", spend_again=True, max_epsilon=1.5)
    with pytest.raises(AlreadyAnswered, match="above what is allowed for life"):
        ask(lowered, "new", 2, 5)
    assert spent(ledger) == pytest.approx(2.0)


def under_another_name(ledger: Ledger) -> Responder:
    """Column x, called value."""
    other = shuffle(open_source(np.arange(120.0, 120.0 + N)), ledger)["all"]
    rules, coins = SpendingRules(spend_again=True, max_epsilon=2.0), SeededCoins(np.random.default_rng(0))
    return Responder("other", other, RandomizedResponse.from_epsilon(1.0), ledger, coins, rules=rules)


def test_the_same_records_under_another_name_count() -> None:
    ledger = Ledger.in_memory()
    ask(site(ledger, "x"), "x", 1, 10)
    again = site(ledger, "again", spend_again=True, max_epsilon=2.0)
    ask(under_another_name(ledger), "other", 1, 10)
    with pytest.raises(AlreadyAnswered, match="above what is allowed for life"):
        ask(again, "again", 1, 25)


def test_what_another_process_answers_under_another_name_counts(tmp_path: Path) -> None:
    """The first process has looked, and found the column alone; then the second one enters it by its other name."""
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ask(site(ledger, "x"), "x", 1, 10)
        again = site(ledger, "again", spend_again=True, max_epsilon=2.0)
        ask(again, "again", 1, 5)
        with Ledger.open(tmp_path / "ledger.db") as other:
            ask(under_another_name(other), "other", 1, 10)
        with pytest.raises(AlreadyAnswered, match="above what is allowed for life"):
            ask(again, "again", 2, 20)
        ask(again, "again", 3, 5)  # the control: these have answered once only


@pytest.mark.parametrize("people", [False, True])
def test_a_sum_may_pass_the_limit_by_rounding_and_by_no_more(people: bool) -> None:
    """0.1 + 0.2 is more than 0.3 as a computer adds, by 6e-17."""
    for limit, fits in ((0.3, True), (0.3 - 2e-9, False)):
        ledger = Ledger.in_memory()
        ask(site(ledger, "one", people=people, epsilon=0.1), "one", 1, N)

        def answer(ledger: Ledger = ledger, limit: float = limit) -> int:
            try:
                second = site(ledger, "two", people=people, epsilon=0.2, spend_again=True, max_epsilon=limit)
            except AlreadyAnswered:
                return 0
            return second.available()

        assert answer() == (N if fits else 0)
