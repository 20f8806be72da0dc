"""A history ends where its run ended, counts silence, and refuses a file that does not replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatile.core.mechanism import RandomizedResponse
from privatile.errors import StoreError
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.report import view as history_module
from privatile.report.view import LevelHistory
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore


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
def test_a_history_ends_where_the_coordinator_ends(rounds: int, silence: float, marks: int, seed: int) -> None:
    coordinator = filled(":memory:", spec(rounds, levels=(0.5, 0.8)), silence, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_module, "MARKS", marks)
        for index, track in enumerate(coordinator.tracks):
            history = LevelHistory(coordinator.spec, index)
            assert history.refresh(coordinator.store) == rounds
            assert history.refresh(coordinator.store) == 0
            assert history.state == track.state
            assert history.trajectory.queries.tolist() == track.trajectory.queries.tolist()
            assert history.low[-1] == history.high[-1] == track.state.query
            assert history.records[-1] == sum(track.state.asked)
            assert history.burn_in == rounds - track.state.averages.rounds
            assert len(history.marks) <= marks


def test_a_file_whose_counts_do_not_lead_to_its_questions_is_refused(tmp_path: Path) -> None:
    coordinator = filled(tmp_path / "run.db", spec(30), 0.0, 1)
    coordinator.store._connection.execute("UPDATE rounds SET ones = '[7, 7, 7]' WHERE round = 20")
    with pytest.raises(StoreError, match="does not replay"):
        LevelHistory(coordinator.spec, 0).refresh(coordinator.store)


def test_silence_is_counted(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run.db", "run-test", spec(6, clients=2))
    coordinator = Coordinator(store)
    history = LevelHistory(coordinator.spec, 0)
    silent = []
    for ones in ([3, 3], [3, None], [None, 3], [3, None], [3, None], [3, None]):
        coordinator.accept([ones])
        history.refresh(store)
        silent.append(history.silent.sum())
    assert silent == [0, 1, 2, 3, 4, 5]
    assert history.answered.tolist() == [5, 2]
    assert history.silent.tolist() == [1, 4]
    assert list(history.state.used) == [1, 4]
    assert history.last_answer[1] < history.last_answer[0]
