"""A survey in a temporary folder, and visitors who talk to it without a network."""

from __future__ import annotations

import contextlib
import json
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
from tests.run.connection_kit import Connection, post

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


class Line:
    """A visitor's connection, and the survey behind it."""

    def __init__(self, service: SurveyService) -> None:
        self.service, self.app = service, Gateway(service, host="127.0.0.1")
        self.wire = Connection(self.app)

    async def send(self, *pieces: bytes, replies: int = 1) -> list[tuple[int, dict[str, Any]]]:
        """Send, and read so many responses."""
        self.wire.transport.written = b""
        await self.wire.send(*pieces)
        came = await self.wire.replies(replies)
        parts = [part.partition(b"\r\n\r\n") for part in came.split(b"HTTP/1.1 ")[1:]]
        return [(int(head[:3]), json.loads(body or b"{}")) for head, _, body in parts]

    async def take_part(self, code: str) -> bool:
        """Whether the person was told that the answer counts."""
        ((status, asked),) = await self.send(question(code))
        if status != 200:
            return False
        ((status, reply),) = await self.send(answer(code, number=asked["round"]))
        return status == 200 and bool(reply["counted"])


@contextlib.asynccontextmanager
async def visited(made: Made, *, follow: bool = False) -> AsyncIterator[Line]:
    service = SurveyService(made.folder)
    await service.start(follow=follow)
    line = Line(service)
    try:
        yield line
    finally:
        line.wire.lose()
        await service.stop()


def question(code: str) -> bytes:
    return post(b"/question", json.dumps({"code": code}).encode())


def answer(code: str, bit: bool = True, number: int = 1) -> bytes:
    return post(b"/answer", json.dumps({"code": code, "round": number, "answer": bit}).encode())
