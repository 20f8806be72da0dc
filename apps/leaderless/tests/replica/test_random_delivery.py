"""Around a lost log, whatever part of what was signed the operator shows to whom: one history.

PRIVATILE_LONG=1 plays 5,000 histories.
"""

from __future__ import annotations

import os

import pytest

from privatile_leaderless.replica import Replica
from replica.hostile import Wrong, remembered
from replica.hostile_delivery import play_heaps

pytestmark = pytest.mark.timeout(7200)  # of the long form
HISTORIES = 5000 if os.environ.get("PRIVATILE_LONG") else 30
BROKEN = (229, 565, 623)
"""Seeds that commit two histories where a signature over the end takes no slot but its own."""
ONCE_BROKEN = (39,)
"""Seeds that did so in earlier versions: there a peer went back behind a committed round to a place that was named."""


def test_no_two_honest_peers_commit_different_histories() -> None:
    with remembered():
        found = play_heaps((*BROKEN, *ONCE_BROKEN, *range(HISTORIES)))
    print(dict(found))
    assert found["finished"] > HISTORIES // 4  # otherwise nothing was tried
    assert found["rounds"] > 2 * HISTORIES


def test_without_the_slot_before_the_end_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replica, "claims", property(lambda self: ((self.slot, self.head),)))
    with remembered():
        for seed in BROKEN:
            with pytest.raises(Wrong, match="committed with two chain values"):
                play_heaps((seed,))
