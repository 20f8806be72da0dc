"""Damaged studies, records, files and requests: a clear error or a valid reading, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from privatile.errors import PrivatileError
from privatile.records import read_record
from privatile.survey.folder import SurveyFolder
from privatile.survey.record import is_survey_record, release, verify_survey_record
from privatile.survey.serving import read_status
from privatile.survey.store import SurveyStore
from privatile.survey.study import SurveyStudy, study_toml
from tests.fuzz.mutate import damage_sqlite, damaged_bytes, damaged_json, damaged_toml
from tests.fuzz.test_fuzz import problem_of
from tests.survey.kit import Clock, Made, make_study, make_survey, visitors

INPUTS = 5_000 if os.environ.get("PRIVATILE_LONG") else 60


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A survey with enough answers for an interval, closed."""
    made = make_survey(tmp_path_factory.mktemp("damaged") / "survey", strata={"all": 120}, round_answers=10, epsilon=8)
    clock = Clock()

    async def everybody() -> None:
        async with visitors(made.folder, clock=clock) as people:
            for k, code in enumerate(made.codes):
                asked = (await people.question(code)).json()
                await people.answer(code, asked["round"], 2_000 + 60 * (k * 37 % 100) > float(asked["query"]))
                if k % 10 == 9:
                    await people.service.look()
            made.folder.close_request.touch()
            await people.service.look()

    asyncio.run(everybody())
    return made


def check(damage: Callable[[Random], bytes], read: Callable[[Path], object], tmp_path: Path, name: str) -> None:
    problems, valid = [], 0
    for number in range(INPUTS):
        path = tmp_path / name
        path.write_bytes(damage(Random(f"{name} {number}")))
        accepted, problem = problem_of(read, path)
        valid += accepted
        if problem:
            problems.append(f"input {number}: {problem}")
    print(f"{name}: {INPUTS} damaged inputs, {valid} still valid, {len(problems)} problems")
    assert problems == []
    assert valid < INPUTS


def test_damaged_studies(tmp_path: Path) -> None:
    text = study_toml(make_study(strata={"a": 5, "b": 7}, end_date="2030-01-01"))
    check(lambda rng: damaged_toml(rng, text), SurveyStudy.load, tmp_path, "survey.toml")


def test_damaged_records(closed: Made, tmp_path: Path) -> None:
    text = json.dumps(release(closed.folder))

    def verify(path: Path) -> object:
        record = read_record(path)
        return verify_survey_record(record, closed.folder.run_file).to_text() if is_survey_record(record) else None

    check(lambda rng: damaged_json(rng, text), verify, tmp_path, "record.json")


def test_damaged_files_of_codes(closed: Made, tmp_path: Path) -> None:
    folder = type(closed.folder)(tmp_path)
    folder.study_file.write_bytes(closed.folder.study_file.read_bytes())
    whole = closed.folder.store_file.read_bytes()
    problems = []
    for number in range(INPUTS):
        for file in tmp_path.glob("survey.db*"):
            file.unlink()
        folder.store_file.write_bytes(whole)
        damage_sqlite(Random(number), folder.store_file)
        for read in (lambda path: read_status(folder).to_text(), lambda path: opened(folder)):
            _, problem = problem_of(read, None)
            if problem:
                problems.append(f"input {number}: {problem}")
    assert problems == []


def opened(folder: SurveyFolder) -> None:
    """As the gateway opens it."""
    with SurveyStore.open(folder.store_file, folder.study().digest, 1) as store:
        assert store.codes().find(b"x" * 32) is None


def test_damaged_requests(closed: Made) -> None:
    """Whatever is sent, the reply is one of those that openapi.json names."""
    body = json.dumps({"code": closed.codes[0], "round": 1, "answer": True})

    async def scene() -> set[int]:
        async with visitors(closed.folder) as people:
            found = set()
            for number in range(INPUTS):
                rng = Random(number)
                damage = damaged_json(rng, body) if number % 2 else damaged_bytes(rng, body.encode())
                for path in ("/question", "/answer"):
                    reply = await people.client.post(path, content=damage)
                    found.add(reply.status_code)
                    assert "error" in reply.json() or "counted" in reply.json()
            return found

    assert asyncio.run(scene()) <= {200, 400, 404, 409, 410, 413}


def test_the_check_of_damaged_files_accepts_the_whole_one(closed: Made) -> None:
    assert "closed" in read_status(closed.folder).to_text()
    assert not verify_survey_record(json.loads(json.dumps(release(closed.folder))), closed.folder.run_file).failed
    with pytest.raises(PrivatileError):
        read_status(type(closed.folder)(closed.folder.path / "nothing"))
