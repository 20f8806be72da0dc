"""The dashboard in a real browser, beside a run in progress."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privatile.report.dashboard.serving import DashboardAddress, listen, run_dashboard
from privatile.result.shown import grid_text
from privatile.run.view import RunView
from tests.made_runs import SlowRun, long_run

pytestmark = pytest.mark.browser

HOSTILE = """</script><script>document.title='owned'</script><img src=x onerror="document.title='owned'">"""
PATIENCE = 180_000
"""Milliseconds: far longer than anything here takes."""


def shows_round(page: Any, number: int) -> None:
    page.locator(f"body[data-round='{number}']").wait_for(timeout=PATIENCE)


def test_it_updates_live_and_survives_a_reload_and_a_restart(watched: Callable[..., Any], tmp_path: Path) -> None:
    run = SlowRun(tmp_path / "run.db", rounds=400)
    bound = listen(DashboardAddress())
    port = bound.getsockname()[1]
    bound.close()
    seen = watched()
    page = seen.page
    with run_dashboard(tmp_path / "run.db", DashboardAddress(port=port)) as dashboard:
        page.goto(dashboard.url)
        run.go(100)
        shows_round(page, 100)
        page.locator("figure[data-ready]").wait_for()
        first = page.locator("figure .readout").inner_text()  # the rounded estimate alone may stay the same
        # Zoom stays while rounds come in; what a narrower interval takes is said.
        page.get_by_role("button", name="Zoom in").click()
        zoomed = [page.locator("figure.chart").get_attribute(f"data-{end}") for end in ("from", "to")]
        page.locator("#target").fill("0.01")
        assert "more rounds" in page.locator("#target-answer").inner_text()
        run.go(60)
        shows_round(page, 160)
        assert zoomed == [page.locator("figure.chart").get_attribute(f"data-{end}") for end in ("from", "to")]
        page.get_by_role("button", name="Show all").click()
        assert page.locator("#rounds").inner_text() == "160 of 400"
        assert page.locator("#status").inner_text() == "running"
        assert page.locator("figure .readout").inner_text() != first
        assert page.locator("figure.chart").get_attribute("data-to") == "160"
        page.reload()
        shows_round(page, 160)
        assert page.locator("figure.chart").get_attribute("data-from") == "1"  # the whole history is back
        assert seen.complaints == []
    page.locator("#status[data-status='lost']").wait_for(timeout=PATIENCE)
    notice = page.locator("#notice")
    assert "the command that showed this page has ended" in notice.inner_text()
    assert notice.locator("code").inner_text() == f"privatile dashboard {tmp_path / 'run.db'}"
    run.go(40)
    with run_dashboard(tmp_path / "run.db", DashboardAddress(port=port)):
        shows_round(page, 200)  # the page came back by itself
        assert not notice.is_visible()
        assert page.locator("#status").inner_text() == "running"
        run.go(200)
        run.coordinator.finish()
        page.locator("#status[data-status='finished']").wait_for(timeout=PATIENCE)
        assert page.locator("#rounds").inner_text() == "400 of 400"
        # The end state carries what the result tells people.
        told = [caveat.text for caveat in run.coordinator.result().caveats if caveat.severity != "standing"]
        assert page.locator("#caveats p").all_inner_texts() == told
        assert told
        assert page.locator("td[data-state='alive']").all_inner_texts() == ["answered"] * 3
    # The page of a run that is over stays as it is: no alarm, and nobody is asked again.
    page.get_by_text("the run is over: this is its result").wait_for(timeout=PATIENCE)
    assert page.locator("#status").get_attribute("data-status") == "finished"
    assert page.locator("#rounds").inner_text() == "400 of 400"
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)  # a page that tries again does so every second
    assert asked == []
    assert page.locator("#status").get_attribute("data-status") == "finished"
    assert seen.hosts == {f"127.0.0.1:{port}"}


def test_a_silent_client_and_an_alarm_show(watched: Callable[..., Any], tmp_path: Path) -> None:
    run = SlowRun(tmp_path / "run.db", rounds=200, names=("north", "south"))
    run.go(50)
    run.sql(
        "CREATE TABLE events (at REAL NOT NULL, kind TEXT NOT NULL, client TEXT, round INTEGER, text TEXT NOT NULL)"
    )
    with run_dashboard(tmp_path / "run.db") as dashboard:
        page = watched().page
        page.goto(dashboard.url)
        shows_round(page, 50)
        assert page.locator("td[data-state='alive']").count() == 2
        run.go(3, silent={1})
        shows_round(page, 53)
        assert page.locator("tr", has_text="south").locator("td.state").inner_text() == "silent for 3 rounds"
        assert page.locator("#alive").inner_text() == "1 of 2"
        run.sql(
            "INSERT INTO events VALUES (?, 'paused', 'south', 54, 'client south is silent: `join`')", (time.time(),)
        )
        page.locator("#alarms", has_text="client south is silent").wait_for(timeout=PATIENCE)
        assert page.locator("#status").inner_text() == "paused"
        assert page.locator("#alarms code").inner_text() == "join"  # a command looks like one
        # Other words for the same alarm change the words only: nothing new is read aloud.
        page.evaluate("document.querySelector('#alarms li').dataset.kept = 'yes'")
        run.sql("UPDATE events SET text = 'client south was silent 2 min ago: `join`'")
        page.locator("#alarms li[data-kept]", has_text="2 min ago").wait_for(timeout=PATIENCE)
        assert page.locator("#alarms li[data-kept] code").inner_text() == "join"
        # What is wrong stands above the estimate, what happened at the end of the page.
        places = [page.locator(part).bounding_box()["y"] for part in ("#status", "#alarms", "#estimate", "#events")]
        assert places == sorted(places)


def test_the_empty_state_says_what_it_waits_for(watched: Callable[..., Any], tmp_path: Path) -> None:
    """Neither empty tiles nor an empty chart; the run appears by itself, its chart with the second round."""
    (tmp_path / "study.toml").touch()
    with run_dashboard(tmp_path / "run.db") as dashboard:
        page = watched().page
        page.goto(dashboard.url)
        page.locator("#status[data-status='waiting']").wait_for(timeout=PATIENCE)
        assert page.locator("#empty code").inner_text() == f"privatile serve {tmp_path}"
        assert not page.locator(".tiles, figure, table").first.is_visible()
        run = SlowRun(tmp_path / "run.db", rounds=200)
        run.go(1)
        shows_round(page, 1)
        assert not page.locator("#empty").is_visible()
        assert page.locator("#no-chart").is_visible()
        assert page.locator(".tiles").is_visible()
        assert not page.locator("figure").is_visible()
        run.go(1)
        page.locator("figure[data-ready]").wait_for(timeout=PATIENCE)
        assert not page.locator("#no-chart").is_visible()


def test_an_interval_for_every_distribution_needs_no_choice(watched: Callable[..., Any], tmp_path: Path) -> None:
    """It is valid at every look: no buttons, its condition in words; questions on both sides are in the key."""
    run = long_run(tmp_path / "run.db", rounds=80, stop=70, length=120, design="auto", value_kind="whole", whole=True)
    (level,) = RunView.read(run, drawn=True).levels
    assert level.result is not None
    with run_dashboard(run) as dashboard:
        seen = watched()
        page = seen.page
        page.goto(dashboard.url)
        page.locator("figure[data-ready]").wait_for()
        assert page.locator("#estimate").inner_text() == f"{level.result.estimate:g}"
        left = grid_text(level.result.grid_values)
        assert page.locator("#interval").inner_text() == f"95% interval {left}, if every value is a whole number"
        low, high = level.result.shown.own.rounded
        assert page.locator("#left-note").inner_text() == f"If it is not so: {low} … {high}, whatever the distribution"
        assert page.locator("#interval-note").inner_text() == "valid however often you look"
        assert not page.locator("#choice").is_visible()
        assert page.locator("[data-key=center]").is_visible()
        assert not page.locator("[data-key=beside]").is_visible()  # the smooth one holds at the end only
        assert seen.complaints == []


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1100, "light"), (380, "dark"), (1100, "dark"), (380, "light")][: 4 if os.environ.get("PRIVATILE_LONG") else 2],
)
def test_contrast_labels_and_phones(
    watched: Callable[..., Any], check_axe: Callable[[Any], None], tmp_path: Path, scheme: str, width: int
) -> None:
    path = long_run(tmp_path / "run.db", rounds=300, levels=(0.5, 0.9), silent=frozenset({2}))
    with run_dashboard(path) as dashboard:
        page = watched(color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True).page
        page.goto(dashboard.url)
        shows_round(page, 300)
        page.locator("figure[data-ready]").wait_for()
        check_axe(page)
        inside = "all => all.every(n => n.getBoundingClientRect().right <= innerWidth)"
        assert page.locator("#clients td").evaluate_all(inside)


def test_everything_is_reached_by_keyboard_and_hostile_names_are_inert(
    watched: Callable[..., Any], tmp_path: Path
) -> None:
    run = SlowRun(tmp_path / "run.db", rounds=100, names=(HOSTILE, "south"), value=HOSTILE)
    run.go(60)
    with run_dashboard(tmp_path / "run.db") as dashboard:
        seen = watched()
        page = seen.page
        page.goto(dashboard.url)
        shows_round(page, 60)
        assert HOSTILE in page.locator("#clients th").first.inner_text()
        assert HOSTILE in page.locator("#estimand").inner_text()
        assert page.locator("img").count() == 0
        assert "owned" not in page.title()
        assert seen.complaints == []
        reached = set()
        for _ in range(25):
            page.keyboard.press("Tab")
            reached.add(
                page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id || 'plot'")
            )
        assert {"Anytime interval", "Fixed-time interval", "By rounds", "Zoom in", "plot", "target"} <= reached
        assert page.locator("[data-live]:visible").count() == 4
        run.go(40)
        run.coordinator.finish()
        shows_round(page, 100)
        page.locator("[data-live]").first.wait_for(state="hidden")  # a run that is over has no rate and no wait
        assert page.locator("[data-live]:visible").count() == 0
        assert page.locator("#chart-title").inner_text() == "How it got there"
