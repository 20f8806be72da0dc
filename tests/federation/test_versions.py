"""Parties of different versions work together, or one of them says clearly that the other is of another version."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from privatile.errors import ProtocolError
from privatile.federation.operations.status import read_status
from privatile.federation.wire import MAX_ASK, OTHER_PROGRAM, read_message
from privatile.records.keys import KeyPair
from tests.federation.kit import PATIENCE, REPOSITORY, Federation, make_study
from tests.federation.played import Table
from tests.federation.test_alarms import hello

BEFORE = "f98b7a29"
"""A commit whose program has the same protocol: the last one before alarms, backups and containers."""


def of_another_version(message: bytes, key: KeyPair, **fields: Any) -> bytes:
    """The message as a later version would send it: with fields that this one does not know."""
    body = json.loads(message.rpartition(b"\n")[0])
    text = json.dumps(body | fields, sort_keys=True, separators=(",", ":")).encode()
    return text + b"\n" + base64.b64encode(key.sign(text))


def test_a_client_of_another_protocol_is_named_to_the_organizer_and_not_blamed(tmp_path: Path) -> None:
    table = Table(tmp_path)
    key = table.federation.sites["site1"].key()
    later = of_another_version(hello(table, "site1").pack(key), key, protocol=9)
    table.core.greet("site1", later)
    (event,) = table.run.journal.events()
    assert (event.kind, event.client) == ("version", "site1")
    assert "runs another version of privatile" in event.text
    assert "another version" in read_status(table.federation.directory).to_text()
    assert table.run.journal.quarantined() == {}
    # Negative controls: what somebody else has signed names nobody; this version's own hello is welcome.
    forged = of_another_version(hello(table, "site1").pack(key), KeyPair.generate(), protocol=9)
    table.core.greet("site1", forged)
    table.core.greet("site1", hello(table, "site1").pack(key))
    assert len(list(table.run.journal.events())) == 1


def test_a_question_of_another_protocol_is_refused_with_the_reason(tmp_path: Path) -> None:
    table = Table(tmp_path)
    key = table.federation.directory.key()
    asked = table.core.asked
    assert read_message(asked, key.public.signer, MAX_ASK)
    later = of_another_version(asked, key, noise="laplace")
    with pytest.raises(ProtocolError, match="not of this format") as refused:
        read_message(later, key.public.signer, MAX_ASK)
    assert OTHER_PROGRAM in str(refused.value)


@pytest.mark.network
@pytest.mark.skipif(
    "PRIVATILE_LONG" not in os.environ, reason="runs an earlier version beside this one: PRIVATILE_LONG=1"
)
@pytest.mark.parametrize("older", ["coordinator", "client"])
def test_a_run_with_the_version_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: str, capsys: pytest.CaptureFixture[str]
) -> None:
    git = shutil.which("git")
    archive = tmp_path / "before.tar"
    if (
        git is None
        or subprocess.run(
            [git, "archive", "-o", str(archive), BEFORE, "src"], cwd=REPOSITORY, capture_output=True, check=False
        ).returncode
    ):
        with capsys.disabled():
            print(f"\nNOT RUN AGAINST THE VERSION BEFORE: commit {BEFORE} is not in this repository.")
        pytest.skip(f"commit {BEFORE} is not in this repository")
    shutil.unpack_archive(archive, tmp_path / "before", filter="data")
    federation = Federation(tmp_path, make_study(2, rounds=30, length=3))
    federation.write_data()

    def start(arguments: list[str], source: Path, name: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(source)}
        with (tmp_path / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "privatile", *arguments], stdout=log, stderr=log, env=environment
            )

    before, now = tmp_path / "before" / "src", REPOSITORY / "src"
    serve = ["serve", str(federation.directory.path)]
    started = [start(serve, before if older == "coordinator" else now, "serve")]
    for name in federation.study.clients:
        join = ["join", str(federation.directory.invitation_file(name)), "--site", str(federation.sites[name].path)]
        join += ["--source", str(tmp_path / name / "data.csv"), "--value", "x", "--yes"]
        started.append(start(join, before if older == "client" and name == "site0" else now, name))
    try:
        assert [process.wait(PATIENCE) for process in started] == [0, 0, 0], (tmp_path / "serve.log").read_text()
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert read_status(federation.directory).state == "finished"
