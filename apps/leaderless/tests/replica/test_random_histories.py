"""Whatever the log's operator shows and liars sign: no two honest peers commit different histories.

PRIVATILE_LONG=1 plays 10,000 histories.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from privatile.run.run_file import RunStore, Statement
from privatile_leaderless import quorums
from replica.hostile import Stored, WithoutSlots, Wrong, play_many, remembered

pytestmark = pytest.mark.timeout(7200)  # of the long form
FORGETS = 259
"""A seed in which a peer is killed between its signature and the next time that it writes its file."""
HISTORIES = 10_000 if os.environ.get("PRIVATILE_LONG") else 30


def test_no_two_honest_peers_commit_different_histories() -> None:
    with remembered():
        found = play_many(range(HISTORIES))
    print(dict(found))
    # Otherwise nothing was tried.
    assert found["forked rounds"] > HISTORIES // 20
    assert found["rounds"] > HISTORIES
    assert found["finished"] > HISTORIES // 10
    assert min(found["restarts"], found["logs lost"]) > 0


def test_nor_do_peers_with_files_that_are_killed_at_any_time() -> None:
    with remembered():
        found = play_many((*range(HISTORIES // 5), FORGETS), Stored)
    print(dict(found))
    assert min(found["rounds"], found["restarts"], found["logs lost"]) > 0


def test_where_slots_are_not_written_before_they_are_signed_they_sign_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    execute = RunStore.execute

    def forgets(store: RunStore, statements: Iterable[Statement]) -> None:
        execute(store, [one for one in statements if "INTO peer_slots" not in one[0]])

    monkeypatch.setattr(RunStore, "execute", forgets)
    with remembered(), pytest.raises(Wrong, match="two values in slot"):
        play_many((FORGETS,), Stored)


def test_without_the_rule_of_slots_they_do() -> None:
    with remembered(), pytest.raises(Wrong, match="committed with two chain values"):
        play_many(range(235, 700), WithoutSlots)


def test_with_a_smaller_quorum_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorums, "signing", lambda study: (len(study.clients) + quorums.liars(study)) // 2)
    with remembered(), pytest.raises(Wrong, match="committed with two chain values"):
        play_many(range(5, 200))
