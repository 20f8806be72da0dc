import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatile.errors import InputError
from privatile.estimator.schedule import (
    PRESETS,
    Constant,
    DecayingStep,
    Design,
    LengthRule,
    Listed,
    Logarithmic,
    Power,
    lengths_by_records,
    lengths_by_rounds,
    spread,
)

RULES: list[LengthRule] = [Constant(1), Constant(5), Logarithmic(), Power(0.5), Power(1.0), Listed((3, 1, 4, 1, 5, 9))]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_gives_whole_positive_lengths_and_a_stable_prefix(rule: LengthRule) -> None:
    table = rule.table(6)
    assert table.dtype == np.int64
    assert table.min() >= 1
    assert table[:4].tolist() == rule.table(4).tolist()


@given(st.integers(1, 3000))
def test_log_lengths_are_the_paper_s(j: int) -> None:
    # ⌈log₂(j + 1)⌉ by exact integer arithmetic: the least e with 2^e ≥ j + 1
    exact = next(e for e in range(64) if 2**e >= j + 1)
    assert Logarithmic().table(j)[-1] == exact


def test_power_lengths_are_exact_at_whole_powers() -> None:
    assert Power(0.5).table(10_000)[np.arange(1, 101) ** 2 - 1].tolist() == list(range(1, 101))


@given(st.sampled_from(RULES[:5]), st.integers(1, 5000), st.floats(0, 0.99))
def test_by_records_uses_exactly_the_records(rule: LengthRule, records: int, share: float) -> None:
    warm_up = math.floor(share * records)
    lengths = lengths_by_records(rule, records, warm_up)
    assert lengths.sum() == records
    assert lengths.min() >= 1
    assert np.all(lengths[:warm_up] == 1)
    body = lengths[warm_up:-1]
    assert body.tolist() == rule.table(len(body)).tolist()


def test_reference_schedules_have_the_known_number_of_rounds() -> None:
    assert len(PRESETS["paper-log"].lengths(10_000)) == 1549
    assert len(PRESETS["paper-log"].lengths(50_000)) == 6783
    assert len(PRESETS["paper-c5"].lengths(10_000)) == 500 + 1900
    assert len(PRESETS["paper-c1"].lengths(10_000)) == 10_000


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(0, 10_000))
def test_spread_uses_every_record_once(shape: list[int], extra: int) -> None:
    lengths = np.array(shape)
    records = len(shape) + extra
    assert spread(lengths, records).sum() == records
    assert spread(lengths, records).min() >= 1
    assert spread(lengths, int(lengths.sum())).tolist() == shape


def test_unequal_clients_use_all_their_records() -> None:
    sizes = [500, 1234, 50_000]
    table = Design("r", Constant(1), rounds=200).client_lengths(sizes)
    assert table.sum(axis=1).tolist() == sizes
    assert table.min() >= 1


def test_a_list_is_kept_to_the_letter() -> None:
    design = Design("mine", Listed((2, 3)), rounds=2)
    assert design.client_lengths([10, 20]).tolist() == [[2, 3], [2, 3]]


def test_paper_step_starts_from_index_zero() -> None:
    table = DecayingStep.paper(0.9).table(3)
    assert table.tolist() == [18 / 100, 18 / 101, 18 / (2**0.51 + 100)]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Constant(0), "at least 1 record"),
        (lambda: Power(-1.0), r"\[0, 2\]"),
        (lambda: Listed(()), "at least one round"),
        (lambda: Listed((1, 0)), "at least 1 record"),
        (lambda: Listed((1,)).table(2), "holds 1"),
        (lambda: lengths_by_records(Listed((1, 2)), 9), "use 3 records"),
        (lambda: lengths_by_rounds(Constant(1), 5, 6), "warm-up"),
        (lambda: DecayingStep(0.0), "scale > 0"),
        (lambda: DecayingStep(1.0, offset=0.0), "offset > 0"),
        (lambda: Design("x", Constant(1), burn_in=1.0), "burn_in"),
        (lambda: Design("x", Constant(1), rounds=1), "at least 2"),
        (lambda: Design("x", Constant(5), rounds=100).client_lengths([499, 900]), "smallest has 499"),
        (lambda: Design("x", Constant(1), rounds=100).client_lengths([99, 900]), "100 records of each client"),
    ],
)
def test_bad_schedules_say_what_is_wrong(call: object, text: str) -> None:
    assert callable(call)
    with pytest.raises(InputError, match=text):
        call()
