"""Around a lost log, whatever part of what was signed the operator shows to whom: one history.

PRIVATILE_LONG=1 plays 5,000 histories. That the rule of the last slot is needed: test_last_round.py.
"""

from __future__ import annotations

import os

import pytest

from replica.hostile import remembered
from replica.hostile_delivery import play_heaps

pytestmark = pytest.mark.timeout(7200)  # of the long form
HISTORIES = 5000 if os.environ.get("PRIVATILE_LONG") else 30


def test_no_two_honest_peers_commit_different_histories() -> None:
    with remembered():
        found = play_heaps(range(HISTORIES))
    print(dict(found))
    assert found["finished"] > HISTORIES // 4  # otherwise nothing was tried
    assert found["rounds"] > 2 * HISTORIES
