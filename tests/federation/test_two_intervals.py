"""A study declares what its values are; its record has both intervals and the values left, and none can be forged."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.errors import InputError
from privatile.federation.operations.record import release, verify_record
from privatile.federation.operations.status import read_status
from privatile.federation.setup.invitation import Invitation, read_invitation
from privatile.federation.study import ClientAgreement
from privatile.records import read_record, write_record
from tests.federation.kit import Federation, make_study
from tests.federation.test_release import sign_again

Result = dict[str, Any]


@pytest.fixture(scope="module")
def whole_years(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """Two sites with ages in whole years, which the study declares."""
    clients = {name: ClientAgreement(4.0, 0.5, 2500) for name in ("north", "south")}
    study = make_study(clients, 40, design="auto", value_kind="whole")
    federation = Federation(tmp_path_factory.mktemp("two"), study)
    federation.values = {name: np.round(values) for name, values in federation.values.items()}
    asyncio.run(federation.run()).store.close()
    return federation


@pytest.fixture(scope="module")
def record(whole_years: Federation) -> dict[str, Any]:
    return release(whole_years.directory)


@pytest.fixture(scope="module")
def undeclared(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """The same sites before rounding, in a study that declares nothing: its record has both intervals."""
    clients = {name: ClientAgreement(4.0, 0.5, 2500) for name in ("north", "south")}
    federation = Federation(tmp_path_factory.mktemp("both"), make_study(clients, 40, design="auto"))
    asyncio.run(federation.run()).store.close()
    return federation


@pytest.fixture(scope="module")
def both(undeclared: Federation) -> dict[str, Any]:
    return release(undeclared.directory)


def test_the_record_carries_both_intervals(undeclared: Federation, both: dict[str, Any], tmp_path: Path) -> None:
    write_record(both, tmp_path / "record.json")
    (result,) = read_record(tmp_path / "record.json")["body"]["results"]
    assert (result["value_kind"], result["method"], result["grid_values"]) == ("any", "any-shape", None)
    assert set(result["other_interval"]) == {"low", "high", "method", "condition"}
    checked = verify_record(both, undeclared.directory.store_file)
    assert checked.failed == []
    assert "the other interval is the one the counts give, within 1e-09 standard errors" in checked.passed


def test_the_record_carries_the_values_left_and_no_interval_that_the_declaration_contradicts(
    whole_years: Federation, record: dict[str, Any], tmp_path: Path
) -> None:
    write_record(record, tmp_path / "record.json")
    (result,) = read_record(tmp_path / "record.json")["body"]["results"]
    assert (result["value_kind"], result["method"]) == ("whole", "any-shape")
    assert 50.0 in result["grid_values"]
    low, high = result["confidence_interval"]["low"], result["confidence_interval"]["high"]
    assert all(low < value <= high and value == int(value) for value in result["grid_values"])
    assert result["other_interval"] is None
    checked = verify_record(record, whole_years.directory.store_file)
    assert checked.failed == []
    assert any("values that the declared grid leaves" in text for text in checked.passed)


def narrower(result: Result) -> None:
    """Both ends of the other interval a tenth closer."""
    other = result["other_interval"]
    width = other["high"] - other["low"]
    other.update(low=other["low"] + width / 10, high=other["high"] - width / 10)


def swapped(result: Result) -> None:
    """The narrow interval where the one that holds for every distribution should stand."""
    first, other = result["confidence_interval"], result["other_interval"]
    result["confidence_interval"] = {"low": other["low"], "high": other["high"]}
    other.update(first)


FORGERIES: dict[str, tuple[Callable[[Result], None], str]] = {
    "narrower": (narrower, "the other interval"),
    "one end": (
        lambda result: result["other_interval"].update(low=result["other_interval"]["low"] - 1e-6),
        "the other",
    ),
    "estimate": (lambda result: result.update(estimate=result["estimate"] + 1e-6), "the estimate"),
    "no estimate": (lambda result: result.update(estimate=None), "the estimate"),
    "no other": (lambda result: result.update(other_interval=None), "the other interval"),
    "swapped": (swapped, "the interval"),
    "no condition": (lambda result: result["other_interval"].update(condition="any-shape"), "the other"),
    "fewer values": (lambda result: result["grid_values"].pop(), "the list of values"),
    "more values": (lambda result: result["grid_values"].append(60.0), "the list of values"),
    "moved value": (lambda result: result["grid_values"].__setitem__(0, 1e-9), "the list of values"),
    "no values": (lambda result: result.update(grid_values=None), "the list of values"),
    "declared": (lambda result: result.update(value_kind="continuous"), "budgets"),
    "holds always": (lambda result: result.update(condition="smooth"), "budgets"),
    "contradicted": (lambda result: result.update(contradicted=not result["contradicted"]), "budgets"),
}


OF_BOTH = ("narrower", "one end", "estimate", "no estimate", "no other", "swapped", "no condition")
"""Forgeries of a record with two intervals; the others are of one with a declared grid."""


@pytest.fixture
def forgeable(
    request: pytest.FixtureRequest, whole_years: Federation, undeclared: Federation, name: str
) -> tuple[Federation, dict[str, Any]]:
    """The federation that the forgery `name` is about, with a record of its own."""
    federation, record = (undeclared, "both") if name in OF_BOTH else (whole_years, "record")
    return federation, copy.deepcopy(request.getfixturevalue(record))


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_second_interval_or_set_is_refused(forgeable: tuple[Federation, dict[str, Any]], name: str) -> None:
    """The coordinator itself forges, and signs again: the counts say otherwise."""
    forge, named = FORGERIES[name]
    federation, forged = forgeable
    forge(forged["body"]["results"][0])
    sign_again(federation, forged)
    failed = verify_record(forged, federation.directory.store_file).failed
    assert any(text.startswith(named) for text in failed), failed
    assert verify_record(forged).failed == []  # the control: without the counts nobody can tell


@pytest.mark.parametrize("name", ["narrower", "no other", "fewer values", "moved value", "declared"])
def test_forged_numbers_are_refused_whichever_program_is_named(
    forgeable: tuple[Federation, dict[str, Any]], name: str
) -> None:
    forge, named = FORGERIES[name]
    federation, forged = forgeable
    forged["body"]["program"] = "0" * 64
    sign_again(federation, forged)
    assert verify_record(forged, federation.directory.store_file).failed == []
    forge(forged["body"]["results"][0])
    sign_again(federation, forged)
    assert any(text.startswith(named) for text in verify_record(forged, federation.directory.store_file).failed)


def test_a_smooth_interval_added_to_a_declared_grid_is_refused(
    whole_years: Federation, record: dict[str, Any], both: dict[str, Any]
) -> None:
    """A coordinator that puts the interval back that the declaration contradicts."""
    forged = copy.deepcopy(record)
    forged["body"]["results"][0]["other_interval"] = copy.deepcopy(both["body"]["results"][0]["other_interval"])
    sign_again(whole_years, forged)
    failed = verify_record(forged, whole_years.directory.store_file).failed
    assert any(text.startswith("the other interval") for text in failed), failed


FIRST = ("confidence_interval", "grid_values")


def test_status_and_watch_show_both(
    whole_years: Federation, record: dict[str, Any], undeclared: Federation, both: dict[str, Any]
) -> None:
    for federation, released in ((whole_years, record), (undeclared, both)):
        (result,) = released["body"]["results"]
        status = read_status(federation.directory)
        (answer,) = status.to_dict()["answers"]
        assert {key: answer[key] for key in FIRST} == {key: result[key] for key in FIRST}
        has_both = federation is undeclared
        for one in (answer, result):
            assert one["other_interval"] is None or one["other_interval"].pop("condition")
        assert (answer["other_interval"] or {}).items() >= (result["other_interval"] or {}).items()
        assert ("Beside it: " in status.to_text()) == has_both
        assert ("if the values are continuous" in status.to_text()) == has_both
        assert "whatever the distribution" in status.to_text()
    (result,) = record["body"]["results"]
    facts = json.loads(CliRunner().invoke(main, ["status", str(whole_years.directory.path), "--json"]).output)
    assert facts["answers"][0]["grid_values"] == result["grid_values"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("any", "the interval holds for every distribution"),
        ("continuous", "if that is false here, the interval may be too narrow"),
        ("whole", "every one is a whole number; if that is false here"),
        ("step=1000", "every one is a multiple of 1,000"),
    ],
)
def test_a_site_sees_the_declaration_before_it_agrees(
    whole_years: Federation, tmp_path: Path, values: str, words: str
) -> None:
    known = whole_years.invitation("north")
    study = make_study({"north": ClientAgreement(1.0, 1.0, 1000)}, 20, design="auto", value_kind=values)
    Invitation("north", study, known.brokers, known.authority, known.coordinator).write(tmp_path / "north.json")
    rows = dict(read_invitation(tmp_path / "north.json").rows())
    assert rows["values declared"].startswith(f"{values}: ")
    assert words in rows["values declared"]
    assert study.spec.design == ("tuned" if values == "continuous" else "straddle")


def test_older_records_and_invitations_are_named_not_misread(
    whole_years: Federation, record: dict[str, Any], tmp_path: Path
) -> None:
    old = copy.deepcopy(record)
    old["body"]["privatile_release"] = 2
    write_record(old, tmp_path / "record.json")
    with pytest.raises(InputError, match=r"of format 2; .* Commit d3633e0a"):
        read_record(tmp_path / "record.json")
    plain = json.loads(whole_years.directory.invitation_file("north").read_text())
    plain["privatile_invitation"] = 1
    (tmp_path / "north.json").write_text(json.dumps(plain))
    with pytest.raises(InputError, match="commit d3633e0a"):
        read_invitation(tmp_path / "north.json")
