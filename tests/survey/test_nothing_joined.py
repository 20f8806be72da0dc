"""No file of a survey joins a code to its bit, a value to anything, or an answer to a time."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from privatile.survey.folder import code_hash, read_codes
from privatile.survey.store import SurveyStore
from tests.survey.kit import Clock, Made, Visitors, make_survey, visitors

PLANTED = "4711.0815"
"""A salary that nobody's device may send."""


def bytes_of(made: Made) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in made.folder.path.iterdir()}


def answered(made: Made, bits: list[bool]) -> None:
    clock = Clock()

    async def scene() -> None:
        async with visitors(made.folder, clock=clock) as people:
            for code, bit in zip(made.codes, bits, strict=False):
                await people.take_part(code, bit)
            # A page that sends too much is refused, and what it sent is kept nowhere.
            body = {"code": made.codes[-1], "round": 1, "answer": True, "value": float(PLANTED)}
            assert (await people.client.post("/answer", json=body)).status_code == 400
            clock.now += 1.0
            await people.service.look()

    asyncio.run(scene())


def test_planted_values_codes_and_tokens_are_in_no_file(tmp_path: Path) -> None:
    made = make_survey(tmp_path / "survey")
    answered(made, [True] * 12)
    given_away = {"codes.csv", "links.csv"}
    for name, content in bytes_of(made).items():
        assert PLANTED.encode() not in content, name
        assert made.token.encode() not in content, name
        if name not in given_away:
            assert not any(code.encode() in content for code in made.codes), name


def test_the_same_people_with_other_bits_leave_the_same_rows_of_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is stored about codes does not depend on any answer: nothing there to join."""
    first = make_survey(tmp_path / "one")
    answered_bits = ([True, False, True, True, False] * 3, [False, True, True, True, False] * 3)
    stored = []
    other = tmp_path / "two"
    other.mkdir()
    for file in first.folder.path.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
        (other / file.name).chmod(0o600)
    second = first._replace(folder=type(first.folder)(other))
    for made, bits in zip((first, second), answered_bits, strict=True):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(made.folder.path.with_suffix(".config")))  # as on two machines
        answered(made, bits)
        with closing(sqlite3.connect(made.folder.store_file)) as database:
            stored.append(
                [database.execute(f"SELECT * FROM {table}").fetchall() for table in ("codes", "late", "round")]
            )
    assert stored[0] == stored[1]


def test_rows_of_codes_tell_no_order_and_no_time(tmp_path: Path) -> None:
    made = make_survey(tmp_path / "survey")
    answered(made, [True] * 12)
    with closing(sqlite3.connect(made.folder.store_file)) as database:
        schema = "\n".join(row[0] for row in database.execute("SELECT sql FROM sqlite_master") if row[0])
        columns = [row[1] for row in database.execute("PRAGMA table_info(codes)")]
        hashes = [row[0] for row in database.execute("SELECT hash FROM codes")]
    assert columns == ["hash", "stratum", "state"], "a column more could tell when, in which round, or what"
    assert "WITHOUT ROWID" in schema.splitlines()[1], "a row number would be the order of insertion"
    assert hashes == sorted(hashes)
    assert "TRIGGER" not in schema.upper()


async def test_the_log_of_commits_is_empty_after_a_round_and_after_the_end(tmp_path: Path) -> None:
    """A write-ahead log holds every commit in order: one that lasts would join codes to counts for ever."""
    made, clock = make_survey(tmp_path / "survey"), Clock()
    log = made.folder.path / "survey.db-wal"

    async with visitors(made.folder, clock=clock) as people:
        for code in made.codes[:5]:
            await people.take_part(code)
        assert log.stat().st_size > 0, "the control: while a round is open there is one"
        await people.service.look()
        assert people.service.state.number == 2
        assert log.stat().st_size == 0
    assert not log.exists(), "a stopped survey is one file"


def test_two_snapshots_around_one_commit_do_join_a_code_to_its_noisy_bit(tmp_path: Path) -> None:
    """The limit that docs/survey-limits.md names: copies of the file before and after one answer tell its bit."""
    made = make_survey(tmp_path / "survey")
    digest = made.folder.study().digest

    async def scene() -> tuple[set[bytes], int]:
        async with visitors(made.folder) as people:
            await people.take_part(made.codes[0], False)

            def snapshot() -> tuple[set[bytes], int]:
                with SurveyStore.open(made.folder.store_file, digest, 1, read_only=True) as store:
                    rows = store._connection.execute("SELECT hash FROM codes WHERE state > 1").fetchall()
                    return {row[0] for row in rows}, store.counts()[0].ones

            before = snapshot()
            await people.take_part(made.codes[1], True)
            after = snapshot()
            return after[0] - before[0], after[1] - before[1]

    codes, ones = asyncio.run(scene())
    assert codes == {code_hash(made.codes[1])}
    assert ones == 1
    assert len(read_codes(made.folder.codes_file)) == 40


async def test_a_reader_that_keeps_the_log_is_told_of(tmp_path: Path) -> None:
    """The log joins codes to bits: where a backup that never ends keeps it, somebody must know."""
    made = make_survey(tmp_path / "survey", grace=0)
    log = Path(f"{made.folder.store_file}-wal")

    async def a_round(people: Visitors, codes: list[str]) -> dict[str, object]:
        for code in codes:
            await people.take_part(code)
        await people.service.look()
        health = await people.client.get("/health")
        assert health.status_code == 200, "visitors are served all the same"
        found: dict[str, object] = health.json()
        return found

    async with visitors(made.folder) as people:
        assert (await a_round(people, made.codes[:5]))["alarms"] == []
        assert log.stat().st_size == 0
        with closing(sqlite3.connect(made.folder.store_file, isolation_level=None)) as backup:
            await people.question(made.codes[5])
            backup.execute("BEGIN")
            backup.execute("SELECT * FROM codes").fetchone()
            assert (await a_round(people, made.codes[5:10]))["alarms"] == ["log kept"]
            assert log.stat().st_size > 0
            (text,) = (await people.service.organiser())["alarms"]
            assert "another program reads" in text
        assert (await a_round(people, made.codes[10:15]))["alarms"] == []
        assert log.stat().st_size == 0
