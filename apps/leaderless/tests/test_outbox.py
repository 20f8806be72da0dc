"""When an entry that was not seen in the log is published again."""

from __future__ import annotations

from privatile_leaderless.log import DELAYS, LATE, REFUSED, RETRY, STORED, Outbox


def after(delays: list[float]) -> Outbox:
    """An outbox whose entries took so long."""
    box = Outbox()
    for number, delay in enumerate(delays):
        payload = str(number).encode()
        box.add(payload, now=0.0)
        box.seen(payload, now=delay)
    return box


def test_an_entry_is_given_more_time_where_entries_take_long() -> None:
    assert after([]).retry == after([0.01] * 3).retry == RETRY
    box = Outbox()
    box.add(b"first", now=0.0)
    sent = [now for now in (step / 100 for step in range(1000)) if box.due(now)]
    assert [round(later - one, 2) for one, later in zip([0.0, *sent], sent, strict=False)] == [
        0.3,
        0.6,
        1.2,
        2.4,
        2.4,
        2.4,
    ]
    slow = after([3.0] * DELAYS)
    assert (slow.delay, slow.retry) == (3.0, LATE * 3.0)
    slow.add(b"late", now=0.0)
    assert slow.due(LATE * 3.0 - 0.01) == []
    assert slow.due(LATE * 3.0) == [b"late"]


def test_a_server_that_is_lost_now_and_then_changes_nothing() -> None:
    usual = [0.02] * (DELAYS - 1)
    assert after([*usual, 9.0]).retry == RETRY
    assert after([9.0] * (DELAYS // 2 + 1) + usual[: DELAYS // 2]).retry == LATE * 9.0  # it has become usual


def test_what_the_servers_say_moves_the_time() -> None:
    box = Outbox()
    first, second = box.add(b"first", now=0.0), box.add(b"second", now=0.0)
    box.stored(first, now=0.1)
    box.refused(second, now=0.1)
    box.stored("unknown", now=0.1)
    box.refused("unknown", now=0.1)
    assert box.next_at(1e9) == 0.1 + REFUSED
    assert box.due(0.1 + REFUSED) == [b"second"]
    assert box.due(0.1 + REFUSED) == []  # not twice at once
    assert b"first" in box.due(0.1 + STORED)  # the servers are not trusted for ever
    box.seen(b"first", now=6.0)
    box.seen(b"second", now=6.0)
    assert (box.due(1e9), box.next_at(7.0), b"first" in box) == ([], 7.0, False)
