"""Committees and trees of a federation without a coordinator: exact probabilities, counted messages, kept results."""

import itertools
import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from studies.coverage.rows import read_rows, write_rows
from studies.leaderless import committees, shapes
from studies.leaderless.run import MEASURED, RESULTS, all_rounds
from studies.leaderless.shapes import Round

PAGE = Path(__file__).parents[2] / "docs" / "leaderless.md"
COSTS = MEASURED._replace(hop=0.001)


@pytest.mark.parametrize(("peers", "liars", "members"), [(6, 2, 4), (8, 3, 4), (9, 2, 7), (9, 4, 5)])
def test_the_probability_is_that_of_all_committees(peers: int, liars: int, members: int) -> None:
    drawn = list(itertools.combinations(range(peers), members))
    bad = sum(sum(one < liars for one in each) > committees.tolerated(members) for each in drawn)
    assert committees.broken(peers, liars, members) == Fraction(bad, len(drawn))


def test_drawn_committees_are_broken_as_often() -> None:
    rng = np.random.default_rng(1)
    found = rng.hypergeometric(40, 160, 31, 100_000) > committees.tolerated(31)
    exact = float(committees.broken(200, 40, 31))
    error = (exact * (1 - exact) / 100_000) ** 0.5
    assert abs(found.mean() - exact) < 5 * error
    assert abs(found.mean() - float(committees.broken(200, 40, 22))) > 5 * error  # the control: another size


@pytest.mark.parametrize("members", range(2, 12))
def test_no_more_liars_than_tolerated_sign_two_histories(members: int) -> None:
    """Every way to lead the honest members along two histories, against the closed form."""
    most = committees.tolerated(members)
    for quorum, liars in itertools.product(range(1, members + 1), range(members)):
        honest = members - liars
        split = any(min(left, honest - left) + liars >= quorum for left in range(honest + 1))
        assert committees.two_histories(members, quorum, liars) == split
    needed = committees.signing_quorum(members, most)
    assert not any(committees.two_histories(members, needed, liars) for liars in range(most + 1))
    if (members + most) % 2:  # the control: one signature fewer, and the same liars can
        assert committees.two_histories(members, needed - 1, most)


def test_messages_are_those_of_a_round_played_out() -> None:
    peers, size = 40, 10
    groups = [range(first, first + size) for first in range(0, peers, size)]
    question = -1
    everything = [(sender, reader) for sender in [question, *range(peers)] for reader in range(peers)]
    assert shapes.everybody(peers, COSTS).delivered == len(everything)
    members = range(size)
    some = [(question, reader) for reader in range(peers)]
    some += [(sender, reader) for sender in range(peers) for reader in members]
    some += [(sender, reader) for sender in members for reader in members]
    assert shapes.committee(peers, size, COSTS).delivered == len(some)
    sums = [(question, reader) for reader in range(peers)]
    sums += [(kind, reader) for group in groups for kind in range(2 * size) for reader in group]
    sums += [(group[0], reader) for group in groups for reader in range(peers)]
    assert shapes.tree(peers, size, COSTS).delivered == len(sums)


def test_a_round_takes_at_least_its_work_and_a_queue_more() -> None:
    one = shapes.through_log(np.zeros(1), 1, COSTS, 1, COSTS.read)
    assert one.tolist() == pytest.approx([2 * COSTS.hop + COSTS.append + COSTS.deliver + COSTS.read])
    many = shapes.through_log(np.zeros(50), 30, COSTS, 3, COSTS.read)
    assert many[-1] >= 50 * max(COSTS.append, COSTS.read, 10 * COSTS.deliver) + 2 * COSTS.hop
    slow = COSTS._replace(deliver=0.001)
    assert shapes.through_log(np.zeros(50), 30, slow, 3, COSTS.read)[-1] >= 50 * 10 * slow.deliver


def test_the_page_shows_the_kept_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = {(row.peers, row.shape): row for row in read_rows(RESULTS / "rounds.csv", Round) if row.hop == 0.02}
    shown = re.findall(r"^\| ([\d,]+) \| (everybody|committee of|tree, groups of) ?(\d*) \| (.+) \|$", text, re.M)
    assert len(shown) == 7
    for peers, shape, size, cells in shown:
        row = rows[int(peers.replace(",", "")), shape.partition(" ")[0].rstrip(",")]
        assert size in ("", str(row.size))
        numbers = [float(cell.replace(",", "")) for cell in cells.split(" | ")]
        expected = [row.delivered, row.megabytes, row.checked, row.processor, row.seconds]
        assert numbers == pytest.approx(expected, rel=0.06)
    kept = {
        (row.peers, row.liars, row.risk): row for row in read_rows(RESULTS / "committees.csv", committees.Committee)
    }
    lots = re.findall(r"^\| ([\d,]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.M)
    assert len(lots) == 7
    for peers, *cells in lots:
        liars, rare, rarer, anew = map(int, cells)
        first, second = (kept[int(peers.replace(",", "")), liars, risk] for risk in (1e-6, 1e-9))
        assert (rare, rarer, anew) == (first.members, second.members, second.every_round)


def test_the_kept_results_are_those_of_the_program(tmp_path: Path) -> None:
    kept = read_rows(RESULTS / "rounds.csv", Round)
    write_rows(list(all_rounds()), tmp_path / "rounds.csv", digits=4)
    assert read_rows(tmp_path / "rounds.csv", Round) == kept
    for row in read_rows(RESULTS / "committees.csv", committees.Committee):
        assert row.probability <= row.risk
        assert row.probability == pytest.approx(float(committees.broken(row.peers, row.liars, row.members)), rel=1e-5)
    rows = read_rows(RESULTS / "groups.csv", committees.Groups)
    assert all(row.one == pytest.approx(float(committees.broken(*row[:3])), rel=1e-5) for row in rows)


def test_the_page_shows_what_was_measured() -> None:
    text = PAGE.read_text(encoding="utf-8")
    kept = json.loads((PAGE.parents[1] / "benchmarks" / "results" / "leaderless.json").read_text(encoding="utf-8"))
    rates, failover = kept["rates"], kept["failover"]
    assert all(one["holds"] for one in (rates, failover["kill_9"], failover["sigterm"]))
    alone, replicated = np.median(rates["one_server"]), np.median(rates["three_replicas"])
    said = f"commit {alone:.0f} rounds a second with one server and {replicated:.0f} with three replicas"
    assert f"{said}, {str(rates['ratio_of_medians'])[1:4]} of it" in text
    killed, asked = failover["kill_9"]["seconds"], failover["sigterm"]["seconds"]
    assert f"closes for {killed[0]:.1f} to {killed[-1]:.1f} s" in text
    assert f"SIGTERM for {asked[0]:.2f} to {asked[-1]:.2f} s ({len(asked)} of each)".replace(" 0.", " .") in text
    assert len(killed) == len(asked)
    shown = re.findall(r"^\| (\d+) \| ([\d.]+) \| (\d+) \| ([\d,]+) \| ([\d.]+) ms \|$", text, re.M)
    assert [int(row[0]) for row in shown] == [run["peers"] for run in kept["peers"]["runs"]]
    for run, (_, *cells) in zip(kept["peers"]["runs"], shown, strict=True):
        bytes_, processor = run["bytes_delivered_per_round"] / 1000, run["processor_ms_per_round_and_peer"]
        expected = [run["rounds_per_second"], run["entries_per_round"], bytes_, processor]
        assert [float(cell.replace(",", "")) for cell in cells] == pytest.approx(expected, rel=0.04)


def test_the_page_says_how_often_groups_are_broken() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = {row[:3]: row for row in read_rows(RESULTS / "groups.csv", committees.Groups)}
    tenth, fifth = rows[1000, 100, 31], rows[1000, 200, 31]
    assert (
        f"{tenth.one * 1e5:.0f}·10⁻⁵ and some group with at most .003; with a fifth of liars 3% of all groups" in text
    )
    assert tenth.any < 0.003
    assert fifth.one == pytest.approx(0.03, abs=0.005)
