"""A federation played without a broker: what a coordinator does with questions and answers is up to the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from privatile.core.messages import Question
from privatile.federation.coordinator.intake import AnswerIntake
from privatile.federation.operations.serve import roster_signers
from privatile.federation.study import ClientAgreement
from privatile.federation.wire import AskMessage
from tests.federation.kit import Federation, make_study

Asked = Mapping[str, Sequence[Question]]


class Wire:
    """A connection that keeps what is published."""

    def __init__(self) -> None:
        self.published: list[bytes] = []

    @property
    def nc(self) -> Wire:
        return self

    async def publish(self, subject: str, payload: bytes) -> None:
        self.published.append(payload)


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
    asyncio.run(_play(federation, ask, drop, accepts_any))


async def _play(federation: Federation, ask: Any, drop: Any, accepts_any: bool) -> None:
    run = federation.open_run()
    study, coordinator, key = federation.study, run.coordinator, federation.directory.key()
    intake = AnswerIntake(study.digest, roster_signers(federation.directory)(), {}, {}, dict.fromkeys(study.clients, 0))
    services = {name: federation.client(name) for name in study.clients}
    while questions := coordinator.questions():
        asked = ask(questions)
        intake.open(asked if accepts_any else questions)
        payload = AskMessage.of(study.digest, asked).pack(key)
        for name, service in services.items():
            wire = Wire()
            await service._answer(wire, payload)  # type: ignore[arg-type]
            verdict = intake.offer(name, wire.published[-1])
            assert verdict.outcome == "counted", verdict
            if drop(name, asked[name][0].round, intake.answers[name].ones[0] / asked[name][0].length):
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
