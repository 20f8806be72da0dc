import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import Identity
from privatile.errors import InputError
from privatile.estimator.clients import Client, pooled_noise
from privatile.estimator.plan import RoundState, begin, replay, step
from privatile.estimator.tuned import AVERAGE, STAGES, AutoPlan, chosen_rounds, learn, tuned_rules, tuned_run
from privatile.estimator.tuned import begin as begin_run
from privatile.inference.curve import fit_run
from privatile.inference.trajectory import Trajectory


def make_plan(records: tuple[int, ...] = (4000, 9000), level: float = 0.5, wanted: int | None = None) -> AutoPlan:
    clients = tuple(
        Client(f"c{k}", RandomizedResponse(0.5 if k % 2 else 0.8), 1 / len(records), level, count)
        for k, count in enumerate(records)
    )
    return AutoPlan(clients, Identity(-10.0, 10.0), wanted)


def run(
    plan: AutoPlan, rng: np.random.Generator, silent: Callable[[int], bool] = lambda number: False
) -> tuple[RoundState, Trajectory, list[list[int | None]], list[str]]:
    """A run on N(1, 1); `silent` says in which rounds the last client does not answer."""
    state, trajectory, counts, stages = begin(plan), Trajectory(), [], []
    while (ask := plan.ask(state)) is not None:
        above = 1 - NormalDist(1.0, 1.0).cdf(ask.query)
        ones: list[int | None] = []
        for client, length in zip(plan.clients, ask.lengths, strict=True):
            rate = client.mechanism.truth_rate
            ones.append(int(rng.binomial(length, (1 - rate) / 2 + rate * above)))
        ones[-1] = None if silent(state.round) else ones[-1]
        state = step(state, ask, ones, plan)
        trajectory.record(ask, state, plan)
        counts.append(ones)
        stages.append(ask.stage)
    return state, trajectory, counts, stages


def test_every_record_is_asked_once_and_the_stages_come_in_order() -> None:
    plan = make_plan()
    state, _, _, stages = run(plan, np.random.default_rng(1))
    assert state.asked == (4000, 9000)
    assert state.round == plan.rounds == 200
    assert [STAGES.index(stage) for stage in stages] == sorted(STAGES.index(stage) for stage in stages)
    assert set(stages) == set(STAGES)
    assert state.averages.rounds == stages.count("average")


def test_nothing_adapts_inside_the_averaged_window() -> None:
    plan = make_plan()
    _, trajectory, _, _ = run(plan, np.random.default_rng(2))
    assert len(set(trajectory.steps.tolist())) == 1
    # Each question of the window is the last one moved by the step times what came back.
    moved = trajectory.asked[:-1] + trajectory.steps[:-1] * trajectory.drifts[:-1]
    assert np.allclose(trajectory.asked[1:], moved, atol=1e-12)


def test_a_run_replays_from_its_counts() -> None:
    plan = make_plan()
    state, _, counts, _ = run(plan, np.random.default_rng(3))
    again = replay(plan, counts)
    assert again.query == state.query
    assert again.averages == state.averages


def test_the_recursion_stays_stable_when_rounds_are_few() -> None:
    plan = make_plan(wanted=25)
    _, trajectory, _, _ = run(plan, np.random.default_rng(4))
    curve = fit_run(*run(plan, np.random.default_rng(4))[:2], plan)
    assert float(trajectory.steps.max()) * curve.fit.slope < 1.0


def test_rounds_are_refused_with_the_way_out() -> None:
    with pytest.raises(InputError, match="at least 20 records"):
        chosen_rounds(None, 10)
    with pytest.raises(InputError, match="fewer or more rounds"):
        chosen_rounds(300, 250)
    with pytest.raises(InputError, match="cohort"):
        AutoPlan(make_plan().clients, Identity(-1.0, 1.0), mode="local")


def test_every_round_leaves_a_record_for_the_later_ones() -> None:
    for smallest in (20, 40, 41, 75, 200, 201, 399):
        plan = make_plan(records=(smallest, 5000))
        state, _, _, _ = run(plan, np.random.default_rng(5))
        assert state.round == plan.rounds
        assert state.asked == (smallest, 5000)


def test_silence_keeps_the_estimand_and_renormalised_weights_do_not() -> None:
    """N(0, 1) and N(2, 1), the second silent in half of the rounds: the median of the mixture is 1."""
    clients = tuple(Client(name, RandomizedResponse(0.9), 0.5, 0.5, 60_000) for name in ("a", "b"))
    plan = AutoPlan(clients, Identity(-10.0, 10.0))
    populations = (NormalDist(0.0, 1.0), NormalDist(2.0, 1.0))
    estimates, misses, renormalised = [], 0, []
    for seed in range(20):
        rng = np.random.default_rng([6, seed])
        state, trajectory = begin(plan), Trajectory()
        wrong = 1.0
        while (ask := plan.ask(state)) is not None:
            ones: list[int | None] = []
            for client, length, population in zip(clients, ask.lengths, populations, strict=True):
                rate = client.mechanism.truth_rate
                ones.append(int(rng.binomial(length, (1 - rate) / 2 + rate * (1 - population.cdf(ask.query)))))
            silent = bool(rng.random() < 0.5) and state.used[1] > 0
            state = step(state, ask, [ones[0], None if silent else ones[1]], plan)
            trajectory.record(ask, state, plan)
            # What renormalising would do: a silent round moves on the first client alone.
            means = [1 - population.cdf(wrong) for population in populations]
            wrong += 0.2 * ((means[0] if silent else sum(means) / 2) - 0.5)
            renormalised.append(wrong)
        fit = fit_run(state, trajectory, plan)
        estimates.append(fit.inference.center)
        low, high = fit.inference.interval(0.95)
        misses += not low <= 1.0 <= high
        assert fit.inference.error_scale > 0
    error = float(np.std(estimates) / math.sqrt(len(estimates)))
    assert float(np.mean(estimates)) == pytest.approx(1.0, abs=4 * error + 0.002)
    assert misses <= 5  # 20 intervals of 95%: more than 5 misses have probability 3e-4
    assert float(np.mean(renormalised)) < 0.5  # the negative control estimates 0.384


def test_missed_answers_widen_the_interval_and_none_is_used_twice() -> None:
    plan = make_plan()
    state, trajectory, _, _ = run(plan, np.random.default_rng(7))
    whole = fit_run(state, trajectory, plan).inference.error_scale
    assert trajectory.clients is None
    state, trajectory, _, _ = run(plan, np.random.default_rng(7), silent=lambda number: number % 2 == 1)
    clients = trajectory.clients
    assert clients is not None
    rates = np.array([client.mechanism.truth_rate for client in plan.clients])
    assert clients.precisions.sum(axis=0) == pytest.approx(4.0 * rates**2 * np.array(state.asked))
    # Half of the second client's answers are gone, and only those.
    assert 1.05 * whole < fit_run(state, trajectory, plan).inference.error_scale < 1.6 * whole


def test_noise_counts_weights_rates_and_records() -> None:
    plan = make_plan()
    expected = 0.25 / (4 * 0.8**2 * 4000) + 0.25 / (4 * 0.5**2 * 9000)
    assert pooled_noise(plan.clients) == pytest.approx(expected, rel=1e-12)


def test_a_range_of_six_decades_is_searched_within_the_rounds() -> None:
    clients = (Client("all", RandomizedResponse(0.9), 1.0, 0.5, 20_000),)
    plan = AutoPlan(clients, Identity(-1e6, 1e6))
    state, trajectory, _, _ = run(plan, np.random.default_rng(8))
    assert not tuned_run(state).gave_up
    assert tuned_run(state).spent < 0.05
    fit = fit_run(state, trajectory, plan)
    assert abs(fit.inference.center - 1.0) < 5 * fit.inference.error_scale


def test_it_gives_up_rather_than_search_for_ever() -> None:
    rules, rng = tuned_rules(0.5, -1e6, 1e6, rounds=40, noise=0.05), np.random.default_rng(9)
    found = begin_run(rules)
    for _ in range(40):
        learn(rules, found, float(rng.standard_normal()), 4.0)
    assert found.stage == AVERAGE
    assert found.gave_up
