"""What a run file says was asked is checked against the design: attacks, and honest files of other machines.

A coordinator owns its file and writes what it likes. Each attack here is a whole run by such a coordinator: it goes on
from what it has recorded, so nothing later in the file contradicts it.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from unittest.mock import patch

import numpy as np
import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.errors import ProtocolError, StoreError
from privatile.estimator import search
from privatile.estimator.plan import TOLERANCE, Ask, Plan, RoundState, TablePlan, as_sent, slack
from privatile.estimator.search import summarize
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.estimator.tuned import AutoPlan, tuned_run
from privatile.result.summary import narrow_enough
from privatile.result.summary import summarize as summarize_run
from privatile.run import coordinator as coordinator_module
from privatile.run.coordinator import Coordinator, LevelRun
from privatile.run.run_file import RunStore, StoredRound
from privatile.run.view import RunView
from tests.made_runs import copied, opened

PEOPLE = NormalDist(55, 10)
Change = Callable[[LevelRun, Ask], Ask]


def spec(design: str = "tuned", rounds: int | None = 40, until_width: float | None = None) -> RunSpec:
    clients = tuple(
        ClientSpec(name, RandomizedResponse.from_epsilon(epsilon).threshold, weight, records)
        for name, epsilon, weight, records in (("a", 1.0, 0.25, 9000), ("b", 2.0, 0.75, 14000))
    )
    ends, kind = (0.0, 100.0), "continuous" if design == "tuned" else "any"
    return RunSpec(
        "income",
        (0.6,),
        clients,
        "linear",
        *ends,
        design=design,
        rounds=rounds,
        until_width=until_width,
        value_kind=kind,
    )


def written(
    run: RunSpec, change: Change | None = None, *, follows: bool = True, store: RunStore | None = None
) -> bytes:
    """The file of a coordinator that changes what it records; people answer the changed question, or the honest one."""
    store = store or RunStore.create(":memory:", "run-1", run)
    coordinator, rng = Coordinator(store), np.random.default_rng(3)
    while coordinator.rounds() is not None:
        track = coordinator.tracks[0]
        assert track.ask is not None
        honest = track.ask.sent
        if change is not None:
            track.ask = as_sent(track.plan, change(track, track.ask))
        assert track.ask is not None
        query = track.ask.sent if follows else honest
        yes = [0.5 + client.mechanism.truth_rate * (0.5 - PEOPLE.cdf(query)) for client in track.plan.clients]
        coordinator.accept([[int(rng.binomial(n, p)) for n, p in zip(track.ask.lengths, yes, strict=True)]])
    coordinator.finish()
    return copied(store)


def replayed(content: bytes) -> Coordinator:
    return Coordinator(opened(content))


def only_in(number: int, change: Change) -> Change:
    return lambda track, ask: change(track, ask) if track.state.round + 1 == number else ask


def moved(by: float) -> Change:
    """The question, moved by so many standard errors of the run at that round."""
    return lambda track, ask: ask._replace(query=ask.query + by * track.plan.standard_error(track.state, ask))


DESIGNS = ("straddle", "tuned", "rounds", "paper-log", "power:0.6")


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("number", [1, 2, 5, 12, 20, 28, 40])
def test_a_coordinator_that_records_a_question_a_hundredth_of_a_standard_error_off_is_found(
    design: str, number: int
) -> None:
    content = written(spec(design), only_in(number, moved(0.01)))
    with pytest.raises(StoreError, match=f"round {number} of level 0.6 asks what the design would not: its question"):
        replayed(content)


@pytest.mark.parametrize("design", DESIGNS)
def test_an_honest_file_is_accepted_and_gives_the_same_result(design: str) -> None:
    store = RunStore.create(":memory:", "run-1", spec(design))
    content = written(store.spec, store=store)
    assert replayed(content).result().to_json() == Coordinator(store).result().to_json()


@pytest.mark.parametrize(
    ("design", "stages"), [("tuned", {"search", "probe", "average"}), ("straddle", {"search", "low", "high", "centre"})]
)
def test_every_round_of_every_stage_refuses_a_moved_question(design: str, stages: set[str]) -> None:
    rounds = list(opened(written(spec(design))).all_rounds())
    assert {stored.ask.stage for stored in rounds} == stages
    track = LevelRun(spec(design), 0)
    for stored in rounds:
        for by in (-0.01, 0.01):
            with pytest.raises(ProtocolError, match="standard errors from the design's own"):
                track.take(as_sent(track.plan, moved(by)(track, stored.ask)) or stored.ask)
        track.replay(stored)


def swapped(track: LevelRun, ask: Ask) -> Ask:
    return ask._replace(lengths=ask.lengths[::-1])


def one_more(track: LevelRun, ask: Ask) -> Ask:
    return ask._replace(lengths=(ask.lengths[0] + 1, *ask.lengths[1:]))


def longer_step(track: LevelRun, ask: Ask) -> Ask:
    return ask._replace(step=ask.step * 1.001)


def other_stage(track: LevelRun, ask: Ask) -> Ask:
    return ask._replace(stage="probe" if ask.stage == "search" else "search")


def not_averaged(track: LevelRun, ask: Ask) -> Ask:
    return ask._replace(averaged=not ask.averaged, step=ask.step or 1.0)


@pytest.mark.parametrize(
    ("number", "change"),
    [
        *((3, change) for change in (swapped, one_more, other_stage, not_averaged)),
        *((35, change) for change in (swapped, one_more, other_stage, not_averaged, longer_step)),
    ],
)
def test_a_coordinator_that_changes_anything_else_of_a_round_is_found(change: Change, number: int) -> None:
    with pytest.raises(StoreError, match="asks what the design would not"):
        replayed(written(spec(), only_in(number, change)))


def test_a_question_recorded_otherwise_than_it_was_sent_is_found(tmp_path: Path) -> None:
    (tmp_path / "run.db").write_bytes(written(spec()))
    with sqlite3.connect(tmp_path / "run.db") as raw:
        raw.execute("UPDATE rounds SET sent = sent - 20 WHERE round = 30")
    raw.close()
    with pytest.raises(StoreError, match="its question in units would be"):
        Coordinator(RunStore.open(tmp_path / "run.db"))


@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize("design", ["straddle", "tuned", "rounds"])
def test_drifting_by_less_than_the_tolerance_in_every_round_moves_the_result_by_nothing(
    design: str, follows: bool
) -> None:
    """The whole freedom of a false file, used in every round and always the same way."""
    content = written(spec(design), lambda track, ask: moved(0.99 * slack(track.plan))(track, ask), follows=follows)
    honest, drifted = replayed(written(spec(design))).result(), replayed(content).result()
    error = honest.inference.error_scale * honest.scale.slope(honest.inference.center)
    assert 0.0 < abs(drifted.estimate - honest.estimate) <= (TOLERANCE if design == "rounds" else 1e-4) * error
    # The negative control: twice the tolerance is refused.
    with pytest.raises(StoreError, match="its question is"):
        replayed(written(spec(design), lambda track, ask: moved(2.0 * slack(track.plan))(track, ask)))


@pytest.mark.parametrize("lower", [True, False])
def test_a_coordinator_that_sends_another_question_than_its_own_on_a_log_scale_is_found(lower: bool) -> None:
    """The last bits of a range up to 1e17 are 64 units; the question here is about 60."""
    run = replace(spec(), scale="log", low=1.0, high=1e17)
    off = (-1.0 if lower else 1.0) * 3.9 * math.ulp(run.high)

    def sent(plan: Plan, ask: Ask | None) -> Ask | None:
        honest = as_sent(plan, ask)
        return None if honest is None else honest._replace(sent=max(1.0, honest.sent + off))

    with patch.object(coordinator_module, "as_sent", sent):
        content = written(run)
    with pytest.raises(StoreError, match="its question in units would be"):
        replayed(content)
    # The negative control: without the attack the file is accepted.
    assert replayed(written(run)).rounds() is None


@pytest.mark.parametrize("design", ["rounds", "paper-log"])
@pytest.mark.parametrize("high", [1e13, 1e15, 1e17])
def test_a_coordinator_that_drifts_by_the_last_bits_of_a_wide_range_is_found(high: float, design: str) -> None:
    """Four last bits of the end of ±1e15, in every round, moved a median of 0.3 to 47."""
    run = replace(spec(design), scale="identity", low=-high, high=high)

    def drifting(track: LevelRun, ask: Ask) -> Ask:
        return ask._replace(query=ask.query + 3.9 * math.ulp(high)) if track.state.round else ask

    with pytest.raises(StoreError, match="asks what the design would not: its question"):
        replayed(written(run, drifting))
    assert replayed(written(run)).rounds() is None


# -- decisions near their boundary -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("apart", "accepted"), [(1e-12, True), (1e-4, False)])
@pytest.mark.parametrize("sooner", [True, False])
def test_a_search_that_ends_a_round_apart_is_accepted_at_the_boundary_alone(
    apart: float, accepted: bool, sooner: bool
) -> None:
    track, doubts = LevelRun(spec(), 0), []
    for stored in opened(written(spec())).all_rounds():
        track.replay(stored)
        if track.ask is not None and track.ask.stage == "search":
            assert isinstance(track.plan, AutoPlan)
            doubts.append(summarize(track.plan.rules, tuned_run(track.state).belief).spread_error)
    # The quantile is placed, and the spread decides when the search ends: put the boundary on both sides of its error.
    sides = doubts[-1] * (1.0 + apart), doubts[-1] * (1.0 - apart)
    with patch.object(search, "SPREAD_KNOWN", sides[0 if sooner else 1]):
        content = written(spec())
    searched = sum(stored.ask.stage == "search" for stored in opened(content).all_rounds())
    assert searched == len(doubts) + (0 if sooner else 1)
    with patch.object(search, "SPREAD_KNOWN", sides[1 if sooner else 0]):
        if accepted:
            assert replayed(content).rounds() is None
        else:
            with pytest.raises(StoreError, match="asks what the design would not"):
                replayed(content)


def test_a_coordinator_that_ends_its_search_when_it_likes_is_found() -> None:
    with patch.object(search, "SPREAD_KNOWN", 6.0):
        content = written(spec())
    with pytest.raises(StoreError, match="asks what the design would not: its stage would be search, not probe"):
        replayed(content)


@contextmanager
def stopping(boundary_shift: float) -> Iterator[None]:
    """A machine on which the decision to stop falls as if the width were another by this share."""

    def decide(run: RunSpec, plan: Plan, state: RoundState, trajectory: object, more: float = 0.0) -> bool:
        return narrow_enough(run, plan, state, trajectory, boundary_shift + more)  # type: ignore[arg-type]

    with patch.object(coordinator_module, "narrow_enough", decide):
        yield


@pytest.fixture(scope="module")
def narrowing() -> float:
    """A width that a run of this kind reaches in its window, to the last bit."""
    coordinator = replayed(written(spec(until_width=1e-9)))
    track = LevelRun(coordinator.spec, 0)
    widths = []
    for stored in coordinator.store.all_rounds():
        track.replay(stored)
        if track.state.averages.rounds >= 10:
            low, high = summarize_run(
                coordinator.spec, track.plan, track.state, track.trajectory, "r"
            ).confidence_interval
            widths.append(high - low)
    place = next(k for k in range(3, len(widths)) if widths[k] < 0.99 * min(widths[:k]))
    return widths[place]


@pytest.mark.parametrize(("boundary_shift", "accepted"), [(-1e-12, True), (-0.02, False), (0.3, False)])
def test_a_run_that_stops_by_its_width_ends_where_its_design_says(
    narrowing: float, boundary_shift: float, accepted: bool
) -> None:
    """At the boundary it may go on for a round; it may not stop, or go on, whenever its coordinator likes."""
    run = spec(until_width=narrowing)
    with stopping(boundary_shift):
        content = written(run)
    if accepted:
        assert replayed(content).done > replayed(written(run)).done
    else:
        with pytest.raises(StoreError, match=r"the design would have gone on|the level was over"):
            replayed(content)


def test_a_run_that_stopped_at_the_boundary_is_accepted_where_it_would_have_gone_on(narrowing: float) -> None:
    run = spec(until_width=narrowing * (1.0 - 1e-12))
    with stopping(1e-11):
        content = written(run)
    assert replayed(content).done < replayed(written(run)).done
    assert replayed(content).rounds() is None


def test_a_run_that_is_written_meanwhile_is_read_as_it_was_at_one_moment(tmp_path: Path) -> None:
    two = replace(spec("rounds"), levels=(0.5, 0.9))
    live = Coordinator(RunStore.create(tmp_path / "run.db", "run-1", two))
    live.accept([[50, 50], [50, 50]])
    store = RunStore.open(tmp_path / "run.db", read_only=True)
    rounds = store.rounds

    def slowly(level_index: int = 0, after: int = 0) -> Iterator[StoredRound]:
        yield from rounds(level_index, after)
        live.accept([[50, 50], [50, 50]])  # between two levels: the second would be a round ahead

    with patch.object(store, "rounds", slowly):
        assert Coordinator(store).done == 1
    assert Coordinator(store).done == live.done == 3


def test_a_run_marked_as_finished_before_its_last_round_is_found() -> None:
    store = RunStore.create(":memory:", "run-1", spec("rounds"))
    coordinator = Coordinator(store)
    coordinator.accept([[100, 100]])
    store.finish()
    for read in (Coordinator, RunView):
        with pytest.raises(StoreError, match="ends after round 1; the design would have gone on"):
            read(store)


# -- another machine, another version ----------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [AutoPlan, TablePlan])
def test_a_run_that_moves_to_another_machine_asks_the_open_round_again_to_the_last_bit(plan: type[Plan]) -> None:
    store = RunStore.create(":memory:", "run-1", spec("tuned" if plan is AutoPlan else "rounds"))
    first = Coordinator(store)
    first.rounds()
    first.accept([[100 if plan is TablePlan else 3, 5]])
    asked, ask = first.rounds(), plan.ask

    def rounded_otherwise(self: Plan, state: RoundState) -> Ask | None:
        own = ask(self, state)
        return None if own is None else own._replace(query=own.query * (1.0 + 1e-14))

    with patch.object(plan, "ask", rounded_otherwise):
        assert Coordinator(store).rounds() == asked
        store.execute([("DELETE FROM open_round", ())])
        assert Coordinator(store).rounds() != asked  # the negative control


def test_an_open_round_that_the_design_would_not_ask_is_refused() -> None:
    store = RunStore.create(":memory:", "run-1", spec("rounds"))
    Coordinator(store).rounds()
    store.execute([("UPDATE open_round SET query = query + 0.5, sent = sent + 6.25", ())])
    with pytest.raises(StoreError, match=r"round 1 of level 0\.6 asks what the design would not"):
        Coordinator(store)


def altered(path: Path, *statements: str) -> Path:
    path.write_bytes(written(spec("rounds")))
    with sqlite3.connect(path) as raw:
        for statement in statements:
            raw.execute(statement)
    raw.close()
    return path


FORGE = "UPDATE rounds SET query = query + 0.1 WHERE round = 7"


def test_a_file_of_another_version_is_never_called_damaged(tmp_path: Path) -> None:
    other = "UPDATE run SET version = '7.5', program = 'feedbeef0123456789'"
    with pytest.raises(StoreError) as error:
        Coordinator(RunStore.open(altered(tmp_path / "run.db", FORGE, other)))
    text = str(error.value)
    assert "round 7 of level 0.6 asks what the design would not" in text
    assert "written by privatile 7.5 (build feedbeef0123)" in text
    assert "Read it with the version that wrote it" in text
    assert "damaged" not in text
    assert "altered" not in text
    # The negative control: the same change in a file of this program.
    with pytest.raises(StoreError, match=r"altered or is damaged\. Restore it from a backup"):
        Coordinator(RunStore.open(altered(tmp_path / "same.db", FORGE)))


def test_a_file_of_another_version_that_replays_is_read(tmp_path: Path) -> None:
    path = altered(tmp_path / "run.db", "UPDATE run SET version = '7.5', program = 'feedbeef'")
    assert Coordinator(RunStore.open(path)).rounds() is None


def test_a_file_of_another_format_names_the_version_that_wrote_it(tmp_path: Path) -> None:
    path = altered(tmp_path / "run.db", "UPDATE run SET format = 9, version = '7.5', program = 'feedbeef'")
    with pytest.raises(StoreError, match=r"another format, 9: privatile 7.5 \(build feedbeef\) wrote it") as error:
        RunStore.open(path)
    assert "damaged" not in str(error.value)
    old = altered(
        tmp_path / "old.db",
        "ALTER TABLE run DROP COLUMN version",
        "ALTER TABLE run DROP COLUMN program",
        "UPDATE run SET format = 1",
    )
    with pytest.raises(StoreError, match="another format, 1: an earlier privatile wrote it") as error:
        RunStore.open(old)
    assert "damaged" not in str(error.value)
