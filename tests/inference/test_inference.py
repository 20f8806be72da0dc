import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import Identity
from privatile.errors import InputError
from privatile.estimator.clients import Client
from privatile.estimator.plan import RoundState, TablePlan, begin, normalizer, normalizer_of, step
from privatile.estimator.schedule import DecayingStep
from privatile.inference.self_normalized import endpoint_variance, self_normalized
from privatile.inference.trajectory import Trajectory, slope
from privatile.laws.critical import critical_value

LINE = Identity(-20.0, 20.0)


def run_cohort(
    plan: TablePlan, shares_above: Sequence[Callable[[float], float]], rng: np.random.Generator
) -> tuple[RoundState, Trajectory]:
    """A run whose counts are binomial given q; a share above is a function of q."""
    state, trajectory = begin(plan), Trajectory()
    while (ask := plan.ask(state)) is not None:
        ones: list[int | None] = []
        for client, length, above in zip(plan.clients, ask.lengths, shares_above, strict=True):
            rate = client.mechanism.truth_rate
            ones.append(int(rng.binomial(length, (1 - rate) / 2 + rate * above(state.query))))
        state = step(state, ask, ones, plan)
        trajectory.record(ask, state, plan)
    return state, trajectory


def make_plan(lengths: np.ndarray, burn_in: int = 0) -> TablePlan:
    clients = tuple(
        Client(f"c{k}", RandomizedResponse(rate), 0.5, 0.5, int(lengths[k].sum())) for k, rate in enumerate((0.5, 0.9))
    )
    steps = DecayingStep(3.0, offset=10.0).table(lengths.shape[1])
    return TablePlan(clients, LINE, lengths, steps, burn_in=burn_in, start=0.0)


@pytest.fixture
def finished() -> tuple[TablePlan, RoundState, Trajectory]:
    plan = make_plan(np.array([[20] * 300, [5] * 300]), burn_in=30)
    above = [lambda q: 1 - NormalDist(0, 1).cdf(q), lambda q: 1 - NormalDist(2, 1).cdf(q)]
    return plan, *run_cohort(plan, above, np.random.default_rng(1))


def test_interval_and_test_never_disagree(finished: tuple[TablePlan, RoundState, Trajectory]) -> None:
    _, state, trajectory = finished
    inference = self_normalized(state, trajectory)
    for level in (0.5, 0.9, 0.95, 0.99):
        low, high = inference.interval(level)
        for end in (low, high):
            assert inference.test(end)[1] == pytest.approx(1 - level, abs=1e-5)
        assert inference.test(low - 0.01 * (high - low))[1] < 1 - level
        assert inference.test(low + 0.01 * (high - low))[1] > 1 - level
    assert inference.test(inference.center) == (0.0, 1.0)


def test_it_is_the_formula(finished: tuple[TablePlan, RoundState, Trajectory]) -> None:
    _, state, trajectory = finished
    weights = np.full(270, 0.25 / (4 * 0.25 * 20) + 0.25 / (4 * 0.81 * 5))
    assert trajectory.weights == pytest.approx(weights)
    v = critical_value([1] * 270).value
    low, high = self_normalized(state, trajectory).interval(0.95)
    expected = v * math.sqrt(normalizer_of(trajectory.queries, weights))
    assert (high - low) / 2 == pytest.approx(expected, rel=1e-6)
    assert (high + low) / 2 == pytest.approx(trajectory.queries.mean())


@pytest.mark.parametrize("kind", ["l1", "sup"])
def test_other_normalisers_give_intervals_of_the_same_order(
    finished: tuple[TablePlan, RoundState, Trajectory], kind: str
) -> None:
    _, state, trajectory = finished
    l2 = self_normalized(state, trajectory).interval(0.95)
    other = self_normalized(state, trajectory, kind).interval(0.95)  # type: ignore[arg-type]
    assert 0.3 < (other[1] - other[0]) / (l2[1] - l2[0]) < 3.0
    assert sum(other) == pytest.approx(sum(l2))


def test_two_averaged_rounds_are_needed() -> None:
    plan = make_plan(np.array([[2, 2], [2, 2]]))
    state = begin(plan)
    with pytest.raises(InputError, match="at least two averaged rounds"):
        self_normalized(state, Trajectory())


def test_endpoint_variance_is_the_formula() -> None:
    """All records in the averaged rounds: (r⁻² − 1)/4 + f·mean|q − Q| of (r⁻² − (2F − 1)²)/4 is left."""
    lengths = np.full((1, 200), 50)
    client = Client("a", RandomizedResponse(0.9), 1.0, 0.5, 10_000)
    plan = TablePlan((client,), LINE, lengths, DecayingStep(3.0, offset=10.0).table(200), start=0.0)
    state, trajectory = run_cohort(plan, [lambda q: 1 - NormalDist().cdf(q)], np.random.default_rng(2))
    noise, spread = (0.9**-2 - 1) / 4, 0.25
    wander = slope(trajectory) * float(np.abs(trajectory.asked - state.averages.estimate).mean())
    assert slope(trajectory) == pytest.approx(0.4, rel=0.5)
    expected = (noise + wander) / (noise + spread)
    assert endpoint_variance(state, plan, trajectory) == pytest.approx(expected, rel=0.02)
    # A file twice as large of which half was asked keeps half the sampling variance as well.
    double = (Client("a", RandomizedResponse(0.9), 1.0, 0.5, 20_000),)
    larger = TablePlan(double, LINE, lengths, plan.steps, start=0.0)
    expected = (noise + (spread + wander) / 2) / (noise + spread)
    assert endpoint_variance(state, larger, trajectory) == pytest.approx(expected, rel=0.02)


@pytest.mark.statistical
def test_file_intervals_cover_the_file_and_population_intervals_overcover_it() -> None:
    """One fixed file per replication, all its records asked: the narrower interval covers the file's own median."""
    rng = np.random.default_rng(77)
    rounds, length, rate, replications = 600, 10, 0.9, 200
    n = rounds * length
    client = Client("a", RandomizedResponse(rate), 1.0, 0.5, n)
    steps = DecayingStep(12.0, offset=24.0).table(rounds)
    plan = TablePlan((client,), LINE, np.full((1, rounds), length), steps, burn_in=60, start=0.0)
    covered = {"file": 0, "wrong": 0, "population": 0}
    shares = []
    v = critical_value([1] * 540).value
    for _ in range(replications):
        data = rng.standard_normal(n)
        truth = float(np.median(data))
        state, trajectory, used = begin(plan), Trajectory(), 0
        while (ask := plan.ask(state)) is not None:
            truths = data[used : used + length] > state.query
            used += length
            lies = rng.random(length) >= (1 + rate) / 2
            state = step(state, ask, [int((truths ^ lies).sum())], plan)
            trajectory.record(ask, state, plan)
        noise = (rate**-2 - 1) / 4
        kinds = {
            "file": endpoint_variance(state, plan, trajectory),
            "wrong": (noise + 0.1 * 0.25) / (noise + 0.25),  # forgets that q wanders
            "population": 1.0,
        }
        shares.append(kinds["file"])
        # With equal weights the critical value scales by √share exactly (tested beside it): work it out once.
        reach = v * math.sqrt(normalizer(state.averages))
        for target, share in kinds.items():
            covered[target] += abs(state.averages.estimate - truth) <= math.sqrt(share) * reach
    error = math.sqrt(0.95 * 0.05 / replications)
    # About 60 relaxations: there the asymptotic critical value covers .934 (its known finite-sample deficit).
    assert 0.934 - 4 * error < covered["file"] / replications < 0.95 + 4 * error
    assert covered["population"] / replications > 0.95 + 2 * error
    assert covered["wrong"] < covered["file"]
    assert np.mean(shares) < 0.5  # the intervals are at most 0.7 times as wide
