"""The audit of a peer passes the shipped process and finds broken ones; questions that answers change alarm nobody."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privatile.estimator.plan import Ask
from privatile.federation.audit.audit import Audit
from privatile.federation.audit.checks import SHARES
from privatile.federation.audit.judgement import WHOLE_SHARE
from privatile.federation.audit.peer_audit import audit_peer, find_once_again, own_peer
from privatile.federation.audit.peer_plan import PEER_PARTS, PeerPlan, asked_by_runs, make_peer_plan
from privatile.federation.audit.peer_session import OpenRound
from privatile.federation.audit.plan import RATIO_ALPHA
from privatile.federation.audit.planted import RUN_RANGE
from privatile.federation.audit.quiet import traces_of
from privatile.federation.audit.table import Table
from privatile.server.run_file import StoredRound
from tests.federation.broken_clients.simulated import Honest
from tests.federation.broken_clients.simulated_peers import run_failures
from tests.federation.broken_clients.table import TABLE

BROKEN = Path(__file__).parent / "broken_clients"
LONG = bool(os.environ.get("PRIVATILE_LONG"))

NOT_FOUND = {
    "PlainFirstRound",  # its cohort may be small; found in some audits
    "PlainFile",  # a file of one value
    "PlainSmallFile",
    "PlainBelow500",
    "PlainExtremes",  # questions near the ends of the range
    "PlainAtOneLevel",  # levels from 0.9
    "PlainInLocalMode",
    "PlainNearInLocalMode",
    "CachedByQuery",  # a question that comes twice
    "PlainTies",  # a question that many records equal
}
"""Clients of the table that cheat where a run does not come, or hardly: a join's audit finds them."""


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "src"), str(root)]))


def failed(found: Audit) -> dict[str, str]:
    return {one.name: one.text for one in found.findings if not one.passed}


# -- real processes


@pytest.mark.network
@pytest.mark.usefixtures("importable")
def test_the_shipped_peer_passes() -> None:
    found = audit_peer(1.0, own_peer()) if LONG else audit_peer(3.0, own_peer(), off=0.3, rounds=8, parts=["first"])
    assert found.passed, found.to_text()
    assert "The peer passes" in found.to_text()
    assert "the questions its own" in found.findings[0].text
    assert found.reports > (1e6 if LONG else 2e4)


@pytest.mark.network
@pytest.mark.usefixtures("importable")
def test_a_wrong_rate_coins_drawn_again_and_a_value_in_a_file_are_found() -> None:
    command = [sys.executable, str(BROKEN / "forgetful.py"), "0.9"]
    found = failed(audit_peer(3.0, command, off=0.1, rounds=40, parts=["first", "kill"]))
    assert {"ratio", "once", "quiet"} <= set(found), found
    assert "coins were drawn again" in found["once"]
    assert "column.npy" in found["quiet"]


@pytest.mark.network
@pytest.mark.skipif(not LONG, reason="a long form: set PRIVATILE_LONG=1")
@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize(
    ("command", "finders", "parts"),
    [
        (["wrong_rate.py", "1.02"], {"ratio", "share"}, ["first"]),  # or the other peers find it: an impossible share
        (["wrong_rate.py", "0.98"], {"ratio"}, ["first"]),
        (["forgetful.py", "1"], {"once"}, ["first", "kill"]),
        (["seeded.py"], {"repeat"}, ["first", "copy"]),
        (["leaky.py"], {"quiet"}, ["first"]),
        (["careless.py", "files"], {"quiet"}, ["first"]),
        (["careless.py", "twice"], {"whole"}, ["first"]),
        (["careless.py", "rows"], {"whole"}, ["first"]),
    ],
)
def test_a_broken_peer_is_found(command: list[str], finders: set[str], parts: list[str]) -> None:
    program = [sys.executable, str(BROKEN / command[0]), *command[1:]]
    off = 0.02 if command[0] == "wrong_rate.py" else 0.5
    found = failed(audit_peer(3.0, program, off=off, rounds=40, parts=parts))
    assert finders & set(found), found


@pytest.mark.network
def test_a_program_that_takes_no_part_is_found() -> None:
    found = failed(audit_peer(1.0, ["true"], off=0.5, rounds=8, parts=["first"]))
    assert "ended" in found["answers"], found


# -- runs in this process


@pytest.fixture(scope="module")
def plan() -> PeerPlan:
    return make_peer_plan(1.0, np.random.default_rng(20261117), off=0.5, rounds=40)


FEW = ("NoNoise", "SeededByKey", "PlainBelow100", "PlainMissing", "SharedByLevels", "WithReplacement", "EveryRow")


@pytest.mark.statistical
@pytest.mark.parametrize("name", sorted(TABLE.keys() - NOT_FOUND) if LONG else FEW)
def test_a_broken_client_is_found_as_a_peer(name: str, plan: PeerPlan) -> None:
    rng = np.random.default_rng(3)
    long = make_peer_plan(1.0, rng) if LONG else plan
    assert run_failures(long, TABLE[name], rng), TABLE[name].__doc__


@pytest.mark.statistical
def test_honest_peers_pass_in_this_process(plan: PeerPlan) -> None:
    """An audit fails once in 1,000: P(two or more of 10) < 5e-5."""
    rng = np.random.default_rng(3)
    assert sum(bool(run_failures(plan, Honest, rng)) for _ in range(10)) <= 1


def test_the_false_alarms_of_a_peers_audit_are_one_in_a_thousand() -> None:
    """Those of the check `study`, which no run has, are left for a quarantine of an honest peer (5 standard errors)."""
    assert sum(SHARES.values()) - SHARES["study"] + 2 * RATIO_ALPHA + WHOLE_SHARE <= 1e-3


# -- what is fixed beforehand


def stored(plan: PeerPlan, queries: list[float]) -> list[StoredRound]:
    """A run that has asked these, whatever was answered."""
    rounds = []
    sizes = [int(size) for size in plan.study.design.removeprefix("list:").split(",")]
    for number, (query, size) in enumerate(zip(queries, sizes, strict=False), 1):
        for level in range(len(plan.study.levels)):
            ask = Ask(query, (size,) * 4, 1.0, True, "", query)
            rounds.append(StoredRound(level, number, ask, (size, 0, size // 2, size // 2)))
    return rounds


def test_no_group_depends_on_an_answer(plan: PeerPlan) -> None:
    """Other thresholds, which other answers would have led to, give the same groups of questions."""
    groups = []
    for queries in (np.linspace(*RUN_RANGE, 40), np.linspace(50_000.0, 50_001.0, 40)):
        asked, _ = asked_by_runs(plan, {"first": stored(plan, queries.tolist())})
        table = Table(asked)
        groups.append([(words, places.tolist()) for words, places in table.groups])
        assert table.alike() == []
        fixed = Table(replace(asked, fixed=True))
        assert len(fixed.groups) > len(table.groups)
    assert groups[0] == groups[1]


def test_files_outside_the_range_have_one_truth(plan: PeerPlan) -> None:
    above, below, mixed, whole = (file.above(np.array(RUN_RANGE)).tolist() for file in plan.files.values())
    assert (above, below) == ([1.0, 1.0], [0.0, 0.0])
    assert whole[0] == whole[1]
    assert mixed == [0.5, 0.0]  # half of it is missing


def test_another_count_after_a_kill_or_a_report_too_many_is_found(plan: PeerPlan) -> None:
    rounds = stored(plan, [50_000.0] * 40)
    name, other = list(plan.study.clients)[:2]
    size = rounds[3].ask.lengths[0]
    lost = OpenRound(2, {name: (size, size, size), other: (0, 0, 0)})
    assert find_once_again(plan, lost, rounds).passed
    again = find_once_again(plan, lost._replace(counts={name: (size, size, size - 1)}), rounds)
    assert not again.passed
    assert "coins were drawn again" in again.text
    more = find_once_again(plan, lost, [*rounds, rounds[0]._replace(round=41)])
    assert not more.passed
    assert "reports for" in more.text


def test_a_value_shows_more_of_its_digits_where_a_run_asks_any_number() -> None:
    traces = traces_of([31415.9267], digits=8)
    assert b"31415.926" in traces
    assert not any(trace in b"31415.9 3.14159 314159267" for trace in traces)
    assert set(PEER_PARTS) == {"first", "kill", "copy", "end"}
