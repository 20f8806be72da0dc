"""However often logs are lost: when all are up again, and have their files, the run goes on to its end.

PRIVATILE_LONG=1 plays 10,000 histories, and 2,000 and 1,000 of the others.
"""

from __future__ import annotations

import os

import pytest

from privatile_leaderless.recovery import Choice, PeerPosition, Place
from privatile_leaderless.replica import Replica
from replica.hostile import remembered
from replica.lost_logs import count_stuck, play_losses

pytestmark = pytest.mark.timeout(7200)  # of the long form
LONG = bool(os.environ.get("PRIVATILE_LONG"))
HISTORIES = 10_000 if LONG else 25
ONCE_STUCK = (51, 1714, 2617)
"""Seeds that came to no end in earlier versions."""


def test_a_run_of_honest_peers_always_comes_to_its_end() -> None:
    with remembered():
        found = play_losses((*ONCE_STUCK, *range(HISTORIES)))
    print(dict(found))
    assert found["logs lost"] > 2 * HISTORIES  # otherwise nothing was tried
    assert found["rounds that lack an answer"] > HISTORIES


def test_where_everybody_signs_at_once_where_it_stands_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def here(replica: Replica) -> Choice | None:
        if not replica.recovering or replica.behind is not None:
            return None
        place = Place(replica.closed, replica.chain, replica.ended)
        return Choice(PeerPosition("", place, None, 0, None, (), b""), (), ())

    monkeypatch.setattr(Replica, "begins_at", property(here))
    histories = 1000 if LONG else 8
    with remembered():
        stuck = count_stuck(range(histories))
    print(stuck, "of", histories)
    assert stuck > histories // 4


def test_where_only_a_quorum_is_up_in_the_end_nearly_all_go_on() -> None:
    """Those who are away may be needed: what one of them has signed nobody else can sign otherwise."""
    histories = 2000 if LONG else 12
    with remembered():
        stuck = count_stuck(range(histories), only_quorum=True)
    print(stuck, "of", histories)
    assert stuck <= histories // 50
