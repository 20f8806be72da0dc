"""Estimates by group: each is the run that the group alone would have been; nobody answers twice; small groups spare
their people."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privatile
from privatile.api.groups import prepare_groups
from privatile.api.local_run import prepare
from privatile.errors import InputError
from privatile.planning.options import Options
from privatile.report.groups import figure_of, page_of
from privatile.result.caveats import Caveat
from privatile.result.compare import compare, compare_all
from privatile.result.document import frame
from privatile.result.groups import GroupOutcome, GroupResults
from tests.api.test_only import options, table
from tests.cli.test_estimate import here
from tests.cli.test_result_json import VALIDATOR

FEW = {"rounds": 24}
"""Few rounds: what is tested does not depend on them."""


def simulated(data: object = None, seed: int = 1, **more: Any) -> GroupResults:
    chosen = Options(**{"value": "pay", "epsilon": 4, "range": (0, 100), "by": "region", **FEW, **more})
    return prepare_groups(table() if data is None else data, chosen, np.random.default_rng(seed)).complete()


@pytest.fixture(scope="module")
def both() -> GroupResults:
    """Two regions, asked pointwise."""
    return simulated()


def renamed(results: GroupResults, **names: str) -> GroupResults:
    return replace(results, groups=tuple(group._replace(name=names[group.name]) for group in results))


def facts(result: Any) -> dict[str, Any]:
    return {key: value for key, value in result.facts().items() if key not in ("run", "date")}


def test_a_group_is_the_single_run_with_the_same_records_and_coins(both: GroupResults) -> None:
    """North is asked first, so its coins are those of the single run; without noise every group's run is the same."""
    single = privatile.estimate(
        table(), value="pay", epsilon=4, range=(0, 100), only={"region": "north"}, simulate=True, rng=1, rounds=24
    )
    assert facts(both["north"].result) == facts(single)
    assert facts(both["south"].result) != facts(single)
    plain: dict[str, Any] = {"value": "pay", "range": (0, 100), "not_private": True, **FEW}
    exact = simulated(epsilon=None, not_private=True)
    for name in ("north", "south"):
        alone = privatile.estimate(table(), client="region", only=name, simulate=True, rng=1, **plain)
        assert facts(exact[name].result) == facts(alone)


def test_the_table_is_sorted_fits_and_says_how_to_read_it(both: GroupResults) -> None:
    text = both.to_text()
    assert [line.name for line in both.lines()] == ["south", "north"]
    assert text.index("south") < text.index("north")
    assert max(map(len, text.splitlines())) <= 80
    assert "Each interval holds by itself with 95% confidence" in text
    assert "it does not follow from the groups" in text
    long = renamed(both, north="n" * 99, south="s" * 99)
    assert max(map(len, long.to_text().splitlines())) <= 80
    VALIDATOR.validate(json.loads(both.to_json()))
    assert both.to_frame("pyarrow").column("group").to_pylist() == ["north", "south"]
    assert "<td>" in both._repr_html_()


def test_simultaneous_intervals_are_those_of_the_root_of_the_confidence(both: GroupResults) -> None:
    """Two groups: (c^(1/2))² = c. Pointwise each has c itself, and is narrower."""
    together = simulated(simultaneous=True)
    levels = {result.confidence_level for _, result in together.results}
    assert levels == {0.95**0.5}
    assert re.search(
        "Both intervals hold together with 95% confidence.*each by itself with 97.47%", together.notes()[0]
    )
    for (name, wide), (_, narrow) in zip(together.results, both.results, strict=True):
        low, high = narrow.confidence_interval
        assert wide.confidence_interval.low <= low <= high <= wide.confidence_interval.high, name
        assert wide.confidence_interval == narrow.interval(0.95**0.5)


def test_levels_and_groups_share_the_confidence() -> None:
    """Two groups and three levels: (c^(1/2))^(1/3) each."""
    chosen = Options(value="pay", epsilon=4, range=(0, 100), by="region", q=(0.25, 0.5, 0.75), simultaneous=True)
    for run in prepare_groups(table(), chosen, np.random.default_rng(1)).runs:
        assert (run.spec.confidence_level, run.spec.joint) == (0.95**0.5, 3)


def test_small_groups_give_their_range_and_hold_up_nobody() -> None:
    rows = table()
    rows["region"][:30], rows["region"][30:33], rows["region"][33:35] = "east", "", "west"
    rows["pay"][33:35] = np.nan
    results = simulated(rows, epsilon=3)
    assert [group.name for group in results] == ["east", "north", "south", "west"]
    assert not results["east"].results
    assert "too small" in results["east"].why
    assert results["west"].why
    assert results.ungrouped == 3
    assert not results.reliable
    last = {line.name: (line.asked, line.estimate, line.interval) for line in results.lines()[-2:]}
    assert last == {"east": (0, "", ""), "west": (0, "", "")}
    assert "east (30 records)" in results.to_text()
    told = json.loads(results.to_json())
    VALIDATOR.validate(told)
    east = next(one for one in told["results"] if one["group"] == "east")
    assert (east["estimate"], east["confidence_interval"], east["reliable"]) == (None, None, False)
    assert "too small" in east["why"]
    assert told["groups"][0] == {"name": "east", "records": 30, "asked": 0, "why": results["east"].why}
    assert [one["group"] for one in told["results"]] == ["east", "north", "south", "west"]
    assert results.to_frame("pyarrow").column("why").to_pylist()[1:3] == ["", ""]
    rows["region"] = "east"
    with pytest.raises(InputError, match="too small"):
        simulated(rows[:40], epsilon=0.5)


def test_what_cannot_be_grouped_is_refused() -> None:
    for more, words in (
        ({"by": "pay"}, "cannot form groups"),
        ({"by": "who", "person": None}, "different entries, and a table may have 1,000 groups"),
        ({"by": "region", "client": "region"}, "columns of their own"),
        ({"by": ("region", "region")}, "columns of their own"),
        ({"by": "region", "only": "north"}, "give the condition with its column"),
        ({"by": "region", "q": {"north": 0.5, "south": 0.4}}, "same levels for all groups"),
        ({"by": "county"}, "there is no column 'county'"),
        ({"by": "region", "epsilon": {"north": 1.0}}, "epsilon is missing for client 'south'"),
    ):
        with pytest.raises(InputError, match=words):
            simulated(**more)


def test_budgets_by_group_and_groups_with_clients_and_conditions() -> None:
    results = simulated(epsilon={"north": 2.0, "south": 4.0}, only={"sex": "f"})
    assert {name: round(result.epsilon, 6) for name, result in results.results} == {"north": 2.0, "south": 4.0}
    assert results["north"].records == 400
    crossed = simulated(by="sex", client="region")
    assert [client.name for client in crossed["f"].result.clients] == ["north, f", "south, f"]  # type: ignore[union-attr]


def test_many_differences_share_the_error() -> None:
    """m differences: each with the m-th part of the error, p-values times m; at that confidence both agree."""
    results = simulated(by=("region", "sex"))
    alone, shared = (compare_all(results, disjoint=False, simultaneous=each) for each in (False, True))
    assert len(shared.pairs) == 6
    for one, other in zip(alone.pairs, shared.pairs, strict=True):
        assert (one.first, one.second) == (other.first, other.second)
        assert other.comparison.confidence_level == pytest.approx(1 - 0.05 / 6)
        assert shared.p_value(other) == pytest.approx(min(1.0, 6 * alone.p_value(one)))
    VALIDATOR.validate(json.loads(shared.to_json()))
    assert max(map(len, shared.to_text().splitlines())) <= 80


def test_a_difference_from_what_was_not_located_has_no_number(both: GroupResults) -> None:
    """A reason stands for it; a small difference is not rounded to 0, and is the same however it is reported."""
    north, south = (both[name].result for name in ("north", "south"))
    assert north is not None
    assert south is not None
    lost = replace(south, estimate=90.0, caveats=(Caveat("not-located", "The answers say nothing."),))
    near = replace(north, estimate=north.estimate + 2e-3, run="another")
    three = replace(
        both,
        groups=(
            GroupOutcome("north", (north,), 800),
            GroupOutcome("near", (near,), 800),
            GroupOutcome("west", (lost,), 800),
        ),
    )
    alone, together = (compare_all(three, disjoint=True, simultaneous=each) for each in (False, True))
    rows = {line.name: (line.estimate, line.p_value, line.is_located) for line in alone.lines()}
    assert rows["near − north"][0] == "0.002" == together.lines()[0].estimate
    assert rows["near − west"] == rows["north − west"] == ("", "–", False)
    assert "west: not located. Differences from it are not to be relied on." in alone.notes()
    assert "0.002" in compare(near, north, disjoint=True).to_text()
    (one,) = (compare_all(replace(three, groups=three.groups[:2]), disjoint=True, simultaneous=True),)
    assert one.notes()[0] == "The interval holds with 95% confidence."
    assert "not located" in page_of(alone)
    assert figure_of(alone) is not None


def test_a_table_of_no_results_has_its_columns() -> None:
    made = frame([], "pyarrow", {"group": []})
    assert made.num_rows == 0
    assert made.column_names[:2] == ["group", "column"]
    assert made.column_names[-1] == "caveats"


def test_a_group_that_has_answered_is_passed_over(tmp_path: Path) -> None:
    prepare(table(), options(tmp_path, only={"region": "north"})).complete()
    results = prepare_groups(table(), options(tmp_path, by="region")).complete()
    assert "have answered before" in results["north"].why
    assert results["south"].records == 1600


def test_a_person_with_records_in_two_groups_answers_in_one_of_them(tmp_path: Path) -> None:
    rows = np.concatenate([table(), table()])
    rows["region"][2400:] = "west"
    results = prepare_groups(
        rows, options(tmp_path, by="region", person="who", person_key=tmp_path / "people.key")
    ).complete()
    assert sum(result.records for _, result in results.results) == 2400
    assert abs(results["west"].asked - 1200) < 6 * np.sqrt(2400) / 2  # one of a person's two records, at random


def test_on_the_command_line(tmp_path: Path) -> None:
    from tests.api.test_only import written

    written(tmp_path, table(missing=True))
    base = (
        "estimate",
        "pay.csv",
        "--value",
        "pay",
        "--epsilon",
        4,
        "--range",
        0,
        100,
        "--rounds",
        24,
        "--by",
        "region",
    )
    dry = here(tmp_path, *base, "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "2,370 records would answer once each" in dry.stdout
    assert "30 records without region: would not be asked" in dry.stderr
    done = here(tmp_path, *base, "--save", "regions", "--json")
    assert done.returncode == 0, done.stderr
    VALIDATOR.validate(json.loads(done.stdout))
    again = here(tmp_path, *base, "--save", "regions")
    assert "Finished: 2 of 2 runs; their people are not asked again" in again.stderr
    assert "The median of pay by region" in again.stdout
    assert here(tmp_path, "report", "regions", "--text").stdout == again.stdout
    made = here(tmp_path, "report", "regions", "-o", "regions.html", "--simultaneous")
    assert made.returncode == 0, made.stderr
    assert "Both intervals hold together" in (tmp_path / "regions.html").read_text()
    assert here(tmp_path, "compare", "regions", "-o", "d.html").returncode == 0
    assert "no difference" in (tmp_path / "d.html").read_text()
    both = ("regions/north.db", "regions/south.db")
    three = here(tmp_path, "compare", *both, "regions/north.db", "--disjoint")
    assert three.returncode == 2
    assert "named twice" in three.stderr
    assert here(tmp_path, *base, "--dashboard").returncode == 2
    (tmp_path / "taken").write_text("")
    with_file = here(tmp_path, *base, "--save", "taken", "--spend-again")
    assert with_file.returncode == 2
    assert "save names a folder" in with_file.stderr.replace("--save", "save")
