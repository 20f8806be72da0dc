"""What Flower may do to a client, done with Flower's own messages: no record answers twice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context

from grid import ask, context, furnish_data, furnish_ledgers, settings_in
from known_draws import ledger_coins, position
from privatile.core.messages import Answer, Question
from privatile.errors import SiteRefusal
from privatile.federation.study import FederationStudy
from privatile_flower.client import client_app, open_study_site, study_client_app
from tests.federation.kit import make_study

Told = list[Any]
"""[kind of refusal, whether anything was answered, entries in the ledger]"""


class Client:
    """One client; every message reaches a new process, whose Flower state is empty."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.study = make_study(2, rounds=4, length=6, **settings)
        furnish_ledgers(self.study, folder)
        furnish_data(self.study, folder)
        self.settings = settings_in(folder, "site0")
        self.ledger = Path(self.settings["ledger"])
        self.question = Question(self.study.run, 1, self.study.asked_levels[0], 50.0, 6)

    def reply(self, *questions: Question, node: int = 1, given: int = 0, **changed: Any) -> dict[str, Any]:
        app = study_client_app(ledger_coins(list(self.study.clients)))
        where = context({**self.settings, **{key.replace("_", "-"): value for key, value in changed.items()}}, node)
        return ask(app, where, list(questions), given)

    def told(self, *questions: Question, **how: Any) -> Told:
        reply = self.reply(*questions, **how)
        return [reply.get("refused"), "answers" in reply, position(self.ledger)[0]]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path / "client")


def test_a_question_again_gets_the_stored_count(client: Client) -> None:
    first = client.reply(client.question)
    assert 0 <= Answer.from_json(first["answers"][0]).check(client.question).ones <= 6
    assert position(client.ledger)[0] == 1
    assert [client.reply(client.question, node=node) for node in (1, 2, 3)] == [first] * 3
    assert position(client.ledger)[0] == 1


CHANGES: dict[str, tuple[str, Callable[[FederationStudy], dict[str, Any]]]] = {
    "query": ("Equivocation", lambda study: {"query": 51.0}),
    "length": ("Equivocation", lambda study: {"length": 5}),
    "step": ("SiteRefusal", lambda study: {"step": 0.1}),
    "level": ("SiteRefusal", lambda study: {"level": 0.25}),
    "run": ("SiteRefusal", lambda study: {"run": "another"}),
    "range": ("SiteRefusal", lambda study: {"round": 2, "query": 1e6}),
    "round": ("SiteRefusal", lambda study: {"round": study.rounds + 1}),
}


def test_a_changed_question_is_refused_and_the_next_round_is_answered(client: Client) -> None:
    client.reply(client.question)
    for what, (refusal, change) in CHANGES.items():
        assert client.told(replace(client.question, **change(client.study))) == [refusal, False, 1], what
    assert client.told(replace(client.question, round=2, query=49.0), given=6) == [None, True, 2]


def test_one_changed_question_and_none_is_answered(tmp_path: Path) -> None:
    client = Client(tmp_path / "two levels", levels=(0.25, 0.75))
    first, second = (replace(client.question, level=level) for level in client.study.asked_levels)
    assert client.told(first, second) == [None, True, 2]
    following = replace(first, round=2, query=49.0)
    assert client.told(following, replace(second, query=51.0)) == ["Equivocation", False, 2]
    assert client.told(following, replace(second, round=2)) == [None, True, 4]


def test_no_more_records_answer_than_the_site_has_agreed_to(client: Client) -> None:
    with Path(client.settings["source"]).open("a") as file:
        file.write("50.0\n" * 10)
    assert client.told(replace(client.question, length=25)) == ["SiteRefusal", False, 0]
    assert client.told(replace(client.question, length=24)) == [None, True, 1]
    assert client.told(replace(client.question, round=2, length=1)) == ["SiteRefusal", False, 1]
    assert client.told(replace(client.question, length=24)) == [None, True, 1], "the stored count"


def test_messages_answered_side_by_side_ask_no_more_records_than_agreed(client: Client) -> None:
    with Path(client.settings["source"]).open("a") as file:
        file.write("50.0\n" * 100)
    answered = 0
    with contextlib.ExitStack() as stack:
        # A process for each message: all of them open the site before the first has answered.
        make_coins = ledger_coins(list(client.study.clients))
        opened = [stack.enter_context(open_study_site(client.settings, make_coins)) for _ in range(4)]
        for number, site in enumerate(opened, 1):
            with contextlib.suppress(SiteRefusal):
                site.answer([replace(client.question, round=number, length=24)])
                answered += 24
    assert answered == 24


def test_a_new_or_older_ledger_is_refused(client: Client) -> None:
    client.reply(client.question)
    client.ledger.unlink()
    reply = client.reply(replace(client.question, round=2), given=6)
    assert reply == {"client": "site0", "refused": "LedgerError"}
    assert not client.ledger.exists()


@pytest.mark.parametrize("changed", [{"max_epsilon": 0.5}, {"max_epsilon": ""}, {"client": "nobody"}], ids=str)
def test_a_wrong_node_config_answers_nothing(client: Client, changed: dict[str, Any]) -> None:
    assert client.told(client.question, **changed) == ["InputError", False, 0]


def test_the_text_of_an_error_stays_at_the_site(caplog: pytest.LogCaptureFixture) -> None:
    def broken(where: Context) -> contextlib.AbstractContextManager[Any]:
        raise ValueError("could not convert 123456.789")

    asked = Question("run", 1, 0.5, 50.0, 6)
    reply = ask(client_app(broken, name=lambda where: "site0"), context({}), [asked])
    assert reply == {"client": "site0", "failed": "ValueError"}
    assert "123456.789" not in caplog.text, "it may contain a record's value"
