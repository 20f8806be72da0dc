"""What is known before anyone is asked is said then, by the rules that the result uses; and what would help."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privatile.api.local_run import LocalRun, prepare
from privatile.errors import InputError
from privatile.inference.reading import LITTLE
from privatile.planning.options import Options
from privatile.planning.preview import HEAPS, SAYS_NOTHING, Preview, preview
from privatile.planning.widths import from_spread

BEFOREHAND = {
    "support", "not-validated", "dominance", "not-private", "weak", "missing", "dither", "file", "person", "central",
    "unweighted", "survey-weights", "thin-tail",
}  # fmt: skip
"""Caveats that need no answer."""


def table() -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(5)
    rows = np.empty(1200, dtype=[("pay", float), ("region", "U9"), ("who", "U9"), ("weight", float), ("tail", float)])
    rows["region"] = np.where(np.arange(1200) < 60, "tiny", np.where(np.arange(1200) % 2 == 0, "north", "south"))
    rows["pay"], rows["weight"] = rng.normal(50, 10, 1200), rng.choice([1.0, 2.0], 1200)
    rows["tail"] = np.where(np.arange(1200) % 60 == 0, 8.0, 1.0)
    rows["who"] = [f"p{i}" for i in range(1200)]
    return rows


def made(folder: Path, **more: Any) -> LocalRun:
    given = {"value": "pay", "client": "region", "epsilon": 1, "range": (0, 100), "rounds": 20, **more}
    return prepare(table(), Options(person_key=folder / "people.key", **given), np.random.default_rng(1))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, {"support"}),
        ({"client_weights": "equal"}, {"support", "dominance"}),
        ({"epsilon": 12.0, "allow_weak": True}, {"weak"}),
        ({"epsilon": None, "not_private": True, "interval": "smooth", "target": "file"}, {"not-private", "file"}),
        ({"interval": "smooth", "missing": "drop"}, {"contradiction"}),
        ({"value_kind": "continuous", "rounds": 60}, {"declaration", "support"}),
        ({"dither": 0.5}, {"support", "dither"}),
        ({"person": "who", "q": (0.5, 0.9)}, {"person", "support"}),
        ({"weight": "weight", "rounds": None}, {"survey-weights"}),
        ({"weight": "tail", "rounds": None, "client": None}, {"survey-weights", "thin-tail"}),
        ({"until_width": 30.0}, {"support"}),
    ],
)
def test_a_dry_run_and_the_result_say_the_same(tmp_path: Path, more: dict[str, Any], said: set[str]) -> None:
    run = made(tmp_path, **more)
    known = preview(run.spec)
    results = run.complete()
    if "until_width" not in more:
        assert known.rounds == tuple(result.rounds for result in results)
    for found, result in zip(known.caveats, results, strict=True):
        before = {(one.code, one.text) for one in found if one != SAYS_NOTHING}
        known_then = (one for one in result.caveats if one.code in BEFOREHAND or LITTLE in one.text)
        assert before == {(one.code, one.text) for one in known_then}
        assert said <= {code for code, _ in before}
    text = known.to_text()
    for code, line in ((one.code, one.text) for one in known.caveats[0]):
        assert (line in text) == (code not in ("missing", "central", "unweighted"))


def test_the_dry_run_says_that_shared_values_widen_the_interval_unless_they_were_declared_away(tmp_path: Path) -> None:
    for values, said in (("any", True), ("continuous", False), ("whole", False)):
        assert (HEAPS in preview(made(tmp_path, value_kind=values, epsilon=6).spec).to_text()) == said


def test_the_dry_run_names_the_costly_client_and_what_would_help(tmp_path: Path) -> None:
    found = preview(made(tmp_path, client_weights="equal", epsilon=6).spec)
    size, without = found.cures
    assert (size.client, size.option, without.option) == ("tiny", "--client-weights size", "--leave-out tiny")
    assert "Client tiny makes up 8" in found.to_text()
    head, *rows = found.to_text().splitlines()[-3:]
    assert head.split(None, 2)[:2] == ["would", "help"]
    for row, cure in zip(rows, found.cures, strict=True):
        assert row.startswith(cure.option)
        assert f"{cure.times_as_wide:.2g} times as wide  " in row
    # What is promised is what a dry run with that option says, up to the price of less information.
    for cure, more in ((size, {"client_weights": "size"}), (without, {"client_weights": "equal", "leave_out": "tiny"})):
        cured = preview(made(tmp_path, epsilon=6, **more).spec)
        assert cured.rank_widths[0] / found.rank_widths[0] == pytest.approx(cure.times_as_wide, rel=0.15)
        assert cured.cures == ()
    assert preview(made(tmp_path, epsilon=6).spec).cures == ()


def test_what_is_too_small_is_said(tmp_path: Path) -> None:
    def said(**more: Any) -> Preview:
        return preview(made(tmp_path, leave_out=("north", "south"), **more).spec)

    assert said(epsilon=0.5).says_nothing
    assert "Too small" in said(epsilon=0.5).to_text()
    assert not preview(made(tmp_path).spec).says_nothing


def test_a_client_that_is_left_out_is_not_asked_and_not_meant(tmp_path: Path) -> None:
    epsilon = {"north": 2, "south": 1, "tiny": 1}
    weights = {"north": 0.4, "south": 0.4, "tiny": 0.2}
    run = made(tmp_path, leave_out="tiny", epsilon=epsilon, client_weights=weights)
    assert {client.name: client.weight for client in run.spec.clients} == {"north": 0.5, "south": 0.5}
    (result,) = run.complete()
    assert result.records == 1140
    assert "pay without tiny" in result.estimand
    with pytest.raises(InputError, match="leave_out names 'east', which is no client"):
        made(tmp_path, leave_out=("east",))
    with pytest.raises(InputError, match="nobody is left"):
        made(tmp_path, leave_out=("north", "south", "tiny"))
    # A client too small to be asked refuses the run, and the error names what leaves it out.
    with pytest.raises(InputError, match="leave_out='tiny'"):
        made(tmp_path, q=(0.2, 0.4, 0.6, 0.8))
    made(tmp_path, q=(0.2, 0.4, 0.6, 0.8), leave_out="tiny")


def test_the_dry_run_says_whether_the_asked_width_is_within_reach(tmp_path: Path) -> None:
    assert preview(made(tmp_path).spec).to_dict()["until_width"] is None
    run = made(tmp_path, until_width=2.0, epsilon=5, rounds=None)
    known = preview(run.spec)
    (found,) = known.reaches
    assert found.within_reach is None
    assert found.spread is not None
    assert f"- {found.text}" in known.to_text()
    assert known.to_dict()["until_width"] == [found.facts()]
    # With a guess on either side of that spread it is known, and said by the rule of the result.
    (near,) = preview(run.spec, from_spread(0.99 * found.spread)).reaches
    (far,) = preview(run.spec, from_spread(2.0 * found.spread)).reaches
    assert (near.within_reach, far.within_reach) == (True, False)
    assert "is out of reach: it takes 4 times the records" in far.text
    assert "it takes 4 times the records" in found.text
    (result,) = run.complete()
    (after,) = (one.text for one in result.caveats if one.code == "out-of-reach")
    assert after.startswith("The asked precision, a width of 2, is out of reach: it takes ")
    (whole,) = preview(made(tmp_path, until_width=100.0).spec).reaches
    assert whole.within_reach
    (nothing,) = preview(made(tmp_path, until_width=2.0, epsilon=0.05).spec).reaches
    assert (nothing.within_reach, nothing.spread) == (False, 0.0)
