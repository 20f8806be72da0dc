"""A run's rounds as columns: what a page or a figure needs, O(rounds) + O(clients) in memory.

Everything comes from the run's file, which holds counts only; reading goes on where it stopped, so a live page reads
new rounds and no others. The columns lead to the same state and trajectory as replaying the rounds one by one with
`estimator.step`, some ten times faster.
"""

from __future__ import annotations

from array import array
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.scale import working_range
from privatile.errors import ProtocolError, StoreError
from privatile.estimator.averaging import Averages
from privatile.estimator.spec import RunSpec
from privatile.estimator.step import Plan, RoundState, TablePlan, begin
from privatile.inference.inference import Trajectory
from privatile.report.thinning import bucket_ends
from privatile.server.coordinator import Track
from privatile.server.store import RunStore, StoredRound

CHUNK = 4096
"""Rounds turned into arrays at once: bounds the memory of a run with many clients."""

MARKS = 120
"""Rounds at which the interval along the way is worked out; between them it is drawn straight."""

LONG, FEWER_MARKS = 2000, 32
"""A run of more rounds than this gets fewer marks: each costs a fit through all rounds before it."""

FLOATS = ("asked", "drift", "after", "weight", "step", "noise", "heard", "mean", "at")

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


class Reading(NamedTuple):
    """Estimate and intervals after a round, working scale; NaN where there is none."""

    estimate: float
    low: float
    high: float
    anytime_low: float
    anytime_high: float


class ClientTally:
    """What each client did, in the plan's order."""

    def __init__(self, clients: int) -> None:
        self.answered = np.zeros(clients, dtype=np.int64)
        """Rounds with an answer."""
        self.silent = np.zeros(clients, dtype=np.int64)
        """Rounds without one."""
        self.streak = np.zeros(clients, dtype=np.int64)
        """Silent rounds in a row up to now."""
        self.asked = np.zeros(clients, dtype=np.int64)
        """Records that answered."""
        self.ones = np.zeros(clients, dtype=np.int64)
        """Their yes."""
        self.window_asked = np.zeros(clients, dtype=np.int64)
        """Records that answered in the averaged rounds."""
        self.window_ones = np.zeros(clients, dtype=np.int64)
        """Their yes."""
        self.last_answer = np.full(clients, np.nan)
        """When it last answered (seconds since 1970)."""
        self.last_mean = np.full(clients, np.nan)
        """Its last debiased mean report."""
        self.last_noise = np.full(clients, np.nan)
        """The noise weight of that report."""
        self.last_heard = np.full(clients, np.nan)
        """The query, working scale, that it answered."""

    def add(self, lengths: Whole, ones: Floats, averaged: NDArray[np.bool_], at: Floats) -> None:
        """A chunk of rounds; ones are NaN where a client was silent."""
        here = ~np.isnan(ones)
        asked, yes = np.where(here, lengths, 0), np.where(here, ones, 0.0).astype(np.int64)
        self.answered += here.sum(axis=0)
        self.silent += (~here).sum(axis=0)
        self.asked += asked.sum(axis=0)
        self.ones += yes.sum(axis=0)
        if not averaged.all():  # averaging starts anew after the last round that was not averaged
            self.window_asked[:] = 0
            self.window_ones[:] = 0
            from_here = int(np.flatnonzero(~averaged)[-1]) + 1
            asked, yes = asked[from_here:], yes[from_here:]
        self.window_asked += asked.sum(axis=0)
        self.window_ones += yes.sum(axis=0)
        ever = here.any(axis=0)
        last = len(here) - 1 - np.argmax(here[::-1], axis=0)
        self.streak = np.where(ever, len(here) - 1 - last, self.streak + len(here))
        self.last_answer = np.where(ever, at[last], self.last_answer)


class Mark(NamedTuple):
    """Where a run stood after a round: kept now and then, so that its interval along the way can be worked out."""

    round: int
    averaged: int
    state: RoundState


def mark_rounds(planned: int) -> frozenset[int]:
    """Rounds to keep a mark at, known beforehand: all of a short run, else evenly spaced and, early on, geometric.

    >>> sorted(mark_rounds(5)), len(mark_rounds(100_000)) <= FEWER_MARKS
    ([1, 2, 3, 4, 5], True)
    """
    return frozenset(bucket_ends(planned, MARKS if planned <= LONG else FEWER_MARKS).tolist())


class LevelHistory:
    """One level's rounds: questions, what came back, the running mean, records, silence, time."""

    def __init__(self, spec: RunSpec, level: int) -> None:
        self.level = level
        self.plan: Plan = spec.plan(level)
        plan = self.plan
        self.tally = ClientTally(len(plan.clients))
        self.marks: list[Mark] = []
        self.readings: dict[int, Reading] = {}
        """Intervals already worked out at marks, by round: they stay what they are as the run grows."""
        self._mark_rounds = mark_rounds(plan.rounds)
        # A design that tunes itself learns from round to round: its state needs the rounds one by one.
        self._track = None if isinstance(plan, TablePlan) else Track(spec, level)
        self._floats = {name: array("d") for name in FLOATS}
        self._counts = {name: array("q") for name in ("records", "silent", "averaged")}
        self._rates = np.array([client.mechanism.truth_rate for client in plan.clients])
        self._weights = np.array([client.weight for client in plan.clients])
        own = plan.local_level == "own"
        self._levels = np.array([client.level if own else plan.level for client in plan.clients])

    def __len__(self) -> int:
        return len(self._floats["after"])

    def refresh(self, store: RunStore) -> int:
        """Read the rounds that are new; returns how many."""
        fresh, rounds = 0, store.rounds(self.level, after=len(self))
        while chunk := list(islice(rounds, self._next_chunk())):
            self._add(chunk, store.path)
            fresh += len(chunk)
            if len(self) in self._mark_rounds:
                state = self.state()
                if state.averages.rounds:
                    self.marks.append(Mark(len(self), state.averages.rounds, state))
                else:
                    self.marks.clear()  # averaging starts anew: what was read before belongs to the burn-in
                    self.readings.clear()
        return fresh

    def _next_chunk(self) -> int:
        done = len(self)
        return min((mark - done for mark in self._mark_rounds if mark > done), default=CHUNK) if done else 1

    def _add(self, chunk: list[StoredRound], path: str) -> None:
        lengths = np.array([entry.lengths for entry in chunk], dtype=np.int64)
        ones = np.array([entry.ones for entry in chunk], dtype=np.float64)  # None becomes NaN
        averaged = np.array([entry.averaged for entry in chunk])
        at, step = np.array([entry.at for entry in chunk]), np.array([entry.step for entry in chunk])
        asked, after = np.array([entry.query for entry in chunk]), np.array([entry.after for entry in chunk])
        here = ~np.isnan(ones)
        before = self._counts["records"][-1] if len(self) else 0
        kept = {"asked": asked, "after": after, "step": step, "at": at, **self._combine(asked, lengths, ones, here)}
        low, high = working_range(self.plan.scale)
        led = np.clip(asked + step * kept["drift"], low, high)
        start = self._floats["after"][-1] if len(self) else self.plan.start
        follows = asked == np.concatenate([[start], after[:-1]])
        if self._track is not None:
            try:
                for entry in chunk:
                    self._track.advance(entry.ones)
            except ProtocolError as error:
                raise StoreError(f"{path} does not replay: {error} Restore it from a backup.") from None
            follows = np.array([after[-1] == self._track.state.query])
        if np.abs(led - after).max() > 1e-9 * (high - low) or not follows.all():
            raise StoreError(
                f"{path} does not replay: its counts do not lead to its questions. Restore it from a backup."
            )
        self._counts["records"].extend((before + np.cumsum(np.where(here, lengths, 0).sum(axis=1))).tolist())
        self._counts["silent"].extend((~here).sum(axis=1).tolist())
        self._counts["averaged"].extend(averaged.astype(np.int64).tolist())
        for name, values in kept.items():
            self._floats[name].frombytes(values.astype(np.float64).tobytes())
        self._floats["mean"].extend(np.nan if entry.mean is None else entry.mean for entry in chunk)
        self.tally.add(lengths, ones, averaged, at)

    def _combine(self, asked: Floats, lengths: Whole, ones: Floats, here: NDArray[np.bool_]) -> dict[str, Floats]:
        """What each round's answers say; a silent client's last report stands in, its noise counted again."""
        tally = self.tally
        # Row 0 stands for what was last heard before this chunk; the row of the last answer is found by a running max.
        means = np.vstack([tally.last_mean, (ones / lengths - 0.5) / self._rates + 0.5])
        noise = np.vstack([tally.last_noise, (self._weights / self._rates) ** 2 / (4.0 * lengths)])
        heard = np.vstack([tally.last_heard, np.broadcast_to(asked[:, None], ones.shape)])
        rows = np.arange(1, len(ones) + 1)[:, None]
        last = np.maximum.accumulate(np.where(here, rows, 0), axis=0)
        used = rows - last + np.where(last == 0, tally.streak + 1, 1)
        columns = np.arange(ones.shape[1])[None, :]
        means, noise, heard = means[last, columns], noise[last, columns], heard[last, columns]
        tally.last_mean, tally.last_noise, tally.last_heard = means[-1], noise[-1], heard[-1]
        return {
            "drift": (means - (1.0 - self._levels)) @ self._weights,
            "weight": ((2 * used - 1) * noise).sum(axis=1),
            "noise": noise.sum(axis=1),
            "heard": heard @ self._weights,
        }

    def _column(self, name: str) -> Floats:
        return np.array(self._floats[name])

    @property
    def after(self) -> Floats:
        """The question after each round, working scale."""
        return self._column("after")

    @property
    def mean(self) -> Floats:
        """Running mean Q_m, working scale; NaN in the burn-in."""
        return self._column("mean")

    @property
    def at(self) -> Floats:
        """When each round was stored (seconds since 1970)."""
        return self._column("at")

    @property
    def records(self) -> Whole:
        """Records that had answered after each round."""
        return np.array(self._counts["records"], dtype=np.int64)

    @property
    def silent(self) -> Whole:
        """Clients without an answer, by round."""
        return np.array(self._counts["silent"], dtype=np.int64)

    @property
    def burn_in(self) -> int:
        """Rounds before averaging (last) started."""
        skipped = np.flatnonzero(np.array(self._counts["averaged"], dtype=np.int64) == 0)
        return int(skipped[-1]) + 1 if len(skipped) else 0

    def trajectory(self) -> Trajectory:
        """The averaged rounds."""
        if self._track is not None:
            return self._track.trajectory
        start = self.burn_in
        return Trajectory.of(
            [self._column(name)[start:] for name in ("asked", "drift", "after", "weight", "step")],
            [self._column(name) for name in ("heard", "drift", "noise")],
        )

    def state(self) -> RoundState:
        """Where the rounds led."""
        if self._track is not None:
            return self._track.state
        if not len(self):
            return begin(self.plan)
        tally, start = self.tally, self.burn_in
        return RoundState(
            round=len(self),
            query=self._floats["after"][-1],
            means=tuple(tally.last_mean.tolist()),
            noise=tuple(tally.last_noise.tolist()),
            used=tuple((tally.streak + 1).tolist()),
            heard=tuple(tally.last_heard.tolist()),
            ones=tuple(tally.ones.tolist()),
            asked=tuple(tally.asked.tolist()),
            window_ones=tuple(tally.window_ones.tolist()),
            window_asked=tuple(tally.window_asked.tolist()),
            averages=_averages(self.after, self._column("weight"), start, self.plan.start),
        )


def _averages(queries: Floats, weights: Floats, start: int, origin: float) -> Averages:
    """Algorithm 2's sums straight from their definition, centred where averaging started."""
    center = float(queries[start - 1]) if start else origin
    values, weights = queries[start:] - center, weights[start:]
    if not len(values):
        return Averages(center=center)
    m = np.arange(1, len(values) + 1)
    means = np.cumsum(values) / m
    u, away = weights * m.astype(np.float64) ** 2, means - means[-1]
    return Averages(
        center,
        len(values),
        float(means[-1]),
        float(weights.sum()),
        float(u.sum()),
        float(u @ away),
        float(u @ away**2),
    )
