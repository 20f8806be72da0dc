"""Runs side by side: each has its own records, and nobody answers twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from privatile.cli.ledger import ledger as ledger_command
from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.datasets import statement
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import SeededCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.errors import AlreadyAnswered, LedgerError

N = 30


def site(ledger: Ledger, run: str, people: bool = False, **terms: Any) -> Responder:
    data = np.array([(float(k), f"p{k}") for k in range(N)], dtype=[("x", float), ("who", "U9")])
    source = open_source(data, value="x", person="who" if people else None)
    column = shuffle(source, ledger, person_key=PersonKey(b"k" * 32) if people else None)["all"]
    coins = SeededCoins(np.random.default_rng(0))
    return Responder(run, column, RandomizedResponse.from_epsilon(1.0), ledger, coins, rules=SpendingRules(**terms))


def ask(responder: Responder, run: str, number: int, length: int) -> None:
    responder.answer(Question(run=run, round=number, level=0.5, query=3.0, length=length))


@pytest.mark.parametrize("people", [False, True])
def test_two_runs_at_once_both_end(tmp_path: Path, people: bool) -> None:
    """Opened side by side on one file, asked in turns: the span of each is safe from the other."""
    site(Ledger.open(tmp_path / "l.db"), "made", people).mark_spent(1, 1)
    ledgers = [Ledger.open(tmp_path / "l.db") for _ in range(2)]
    one, two = (site(ledger, name, people) for ledger, name in zip(ledgers, ("one", "two"), strict=True))
    one.reserve(15)
    assert two.available() == 14
    with pytest.raises(AlreadyAnswered):
        two.reserve(20)
    two.reserve(14)
    for number in range(1, 15):
        ask(one, "one", number, 1)
        ask(two, "two", number, 1)
    ask(one, "one", 15, 1)
    with pytest.raises(AlreadyAnswered):
        ask(one, "one", 16, 1)
    assert statement(ledgers[0]).datasets[0].epsilon == pytest.approx(1.0)
    assert statement(ledgers[0]).datasets[0].reports == N


def test_a_reservation_survives_and_is_kept_when_repeated() -> None:
    ledger = Ledger.in_memory()
    first = site(ledger, "one")
    first.reserve(20)
    ask(first, "one", 1, 5)
    again = site(ledger, "one")
    again.reserve(20)
    assert site(ledger, "two").available() == 10
    ask(again, "one", 2, 15)
    again.reserve(20)
    assert site(ledger, "two").available() == 10


def test_release_gives_back_what_was_not_asked() -> None:
    ledger = Ledger.in_memory()
    one = site(ledger, "one")
    one.reserve(20)
    ask(one, "one", 1, 5)
    one.account.release()
    two = site(ledger, "two")
    assert two.available() == 25
    two.reserve(10)
    one.reserve(20)  # taken up again: the rest lies behind the other run
    ask(one, "one", 2, 15)
    ask(two, "two", 1, 10)
    assert ledger.execute("SELECT start, stop FROM answers ORDER BY start").fetchall() == [(0, 5), (5, 15), (15, 30)]


def test_a_release_stops_where_a_later_run_stands() -> None:
    """What the first run gives up lies before the second: nobody gets it, so that no record answers twice."""
    ledger = Ledger.in_memory()
    one, two = site(ledger, "one"), site(ledger, "two")
    one.reserve(10)
    ask(two, "two", 1, 5)
    one.account.release()
    three = site(ledger, "three")
    assert three.available() == N - 15
    ask(three, "three", 1, 5)
    assert ledger.execute("SELECT start, stop FROM answers ORDER BY start").fetchall() == [(10, 15), (15, 20)]


def test_a_release_is_noted_beside_the_key_before_it_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a kill between the two, and an older copy of the ledger, would give the records back to the run."""
    with Ledger.open(tmp_path / "l.db") as ledger:
        one = site(ledger, "one")
        one.reserve(20)
        assert ledger.secret.path is not None
        note = ledger.secret.path.with_suffix(".given-up")
        note.mkdir()
        with pytest.raises(LedgerError, match="so the records stay reserved"):
            one.account.release()
        assert site(ledger, "two").available() == N - 20
        note.rmdir()
        noted, execute = [], Ledger.execute

        def watched(self: Ledger, sql: str, values: Any = ()) -> Any:
            if sql == "COMMIT":
                noted.append(self.secret.has_given_up("one"))
            return execute(self, sql, values)

        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "execute", watched)
            assert not ledger.secret.has_given_up("one")
            one.account.release()
        assert noted == [True]
        assert site(ledger, "two").available() == N


def test_a_run_that_was_broken_off_can_be_given_up(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.db") as ledger:
        one = site(ledger, "one")
        one.reserve(N)
        ask(one, "one", 1, 5)
        with pytest.raises(AlreadyAnswered, match=r"not asked yet: 25 by run 'one'.*privatile ledger release one"):
            site(ledger, "two")
    done = CliRunner().invoke(ledger_command, ["release", "one", "--ledger", str(tmp_path / "l.db")])
    assert (done.exit_code, done.output) == (0, "Not asked and free again: 25 records reserved by run one.\n")
    with Ledger.open(tmp_path / "l.db") as ledger:
        assert site(ledger, "two").available() == 25
    assert CliRunner().invoke(ledger_command, ["release", "none", "--ledger", str(tmp_path / "l.db")]).exit_code != 0


def test_releasing_without_a_reservation_does_nothing() -> None:
    ledger = Ledger.in_memory()
    one = site(ledger, "one")
    ask(one, "one", 1, 5)
    one.account.release()
    assert one.available() == 25


steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["reserve", "ask", "release"]), st.integers(1, 12)), max_size=30
)


@settings(max_examples=80, deadline=None)
@given(steps, st.sampled_from("-abc"), st.booleans())
def test_whatever_is_reserved_nobody_answers_twice(
    taken: list[tuple[str, str, int]], spender: str, people: bool
) -> None:
    """Within a run each record answers once; without permission once at all, whoever reserves what when."""
    ledger = Ledger.in_memory()
    for number, (run, step, count) in enumerate(taken, 1):
        try:
            responder = site(ledger, run, people, spend_again=run == spender)
            if step == "reserve":
                responder.reserve(count)
            elif step == "ask":
                ask(responder, run, number, count)
            else:
                responder.account.release()
        except AlreadyAnswered:
            continue
    frugal = np.zeros(N, dtype=int)
    for run in "abc":
        seen = np.zeros(N, dtype=int)
        for start, stop in ledger.execute("SELECT start, stop FROM answers WHERE run = ?", (run,)):
            seen[np.arange(start, stop) % N] += 1
        if not people:  # with people a span holds positions that were passed over
            assert seen.max() <= 1
            frugal += seen * (run != spender)
    assert frugal.max() <= 1
    if spender == "-":
        assert statement(ledger).person_epsilon <= 1.0
        assert sum(line.reports for line in statement(ledger).datasets) <= N
