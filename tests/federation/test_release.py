"""The release record: it verifies from the counts alone, and any tampering is found."""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privatile.errors import InputError
from privatile.federation.keys import KeyPair
from privatile.federation.release import canonical, countersign, read_record, release, verify_record, write_record
from tests.federation.kit import Federation, make_study


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
    assert alone.failed == ()
    assert any("--transcript" in text for text in alone.not_checked)
    whole = verify_record(record, finished.directory.store_file)
    assert whole.failed == ()
    assert any("to the last bit" in text for text in whole.held)
    assert any("all 45 signatures" in text for text in whole.held)
    body = record["body"]
    assert body["spent"]["site0"] == {
        "epsilon": finished.study.clients["site0"].mechanism.epsilon,
        "records": 75,
        "silent_rounds": 0,
    }
    assert {"estimand", "estimate", "confidence_interval", "method", "caveats"} <= set(body["results"][0])


def test_countersignatures(finished: Federation) -> None:
    record = release(finished.directory)
    for name in ("site0", "site1"):
        record = countersign(record, name, finished.sites[name].key())
    checked = verify_record(record)
    assert checked.failed == ()
    assert sum("countersigned" in text for text in checked.held) == 2
    assert any("countersignatures of site2" in text for text in checked.not_checked)
    forged = countersign(record, "site2", KeyPair.generate())
    assert any("site2" in text for text in verify_record(forged).failed)
    with pytest.raises(InputError, match="no client"):
        countersign(record, "west", KeyPair.generate())


@pytest.mark.parametrize(
    "tamper",
    [
        lambda body: body["results"][0].update(estimate=body["results"][0]["estimate"] + 1e-9),
        lambda body: body["results"][0]["confidence_interval"].update(
            low=body["results"][0]["confidence_interval"]["low"] - 1.0
        ),
        lambda body: body["results"][0].update(caveats=[]),
        lambda body: body["study"]["clients"]["site0"].update(epsilon=0.5),
        lambda body: body.update(run="another"),
        lambda body: body["spent"]["site0"].update(records=1),
        lambda body: body["transcript"].update(digest="0" * 64),
    ],
    ids=["estimate", "interval", "caveats", "budget", "run", "spent", "digest"],
)
@pytest.mark.parametrize("resigned", [False, True], ids=["as is", "signed again"])
def test_tampering_with_the_record_is_found(
    finished: Federation, tamper: Callable[[dict[str, Any]], None], resigned: bool
) -> None:
    record = copy.deepcopy(release(finished.directory))
    tamper(record["body"])
    if resigned:  # even the coordinator itself cannot: the counts say otherwise
        import base64

        signature = finished.directory.key().sign(canonical(record["body"]))
        record["signatures"]["coordinator"] = base64.b64encode(signature).decode()
    assert verify_record(record, finished.directory.store_file).failed


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("UPDATE rounds SET ones = '[0, 0, 0]' WHERE round = 7", "signatures of clients"),
        ("DELETE FROM evidence WHERE round = 7 AND client = 'site1'", "every count has its client's signature"),
        ("UPDATE evidence SET sequence = 1 WHERE round = 7", "signatures of clients"),
        ("DELETE FROM rounds WHERE round = 15", "no signature is left over"),
        ("UPDATE rounds SET query = query + 1e-9 WHERE round = 7", "replay"),
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
        assert failed == ()  # nothing that the record rests on


def test_unfinished_runs_are_released_by_name_only(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(1, rounds=5))
    federation.open_run().store.close()
    with pytest.raises(InputError, match="not finished"):
        release(federation.directory)


def test_junk_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    for junk in ("", "{}", "[1]", json.dumps({"body": {}, "signatures": {}}), "{"):
        path.write_text(junk)
        with pytest.raises(InputError):
            read_record(path)
