"""A run's rounds as columns: what a page or a figure needs, O(rounds) + O(clients) in memory.

Everything comes from the run's file, which holds counts only; reading goes on where it stopped, so a live page reads
new rounds and no others.
"""

from __future__ import annotations

from array import array
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from privatile.server.store import RunStore, StoredRound

CHUNK = 4096
"""Rounds turned into arrays at once: bounds the memory of a run with many clients."""

Floats = NDArray[np.float64]


class ClientTally:
    """What each client did, in the specification's order."""

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
        self.last_answer = np.full(clients, np.nan)
        """When it last answered (seconds since 1970)."""

    def add(self, lengths: NDArray[np.int64], ones: Floats, at: Floats) -> None:
        """A chunk of rounds; ones are NaN where a client was silent."""
        here = ~np.isnan(ones)
        self.answered += here.sum(axis=0)
        self.silent += (~here).sum(axis=0)
        self.asked += np.where(here, lengths, 0).sum(axis=0)
        self.ones += np.where(here, ones, 0.0).sum(axis=0).astype(np.int64)
        ever = here.any(axis=0)
        last = len(here) - 1 - np.argmax(here[::-1], axis=0)
        self.streak = np.where(ever, len(here) - 1 - last, self.streak + len(here))
        self.last_answer = np.where(ever, at[last], self.last_answer)


class LevelHistory:
    """One level's rounds: where the question stood, the running mean, its normaliser, records, silence, time."""

    def __init__(self, level: int, clients: int) -> None:
        self.level = level
        self.tally = ClientTally(clients)
        self._columns = {name: array("d") for name in ("after", "mean", "normalizer", "at")}
        self._counts = {name: array("q") for name in ("records", "silent", "averaged")}

    def __len__(self) -> int:
        return len(self._columns["after"])

    def refresh(self, store: RunStore) -> int:
        """Read the rounds that are new; returns how many."""
        fresh, rounds = 0, store.rounds(self.level, after=len(self))
        while chunk := list(islice(rounds, CHUNK)):
            self._add(chunk)
            fresh += len(chunk)
        return fresh

    def _add(self, chunk: list[StoredRound]) -> None:
        lengths = np.array([entry.lengths for entry in chunk], dtype=np.int64)
        ones = np.array([entry.ones for entry in chunk], dtype=np.float64)  # None becomes NaN
        at = np.array([entry.at for entry in chunk])
        here = ~np.isnan(ones)
        before = self._counts["records"][-1] if len(self) else 0
        self._counts["records"].extend((before + np.cumsum(np.where(here, lengths, 0).sum(axis=1))).tolist())
        self._counts["silent"].extend((~here).sum(axis=1).tolist())
        self._counts["averaged"].extend(int(entry.averaged) for entry in chunk)
        self._columns["after"].extend(entry.after for entry in chunk)
        self._columns["mean"].extend(np.nan if entry.mean is None else entry.mean for entry in chunk)
        self._columns["normalizer"].extend(np.nan if entry.normalizer is None else entry.normalizer for entry in chunk)
        self._columns["at"].extend(at.tolist())
        self.tally.add(lengths, ones, at)

    @property
    def after(self) -> Floats:
        """The question after each round, working scale."""
        return np.array(self._columns["after"])

    @property
    def mean(self) -> Floats:
        """Running mean Q_m, working scale; NaN in the burn-in."""
        return np.array(self._columns["mean"])

    @property
    def normalizer(self) -> Floats:
        """V of Algorithm 2 so far; NaN in the burn-in."""
        return np.array(self._columns["normalizer"])

    @property
    def at(self) -> Floats:
        """When each round was stored (seconds since 1970)."""
        return np.array(self._columns["at"])

    @property
    def records(self) -> NDArray[np.int64]:
        """Records that had answered after each round."""
        return np.array(self._counts["records"], dtype=np.int64)

    @property
    def silent(self) -> NDArray[np.int64]:
        """Clients without an answer, by round."""
        return np.array(self._counts["silent"], dtype=np.int64)

    @property
    def burn_in(self) -> int:
        """Rounds before averaging (last) started."""
        skipped = np.flatnonzero(np.array(self._counts["averaged"], dtype=np.int64) == 0)
        return int(skipped[-1]) + 1 if len(skipped) else 0
