"""Columns lead where rounds lead, one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatile.core.mechanism import RandomizedResponse
from privatile.errors import StoreError
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.report import history as history_module
from privatile.report.history import LevelHistory
from privatile.server.coordinator import Coordinator
from privatile.server.store import RunStore


def spec(rounds: int, clients: int = 3, levels: tuple[float, ...] = (0.5,), design: str = "rounds") -> RunSpec:
    return RunSpec(
        "income",
        levels,
        tuple(
            ClientSpec(f"client {k}", RandomizedResponse.from_epsilon(1.0 + k).threshold, 1 / clients, 7 * rounds + k)
            for k in range(clients)
        ),
        "linear",
        0.0,
        100.0,
        design=design,
        rounds=rounds,
        simulated=True,
    )


def filled(path: Path | str, run: RunSpec, silence: float, seed: int) -> Coordinator:
    store = RunStore.create(path, "run-test", run)
    coordinator = Coordinator(store)
    rng = np.random.default_rng(seed)
    while (rounds := coordinator.rounds()) is not None:
        counts = [
            [
                None if coordinator.done and rng.random() < silence else int(rng.binomial(asked.length, 0.4))
                for asked in each.questions
            ]
            for each in rounds
        ]
        coordinator.accept(counts)
    return coordinator


@settings(deadline=None, max_examples=25)
@given(
    rounds=st.integers(3, 60),
    silence=st.sampled_from([0.0, 0.3, 0.9]),
    marks=st.integers(1, 70),
    seed=st.integers(0),
)
def test_columns_lead_to_the_replayed_state(rounds: int, silence: float, marks: int, seed: int) -> None:
    coordinator = filled(":memory:", spec(rounds, levels=(0.5, 0.8)), silence, seed)
    usual = history_module.MARKS  # rounds are read from mark to mark
    history_module.MARKS = marks
    try:
        for index, track in enumerate(coordinator.tracks):
            history = LevelHistory(coordinator.spec, index)
            assert history.refresh(coordinator.store) == rounds
            assert history.refresh(coordinator.store) == 0
            state, expected = history.state(), track.state
            for name in ("round", "query", "used", "heard", "ones", "asked", "window_ones", "window_asked"):
                assert getattr(state, name) == getattr(expected, name), name
            np.testing.assert_allclose(state.means, expected.means, rtol=1e-12)
            np.testing.assert_allclose(state.noise, expected.noise, rtol=1e-12)
            np.testing.assert_allclose(state.averages, expected.averages, rtol=1e-7, atol=1e-9)
            for name in ("asked", "drifts", "queries", "weights", "steps", "answers"):
                mine, theirs = getattr(history.trajectory(), name), getattr(track.trajectory, name)
                np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9, err_msg=name)
    finally:
        history_module.MARKS = usual


def test_a_file_whose_counts_do_not_lead_to_its_questions_is_refused(tmp_path: Path) -> None:
    coordinator = filled(tmp_path / "run.db", spec(30), 0.0, 1)
    coordinator.store._connection.execute("UPDATE rounds SET ones = '[7, 7, 7]' WHERE round = 20")
    with pytest.raises(StoreError, match="does not replay"):
        LevelHistory(coordinator.spec, 0).refresh(coordinator.store)


def test_silence_is_counted(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run.db", "run-test", spec(6, clients=2))
    coordinator = Coordinator(store)
    for ones in ([3, 3], [3, None], [None, 3], [3, None], [3, None], [3, None]):
        coordinator.accept([ones])
    history = LevelHistory(coordinator.spec, 0)
    history.refresh(store)
    assert history.tally.answered.tolist() == [5, 2]
    assert history.tally.silent.tolist() == [1, 4]
    assert history.tally.streak.tolist() == [0, 3]
    assert history.silent.tolist() == [0, 1, 1, 1, 1, 1]
    assert history.tally.last_answer[1] < history.tally.last_answer[0]
