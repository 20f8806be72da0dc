"""A site answers for no more records than it agreed to, and only questions of the form that it agreed to."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.ledger import Ledger
from privatile.client.sources.databases import open_source
from privatile.core.messages import Question
from privatile.errors import AlreadyAnswered, SiteRefusal
from privatile.estimator.schedule import Mode
from privatile.federation.setup.check import check
from privatile.federation.setup.folder import Directory
from privatile.federation.setup.invitation import Invitation
from privatile.federation.site.limits import check_questions
from privatile.federation.site.responder import SiteResponder, open_responder
from privatile.federation.study import Arrivals, ClientAgreement, FederationStudy
from privatile.records.keys import KeyPair
from privatile.run.certificates import make_authority
from tests.federation.kit import make_study

VALUES = np.random.default_rng(3).normal(50.0, 10.0, 5000)


def make(records: int = 1000) -> FederationStudy:
    return make_study({"north": ClientAgreement(1.0, 1.0, records)}, 100)


def responder(study: FederationStudy, path: Path) -> SiteResponder:
    source = open_source(VALUES, value=None)
    return open_responder(study, "north", source, Ledger.open(path), SpendingRules(max_epsilon=1.0), reserve=False)


def test_messages_answered_side_by_side_ask_no_more_records_than_agreed(tmp_path: Path) -> None:
    # Flower may start a process for each message, and they all open the site before the first has answered.
    study, path = make(), tmp_path / "ledger.db"
    with Ledger.open(path) as ledger, ledger.transaction():
        pass
    open_at_once = [responder(study, path) for _ in range(5)]
    answered = 0
    for number, one in enumerate(open_at_once, 1):
        with contextlib.suppress(SiteRefusal):
            one.answer([Question(study.run, number, 0.5, 50.0, 1000)])
            answered += 1000
    assert answered == 1000
    # A question that was answered is answered again by all of them.
    again = {one.answer([Question(study.run, 1, 0.5, 50.0, 1000)]) for one in open_at_once}
    assert len(again) == 1


def test_a_level_that_is_refused_takes_the_other_levels_of_its_round_back(tmp_path: Path) -> None:
    study = make()
    site = responder(study, tmp_path / "ledger.db")

    def ask(second: int) -> None:
        site.answer([Question(study.run, 1, level, 50.0, length) for level, length in ((0.5, 600), (0.9, second))])

    with pytest.raises(SiteRefusal, match="agreed to"):
        ask(600)
    with pytest.raises(AlreadyAnswered):
        ask(len(VALUES))
    assert (site.account.answered(), site.ledger.position.sequence) == (0, 0)
    ask(400)  # the control
    assert (site.account.answered(), site.ledger.position.sequence) == (1000, 2)


@pytest.mark.parametrize(("mode", "step"), [("cohort", 1e-3), ("local", None)])
def test_a_question_has_a_step_in_local_mode_only(mode: Mode, step: float | None) -> None:
    study = dataclasses.replace(make(), mode=mode)
    asked = Question(study.run, 1, 0.5, 50.0, 10, step)
    with pytest.raises(SiteRefusal, match=f"the study's mode is {mode}"):
        check_questions(study, [asked])
    check_questions(study, [dataclasses.replace(asked, step=1e-3 if step is None else None)])


def test_a_step_larger_than_any_of_the_studys_own_is_refused() -> None:
    study = dataclasses.replace(make(), mode="local")
    largest = study.largest_step / 10
    check_questions(study, [Question(study.run, 1, 0.5, 50.0, 10, largest)])
    with pytest.raises(SiteRefusal, match="larger than any of the study's own schedule"):
        check_questions(study, [Question(study.run, 1, 0.5, 50.0, 10, 1.01 * largest)])


def test_an_invitation_shows_every_field_that_a_site_agrees_to(authority: str) -> None:
    agreements = {"north": ClientAgreement(11.5, 0.25, 4321, level=0.625), "south": ClientAgreement(1.0, 0.75, 1234)}
    told: dict[str, object] = {
        "identity": "0123456789ab",
        "title": "Salaries of nurses",
        "asked_by": "The institute of health",
        "value": "yearly salary in dollars",
        "levels": (0.5,),
        "range": (1250.0, 99500.0),
        "rounds": 777,
        "scale": "log",
        "mode": "local",
        "design": "rounds",
        "missing": "drop",
        "value_kind": "step=250",
        "confidence_level": 0.93,
        "deadline": 61.5,
        "quorum": 1,
        "patience": 13,
        "allow_weak": True,
        "clients": agreements,
    }
    # Studies of an extension have an invitation of their own, open ones are below.
    others = {"extra", "arrivals"}
    assert set(told) | others == {field.name for field in dataclasses.fields(FederationStudy)}
    study = FederationStudy(**told)  # type: ignore[arg-type]
    rows = Invitation("north", study, ("tls://broker.example:4222",), authority, KeyPair.generate().public).rows()
    text = "\n".join(words for _, words in rows)
    words = ["0123456789ab", "Salaries of nurses", "The institute", "yearly salary", "0.625", "1,250 to 99,500", "777"]
    words += ["log scale", "local mode", "design rounds", "drop: a record without", "93%", "61.5 seconds", "1 of 2"]
    words += [
        "13 silent rounds",
        "above 10",
        "a multiple of 250",
        "11.5",
        "weight 0.25",
        "4,321",
        "south",
        study.digest,
    ]
    assert [word for word in words if word not in text] == []


def test_an_invitation_to_an_open_study_shows_when_its_rounds_close_and_when_it_ends(authority: str) -> None:
    ends = {"round_answers": 77, "end_date": "2036-12-31", "end_answers": 4567, "end_width": 2.5}
    assert set(ends) == {field.name for field in dataclasses.fields(Arrivals)}
    study = make_study({"north": ClientAgreement(1.0, 1.0, 4321)}, rounds=0, patience=5, design="open",
                       deadline=3600.0, arrivals=Arrivals(**ends))  # type: ignore[arg-type]  # fmt: skip
    rows = Invitation("north", study, ("tls://broker.example:4222",), authority, KeyPair.generate().public).rows()
    text = "\n".join(words for _, words in rows)
    words = ["4,321 at most", "design open", "3600 seconds", "77 answers", "2036-12-31", "4,567 answers", "2.5 wide"]
    assert [word for word in words if word not in text] == []
    assert "silent rounds" not in text


@pytest.fixture
def authority(tmp_path: Path) -> str:
    make_authority(tmp_path / "a.pem", tmp_path / "a.key", "test")
    return (tmp_path / "a.pem").read_text()


def test_check_of_an_empty_folder_says_how_to_begin(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "gone"):
        (error,) = check(Directory(folder)).errors
        assert f"privatile federation init {folder}" in error
        assert "enroll" not in error
    (tmp_path / "study.toml").write_text("")
    assert not any("enroll" in error for error in check(Directory(tmp_path)).errors)
