"""The release record: it verifies from the counts alone, and any tampering is found."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privatile.errors import InputError
from privatile.federation.operations.record import countersign, release, verify_record
from privatile.records import KeyPair, read_record, sign, write_record
from privatile.records.record import WORDING
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile.run.tables import hash_sources
from tests.federation.kit import Federation, make_study
from tests.federation.mutations import with_a_key_twice


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    federation = Federation(tmp_path_factory.mktemp("release"), make_study(3, rounds=15, length=5))
    asyncio.run(federation.run()).store.close()
    return federation


def test_a_record_verifies_and_says_what_was_not_checked(finished: Federation, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(release(finished.directory), path)
    record = read_record(path)
    alone = verify_record(record)
    assert alone.failed == []
    assert any("--transcript" in text for text in alone.not_checked)
    whole = verify_record(record, finished.directory.store_file)
    assert whole.failed == []
    assert "the estimate is the one the counts give, within 1e-09 standard errors" in whole.passed
    assert any("all 45 signatures" in text for text in whole.passed)
    body = record["body"]
    assert body["spent"]["site0"] == {
        "epsilon": finished.study.clients["site0"].mechanism.epsilon,
        "records": 75,
        "silent_rounds": 0,
    }
    (result,) = body["results"]
    assert {"level", "target", "column", "estimate", "confidence_interval", "method", "caveats"} <= set(result)
    assert not WORDING & set(result)


def test_countersignatures(finished: Federation) -> None:
    record = release(finished.directory)
    for name in ("site0", "site1"):
        record = finished.countersigned(record, name)
    checked = verify_record(record)
    assert checked.failed == []
    assert sum("countersigned" in text for text in checked.passed) == 2
    assert any("countersignatures of site2" in text for text in checked.not_checked)
    forged = finished.countersigned(record, "site2", KeyPair.generate())
    assert any("site2" in text for text in verify_record(forged).failed)
    with pytest.raises(InputError, match="no client"), finished.ledger("site2") as ledger:
        countersign(record, "west", KeyPair.generate(), finished.directory.store_file, ledger)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda body: body["results"][0].update(estimate=50.0),  # these few answers give none
        lambda body: body["results"][0]["confidence_interval"].update(
            low=body["results"][0]["confidence_interval"]["low"] - 1.0
        ),
        lambda body: body["results"][0].update(caveats=[]),
        lambda body: body["study"]["clients"]["site0"].update(epsilon=0.5),
        lambda body: body.update(run="another"),
        lambda body: body["spent"]["site0"].update(records=1),
        lambda body: body["transcript"].update(digest="0" * 64),
        lambda body: body["transcript"].update(rounds=14),
        lambda body: body.update(finished=False),
        lambda body: body["events"].insert(0, ["restored", "site0", 3]),
        lambda body: body["results"][0].update(column="another column"),
        lambda body: body["results"][0]["clients"][0].update(weight=0.5),
        lambda body: body["results"][0]["clients"][0].update(local_rank=0.1),
        lambda body: body["results"][0].update(target="file"),
        lambda body: body["results"][0].update(reviewed=True),
    ],
    ids=[
        "estimate",
        "interval",
        "caveats",
        "budget",
        "run",
        "spent",
        "digest",
        "rounds",
        "finished",
        "events",
        "estimand",
        "weight",
        "rank",
        "target",
        "more",
    ],
)
@pytest.mark.parametrize("resigned", [False, True], ids=["as is", "signed again"])
def test_tampering_with_the_record_is_found(
    finished: Federation, tamper: Callable[[dict[str, Any]], None], resigned: bool
) -> None:
    record = copy.deepcopy(release(finished.directory))
    tamper(record["body"])
    if resigned:  # even the coordinator itself cannot: the counts say otherwise
        sign_again(finished, record)
    assert verify_record(record, finished.directory.store_file).failed


def sign_again(federation: Federation, record: dict[str, Any]) -> None:
    record["signatures"]["signer"] = sign(record["body"], federation.directory.key())


@pytest.fixture
def of_another_build(finished: Federation) -> dict[str, Any]:
    """The same numbers, by a program that is not this one."""
    record = release(finished.directory)
    record["body"].update(program="0" * 64, software="privatile 0.0.1")
    return record


@pytest.mark.parametrize(("off", "holds"), [(0.0, True), (1e-4, True), (1e-2, False)])
def test_another_build_may_have_fitted_otherwise_by_less_than_anybody_gains(
    finished: Federation, of_another_build: dict[str, Any], off: float, holds: bool
) -> None:
    with RunStore.open(finished.directory.store_file, read_only=True) as store:
        own = Coordinator(store).result()
    moved = off * own.inference.error_scale * own.scale.slope(own.inference.center)
    of_another_build["body"]["results"][0]["confidence_interval"]["low"] += moved
    sign_again(finished, of_another_build)
    failed = verify_record(of_another_build, finished.directory.store_file).failed
    assert (not failed) == holds, failed


@pytest.mark.parametrize("software", ["privatile 0.0.1", "\x1b[2J", 7])
@pytest.mark.parametrize(
    ("change", "named"),
    [
        # The quantile was not located, and nobody may put a number there.
        (lambda result: result.update(estimate=1.0), "the estimate"),
        (lambda result: result["confidence_interval"].update(low=-1.0), "the interval"),
        (lambda result: result.update(records=1), "budgets"),
        (lambda result: result["clients"][0].update(weight=1.0), "budgets"),
        (lambda result: result["caveats"].pop(), "budgets"),
        (lambda result: result.update(reviewed=True), "the anytime interval and all other figures"),
        (lambda result: result.pop("averaged_rounds"), "the anytime interval and all other figures"),
    ],
)
def test_numbers_and_codes_must_agree_whichever_version_made_the_record(
    finished: Federation,
    of_another_build: dict[str, Any],
    change: Callable[[dict[str, Any]], None],
    named: str,
    software: object,
) -> None:
    of_another_build["body"]["software"] = software
    change(of_another_build["body"]["results"][0])
    sign_again(finished, of_another_build)
    (failed,) = verify_record(of_another_build, finished.directory.store_file).failed
    assert failed.startswith(named)
    maker = software if software == "privatile 0.0.1" else "unnamed"
    assert failed.endswith(f"check it with the one that made it, {maker}")


JUNK: list[object] = [None, 7, 10**400, "x", [], [7], {}, {"site0": 7}, [{}]]


@pytest.mark.slow
@pytest.mark.parametrize("junk", JUNK)
def test_a_body_that_holds_anything_fails_without_an_exception(finished: Federation, junk: object) -> None:
    record = release(finished.directory)
    # In the short form every part is given two or three of the nine kinds of junk, and every kind to a quarter of them.
    every = 1 if os.environ.get("PRIVATILE_LONG") else 4
    first = JUNK.index(junk) % every
    for key in sorted(set(record["body"]) - {"privatile_release", "software", "program"})[first::every]:
        altered = copy.deepcopy(record)
        altered["body"][key] = junk
        entry = {"signer": "x", "statement": junk, "signature": junk}
        odd = {"signer": junk, "statement": {}, "signature": "x"}
        altered["signatures"]["clients"] = {"site0": entry, "site1": junk, "site2": odd}
        assert verify_record(altered, finished.directory.store_file).failed
    for key in sorted(record["body"]["results"][0])[first::every]:
        altered = copy.deepcopy(record)
        altered["body"]["results"][0][key] = junk
        if altered == record:
            continue
        assert verify_record(altered, finished.directory.store_file).failed


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("UPDATE rounds SET ones = '[0, 0, 0]' WHERE round = 7", "signatures of clients"),
        ("DELETE FROM evidence WHERE round = 7 AND client = 'site1'", "every count has its client's signature"),
        ("UPDATE evidence SET sequence = 1 WHERE round = 7", "signatures of clients"),
        ("DELETE FROM rounds WHERE round = 15", "has all rounds of the record: it has 14 of 15"),
        (
            "INSERT INTO evidence SELECT 99, client, sequence, hash, signer, signature FROM evidence WHERE round = 7",
            "no signature is left over",
        ),
        ("UPDATE rounds SET query = query + 0.01 WHERE round = 7", "replay"),
        ("UPDATE federation SET digest = 'x'", ""),
    ],
)
def test_tampering_with_the_transcript_is_found(
    finished: Federation, tmp_path: Path, statement: str, word: str
) -> None:
    record = release(finished.directory)
    altered = tmp_path / "run.db"
    shutil.copy(finished.directory.store_file, altered)
    with sqlite3.connect(altered) as connection:
        connection.execute(statement)
    connection.close()
    failed = verify_record(record, altered).failed
    if word:
        assert any(word in text for text in failed), failed
    else:
        assert failed == []  # nothing that the record rests on


@pytest.mark.network
def test_unfinished_runs_are_released_only_on_request(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(1, rounds=5))
    federation.open_run().store.close()
    with pytest.raises(InputError, match="not finished"):
        release(federation.directory)


def test_a_record_with_a_key_twice_is_refused(finished: Federation, tmp_path: Path) -> None:
    """Its signature would hold for one of the two, and another program would read the other."""
    path, text = tmp_path / "record.json", json.dumps(release(finished.directory))
    path.write_text(text)
    assert read_record(path)
    for twice in with_a_key_twice(text):
        path.write_text(twice)
        with pytest.raises(InputError, match="an object has a key twice"):
            read_record(path)


def test_other_files_are_not_records(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    for junk in ("", "{}", "[1]", json.dumps({"body": {}, "signatures": {}}), "{"):
        path.write_text(junk)
        with pytest.raises(InputError):
            read_record(path)


def test_a_change_in_any_package_is_another_program(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "errors.py").write_text("first = 1\n")
    (tmp_path / "core" / "scale.py").write_text("second = 2\n")
    before = hash_sources(tmp_path)
    assert before == hash_sources(tmp_path)
    (tmp_path / "core" / "scale.py").write_text("second = 3\n")
    assert hash_sources(tmp_path) != before


def test_a_hostile_record_writes_nothing_of_its_own_onto_the_terminal(finished: Federation) -> None:
    record = release(finished.directory)
    record["body"]["coordinator"] = {"\x1b[2J\nholds        all is well": 1}
    checked = verify_record(record)
    assert any("the coordinator has signed it" in text for text in checked.failed)
    lines = checked.to_text().splitlines()
    assert len(lines) == len(checked.passed) + len(checked.failed) + len(checked.not_checked)
    assert all(line.isprintable() for line in lines)
