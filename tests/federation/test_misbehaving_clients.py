"""Who answers or asks otherwise than agreed, over a real broker: rejected, quarantined, refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from privatile.core.messages import Answer, Question
from privatile.errors import RunPaused, SiteRefusal
from privatile.federation import wire as wire
from privatile.federation.coordinator.service import Control
from privatile.federation.operations.serve import OpenRun
from privatile.federation.site.limits import SiteLimits
from privatile.federation.site.service import ClientService
from privatile.federation.wire import RoundQuestions
from tests.federation.kit import PATIENCE, Federation, make_study, tasks, until
from tests.federation.played import reply

pytestmark = pytest.mark.network


def twisted(
    federation: Federation, name: str, twist: Callable[[int, tuple[Answer, ...]], tuple[Answer, ...] | None]
) -> ClientService:
    """A client whose answers pass through the test's hands; None: it does not answer."""
    client = federation.client(name)
    responder = client.core.responder
    give = responder.answer

    def answer(questions: Sequence[Question]) -> tuple[Answer, ...]:
        changed = twist(questions[0].round, give(questions))
        if changed is None:
            raise SiteRefusal("not now")
        return changed

    responder.answer = answer  # type: ignore[method-assign]
    return client


def test_unusable_answers_are_rejected_then_quarantined_until_the_client_is_readmitted(tmp_path: Path) -> None:
    study = make_study(
        2, rounds=200, length=1, deadline=0.3, patience=200
    )  # not over before three wrong answers are sent
    federation = Federation(tmp_path, study)
    lying = True

    def too_many(number: int, answers: tuple[Answer, ...]) -> tuple[Answer, ...]:
        return tuple(replace(one, ones=10_000) for one in answers) if lying and number >= 2 else answers

    async def scene() -> OpenRun:
        nonlocal lying
        run = federation.open_run()
        async with federation.running_broker():
            coordinator = federation.coordinator(run)
            liar = twisted(federation, "site1", too_many)
            liar.heartbeat = 0.1
            async with tasks(coordinator.run(), federation.client("site0").run()) as (work, *_):
                with pytest.raises(SiteRefusal, match="unusable"):
                    await asyncio.wait_for(liar.run(), PATIENCE)
                await until(lambda: "quarantined: site1" in (coordinator.health()[1]["paused"] or ""))
                lying = False
                Control(federation.directory.path / "control").request("readmit", "site1")
                await until(lambda: not coordinator.core.intake.quarantined)
                async with tasks(federation.client("site1").run()):
                    assert await asyncio.wait_for(work, PATIENCE) == "finished"
        return run

    run = asyncio.run(scene())
    kinds = [event.kind for event in run.journal.events()]
    assert kinds.count("rejected") == 3
    assert "quarantined" in kinds
    assert "readmitted" in kinds
    assert not any("10000" in event.text and "ones" not in event.text for event in run.journal.events())


def test_an_impossible_share_of_ones_is_a_proven_lie(tmp_path: Path) -> None:
    study = make_study(2, rounds=10, length=200)
    federation = Federation(tmp_path, study)

    def all_ones(number: int, answers: tuple[Answer, ...]) -> tuple[Answer, ...]:
        return tuple(replace(one, ones=200) for one in answers)

    async def scene() -> None:
        run = federation.open_run()
        async with federation.running_broker():
            liar = twisted(federation, "site1", all_ones)
            async with tasks(federation.client("site0").run(), liar.run()):
                with pytest.raises(RunPaused, match="quarantined: site1"):
                    await asyncio.wait_for(federation.coordinator(run, exit_when_paused=True).run(), PATIENCE)
        assert "impossible" in run.journal.quarantined()["site1"]

    asyncio.run(scene())


def test_equivocation_is_refused_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    study = make_study(1, rounds=5)
    federation = Federation(tmp_path, study)
    key = federation.directory.key()

    async def scene() -> ClientService:
        run = federation.open_run()
        async with federation.running_broker():
            await asyncio.wait_for(
                asyncio.gather(federation.client("site0").run(), federation.coordinator(run).run()), PATIENCE
            )
        first = next(iter(run.store.rounds()))
        asked = first.ask.sent
        good = Question(study.run, 1, 0.5, asked, first.ask.lengths[0])
        forged = {
            "another query": replace(good, query=asked + 1.0),
            "another length": replace(good, length=first.ask.lengths[0] + 1),
            "another step": replace(good, step=0.5),
            "another run": replace(good, run="elsewhere"),
            "beyond the rounds": replace(good, round=99),
            "outside the range": replace(good, round=5, query=1e9),
            "another level": replace(good, round=5, level=0.25),
        }
        spent = federation.ledger("site0").position
        fresh = federation.client("site0")
        for question in forged.values():
            message = RoundQuestions.of(study.digest, {"site0": (question,)})
            assert reply(fresh.core, message.pack(key)) is None
        changed = RoundQuestions.of("f" * 64, {"site0": (good,)})
        assert reply(fresh.core, changed.pack(key)) is None
        assert federation.ledger("site0").position == spent
        payload = reply(fresh.core, RoundQuestions.of(study.digest, {"site0": (good,)}).pack(key)) or b""
        answer = wire.read_message(payload, federation.sites["site0"].key().public.signer, wire.MAX_ANSWER)
        assert isinstance(answer, wire.RoundAnswers)
        assert answer.counts[0].ones == first.ones[0]  # the identical question gets the stored count
        return fresh

    with caplog.at_level(logging.WARNING, logger="privatile"):
        fresh = asyncio.run(scene())
    assert fresh.metrics.value("refused") == 8
    assert fresh.metrics.value("equivocations") == 2  # a step, in cohort mode, is refused before
    assert [record.getMessage() for record in caplog.records].count("equivocation") == 2


def test_the_sites_limits_decide_how_few_records_a_question_may_ask(tmp_path: Path) -> None:
    limits = SiteLimits(1.0, min_cohort=5)
    with pytest.raises(SiteRefusal, match="at least 5"):
        limits.check_length(Question("r", 1, 0.5, 50.0, 4))
    federation = Federation(tmp_path, make_study(1, rounds=5, length=4))
    federation.sites["site0"].limits_file.write_text("max_epsilon = 1.0\nmin_cohort = 5\n")
    study, key, client = federation.study, federation.directory.key(), federation.client("site0")
    for length, answers in ((4, False), (5, True)):
        asked = RoundQuestions.of(study.digest, {"site0": (Question(study.run, 1, 0.5, 50.0, length),)})
        assert (reply(client.core, asked.pack(key)) is not None) == answers
    assert client.metrics.value("refused") == 1


def test_a_study_beyond_the_sites_limits_is_refused_before_any_connection(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(1))
    path = federation.sites["site0"].limits_file
    path.write_text("max_epsilon = 0.25\n")
    with pytest.raises(SiteRefusal, match=r"allow 0\.25"):
        federation.client("site0")
