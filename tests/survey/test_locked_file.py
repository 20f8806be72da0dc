"""Another process holds the lock of `survey.db`: pages are served, answers wait or are told to come again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from privatile.run.run_file import RunStore
from privatile.survey.intake import Intake
from privatile.survey.store import LOCK_WAIT, Count
from tests.survey.kit import Made, Visitors, visitors

pytestmark = [pytest.mark.process]

AT_ONCE = 0.7 * LOCK_WAIT
"""Seconds within which a page comes that does not wait for the lock, on a busy machine too."""

HOLD = (
    "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('BEGIN IMMEDIATE'); print('held', flush=True); input()"
)


@contextmanager
def locked(path: Path) -> Iterator[Callable[[], None]]:
    """Another process holds the file's lock, until the block ends or `release` is called."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"

        def release() -> None:
            other.kill()
            other.wait()

        try:
            yield release
        finally:
            release()


async def pages_until(people: Visitors, done: asyncio.Future[Any]) -> list[float]:
    """Load a page every few milliseconds until something is done; the seconds from one to the next."""
    times, clock = [], asyncio.get_running_loop().time
    while not done.done():
        for path in ("/", "/survey.json", "/live.json"):
            began = clock()
            assert (await people.client.get(path)).status_code == 200
            await asyncio.sleep(0.005)
            times.append(clock() - began)
    return times


def answers(people: Visitors, codes: list[str]) -> asyncio.Future[list[Any]]:
    return asyncio.ensure_future(asyncio.gather(*(people.answer(code, 1, True) for code in codes)))


async def attacked(made: Made) -> list[float]:
    """Answers while the file is locked, and again afterwards; how long pages took meanwhile."""
    codes = made.codes[:4]
    async with visitors(made.folder) as people:
        with locked(made.folder.store_file):
            replies = answers(people, codes)
            asked = asyncio.ensure_future(people.question(made.codes[5]))
            times = await pages_until(people, replies)
            for reply in (*await replies, await asked):
                assert (reply.status_code, reply.json()) == (503, {"error": "unavailable"})
                assert int(reply.headers["retry-after"]) >= 1
            assert not any(people.service.intake.table.states), "nothing is spent"
        for again in (False, True):
            repeat = {"repeat": True} if again else {}
            assert [one.json() for one in await answers(people, codes)] == [{"counted": True, **repeat}] * 4
        assert people.service.intake.store.counts() == [Count(4, 4)]
    return times


def test_pages_are_served_while_answers_wait_for_the_lock(made: Made) -> None:
    times = asyncio.run(attacked(made))
    assert len(times) >= 5, "others are served while answers wait"
    assert max(times) < AT_ONCE


def test_without_the_other_thread_every_page_waits(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""

    async def in_the_loop(self: Intake, use: Callable[[], Any]) -> Any:
        return use()

    monkeypatch.setattr(Intake, "on_disk", in_the_loop)
    assert max(asyncio.run(attacked(made))) > AT_ONCE


async def test_answers_count_once_the_lock_is_released(made: Made, people: Visitors) -> None:
    with locked(made.folder.store_file) as release:
        replies = answers(people, made.codes[:4])
        asyncio.get_running_loop().call_later(LOCK_WAIT / 5, release)
        assert max(await pages_until(people, replies)) < AT_ONCE
        assert [one.json() for one in await replies] == [{"counted": True}] * 4
    assert people.service.intake.store.counts() == [Count(4, 4)]


def test_a_round_closes_once_the_lock_is_released(made: Made) -> None:
    async def scene() -> None:
        async with visitors(made.folder, follow=True) as people:
            await answers(people, made.codes[:4])
            with locked(made.folder.store_file):
                made.folder.close_request.touch()
                paused = asyncio.ensure_future(until(lambda: any(one.kind == "paused" for one in alarms())))
                alarms = people.service.alarms
                assert max(await pages_until(people, paused)) < AT_ONCE
                assert "locked" in alarms()[0].text
                assert (await people.client.get("/health")).status_code == 503
            await until(lambda: people.service.state.phase.value == "closed" and not alarms())

    async def until(reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(20.0):
            while not reached():
                await asyncio.sleep(0.01)

    asyncio.run(scene())
    with RunStore.open(made.folder.run_file, read_only=True) as store:
        assert [(one.ask.lengths, one.ones) for one in store.rounds()] == [((4,), (4,))]
