"""When a round closes and when an open-ended run ends: one rule for federations, surveys and every other transport.

A pure state machine; the clock and the arrivals come from outside.

    open      its question is handed out; answers count
    draining  the planned length is reached, or the time is up: the question is handed out no more, answers still count
    closing   the counts are fixed; an answer that comes now is late: spent, not counted
    closed    the run is over

A round of an open-ended run is as long as the number of people who came. Where the clients have agreed on numbers of
records, a round closes as soon as enough clients have answered, and else at its deadline, as far as the run may go on
without the others. Nothing here sees an answer: when a round closes depends on times and numbers alone.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, NamedTuple

from privatile.core.mechanism import IMPOSSIBLE
from privatile.estimator.open_ended import MIN_ROUND_LENGTH, SHARE, Reason, round_length
from privatile.run.coordinator import LevelRun

ROUND_LENGTH = f"{MIN_ROUND_LENGTH}, later 1/{SHARE} of all so far"
"""`round_length` in words."""

Ending = Reason | Literal[""]
"""Why a run ends, as its file says it; empty: it goes on."""


class Phase(StrEnum):
    """Where a round is."""

    OPEN = "open"
    DRAINING = "draining"
    CLOSING = "closing"
    CLOSED = "closed"


@dataclass(frozen=True)
class RoundRule:
    """What was fixed beforehand."""

    answers: int
    """Answers after which a round hands out its question no more; 0: as many as `round_length` says."""
    seconds: float
    """Seconds after which it does so, once somebody has answered; 0: only the number counts."""
    grace: float = 0.0
    """Seconds that it then still waits."""
    ends_at: float = math.inf
    """When the run ends, in seconds since 1970; infinity: by something else."""
    end_answers: int = 0
    """Counted answers after which it ends; 0: by something else."""
    agreed: bool = False
    """Whether every client has agreed on a number of records: `answers` counts clients, and `seconds` are a deadline,
    which comes whether somebody has answered or not."""

    def planned(self, state: "OpenRound") -> int:
        """Answers at which the round hands out its question no more."""
        return self.answers or round_length(state.counted_before)


@dataclass(frozen=True)
class OpenRound:
    """The round that is asked now, as far as its end depends on it."""

    number: int
    phase: Phase
    since: float
    """When the phase began."""
    came: int
    """Answers of this round that are counted."""
    counted_before: int
    """Answers of the rounds before it."""
    ending: Ending = ""
    """Why the run ends after this round; empty: it goes on."""
    paused: str = ""
    """Why the round cannot be closed, though its time has come; empty where it can, or only waits."""

    @property
    def hands_out(self) -> bool:
        """Whether its question may be given to somebody who asks."""
        return self.phase is Phase.OPEN

    @property
    def counts(self) -> bool:
        """Whether an answer to its question is counted."""
        return self.phase in (Phase.OPEN, Phase.DRAINING)


class Present(NamedTuple):
    """Who is waited for."""

    awaited: int | None = None
    """Questions of this round that were handed out and not answered yet; None: not known, after a restart."""
    complete: bool = False
    """Whether all who could answer this round are known, and have answered."""
    held: str = ""
    """Why people must decide before anything goes on."""
    absent: str = ""
    """Why the run may not go on without those who have not answered."""


def advance(rule: RoundRule, state: OpenRound, now: float, present: Present) -> OpenRound:
    """The round at time `now`; the caller closes one that comes back as `closing`.

    >>> rule = RoundRule(answers=10, seconds=60.0, grace=5.0)
    >>> early = OpenRound(1, Phase.OPEN, since=0.0, came=3, counted_before=0)
    >>> advance(rule, early, 59.0, Present(0)).phase, advance(rule, early, 60.0, Present(1)).phase
    (<Phase.OPEN: 'open'>, <Phase.DRAINING: 'draining'>)
    >>> advance(rule, replace(early, came=10), 1.0, Present(0)).phase
    <Phase.CLOSING: 'closing'>
    >>> agreed = RoundRule(answers=4, seconds=60.0, agreed=True)
    >>> advance(agreed, early, 60.0, Present(absent="client north is silent")).paused
    'client north is silent'
    """
    if not state.counts:
        return state
    state = replace(state, paused=present.held)
    if present.held:
        return state
    ending = state.ending or end_reached(rule, state, now)
    closing = replace(state, phase=Phase.CLOSING, since=now, ending=ending)
    if present.complete:
        return closing
    late = now - state.since >= rule.seconds
    if rule.agreed:
        if not late and state.came < rule.answers:
            return state
        why = present.absent or ("" if state.came else "no client answered within the deadline")
        return replace(state, paused=why if late else "") if why else closing
    if state.phase is Phase.OPEN:
        late = late and bool(rule.seconds and state.came)
        if not (ending or late or state.came >= rule.planned(state)):
            return state
        state = replace(state, phase=Phase.DRAINING, since=now)
    # A clock that was set back holds no round open.
    over = present.awaited == 0 or now - state.since >= rule.grace or now < state.since
    return closing if over else replace(state, ending=ending)


def end_reached(rule: RoundRule, state: OpenRound, now: float) -> Ending:
    """Why the run ends here, by what was fixed beforehand; empty where that is not reached."""
    if now >= rule.ends_at:
        return "date"
    if rule.end_answers and state.counted_before + state.came >= rule.end_answers:
        return "answers"
    return ""


def wakes_at(rule: RoundRule, state: OpenRound) -> float:
    """When the clock alone may change the round next; infinity: never."""
    if state.phase is Phase.DRAINING:
        return state.since + rule.grace
    if state.phase is not Phase.OPEN:
        return math.inf
    by_time = state.since + rule.seconds if rule.agreed or (rule.seconds and state.came) else math.inf
    return min(by_time, rule.ends_at)


def must_wait_for(missing: Sequence[str], tracks: Sequence[LevelRun], patience: int) -> str:
    """Why a round cannot be closed without the answers of these clients; empty when it can."""
    names = set(missing)
    for track in tracks:
        if track.ask is None:
            continue
        for client, used in zip(track.plan.clients, track.state.used, strict=True):
            if client.name not in names:
                continue
            if not used:
                return f"client {client.name} has never answered: the first round needs every client"
            if used - 1 >= patience:
                return f"client {client.name} has been silent for {used - 1} rounds"
    return ""


IMPOSSIBLE_SHARE = (
    f"its share of ones over all rounds is impossible under its truth rate ({IMPOSSIBLE:g} standard errors)"
)
"""Why a client of `impossible_clients` is put in quarantine."""


def impossible_clients(tracks: Sequence[LevelRun]) -> Iterator[str]:
    """Clients whose share of ones over all rounds is impossible under their truth rate."""
    for track in tracks:
        for client, ones, asked in zip(track.plan.clients, track.state.ones, track.state.asked, strict=True):
            if client.mechanism.impossible(ones, asked):
                yield client.name
