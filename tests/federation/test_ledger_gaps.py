"""Entries of a client's ledger that no count of the run stands for."""

from __future__ import annotations

import pytest

from privatile import Question
from privatile.records import Checks, Exchange, check_links


@pytest.mark.parametrize(
    ("sequences", "left_out"),
    [({1: 1, 4: 4}, True), ({1: 1, 2: 2, 3: 3, 4: 4}, False), ({1: 1, 4: 2}, False)],
)
def test_answers_that_were_left_out_show_in_the_signed_links(sequences: dict[int, int], left_out: bool) -> None:
    asked = {
        (number, "south"): Exchange((Question("r", number, 0.5, 1.0, 9),), (3 if number in sequences else None,))
        for number in range(1, 5)
    }
    checks = Checks()
    check_links(checks, asked, {(number, "south"): entry for number, entry in sequences.items()}, ())
    assert not checks.failed
    assert ["south (2)" in text for text in checks.flagged] == [True] * left_out
