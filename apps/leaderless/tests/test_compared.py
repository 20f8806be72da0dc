"""What the kills are judged by: counts of a run's file against a ledger, each fault found."""

from __future__ import annotations

import pytest

from peers_kit import Compared, against
from privatile.core.messages import Answer, Question
from privatile.estimator.plan import Ask

Rows = list[tuple[int, int, Ask, list[int | None], list[int]]]


def given(*rounds: int) -> dict[int, tuple[Answer, ...]]:
    return {number: (Answer(Question("run", number, 0.5, float(number), 4), "north", 2),) for number in rounds}


def rows(*ones: int | None, unspent: int = 0) -> Rows:
    """Rounds of one client; with the answer to round `unspent` what it had missed before is asked again."""
    found: Rows = []
    for number, one in enumerate(ones, 1):
        ask = Ask(float(number), (4,), 1.0, True, "", float(number))
        found.append((0, number, ask, [one], [0] if number == unspent else []))
    return found


def test_counts_and_silent_ones_are_all_accounted_for() -> None:
    assert against(given(1, 2, 4), rows(2, 2, None, 2), 0, [0.5]) == Compared(3, 1, 0)
    assert against(given(1, 2, 4), rows(2, 2, None, 2, unspent=4), 0, [0.5]) == Compared(3, 1, 0)
    # Drawn and lost: it stays spent.
    assert against(given(1, 2, 3, 4), rows(2, 2, None, 2), 0, [0.5]) == Compared(3, 1, 1)


@pytest.mark.parametrize(
    ("ledger", "file", "words"),
    [
        (given(1, 2), rows(2, 3), "another count in round 2"),
        (given(1, 2, 4), rows(2, None, None, 2, unspent=4), "given back in round 4, and spent before"),
        (given(1), rows(2, 2), "not enough values"),  # a count that the ledger has never given
    ],
)
def test_a_wrong_count_and_one_that_is_asked_again_are_found(
    ledger: dict[int, tuple[Answer, ...]], file: Rows, words: str
) -> None:
    with pytest.raises((AssertionError, ValueError), match=words):
        against(ledger, file, 0, [0.5])
