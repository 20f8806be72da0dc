"""A survey in a temporary folder, and visitors who talk to it without a network."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from privatile.survey.folder import SurveyFolder, initialize, new_survey, read_codes
from privatile.survey.gateway import Gateway, Pages
from privatile.survey.page import page_files, page_sha256
from privatile.survey.service import SurveyService
from privatile.survey.study import SurveyStudy

STUDY: dict[str, Any] = {
    "title": "What we earn",
    "value": "monthly salary",
    "unit": "EUR",
    "epsilon": 1.0,
    "range": [0, 10_000],
    "round_answers": 5,
    "grace": 0.05,
    "address": "https://survey.example/",
}


class Made(NamedTuple):
    folder: SurveyFolder
    codes: list[str]
    token: str


def make_study(**changes: Any) -> SurveyStudy:
    strata = changes.pop("strata", {"all": 40})
    tables = {name: {"codes": one} if isinstance(one, int) else one for name, one in strata.items()}
    plain = {"survey": new_survey(), **STUDY, "page_sha256": page_sha256(), "strata": tables, **changes}
    return SurveyStudy.from_dict(plain)


def make_survey(path: Path, **changes: Any) -> Made:
    folder = SurveyFolder(path)
    token = initialize(folder, make_study(**changes), draw_sheet=False)
    return Made(folder, [one.code for one in read_codes(folder.codes_file)], token)


class Visitors:
    """Requests to a gateway in this process."""

    def __init__(self, service: SurveyService, client: httpx.AsyncClient) -> None:
        self.service = service
        self.client = client

    async def question(self, code: str, **more: object) -> httpx.Response:
        return await self.client.post("/question", json={"code": code, **more})

    async def answer(self, code: str, number: int, answer: bool) -> httpx.Response:
        return await self.client.post("/answer", json={"code": code, "round": number, "answer": answer})

    async def take_part(self, code: str, answer: bool = True) -> httpx.Response:
        """Ask, waiting while a round drains, then answer."""
        while (asked := await self.question(code)).status_code == 503:
            await self.service.look()
        return await self.answer(code, asked.json()["round"], answer)


@contextlib.asynccontextmanager
async def visitors(
    folder: SurveyFolder, *, follow: bool = False, restored: bool = False, pages: Pages | None = None, **options: Any
) -> AsyncIterator[Visitors]:
    """A survey open for answers; without `follow` rounds go on only when a test says `service.look()`."""
    service = SurveyService(folder, **options)
    await service.start(follow=follow, restored=restored)
    try:
        app = Gateway(service, host="127.0.0.1", names=frozenset({"survey.example"}), files=page_files(), pages=pages)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="https://survey.example") as client:
            yield Visitors(service, client)
    finally:
        await service.stop()


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def some_answers(seed: int, number: int) -> list[bool]:
    rng = random.Random(seed)
    return [rng.random() < 0.5 for _ in range(number)]
