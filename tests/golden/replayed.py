"""A stored run played again: the one place of these tests that knows how the program asks and counts.

A run is told in plain words (`replays.RUNS`): levels, clients, scale, design. If the program's own parts move, this
file moves with them, and replays.json stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import make_scale, working_range
from privatile.estimator.clients import UNKNOWN_SIZE
from privatile.estimator.open_ended import End
from privatile.estimator.plan import Ask
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.result.result import QuantileResult
from privatile.result.summary import LevelFacts, make_results
from privatile.run.coordinator import LevelRun

Told = Mapping[str, Any]
AS_TOLD = ("rounds", "interval", "until_width", "simultaneous", "target", "normalizer", "confidence_level")
OPTIONS = {"values": "value_kind"} | {name: name for name in AS_TOLD}


class Asked(NamedTuple):
    """What a round asks."""

    query: float
    """On the working scale."""
    sent: float
    """In units, as clients are told."""
    lengths: tuple[int, ...]
    """Records of every client; of an open-ended run, how many came."""
    step: float
    averaged: bool
    stage: str


def mechanism(epsilon: float | None) -> RandomizedResponse:
    """The randomized response of a budget; none: the truth."""
    return RandomizedResponse.not_private() if epsilon is None else RandomizedResponse.from_epsilon(epsilon)


def to_working(told: Told, value: float) -> float:
    """A value in units on the working scale of a run."""
    return make_scale(told["scale"], *told["range"]).to_working(value)


class Replayed:
    """A run that is told what was asked and counted in every round."""

    def __init__(self, told: Told, shake: Callable[[], float] = lambda: 1.0) -> None:
        """Every answer is multiplied by what `shake` gives; 1: it is taken as it is."""
        self._shake = shake
        open_ended = told["design"] == "open"
        clients = tuple(
            ClientSpec(
                f"client {number}",
                mechanism(epsilon).threshold,
                weight,
                UNKNOWN_SIZE if open_ended else records,
                level,
            )
            for number, (epsilon, weight, records, level) in enumerate(told["clients"])
        )
        self._spec = RunSpec(
            "value",
            tuple(told["levels"]),
            clients,
            told["scale"],
            *map(float, told["range"]),
            design=told["design"],
            end=End(answers=told["answers"]) if "answers" in told else None,
            local_level="own" if told.get("own_levels") else "global",
            weighting="given",
            simulated=True,
            **{OPTIONS[name]: told[name] for name in OPTIONS if name in told},
        )
        self._levels = [LevelRun(self._spec, index) for index in range(len(self._spec.levels))]
        self.open_ended = open_ended

    @property
    def width_of_range(self) -> float:
        """Of the range, on the working scale."""
        low, high = working_range(self._spec.working_scale)
        return high - low

    def asks(self) -> list[Asked | None]:
        """What every level asks next; none where it is over."""
        return [
            None
            if (ask := level.ask) is None
            else Asked(ask.query, ask.sent, () if self.open_ended else ask.lengths, ask.step, ask.averaged, ask.stage)
            for level in self._levels
        ]

    def missed(self, level: int) -> list[bool]:
        """Which clients have missed rounds since their last answer."""
        return [bool(records.missed) for records in self._levels[level].state.records]

    def take(self, level: int, asked: Asked, ones: Sequence[int | None], unspent: Sequence[int] = ()) -> None:
        """One round of a level, as it was asked and counted."""
        track = self._levels[level]
        track.ask = Ask(asked.query, asked.lengths, asked.step, asked.averaged, asked.stage, asked.sent)
        counts: list[Any] = [
            None if count is None else _shaken(count, length, self._shake())
            for count, length in zip(ones, asked.lengths, strict=True)
        ]
        track.advance(counts, unspent, asked.lengths if self.open_ended else None)

    @property
    def gives_results(self) -> bool:
        """Whether every level has an interval so far."""
        return all(level.state.averages.give_interval for level in self._levels)

    def ends(self) -> list[dict[str, Any]]:
        """Of every level: estimate and intervals in units, method, caveats and whether it may be looked at any time."""
        return [self._ends(result) for result in self._results()]

    def facts(self) -> list[dict[str, Any]]:
        """Of every level: what the run shows about itself, and about every client; a round closes every hour."""
        return [
            {
                **{row.key: _without_words(row.value) for row in result.diagnostics},
                "clients": [[one.local_rank, *one.local_rank_interval, one.lying_rank] for one in result.clients],
            }
            for result in self._results()
        ]

    def _results(self) -> tuple[Any, ...]:
        levels = []
        for level in self._levels:
            times = [3600.0 * number for number in range(level.state.round)]
            levels.append(LevelFacts(level.plan, level.state, level.trajectory, level.at_fixed_end, times=times))
        return make_results(self._spec, levels, run="run")

    def _ends(self, result: QuantileResult) -> dict[str, Any]:
        other, anytime = result.other, result.anytime
        return {
            "method": result.method,
            "every look": result.valid_at_every_look,
            "grid": None if result.grid_values is None else len(result.grid_values),
            "caveats": sorted(caveat.code for caveat in result.caveats),
            "estimate": result.estimate,
            "interval": list(result.confidence_interval),
            "80%": list(result.interval(0.8)),
            "99%": list(result.interval(0.99)),
            "anytime": None if anytime is None else list(anytime),
            "other": None if other is None else list(other.interval),
        }


def _without_words(value: Any) -> Any:
    """A fact without sentences, which are no matter of replays."""
    if isinstance(value, dict):
        return {key: _without_words(one) for key, one in value.items() if key != "condition"}
    return [_without_words(one) for one in value] if isinstance(value, list) else value


def _shaken(count: int, length: int, factor: float) -> float:
    """An answer with its last bits changed; a whole number if nothing changes it."""
    return count if factor == 1.0 else min(count * factor, float(length))
