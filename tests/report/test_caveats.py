"""Wherever a result is shown, it carries the same caveats."""

from __future__ import annotations

import ast
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import privatile
from privatile.cli import main
from privatile.dashboard.live import LiveRun
from privatile.report.findings import CAVEAT_TITLES, WORRIES
from privatile.report.view import read_view
from privatile.result.compare import compare
from privatile.result.result import QuantileResult
from privatile.server.coordinator import Coordinator
from privatile.server.run_file import RunStore

SOURCE = Path(privatile.__file__).parent
STANDING = {"central", "survey-weights"}


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
    texts = [caveat.text for caveat in result.caveats]
    assert {caveat.code for caveat in result.caveats} >= STANDING
    store = RunStore.open(path, read_only=True)
    assert Coordinator(store).results()[0].caveats == result.caveats  # what `serve` and `release` show
    store.close()
    seen = read_view(path).levels[0].result
    assert seen is not None
    assert seen.caveats == result.caveats
    live = LiveRun(path)
    live.refresh()
    assert [caveat["text"] for caveat in live.state["levels"][0]["caveats"]] == texts
    live.close()
    done = CliRunner().invoke(main, ["report", str(path), "-o", str(tmp_path / "from-file.html")])
    assert done.exit_code == 0, done.output
    pages = [
        path.read_text(encoding="utf-8")
        for path in (tmp_path / "from-file.html", result.report(tmp_path / "from-result.html"))
    ]
    watched = re.sub(r"\s+", " ", CliRunner().invoke(main, ["watch", str(path), "--once"]).output)
    for text in texts:
        assert text in result.to_text()
        assert html.escape(text) in result.to_html()
        assert text in watched
        for page in pages:
            assert text in html.unescape(page)
    for page in pages:
        facts = json.loads(re.search(r'id="facts">(.*?)</script>', page, re.S)[1])  # type: ignore[index]
        assert [caveat["text"] for caveat in facts["results"][0]["caveats"]] == texts


@pytest.mark.slow
def test_a_run_per_person_says_so_from_its_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    rows = [f"{number % 900},{value:.3f}" for number, value in enumerate(np.random.default_rng(1).normal(50, 9, 1000))]
    (tmp_path / "people.csv").write_text("who,pay\n" + "\n".join(rows) + "\n")
    command = (
        f"estimate {tmp_path}/people.csv --value pay --person who --epsilon 1 --range 0 100 --save {tmp_path}/run.db"
    )
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code == 0, done.output
    seen = read_view(tmp_path / "run.db").levels[0].result
    assert seen is not None
    codes = [caveat.code for caveat in seen.caveats]
    assert codes.count("person") == 1
    assert codes[-2:] == ["central", "survey-weights"]


def test_a_comparison_carries_those_of_both(tmp_path: Path) -> None:
    first, second = made(tmp_path / "a.db"), made(tmp_path / "b.db", target="file", values="continuous")
    text = compare(first, second, disjoint=True).to_text()
    shared = next(caveat.text for caveat in first.caveats if caveat.code == "central")
    assert text.count(shared) == 1
    only = next(caveat.text for caveat in second.caveats if caveat.code == "file")
    assert f"- second: {only}" in text


def codes_in_source() -> set[str]:
    """The first argument of every Caveat(...) in the package."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Caveat"
            if named and isinstance(node, ast.Call) and isinstance(node.args[0], ast.Constant):
                found.add(str(node.args[0].value))
    return found


@pytest.mark.slow
def test_every_caveat_has_a_title_and_every_title_a_caveat() -> None:
    assert codes_in_source() == set(CAVEAT_TITLES)
    assert set(CAVEAT_TITLES) >= WORRIES
