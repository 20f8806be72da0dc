"""A real browser: Debian's chromium through Playwright. `make test` sets both up and insists on them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import pytest

from tests.survey.fixtures import survey, url

__all__ = ["survey", "url"]

AXE = "axe-core@4.14.0"
AXE_SHA256 = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]


def absent(what: str) -> NoReturn:
    """Skip loudly where people test by hand; fail where the Makefile promised a browser."""
    if os.environ.get("PRIVATILE_BROWSER") == "required":
        pytest.fail(f"{what} is missing; `make browser` sets it up")
    pytest.skip(f"BROWSER TESTS NOT RUN: {what} is missing; `make browser` sets it up")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    # Not for the whole session: Playwright keeps an event loop running, and other tests run their own.
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        absent("playwright")
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        absent("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe_source() -> str:
    """axe-core, unpacked from npm into the environment's cache; its hash is checked."""
    home = Path(sys.prefix) / "share" / "privatile-tests"
    script = home / "axe.min.js"
    if not script.exists():
        if shutil.which("npm") is None:
            absent("npm (for axe-core)")
        home.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(
            ["npm", "pack", "--silent", AXE], cwd=home, check=True, capture_output=True, text=True, timeout=120
        ).stdout.split()[-1]
        with tarfile.open(home / packed) as archive:
            content = archive.extractfile("package/axe.min.js")
            assert content is not None
            script.write_bytes(content.read())
    text = script.read_bytes()
    assert hashlib.sha256(text).hexdigest() == AXE_SHA256, "axe-core is not the one these tests were written for"
    return text.decode()


class Watched:
    """A page with everything it asked for and everything it complained about."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self._heard(message))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    @property
    def hosts(self) -> set[str]:
        """Hosts that were asked for anything."""
        return {urlsplit(url).netloc for url in self.requests if not url.startswith(("data:", "blob:", "file:"))}


@pytest.fixture
def watched(chromium: Any) -> Iterator[Callable[..., Watched]]:
    contexts = []

    def make(**options: Any) -> Watched:
        context = chromium.new_context(**{"viewport": {"width": 1100, "height": 900}, **options})
        contexts.append(context)
        return Watched(context.new_page())

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def page(watched: Callable[..., Watched]) -> Any:
    """A page of one device."""
    return watched().page


@pytest.fixture
def check_axe(axe_source: str) -> Callable[[Any], None]:
    def check(page: Any) -> None:
        page.evaluate(axe_source)
        found = page.evaluate(
            "async () => (await axe.run(document, {resultTypes: ['violations']})).violations.map("
            "v => v.id + ': ' + v.nodes.map(n => n.html.slice(0, 200) + ' ' + n.failureSummary).join(' | '))"
        )
        assert found == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"

    return check
