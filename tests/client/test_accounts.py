"""The rules: once, the same again, nothing else; and what may be allowed beyond."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from privatile.errors import AlreadyAnswered, Equivocation, InputError, LedgerError, OtherContent

KEY = PersonKey(b"p" * 32)


def site(
    ledger: Ledger,
    values: object,
    run: str = "run",
    *,
    epsilon: float = 1.0,
    value: str = "value",
    person: str | None = None,
    key: PersonKey = KEY,
    **terms: Any,
) -> Responder:
    source = open_source(values, value=value, person=person)
    column = shuffle(source, ledger, person_key=key if person else None)["all"]
    mechanism = RandomizedResponse.from_epsilon(epsilon)
    return Responder(
        run, column, mechanism, ledger, SeededCoins(np.random.default_rng(0)), rules=SpendingRules(**terms)
    )


def ask(number: int = 1, length: int = 5, run: str = "run", **fields: Any) -> Question:
    return replace(Question(run=run, round=number, level=0.5, query=3.0, length=length), **fields)


def table(people: list[str], value: str = "value") -> np.ndarray[Any, Any]:
    rows = [(float(k), name) for k, name in enumerate(people)]
    return np.array(rows, dtype=[(value, float), ("who", "U20")])


DATA = np.arange(20.0)


def test_the_same_question_gets_the_stored_count() -> None:
    ledger = Ledger.in_memory()
    first = site(ledger, DATA).answer(ask())
    assert [site(ledger, DATA).answer(ask()) for _ in range(5)] == [first] * 5
    assert ledger.position.sequence == 1


@pytest.mark.parametrize("change", [{"query": 3.5}, {"length": 6}, {"step": 0.1}])
def test_a_changed_question_is_equivocation(change: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger.in_memory()
    responder = site(ledger, DATA)
    responder.answer(ask())
    with caplog.at_level(logging.WARNING), pytest.raises(Equivocation, match="asked again with another question"):
        responder.answer(ask(**change))
    assert "refused run='run' client='all' round=1" in caplog.text
    assert responder.available() == 15


def test_another_level_is_another_question() -> None:
    responder = site(Ledger.in_memory(), DATA)
    responder.answer(ask())
    responder.answer(ask(level=0.9))
    assert responder.available() == 10


def test_a_question_of_another_run_is_refused() -> None:
    with pytest.raises(Equivocation, match="a question of run 'other' is refused"):
        site(Ledger.in_memory(), DATA).answer(ask(run="other"))


def test_a_later_run_uses_records_that_have_not_answered() -> None:
    ledger = Ledger.in_memory()
    site(ledger, DATA).answer(ask(length=12))
    later = site(ledger, DATA, "later")
    assert later.available() == 8
    later.answer(ask(length=8, run="later"))
    assert ledger.execute("SELECT start, stop FROM answers").fetchall() == [(0, 12), (12, 20)]
    assert statement(ledger).datasets[0].epsilon == pytest.approx(1.0)


def test_a_second_run_over_answered_records_says_what_it_costs() -> None:
    ledger = Ledger.in_memory()
    site(ledger, DATA, epsilon=0.5).answer(ask(length=20))
    words = r"Up to epsilon 0\.5 each is spent; another run over them would make it 2\.5\. .*spend_again=True"
    with pytest.raises(AlreadyAnswered, match=words):
        site(ledger, DATA, "again", epsilon=2.0)


def test_spending_again_adds_up() -> None:
    ledger = Ledger.in_memory()
    site(ledger, DATA, epsilon=0.5).answer(ask(length=12))
    again = site(ledger, DATA, "again", epsilon=2.0, spend_again=True)
    assert again.available() == 20
    again.answer(ask(length=20, run="again"))
    with pytest.raises(AlreadyAnswered):  # once within a run, whatever may be spent again
        again.answer(ask(2, length=1, run="again"))
    assert statement(ledger).datasets[0].epsilon == pytest.approx(2.5)
    with pytest.raises(AlreadyAnswered, match=r"epsilon 2\.5 each is spent; another run over them would make it 3\.5"):
        site(ledger, DATA, "third")


def test_a_run_keeps_its_budget() -> None:
    ledger = Ledger.in_memory()
    site(ledger, DATA).answer(ask())
    with pytest.raises(LedgerError, match=r"began at .* with epsilon 1; got 2"):
        site(ledger, DATA, epsilon=2.0)


def test_a_resumed_run_needs_the_same_content() -> None:
    ledger = Ledger.in_memory()
    site(ledger, DATA).answer(ask())
    for other in (DATA[::-1].copy(), DATA + 1, DATA[:-1]):
        with pytest.raises(OtherContent, match="ORDER BY"):
            site(ledger, other)
        with pytest.raises(OtherContent, match="ORDER BY"):
            site(ledger, other, new_people=True)
    assert site(ledger, DATA).available() == 15


def test_other_content_is_refused_unless_they_are_others() -> None:
    ledger = Ledger.in_memory()
    site(ledger, DATA, epsilon=0.5).answer(ask())
    with pytest.raises(OtherContent, match=r"up to epsilon 0\.5 per record.*new_people=True"):
        site(ledger, DATA + 1, "next")
    site(ledger, DATA + 1, "next", new_people=True).answer(ask(run="next"))
    assert site(ledger, DATA, "third").available() == 15  # both contents are known now
    assert site(ledger, DATA + 1, "third").available() == 15
    assert [line.reports for line in statement(ledger).datasets] == [5, 5]


def test_a_limit_for_life_without_people() -> None:
    ledger = Ledger.in_memory()
    with pytest.raises(InputError, match=r"allows epsilon 0\.9 for life .*, and one answer at epsilon 1 is more"):
        site(ledger, DATA, max_epsilon=0.9)
    site(ledger, DATA, max_epsilon=1.0).answer(ask(length=20))
    with pytest.raises(AlreadyAnswered, match=r"allows epsilon 1\.5 .* on top of 1 already spent"):
        site(ledger, DATA, "again", max_epsilon=1.5, spend_again=True)
    assert site(ledger, DATA, "again", max_epsilon=2.0, spend_again=True).available() == 20


def test_a_round_of_an_account_opened_before_another_began() -> None:
    """Two accounts of one new run, opened side by side with different content: the second is refused."""
    ledger = Ledger.in_memory()
    one, two = site(ledger, DATA), site(ledger, DATA + 1)
    one.answer(ask())
    with pytest.raises(OtherContent):
        two.answer(ask(2))
    assert ledger.position.sequence == 1


# -- people ------------------------------------------------------------------------------------------------------


def test_people_spend_across_columns() -> None:
    ledger = Ledger.in_memory()
    people = [f"p{k}" for k in range(20)]
    site(ledger, table(people, "wage"), value="wage", person="who").answer(ask(length=20))
    other = site(ledger, table([*people[10:], "new1", "new2"], "age"), "age", value="age", person="who")
    assert other.available() == 2
    other.require(2)
    other.answer(ask(length=2, run="age"))
    with pytest.raises(AlreadyAnswered, match="0 people left"):
        other.answer(ask(2, length=1, run="age"))
    assert statement(ledger).people == 22
    assert statement(ledger).person_epsilon == pytest.approx(1.0)


def test_people_are_recognised_in_other_content() -> None:
    ledger = Ledger.in_memory()
    people = [f"p{k}" for k in range(20)]
    site(ledger, table(people), person="who").answer(ask(length=20))
    fresh = [f"n{k}" for k in range(7)]
    assert site(ledger, table(people[::-1] + fresh), "next", person="who").available() == 7


def test_people_add_up_to_their_limit() -> None:
    ledger = Ledger.in_memory()
    people = table([f"p{k}" for k in range(10)])
    site(ledger, people, person="who", epsilon=1.0).answer(ask(length=10))
    again = site(ledger, people, "two", person="who", epsilon=0.5, spend_again=True, max_epsilon=1.5)
    assert again.available() == 10
    again.answer(ask(length=4, run="two"))
    third = site(ledger, people, "three", person="who", epsilon=0.5, spend_again=True, max_epsilon=1.5)
    assert third.available() == 6  # four are at their limit
    third.answer(ask(length=6, run="three"))
    with pytest.raises(AlreadyAnswered, match="0 people left"):
        third.answer(ask(2, length=1, run="three"))
    assert statement(ledger).person_epsilon == pytest.approx(1.5)


def test_people_and_strangers_do_not_mix() -> None:
    ledger = Ledger.in_memory()
    people = table([f"p{k}" for k in range(10)])
    site(ledger, people).answer(ask())
    with pytest.raises(AlreadyAnswered, match="where no person column was named"):
        site(ledger, people, "named", person="who")
    with pytest.raises(OtherContent):
        site(ledger, table([f"p{k}" for k in range(11)]), "named", person="who")
    ledger = Ledger.in_memory()
    site(ledger, people, person="who").answer(ask())
    with pytest.raises(AlreadyAnswered, match="have answered before"):
        site(ledger, people, "nameless")


def test_another_person_key_is_refused() -> None:
    ledger = Ledger.in_memory()
    people = table([f"p{k}" for k in range(10)])
    site(ledger, people, person="who").answer(ask())
    with pytest.raises(LedgerError, match="everybody would look new"):
        site(ledger, people, "next", person="who", key=PersonKey(b"q" * 32))


def test_a_missing_person_key_file_is_named_and_called_missing(tmp_path: Path) -> None:
    ledger, where = Ledger.in_memory(), tmp_path / "person.key"
    people = table([f"p{k}" for k in range(10)])
    site(ledger, people, person="who", key=ledger.person_key(where)).answer(ask())
    where.rename(tmp_path / "moved.key")
    with pytest.raises(LedgerError, match=rf"the person-key file {where} is missing: it holds the key by which"):
        site(ledger, people, "next", person="who", key=ledger.person_key(where))
    assert not where.exists()  # no new key is in the way of the right one
    where.write_bytes(b"q" * 32)
    with pytest.raises(LedgerError, match=rf"the person-key file {where} does not hold the key"):
        site(ledger, people, "next", person="who", key=ledger.person_key(where))


def test_marking_spent_charges_people() -> None:
    ledger = Ledger.in_memory()
    responder = site(ledger, table([f"p{k}" for k in range(10)]), person="who")
    responder.mark_spent(6, through_round=3)
    assert responder.available() == 4
    assert statement(ledger).people == 6


# -- invariants --------------------------------------------------------------------------------------------------

runs = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.integers(1, 4),
        st.sampled_from([0.2, 0.8]),
        st.integers(1, 9),
        st.booleans(),
    ),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(runs, st.booleans())
def test_whatever_is_asked_the_books_are_right(asked: list[tuple[str, int, float, int, bool]], spend: bool) -> None:
    """Within a run no record answers twice; without permission none answers twice at all; counts never change."""
    ledger = Ledger.in_memory()
    records = 23
    given_answers: dict[tuple[str, int, float], tuple[Question, int]] = {}
    epsilons = {"a": 0.5, "b": 1.0, "c": 2.0}
    for run, number, level, length, reopen in asked:
        question = ask(number, length, run, level=level)
        key = (run, number, level)
        try:
            responder = site(
                ledger, np.arange(float(records)), run, epsilon=epsilons[run], spend_again=spend and reopen
            )
            ones = responder.answer(question).ones
        except Equivocation:
            assert given_answers[key][0] != question
            continue
        except AlreadyAnswered:
            continue
        if key in given_answers:
            assert given_answers[key] == (question, ones)
        given_answers[key] = (question, ones)
    spent = np.zeros(records)
    for run in epsilons:
        seen = np.zeros(records, dtype=int)
        for start, stop in ledger.execute("SELECT start, stop FROM answers WHERE run = ?", (run,)):
            seen[np.arange(start, stop) % records] += 1
        assert seen.max(initial=0) <= 1
        spent += seen * RandomizedResponse.from_epsilon(epsilons[run]).epsilon
    if not spend:
        assert sum(question.length for question, _ in given_answers.values()) <= records
    lines = statement(ledger).datasets
    assert len(given_answers) == ledger.verify()
    assert (lines[0].epsilon if lines else 0.0) == pytest.approx(spent.max(initial=0.0))


def test_the_holder_is_told_when_people_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger.in_memory()
    people = [f"p{k}" for k in range(20)]
    first = site(ledger, table(people), person="who")
    first.reserve(20)
    first.answer(ask(length=20))
    assert "passed over" not in caplog.text
    other = site(ledger, table([*people, "new"]), "next", person="who", new_people=True)
    other.reserve(1)
    assert "some people of client 'all' have answered before and are passed over" in caplog.text
    assert "20" not in caplog.text.partition("passed over")[2]  # how many stays in the ledger
