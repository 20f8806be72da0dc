"""The answering page in a real browser, against a server that lies: a device draws one coin and tells no number."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.survey.folder import new_code
from tests.browser.survey_page import PLANTED, answer, long_form, says, send
from tests.survey.fake_server import FakeSurvey, Reply

pytestmark = pytest.mark.browser

DIGITS = ("31415", "9265")

EVERYTHING_STORED = """async () => {
  const found = [JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie];
  for (const { name } of await indexedDB.databases()) {
    const db = await new Promise((ok) => { const r = indexedDB.open(name); r.onsuccess = () => ok(r.result); });
    for (const store of db.objectStoreNames) {
      const get = (what) => new Promise((ok) => {
        const r = db.transaction(store).objectStore(store)[what](); r.onsuccess = () => ok(r.result);
      });
      found.push(JSON.stringify([await get("getAll"), await get("getAllKeys")]));
    }
    db.close();
  }
  return found.join();
}"""


def test_one_bit_leaves_and_the_number_is_nowhere(watched: Callable[..., Any], survey: FakeSurvey, url: str) -> None:
    seen = watched()
    code = new_code()
    seen.page.goto(f"{url}#c={code}&e=10")
    seen.page.locator("#number").fill(PLANTED)
    assert survey.questions == 0, "the question is fetched on Send only"
    send(seen.page)
    says(seen.page, "has been counted")
    (sent,) = survey.answers
    assert sent == {"code": code, "round": 12, "answer": sent["answer"]}
    assert isinstance(sent["answer"], bool)
    assert seen.page.locator("#said").inner_text() == f"Your device sent: {'yes' if sent['answer'] else 'no'}"
    assert "above 2,750.5 €" in seen.page.locator("#asked").inner_text()
    assert "48 times in 100" in seen.page.locator("#lies").inner_text()  # from the threshold, not from lies_per_100
    assert seen.page.evaluate("document.activeElement.id") == "said"
    everything = [str(survey.requests), seen.page.content(), seen.page.evaluate(EVERYTHING_STORED)]
    everything.append(seen.page.locator("#number").input_value())
    for digits in DIGITS:
        assert not any(digits in text for text in everything)
    assert code in everything[2], "the look into the stores would have found it"
    assert not any(code in heard.path or code in heard.headers for heard in survey.requests)
    assert seen.hosts == {url.split("/")[2]}
    assert seen.complaints == []
    lengths = {len(heard.body) for heard in survey.requests if heard.method == "POST"}
    assert lengths == {120}, "a yes is as long as a no"


def test_no_server_gets_a_second_coin(page: Any, survey: FakeSurvey, url: str) -> None:
    """It claims that the answer was lost, asks anew, renames the survey, forgets the code: always the same bit."""
    code = new_code()
    survey.on_answer = lambda body: (500, {"error": "lost"}, {})
    answer(page, f"{url}#c={code}&e=10")
    says(page, "cannot be reached")

    def new_question() -> None:
        survey.states.clear()
        survey.round, survey.query = 13, "99"

    def other_settings() -> None:
        survey.facts.update(survey="ffffffffffff", threshold="9300000000000000000")
        replies({"counted": "lost", "again": True, "round": 14})

    def replies(said: dict[str, Any], status: int = 200) -> None:
        survey.on_answer = lambda body: (status, said, {})

    lies: tuple[Callable[[], None], ...] = (
        new_question,
        other_settings,
        lambda: replies({"error": "unknown"}, 404),
        lambda: replies({"counted": False, "reason": "late"}),
    )
    for lie in lies:
        lie()
        before = len(survey.answers)
        page.reload()
        page.locator("#said").wait_for()
        for _ in range(100):
            if len(survey.answers) > before:
                break
            page.wait_for_timeout(50)
    says(page, "came too late")
    bits = {json.dumps(sent) for sent in survey.answers}
    assert len(survey.answers) >= len(lies)
    assert len(bits) == 1
    assert survey.questions == 1
    before = len(survey.answers)
    page.reload()
    says(page, "came too late")
    assert len(survey.answers) == before, "what is final is not sent again"
    # A server can make the browser forget, also in the middle of a visit; the page that was open does not answer again.
    survey.more_headers["Clear-Site-Data"] = '"storage"'
    page.reload()
    says(page, "does not answer a second time")
    assert (survey.questions, len(survey.answers)) == (1, before)


@long_form
def test_devices_that_forgot_would_draw_again(watched: Callable[..., Any], survey: FakeSurvey, url: str) -> None:
    """The control: devices that remember nothing send both bits, so the test before would have seen a second coin."""
    survey.on_question = lambda code: (200, {"survey": survey.facts["survey"], "round": 1, "query": "3"}, {})
    code = new_code()
    for _ in range(30):
        page = watched().page
        answer(page, f"{url}#c={code}&e=10", "3000")
        says(page, "has been counted")
        if {sent["answer"] for sent in survey.answers} == {True, False}:
            return
    pytest.fail("thirty fresh coins and always the same side")


def test_another_code_of_the_same_survey_gets_nothing(
    watched: Callable[..., Any], survey: FakeSurvey, url: str
) -> None:
    page = watched().page
    answer(page, f"{url}#c={new_code()}&e=10", "3000")
    says(page, "has been counted")
    page.goto(f"{url}#c={new_code()}&e=10")
    says(page, "never answers a second time")
    assert not page.locator("#form").is_visible()
    assert (survey.questions, len(survey.answers)) == (1, 1)
    # Another survey under another code may be the same one in disguise: people decide, and see what they did.
    survey.facts.update(survey="ffffffffffff")
    answer(page, f"{url}#c={new_code()}&e=10", "3000")
    page.locator("#warning").wait_for()
    assert "What we earn" in page.locator("#why").inner_text()
    page.get_by_role("button", name="Stop").click()
    says(page, "Nothing was sent")
    assert (survey.questions, len(survey.answers)) == (1, 1)


@long_form
def test_two_tabs_draw_one_coin(watched: Callable[..., Any], survey: FakeSurvey, url: str) -> None:
    first = watched().page
    second = first.context.new_page()
    code = new_code()
    for page in (first, second):
        page.goto(f"{url}#c={code}&e=10")
        page.locator("#number").fill("3000")
    for page in (first, second):
        page.evaluate("setTimeout(() => document.getElementById('send').click(), 50)")
    for page in (second, first):
        # Whichever comes second may be warned: the question was fetched before.
        page.locator("#warning:visible, #said:visible").first.wait_for()
        page.wait_for_timeout(200)
        if page.locator("#warning").is_visible():
            page.locator("#continue").click()
        says(page, "has been counted")
    assert len({sent["answer"] for sent in survey.answers}) == 1
    assert len(survey.answers) == 1
    assert first.locator("#said").inner_text() == second.locator("#said").inner_text()


@long_form
def test_two_tabs_with_two_codes_are_no_way_around_the_warning(
    watched: Callable[..., Any], survey: FakeSurvey, url: str
) -> None:
    """A server calls one survey by two names: whichever tab comes second is asked first."""
    first = watched().page
    second = first.context.new_page()
    for page, name in ((first, "000000000001"), (second, "000000000002")):
        survey.facts["survey"] = name
        page.goto(f"{url}#c={new_code()}&e=10")
        page.locator("#number").fill("3000")
    held: list[Any] = []
    first.route("**/question", lambda route: held.append(route))
    with first.expect_request("**/question"):
        first.locator("#send").click()
    second.locator("#send").click()
    says(second, "has been counted")
    survey.facts["survey"] = "000000000001"
    held[0].continue_()
    first.get_by_text("has already answered a survey of this address").wait_for()
    assert len(survey.answers) == 1


def test_another_device_is_warned_before_it_draws(watched: Callable[..., Any], survey: FakeSurvey, url: str) -> None:
    page = watched().page
    code = new_code()
    survey.states[code] = "handed"
    answer(page, f"{url}#c={code}&e=10")
    page.locator("#warning").wait_for()
    assert page.evaluate("document.activeElement.id") == "warning"
    assert survey.answers == []
    page.get_by_role("button", name="Stop").click()
    says(page, "Nothing was sent")
    page.reload()
    page.locator("#number").fill(PLANTED)
    send(page)
    page.get_by_role("button", name="continue").click()
    says(page, "has been counted")
    assert len(survey.answers) == 1


def test_a_browser_that_cannot_answer_once_is_refused(
    watched: Callable[..., Any], survey: FakeSurvey, url: str
) -> None:
    page = watched().page
    # Each is looked at before the one above it.
    for spoilt, said in (
        ("indexedDB.open = () => { throw new Error() }", "stores nothing"),
        ("delete Navigator.prototype.locks", "Web Locks"),
        ("Object.defineProperty(window, 'isSecureContext', {value: false})", "not secure"),
    ):
        page.add_init_script(spoilt)
        page.goto("about:blank")
        page.goto(f"{url}#c={new_code()}&e=10")
        says(page, said)
        assert not page.locator("#form").is_visible()
    assert survey.questions == 0


def test_settings_that_hide_too_little_are_refused(watched: Callable[..., Any], survey: FakeSurvey, url: str) -> None:
    page = watched().page
    for change in ({"threshold": str(1 << 64)}, {"range": "ab"}):
        honest = dict(survey.facts)
        survey.facts.update(change)
        page.goto(f"{url}#c={new_code()}&e=10")
        says(page, "not acceptable")
        assert not page.locator("#form").is_visible()
        survey.facts = honest
    survey.on_question = lambda code: (200, {"survey": "ffffffffffff", "round": 1, "query": "3"}, {})
    answer(page, f"{url}#c={new_code()}&e=10")
    says(page, "cannot be reached")  # a question of another survey is no question
    for query in ("NaN", "1e999", 12):
        survey.on_question = lambda code, query=query: (  # type: ignore[misc]
            200, {"survey": survey.facts["survey"], "round": 1, "query": query}, {},
        )  # fmt: skip
        before = survey.questions
        page.locator("#again").click()
        page.locator("#again:not([hidden])").wait_for()
        assert survey.questions > before
    assert survey.answers == []


def test_a_link_that_states_a_budget_is_held_to_it(page: Any, survey: FakeSurvey, url: str) -> None:
    """A server that asks one device for more than the letter says gets nothing; the page says how often it is true."""
    survey.facts["threshold"] = str(RandomizedResponse.from_epsilon(4.0).threshold)
    for budget in ("2", "3.99", "none"):
        page.goto("about:blank")
        page.goto(f"{url}#c={new_code()}&e={budget}")
        says(page, "the survey wants only 1.8 times")
        assert not page.locator("#form").is_visible()
    # Without a budget the server would choose it: no link that was issued is so.
    for budget in ("", "&answered"):
        page.goto("about:blank")
        page.goto(f"{url}#c={new_code()}{budget}")
        says(page, "The link is not complete")
        assert not page.locator("#form").is_visible()
    page.goto("about:blank")
    page.goto(f"{url}#c={new_code()}&e=4")
    page.locator("#form").wait_for()
    about = page.locator("#about").inner_text()
    assert "the truth 98.2 times in 100 and, by chance, the opposite 1.8 times" in about
    assert "can be nearly sure" in about
    survey.facts["threshold"] = str(RandomizedResponse.from_epsilon(1.0).threshold)
    page.reload()
    page.get_by_text("the truth 73 times in 100 and, by chance, the opposite 27 times: nobody can be sure").wait_for()
    assert survey.questions == 0


def test_offline_then_online_and_a_survey_that_makes_wait(page: Any, survey: FakeSurvey, url: str) -> None:
    page.goto(f"{url}#c={new_code()}&e=10")
    page.locator("#number").fill("3000")
    page.context.set_offline(True)
    page.locator("#send").click()
    says(page, "No connection")
    survey.on_question = lambda code: (503, {"error": "wait"}, {"Retry-After": "1"})
    page.context.set_offline(False)
    says(page, "being prepared")
    # The first reply is lost, and this device knows that it was the one that asked: no warning of another.
    lost_question: Iterator[Reply] = iter([(0, None, {})])

    def losing_the_question(code: str) -> Reply | None:
        if reply := next(lost_question, None):
            survey.states[code], survey.visits[code] = "handed", json.loads(survey.requests[-1].body)["visit"]
            return reply
        return None

    survey.on_question = losing_the_question
    says(page, "has been counted")
    assert len(survey.answers) == 1
