"""What the program says today is what it said when the values were made, whatever its modules are called."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.golden.differences import differences
from tests.golden.make import VALUES, produce


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    values: dict[str, Any] = json.loads(VALUES.read_text(encoding="utf-8"))
    return values


def test_the_values_are_those_that_were_kept(kept: dict[str, Any]) -> None:
    found = list(differences(kept, produce()))
    assert not found, "\n".join([f"{len(found)} values have changed:", *found[:40]])


def changed(value: Any) -> Any:
    """The same with every plain value changed: a real number by a millionth, anything else by a little."""
    if isinstance(value, dict) and value:
        return {key: changed(one) for key, one in value.items()}
    if isinstance(value, list) and value:
        return [changed(one) for one in value]
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, float):
        return value * (1 + 1e-6) if abs(value) > 1e-3 else value + 1e-6
    if isinstance(value, int):
        return value + 1
    return [None] if isinstance(value, list | dict) else f"{value}."


def plain_values(value: Any) -> int:
    """How many plain values there are."""
    if isinstance(value, dict | list) and value:
        return sum(map(plain_values, value.values() if isinstance(value, dict) else value))
    return 1


def test_a_changed_value_is_noticed(kept: dict[str, Any]) -> None:
    # The negative control: a comparison that is too kind, or skips a part, would hold for these.
    assert len(list(differences(kept, changed(kept)))) == plain_values(kept)
    one = copy.deepcopy(kept)
    result = one["runs"]["results"]["auto"]
    before = result["estimate"]
    result["estimate"] = before * (1 + 1e-6)
    place = "values['runs']['results']['auto']['estimate']"
    assert list(differences(kept, one)) == [f"{place}: {before!r} has become {result['estimate']!r}"]
    result["estimate"] = before * (1 + 1e-12)  # the last bits are free
    assert not list(differences(kept, one))
    # A lost row, a lost or new part, a whole number that became a real one.
    rows = kept["paper"]["published"]["rows"]
    assert list(differences(rows, rows[:-1]))
    less = {key: value for key, value in kept.items() if key != "specs"}
    assert list(differences(kept, less)) == ["values['specs'] is lost"]
    assert list(differences(less, kept)) == ["values['specs'] is new"]
    assert list(differences({"n": 1}, {"n": 1.0}))
