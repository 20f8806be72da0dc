"""Stored runs, replayed: the same decisions and the same ends."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.golden.replays import RUNS, differences, near_ties, read

STORED = read()


def test_every_run_is_stored() -> None:
    assert list(STORED) == list(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_a_stored_run_decides_and_ends_as_it_did(name: str) -> None:
    stored = STORED[name]
    # What hangs on the last bit of an answer may fall otherwise on another machine, and all that follows with it.
    last = min(stored["near ties"], default=len(stored["rounds"]) + 1)
    found = [f"row {row}: {what}" for row, what in differences(stored) if row < last]
    assert not found, "\n".join(found[:20])


def test_near_ties_are_those_that_were_listed() -> None:
    listed = [name for name, stored in STORED.items() if stored["near ties"]]
    assert listed == ["straddle, a near tie"]
    assert near_ties(STORED[listed[0]])
    assert not near_ties(STORED["straddle"])


@pytest.mark.parametrize(
    "name", ["straddle", "straddle, three clients, silent", "open", "tuned", "rounds", "paper-log"]
)
def test_a_changed_count_or_end_is_noticed(name: str) -> None:
    """The negative control: a comparison that is too kind would hold for these."""
    plain: dict[str, Any] = copy.deepcopy(STORED[name])
    row = plain["rounds"][len(plain["rounds"]) // 2]
    ones = row[7]
    client = next(k for k, count in enumerate(ones) if count is not None and count < row[6][k])
    ones[client] += 1
    assert list(differences(plain))
    ones[client] -= 1
    assert not list(differences(plain))
    row[4] += 1e-6
    assert list(differences(plain))
    row[4] = STORED[name]["rounds"][len(plain["rounds"]) // 2][4]
    last = list(plain["looks"].values())[-1][0]
    low, high = (float(end) for end in last["interval"])
    for changed in ("interval", "80%", "99%"):
        kept = last[changed]
        last[changed] = [kept[0], str(float(kept[1]) + 1e-7 * (high - low))]
        assert [what for _, what in differences(plain) if changed in what]
        last[changed] = kept
    plain["facts"][0]["information"] *= 1 + 1e-7
    assert [what for _, what in differences(plain) if "information" in what]
    last["caveats"] = [*last["caveats"], "another"]
    assert [what for _, what in differences(plain) if "caveats" in what]
