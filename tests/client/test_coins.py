"""Coins: uniform, never replayed, and injected through constructors only."""

import inspect

import numpy as np
import pytest

from privatile.client import randomizer, responder
from privatile.client.randomizer import LARGEST_READ, OperatingSystemCoins, SeededCoins


@pytest.mark.parametrize("count", [0, 1, 7, LARGEST_READ // 8, LARGEST_READ // 8 + 1, 3 * LARGEST_READ // 8 + 5])
def test_as_many_coins_as_asked(count: int) -> None:
    drawn = OperatingSystemCoins().draw(count)
    assert drawn.dtype == np.uint64
    assert len(drawn) == count
    assert len(np.unique(drawn)) == count  # two equal among 10⁵ have probability 3e-10


def test_every_bit_is_fair() -> None:
    """2¹⁶ coins, 64 bits: each count of ones within 6 standard errors (chance of a false alarm 64 · 2e-9)."""
    count = 1 << 16
    bits = np.unpackbits(OperatingSystemCoins().draw(count).view(np.uint8)).reshape(count, 64)
    assert np.abs(bits.sum(axis=0) - count / 2).max() < 6 * np.sqrt(count) / 2


def test_seeded_coins_repeat_and_others_do_not() -> None:
    again = [SeededCoins(np.random.default_rng(5)).draw(4).tolist() for _ in range(2)]
    assert again[0] == again[1]
    assert OperatingSystemCoins().draw(4).tolist() != OperatingSystemCoins().draw(4).tolist()


def test_the_whole_range_is_used() -> None:
    drawn = SeededCoins(np.random.default_rng(1)).draw(10_000)
    assert drawn.max() > np.uint64(2**64 - 2**54)
    assert drawn.min() < np.uint64(2**54)


def test_a_responder_has_no_coins_of_its_own() -> None:
    """The constructor's argument has no default, and the client reads no environment variable for it."""
    assert inspect.signature(responder.Responder).parameters["coins"].default is inspect.Parameter.empty
    assert "SeededCoins" not in inspect.getsource(responder)
    assert "SeededCoins" not in inspect.getsource(randomizer.Randomizer)
    assert "os.environ" not in inspect.getsource(responder) + inspect.getsource(randomizer)
