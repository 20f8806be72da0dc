"""Whole numbers that are declared: one number first, one pair of ends in all places, no word about smoothness."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privatile.api.groups import prepare_groups
from privatile.planning.options import Options
from privatile.planning.preview import GroupPreview, GroupPreviews, preview
from privatile.report.groups import page_of
from privatile.result.caveats import Caveat, caveat, open_on_one_side, said_once
from privatile.result.compare import Comparison, compare
from privatile.result.groups import GroupResults
from privatile.result.result import ConfidenceInterval, QuantileResult, Results
from privatile.result.shown import p_value_text
from privatile.run.status import beside
from tests.result.test_both_readings import AGES, run

HALF_OPEN = open_on_one_side("half-open", at_low=True)


@pytest.fixture(scope="module")
def ages() -> QuantileResult:
    return run(AGES, "whole")


@pytest.fixture(scope="module")
def stays() -> GroupResults:
    """Days in two wards, declared whole."""
    rng = np.random.default_rng(2)
    rows = np.empty(2_400, dtype=[("days", float), ("ward", "U5")])
    rows["ward"] = np.repeat(["a", "b"], 1_200)
    rows["days"] = rng.geometric(1 / 9, 2_400) + 4.0 * (rows["ward"] == "b")
    chosen = Options(value="days", by="ward", epsilon=4, range=(0, 100), value_kind="whole", rounds=24)
    return prepare_groups(rows, chosen, np.random.default_rng(1)).complete()


def test_the_headline_is_one_number_and_the_values_left_are_the_interval(ages: QuantileResult) -> None:
    assert ages.headline == f"{ages.estimate:g}"
    assert ages.estimate in (ages.grid_values or ())
    wide = replace(
        ages,
        grid_values=tuple(map(float, range(7, 64))),
        confidence_interval=ConfidenceInterval(6.6, 63.7),
        estimate=44.0,
        valid_at_every_look=False,
    )
    own = wide.shown.own
    assert (wide.headline, own.text, own.rounded, own.condition_code) == ("44", "7 … 63", ("6", "64"), "grid")
    assert f"the 95% interval runs from 7 to 63, {own.condition}." in wide.sentence
    # The interval without the declaration stands once, and says so.
    assert wide.to_text().count(" 64") == wide.to_text().count(f"if it is not so  {wide.shown.undeclared}") == 1
    assert wide.facts()["confidence_interval"] == {"low": 6.6, "high": 63.7}


def test_a_running_sentence_says_what_the_line_below_it_refers_to(ages: QuantileResult) -> None:
    ends = ConfidenceInterval(33.2, 48.9)
    so_far = replace(
        ages,
        confidence_interval=ends,
        anytime=ends,
        grid_values=tuple(map(float, range(34, 49))),
        estimate=39.0,
        valid_at_every_look=True,
        caveats=(Caveat("unfinished", ""),),
    )
    # Without a declaration nothing refers to it; nor where another sequence is shown, which does not rest on it.
    undeclared = replace(so_far, value_kind="any", grid_values=None, contradiction="")
    sequence = replace(
        so_far, anytime=ConfidenceInterval(32.2, 50.9), anytime_condition="smooth", valid_at_every_look=False
    )
    for result, low, high, code in (
        (so_far, "34", "48", "grid"),
        (undeclared, "33", "49", "any-shape"),
        (sequence, "32", "51", "smooth"),
    ):
        first = result.shown.first
        assert (first.ends, first.condition_code) == ((low, high), code)
        assert result.sentence.endswith(f"runs from {low} to {high}, {first.condition}.")
        told = any("If it is not so" in text for text in beside(result))
        assert told == bool(result.shown.undeclared) == (code == "grid")


def test_a_bound_of_whole_numbers_is_one(ages: QuantileResult) -> None:
    """ "11.7 or less" of whole days is "11 or less"; undeclared it stays as it is."""
    few = replace(
        ages,
        caveats=(HALF_OPEN,),
        confidence_interval=ConfidenceInterval(0.0, 11.7),
        grid_values=tuple(map(float, range(12))),
    )
    beside = replace(few, caveats=(Caveat("range", ""),))  # at the lower end of the range
    for one in (few, beside):
        assert (one.headline, one.shown.own.ends, one.shown.own.condition_code) == ("11 or less", ("0", "11"), "grid")
        assert one.shown.own.condition in one.sentence
    said = said_once([HALF_OPEN], [Caveat("range", ""), caveat("central")])
    assert [caveat.code for caveat in said] == ["range", "central"]
    assert said_once([HALF_OPEN], [caveat("central")]) == (HALF_OPEN, caveat("central"))
    assert replace(few, value_kind="any", grid_values=None).headline.startswith("11.")


@pytest.mark.parametrize("values", ["any", "whole"])
def test_nothing_is_said_about_smooth_intervals_where_whole_numbers_are_declared(values: str) -> None:
    result = run(AGES[:700], values, epsilon=1)
    assert any(caveat.code == "support" for caveat in result.caveats)
    shown = result.to_text(explain=True)
    assert ("smooth" in shown) == ("misfit" in shown) == (values == "any")


def test_the_table_of_groups_shows_whole_numbers_and_what_was_declared(stays: GroupResults) -> None:
    text, page = stays.to_text(), page_of(stays)
    for line in stays.lines():
        assert line.estimate == f"{line.place:g}"
        low, high = line.ends
        assert line.interval in (f"{low:g} … {high:g}", f"{low:g} or {high:g}", f"{low:g}")
        assert low == int(low)
        assert high == int(high)
        assert line.interval in text
        assert line.interval in page
    for shown in (text, page):
        assert "Declared: every value is a whole number." in shown.replace("\n", " ")
        assert "if every value is a whole number" in shown.replace("\n", " ")
        assert "Missing values: answered at random" in shown


def test_differences_of_whole_numbers_are_whole(stays: GroupResults) -> None:
    first, second = (group.result for group in stays)
    assert first is not None
    assert second is not None
    made = compare(first, second, disjoint=True)
    assert made.difference_shown == f"{made.difference:g}"
    low, high = made.confidence_interval
    assert [low <= float(made.ends_shown[0]), float(made.ends_shown[1]) <= high] == [True, True]
    assert all("." not in end for end in made.ends_shown)
    # The control: one of them undeclared, and the ends are rounded outward again.
    undeclared = compare(replace(first, value_kind="any", grid_values=None), second, disjoint=True)
    assert float(undeclared.ends_shown[0]) < low
    assert p_value_text(made.p_value) in made.to_text()


def test_an_interval_without_0_is_not_shown_from_0(ages: QuantileResult) -> None:
    """Its p-value says that there is a difference; an end at 0 would say that there may be none."""
    other = replace(ages, run="another", value_kind="any", grid_values=None)
    made = Comparison(ages, other, 5_000.0, ConfidenceInterval(412.0, 36_000.0), 0.95, 0.01)
    assert made.ends_shown == ("400", "36,000")
    below = replace(made, confidence_interval=ConfidenceInterval(-36_000.0, -12.0))
    assert float(below.ends_shown[1]) < 0.0
    assert replace(made, confidence_interval=ConfidenceInterval(-3.0, 36_000.0)).ends_shown[0] == "-1,000"


def test_an_estimate_that_was_not_located_is_no_number_for_programs(ages: QuantileResult) -> None:
    assert ages.facts()["estimate"] == ages.estimate
    lost = replace(ages, caveats=(open_on_one_side("half-open", at_low=False),))
    facts = lost.facts()
    assert (facts["estimate"], facts["reliable"]) == (None, False)
    assert facts["confidence_interval"] == ages.facts()["confidence_interval"]
    assert lost.to_frame("pyarrow").column("estimate").to_pylist() == [None]
    told = compare(replace(lost, run="another"), ages, disjoint=True).to_dict()
    assert told["difference"] is None


def test_several_results_say_how_to_take_one(ages: QuantileResult) -> None:
    several = Results((ages, replace(ages, reporter=None)))
    with pytest.raises(AttributeError, match=r"2 results, one per level: take one of them, results\[0\].estimate"):
        _ = several.estimate  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = several.nothing  # type: ignore[attr-defined]
    drawn = Results((replace(ages, reporter=Path), ages))
    assert drawn.report("x.html") == Path("x.html")


def test_a_share_is_never_shown_below_0(ages: QuantileResult) -> None:
    client = replace(ages.clients[0], local_rank=-0.013, local_rank_interval=(0.0, 0.1))
    shown = replace(ages, clients=(client,)).to_text()
    assert "about 0" in shown
    assert "-0.013" not in shown


def test_the_dry_run_of_groups_says_how_to_get_units(stays: GroupResults) -> None:
    result = stays["a"].result
    assert result is not None
    chosen = Options(value="days", by="ward", epsilon=4, range=(0, 100), value_kind="whole", rounds=24)
    rows = np.empty(1_200, dtype=[("days", float), ("ward", "U5")])
    rows["ward"], rows["days"] = np.repeat(["a", "b"], [800, 400]), 3.0
    runs = prepare_groups(rows, chosen, np.random.default_rng(1))
    found = ((one, preview(one.run.spec) if one.run else None) for one in runs.groups)
    groups = tuple(GroupPreview(one.name, one.records, known, one.why) for one, known in found)
    text = GroupPreviews("ward", groups, None).to_text()
    assert "privatile plan --records 400 --epsilon 4 --rounds 24 --value-kind whole --spread UNITS" in text
    assert "smooth" not in text
    assert preview(runs.runs[0].spec).to_text().count("privatile plan") == 1
