"""The audit passes the shipped client and catches every broken one; its bounds are exact."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from privatile.core.mechanism import RandomizedResponse
from privatile.federation.audit.audit import audit, has_trace, own_client, traces_of
from privatile.federation.audit.checks import CHECKS, WHOLE_SHARE, ratio_finding
from privatile.federation.audit.plan import POWER, RATIO_ALPHA, Plan, make_plan
from privatile.federation.audit.statistics import clopper_pearson, ratio_bounds, reports_needed
from tests.federation.broken_clients.simulated import Honest, failures
from tests.federation.broken_clients.table import TABLE

BROKEN = Path(__file__).parent / "broken_clients"
LONG = bool(os.environ.get("PRIVATILE_LONG"))
ROUNDS = 100 if LONG else 40


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "src"), str(root)]))


def found_by_process(command: list[str], parts: list[str], epsilon: float = 1.0, off: float = 0.5) -> dict[str, str]:
    found = audit(epsilon, [sys.executable, *command], off=off, rounds=20, parts=parts)
    return {one.name: one.text for one in found.findings if not one.passed}


def test_a_time_in_the_brokers_log_is_no_value() -> None:
    """It was one in an audit of the suite: microseconds of one line began like a planted value."""
    traces = traces_of([31415.9267])
    line = b"[77] 2026/11/16 14:35:23.141592 [INF] Server is ready\n"
    assert has_trace("output.log", line, traces)
    assert not has_trace("broker.log", line, traces)
    assert has_trace("broker.log", line + b"[77] 2026/11/16 14:35:24.000000 [ERR] 31415.9\n", traces)


# -- real processes


@pytest.mark.network
@pytest.mark.usefixtures("importable")
def test_the_shipped_client_passes() -> None:
    found = audit(1.0, own_client(), rounds=100 if LONG else 20)
    assert found.passed, found.to_text()
    assert found.reports > 6e5


@pytest.mark.network
@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("factor", ["1.02", "0.98"] if LONG else ["1.02"])
def test_a_truth_rate_off_by_two_percent_is_caught(factor: str) -> None:
    # A larger epsilon shows the same relative error with fewer reports.
    found = found_by_process([str(BROKEN / "wrong_rate.py"), factor], ["long"], epsilon=3.0, off=0.02)
    assert "ratio" in found, found


@pytest.mark.network
@pytest.mark.usefixtures("importable")
def test_coins_seeded_with_the_path_of_the_home_folder_are_caught() -> None:
    found = found_by_process([str(BROKEN / "seeded.py")], ["first", "copy"])
    assert "repeat" in found, found


@pytest.mark.network
@pytest.mark.usefixtures("importable")
def test_a_record_that_answers_twice_is_caught() -> None:
    found = found_by_process([str(BROKEN / "twice.py")], ["long", "once"])
    assert "once" in found, found


@pytest.mark.network
@pytest.mark.usefixtures("importable")
def test_a_raw_value_in_a_log_is_caught() -> None:
    found = found_by_process([str(BROKEN / "leaky.py")], ["local"])
    assert set(found) == {"quiet"}, found
    assert "output.log" in found["quiet"]


@pytest.mark.network
@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize(
    ("flaws", "finders"),
    [("files,twice", {"quiet", "whole"})]
    if not LONG
    else [("files", {"quiet"}), ("wire", {"quiet"}), ("twice", {"whole"}), ("rows", {"whole"})],
)
def test_records_asked_twice_and_numbers_in_files_are_caught(flaws: str, finders: set[str]) -> None:
    found = found_by_process([str(BROKEN / "careless.py"), flaws], ["whole"])
    assert set(found) == finders, found


def test_a_value_in_a_message_or_file_is_found_as_digits_and_as_bytes() -> None:
    value = 31415.9267
    for holder in (f"x={value}", struct.pack("<d", value), struct.pack(">d", value).hex(), np.array([1.0, value])):
        content = holder.encode() if isinstance(holder, str) else bytes(holder)
        assert any(trace in content for trace in traces_of([value])), content
    assert not any(trace in struct.pack("<d", 31415.9268) for trace in traces_of([value]))


@pytest.mark.network
@pytest.mark.skipif(not LONG, reason="a long form: set PRIVATILE_LONG=1")
@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("name", TABLE)
def test_a_broken_client_is_caught_as_a_process(name: str) -> None:
    command = [sys.executable, "-m", "tests.federation.broken_clients.as_process", name]
    found = audit(1.0, command, off=0.1)
    assert not found.passed, found.to_text()


# -- the same questions to clients in this process


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(1.0, np.random.default_rng(20261116), off=0.5, rounds=ROUNDS)


@pytest.mark.statistical
@pytest.mark.parametrize("name", TABLE)
def test_a_broken_client_is_caught(name: str, plan: Plan) -> None:
    assert failures(plan, TABLE[name], np.random.default_rng(3)), TABLE[name].__doc__


@pytest.mark.statistical
def test_an_honest_client_passes_in_this_process(plan: Plan) -> None:
    assert not failures(plan, Honest, np.random.default_rng(3))


def test_the_false_alarms_of_all_checks_together_are_one_in_a_thousand() -> None:
    # Both intervals of the ratio come from four bounds of two shares, each missed with probability RATIO_ALPHA / 2.
    assert sum(share for share, _ in CHECKS.values()) + 2 * RATIO_ALPHA + WHOLE_SHARE == pytest.approx(1e-3)


# -- the ratio


@pytest.mark.parametrize(
    ("ones", "trials"), [(0, 10), (10, 10), (3, 17), (731, 1000), (219_000, 300_000), (1, 300_000)]
)
def test_bounds_are_those_of_clopper_and_pearson(ones: int, trials: int) -> None:
    low, high = clopper_pearson(ones, trials, RATIO_ALPHA)
    exact = stats.binomtest(ones, trials).proportion_ci(1 - 2 * RATIO_ALPHA, method="exact")
    assert low == pytest.approx(exact.low, rel=1e-9, abs=1e-12)
    assert high == pytest.approx(exact.high, rel=1e-9)


def test_a_ratio_that_the_counts_do_not_bound_is_infinite() -> None:
    (low, high), _ = ratio_bounds(10, 0, 10, RATIO_ALPHA)
    assert low > 0.0
    assert high == float("inf")


@pytest.mark.statistical
def test_the_sample_size_has_its_power() -> None:
    """The ratio's rule on simulated counts: a rate off by 2% is found, a right one passes."""
    mechanism = RandomizedResponse.from_epsilon(1.0)
    side = reports_needed(mechanism.truth_rate, 0.02, RATIO_ALPHA, POWER)
    assert 5e5 < 2 * side < 1e6
    rng = np.random.default_rng(11)

    def caught(rate: float) -> int:
        p = (1 + rate) / 2
        counts = zip(rng.binomial(side, p, 100), rng.binomial(side, 1 - p, 100), strict=True)
        bounds = [ratio_bounds(int(above), int(below), side, RATIO_ALPHA) for above, below in counts]
        return sum(not ratio_finding(1.0, both).passed for both in bounds)

    assert caught(mechanism.truth_rate) <= 1  # a five-thousandth is expected: P(more than 1 of 100) < 2e-4
    for factor in (1.02, 0.98):
        assert caught(mechanism.truth_rate * factor) >= 97  # 99.9% are expected: P(fewer than 97 of 100) < 4e-6
