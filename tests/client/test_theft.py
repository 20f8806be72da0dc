"""What a thief of each file learns: the ledger alone nothing about a value, the ledger and its key together a lot."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from privatile.client.ledger.integrity import PersonKey, derive
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.core.private_files import default_person_key, key_folder
from privatile.errors import LedgerError
from tests.federation.kit import Federation, make_study

BINARY = 20 if os.environ.get("PRIVATILE_LONG") else 14
"""Binary values to be found: 2^20 trials take 1.4 s, 2^14 a fiftieth of that."""


def answer(ledger: Ledger, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    column = shuffle(open_source(values), ledger)["all"]
    site = Responder("run", column, RandomizedResponse.from_epsilon(1.0), ledger, OperatingSystemCoins())
    site.answer(Question(run="run", round=1, level=0.5, query=1.0, length=len(values)))


def stolen(path: Path, folder: Path) -> list[bytes]:
    """Every byte string in the tables of a stolen ledger, its log included."""
    folder.mkdir()
    for tail in ("", "-wal"):
        if Path(f"{path}{tail}").exists():
            shutil.copy(f"{path}{tail}", folder)
    found = []
    with sqlite3.connect(folder / path.name) as copy:
        tables = [name for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in copy.execute(f"SELECT * FROM {table}"):
                found += [value for value in row if isinstance(value, bytes)]
    copy.close()
    return found


def recovered(found: list[bytes], keys: Iterable[bytes], known: bytes, guesses: Iterable[bytes]) -> bytes | None:
    """The guess whose keyed digest stands in the ledger, under any of the keys; None where there is none."""
    digests = {value for value in found if len(value) == 16}
    candidates = list(guesses)
    for key in keys:
        start = hashlib.blake2b(known, key=derive(key, "digest"), digest_size=16)
        for guess in candidates:
            trial = start.copy()
            trial.update(guess)
            if trial.digest() in digests:
                return guess
    return None


def binary_guesses() -> Iterable[bytes]:
    bits = (np.arange(1 << BINARY)[:, None] >> np.arange(BINARY)) & 1
    return (row.tobytes() for row in bits.astype(np.float64))


def test_a_thief_of_the_ledger_alone_cannot_tell_binary_values(tmp_path: Path) -> None:
    """All bytes of the ledger and of its log; before, its own key was among them and every value was found."""
    values = np.random.default_rng(3).integers(0, 2, BINARY).astype(np.float64)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        answer(ledger, values)
        found = stolen(tmp_path / "ledger.db", tmp_path / "thief")
        key = ledger.secret.path
    keys = [value[:32] for value in found if 16 <= len(value) <= 64]
    assert recovered(found, keys, b"", binary_guesses()) is None
    # Negative control: with the key file as well, the same search finds all of them.
    assert key is not None
    assert recovered(found, [key.read_bytes()], b"", binary_guesses()) == values.tobytes()


def test_a_thief_of_the_ledger_alone_cannot_tell_the_last_salary_when_all_others_are_known(tmp_path: Path) -> None:
    salaries = np.random.default_rng(4).integers(200, 1200, 5000).astype(np.float64) * 100.0
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        answer(ledger, salaries)
        found = stolen(tmp_path / "ledger.db", tmp_path / "thief")
        key = ledger.secret.path
    others = salaries[:-1].tobytes()
    guesses = [np.float64(100 * k).tobytes() for k in range(200, 1200)]
    keys = [value[:32] for value in found if 16 <= len(value) <= 64]
    assert recovered(found, keys, others, guesses) is None
    assert key is not None
    assert recovered(found, [key.read_bytes()], others, guesses) == salaries[-1].tobytes()


# -- where the key lies --------------------------------------------------------------------------------------------


def test_the_key_lies_apart_from_the_ledger_and_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with Ledger.open(tmp_path / "state" / "ledger.db") as ledger:
        answer(ledger, np.arange(10.0))
        (key,) = (tmp_path / "config" / "privatile" / "keys").glob("*.key")
        assert key == ledger.secret.path
        assert key.name == f"ledger-{ledger.secret.fingerprint.hex()}.key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    secret = key.read_bytes()
    assert not any(secret in file.read_bytes() for file in (tmp_path / "state").iterdir())


def test_a_ledger_without_its_key_answers_nobody_and_gets_no_new_one(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db", keys=tmp_path / "keys") as ledger:
        answer(ledger, np.arange(10.0))
        key = ledger.secret.path
    assert key is not None
    secret = key.read_bytes()
    key.unlink()
    with pytest.raises(LedgerError, match=r"is missing: there is no file .*Never make a new one: records could answer"):
        Ledger.open(tmp_path / "ledger.db", keys=tmp_path / "keys")
    assert not key.exists()
    key.write_bytes(bytes(32))
    with pytest.raises(LedgerError, match="holds the key of another ledger"):
        Ledger.open(tmp_path / "ledger.db", keys=tmp_path / "keys")
    key.write_bytes(secret[:31])
    with pytest.raises(LedgerError, match="must hold 32 bytes and holds 31"):
        Ledger.open(tmp_path / "ledger.db", keys=tmp_path / "keys")
    # What was spent can be read without the key; with it the ledger goes on.
    key.unlink()
    with Ledger.open(tmp_path / "ledger.db", read_only=True, keys=tmp_path / "keys") as ledger:
        assert ledger.position.sequence == 1
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / key.name).write_bytes(secret)
    with Ledger.open(tmp_path / "ledger.db", keys=tmp_path / "elsewhere") as ledger:
        assert ledger.verify() == 1


def test_a_ledger_that_cannot_be_made_leaves_no_key(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        Ledger.open(tmp_path / "file" / "ledger.db", keys=tmp_path / "keys") as ledger,
        pytest.raises(LedgerError, match="cannot be made"),
    ):
        answer(ledger, np.arange(10.0))
    assert list((tmp_path / "keys").iterdir()) == []


def test_a_sites_folder_holds_neither_the_key_of_its_ledger_nor_the_person_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    federation = Federation(tmp_path, make_study(1), port=4222)
    site = federation.client("site0")
    (key,) = key_folder().iterdir()
    person = PersonKey.open(default_person_key())
    person.save()
    folder = federation.sites["site0"].path
    files = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    assert key.read_bytes() == site.core.responder.ledger.secret.secret
    assert not any(secret in content for secret in (key.read_bytes(), person.secret) for content in files)
    assert not list(folder.rglob("person.key"))
