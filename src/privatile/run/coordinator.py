"""The coordinator: state to questions, counts to the next state, one transaction per round.

A live run and a replay go through the same functions. In a replay the file says what was asked; it is compared with
the design's own next question (`estimator.plan.difference`) and the run continues from what the file says.

How questions and counts travel is up to the caller:

    while (rounds := coordinator.rounds()) is not None:
        counts = [ask(level_round.questions) for level_round in rounds]
        coordinator.accept(counts)

In an open-ended run (`estimator.open_plan`) everybody who comes is asked the open question, and the caller says with
the counts how many came. When a round closes is decided by numbers of people and the clock, never by the answers.
"""

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from privatile.core.messages import LARGEST_LENGTH, Question
from privatile.core.text import moment
from privatile.errors import ProtocolError, StoreError
from privatile.estimator.open_ended import OpenPlan, Reason
from privatile.estimator.plan import Ask, Plan, RoundState, as_sent, begin, difference, slack, step
from privatile.estimator.spec import RunSpec
from privatile.inference.trajectory import Trajectory
from privatile.result.result import QuantileResult, Results
from privatile.result.summary import LevelFacts, all_of, make_results, narrow_enough
from privatile.run.run_file import RunStore, Statement, StoredRound, opening


class LevelRound(NamedTuple):
    """The next round of one level: one question per client, in the plan's order."""

    level_index: int
    questions: tuple[Question, ...]


class LevelRun:
    """One level of a run: its plan, its state and the path it took."""

    def __init__(self, spec: RunSpec, level_index: int) -> None:
        self.spec = spec
        self.plan: Plan = spec.plan(level_index)
        self._arrive: Callable[[Plan], RoundState] = begin
        """How the state was reached, for this plan or for one with its boundaries moved."""
        self.state: RoundState = begin(self.plan)
        self.trajectory = Trajectory()
        self.ask: Ask | None = as_sent(self.plan, self.plan.ask(self.state))
        self.times: list[float] = []
        """When each round was stored, in seconds since 1970, as the file says."""
        self.why_ended: Reason | None = None
        """Why an open-ended level is over."""

    def advance(
        self, ones: Sequence[int | None], unspent: Collection[int] = (), lengths: Sequence[int] | None = None
    ) -> None:
        """Go one round further; `unspent` as in `step`, `lengths` as in `asked_of`."""
        before, ask = self.state, self.asked_of(lengths)
        if ask is None:
            raise ProtocolError("there are more rounds than the plan asks for.")
        self._arrive = lambda plan: step(before, ask, ones, plan, unspent)
        self.state = self._arrive(self.plan)
        self.trajectory.record(ask, self.state, self.plan)
        self.ask = None if self._stops() else as_sent(self.plan, self.plan.ask(self.state))

    def asked_of(self, lengths: Sequence[int] | None) -> Ask | None:
        """The open round with its lengths: in an open-ended run, of every client how many came to it."""
        if self.ask is None or lengths is None:
            return self.ask
        if len(lengths) != len(self.plan.clients) or not all(0 <= n <= LARGEST_LENGTH for n in lengths):
            raise ProtocolError("lengths must be a whole number of people for every client.")
        if not any(lengths):
            raise ProtocolError("nobody came to this round: wait for the first answer before it is closed.")
        return self.ask._replace(lengths=tuple(lengths))

    @property
    def at_fixed_end(self) -> bool:
        """Whether the level has reached an end that was fixed before the first answer; every other design's is."""
        if not isinstance(self.plan, OpenPlan):
            return True
        return self.plan.is_reached(self.state) or self.why_ended == "date"

    @property
    def facts(self) -> LevelFacts:
        """What a result needs."""
        return LevelFacts(self.plan, self.state, self.trajectory, self.at_fixed_end, self.ask is None, self.times)

    def _stops(self, boundary_shift: float = 0.0) -> bool:
        """Whether the run stops here by its width; `boundary_shift` makes that easier, or, below zero, harder."""
        return narrow_enough(self.spec, self.plan, self.state, self.trajectory, boundary_shift)

    def take(self, asked: Ask) -> None:
        """Let the open round ask what was recorded, refused where the design would not have asked it on any machine."""
        if self.ask == asked:
            return
        share = slack(self.plan)
        found = "" if self.ask is None else difference(self.plan, self.state, self.ask, asked)
        if self.ask is not None and not found:
            self.ask = asked
            return
        # A decision near its boundary may have fallen the other way: the last round's, or that to stop.
        for boundary_shift in () if self._stops(-share) else (-share, share):
            plan = self.plan.with_boundaries_moved(boundary_shift)
            state = self._arrive(plan)
            own = as_sent(plan, plan.ask(state))
            if own is not None and not difference(plan, state, own, asked):
                self.state, self.ask = state, asked
                return
        raise ProtocolError(
            f"round {self.state.round + 1} of level {self.plan.level:.6g} asks what the design would not: "
            + (found or "the level was over")
            + "."
        )

    def replay(self, stored: StoredRound) -> None:
        """Go one round further as recorded."""
        if stored.round != self.state.round + 1:
            raise ProtocolError(f"after round {self.state.round} comes round {stored.round}.")
        self.take(stored.ask)
        self.advance(stored.ones, stored.unspent)
        self.times.append(stored.at)

    def end(self, why: Reason | None = None) -> None:
        """Let the level be over, as recorded; refused where the design would have gone on on any machine.

        An open-ended run is over when somebody says so, or at its date.
        """
        fixed = self.spec.end is not None and self.spec.end.date is not None
        called = self.plan.open_ended and (why == "command" or (why == "date" and fixed))
        self.why_ended = why
        if self.ask is not None and not called and not self._stops(slack(self.plan)):
            raise ProtocolError(
                f"level {self.plan.level:.6g} ends after round {self.state.round}; the design would have gone on."
            )
        self.ask = None


def _level_questions(run: str, plan: Plan, number: int, ask: Ask) -> tuple[Question, ...]:
    """One round of one level: a question per client, in the plan's order."""
    # While an open-ended round is open its lengths are not known: everybody is asked for one answer, their own.
    lengths = [max(1, length) for length in ask.lengths] or [1] * len(plan.clients)
    return tuple(
        Question(
            run, number, plan.level_of(client), ask.sent, length, ask.step / length if plan.mode == "local" else None
        )
        for client, length in zip(plan.clients, lengths, strict=True)
    )


def stored_questions(store: RunStore) -> Iterator[tuple[StoredRound, tuple[Question, ...]]]:
    """Every round of every level, with the questions as they were sent, one per client."""
    plans = [store.spec.plan(level_index) for level_index in range(len(store.spec.levels))]
    for stored in store.all_rounds():
        plan = plans[stored.level_index]
        yield stored, _level_questions(store.run, plan, stored.round, stored.ask)


@dataclass(frozen=True)
class StoredRun:
    """A run that is over, as plain data: what a page of it needs when its file may be gone."""

    run: str
    spec: RunSpec
    created: float
    finished: float | None
    why_ended: Reason | None
    kept: tuple[StoredRound, ...]
    """By level and round."""
    path: str = "this run"

    @property
    def date(self) -> str | None:
        """When the run began, as results tell it."""
        return moment(self.created)

    def snapshot(self) -> AbstractContextManager[None]:
        """It never changes."""
        return nullcontext()

    def rounds(self, level_index: int = 0, after: int = 0) -> list[StoredRound]:
        """The rounds of one level, in order, from round `after` + 1 on."""
        return [one for one in self.kept if one.level_index == level_index and one.round > after]

    def open_round(self) -> list[StoredRound]:
        """None."""
        return []

    def unreadable(self, why: str) -> StoreError:
        """The error for rounds that the design would not have asked."""
        return StoreError(f"{self.path} does not replay: {why}")


RunSource = RunStore | StoredRun
"""Where a run's rounds are read from."""


def replay(source: RunSource, tracks: Sequence[LevelRun], seen: Callable[[StoredRound], None]) -> bool:
    """Bring all levels to where a source is at one moment; whether it has the open round.

    `seen` is called after every round that is new. Refused where the design would not have asked so on any machine.
    """
    try:
        with source.snapshot():
            for index, track in enumerate(tracks):
                for stored in source.rounds(index, after=track.state.round):
                    track.replay(stored)
                    seen(stored)
            done = max(track.state.round for track in tracks)
            written = {one.level_index: one.ask for one in source.open_round() if one.round == done + 1}
            over = written or source.finished is not None
            for index, track in enumerate(tracks):
                if index in written and track.state.round == done:
                    track.take(written[index])
                elif over or track.state.round < done:  # levels that are not asked any more are over
                    track.end(source.why_ended)
    except ProtocolError as error:
        raise source.unreadable(str(error)) from None
    return bool(written)


class ClientTotals(NamedTuple):
    """One client's part of a run so far, over all levels."""

    asked: int
    """Records that the rounds asked for, without those that are known not to have answered (`missed_records`)."""
    answered: int
    """Records that answered."""
    silent: int
    """Rounds without an answer, counted per level."""


def client_totals(tracks: Sequence[LevelRun]) -> dict[str, ClientTotals]:
    """What every client was asked and has answered so far."""
    found: dict[str, ClientTotals] = {}
    for track in tracks:
        state = track.state
        for k, client in enumerate(track.plan.clients):
            here = (client.records - state.records[k].left, state.asked[k], state.silent[k])
            before = found.get(client.name, (0, 0, 0))
            found[client.name] = ClientTotals(*map(sum, zip(before, here, strict=True)))
    return found


def new_run_name() -> str:
    """A name that no other run has."""
    return f"run-{secrets.token_hex(8)}"


class Coordinator:
    """Runs a specification round by round; rounds that the file already holds are replayed first."""

    def __init__(self, store: RunStore, spec: RunSpec | None = None, *, keep: bool = False) -> None:
        """`spec` may report the same answers in another way (`RunSpec.reported_as`); `keep` is for `stored_run`."""
        self.store = store
        self.spec: RunSpec = spec or store.spec
        self.run = store.run
        self.tracks = [LevelRun(self.spec, index) for index in range(len(self.spec.levels))]
        self._kept: list[StoredRound] | None = [] if keep else None
        self._written = replay(store, self.tracks, self._keep)

    def _keep(self, stored: StoredRound) -> None:
        if self._kept is not None:
            self._kept.append(stored)

    @property
    def done(self) -> int:
        """Rounds that are complete. All levels are asked together; a finished level waits for the others."""
        return max(track.state.round for track in self.tracks)

    @property
    def asked(self) -> dict[str, int]:
        """Records that complete rounds have asked of every client, as in `ClientTotals`."""
        return {name: one.asked for name, one in self.clients.items()}

    @property
    def clients(self) -> dict[str, ClientTotals]:
        """What complete rounds have asked of every client, and what it has answered."""
        return client_totals(self.tracks)

    @property
    def has_interval(self) -> bool:
        """Whether every level has an interval so far; none has one while its quantile is still being searched for."""
        return all(track.state.averages.give_interval for track in self.tracks)

    @property
    def planned(self) -> int:
        """The largest number of rounds that the run may have."""
        return max(track.plan.rounds for track in self.tracks)

    def rounds(self) -> list[LevelRound] | None:
        """The next round of every level that is not finished; None when the run is over.

        It is in the file before anybody is asked: a run that continues on another machine asks the same.
        """
        if not self._written and self.store.writes:
            self.store.execute(self._opening())
            self._written = True
        waiting = [LevelRound(index, self._questions(track, ask)) for index, track, ask in self._waiting()]
        return waiting or None

    def _waiting(self) -> list[tuple[int, LevelRun, Ask]]:
        return [(index, track, track.ask) for index, track in enumerate(self.tracks) if track.ask is not None]

    def _opening(self) -> list[Statement]:
        return opening([StoredRound(index, self.done + 1, ask) for index, _, ask in self._waiting()])

    def questions(self) -> dict[str, tuple[Question, ...]]:
        """What every client is asked next, one question per level that is not finished; empty when the run is over."""
        rounds = self.rounds() or []
        asked = zip(*(one.questions for one in rounds), strict=True)
        return dict(zip((client.name for client in self.spec.clients), asked, strict=True)) if rounds else {}

    def _questions(self, track: LevelRun, ask: Ask) -> tuple[Question, ...]:
        return _level_questions(self.run, track.plan, track.state.round + 1, ask)

    def accept(
        self,
        counts: Sequence[Sequence[int | None]],
        also: Sequence[Statement] = (),
        unspent: Collection[str] = (),
        *,
        lengths: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Take the counts of exactly the rounds that `rounds()` gave, in that order: step, then write, all or nothing.

        `also` holds what the caller keeps with the round; it is written in the same transaction. `unspent` names
        clients that answer this round and whose ledgers show that no coin was drawn in the rounds before it that they
        have missed: these records are asked later. `lengths`, of an open-ended run, has for every count the number of
        people that came; a client of whom nobody came has the count None.
        """
        stored = []
        if (lengths is not None) != (self.spec.design == "open"):
            raise ProtocolError("an open-ended run, and no other, is told how many came: give lengths with its counts.")
        told: Sequence[Sequence[int] | None] = [None] * len(counts) if lengths is None else lengths
        for (index, track, _), ones, came in zip(self._waiting(), counts, told, strict=True):
            rows = enumerate(zip(track.plan.clients, track.state.records, strict=True))
            kept = tuple(k for k, (client, records) in rows if records.missed and client.name in unspent)
            ask = track.asked_of(came)
            track.advance(ones, kept, came)
            stored += [] if ask is None else [StoredRound(index, track.state.round, ask, tuple(ones), kept)]
        now = self.store.append(stored, [*also, *self._opening()])
        for one in stored:
            self.tracks[one.level_index].times.append(now)
            self._keep(one._replace(at=now))

    def result(self, level_index: int = 0) -> QuantileResult:
        """The result of one level so far."""
        return self.results()[level_index]

    def results(self) -> Results:
        """The results of all levels so far; refused while the quantile of one is still being searched for."""
        levels = [track.facts for track in self.tracks]
        return all_of(make_results(self.spec, levels, run=self.run, date=self.store.date, asked_as=self.store.spec))

    def stored_run(self) -> StoredRun:
        """All rounds as plain data, which outlives the file; of a coordinator that keeps them."""
        store = self.store
        kept = tuple(sorted(self._kept or (), key=lambda stored: stored[:2]))
        return StoredRun(self.run, store.spec, store.created, store.finished, store.why_ended, kept)

    def finish(self, why: Reason | None = None) -> None:
        """Mark the run as complete; refused while a level has a round left.

        An open-ended run is over at any time: by `command`, or by the `date` of its specification. Answers to the round
        that is open are not counted: accept them before. Where its number of answers or its width ended it, that is
        written.
        """
        if self.spec.design != "open":
            if why is not None or self.rounds() is not None:
                raise StoreError("the run is not over: rounds are left to ask.")
            self.store.finish()
            return
        if not self._waiting():
            reached = [isinstance(track.plan, OpenPlan) and track.plan.is_reached(track.state) for track in self.tracks]
            why = "answers" if all(reached) else "width"
        elif why not in ("command", "date"):
            raise StoreError("the run is open-ended and goes on. Give why='command' or why='date' to end it.")
        end = self.spec.end
        if why == "date" and (end is None or end.seconds is None or time.time() < end.seconds):
            raise StoreError("the run cannot end by its date: it has none, or it has not come. Give why='command'.")
        self.store.finish(why)
        for track in self.tracks:
            track.end(why)
