import math
import re
from typing import Any

import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.errors import InputError
from privatile.estimator.clients import Client
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.inference.inference import level_each
from privatile.planning.plan import plan_run
from privatile.planning.preview import Preview, preview
from privatile.planning.widths import any_shape_factor, from_densities, from_spread, inflation, smooth_factor


def client(name: str, records: int, epsilon: float, weight: float) -> Client:
    return Client(name, RandomizedResponse.from_epsilon(epsilon), weight, 0.5, records)


def clients(count: int = 4, records: int = 5000, epsilon: float = 1.0) -> list[Client]:
    return [client(f"c{k}", records, epsilon, 1 / count) for k in range(count)]


@pytest.mark.parametrize(("values", "target"), [("any", 0.06), ("continuous", 0.02)])
def test_a_target_is_met_by_what_the_plan_says_it_takes(values: str, target: float) -> None:
    first, other = plan_run([0.5], clients(), width=target, value_kind=values).needs
    assert first.method == ("smooth" if values == "continuous" else "any-shape") != other.method
    assert first.people is not None
    assert first.epsilon is not None
    more = clients(records=first.people // 4)
    assert plan_run([0.5], more, value_kind=values).preview.rank_widths[0] == pytest.approx(target, rel=2e-3)
    richer = clients(epsilon=first.epsilon)
    assert plan_run([0.5], richer, value_kind=values).preview.rank_widths[0] == pytest.approx(target, rel=1e-3)
    # A number that is one in twenty too small does not do: the plan's numbers are the least.
    fewer = clients(records=round(0.95 * first.people / 4))
    assert plan_run([0.5], fewer, value_kind=values).preview.rank_widths[0] > target


def test_a_plan_finds_people_or_epsilon_and_is_then_about_them() -> None:
    people = plan_run([0.5], clients(records=1_000_000), wanted="people", width=0.06)
    epsilon = plan_run([0.5], clients(), wanted="epsilon", width=0.06)
    for made in (people, epsilon):
        assert made.preview.rank_widths[0] == pytest.approx(0.06, rel=1e-3)
        assert made.preview.rank_widths[0] <= 0.06
    assert people.people == people.needs[0].people == pytest.approx(53_264, rel=1e-3)
    assert "about 53,300 people" in people.to_text()
    assert "With 5,000 people at each of 4 clients" in epsilon.to_text()
    # One number for one thing.
    alone = plan_run([0.5], clients(1), wanted="people", width=0.06).to_text()
    assert re.findall("about ([0-9,]+) people", alone)[::2] == ["53,300"] * 2
    # What was given is not looked for.
    assert people.needs[0].epsilon is None
    assert epsilon.needs[0].people is None
    assert epsilon.preview.spec.clients[0].mechanism.epsilon == pytest.approx(epsilon.needs[0].epsilon)
    with pytest.raises(InputError, match="give the width"):
        plan_run([0.5], clients(), wanted="people")


def test_levels_share_the_people_and_each_is_as_narrow_as_asked_for() -> None:
    levels = (0.25, 0.5)
    made = plan_run(levels, clients(), wanted="people", width=0.06)
    alone = plan_run([0.5], clients(), wanted="people", width=0.06)
    assert max(made.preview.rank_widths) == pytest.approx(0.06, rel=1e-3)
    assert made.people == pytest.approx(2 * alone.people, rel=1e-3)
    joint = plan_run(levels, clients(), wanted="people", width=0.06, simultaneous=True)
    assert joint.people > 1.1 * made.people


def test_no_smooth_interval_is_promised_where_none_would_be_shown() -> None:
    # Below an information of 150 the formula gives a seventh of what simulated runs give.
    made = plan_run([0.5], clients(count=1), wanted="people", width=0.2, value_kind="continuous")
    assert made.preview.information[0].value == pytest.approx(150.0, rel=0.01)
    assert made.preview.rank_widths[0] < 0.2
    few = plan_run([0.5], clients(count=1, records=1000), value_kind="continuous")
    assert few.preview.widths[0][0].method == "any-shape"


def test_no_budget_makes_up_for_too_few_records() -> None:
    made = plan_run([0.5], clients(records=200), width=0.002)
    assert made.needs[0].epsilon is None
    assert "no ε up to 10 is enough" in made.to_text()
    # Where the ε was to be found, none is made up for those who cannot have the width; the control has one.
    lost, found = (plan_run([0.5], clients(), wanted="epsilon", width=width).to_text() for width in (0.001, 0.06))
    assert "no ε up to 10 is enough" in lost
    assert ("With " in lost, "With " in found) == (False, True)


def test_the_plan_that_a_preview_names_has_its_rounds_and_levels_share_a_warning() -> None:
    threshold = RandomizedResponse.from_epsilon(1.0).threshold
    small = (ClientSpec("all", threshold, 0.98, 7840), ClientSpec("islands", threshold, 0.02, 160))

    def of(*held: ClientSpec, levels: tuple[float, ...] = (0.5,)) -> Preview:
        return preview(RunSpec("x", levels, held, "linear", 0.0, 1.0, weighting="size"))

    (command,) = of(*small).in_units()
    assert f"--records 8000 --epsilon 1 --rounds {of(*small).rounds[0]} --spread" in command
    (alone,) = of(ClientSpec("all", threshold, 1.0, 8000)).in_units()
    assert "--rounds" not in alone
    warned = [text for _, text in of(ClientSpec("all", threshold, 1.0, 8000), levels=(0.1, 0.3, 0.9)).warnings()]
    assert any(text.endswith("(Levels 0.1, 0.9.)") for text in warned)
    assert len(set(warned)) == len(warned)


def test_units_follow_from_a_guess_of_the_distribution() -> None:
    flat = from_densities({0.5: 0.04}, "known")
    made = plan_run([0.5], clients(), guess=flat, width=0.6)
    (first, other) = made.preview.widths[0]
    for one in (first, other):
        assert one.width == pytest.approx(one.rank_width / 0.04)
    assert first.width is not None
    # A little less than the square: more records also lower the price.
    assert made.needs[0].times_the_people == pytest.approx((first.width / 0.6) ** 2, rel=0.1)
    # From the distance between the quartiles: that of a normal law, and of its quantiles far from the middle.
    normal = from_spread(1.349)
    (wide, _) = plan_run([0.5], clients(), guess=normal).preview.widths[0]
    assert wide.width == pytest.approx(first.rank_width / 0.39894, rel=1e-2)
    assert plan_run([0.99], clients(records=500), guess=normal).preview.widths[0][0].width == math.inf


def test_weights_cost_nothing_when_they_are_the_precise_ones() -> None:
    rates = [(1000, 0.5), (8000, 1.0), (3000, 2.0)]
    equal = [client(f"c{k}", n, e, 1.0) for k, (n, e) in enumerate(rates)]
    assert plan_run([0.5], equal).weights_cost > 1.05
    precise = [client(c.name, c.records, c.mechanism.epsilon, c.records * c.mechanism.truth_rate**2) for c in equal]
    assert plan_run([0.5], precise).weights_cost == pytest.approx(1.0, abs=1e-9)


def test_inflation_falls_with_information_and_is_large_without() -> None:
    values = [inflation(info, 200) for info in (300, 1000, 10_000, 1e6)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(1.055, abs=0.02)  # the study finds 1.05 to 1.08
    assert inflation(1.0, 20) > 2.0


def test_the_price_of_every_distribution_is_what_was_measured() -> None:
    for info, factor in ((150.0, 3.9), (600.0, 3.4), (6000.0, 3.2), (1e7, 3.2)):
        assert any_shape_factor(info) == pytest.approx(factor)
    values = [any_shape_factor(info) for info in (20.0, 100.0, 150.0, 300.0, 600.0, 2000.0, 6000.0)]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == len(values)
    # Over one that knows the distribution: at a lower confidence the ends are bought at the price of 95%.
    assert any_shape_factor(6000.0, 0.8) > any_shape_factor(6000.0, 0.95) > any_shape_factor(6000.0, 0.99)
    assert smooth_factor(150.0, 200) > inflation(150.0, 200)


def test_a_plan_shows_both_intervals_each_with_its_condition() -> None:
    members = clients(records=20_000)
    made, declared = plan_run([0.5], members), plan_run([0.5], members, value_kind="continuous")
    assert made.preview.widths[0] == declared.preview.widths[0][::-1]
    assert made.preview.widths[0][0].rank_width > 2.5 * made.preview.widths[0][1].rank_width
    first, second = (line for line in made.to_text().splitlines() if line.startswith("- "))
    assert "holds whatever the distribution" in first
    assert "If the values are continuous and their distribution is smooth around the quantile" in second
    assert "--value-kind continuous" in second
    assert [one["method"] for one in made.to_dict()["expected_intervals"][0]] == ["any-shape", "smooth"]
    assert "Beware" not in made.to_text()
    whole = plan_run([0.5], members, value_kind="whole", width=0.06)
    assert [one["method"] for one in whole.to_dict()["expected_intervals"][0]] == ["any-shape"]
    assert [need.method for need in whole.needs] == ["any-shape"]
    assert "continuous" not in whole.to_text()
    assert "- Without this declaration: the 95% interval that holds whatever" in declared.to_text()


def test_a_plan_says_where_the_answers_may_bound_nothing() -> None:
    made = plan_run([0.5], clients(count=1, records=1000))
    assert "it may be wide or reach the ends of the range" in made.to_text()
    # The smooth interval is not shown then, and its questions serve no other: no plan may promise it.
    for values in ("any", "continuous"):
        shown = plan_run([0.5], clients(count=1, records=1000), value_kind=values).to_text()
        assert (
            shown.count("Below an information of 150 it is not shown, and to declare it widens the one that is.") == 1
        )
    assert "it is not shown" not in plan_run([0.5], clients(records=20_000)).to_text()


@pytest.mark.parametrize(
    "wrong", [{"levels": [0.0]}, {"confidence_level": 1.0}, {"width": 0.0}, {"levels": [0.5, 0.5]}, {"clients": []}]
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    levels, members = wrong.pop("levels", [0.5]), wrong.pop("clients", clients())
    with pytest.raises(InputError):
        plan_run(levels, members, **wrong)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_no_guess_is_made_of_nonsense(wrong: float) -> None:
    with pytest.raises(InputError, match="positive number"):
        from_spread(wrong)
    with pytest.raises(InputError, match="positive number"):
        from_densities({0.5: wrong}, "")


def test_a_run_that_stops_by_its_width_is_promised_a_smooth_interval_for_every_look() -> None:
    for values, place, straddled in (("any", 1, 1.05), ("continuous", 0, 1.0)):
        fixed, looked_at = (
            made_preview(value_kind=values, **more).to_dict()["expected_intervals"][0]
            for more in ({}, {"until_width": 5.0})
        )
        ratio = looked_at[place]["width_in_rank"] / fixed[place]["width_in_rank"]
        assert ratio == pytest.approx(straddled * 2.723 / 1.960, rel=1e-3)
        assert looked_at[1 - place] == fixed[1 - place]


def made_preview(**settings: Any) -> Preview:
    one = ClientSpec("all", RandomizedResponse.from_epsilon(1.0).threshold, 1.0, 20_000)
    levels = settings.pop("levels", (0.5,))
    return preview(RunSpec(value="x", levels=levels, clients=(one,), scale="linear", low=0.0, high=100.0, **settings))


@pytest.mark.parametrize(
    ("settings", "methods", "known"),
    [
        ({}, ["any-shape", "smooth"], [True, True]),
        ({"value_kind": "continuous"}, ["smooth", "any-shape"], [True, True]),
        ({"value_kind": "whole"}, ["any-shape"], [True]),
        ({"until_width": 5.0}, ["any-shape", "smooth"], [True, True]),
        ({"design": "tuned"}, ["any-shape", "smooth"], [False, True]),
        ({"design": "rounds"}, ["any-shape", "self-normalized"], [False, True]),
        ({"design": "rounds", "value_kind": "continuous"}, ["smooth", "self-normalized"], [False, True]),
        ({"design": "rounds", "interval": "self-normalized"}, ["self-normalized"], [True]),
        ({"design": "rounds", "mode": "local"}, ["self-normalized"], [True]),
    ],
)
def test_a_preview_predicts_the_interval_that_is_shown_or_says_that_it_cannot(
    settings: dict[str, Any], methods: list[str], known: list[bool]
) -> None:
    made = made_preview(**settings)
    facts = made.to_dict()["expected_intervals"][0]
    assert [one["method"] for one in facts] == methods
    assert [one["width_in_rank"] is not None for one in facts] == known
    assert ("not known beforehand" in made.to_text()) == (not all(known))
    assert "nan" not in made.to_text()
    assert made.to_dict()["expected_width_in_rank"] == [facts[0]["width_in_rank"]]


def test_a_preview_of_a_fixed_design_names_the_interval_it_predicts() -> None:
    first, second = (line for line in made_preview(design="rounds").to_text().splitlines() if line.startswith("- "))
    assert "the 95% interval that holds whatever the distribution: its width is not known" in first
    assert second.startswith("- The self-normalised 95% interval would be about 0.0")
    assert second.endswith("(--interval self-normalized).")


def test_a_preview_names_the_plan_that_gives_units() -> None:
    command = "privatile plan -q 0.25 -q 0.5 --records 20000 --epsilon 1 --spread UNITS"
    made = made_preview(levels=(0.25, 0.5), weighting="size")
    assert command in made.to_text()
    assert plan_run((0.25, 0.5), clients(count=1, records=20_000)).preview.rank_widths == made.rank_widths
    assert "UNITS" not in made_preview(weighting="equal").to_text()
    told = made_preview(
        levels=(0.25, 0.5),
        weighting="size",
        confidence_level=0.9,
        value_kind="continuous",
        simultaneous=True,
        rounds=100,
    )
    options = "--rounds 100 --confidence-level 0.9 --simultaneous --value-kind continuous --spread UNITS"
    assert command.replace("--spread UNITS", options) in told.to_text()


def test_no_interval_is_wider_in_rank_than_all_quantiles() -> None:
    few = plan_run((0.5,), clients(count=1, records=40)).preview
    assert few.rank_widths[0] > 1.0  # by the formula
    assert few.to_dict()["expected_width_in_rank"] == [1.0]
    assert few.to_dict()["expected_intervals"][0][0]["width_in_rank"] == 1.0
    assert "about 1 wide in rank, from the 0.0000 to the 1.0000 quantile" in "\n".join(few.lines())
    assert plan_run((0.5,), clients(count=1, records=9000), width=1.0).target_width == 1.0
    with pytest.raises(InputError, match=r"at most 1; got 1\.5: give --spread, --population or --like"):
        plan_run((0.5,), clients(count=1, records=9000), width=1.5)


@pytest.mark.parametrize("settings", [{}, {"value_kind": "continuous"}, {"interval": "self-normalized"}])
def test_a_preview_of_simultaneous_levels_is_that_of_the_level_each_has(settings: dict[str, Any]) -> None:
    levels = (0.25, 0.5, 0.75)
    joint = made_preview(levels=levels, simultaneous=True, **settings)
    each = made_preview(levels=levels, confidence_level=level_each(0.95, 3), **settings)
    alone = made_preview(levels=levels, **settings)
    assert joint.rank_widths == each.rank_widths
    assert min(joint.rank_widths) > 1.1 * min(alone.rank_widths)
    assert "all 3 intervals hold at once" in joint.to_text()
    assert "at once" not in alone.to_text()
