"""Keyed streams: fixed for ever, whatever the machine; cut anywhere they are the same."""

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privatile.client.ledger.integrity import derive
from privatile.client.order.tags import BLOCK, KeyStream, words_at


def test_tags_are_what_the_docstring_says() -> None:
    key = bytes(range(32))
    text = b"".join(hashlib.shake_128(key + k.to_bytes(8, "little")).digest(8 * BLOCK) for k in range(3))
    assert KeyStream(key).take(2 * BLOCK + 9).tolist() == np.frombuffer(text, "<u8")[: 2 * BLOCK + 9].tolist()


def test_tags_never_change() -> None:
    """An order made by one version must be the order of every later one."""
    assert KeyStream(bytes(32)).take(3).tolist() == [4034893802436681144, 9025200114171211005, 7869607360684375209]
    assert derive(bytes(32), "order", "north", "salary").hex() == (
        "76eb5345ea142e155c145ce431e3f79a224d0ac3fc8da260d018f917683cc82e"
    )


@given(st.lists(st.integers(0, 3 * BLOCK), max_size=8))
def test_pieces_join_to_the_whole(sizes: list[int]) -> None:
    stream = KeyStream(b"k" * 32)
    pieces = [stream.take(size) for size in sizes]
    whole = KeyStream(b"k" * 32).take(sum(sizes))
    assert np.array_equal(np.concatenate([*pieces, np.empty(0, np.uint64)]), whole)


@given(st.integers(0, 3 * BLOCK), st.integers(0, 3 * BLOCK))
def test_words_are_the_same_from_wherever_they_are_read(start: int, count: int) -> None:
    assert np.array_equal(words_at(b"k" * 32, start, count), KeyStream(b"k" * 32).take(start + count)[start:])


def test_keys_are_apart() -> None:
    keys = {derive(b"m" * 32, *names) for names in (("order",), ("digest",), ("order", "a"), ("order", "a", "b"))}
    assert len(keys) == 4
