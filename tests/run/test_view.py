"""A view ends where its run ended, sees that it goes on or is over, counts silence, refuses what does not replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatile.core.mechanism import RandomizedResponse
from privatile.errors import StoreError
from privatile.estimator.clients import UNKNOWN_SIZE
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.result.result import Results
from privatile.run import view as view_module
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile.run.view import RunView


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
    names, rng = [client.name for client in run.clients], np.random.default_rng(seed)
    while (rounds := coordinator.rounds()) is not None:
        here = [not coordinator.done or rng.random() >= silence for _ in names]
        counts = [
            [int(rng.binomial(asked.length, 0.4)) if k else None for k, asked in zip(here, each.questions, strict=True)]
            for each in rounds
        ]
        unspent = [name for name, k in zip(names, here, strict=True) if k and rng.random() < 0.5]
        coordinator.accept(counts, unspent=unspent)
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
        patch.setattr(view_module, "MARKS", marks)
        view = RunView(coordinator.store, drawn=True)
        assert not view.refresh()
        assert view.all_results().to_json() == coordinator.results().to_json()
        assert view.clients == coordinator.clients
        for level, track in zip(view.levels, coordinator.tracks, strict=True):
            assert len(level) == rounds
            assert level.state == track.state
            assert level.track.trajectory.queries.tolist() == track.trajectory.queries.tolist()
            assert level.low[-1] == level.high[-1] == track.state.query
            assert level.records[-1] == sum(track.state.asked)
            assert level.burn_in == rounds - track.state.averages.rounds
            assert len(level.snapshots) <= marks + 1


def test_a_result_stays_as_it_was_while_the_run_goes_on(tmp_path: Path) -> None:
    """It reads its intervals from the answers so far; ten more rounds are none of its own."""
    coordinator = Coordinator(RunStore.create(tmp_path / "run.db", "run-test", spec(40, design="straddle")))
    held: list[Any] = []
    view = RunView(coordinator.store, drawn=True)
    for number in range(30):
        (one,) = coordinator.rounds() or []
        coordinator.accept([[asked.length // 2 for asked in one.questions]])
        if number == 19:
            view.refresh()
            held = [
                (results[0], results.to_json(), results[0].interval(0.8), results[0].test(50.0))
                for results in (coordinator.results(), view.all_results())
            ]
            drawn = str(view.levels[0].snapshots)
    for result, told, interval, test in held:
        assert (Results([result]).to_json(), result.interval(0.8), result.test(50.0)) == (told, interval, test)
    assert drawn == str(view.levels[0].snapshots)
    view.refresh()
    assert view.all_results() == coordinator.results() != Results([held[0][0]])


def test_what_outlives_the_file_gives_the_same_view(tmp_path: Path) -> None:
    coordinator = filled(tmp_path / "run.db", spec(20, levels=(0.5, 0.8)), 0.3, 2)
    coordinator.finish()
    again = Coordinator(coordinator.store, keep=True)
    view, stored = (RunView(source, drawn=True) for source in (coordinator.store, again.stored_run()))
    assert view.results() == stored.results()
    assert (view.run, view.created, view.finished, view.date) == (
        stored.run,
        stored.created,
        stored.finished,
        view.date,
    )
    for one, other in zip(view.levels, stored.levels, strict=True):
        assert str(one.snapshots) == str(other.snapshots)
        assert one.at.tolist() == other.at.tolist()


def test_a_run_without_an_end_that_is_ended_while_it_is_watched_is_over(tmp_path: Path) -> None:
    """By another process: what watches it never ends it itself."""
    client = ClientSpec("all", RandomizedResponse.from_epsilon(2.0).threshold, 1.0, UNKNOWN_SIZE)
    store = RunStore.create(
        tmp_path / "run.db",
        "run-test",
        RunSpec("age", (0.5,), (client,), "linear", 0.0, 100.0, design="open", weighting="given", simulated=True),
    )
    coordinator, rng = Coordinator(store), np.random.default_rng(1)
    while coordinator.done < 60:
        rounds = coordinator.rounds()
        assert rounds is not None
        below = rng.normal(45.0, 12.0, 40) > rounds[0].questions[0].query
        lies = rng.random(40) > 0.5 * (1.0 + RandomizedResponse.from_epsilon(2.0).truth_rate)
        coordinator.accept([[int((below != lies).sum())]], lengths=[[40]])
    with RunStore.open(tmp_path / "run.db", read_only=True) as reader:
        view = RunView(reader)
        assert "goes-on" in {caveat.code for caveat in view.all_results()[0].caveats}
        coordinator.finish("command")
        assert view.refresh()
        assert "goes-on" not in {caveat.code for caveat in view.all_results()[0].caveats}
        assert view.all_results() == coordinator.results()
        assert view.finished is not None


def test_a_file_whose_counts_do_not_lead_to_its_questions_is_refused(tmp_path: Path) -> None:
    coordinator = filled(tmp_path / "run.db", spec(30), 0.0, 1)
    coordinator.store._connection.execute("UPDATE rounds SET ones = '[7, 7, 7]' WHERE round = 20")
    with pytest.raises(StoreError, match="does not replay"):
        RunView(coordinator.store)


def test_silence_is_counted(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run.db", "run-test", spec(6, clients=2))
    coordinator = Coordinator(store)
    view = RunView(store)
    (history,) = view.levels
    silent = []
    for ones in ([3, 3], [3, None], [None, 3], [3, None], [3, None], [3, None]):
        coordinator.accept([ones])
        view.refresh()
        silent.append(history.silent.sum())
    assert silent == [0, 1, 2, 3, 4, 5]
    assert history.answered.tolist() == [5, 2]
    assert history.silent.tolist() == [1, 4]
    assert list(history.state.used) == [1, 4]
    assert history.last_answer[1] < history.last_answer[0]
