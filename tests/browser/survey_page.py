"""What tests of the answering page share: how a person answers, and what they wait for."""

from __future__ import annotations

import os
from typing import Any

import pytest

PLANTED = "31415.9265"
"""What people type here; no request, store or page may hold it, nor its digits."""

long_form = pytest.mark.skipif(
    "PRIVATILE_LONG" not in os.environ, reason="takes a browser's time: PRIVATILE_LONG=1 runs it"
)


def answer(page: Any, address: str, typed: str = PLANTED) -> None:
    page.goto(address)
    page.locator("#number").fill(typed)
    send(page, typed)


def send(page: Any, typed: str = PLANTED) -> None:
    page.keyboard.press("Enter")
    if typed == PLANTED:
        page.get_by_text("lies outside").wait_for()
        page.keyboard.press("Enter")


def says(page: Any, text: str) -> None:
    page.locator("#status", has_text=text).wait_for(timeout=30_000)
