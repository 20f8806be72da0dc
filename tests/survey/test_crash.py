"""A process that dies at any moment between two rounds, and a model of what must have been counted."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from privatile.errors import StoreError
from privatile.run.rounds import Phase
from privatile.run.run_file import RunStore
from privatile.survey import service as service_module
from privatile.survey.intake import Intake
from privatile.survey.run import SurveyRun
from privatile.survey.store import COUNTED, Count, SurveyStore
from tests.survey.kit import Clock, Made, Visitors, make_survey, some_answers, visitors


class Died(BaseException):
    """The process is gone: no handler of ours sees it."""


def closed_rounds(made: Made) -> list[tuple[tuple[int, ...], tuple[int | None, ...]]]:
    with RunStore.open(made.folder.run_file, read_only=True) as store:
        return [(one.ask.lengths, one.ones) for one in store.rounds()]


MOMENTS = {
    "before the counts are fixed": ("set_round", 0),
    "before the run takes them": ("close_round before", 0),
    "after the run has taken them": ("close_round after", 0),
    "before the next round begins": ("set_round", 1),
    "after the next round has begun": ("empty_log", 0),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_round_is_closed_exactly_once_whenever_the_process_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    made, clock = make_survey(tmp_path / "survey"), Clock()
    what, times = MOMENTS[moment]
    answers = some_answers(1, 10)

    async def first_process() -> None:
        async with visitors(made.folder, clock=clock) as people:
            for code, bit in zip(made.codes[:5], answers[:5], strict=True):
                await people.take_part(code, bit)
            with monkeypatch.context() as patched:
                die_at(patched, what, times)
                with pytest.raises(Died):
                    await people.service.look()

    def die_at(patched: pytest.MonkeyPatch, what: str, times: int) -> None:
        left = times
        owner = {"set_round": Intake, "empty_log": SurveyStore}.get(what, SurveyRun)
        name = what.split()[0]
        usual = getattr(owner, name)

        def dying(self: object, *given: object, **named: object) -> object:
            nonlocal left
            if left:
                left -= 1
                return usual(self, *given, **named)
            if what.endswith("after"):
                usual(self, *given, **named)
            raise Died

        patched.setattr(owner, name, dying)

    async def second_process() -> None:
        async with visitors(made.folder, clock=clock) as people:
            while people.service.state.phase is not Phase.OPEN or people.service.state.number == 1:
                clock.now += 1.0
                await people.service.look()
            assert people.service.state.number == 2
            assert people.service.intake.store.counts() == [Count(0, 0)]
            for code, bit in zip(made.codes[5:10], answers[5:], strict=True):
                assert (await people.take_part(code, bit)).json() == {"counted": True}
            await close_what_is_full(people, clock)

    asyncio.run(first_process())
    asyncio.run(second_process())
    assert closed_rounds(made) == [((5,), (sum(answers[:5]),)), ((5,), (sum(answers[5:]),))]


async def close_what_is_full(people: Visitors, clock: Clock) -> None:
    for _ in range(3):
        clock.now += 1.0
        await people.service.look()


def test_files_of_two_different_moments_are_refused(tmp_path: Path) -> None:
    made, clock = make_survey(tmp_path / "survey"), Clock()
    old = made.folder.store_file.read_bytes()

    async def round_of_five(first: int) -> None:
        async with visitors(made.folder, clock=clock) as people:
            for code in made.codes[first : first + 5]:
                await people.take_part(code)
            await close_what_is_full(people, clock)

    asyncio.run(round_of_five(0))
    made.folder.store_file.write_bytes(old)  # a backup of one file alone
    with pytest.raises(StoreError, match="one of the two files is an older copy"):
        asyncio.run(round_of_five(5))


async def test_a_full_disk_of_the_run_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, clock = make_survey(tmp_path / "survey"), Clock()

    def full(self: RunStore, *given: object) -> None:
        raise StoreError("disk full")

    async with visitors(made.folder, clock=clock) as people:
        for code in made.codes[:5]:
            await people.take_part(code)
        with monkeypatch.context() as patched:
            patched.setattr(RunStore, "append", full)
            with pytest.raises(StoreError):
                await people.service.look()
        assert (await people.question(made.codes[6])).status_code == 503
        await people.service.look()
        assert people.service.state.number == 2
        assert (await people.take_part(made.codes[6])).json() == {"counted": True}
    assert closed_rounds(made) == [((5,), (5,))]


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_agree_with_a_model(tmp_path: Path, seed: int) -> None:
    """Three strata, repeats, unknown codes, late answers and restarts: the counts are those of a plain list."""
    rng = random.Random(seed)
    made, clock = make_survey(tmp_path / "survey", strata={"a": 20, "b": 15, "c": 5}), Clock()
    place = {code: 0 if k < 20 else 1 if k < 35 else 2 for k, code in enumerate(made.codes)}
    spent: dict[str, bool] = {}
    rounds: dict[int, list[list[int]]] = {}
    late = [0, 0, 0]

    async def some_visits() -> None:
        async with visitors(made.folder, clock=clock) as people:
            for _ in range(25):
                code, bit = rng.choice(made.codes), rng.random() < 0.5
                number = people.service.state.number - (rng.random() < 0.2)
                if rng.random() < 0.3:
                    await people.question(code)
                if number < 1:
                    continue
                counts = number == people.service.state.number and people.service.state.counts
                reply = (await people.answer(code, number, bit)).json()
                if code in spent:
                    assert reply["repeat"]
                    assert reply["counted"] == spent[code]
                    continue
                assert reply["counted"] == counts
                spent[code] = counts
                if counts:
                    row = rounds.setdefault(number, [[0, 0, 0], [0, 0, 0]])
                    row[0][place[code]] += 1
                    row[1][place[code]] += bit
                else:
                    late[place[code]] += 1
                if rng.random() < 0.3:
                    clock.now += 1.0
                    await people.service.look()
            intake = people.service.intake
            assert intake.store.codes().states == intake.table.states, "the codes in memory are those of the file"

    for _ in range(4):
        asyncio.run(some_visits())
    digest = made.folder.study().digest
    with SurveyStore.open(made.folder.store_file, digest, 3, read_only=True) as store:
        assert store.late() == late
        totals = store.totals()
        assert [one[COUNTED] for one in totals] == [
            sum(spent.get(code, False) for code in made.codes if place[code] == k) for k in range(3)
        ]
        open_counts = store.counts()
    closed = closed_rounds(made)
    for number, (came, ones) in rounds.items():
        if number <= len(closed):
            expected = tuple(one if n else None for n, one in zip(came, ones, strict=True))
            assert closed[number - 1] == (tuple(came), expected)
        else:
            assert open_counts == [Count(n, one) for n, one in zip(came, ones, strict=True)]


async def test_a_question_handed_out_at_the_last_moment_is_waited_for(tmp_path: Path) -> None:
    """It is written while the clock is looked at: the round must not close before its answer."""
    made, clock = make_survey(tmp_path / "survey"), Clock()

    async with visitors(made.folder, clock=clock) as people:
        for code in made.codes[:5]:
            await people.take_part(code)
        async with people.service.intake.alone:  # a commit is under way
            asked = asyncio.create_task(people.question(made.codes[5]))
            await asyncio.sleep(0.01)
            looked = asyncio.create_task(people.service.look())
            await asyncio.sleep(0.01)
        await looked
        reply = await asked
        if reply.status_code == 200:
            assert (await people.answer(made.codes[5], reply.json()["round"], True)).json() == {"counted": True}
        else:
            assert reply.status_code == 503


def test_whatever_fails_between_rounds_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_survey(tmp_path / "survey")
    failures = iter([OSError(5, "Input/output error"), sqlite3.OperationalError("disk I/O error")])
    usual = Intake.set_round

    async def failing(self: Intake, *given: Any, **named: Any) -> None:
        for error in failures:
            raise error
        await usual(self, *given, **named)

    async def scene() -> list[str]:
        told = []
        monkeypatch.setattr(Intake, "set_round", failing)
        monkeypatch.setattr(service_module, "LONGEST_SLEEP", 0.02)
        async with visitors(made.folder, follow=True) as people:
            for code in made.codes[:5]:
                await people.take_part(code)
            while people.service.state.number == 1 or people.service.alarms():
                told += [alarm.text for alarm in people.service.alarms()]
                await asyncio.sleep(0.005)
            assert (await people.client.get("/health")).status_code == 200
        return told

    told = asyncio.run(scene())
    assert any("OSError" in text for text in told)
    assert closed_rounds(made) == [((5,), (5,))]


async def test_many_answers_share_a_commit_and_none_is_acknowledged_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_survey(tmp_path / "survey", round_answers=100)
    on_disk, commits = threading.Event(), 0
    usual = SurveyStore.commit

    def slow(self: SurveyStore) -> None:
        nonlocal commits
        commits += 1
        on_disk.wait(10.0)
        usual(self)

    async with visitors(made.folder) as people:
        await asyncio.gather(*(people.question(code) for code in made.codes))
        monkeypatch.setattr(SurveyStore, "commit", slow)
        replies = [asyncio.create_task(people.answer(code, 1, True)) for code in made.codes]
        done, _ = await asyncio.wait(replies, timeout=0.2)
        assert not done, "the disk has nothing yet"
        with SurveyStore.open(made.folder.store_file, people.service.study.digest, 1, read_only=True) as store:
            assert store.counts() == [Count(0, 0)]
        on_disk.set()
        assert all(reply.json() == {"counted": True} for reply in await asyncio.gather(*replies))
        monkeypatch.setattr(SurveyStore, "commit", usual)
    assert commits <= 3, "forty answers at once"
