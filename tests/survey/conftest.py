"""Fixtures of the tests of surveys."""

from __future__ import annotations

from tests.survey.fixtures import survey, url

__all__ = ["survey", "url"]
