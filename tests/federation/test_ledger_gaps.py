"""Entries of a client's ledger that no count of the run stands for."""

from __future__ import annotations

from privatile.core.messages import Question
from privatile.federation.record.record import Exchange, Exchanges
from privatile.federation.record.verify import Checks, flag_ledger_gaps
from privatile.federation.wire import Link


def flagged(sequences: dict[int, int]) -> list[str]:
    asked: Exchanges = {
        (number, "south"): Exchange((Question("r", number, 0.5, 1.0, 9),), (3 if number in sequences else None,))
        for number in range(1, 5)
    }
    checks = Checks()
    flag_ledger_gaps(checks, asked, {(number, "south"): Link(n, f"{n:032x}") for number, n in sequences.items()})
    return checks.flagged


def test_answers_that_were_left_out_show_in_the_signed_links() -> None:
    (text,) = flagged({1: 1, 4: 4})
    assert "south (2)" in text


def test_a_client_that_drew_no_coin_is_not_flagged() -> None:
    assert flagged({1: 1, 2: 2, 3: 3, 4: 4}) == []
    assert flagged({1: 1, 4: 2}) == []
