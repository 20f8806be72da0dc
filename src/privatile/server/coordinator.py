"""The coordinator: state to questions, counts to the next state, one transaction per round.

How questions and counts travel is up to the caller:

    while (rounds := coordinator.rounds()) is not None:
        counts = [ask(level_round.questions) for level_round in rounds]
        coordinator.accept(counts)
"""

import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from privatile.core.messages import Question
from privatile.errors import ProtocolError, StoreError
from privatile.estimator.averaging import normalizer
from privatile.estimator.plan import Ask, Plan, RoundState
from privatile.estimator.spec import RunSpec
from privatile.estimator.step import begin, step
from privatile.inference.trajectory import Trajectory
from privatile.result.rearrangement import rearranged
from privatile.result.result import QuantileResult
from privatile.result.summary import narrow_enough, summarize
from privatile.server.run_file import RunStore, Statement, StoredRound


class LevelRound(NamedTuple):
    """The next round of one level: one question per client, in the plan's order."""

    level_index: int
    questions: tuple[Question, ...]


class Track:
    """One level of a run: its plan, its state and the path it took."""

    def __init__(self, spec: RunSpec, level_index: int) -> None:
        self.spec = spec
        self.plan: Plan = spec.plan(level_index)
        self.state: RoundState = begin(self.plan)
        self.trajectory = Trajectory()
        self.ask: Ask | None = self.plan.ask(self.state)

    def advance(self, ones: Sequence[int | None]) -> None:
        """Go one round further."""
        if self.ask is None:
            raise StoreError("the file holds more rounds than its own plan asks for.")
        self.state = step(self.state, self.ask, ones, self.plan)
        self.trajectory.record(self.ask, self.state, self.plan)
        stops = narrow_enough(self.spec, self.plan, self.state, self.trajectory)
        self.ask = None if stops else self.plan.ask(self.state)


def _level_questions(
    run: str, plan: Plan, number: int, sent: float, step: float, lengths: Sequence[int]
) -> tuple[Question, ...]:
    """One round of one level: a question per client, in the plan's order; `sent` is the query in units."""
    return tuple(
        Question(run, number, plan.level_of(client), sent, length, step / length if plan.mode == "local" else None)
        for client, length in zip(plan.clients, lengths, strict=True)
    )


def stored_questions(store: RunStore) -> Iterator[tuple[StoredRound, tuple[Question, ...]]]:
    """Every round of every level, with the questions as they were sent, one per client."""
    plans = [store.spec.plan(level_index) for level_index in range(len(store.spec.levels))]
    for stored in store.all_rounds():
        plan = plans[stored.level_index]
        yield stored, _level_questions(store.run, plan, stored.round, stored.sent, stored.step, stored.lengths)


def new_run_name() -> str:
    """A name that no other run has."""
    return f"run-{secrets.token_hex(8)}"


class Coordinator:
    """Runs a specification round by round; rounds that the file already holds are replayed first."""

    def __init__(self, store: RunStore, spec: RunSpec | None = None) -> None:
        """`spec` may report the same answers in another way (`RunSpec.reported_as`)."""
        self.store = store
        self.spec: RunSpec = spec or store.spec
        self.run = store.run
        self.tracks = [Track(self.spec, index) for index in range(len(self.spec.levels))]
        for stored in store.all_rounds():
            track = self.tracks[stored.level_index]
            if track.ask is not None and stored.query != track.ask.query:
                raise StoreError(
                    f"{store.path} does not replay: round {stored.round} asked another question. Restore it from a "
                    "backup."
                )
            try:
                track.advance(stored.ones)
            except ProtocolError as error:
                raise StoreError(f"{store.path} does not replay: {error} Restore it from a backup.") from None

    @property
    def done(self) -> int:
        """Rounds that are complete. All levels are asked together; a finished level waits for the others."""
        return max(track.state.round for track in self.tracks)

    @property
    def planned(self) -> int:
        """The largest number of rounds that the run may have."""
        return max(track.plan.rounds for track in self.tracks)

    def rounds(self) -> list[LevelRound] | None:
        """The next round of every level that is not finished; None when the run is over."""
        waiting = [
            LevelRound(index, self._questions(track, track.ask))
            for index, track in enumerate(self.tracks)
            if track.ask is not None
        ]
        return waiting or None

    def questions(self) -> dict[str, tuple[Question, ...]]:
        """What every client is asked next, one question per level that is not finished; empty when the run is over."""
        rounds = self.rounds() or []
        asked = zip(*(one.questions for one in rounds), strict=True)
        return dict(zip((client.name for client in self.spec.clients), asked, strict=True)) if rounds else {}

    def _questions(self, track: Track, ask: Ask) -> tuple[Question, ...]:
        sent = track.plan.scale.to_units(ask.query)
        return _level_questions(self.run, track.plan, track.state.round + 1, sent, ask.step, ask.lengths)

    def accept(self, counts: Sequence[Sequence[int | None]], also: Sequence[Statement] = ()) -> None:
        """Take the counts of exactly the rounds that `rounds()` gave, in that order: step, then write, all or nothing.

        `also` holds what the caller keeps with the round; it is written in the same transaction.
        """
        waiting = [(index, track, track.ask) for index, track in enumerate(self.tracks) if track.ask is not None]
        stored = []
        for (index, track, ask), ones in zip(waiting, counts, strict=True):
            track.advance(ones)
            averages = track.state.averages
            stored.append(
                StoredRound(
                    level_index=index,
                    round=track.state.round,
                    query=ask.query,
                    sent=track.plan.scale.to_units(ask.query),
                    step=ask.step,
                    averaged=ask.averaged,
                    lengths=ask.lengths,
                    ones=tuple(ones),
                    after=track.state.query,
                    mean=averages.estimate if averages.rounds else None,
                    normalizer=normalizer(averages) if averages.rounds else None,
                )
            )
        self.store.append(stored, also)

    def result(self, level_index: int = 0) -> QuantileResult:
        """The result of one level so far."""
        track = self.tracks[level_index]
        return summarize(self.spec, track.plan, track.state, track.trajectory, self.run)

    def results(self) -> tuple[QuantileResult, ...]:
        """The results of all levels so far; quantiles that cross are put in order."""
        return rearranged([self.result(index) for index in range(len(self.tracks))])

    def finish(self) -> None:
        """Mark the run as complete; refused while a level has a round left."""
        if self.rounds() is not None:
            raise StoreError("the run is not over: rounds are left to ask.")
        self.store.finish()
