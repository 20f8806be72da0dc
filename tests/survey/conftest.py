"""Fixtures of the tests of surveys; a test that is a coroutine is run to its end."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.survey.fixtures import survey, url
from tests.survey.kit import Made, make_survey, visitors

__all__ = ["survey", "url"]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}

    async def run() -> None:
        if "people" not in given:
            await pyfuncitem.obj(**given)
            return
        async with visitors(given["people"].folder) as people:
            await pyfuncitem.obj(**{**given, "people": people})

    asyncio.run(run())
    return True


@pytest.fixture
def people(made: Made) -> Made:
    """Visitors of the survey `made`, while a test runs that asks for them."""
    return made


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A survey of forty codes, five answers a round."""
    return make_survey(tmp_path / "survey")
