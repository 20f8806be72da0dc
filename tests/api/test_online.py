"""Your own loop: an interval that holds whatever the distribution, at every look, without a planned end."""

from typing import Any

import numpy as np
import pytest

from privatile import OnlineQuantile, RandomizedResponse
from privatile.errors import InputError

SITE = RandomizedResponse.from_epsilon(2.0)


def asked(online: OnlineQuantile, rng: np.random.Generator, silent: float = 0.0) -> None:
    """One round of two clients with whole years, 40 people each; the second is silent now and then."""
    counts = {}
    for name, middle in (("a", 40.0), ("b", 50.0)):
        if name == "b" and online.rounds and rng.random() < silent:
            continue
        truths = np.rint(rng.normal(middle, 12.0, 40)) > online.query
        coins = rng.integers(0, 2**64, size=40, dtype=np.uint64)
        counts[name] = (int(SITE.respond(truths, coins).sum()), 40)
    online.update(counts)


@pytest.mark.parametrize("silent", [0.0, 0.2])
def test_the_interval_covers_at_every_look_and_narrows(silent: float) -> None:
    """The median of the two is 45: F(44) = .483, F(45) = .517."""
    covered, widths = 0, []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        online = OnlineQuantile(q=0.5, epsilon={"a": 2.0, "b": 2.0}, range=(0, 120))
        looks = []
        for number in range(200):
            asked(online, rng, silent)
            if number % 25 == 24:
                looks.append(online.result().confidence_interval)
        covered += all(low <= 45.0 <= high for low, high in looks)
        widths.append((looks[1].high - looks[1].low, looks[-1].high - looks[-1].low))
    assert covered >= 2  # all looks of a run together hold with 95%: two misses of three have probability .007
    assert np.median([last for _, last in widths]) < 8.0
    assert all(last < first for first, last in widths)


def test_the_result_says_what_it_is() -> None:
    rng = np.random.default_rng(1)
    online = OnlineQuantile(q=0.5, epsilon={"a": 2.0, "b": 2.0}, range=(0, 120), value_kind="whole")
    with pytest.raises(InputError, match="two averaged rounds"):
        online.result()
    for _ in range(120):
        asked(online, rng)
    result = online.result()
    assert result.method == "any-shape"
    assert result.anytime == result.confidence_interval
    assert result.valid_at_every_look
    assert result.other is None  # nobody planned an end, so the smooth interval holds at none
    assert result.grid_values is not None
    assert 45.0 in result.grid_values


def test_a_declaration_and_an_end_that_was_fixed_beforehand() -> None:
    """The same answers: declared continuous the interval is narrower, and narrower still at its planned end."""
    results = []
    for options in (
        {},
        {"value_kind": "continuous"},
        {"value_kind": "continuous", "answers": 16_000},
        {"answers": 16_000},
    ):
        rng = np.random.default_rng(1)
        online = OnlineQuantile(q=0.5, epsilon={"a": 2.0, "b": 2.0}, range=(0, 120), **options)
        while online.rounds < 200:
            smooth = rng.normal(45.0, 12.0, 40) > online.query
            coins = rng.integers(0, 2**64, size=40, dtype=np.uint64)
            online.update(dict.fromkeys("ab", (int(SITE.respond(smooth, coins).sum()), 40)))
        results.append(online.result())
    assert [result.method for result in results] == ["any-shape", "anytime", "smooth", "any-shape"]
    assert [result.valid_at_every_look for result in results] == [True, True, False, True]
    widths = [result.confidence_interval.high - result.confidence_interval.low for result in results]
    assert widths[0] == widths[3] > widths[1] > widths[2]
    assert [result.other is None for result in results] == [True, True, False, False]
    with pytest.raises(InputError, match="answers"):
        OnlineQuantile(q=0.5, epsilon={"a": 2.0}, range=(0, 120), answers=0)


@pytest.mark.parametrize("wrong", [{"epsilon": 1.0}, {"epsilon": {"a": 1.0}, "client_weights": 1.0}, {"epsilon": {}}])
def test_clients_that_are_not_named_are_asked_for(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="name"):
        OnlineQuantile(q=0.5, range=(0, 120), **wrong)


def test_a_round_to_which_nobody_came_changes_nothing() -> None:
    online = OnlineQuantile(q=0.5, epsilon={"a": 2.0, "b": 2.0}, range=(0, 120))
    online.update({"a": (20, 40)})
    before = (online.rounds, online.query)
    online.update({})
    assert (online.rounds, online.query) == before


@pytest.mark.parametrize("pair", [3, (3,), (3, 10, 1), "31", (1.5, 10), (True, 10), None])
def test_counts_that_are_no_pair_are_refused_with_the_rule(pair: Any) -> None:
    online = OnlineQuantile(q=0.5, epsilon={"a": 2.0}, range=(0, 120))
    with pytest.raises(InputError, match=r"'a' must be a pair of whole numbers.* Write update\(\{'a': \(3, 10\)\}\)"):
        online.update({"a": pair})
    online.update({"a": (np.int64(3), np.int64(10))})  # type: ignore[dict-item]
    assert online.rounds == 1


def test_a_client_of_which_nobody_came_is_left_out() -> None:
    online = OnlineQuantile(q=0.5, epsilon={"a": 2.0}, range=(0, 120))
    with pytest.raises(InputError, match=r"at least one record that answered; got 0\. Leave a client out"):
        online.update({"a": (0, 0)})
