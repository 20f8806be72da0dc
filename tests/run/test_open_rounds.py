from __future__ import annotations

import heapq
import itertools
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatile.run.rounds import OpenRound, Phase, Present, RoundRule, advance, wakes_at

RULE = RoundRule(answers=10, seconds=60.0, grace=5.0, ends_at=1000.0, end_answers=100)
FRESH = OpenRound(1, Phase.OPEN, since=0.0, came=0, counted_before=0)
ORDER = list(Phase)


@pytest.mark.parametrize(
    ("state", "now", "awaited", "phase", "ending"),
    [
        (FRESH, 59.0, 0, "open", ""),
        (FRESH, 500.0, 0, "open", ""),  # nobody came: the time alone closes nothing
        (replace(FRESH, came=1), 60.0, 1, "draining", ""),
        (replace(FRESH, came=9), 1.0, 1, "open", ""),
        (replace(FRESH, came=10), 1.0, 1, "draining", ""),
        (replace(FRESH, came=10), 1.0, 0, "closing", ""),  # nobody is waited for
        (replace(FRESH, came=10), 1.0, None, "draining", ""),  # after a restart: perhaps somebody is
        (replace(FRESH, phase=Phase.DRAINING, came=10), 4.9, 3, "draining", ""),
        (replace(FRESH, phase=Phase.DRAINING, came=10), 5.0, 3, "closing", ""),
        (replace(FRESH, came=3), 1000.0, 1, "draining", "date"),
        (FRESH, 1000.0, 0, "closing", "date"),
        (replace(FRESH, came=5, counted_before=95), 1.0, 1, "draining", "answers"),
        (replace(FRESH, ending="command"), 1.0, 1, "draining", "command"),
        (replace(FRESH, phase=Phase.CLOSED), 1e9, 0, "closed", ""),
        (replace(FRESH, phase=Phase.CLOSING), 1e9, 0, "closing", ""),
    ],
)
def test_when_a_round_goes_on(state: OpenRound, now: float, awaited: int | None, phase: str, ending: str) -> None:
    after = advance(RULE, state, now, Present(awaited))
    assert (after.phase.value, after.ending) == (phase, ending)


def test_a_clock_that_is_set_back_does_not_hold_a_round_open() -> None:
    draining = replace(FRESH, phase=Phase.DRAINING, since=100.0, came=10)
    assert advance(RULE, draining, 50.0, Present(3)).phase is Phase.CLOSING


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 8), st.integers(0, 3)), max_size=30))
def test_phases_only_go_forward_and_the_clock_is_told_when_to_look(steps: list[tuple[float, int, int]]) -> None:
    state, now = FRESH, 0.0
    for passed, came, awaited in steps:
        now += passed
        if state.counts:
            state = replace(state, came=state.came + came)
        after = advance(RULE, state, now, Present(awaited))
        assert ORDER.index(after.phase) >= ORDER.index(state.phase)
        assert after.came == state.came, "the length is what came"
        if after == state and state.phase is not Phase.CLOSING:
            assert wakes_at(RULE, state) > now
        state = after


def late_share(grace: float, *, rate: float = 100.0, seconds: float = 120.0) -> float:
    """Arrivals at random times, each answering its question after a delay: the share that comes too late."""
    rng = random.Random(1)
    rule = RoundRule(answers=0, seconds=0.0, grace=grace, ends_at=math.inf, end_answers=0)
    # A device compares and sends by itself: mobile networks take a third of a second, sometimes several.
    delays = [rng.lognormvariate(math.log(0.3), 0.7) for _ in range(1000)]
    events: list[tuple[float, int, int]] = []
    order = itertools.count()
    at = 0.0
    while at < seconds:
        at += rng.expovariate(rate)
        heapq.heappush(events, (at, next(order), 0))
    state, awaited, late, answered = FRESH, 0, 0, 0
    while events:
        now, _, number = heapq.heappop(events)
        state = advance(rule, state, now, Present(awaited))
        if state.phase is Phase.CLOSING:
            state = OpenRound(state.number + 1, Phase.OPEN, now, 0, state.counted_before + state.came)
            awaited = 0
        if not number and state.hands_out:
            awaited += 1
            heapq.heappush(events, (now + rng.choice(delays), next(order), state.number))
        elif not number:
            heapq.heappush(events, (now + 1.0, next(order), 0))  # told to come again
        else:
            answered += 1
            if number == state.number:
                state, awaited = replace(state, came=state.came + 1), awaited - 1
            else:
                late += 1
    return late / answered


def test_late_answers_are_below_one_percent_at_100_arrivals_a_second() -> None:
    assert late_share(5.0) < 0.01
    assert late_share(0.1) > 0.05, "the control: without a grace time many are late"
