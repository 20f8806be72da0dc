"""The straddling design as a plan: read back on any machine, with silence, and never changed behind one's back."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from studies.any_shape.laws import Steps

from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import Identity
from privatile.estimator.clients import Client
from privatile.estimator.plan import Ask, RoundState, as_sent, begin, difference, slack, step
from privatile.estimator.search import best_question
from privatile.estimator.straddle import StraddlePlan, solve_fit, straddle_memory
from privatile.inference.any_shape import AnyShape
from privatile.inference.reading import any_shape_of
from privatile.simulation.default_design import AutoCell, simulate
from privatile.simulation.populations import Normal, Population

RATE = math.tanh(0.5)
AT_END = Steps((-1.0, 1.0, 2.0), (0.7, 0.2, 0.1))
HEAPED = Steps((0.0, 1.0, 2.0), (0.3, 0.4, 0.3))
Record = list[tuple[Ask, list[int | None]]]


def plan_of(records: tuple[int, ...] = (9_000, 14_000), low: float = -1.0, high: float = 4.0) -> StraddlePlan:
    weights = [count / sum(records) for count in records]
    clients = [
        Client(f"c{k}", RandomizedResponse(RATE), weight, 0.5, count)
        for k, (weight, count) in enumerate(zip(weights, records, strict=True))
    ]
    return StraddlePlan(tuple(clients), Identity(low, high), 100)


def run_of(plan: StraddlePlan, law: Population, seed: int, silent: float = 0.0) -> tuple[RoundState, Record]:
    """A whole run; every client misses a share of the rounds after the first."""
    rng, state, record = np.random.default_rng(seed), begin(plan), []
    while (ask := as_sent(plan, plan.ask(state))) is not None:
        chance = 0.5 * (1.0 - RATE) + RATE * (1.0 - float(law.cdf(ask.query)))
        quiet = rng.random(len(ask.lengths)) < (silent if state.round else 0.0)
        counts = rng.binomial(ask.lengths, chance)
        ones = [None if missed else int(count) for missed, count in zip(quiet, counts, strict=True)]
        record.append((ask, ones))
        state = step(state, ask, ones, plan)
    return state, record


def read_back(plan: StraddlePlan, record: Record) -> RoundState:
    """As `server.coordinator.LevelRun` reads a file: what was asked counts; another branch only near a boundary."""
    state = begin(plan)
    for number, (asked, _) in enumerate(record, 1):
        before = record[number - 2] if number > 1 else None
        for shift in (0.0, -slack(plan), slack(plan)):
            moved = plan.with_boundaries_moved(shift)
            reached = begin(moved) if before is None else step(state, *before, moved)
            own = as_sent(moved, moved.ask(reached))
            if own is not None and not difference(moved, reached, own, asked):
                state = reached
                break
        else:
            raise AssertionError(f"round {number} is refused")
    return step(state, *record[-1], plan)


def on_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits and the search's questions differ in their last digits."""
    rng = np.random.default_rng(4)

    def other_bits(values: Any) -> Any:
        return tuple(value * (1.0 + 1e-13 * rng.normal()) for value in values)

    monkeypatch.setattr("privatile.estimator.straddle.solve_fit", lambda *given: other_bits(solve_fit(*given)))
    monkeypatch.setattr("privatile.estimator.straddle.best_question", lambda *given: other_bits(best_question(*given)))


def shape_of(plan: StraddlePlan, state: RoundState) -> AnyShape:
    return any_shape_of(plan, straddle_memory(state).run)


@pytest.mark.parametrize("law", [Normal(1.0), HEAPED, AT_END], ids=["smooth", "heaped", "range's end"])
def test_a_run_is_read_back_on_a_machine_that_rounds_otherwise(
    law: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of()
    written = [run_of(plan, law, seed, silent=0.1 * (seed % 2)) for seed in range(2)]
    on_another_machine(monkeypatch)
    for state, record in written:
        again, original = shape_of(plan, read_back(plan, record)), shape_of(plan, state)
        for mine, theirs in zip(again.sides, original.sides, strict=True):
            assert np.allclose(mine.peaks, theirs.peaks, rtol=1e-9, atol=1e-9)
        assert again.ends(0.95) == original.ends(0.95)


def test_a_question_moved_by_a_hundredth_of_a_standard_error_is_found() -> None:
    plan = plan_of()
    _, record = run_of(plan, HEAPED, 1)
    for number in (3, 40, 90):
        ask, ones = record[number]
        state = begin(plan)
        for asked, counts in record[:number]:
            state = step(state, asked, counts, plan)
        off = 0.01 * plan.standard_error(state, ask)
        forged = ask._replace(query=ask.query + off, sent=ask.sent + off)
        with pytest.raises(AssertionError, match=f"round {number + 1} is refused"):
            read_back(plan, [*record[:number], (forged, ones)])


def test_silent_clients_leave_the_interval_valid_and_bounded() -> None:
    plan = plan_of((6_000, 6_000, 6_000))
    found = []
    for seed in range(8):
        state, _ = run_of(plan, Normal(1.0), seed, silent=0.2)
        found.append(shape_of(plan, state).ends(0.95))
    low, high = np.array(found).T
    # Eight runs at 95% or more: two misses have probability 0.06, and such data are covered more often.
    assert int(((low <= 1.0) & (high >= 1.0)).sum()) >= 7
    assert bool(np.all(np.isfinite(high - low)))


def test_a_column_of_one_value_is_run_to_its_end() -> None:
    """Questions beside an atom lie 10⁹ spreads apart: such answers made the equations of the fit singular."""
    cell = AutoCell((Steps((40.0,), (1.0,)),), (math.tanh(2.0),), (200_000,), 0.9, low=0.0, high=120.0)
    low, high = simulate(cell, cell.straddle_plan, 5, np.random.default_rng(1)).ends(0.95)
    assert bool(((low < 40.0) & (high >= 40.0) & (high - low < 1e-6)).all())


def test_what_was_learned_before_is_not_changed_by_later_rounds() -> None:
    """A result, a snapshot and the check of a replay hold on to states of before."""
    plan = plan_of()
    _, record = run_of(plan, HEAPED, 2)
    states, seen = [begin(plan)], []
    for ask, ones in record:
        states.append(step(states[-1], ask, ones, plan))
        seen.append(pickle.dumps(states[-1].memory))
    assert [pickle.dumps(state.memory) for state in states[1:]] == seen
    assert len(set(seen)) == len(seen)
