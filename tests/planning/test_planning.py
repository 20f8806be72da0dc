import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.errors import InputError
from privatile.estimator.clients import Client
from privatile.planning.expected_width import any_shape_factor, inflation, smooth_factor
from privatile.planning.plan import plan_run


def client(name: str, records: int, epsilon: float, weight: float) -> Client:
    return Client(name, RandomizedResponse.from_epsilon(epsilon), weight, 0.5, records)


def clients(count: int = 4, records: int = 5000, epsilon: float = 1.0) -> list[Client]:
    return [client(f"c{k}", records, epsilon, 1 / count) for k in range(count)]


@pytest.mark.parametrize(("values", "target"), [("any", 0.03), ("continuous", 0.01)])
def test_a_target_is_met_by_what_the_plan_says_it_takes(values: str, target: float) -> None:
    made = plan_run(0.5, clients(), half_width=target, values=values)
    assert made.records_factor is not None
    assert made.epsilon_factor is not None
    more = [client(c.name, round(c.records * made.records_factor), c.mechanism.epsilon, c.weight) for c in clients()]
    assert plan_run(0.5, more, values=values).rank_half_width == pytest.approx(target, rel=2e-3)
    richer = [client(c.name, c.records, c.mechanism.epsilon * made.epsilon_factor, c.weight) for c in clients()]
    assert plan_run(0.5, richer, values=values).rank_half_width == pytest.approx(target, rel=1e-3)


def test_no_budget_makes_up_for_too_few_records() -> None:
    made = plan_run(0.5, clients(records=200), half_width=0.001)
    assert made.epsilon_factor is None
    assert "no ε reaches it" in made.to_text()


def test_units_follow_from_the_density() -> None:
    made = plan_run(0.5, clients(), density=0.04, half_width=0.3)
    assert made.half_width == pytest.approx(made.rank_half_width / 0.04)
    assert made.half_width is not None
    # A little less than the square: more records also lower the price.
    assert made.records_factor == pytest.approx((made.half_width / 0.3) ** 2, rel=0.1)
    assert made.other.half_width == pytest.approx(made.other.rank_half_width / 0.04)


def test_weights_cost_nothing_when_they_are_the_precise_ones() -> None:
    rates = [(1000, 0.5), (8000, 1.0), (3000, 2.0)]
    equal = [client(f"c{k}", n, e, 1.0) for k, (n, e) in enumerate(rates)]
    assert plan_run(0.5, equal).weights_cost > 1.05
    precise = [client(c.name, c.records, c.mechanism.epsilon, c.records * c.mechanism.truth_rate**2) for c in equal]
    assert plan_run(0.5, precise).weights_cost == pytest.approx(1.0, abs=1e-9)


def test_inflation_falls_with_information_and_is_large_without() -> None:
    values = [inflation(info, 200) for info in (300, 1000, 10_000, 1e6)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(1.055, abs=0.02)  # the study finds 1.05 to 1.08
    assert inflation(1.0, 20) > 2.0


def test_the_price_of_every_distribution_is_what_was_measured() -> None:
    for info, factor in ((150.0, 3.8), (600.0, 3.3), (6000.0, 3.1), (1e7, 3.1)):
        assert any_shape_factor(info) == pytest.approx(factor)
    values = [any_shape_factor(info) for info in (20.0, 100.0, 150.0, 300.0, 600.0, 2000.0, 6000.0)]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == len(values)
    # Over one that knows the distribution: at a lower confidence the ends are bought at the price of 95%.
    assert any_shape_factor(6000.0, 0.8) > any_shape_factor(6000.0, 0.95) > any_shape_factor(6000.0, 0.99)
    assert smooth_factor(150.0, 200) > inflation(150.0, 200)


def test_a_plan_shows_both_intervals_each_with_its_condition() -> None:
    members = clients(records=20_000)
    made, declared = plan_run(0.5, members), plan_run(0.5, members, values="continuous")
    assert (made.headline, made.other) == (declared.other, declared.headline)
    assert made.headline.rank_half_width > 2.5 * made.other.rank_half_width
    assert made.rank_half_width == made.headline.rank_half_width
    first, second = (line for line in made.to_text().splitlines() if line.startswith("- "))
    assert "holds whatever the distribution" in first
    assert "If the values are continuous and their distribution is smooth around the quantile" in second
    assert "--values continuous" in second
    assert [one["method"] for one in made.to_dict()["intervals"]] == ["any-shape", "smooth"]
    assert "may leave one side" not in made.to_text()
    assert "- Without this declaration: the 95% interval that holds whatever" in declared.to_text()


def test_a_plan_says_where_the_answers_may_bound_nothing() -> None:
    made = plan_run(0.5, clients(count=1, records=1000))
    assert made.information < 100
    assert "may leave one side of the interval open" in made.to_text()


@pytest.mark.parametrize("wrong", [{"level": 0.0}, {"confidence_level": 1.0}, {"density": -1.0}, {"half_width": 0.0}])
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    level = wrong.pop("level", 0.5)
    with pytest.raises(InputError):
        plan_run(level, clients(), **wrong)  # type: ignore[arg-type]
