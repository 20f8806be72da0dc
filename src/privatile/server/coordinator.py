"""The coordinator: state -> questions, counts -> next state, one transaction a round. Transports only carry it.

while (rounds := coordinator.rounds()) is not None:
    counts = [carry(asked.questions) for asked in rounds]     # any engine
    coordinator.accept(counts)
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from privatile.core.messages import Question
from privatile.errors import ProtocolError, StoreError
from privatile.estimator.averaging import normalizer
from privatile.estimator.spec import RunSpec
from privatile.estimator.step import Ask, Plan, RoundState, begin, step
from privatile.inference.inference import Trajectory
from privatile.result.rearrangement import rearranged
from privatile.result.result import QuantileResult
from privatile.result.summary import narrow_enough, summarize
from privatile.server.store import RunStore, Statement, StoredRound


class Round(NamedTuple):
    """One level's next round: its place among the levels, and one question a client, in the plan's order."""

    level: int
    questions: tuple[Question, ...]


class Track:
    """One level on its way: its plan, its state and the path it took."""

    def __init__(self, spec: RunSpec, index: int) -> None:
        self.spec = spec
        self.plan: Plan = spec.plan(index)
        plan = self.plan
        self.state: RoundState = begin(plan)
        self.trajectory = Trajectory()
        self.ask: Ask | None = plan.ask(self.state)

    def advance(self, ones: Sequence[int | None]) -> None:
        """One round further."""
        if self.ask is None:
            raise StoreError("the file holds more rounds than its own plan asks for.")
        self.state = step(self.state, self.ask, ones, self.plan)
        self.trajectory.record(self.ask, self.state, self.plan)
        stops = narrow_enough(self.spec, self.plan, self.state, self.trajectory)
        self.ask = None if stops else self.plan.ask(self.state)


def new_run_name() -> str:
    """A name no other run has."""
    return f"run-{secrets.token_hex(8)}"


class Coordinator:
    """Runs a specification round by round; whatever its file already holds is replayed first."""

    def __init__(self, store: RunStore, spec: RunSpec | None = None) -> None:
        """`spec` may report the same answers in another way (`RunSpec.reported_as`)."""
        self.store = store
        self.spec: RunSpec = spec or store.spec
        self.run = store.run
        self.tracks = [Track(self.spec, index) for index in range(len(self.spec.levels))]
        for index, track in enumerate(self.tracks):
            for stored in store.rounds(index):
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
        """Rounds that are behind the run: levels go in step, and one that is over waits for the others."""
        return max(track.state.round for track in self.tracks)

    @property
    def planned(self) -> int:
        """Rounds planned at most."""
        return max(track.plan.rounds for track in self.tracks)

    def rounds(self) -> list[Round] | None:
        """The next round of every level that is not over; nothing when the run is."""
        waiting = [
            Round(index, self._questions(track, track.ask))
            for index, track in enumerate(self.tracks)
            if track.ask is not None
        ]
        return waiting or None

    def _questions(self, track: Track, ask: Ask) -> tuple[Question, ...]:
        plan, state = track.plan, track.state
        query = plan.scale.to_units(ask.query)
        local = plan.mode == "local"
        return tuple(
            Question(
                run=self.run,
                round=state.round + 1,
                level=client.level if plan.local_level == "own" else plan.level,
                query=query,
                length=length,
                step=ask.step / length if local else None,
            )
            for client, length in zip(plan.clients, ask.lengths, strict=True)
        )

    def accept(self, counts: Sequence[Sequence[int | None]], also: Sequence[Statement] = ()) -> None:
        """Counts for exactly the rounds that `rounds()` named, in that order: step, then persist, all or nothing.

        `also` is what a transport keeps with the round, written in the same transaction.
        """
        waiting = [index for index, track in enumerate(self.tracks) if track.ask is not None]
        stored = []
        for index, ones in zip(waiting, counts, strict=True):
            track = self.tracks[index]
            ask = track.ask
            track.advance(ones)
            after = track.state
            averaging = after.averages.rounds > 0
            if ask is None:  # the waiting list holds none of these
                continue
            stored.append(
                StoredRound(
                    index,
                    after.round,
                    ask.query,
                    ask.step,
                    ask.averaged,
                    ask.lengths,
                    tuple(ones),
                    after.query,
                    after.averages.estimate if averaging else None,
                    normalizer(after.averages) if averaging else None,
                )
            )
        self.store.append(stored, also)

    def result(self, level: int = 0) -> QuantileResult:
        """The result of a level as it stands."""
        track = self.tracks[level]
        return summarize(self.spec, track.plan, track.state, track.trajectory, self.run)

    def results(self) -> tuple[QuantileResult, ...]:
        """The results of all levels as they stand; quantiles that cross are put in order."""
        return rearranged([self.result(index) for index in range(len(self.tracks))])

    def finish(self) -> None:
        """Mark the run as complete once no level has a round left."""
        if self.rounds() is not None:
            raise StoreError("the run is not over: rounds are left to ask.")
        self.store.finish()
