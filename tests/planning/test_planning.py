import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.errors import InputError
from privatile.estimator.clients import Client
from privatile.planning.plan import inflation, plan_run


def client(name: str, records: int, epsilon: float, weight: float) -> Client:
    return Client(name, RandomizedResponse.from_epsilon(epsilon), weight, 0.5, records)


def clients(count: int = 4, records: int = 5000, epsilon: float = 1.0) -> list[Client]:
    return [client(f"c{k}", records, epsilon, 1 / count) for k in range(count)]


def test_a_target_is_met_by_what_the_plan_says_it_takes() -> None:
    made = plan_run(0.5, clients(), half_width=0.01)
    assert made.records_factor is not None
    assert made.epsilon_factor is not None
    more = [client(c.name, round(c.records * made.records_factor), c.mechanism.epsilon, c.weight) for c in clients()]
    assert plan_run(0.5, more).rank_half_width == pytest.approx(0.01, rel=2e-3)
    richer = [client(c.name, c.records, c.mechanism.epsilon * made.epsilon_factor, c.weight) for c in clients()]
    assert plan_run(0.5, richer).rank_half_width == pytest.approx(0.01, rel=1e-3)


def test_no_budget_makes_up_for_too_few_records() -> None:
    made = plan_run(0.5, clients(records=200), half_width=0.001)
    assert made.epsilon_factor is None
    assert "no ε reaches it" in made.to_text()


def test_units_follow_from_the_density() -> None:
    made = plan_run(0.5, clients(), density=0.04, half_width=0.3)
    assert made.half_width == pytest.approx(made.rank_half_width / 0.04)
    assert made.half_width is not None
    # A little less than the square: more records also lower the inflation.
    assert made.records_factor == pytest.approx((made.half_width / 0.3) ** 2, rel=0.1)


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


@pytest.mark.parametrize("wrong", [{"level": 0.0}, {"confidence_level": 1.0}, {"density": -1.0}, {"half_width": 0.0}])
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    level = wrong.pop("level", 0.5)
    with pytest.raises(InputError):
        plan_run(level, clients(), **wrong)  # type: ignore[arg-type]
