"""What people have spent is the plain sum of their charges, folded or not, undone or not, whoever wrote them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privatile.client.ledger import people as lifetime_budgets
from privatile.client.ledger.ledger import Ledger


def people(numbers: list[int]) -> NDArray[np.uint64]:
    return np.array([(number * 0x9E3779B97F4A7C15) % (1 << 64) for number in numbers], dtype=np.uint64)


EVERYBODY = people(list(range(12)))

steps = st.lists(
    st.tuples(
        st.lists(st.integers(0, 11), unique=True, max_size=8),
        st.sampled_from([0.5, 1.0, 2.0]),
        st.sampled_from(["one", "two"]),
        st.booleans(),
    ),
    max_size=20,
)


class Undone(Exception):
    """Raised to leave a transaction."""


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(steps, st.integers(1, 10))
def test_sums_are_right(
    tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[list[int], float, str, bool]], fold: int
) -> None:
    """Two connections to one file take turns; some transactions are undone; folding happens now and then."""
    path = tmp_path_factory.mktemp("budgets") / "ledger.db"
    first = Ledger.open(path)
    with first.transaction():
        pass
    ledgers = {"one": first, "two": Ledger.open(path)}
    expected = np.zeros(12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifetime_budgets, "FOLD", fold)
        for group, epsilon, who, undo in asked:
            ledger = ledgers[who]
            try:
                with ledger.transaction():
                    ledger.lifetime_budgets.charge([people(group)], epsilon)
                    inside = expected.copy()
                    inside[group] += epsilon
                    assert ledger.lifetime_budgets.spent(EVERYBODY).tolist() == inside.tolist()
                    if undo:
                        raise Undone
                expected = inside
            except Undone:
                pass
            for each in ledgers.values():
                assert each.lifetime_budgets.spent(EVERYBODY).tolist() == expected.tolist()
                assert each.lifetime_budgets.totals() == (
                    int(np.count_nonzero(expected)),
                    float(expected.max(initial=0.0)),
                )
    for ledger in ledgers.values():
        ledger.close()


def test_charges_survive_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime_budgets, "FOLD", 4)
    for times in range(3):
        if times:  # whether they are folded or not
            with Ledger.open(tmp_path / "ledger.db", read_only=True) as ledger:
                assert ledger.lifetime_budgets.spent(people([1, 2, 3, 4])).tolist() == [0.5 * times] * 3 + [0.0]
        with Ledger.open(tmp_path / "ledger.db") as ledger, ledger.transaction():
            ledger.lifetime_budgets.charge([people([1, 2]), people([3])], 0.5)
    with Ledger.open(tmp_path / "ledger.db", read_only=True) as ledger:
        assert ledger.lifetime_budgets.spent(people([1, 2, 3, 4])).tolist() == [1.5, 1.5, 1.5, 0.0]
        assert ledger.lifetime_budgets.totals() == (3, 1.5)


def test_many_small_charges_are_folded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are read again by every process after another one has answered: they must not gather without end."""
    monkeypatch.setattr(lifetime_budgets, "FOLD_ROWS", 5)
    with Ledger.in_memory() as ledger:
        people = np.arange(30, dtype=np.uint64) << np.uint64(59)
        for k in range(30):
            with ledger.transaction():
                ledger.lifetime_budgets.charge([people[k : k + 1]], 0.5)
            (rows,) = ledger.execute("SELECT count(*) FROM charges").fetchone()
            assert rows <= 5
        with ledger.transaction():
            ledger.lifetime_budgets.charge([people], 0.5)
        assert ledger.lifetime_budgets.spent(people).tolist() == [1.0] * 30
        ledger.verify()
