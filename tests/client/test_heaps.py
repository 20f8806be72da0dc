"""Values declared continuous that are not: the holder can know it, by a count in bounded memory."""

import math
import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatile.client.ledger.ledger import Ledger
from privatile.client.order import shuffle as columns
from privatile.client.order.shuffle import FEWEST_HEAPED, HEAVY, MOST_HEAPED, ShuffledColumn, has_heaps, shuffle
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse

TRUTH_RATE = RandomizedResponse.from_epsilon(1.0).truth_rate


def shuffled(values: Any, memory_rows: int = 1 << 21) -> ShuffledColumn:
    data = np.asarray(values, dtype=np.float64)
    return shuffle(open_source(data), Ledger.in_memory(master=bytes(32)), memory_rows=memory_rows)["all"]


def error(records: int) -> float:
    return 0.5 / TRUTH_RATE / math.sqrt(records)


def drawn(kind: str, records: int) -> Any:
    rng = np.random.default_rng(1)
    salaries = rng.lognormal(10.7, 0.6, records)
    zeros = np.where(rng.random(records) < 0.08, 0.0, salaries)
    return {
        "ages": rng.normal(45, 15, records).round(),
        "zeros": zeros,
        "half rounded": np.where(rng.random(records) < 0.5, salaries.round(-3), salaries),
        "few zeros": np.where(rng.random(records) < 0.03, 0.0, salaries),
        "cents": salaries.round(2),
        "prices": rng.gamma(4.0, 25.0, records).round(2),  # about 20,000 different ones, so most of them tie
        "continuous": salaries,
    }[kind]


@pytest.mark.parametrize("records", [1_000, 20_000, 200_000])
@pytest.mark.parametrize(
    ("kind", "heaped"),
    [
        *dict.fromkeys((("ages", True), ("zeros", True), ("half rounded", True))),
        *dict.fromkeys((("few zeros", False), ("cents", False), ("prices", False), ("continuous", False))),
    ],
)
def test_heaps_of_columns_as_people_have_them(kind: str, heaped: bool, records: int) -> None:
    column = shuffled(drawn(kind, records))
    assert has_heaps([(column, 1.0)], error(records)) == heaped


@pytest.mark.parametrize("run", [2_000, 100_000, 10_000_000])
def test_a_small_site_of_a_large_run(run: int) -> None:
    """A quarter of the run's error is less than one of its records: chance ties are not taken for heaps."""
    assert has_heaps([(shuffled(drawn("ages", 1_000)), 1.0)], error(run))
    assert not has_heaps([(shuffled(np.random.default_rng(2).random(1_000).round(4)), 1.0)], error(run))


def test_the_rule_to_the_record() -> None:
    rest = np.random.default_rng(3).random(10_000)
    for held, share, heaped in ((0.0101, 6, True), (0.0099, 6, False), (0.0101, 4, False)):
        size = round(held * 10_000)
        values = rest.copy()
        values[: size * share] = np.repeat(np.arange(share), size)
        # `share` values of about a hundredth each; a heap holds more than a hundredth, heaps more than a twentieth.
        assert has_heaps([(shuffled(values), 1.0)], 0.01 / HEAVY) == heaped


def test_what_is_missing_is_no_value() -> None:
    values = np.random.default_rng(3).random(2_000)
    values[:900] = np.nan
    assert not has_heaps([(shuffled(values), 1.0)], error(2_000))
    values[900:960] = 7.0  # 3% of the records, over 5% of the values
    assert has_heaps([(shuffled(values), 1.0)], error(2_000))


def test_parts_count_by_their_share() -> None:
    whole, smooth = shuffled(drawn("ages", 1_000)), shuffled(drawn("continuous", 1_000))
    assert has_heaps([(whole, 0.5), (smooth, 0.5)], 0.02)
    assert not has_heaps([(whole, 0.04), (smooth, 0.96)], 0.002)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=300), st.floats(0.02, 2.0), st.integers(1, 50))
@settings(max_examples=100, deadline=None)
def test_two_passes_count_exactly(values: list[int], error_in_rank: float, piece: int) -> None:
    heaps = [
        count
        for count in Counter(values).values()
        if count / len(values) > HEAVY * error_in_rank + 1e-12 and count >= FEWEST_HEAPED
    ]
    exact = sum(heaps) / len(values)
    if abs(exact - MOST_HEAPED) < 1e-9 or any(
        abs(count / len(values) - HEAVY * error_in_rank) < 1e-9 for count in Counter(values).values()
    ):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "PIECE", piece)
        assert has_heaps([(shuffled(values), 1.0)], error_in_rank) == (exact > MOST_HEAPED)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """600,000 different values and one heap that the summary must not lose among them."""
    values = np.random.default_rng(4).random(600_000)
    values[:36_000] = 0.5
    monkeypatch.setattr(columns, "PIECE", 1 << 14)
    column = shuffled(values, memory_rows=1 << 15)

    def peak(error_in_rank: float) -> int:
        tracemalloc.start()
        try:
            assert has_heaps([(column, 1.0)], error_in_rank)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(error(600_000)) < 4e6
    assert peak(1e-8) > 2e7  # negative control: with room for every value
