"""The codes in memory are found by their hashes, and by nothing like them."""

from __future__ import annotations

import random

import pytest

from privatile.survey.store import CodeTable


def test_every_code_is_found_and_no_other() -> None:
    rng = random.Random(1)
    hashes = sorted(rng.randbytes(32) for _ in range(2_000))
    table = CodeTable.read((code, k % 7, k % 4) for k, code in enumerate(hashes))
    for k, code in enumerate(hashes):
        assert table.find(code) == k
        assert (table.strata[k], table.states[k]) == (k % 7, k % 4)
    assert all(table.find(rng.randbytes(32)) is None for _ in range(2_000))
    assert table.find(bytes(32)) is None
    assert table.find(b"\xff" * 32) is None


def test_hashes_that_begin_alike_are_told_apart() -> None:
    begin = b"same 8 b"
    hashes = [begin + bytes([k]) * 24 for k in range(5)]
    table = CodeTable.read((code, 0, 0) for code in hashes)
    assert [table.find(code) for code in hashes] == [0, 1, 2, 3, 4]
    assert table.find(begin + b"x" * 24) is None


@pytest.mark.parametrize(
    ("hashes", "why"), [([b"b" * 32, b"a" * 32], "order"), ([b"a" * 24, b"b" * 40], "bytes")], ids=["order", "length"]
)
def test_rows_that_cannot_be_searched_are_refused(hashes: list[bytes], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        CodeTable.read((code, 0, 0) for code in hashes)
