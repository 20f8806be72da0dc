"""The page of a run: true, small, inert, offline."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from markupsafe import escape

import privatile
from privatile.cli import main
from privatile.errors import InputError, MissingExtra
from privatile.report.path import thin_path
from privatile.report.run_page import WORDS, data_and_options, looking, run_page, write_run_page
from privatile.result.result import QuantileResult
from privatile.result.shown import CONDITIONS
from privatile.run.view import RunView
from tests.made_runs import long_run, viewed

HOSTILE = """</script><script>document.title='owned'</script><img src=x onerror="document.title='owned'">'"`{{7*7}}"""


class Reader(HTMLParser):
    """Elements, and the text of the facts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.facts_text = ""
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("id") == "facts"

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.facts_text += data

    @property
    def facts(self) -> Any:
        return json.loads(self.facts_text)


def people(**names: float) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    rng = np.random.default_rng(1)
    return {name: rng.normal(center, 10, 4000) for name, center in (names or {"north": 50.0, "south": 60.0}).items()}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> QuantileResult:
    options: dict[str, Any] = {"epsilon": 1, "range": (0, 100), "value": "income", "rounds": 400, "design": "rounds"}
    save = tmp_path_factory.mktemp("run") / "run.db"
    found: QuantileResult = privatile.estimate(people(), q=0.5, simulate=True, rng=3, save=save, **options)
    return found


@pytest.fixture(scope="module")
def page(result: QuantileResult, tmp_path_factory: pytest.TempPathFactory) -> str:
    return result.report(tmp_path_factory.mktemp("page") / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_says_what_the_result_says(result: QuantileResult, page: str) -> None:
    facts = Reader(page).facts
    assert facts["results"][0] == json.loads(result.to_json())["results"][0]
    path = facts["trajectories"][0]
    low, high = result.confidence_interval
    # The drawn end of the band is the interval, to the four digits of its width that a page keeps.
    tolerance = (high - low) * 1e-3
    assert path["round"][-1] == 400
    assert path["records"][-1] == result.records
    # Where the answers place the quantile nowhere there is no estimate, and none is drawn.
    assert (facts["results"][0]["estimate"], path["estimate"][-1]) == (None, None)
    assert not result.located
    assert page.count('data-label="share below">not known<') == len(result.clients)
    assert path["low"][-1] == pytest.approx(low, abs=tolerance)
    assert path["high"][-1] == pytest.approx(high, abs=tolerance)
    before = path["estimate"].index(next(value for value in path["estimate"] if value is not None))
    assert path["round"][before] >= result.rounds - result.averaged_rounds + 1  # search and probes have no average


def test_the_page_asks_no_one_for_anything(page: str) -> None:
    reader = Reader(page)
    for name, attributes in reader.tags:
        assert name not in {"link", "iframe", "object", "embed", "base", "form", "img"}
        assert "src" not in attributes
        assert not str(attributes.get("href", "#")).startswith(("http", "//"))
        assert not any(key.startswith("on") for key in attributes)
    policy = next(a["content"] for t, a in reader.tags if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.split("script-src")[1]
    assert not re.search(r"url\(\s*['\"]?(?!data:)", page)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Neither HTML nor a template's own syntax is interpreted, in text, attributes, title and data."""
    pages = []
    for names, value in ((("north", "south"), "income"), ((HOSTILE, "{% raw %}"), HOSTILE)):
        data = people(**dict(zip(names, (50.0, 60.0), strict=True)))
        told = privatile.estimate(data, epsilon=2, range=(0, 100), value=value, simulate=True, rng=4, rounds=50)
        pages.append(told.report(tmp_path / "page.html").read_text(encoding="utf-8"))
    # How many ticks a drawing has depends on its numbers, and they on the order of the clients' names.
    tags = [[tag for tag, _ in Reader(page).tags if tag not in ("polyline", "text")] for page in pages]
    assert tags[0] == tags[1], "not one element more"
    hostile = pages[1]
    assert Reader(hostile).facts["results"][0]["clients"][0]["name"] == HOSTILE
    assert f"<title>The median of {escape(HOSTILE)}</title>" in hostile
    for name in (HOSTILE, "{% raw %}"):
        assert f'<th scope="row">{escape(name)}</th>' in hostile
    assert hostile.count("</script>") == hostile.count("<script") == 5


def test_only_our_own_style_and_scripts_are_not_escaped() -> None:
    source = Path(privatile.__file__).parent
    templates = sorted(source.rglob("*.j2"))
    assert {path.parent.parent.name for path in templates} == {"report", "dashboard", "paper"}
    unescaped = re.findall(r"\{\{[^}]*\bsafe\b[^}]*\}\}", "".join(path.read_text() for path in templates))
    assert unescaped == ["{{ style | safe }}", "{{ script | safe }}"]
    assert not any("autoescape" in path.read_text() for path in templates)


def test_the_clients_bars_are_the_results_rank_intervals(tmp_path: Path, page: str) -> None:
    """The drawn bar spans `local_rank_interval`, which the JSON holds too; on the drawing 0 … 1 is 4 … 224 pixels."""
    assert 'class="bar c0"' not in page  # that quantile was not located
    view = viewed(tmp_path / "run.db", rounds=40, length=100, design="auto")
    (result,) = [level.result for level in view.levels if level.result is not None]
    assert result.located
    page = run_page(view)
    drawn = re.findall(r'class="forest">\s*<svg.*?class="bar c0" points="([\d.]+),8 ([\d.]+),8"', page, re.S)
    facts = Reader(page).facts["results"][0]["clients"]
    assert len(drawn) == len(facts) == len(result.clients)
    for (low, high), told, client in zip(drawn, facts, result.clients, strict=True):
        assert tuple(told["local_rank_interval"].values()) == client.local_rank_interval
        for pixel, end in zip((low, high), client.local_rank_interval, strict=True):
            assert float(pixel) == pytest.approx(4 + 220 * end, abs=0.06)
    assert "the bar its 95% interval" in page


def test_no_records_value_is_on_the_page(tmp_path: Path) -> None:
    planted = 61.72839451
    data = people()
    data["north"][7] = planted
    result = privatile.estimate(data, epsilon=1, range=(0, 100), simulate=True, rng=3, rounds=200)
    page = result.report(tmp_path / "page.html").read_text(encoding="utf-8")
    for text in ("61.7283", "6172839", "1.7283945"):
        assert text not in page
    assert "61.7283" in f"{planted}"  # the test can see what it looks for


@pytest.mark.slow
def test_very_many_rounds_stay_small(tmp_path: Path) -> None:
    rounds = 100_000 if os.environ.get("PRIVATILE_LONG") else 8_000
    view = viewed(tmp_path / "run.db", rounds=rounds, clients=1)
    page = run_page(view)
    assert len(page.encode()) < 500_000
    path = Reader(page).facts["trajectories"][0]
    assert len(path["round"]) <= 2000
    after = view.levels[0].low
    drawn = thin_path(view.levels[0], 2000)
    scale = view.levels[0].scale
    assert drawn.question_high.max() == pytest.approx(scale.to_units(float(after.max())))
    assert drawn.question_low.min() == pytest.approx(scale.to_units(float(after.min())))


def test_date_data_and_options_are_on_the_page(tmp_path: Path) -> None:
    view = viewed(tmp_path / "run.db", rounds=50, length=10, design="auto", value_kind="whole")
    page = run_page(view)
    options = Reader(page).facts["options"]
    assert options["date"].startswith(time.strftime("%Y-%m-%d", time.gmtime(view.created)))
    assert options["data"] == "1,500 records: client 0 (500), client 1 (500), client 2 (500)"
    assert options["stated range"] == "0 to 100, linear scale"
    assert (options["column"], options["values declared"], options["level"]) == ("income", "whole", "0.5")
    for label, text in options.items():
        assert f'<tr><th scope="row">{label}</th><td>{escape(text)}</td></tr>' in page
    tiles = page[page.index('<ul class="tiles">') : page.index("</ul>", page.index('<ul class="tiles">'))]
    assert options["date"][:10] in tiles
    assert not re.search(r"<b>[\d.]+ (s|min|h)</b>", tiles)  # how long it took is no headline
    nine = viewed(tmp_path / "nine.db", rounds=20, clients=9)
    assert data_and_options(nine)["data"].endswith("client 7 (20) and 1 more")


@pytest.mark.slow
def test_many_clients_and_levels_stay_small(tmp_path: Path) -> None:
    rounds = 2500 if os.environ.get("PRIVATILE_LONG") else 400
    levels = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
    many: list[dict[str, Any]] = [{"rounds": 20, "clients": 1200}, {"rounds": rounds, "levels": levels}]
    for options in many:
        assert len(run_page(viewed(tmp_path / f"{options['rounds']}.db", **options)).encode()) < 500_000


def test_an_unfinished_run_has_a_page_too(tmp_path: Path) -> None:
    for stop in (0, 1, 60, 300):
        page = run_page(viewed(tmp_path / f"{stop}.db", rounds=800, stop=stop))
        assert "Unfinished" in page
        assert Reader(page).facts["finished"] is None
    assert "95% anytime interval <b>" in page, "what is valid while looking comes first"


@pytest.mark.parametrize(("values", "code"), [("any", "any-shape"), ("continuous", "smooth")])
def test_while_a_run_goes_on_its_page_shows_what_is_valid_at_every_look(tmp_path: Path, values: str, code: str) -> None:
    view = viewed(tmp_path / "run.db", rounds=60, stop=45, length=80, design="auto", value_kind=values)
    page, (level,) = run_page(view), view.levels
    assert level.result is not None
    first, always = level.result.shown.first, values == "any"
    assert first.condition_code == code
    assert re.findall(r'<p class="interval">95% anytime interval <b>.*? … .*?</b>, ([^<]*)', page) == [first.condition]
    assert next(one.text for one in level.result.caveats if one.code == "unfinished") in page
    assert (level.result.anytime == level.result.confidence_interval) == level.result.valid_at_every_look == always
    # The chart draws the interval that stands first, and says what it is.
    (drawn,) = Reader(page).facts["trajectories"]
    assert (drawn["low"][-1], drawn["high"][-1]) == pytest.approx(first.drawn, rel=1e-3)
    assert looking(view.spec, level.result) in page
    assert looking(view.spec, level.result) != WORDS["looking"]["fixed"]
    beside = WORDS["looking"]["beside"] in page
    assert beside == (", at the planned end only" in page) == (level.result.other is not None)


def test_several_levels_show_both_intervals_each(tmp_path: Path) -> None:
    view = viewed(tmp_path / "run.db", rounds=50, length=250, levels=(0.4, 0.6), design="auto")
    page = run_page(view)
    others = [level.result.other for level in view.levels if level.result is not None and level.result.other]
    assert page.count('<span class="other">if smooth: ') == len(others) > 0
    assert page.count(f"The interval holds {CONDITIONS['any-shape']}.") == 1
    assert page.count(f"“if smooth”: it holds {CONDITIONS['smooth']}") == 1


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    run = long_run(tmp_path / "run.db", rounds=300)
    done = CliRunner().invoke(main, ["report", str(run), "--figure", str(tmp_path / "a.svg")])
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "run.html").exists()
    done = CliRunner().invoke(main, ["report", str(run)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run.html").stat().st_size > 50_000
    missing = CliRunner().invoke(main, ["report", str(tmp_path / "none.db")])
    assert missing.exit_code == 2
    assert "there is no run file" in missing.output


@pytest.mark.slow
def test_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same file every time, whose text stays text; without matplotlib the error names the extra."""
    view = viewed(tmp_path / "run.db", rounds=300, levels=(0.25, 0.75))
    heads = {".svg": b"<?xml", ".pdf": b"%PDF-", ".png": b"\x89PNG"}
    for suffix, head in heads.items():
        first = write_run_page(view, tmp_path / f"a{suffix}").read_bytes()
        assert first.startswith(head)
        assert first == write_run_page(view, tmp_path / f"b{suffix}").read_bytes()
    assert ">rounds<" in (tmp_path / "a.svg").read_text()
    with pytest.raises(InputError, match="must end in"):
        write_run_page(view, tmp_path / "a.gif")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"\.\[report\]"):
        write_run_page(view, tmp_path / "a.svg")


def test_a_result_without_rounds_says_how_to_get_a_report(result: QuantileResult) -> None:
    with pytest.raises(InputError, match=r"save='run\.db'"):
        replace(result, reporter=None).report()
    with pytest.raises(InputError, match=r"\.html"):
        result.report("report.txt")


@pytest.mark.parametrize(
    ("report", "later"),
    [({}, False), ({"interval": "any-shape"}, False), ({"interval": "smooth"}, True), ({"value_kind": "step=5"}, True)],
)
def test_what_is_chosen_after_the_answers_came_is_said(tmp_path: Path, report: dict[str, Any], later: bool) -> None:
    path = long_run(tmp_path / "run.db", rounds=60, length=80, design="auto", value_kind="any")
    (result,) = RunView.read(path, **report).results()
    assert result is not None
    assert any(caveat.code == "chosen-later" for caveat in result.caveats) == later
    page = run_page(RunView.read(path, **report, drawn=True))
    assert all(caveat.text in page for caveat in result.caveats if caveat.code == "chosen-later")
