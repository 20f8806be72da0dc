"""openapi.json says what the gateway does: the same paths, and every reply is as its schema promises."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator, ValidationError

from privatile.survey.folder import new_code
from privatile.survey.gateway import REFUSALS, Gateway
from privatile.survey.page import page_files
from privatile.survey.study import CODE
from tests.survey.fake_server import FakeSurvey, Heard
from tests.survey.kit import make_survey, visitors

API: dict[str, Any] = json.loads(page_files()["openapi.json"].body)

FOR_PEOPLE = {"/live", "/live.{language}", "/organiser.html", "/static/theme.css"}
"""Pages and files."""


def check(path: str, method: str, status: int, content: Any) -> None:
    """Hold a reply against the schema of its status."""
    schema = API["paths"][path][method]["responses"][str(status)]["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": API["components"]}).validate(content)


def held(reply: httpx.Response) -> Any:
    content = reply.json()
    check(reply.request.url.path, reply.request.method.lower(), reply.status_code, content)
    return content


def test_a_code_is_what_the_gateway_takes_for_one() -> None:
    """A code of another form would be refused as unknown, so the document and the clients name the same form."""
    assert API["components"]["schemas"]["Code"]["pattern"] == f"^{CODE.pattern}$"
    assert all(CODE.fullmatch(new_code()) for _ in range(100))
    assert not CODE.fullmatch("A" * 21 + "B")


def test_the_document_has_the_paths_of_the_gateway(tmp_path: Path) -> None:
    made = make_survey(tmp_path)

    async def paths() -> set[str]:
        async with visitors(made.folder) as here:
            gateway = Gateway(here.service, host="127.0.0.1")
            return {route.path for route in gateway._routes()}

    assert asyncio.run(paths()) - FOR_PEOPLE | {"/openapi.json"} == set(API["paths"])
    errors = set(API["components"]["schemas"]["Error"]["properties"]["error"]["enum"])
    assert errors == set(REFUSALS)


def test_every_reply_is_as_promised(tmp_path: Path) -> None:
    made = make_survey(tmp_path, round_answers=2)
    first, second, third, *_ = made.codes

    async def talk() -> None:
        async with visitors(made.folder) as here:
            assert held(await here.client.get("/survey.json"))["state"] == "open"
            asked = held(await here.question(first))
            assert asked["handed_before"] is False
            assert held(await here.question(first))["handed_before"] is True
            held(await here.question(third))
            padded = json.dumps({"code": first, "round": asked["round"], "answer": True}).ljust(120)
            assert held(await here.client.post("/answer", content=padded)) == {"counted": True}
            again = held(await here.answer(first, asked["round"], False))
            assert (again["counted"], again["repeat"]) == (True, True)
            assert (await here.question(first)).status_code == 409
            held(await here.question(first))
            held(await here.question(new_code()))
            held(await here.client.post("/question", content=b"{}"))
            held(await here.client.post("/answer", content=b" " * 1000))
            await here.take_part(second)
            await here.service.look()
            waiting = await here.question(third)
            assert held(waiting) == {"error": "wait"}
            assert int(waiting.headers["Retry-After"]) >= 1
            while held(await here.client.get("/survey.json"))["state"] != "open":
                await here.service.look()
                await asyncio.sleep(0.02)
            late = held(await here.answer(third, asked["round"], True))
            assert late == {"counted": False, "reason": "late"}
            held(await here.client.get("/live.json"))
            held(await here.client.get("/health"))
            assert held(await here.client.get("/organiser.json")) == {"error": "token"}
            facts = held(await here.client.get("/organiser.json", headers={"Authorization": f"Bearer {made.token}"}))
            assert facts["strata"][0]["spent"] == 3
            assert held(await here.client.get("/openapi.json")) == API

    asyncio.run(talk())


def test_the_server_of_the_page_tests_speaks_the_same_protocol() -> None:
    """And the check can fail."""
    fake = FakeSurvey()
    code = new_code()
    for path, body in (
        ("/question", {"code": code}),
        ("/question", {"code": code}),
        ("/answer", {"code": code, "round": 12, "answer": True}),
        ("/answer", {"code": code, "round": 12, "answer": True}),
        ("/question", {"code": code}),
    ):
        status, content, _ = fake.reply(Heard("POST", path, "", json.dumps(body)))
        check(path, "post", status, content)
    with pytest.raises(ValidationError):
        check("/question", "post", 200, {"survey": "0123456789ab", "round": 0, "query": "1", "handed_before": False})
    with pytest.raises(ValidationError):
        check("/answer", "post", 200, {"counted": "yes"})
