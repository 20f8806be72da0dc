"""A federation played without a broker: what becomes of questions and answers on their way is up to the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from privatile.core.messages import Answer, Position, Question
from privatile.federation.coordinator.core import CoordinatorCore
from privatile.federation.coordinator.intake import AnswerIntake
from privatile.federation.operations.serve import OpenRun, roster_signers
from privatile.federation.site.core import SiteCore
from privatile.federation.study import ClientAgreement
from privatile.federation.wire import RoundAnswers, RoundQuestions
from tests.federation.kit import Federation, make_study

Asked = Mapping[str, Sequence[Question]]


def reply(site: SiteCore, payload: bytes) -> bytes | None:
    """What a site sends back to a question."""
    questions = site.asked(payload)
    return site.answer(questions) if questions else None


def close(core: CoordinatorCore, now: float = 0.0) -> None:
    """Close the open round at its deadline."""
    core.begin(now)
    core.look(now + core.study.deadline)
    assert not core.intake.is_open, core.paused


class Table:
    """A coordinator without a broker, and answers to its open round that no site has given."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.federation = Federation(folder, make_study(2, rounds=10, length=4, **settings), port=4222)
        self.run: OpenRun = self.federation.open_run()
        self.core = self.federation.new_core(self.run)
        self.signer = self.federation.directory.key().public.signer
        """Whose messages those of the coordinator are."""
        self.asked = self.next_round()

    def next_round(self, now: float = 0.0) -> Any:
        assert self.core.question(now)
        self.asked = self.core.intake.questions
        return self.asked

    def answer(self, client: str, ones: int = 2, asked: Any = None) -> bytes:
        study, questions = self.federation.study, (asked or self.asked)[client]
        answers = [Answer(one, client, ones, Position(one.round, (one.round).to_bytes(16, "big"))) for one in questions]
        return RoundAnswers.of(study.digest, answers).pack(self.federation.sites[client].key())

    def take(self, *clients: str) -> None:
        """Answers of these clients arrive."""
        for client in clients:
            self.core.take(client, self.answer(client))


def play(
    federation: Federation,
    ask: Callable[[Asked], Asked] = lambda asked: asked,
    drop: Callable[[str, int, float], bool] = lambda client, number, share: False,
    *,
    accepts_any: bool = True,
) -> None:
    """A whole run with real sites, their ledgers and a real run file, without a broker.

    `ask` changes the questions on their way to the sites; `drop` looks at the share of ones and decides whether a count
    is left out. A coordinator that `accepts_any` answer is a changed program; the project's own does not.
    """
    run = federation.open_run()
    study, coordinator, key = federation.study, run.coordinator, federation.directory.key()
    intake = AnswerIntake(study.digest, roster_signers(federation.directory)(), {}, {}, dict.fromkeys(study.clients, 0))
    sites = {name: federation.client(name).core for name in study.clients}
    while questions := coordinator.questions():
        asked = ask(questions)
        intake.open(asked if accepts_any else questions)
        payload = RoundQuestions.of(study.digest, asked).pack(key)
        for name, site in sites.items():
            verdict = intake.offer(name, reply(site, payload) or b"")
            assert verdict.outcome == "counted", verdict
            if drop(name, asked[name][0].round, intake.answers[name].body.ones[0] / asked[name][0].length):
                del intake._answers[name]
        rows = run.journal.evidence_rows(coordinator.done + 1, intake.answers)
        coordinator.accept(intake.counts(), rows)
        intake.close()
    coordinator.finish()
    run.store.close()


def moved(distance: float) -> Callable[[Asked], Asked]:
    return lambda asked: {
        name: tuple(replace(one, query=max(0.0, one.query - distance)) for one in questions)
        for name, questions in asked.items()
    }


def make(folder: Path) -> Federation:
    study = make_study({name: ClientAgreement(2.0, 0.5, 3000) for name in ("north", "south")}, 20, design="auto")
    return Federation(folder, study)
