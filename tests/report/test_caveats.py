"""Wherever a result is shown, it carries the same caveats; standing remarks are in its JSON and the documentation."""

from __future__ import annotations

import ast
import html
import json
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import privatile
from privatile.cli import main
from privatile.core.scale import Linear, Log
from privatile.report.dashboard.live import LiveRun
from privatile.report.run_page import run_page, write_run_page
from privatile.result.caveats import CAVEATS, Caveat
from privatile.result.compare import compare
from privatile.result.diagnostics import no_log
from privatile.result.result import QuantileResult
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile.run.view import RunView
from tests.made_runs import showing

SOURCE = Path(privatile.__file__).parent
STANDING = {"central", "missing", "unweighted"}


def made(path: Path, **options: Any) -> QuantileResult:
    rng = np.random.default_rng(1)
    data = {"north": rng.normal(50, 10, 2000), "south": rng.normal(60, 10, 2000)}
    result: QuantileResult = privatile.estimate(
        data, epsilon=1, range=(0, 100), value="income", simulate=True, rng=3, save=path, rounds=60, **options
    )
    return result


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"design": "rounds"}, {"until_width": 8.0}, {"target": "file"}])
def test_every_view_of_a_run_carries_the_same_caveats(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "run.db"
    result = made(path, **options)
    texts = [caveat.text for caveat in result.caveats if caveat.severity != "standing"]
    standing = [caveat.text for caveat in result.caveats if caveat.severity == "standing"]
    assert {caveat.code for caveat in result.caveats} >= STANDING
    with closing(RunStore.open(path, read_only=True)) as store:
        assert Coordinator(store).results()[0].caveats == result.caveats  # what `serve` and `release` show
    seen = RunView.read(path).levels[0].result
    assert seen is not None
    assert seen.caveats == result.caveats
    with closing(LiveRun(path)) as live:
        live.refresh()
        assert [caveat["text"] for caveat in live.state["levels"][0]["caveats"]] == texts
    write_run_page(RunView.read(path, drawn=True), tmp_path / "from-file.html")
    pages = [
        path.read_text(encoding="utf-8")
        for path in (tmp_path / "from-file.html", result.report(tmp_path / "from-result.html"))
    ]
    watched = re.sub(r"\s+", " ", CliRunner().invoke(main, ["status", str(path)]).output)
    people = [result.to_text(), html.unescape(result.to_html()), watched]
    for text in texts:
        assert all(text in shown for shown in (*people, *map(html.unescape, pages)))
    for text in standing:  # in no view that people read, and in the data of every page
        assert not any(text in shown for shown in people)
    for page in pages:
        facts = json.loads(re.search(r'id="facts">(.*?)</script>', page, re.S)[1])  # type: ignore[index]
        assert [caveat["text"] for caveat in facts["results"][0]["caveats"]] == [*texts, *standing]


@pytest.mark.slow
def test_a_run_per_person_says_so_from_its_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    rows = "\n".join(f"{number % 900},{40 + number % 21}" for number in range(1000))
    (tmp_path / "people.csv").write_text(f"who,pay\n{rows}\n")
    command = "--value pay --person who --epsilon 1 --range 0 100 --save"
    done = CliRunner().invoke(main, ["estimate", f"{tmp_path}/people.csv", *command.split(), f"{tmp_path}/run.db"])
    assert done.exit_code == 0, done.output
    seen = RunView.read(tmp_path / "run.db").levels[0].result
    assert seen is not None
    assert [caveat.code for caveat in seen.caveats][-4:] == ["person", "missing", "central", "unweighted"]


def test_a_comparison_carries_those_of_both(tmp_path: Path) -> None:
    first, second = made(tmp_path / "a.db"), made(tmp_path / "b.db", target="file", value_kind="continuous")
    text = compare(first, second, disjoint=True).to_text()
    only = next(caveat.text for caveat in second.caveats if caveat.code == "file")
    assert f"- second: {only}" in text


def strings_in(node: ast.AST) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def test_every_kind_is_made_somewhere_with_all_that_its_text_names() -> None:
    """`caveat(code, variant, **values)` formats a text of the registry: no value is missing, and none is left over."""
    made: set[str] = set()
    strings: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        strings |= strings_in(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "caveat":
                codes = strings_in(node.args[0])
                variants = strings_in(node.args[1]) if len(node.args) > 1 else {""}
                for code in codes:
                    texts = CAVEATS[code].texts
                    asked = [texts[variant] for variant in variants] if variants else texts.values()
                    names = {name for text in asked for _, name, *_ in Formatter().parse(text) if name}
                    assert names == {keyword.arg for keyword in node.keywords}, (path, code)
                made |= codes
    assert made == set(CAVEATS)
    assert {variant for kind in CAVEATS.values() for variant in kind.texts if variant} <= strings


def test_a_page_contradicts_neither_itself_nor_the_text(tmp_path: Path) -> None:
    """Where nothing was located no number stands large, nothing has settled and no clients agree."""
    rng = np.random.default_rng(1)
    few = {"north": rng.normal(50, 10, 12), "south": rng.normal(60, 10, 12)}
    for data, located in ((few, False), ({name: np.tile(values, 300) for name, values in few.items()}, True)):
        common: dict[str, Any] = {"range": (1, 100), "simulate": True, "rng": 2, "design": "rounds", "rounds": 12}
        result = privatile.estimate(data, epsilon=4 if located else 1, **common)
        page = html.unescape(result.report(tmp_path / "page.html").read_text(encoding="utf-8"))
        hero = page[page.index('<header class="hero">') : page.index("</header>")]
        assert result.located == located, result.sentence
        assert ("not located" in hero) != located
        assert (">Settled<" in page or ">Still moving<" in page) == located
        assert (">The clients agree<" in page or ">The clients differ<" in page) == located
        assert ("estimate  not located" in result.to_text()) != located
        assert hero.index(result.headline) < hero.index(result.sentence)


def test_at_most_three_things_to_act_on_come_first(tmp_path: Path) -> None:
    result = made(tmp_path / "run.db")
    codes = ("central", "dominance", "weak", "slope", "misfit", "curvature", "file")
    many = replace(result, caveats=tuple(Caveat(code, f"About {code}.") for code in codes))
    text = many.to_text()
    first, rest = (text[text.index(head) :].splitlines()[1:] for head in ("Before you use it:", "Also:"))
    assert first[:4] == ["- About misfit.", "- About slope.", "- About curvature.", ""]
    assert rest == ["- About weak.", "- About dominance.", "- About file."]
    assert "About central." not in text
    view = RunView.read(tmp_path / "run.db", drawn=True)
    page = run_page(showing(view, many))
    hero = page[page.index('<header class="hero">') : page.index("</header>")]
    assert hero.count("! look here") == 3
    assert page.count("About weak.") == 2  # below, once, and in the page's data
    calm = replace(result, caveats=())
    assert "Before you use it" not in calm.to_text()
    assert calm.reliable
    assert not many.reliable


def test_no_advice_is_what_was_done_or_cannot_be_done() -> None:
    assert no_log(Log(1.0, 9.0))
    assert no_log(Linear(0.0, 9.0))
    assert not no_log(Linear(1.0, 9.0))
    people = np.random.default_rng(1).normal(50, 10, 30)
    given: list[tuple[dict[str, Any], bool]] = [({"not_private": True}, False), ({"epsilon": 0.5}, True)]
    for options, advised in given:
        told: QuantileResult = privatile.estimate(people[:20], range=(0, 1e6), simulate=True, rng=1, **options)
        assert not told.located
        assert ("larger ε" in " ".join(caveat.text for caveat in told.caveats)) == advised
