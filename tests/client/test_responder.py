"""Question in, count out: exact against a plain loop with the same coins, and right in distribution."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import SeededCoins
from privatile.client.responder import CHUNK, Responder, answer_all
from privatile.client.sources.databases import open_source
from privatile.core.arrays import Floats
from privatile.core.mechanism import COINS, RandomizedResponse
from privatile.core.messages import Missing, Question
from privatile.core.scale import Linear, Log
from privatile.errors import AlreadyAnswered, InputError, ProtocolError

COIN = RandomizedResponse.from_epsilon(1.0)


def responder(
    values: object,
    *,
    seed: int = 0,
    mechanism: RandomizedResponse = COIN,
    ledger: Ledger | None = None,
    missing: Missing = "noise",
    dither: float = 0.0,
    scale: Linear | Log | None = None,
) -> Responder:
    ledger = ledger or Ledger.in_memory(master=bytes(range(32)))
    column = shuffle(open_source(values), ledger, missing=missing)["all"]
    coins = SeededCoins(np.random.default_rng(seed))
    return Responder("run", column, mechanism, ledger, coins, missing=missing, dither=dither, scale=scale)


def in_order(values: Floats) -> list[float]:
    column = shuffle(open_source(values), Ledger.in_memory(master=bytes(range(32))))["all"]
    return [float(value) for block in column.blocks(0, column.records) for value in block.values]


def ask(length: int, *, round: int = 1, query: float = 0.0, level: float = 0.5, step: float | None = None) -> Question:
    return Question(run="run", round=round, level=level, query=query, length=length, step=step)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_cohort_counts_equal_a_plain_loop_with_the_same_coins(seed: int, lengths: list[int]) -> None:
    values = np.random.default_rng(seed).normal(size=400)
    site = responder(values, seed=seed)
    order, coins = iter(in_order(values)), np.random.default_rng(seed)
    for number, length in enumerate(lengths, start=1):
        draws = [int(u) for u in coins.integers(0, 1 << 64, size=length, dtype=np.uint64)]
        expected = sum((next(order) > 0.3) == (u < COIN.threshold) for u in draws)
        assert site.answer(ask(length, round=number, query=0.3)).ones == expected


@pytest.mark.parametrize("scale", [Linear(-4.0, 4.0), Log(0.01, 100.0)])
@pytest.mark.parametrize("level", [0.5, 0.8])
def test_local_counts_equal_algorithm_1_with_the_same_coins(scale: Linear | Log, level: float) -> None:
    values = np.random.default_rng(3).lognormal(size=500)
    site = responder(values, seed=9, scale=scale)
    order, coins = iter(in_order(values)), np.random.default_rng(9)
    rate = COIN.truth_rate
    for number, length in enumerate([1, 5, 100, 200], start=1):
        working, ones, step = scale.to_working(1.2), 0, 0.4 / length
        for u in [int(u) for u in coins.integers(0, 1 << 64, size=length, dtype=np.uint64)]:
            report = (next(order) > scale.to_units(working)) == (u < COIN.threshold)
            ones += report
            if report:
                working += step * (1 - rate + 2 * level * rate) / (2 * rate)
            else:
                working -= step * (1 + rate - 2 * level * rate) / (2 * rate)
        assert site.answer(ask(length, round=number, query=1.2, level=level, step=step)).ones == ones


def test_long_questions_go_through_in_chunks() -> None:
    values = np.arange(3.0 * CHUNK + 11)
    site = responder(values, mechanism=RandomizedResponse.not_private())
    half = float(len(values) // 2)
    assert site.answer(ask(len(values), query=half)).ones == len(values) - 1 - int(half)


def test_without_privacy_no_coin_is_drawn() -> None:
    class NoCoins:
        def draw(self, count: int) -> NDArray[np.uint64]:
            raise AssertionError

    ledger = Ledger.in_memory()
    column = shuffle(open_source([1.0, 2.0, 3.0]), ledger)["all"]
    site = Responder("run", column, RandomizedResponse.not_private(), ledger, NoCoins())
    assert site.answer(ask(3, query=1.5)).ones == 2


def test_infinite_values_answer_like_numbers() -> None:
    site = responder([math.inf, -math.inf, math.inf, 0.0], mechanism=RandomizedResponse.not_private())
    assert site.answer(ask(4, query=1e308)).ones == 2


@pytest.mark.statistical
@pytest.mark.parametrize("step", [None, 1e-12])
def test_missing_records_pull_nowhere(step: float | None) -> None:
    """Almost all missing, τ = .8: the share of ones is what balances rise and fall, within 5 standard errors.

    Negative control: the drift of records that say "not above", as NaN > q would, is caught.
    """
    count, level = 200_000, 0.8
    values = np.full(count, np.nan)
    values[:2] = 0.0
    site = responder(values, scale=Linear(-1.0, 1.0))
    answered = site.answer(ask(count, level=level, step=step)).ones
    keep = COIN.threshold / COINS
    balance = (1 - level) * keep + level * (1 - keep)
    error = math.sqrt(balance * (1 - balance) / count)
    assert abs(answered / count - balance) < 5 * error + 2 / count
    assert abs((1 - keep) - balance) > 50 * error
    drift = answered * COIN.rise(level) - (count - answered) * COIN.fall(level)
    assert abs(drift) / count < 5 * error * (COIN.rise(level) + COIN.fall(level)) + 1e-4


def test_dropped_records_are_walked_past() -> None:
    values = np.where(np.arange(100) % 4 == 0, np.nan, np.arange(100.0))
    site = responder(values, missing="drop", mechanism=RandomizedResponse.not_private())
    assert site.available() == 75
    first, second = ask(40, round=1, query=-1.0), ask(35, round=2, query=-1.0)
    assert (site.answer(first).ones, site.answer(second).ones) == (40, 35)
    with pytest.raises(AlreadyAnswered):
        site.answer(ask(1, round=3))


@pytest.mark.statistical
def test_dither_is_uniform_of_the_stated_width() -> None:
    """All records are 10, width 4: the share above 11 is 1/4; undithered it would be 0. Within 5 standard errors."""
    count = 100_000
    coin = RandomizedResponse.not_private()
    for query, share in ((11.0, 0.25), (9.0, 0.75), (12.0, 0.0), (8.0, 1.0), (10.0, 0.5)):
        ones = responder(np.full(count, 10.0), mechanism=coin, dither=4.0).answer(ask(count, query=query)).ones
        assert abs(ones / count - share) <= 5 * math.sqrt(share * (1 - share) / count)
    assert responder(np.full(10, 10.0), mechanism=coin).answer(ask(10, query=10.1)).ones == 0


def test_dither_leaves_infinite_values_alone() -> None:
    site = responder([math.inf, -math.inf, math.inf], mechanism=RandomizedResponse.not_private(), dither=1e6)
    assert site.answer(ask(3)).ones == 2


@pytest.mark.statistical
def test_reports_have_the_stated_truth_rate() -> None:
    """10⁶ reports of records that are all above: the share of ones is N/2⁶⁴ within 5 standard errors, not 2% off."""
    count = 1_000_000
    keep = COIN.threshold / COINS
    share = responder(np.ones(count)).answer(ask(count)).ones / count
    error = math.sqrt(keep * (1 - keep) / count)
    assert abs(share - keep) < 5 * error
    assert abs(share - 1.02 * keep) > 5 * error


def test_more_records_than_there_are() -> None:
    site = responder(np.arange(10.0))
    site.require(10)
    with pytest.raises(AlreadyAnswered, match="has 10 records left that may answer; 11 are needed"):
        site.require(11)
    with pytest.raises(AlreadyAnswered, match="11 are needed"):
        site.answer(ask(11))
    assert site.available() == 10  # nothing was spent
    assert site.answer(ask(10)).ones <= 10


def test_a_whole_round_in_one_transaction(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db")
    columns = shuffle(open_source({"a": np.arange(20.0), "b": np.arange(5.0)}), ledger)
    sites = [
        Responder("run", column, COIN, ledger, SeededCoins(np.random.default_rng(1))) for column in columns.values()
    ]
    answers = answer_all(zip(sites, [ask(10), ask(5)], strict=True))
    assert [answer.client for answer in answers] == ["a", "b"]
    with pytest.raises(AlreadyAnswered):
        answer_all(zip(sites, [ask(10, round=2), ask(5, round=2)], strict=True))
    # All or nothing: the first client's part of the failed round is not spent.
    assert [site.available() for site in sites] == [10, 0]
    again = answer_all(zip(sites, [ask(10), ask(5)], strict=True))
    assert again == answers
    assert ledger.position.sequence == 2


def test_options_are_checked() -> None:
    with pytest.raises(InputError, match="dither"):
        responder([1.0, 2.0], dither=-1.0)
    with pytest.raises(ProtocolError, match="working scale"):
        responder([1.0, 2.0]).answer(ask(1, step=0.1))


def test_nothing_shows_a_value() -> None:
    site = responder([4711.5, 4711.5])
    site.answer(ask(2))
    assert "4711" not in repr(site) + repr(site._column) + repr(site.ledger)
