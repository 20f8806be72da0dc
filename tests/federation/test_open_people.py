"""Federations whose records arrive over weeks: everybody answers once, whatever becomes of the file and its people."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privatile import estimate
from privatile.client.ledger.account import Account
from privatile.errors import AlreadyAnswered, Equivocation, InputError, LedgerError, OtherContent
from privatile.federation.site.responder import OpenSiteResponder
from privatile.federation.wire import RoundAnswers, read_message
from tests.federation.open_kit import DAY, OpenFederation, make_open_study, people, spent

pytestmark = pytest.mark.network  # a free port of the loopback is looked for; nothing is sent


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[OpenFederation]:
    made = OpenFederation(tmp_path, make_open_study())
    yield made
    made.run_.store.close()


def troubles(federation: OpenFederation) -> set[str]:
    """Weeks of a site's life; gives everybody who was ever in its file while a round was asked."""
    here: set[str] = set()
    rng = np.random.default_rng(1)

    def before(number: int) -> None:
        rows = federation.rows["north"]
        if number == 3:
            rng.shuffle(rows)  # another order
        if number == 4:
            del rows[::2]  # it shrinks
        if number == 5:
            rows[:] = [(person, value + 1.0) for person, value in rows]  # every value is edited
        if number == 6:
            rows += [(person, 0.0) for person, _ in rows[:10]]  # people with a second row
        if number == 7:
            rows[:] = [(f"north-1-{k}", 50.0) for k in range(9)]  # those who were deleted come back
        federation.arrive("north", people(f"north-{number}", 9))
        here.update(person for person, _ in federation.rows["north"])
        if number in (2, 5, 8):
            federation.start("north")  # a restart, with a new process

    federation.start("north")
    federation.play(9, before)
    return here


def test_everybody_answers_once_whatever_becomes_of_the_file(tmp_path: Path) -> None:
    federation = OpenFederation(tmp_path, make_open_study({"north": 1.0}))
    here = troubles(federation)
    asked = federation.run_.coordinator.asked["north"]
    epsilon = federation.study.clients["north"].mechanism.epsilon
    assert spent(federation, "north") == (asked, epsilon)
    assert len(here) == asked  # each round had room for all who had come
    with federation.ledger("north") as ledger:
        assert ledger.verify() == 9


def test_that_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = OpenFederation(tmp_path, make_open_study({"north": 1.0}))
    monkeypatch.setattr(Account, "may_answer", lambda self, people: np.ones(len(people), dtype=bool))
    troubles(federation)
    assert spent(federation, "north")[1] > federation.study.clients["north"].mechanism.epsilon


def test_an_answer_that_was_not_sent_is_sent_again_as_it_was(tmp_path: Path) -> None:
    federation = OpenFederation(tmp_path, make_open_study(), files=True)
    federation.arrive("north", people("north", 40))
    federation.start("north")
    asked = federation.open_round()
    first = federation.answer("north", asked)
    assert first is not None
    # Killed after the commit; meanwhile more have come, and the file is gone for a while.
    federation.arrive("north", people("more", 40))
    federation.start("north")
    federation.file("north").unlink()
    assert federation.answer("north", asked) == first
    message = read_message(first, federation.sites["north"].key().public.signer, 4096)
    assert isinstance(message, RoundAnswers)
    assert spent(federation, "north")[0] == message.counts[0].length == 15  # its share of 25


def test_another_question_of_the_same_round_is_refused(federation: OpenFederation) -> None:
    federation.arrive("north", people("north", 40))
    service = federation.start("north")
    federation.open_round()
    (question,) = federation.core.intake.questions["north"]
    study = federation.study.digest
    assert service.core.responder.message(study, [question]) == service.core.responder.message(study, [question.of(99)])
    with pytest.raises(Equivocation):
        service.core.responder.message(study, [replace(question, query=question.query + 1.0)])
    assert spent(federation, "north")[0] == 15


def test_a_site_waits_for_its_people_and_answers_at_half_time(federation: OpenFederation) -> None:
    federation.start("north")
    asked = federation.open_round()
    assert federation.answer("north", asked) is None  # nobody has come
    federation.arrive("north", people("north", 3))
    federation.now += DAY / 2 - 1
    assert federation.answer("north", asked) is None  # three of fifteen
    federation.now += DAY / 20
    assert federation.answer("north", asked) is not None
    assert spent(federation, "north")[0] == 3


def test_never_fewer_than_the_site_allows(federation: OpenFederation) -> None:
    limits = federation.sites["north"].limits_file
    limits.write_text(limits.read_text().replace("min_cohort = 1", "min_cohort = 12"))
    federation.arrive("north", people("north", 11))
    federation.start("north")
    asked = federation.open_round()
    federation.answer("north", asked)
    federation.now += DAY
    assert federation.answer("north", asked) is None
    federation.arrive("north", people("one more", 1))
    federation.now += DAY
    assert federation.answer("north", asked) is not None
    assert spent(federation, "north")[0] == 12


def test_whose_turn_it_is_does_not_depend_on_the_order_of_the_file(federation: OpenFederation) -> None:
    """Of many who wait, the ledger's key chooses: sorted by value or not, the same people come first."""
    federation.arrive("north", people("north", 200))
    responder = federation.start("north").core.responder
    assert isinstance(responder, OpenSiteResponder)

    def first() -> list[float]:
        (block,) = responder._read_source()._column.blocks(0, 15)
        return [*block.values]

    before = first()
    federation.rows["north"].sort(key=lambda row: row[1])
    assert first() == before
    assert before != sorted(before)


def test_a_source_that_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    federation = OpenFederation(tmp_path, make_open_study(), files=True)
    federation.arrive("north", people("north", 40))
    service = federation.start("north")
    asked = federation.open_round()
    federation.file("north").unlink()
    assert federation.answer("north", asked) is None
    assert service.core.failure is None
    federation.write("north")
    federation.now += DAY / 2
    assert federation.answer("north", asked) is not None


def test_a_query_is_asked_anew_in_every_round(federation: OpenFederation, tmp_path: Path) -> None:
    federation.database = tmp_path / "clinic.db"
    with sqlite3.connect(federation.database) as clinic:
        clinic.execute("CREATE TABLE people (id TEXT, x REAL)")
    federation.start("north")
    for number in range(3):
        with sqlite3.connect(federation.database) as clinic:
            clinic.executemany("INSERT INTO people VALUES (?, ?)", people(f"round-{number}", 4).items())
        federation.play(1)
        assert federation.run_.coordinator.asked["north"] == 4 * (number + 1)
    assert spent(federation, "north") == (12, federation.study.clients["north"].mechanism.epsilon)


def test_who_has_no_value_yet_is_left_for_later_where_they_are_dropped(tmp_path: Path) -> None:
    federation = OpenFederation(tmp_path, replace(make_open_study({"north": 1.0}), missing="drop"))
    federation.arrive("north", {**people("known", 10), "later": float("nan")})
    federation.start("north")
    federation.play(1)
    assert federation.run_.coordinator.asked["north"] == 10
    federation.play(1)  # nobody new
    federation.rows["north"][-1] = ("later", 50.0)
    federation.play(1)
    assert federation.run_.coordinator.asked["north"] == spent(federation, "north")[0] == 11


def test_no_more_than_agreed_take_part(tmp_path: Path) -> None:
    federation = OpenFederation(tmp_path, make_open_study({"north": 1.0}, records=40))
    federation.arrive("north", people("north", 100))
    federation.start("north")
    federation.play(5)
    assert federation.run_.coordinator.asked == {"north": 40}
    assert spent(federation, "north")[0] == 40
    assert federation.open_round() == b""
    assert federation.core._finish() == "north has given all records that it agreed to, and nothing counts without it"


def test_the_person_column_stays(federation: OpenFederation) -> None:
    federation.arrive("north", people("north", 40))
    federation.start("north")
    federation.play(1)
    content = federation.services["north"].core.responder._responder._column.content
    rules, ledger = federation.services["north"].core.responder._rules, federation.ledger("north")  # type: ignore[attr-defined]
    mechanism = federation.study.clients["north"].mechanism
    with pytest.raises(OtherContent):
        Account(ledger, federation.study.run, replace(content, person_column="mail"), mechanism, rules)
    other = replace(rules, new_people=True)
    with pytest.raises(OtherContent):  # not even where the site says that these are other people
        Account(ledger, federation.study.run, replace(content, person_column="mail"), mechanism, other)
    nameless = replace(content, by_person=False, person_column=None, person_key=None)
    with pytest.raises(InputError, match="no person column"):
        Account(ledger, "another run", nameless, mechanism, rules)


def test_records_that_answered_without_a_name_are_recognised_later(tmp_path: Path) -> None:
    federation = OpenFederation(tmp_path, make_open_study({"north": 1.0}), files=True)
    federation.arrive("north", people("north", 15))
    federation.start("north")
    federation.play(1)
    federation.arrive("north", people("later", 15))
    federation.play(1)
    with pytest.raises(AlreadyAnswered):
        estimate(
            federation.file("north"), value="x", q=0.5, epsilon=1.0, range=(0, 100),
            ledger=federation.sites["north"].ledger_file,
        )  # fmt: skip


def test_a_restored_ledger_answers_nobody(federation: OpenFederation, tmp_path: Path) -> None:
    federation.arrive("north", people("north", 40))
    federation.start("north")
    federation.play(1)
    federation.services["north"].core.responder.ledger.close()
    copy = tmp_path / "copy.db"
    shutil.copy(federation.sites["north"].ledger_file, copy)
    federation.start("north")
    federation.play(1)
    federation.services["north"].core.responder.ledger.close()
    shutil.copy(copy, federation.sites["north"].ledger_file)
    with pytest.raises(LedgerError):
        federation.start("north")
    with pytest.raises(AlreadyAnswered, match="restored from a backup"):
        federation.start("north", restored=True)
