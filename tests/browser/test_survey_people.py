"""People in a real browser answer at the real gateway: everybody counts once, and no number is anywhere.

Five people here; thirty with PRIVATILE_LONG=1.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from privatile.survey.folder import code_hash
from privatile.survey.page import page_files
from privatile.survey.store import COUNTED
from privatile.survey.study import link
from tests.survey.kit import Made, make_survey

pytestmark = pytest.mark.browser

LONG = "PRIVATILE_LONG" in os.environ
PEOPLE = 30 if LONG else 5
PATIENCE = 60_000


class Gateway(NamedTuple):
    made: Made
    url: str
    log: Path


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    tmp_path = tmp_path_factory.mktemp("gateway")
    made = make_survey(tmp_path / "survey", strata={"office": 20, "production": 20}, round_answers=3, grace=0.2)
    log = tmp_path / "log.txt"
    command = [sys.executable, "-m", "privatile", "survey", "serve", made.folder.path, "--port", "0", "--behind-proxy"]
    with log.open("w") as file:
        process = subprocess.Popen(list(map(str, command)), stdout=file, stderr=subprocess.STDOUT)
    try:
        give_up = time.monotonic() + 60
        while not (found := re.search(r"gateway +(http\S+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < give_up, log.read_text()
            time.sleep(0.05)
        yield Gateway(made, found[1], log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


class Person:
    """One device with one code and a number that is planted nowhere else."""

    def __init__(self, page: Any, number: int, gateway: Gateway) -> None:
        self.page = page
        self.code = gateway.made.codes[number]
        self.planted = f"{1000 + 271 * number}{70_707 + number}"[:4] + f".{8_675_309 + 7 * number}"
        self.link = link(gateway.url, self.code, gateway.made.folder.study().epsilon)
        self.heard: list[str] = []
        page.context.on("request", lambda request: self.heard.append(self._all_of(request)))

    @staticmethod
    def _all_of(request: Any) -> str:
        return f"{request.method} {request.url} {request.headers} {request.post_data or ''}"

    def type_number(self, page: Any = None) -> None:
        (page or self.page).goto(self.link)
        (page or self.page).locator("#number").fill(self.planted)

    def sees(self, text: str, page: Any = None) -> None:
        (page or self.page).locator("#status", has_text=text).wait_for(timeout=PATIENCE)

    def answer(self) -> None:
        self.type_number()
        self.page.keyboard.press("Enter")
        self.sees("has been counted")


def lose_the_reply(person: Person) -> None:
    """The answer arrives, its reply does not; the device sends the same once more."""
    lost = iter([True])

    def lose(route: Any) -> None:
        if next(lost, False):
            route.fetch()
            route.abort()
        else:
            route.continue_()

    person.page.route("**/answer", lose)
    person.answer()
    sent = [heard[heard.index('{"code"') :] for heard in person.heard if "/answer " in heard]
    assert len(sent) == 2
    assert sent[0] == sent[1]


def go_offline(person: Person) -> None:
    person.type_number()
    person.page.context.set_offline(True)
    person.page.keyboard.press("Enter")
    person.sees("No connection")
    person.page.context.set_offline(False)
    person.sees("has been counted")


def use_a_spent_code(person: Person, spent: str) -> None:
    own, person.link = person.link, person.link.replace(person.code, spent)
    person.type_number()
    person.page.keyboard.press("Enter")
    person.sees("has been used already")
    person.link = own
    person.answer()


def reload(person: Person) -> None:
    """Before Send, between the coin and the reply, and afterwards."""
    person.type_number()
    person.page.reload()
    assert person.page.locator("#number").input_value() == ""
    person.page.route("**/answer", lambda route: route.abort())
    person.page.locator("#number").fill(person.planted)
    person.page.keyboard.press("Enter")
    person.sees("cannot be reached")
    said = person.page.locator("#said").inner_text().rpartition(" ")[2]
    person.page.unroute("**/answer")
    for _ in range(2):
        person.page.reload()
        person.sees("has been counted")
        assert person.page.locator("#said").inner_text().rpartition(" ")[2] == said


def open_two_tabs(person: Person) -> None:
    second = person.page.context.new_page()
    person.type_number()
    person.type_number(second)
    for page in (person.page, second):
        page.evaluate("document.getElementById('send').click()")
    for page in (second, person.page):
        page.locator("#warning:visible, #said:visible").first.wait_for(timeout=PATIENCE)
        if page.locator("#warning").is_visible():
            page.locator("#continue").click()
        person.sees("has been counted", page)
    assert person.page.locator("#said").inner_text() == second.locator("#said").inner_text()


def test_everybody_counts_once_and_no_number_is_anywhere(watched: Callable[..., Any], gateway: Gateway) -> None:
    seen = [watched(locale="en-GB") for _ in range(PEOPLE)]
    people = [Person(one.page, number, gateway) for number, one in enumerate(seen)]
    lose_the_reply(people[0])
    go_offline(people[1])
    use_a_spent_code(people[2], people[0].code)
    reload(people[3])
    open_two_tabs(people[4])
    for person in people[5:]:
        person.answer()

    with closing(sqlite3.connect(f"file:{gateway.made.folder.store_file}?mode=ro", uri=True)) as store:
        spent = {bytes(row[0]) for row in store.execute("SELECT hash FROM codes WHERE state = ?", (COUNTED,))}
        others = store.execute("SELECT COUNT(*) FROM codes WHERE state > ?", (COUNTED,)).fetchone()[0]
        open_round = store.execute("SELECT SUM(came) FROM counts").fetchone()[0]
        before = store.execute("SELECT counted_before FROM round").fetchone()[0]
    assert spent == {code_hash(person.code) for person in people}
    assert others == 0
    assert before + open_round == PEOPLE

    places = {path.name: path.read_bytes() for path in gateway.log.parent.rglob("*") if path.is_file()}
    places |= {f"page {number}": one.page.content().encode() for number, one in enumerate(seen)}
    places |= {f"requests {number}": str(person.heard).encode() for number, person in enumerate(people)}
    assert {"survey.db", "run.db", "log.txt"} <= set(places)
    for person in people:
        whole, decimals = person.planted.split(".")
        for text in (person.planted, decimals, f"{whole},{decimals}"):
            assert [name for name, content in places.items() if text.encode() in content] == []
        # The look would have found it: the code is in the requests, its hash in the database, and neither in the log.
        assert any(person.code.encode() in content for name, content in places.items() if "requests" in name)
        assert code_hash(person.code) in places["survey.db"] + places.get("survey.db-wal", b"")
        assert person.code.encode() not in places["log.txt"]
    assert {host for one in seen for host in one.hosts} == {gateway.url.split("/")[2]}
    for one in seen[5:]:
        assert one.complaints == []


PHONE = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}


def test_the_pages_of_the_survey(
    watched: Callable[..., Any], check_axe: Callable[[Any], None], gateway: Gateway
) -> None:
    organiser = f"organiser#t={gateway.made.token}"
    visits: list[tuple[str, dict[str, Any]]] = [
        ("", {}),
        ("live", {}),
        (organiser, PHONE),
        ("organiser#t=wrong", PHONE),
    ]
    if LONG:
        visits += [("", PHONE), ("live", PHONE), (organiser, {})]
    for path, options in visits:
        seen = watched(bypass_csp=True, **options)
        response = seen.page.goto(gateway.url + path)
        policy = response.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        shown = {"": "#status", "live": ".tiles", "organiser#t=wrong": "#trouble:has-text('wrong')"}.get(path, "table")
        seen.page.locator(shown).first.wait_for()
        check_axe(seen.page)
        assert seen.hosts == {gateway.url.split("/")[2]}
        if path != "organiser#t=wrong":
            assert seen.complaints == []
        assert gateway.made.token not in str(seen.requests) + gateway.log.read_text()
    strict = watched()
    for path, file in page_files().items():
        reply = strict.page.request.get(gateway.url + path)
        assert reply.body() == file.body
        assert "set-cookie" not in reply.headers
