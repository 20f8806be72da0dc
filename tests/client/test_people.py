"""People: one record each, chosen fairly, known by a keyed hash only."""

import stat
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.errors import InputError, LedgerError

KEY = PersonKey(b"p" * 32)


def table(rows: list[tuple[float, str, str]]) -> np.ndarray[Any, Any]:
    return np.array(rows, dtype=[("wage", float), ("region", "U9"), ("who", "U20")])


def chosen(rows: list[tuple[float, str, str]], memory_rows: int = 1 << 20) -> dict[str, list[float]]:
    source = open_source(table(rows), value="wage", client="region", person="who")
    columns = shuffle(
        source, Ledger.in_memory(master=bytes(32)), person_key=KEY, memory_rows=memory_rows, minimum_records=0
    )
    return {
        name: [float(x) for block in column.blocks(0, column.records) for x in block.values]
        for name, column in columns.items()
    }


def test_one_record_a_person_across_clients() -> None:
    rng = np.random.default_rng(0)
    rows = [(float(k), f"r{rng.integers(3)}", f"p{rng.integers(4_000)}") for k in range(10_000)]
    found = chosen(rows)
    values = [int(value) for column in found.values() for value in column]
    owners = [rows[value][2] for value in values]
    assert len(owners) == len(set(owners)) == len({who for _, _, who in rows})
    assert all(rows[int(value)][1] == name for name, column in found.items() for value in column)
    assert chosen(rows, memory_rows=500) == found  # through the spill file: the same choice, the same order


def test_each_record_of_a_person_is_equally_likely() -> None:
    """8,000 people with three records, the first with an extreme value: each is chosen a third of the time.

    Within 5 standard errors of a binomial. Negative control: always taking the first record is 100 errors away.
    """
    people = 8_000
    rows = [(float(place), "r", f"p{k}") for place in range(3) for k in range(people)]
    counts = Counter(chosen(rows)["r"])
    error = np.sqrt(people * (1 / 3) * (2 / 3))
    assert all(abs(counts[place] - people / 3) < 5 * error for place in (0.0, 1.0, 2.0))
    assert abs(people - people / 3) > 100 * error


def test_the_choice_does_not_bend_the_order() -> None:
    """People with ten records stand no earlier than people with one: mean position 1/2 within 5 standard errors."""
    rows = [(1.0, "r", f"many{k}") for k in range(1_000) for _ in range(10)] + [
        (0.0, "r", f"one{k}") for k in range(9_000)
    ]
    order = np.array(chosen(rows)["r"])
    assert len(order) == 10_000
    places = np.flatnonzero(order == 1.0) / len(order)
    assert len(places) == 1_000
    assert abs(places.mean() - 0.5) < 5 / np.sqrt(12 * len(places))


def test_the_digest_of_a_client_covers_the_whole_file() -> None:
    def digests(rows: list[tuple[float, str, str]]) -> dict[str, bytes]:
        source = open_source(table(rows), value="wage", client="region", person="who")
        columns = shuffle(source, Ledger.in_memory(master=bytes(32)), person_key=KEY, minimum_records=0)
        return {name: column.content.digest for name, column in columns.items()}

    rows = [(float(k), f"r{k % 2}", f"p{k}") for k in range(10)]
    changed = [*rows[:9], (9.0, "r1", "p0")]
    assert digests(rows) == digests(list(rows))
    assert digests(rows)["r0"] != digests(changed)["r0"]


def test_the_key_file(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "person.key"
    key = PersonKey.open(path)
    assert not path.exists()
    key.save()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert PersonKey.open(path).fingerprint == key.fingerprint
    assert list(path.parent.iterdir()) == [path]
    path.chmod(0o644)
    assert PersonKey.open(path).hash([b"ada"]).tolist() == key.hash([b"ada"]).tolist()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"short")
    with pytest.raises(LedgerError, match="must hold 32 bytes and holds 5"):
        PersonKey.open(path)


def test_a_key_never_replaces_another(tmp_path: Path) -> None:
    one, two = PersonKey.open(tmp_path / "k"), PersonKey.open(tmp_path / "k")
    one.save()
    with pytest.raises(LedgerError, match="cannot be made"):
        two.save()
    assert PersonKey.open(tmp_path / "k").fingerprint == one.fingerprint


def test_no_person_is_hashed_under_a_key_that_is_in_no_file(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"person.key is not made yet"):
        PersonKey.open(tmp_path / "person.key").hash([b"ada"])
    assert len(PersonKey(b"p" * 32).fingerprint) == 16
    assert PersonKey(b"p" * 32).hash([b"ada"]).shape == (1,)  # one that lives in memory needs none


def test_two_first_processes_share_the_key_of_the_faster_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast, where = Ledger.in_memory(), Ledger.in_memory(), tmp_path / "person.key"
    save, made = PersonKey.save, []

    def overtaken(key: PersonKey) -> None:
        monkeypatch.setattr(PersonKey, "save", save)
        made.append(fast.person_key(where))
        save(key)

    monkeypatch.setattr(PersonKey, "save", overtaken)
    key = slow.person_key(where)
    assert key.secret == made[0].secret == where.read_bytes()
    with pytest.raises(LedgerError, match="cannot be made"):  # a folder that takes no file is another matter
        slow.person_key(Path("/proc/no/person.key"))


def test_the_key_is_made_before_the_first_answer_and_no_name_is_kept(tmp_path: Path) -> None:
    rows = [(float(k), "r", f"lovelace{k}") for k in range(10)]
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        key = ledger.person_key(tmp_path / "person.key")
        source = open_source(table(rows), value="wage", client="region", person="who")
        column = shuffle(source, ledger, person_key=key)["r"]
        site = Responder("run", column, RandomizedResponse.from_epsilon(1.0), ledger, OperatingSystemCoins())
        assert list(tmp_path.iterdir()) == [tmp_path / "person.key"]
        site.answer(Question(run="run", round=1, level=0.5, query=1.0, length=10))
        written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        secret = (tmp_path / "person.key").read_bytes()
        stored = (tmp_path / "ledger.db").read_bytes() + (tmp_path / "ledger.db-wal").read_bytes()
    assert b"lovelace" not in written
    assert secret not in stored  # the ledger alone tells nothing about who is in it
    assert "secret" not in repr(key)


def test_a_key_without_a_column_and_a_column_without_a_key() -> None:
    rows = table([(1.0, "r", "a"), (2.0, "r", "b")])
    with pytest.raises(InputError, match="go together"):
        shuffle(open_source(rows, value="wage", person="who"), Ledger.in_memory())
    with pytest.raises(InputError, match="go together"):
        shuffle(open_source(rows, value="wage"), Ledger.in_memory(), person_key=KEY)
