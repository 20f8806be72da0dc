"""When a round of an open-ended run closes and when the run ends, for surveys on the web and for federations.

A pure state machine; the clock and the arrivals come from outside.

    open      its question is handed out; answers count
    draining  the planned length is reached, or the time is up: the question is handed out no more, answers still count
    closing   the counts are fixed; an answer that comes now is late: spent, not counted
    closed    the run is over

A round's length is the number of people who came. Nothing here sees an answer: when a round closes, and so how long it
is, depends on times and numbers alone.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from privatile.estimator.open_ended import Reason, round_length

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
    grace: float
    """Seconds that it then still waits."""
    ends_at: float
    """When the run ends, in seconds since 1970; infinity: by something else."""
    end_answers: int
    """Counted answers after which it ends; 0: by something else."""

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

    @property
    def hands_out(self) -> bool:
        """Whether its question may be given to somebody who asks."""
        return self.phase is Phase.OPEN

    @property
    def counts(self) -> bool:
        """Whether an answer to its question is counted."""
        return self.phase in (Phase.OPEN, Phase.DRAINING)


def advance(rule: RoundRule, state: OpenRound, now: float, awaited: int | None) -> OpenRound:
    """The round at time `now`; the caller closes one that comes back as `closing`.

    `awaited` is how many questions of this round were handed out and not answered yet (none: not known, after a
    restart). With none of them left there is nobody to wait for.

    >>> rule = RoundRule(answers=10, seconds=60.0, grace=5.0, ends_at=1e9, end_answers=0)
    >>> early = OpenRound(1, Phase.OPEN, since=0.0, came=3, counted_before=0)
    >>> advance(rule, early, 59.0, 0).phase, advance(rule, early, 60.0, 1).phase
    (<Phase.OPEN: 'open'>, <Phase.DRAINING: 'draining'>)
    >>> advance(rule, replace(early, came=10), 1.0, 0).phase
    <Phase.CLOSING: 'closing'>
    """
    if state.phase is Phase.OPEN:
        reason = state.ending or end_reached(rule, state, now)
        full = state.came >= rule.planned(state)
        late = bool(rule.seconds and state.came and now - state.since >= rule.seconds)
        if not (reason or full or late):
            return state
        state = replace(state, phase=Phase.DRAINING, since=now, ending=reason)
    if state.phase is Phase.DRAINING:
        if not state.ending:
            state = replace(state, ending=end_reached(rule, state, now))
        if awaited == 0 or now - state.since >= rule.grace or now < state.since:
            state = replace(state, phase=Phase.CLOSING, since=now)
    return state


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
        return float("inf")
    by_time = state.since + rule.seconds if rule.seconds and state.came else float("inf")
    return min(by_time, rule.ends_at)
