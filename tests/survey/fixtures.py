"""A survey's server that lies, for tests of devices: the page, the Python client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.survey.fake_server import FakeSurvey


@pytest.fixture
def survey() -> FakeSurvey:
    # At this budget a coin says either with almost the same chance: a second coin would soon show.
    return FakeSurvey(epsilon=0.1)


@pytest.fixture
def url(survey: FakeSurvey) -> Iterator[str]:
    with survey.serve() as address:
        yield address
