"""The random order: uniform, the same again after a restart, in bounded memory, with nothing left behind."""

import errno
import os
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import chdtri

from privatile.client.ledger.integrity import PersonKey, derive
from privatile.client.ledger.ledger import Ledger
from privatile.client.order import shuffle as shuffling
from privatile.client.order.shuffle import ShuffledColumn, shuffle
from privatile.client.order.spill import SpillFile
from privatile.client.order.tags import by_tag, person_words, words_at, words_of
from privatile.client.sources.databases import open_source
from privatile.core.messages import Missing
from privatile.errors import DataError, InputError

MASTER = bytes(range(32))


def order(column: ShuffledColumn) -> list[float]:
    return [float(value) for block in column.blocks(0, column.records) for value in block.values]


def shuffled(values: Sequence[float] | NDArray[Any], memory_rows: int = 1 << 21) -> ShuffledColumn:
    data = np.asarray(values, dtype=np.float64)
    return shuffle(open_source(data), Ledger.in_memory(master=MASTER), memory_rows=memory_rows)["all"]


def chi_square_of_orders(clients: int) -> float:
    """χ² of the 24 orders of four records, one client after another, each with a key of its own."""
    data = {f"c{k}": [0.0, 1.0, 2.0, 3.0] for k in range(clients)}
    columns = shuffle(open_source(data), Ledger.in_memory(master=MASTER))
    counts = Counter(tuple(order(column)) for column in columns.values())
    assert set(counts) <= set(permutations([0.0, 1.0, 2.0, 3.0]))
    expected = clients / 24
    return sum((counts[each] - expected) ** 2 / expected for each in permutations([0.0, 1.0, 2.0, 3.0]))


def masked(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """Make tags of these bits only."""
    for name in ("words_at", "words_of"):
        whole = getattr(shuffling, name)
        monkeypatch.setattr(shuffling, name, lambda *given, whole=whole: whole(*given) & np.uint64(kept))


def test_words_never_change() -> None:
    """An order made by one version must be the order of every later one: AES-256 of a counter from 0, little-endian."""
    first = bytes.fromhex("dc95c078a2408989ad48a21492842087")  # NIST's answer for a key and a block of zeros
    assert words_at(bytes(32), 0, 2).tolist() == np.frombuffer(first, dtype="<u8").tolist()
    assert person_words(bytes(32), np.zeros(1, dtype=np.uint64)).tolist() == words_at(bytes(32), 0, 1).tolist()
    assert words_at(bytes(32), 3, 1).tolist() == [10048599240322868137]
    assert derive(bytes(32), "order", "north", "salary").hex() == (
        "76eb5345ea142e155c145ce431e3f79a224d0ac3fc8da260d018f917683cc82e"
    )


@given(st.integers(0, 70), st.integers(0, 70))
def test_words_are_the_same_from_wherever_they_are_read(start: int, count: int) -> None:
    key = b"k" * 32
    found = words_at(key, start, count)
    assert np.array_equal(found, words_at(key, 0, start + count)[start:])
    assert np.array_equal(found, words_of(key, np.arange(start, start + count, dtype=np.uint64)))


def test_long_streams_are_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = words_at(b"k" * 32, 5, 1_000)
    monkeypatch.setattr("privatile.client.order.tags.PIECE", 64)
    assert np.array_equal(words_at(b"k" * 32, 5, 1_000), whole)


MANY = [(k * 7 % 4, k * 5 % 3) for k in range(40)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=60), st.booleans(), st.booleans())
@example(MANY, False, True)
@example(MANY, True, True)
@example(MANY, False, False)
@example(MANY, True, False)
def test_rows_are_sorted_by_the_whole_tag_then_by_number(
    rows: list[tuple[int, int]], numbered: bool, many: bool
) -> None:
    """The upper 40 bits decide nearly always; where they tie the lower ones do, at any length of a piece."""
    tags = np.array([(high << 24) | low for high, low in rows], dtype=np.uint64)
    numbers = np.arange(len(rows), dtype=np.uint64)[::-1].copy() if numbered else None
    expected = sorted(range(len(rows)), key=lambda k: (int(tags[k]), -k if numbered else k))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("privatile.client.order.tags.PLACE_BITS", 4 if many else 24)
        patched.setattr("privatile.client.order.tags.PIECE", 7)
        assert by_tag(tags, numbers).tolist() == expected


@pytest.mark.slow
def test_every_order_is_equally_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = float(chdtri(23, 1e-4))  # the key is fixed: this passes always or never
    assert chi_square_of_orders(4_800) < limit

    # Negative control: two-bit tags, whose many ties keep the order of the rows.
    masked(monkeypatch, 3 << 62)
    assert chi_square_of_orders(4_800) > limit


def test_each_record_is_anywhere_in_a_spilled_order() -> None:
    """Mean position of the first tenth of the rows: 1/2 within 5 standard errors, through the spill file."""
    count = 40_000
    places = np.empty(count)
    places[np.array(order(shuffled(np.arange(count), memory_rows=1_000)), dtype=np.intp)] = np.arange(count) / count
    tenth = places[: count // 10]
    assert abs(tenth.mean() - 0.5) < 5 / np.sqrt(12 * len(tenth))
    assert abs(np.corrcoef(places, np.arange(count))[0, 1]) < 5 / np.sqrt(count)


@pytest.mark.parametrize("tags", ["whole", "tied"])
@pytest.mark.parametrize("with_people", [False, True])
def test_the_order_does_not_depend_on_memory(with_people: bool, tags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory, a client at once or by the first byte of its tags; also where the upper 40 bits nearly always tie."""
    if tags == "tied":
        masked(monkeypatch, (3 << 62) | 0xFFFFFF)
    rows = [(float(k), f"c{k % 7 % 3}", 1.0 + k % 5, f"p{k % 2_900}") for k in range(3_000)]
    table = np.array(rows, dtype=[("x", float), ("site", "U3"), ("w", float), ("who", "U6")])

    def read(weight: str | None, memory_rows: int) -> list[tuple[str, bytes, list[float]]]:
        source = open_source(table, value="x", client="site", weight=weight, person="who" if with_people else None)
        key = PersonKey(b"p" * 32) if with_people else None
        found = shuffle(source, Ledger.in_memory(master=MASTER), person_key=key, memory_rows=memory_rows)
        assert [len(order(column)) for column in found.values()] == [column.records for column in found.values()]
        return [(name, column.content.digest, order(column)) for name, column in sorted(found.items())]

    for weight in (None, "w"):
        whole = read(weight, 1 << 21)
        assert read(weight, 1_500) == read(weight, 100) == whole
        with monkeypatch.context() as patched:
            patched.setattr(shuffling, "BATCH_ROWS", 77)
            assert read(weight, 2_000) == whole
    if not with_people:
        assert sorted(value for _, _, values in read(None, 100) for value in values) == list(range(3_000))


@pytest.mark.process
def test_the_same_key_gives_the_same_order_after_a_restart(tmp_path: Path) -> None:
    script = (
        "import sys, numpy as np\n"
        "from privatile.client.ledger.ledger import Ledger\n"
        "from privatile.client.order.shuffle import shuffle\n"
        "from privatile.client.sources.databases import open_source\n"
        "with Ledger.open(sys.argv[1]) as ledger:\n"
        "    with ledger.transaction(): pass\n"
        "    column = shuffle(open_source(np.arange(5000.0)), ledger)['all']\n"
        "    print([int(x) for block in column.blocks(0, 5000) for x in block.values], column.content.digest.hex())\n"
    )
    told = [
        subprocess.run([sys.executable, "-c", script, tmp_path / name], capture_output=True, check=True).stdout
        for name in ("one.db", "one.db", "two.db")
    ]
    assert told[0] == told[1]
    assert told[0] != told[2]  # another ledger, another order


def test_clients_and_columns_have_orders_of_their_own() -> None:
    ledger = Ledger.in_memory(master=MASTER)
    data = {"north": np.arange(100.0), "south": np.arange(100.0)}
    columns = shuffle(open_source(data, value="a"), ledger)
    others = shuffle(open_source(data, value="b"), ledger)
    assert len({tuple(order(each)) for each in [*columns.values(), *others.values()]}) == 4


@pytest.mark.parametrize("batch", [64, 1 << 18])
def test_a_clients_rows_keep_digest_and_order_in_every_layout(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapping, a table, rows of others before and between them: else records would be asked in another order."""
    monkeypatch.setattr(shuffling, "BATCH_ROWS", batch)
    own = {"north": np.arange(300.0), "south": np.arange(200.0) + 0.5}
    rows = [(float(value), site) for site, values in own.items() for value in values]
    others = [(float(value), "another") for value in range(250)]
    between = [row for pair in zip(others, rows[: len(others)], strict=True) for row in pair] + rows[len(others) :]

    def read(data: object, client: str | None) -> list[tuple[bytes, list[float]]]:
        columns = shuffle(open_source(data, value="value", client=client), Ledger.in_memory(master=MASTER))
        return [(columns[site].content.digest, order(columns[site])) for site in own]

    for layout in (rows, rows[300:] + rows[:300], others + rows, between):
        table = np.array(layout, dtype=[("value", float), ("site", "U9")])
        assert read(table, "site") == read(own, None)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_piece_can_be_read(data: st.DataObject) -> None:
    column = shuffled(np.arange(300), memory_rows=50)
    whole = order(column)
    for _ in range(4):
        start = data.draw(st.integers(0, 300))
        stop = data.draw(st.integers(start, 300))
        pieces = [block.values for block in column.blocks(start, stop)]
        assert np.concatenate([*pieces, np.empty(0)]).tolist() == whole[start:stop]


@pytest.mark.parametrize("memory_rows", [100, 1 << 21])
def test_ties_in_the_tags_keep_the_order_of_the_rows(memory_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    masked(monkeypatch, 0)
    assert order(shuffled(np.arange(5_000), memory_rows)) == list(range(5_000))


def test_a_column_that_fits_into_memory_makes_no_file(tmp_path: Path) -> None:
    column = shuffle(open_source(np.arange(5_000.0)), Ledger.in_memory(), spill_folder=tmp_path / "nowhere")["all"]
    assert len(order(column)) == 5_000


@pytest.mark.parametrize("change", [lambda x: x[::-1].copy(), lambda x: x + 1, lambda x: x[:-1], lambda x: -x])
def test_the_digest_sees_content_and_order(change: object) -> None:
    values = np.arange(50.0)
    assert callable(change)
    assert shuffled(values).content.digest == shuffled(values).content.digest
    assert shuffled(values).content.digest != shuffled(change(values)).content.digest


def test_all_kinds_of_nan_are_one() -> None:
    other = np.array([1.0, 2.0, 0.0])
    other.view(np.uint64)[2] = 0x7FF8_0000_0000_1234
    assert shuffled([1.0, 2.0, np.nan]).content.digest == shuffled(other).content.digest


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "missing", "words"),
    [
        ({"north": []}, "noise", "'north'.* has no records"),
        ({"north": [1.0, 2.0], "south": []}, "noise", "'south'.* has no records"),
        ({"north": [4711.0]}, "noise", "fewer than 2 usable records"),
        ({"north": [np.nan, np.nan]}, "noise", "missing values only"),
        ({"north": [np.nan, np.nan]}, "drop", "missing values only"),
        ({"north": [4711.0, np.nan]}, "drop", "fewer than 2 usable records"),
        ({"north": [4711.0, np.nan, 1.0]}, "fail", "missing='fail' refuses"),
    ],
)
def test_columns_that_cannot_be_used(data: dict[str, list[float]], missing: Missing, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        shuffle(open_source(data), Ledger.in_memory(), missing=missing)
    assert "4711" not in str(caught.value)


def test_an_unknown_rule_for_missing_values_is_refused() -> None:
    with pytest.raises(InputError, match="missing must be one of"):
        shuffle(open_source([1.0, 2.0]), Ledger.in_memory(), missing="zero")  # type: ignore[arg-type]


# -- spill files -------------------------------------------------------------------------------------------------


def test_spill_files_are_private_and_nameless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[os.stat_result, int]] = []
    really = os.open

    def watch(path: str, flags: int, mode: int = 0o777) -> int:
        handle = really(path, flags, mode)
        seen.append((os.fstat(handle), flags))
        return handle

    monkeypatch.setattr(os, "open", watch)
    data = np.arange(10_000.0)
    shuffle(open_source(data), Ledger.in_memory(), memory_rows=100, spill_folder=tmp_path)
    assert seen
    for file, flags in seen:
        assert stat.S_IMODE(file.st_mode) == 0o600
        assert flags & os.O_EXCL  # no other process can give it a name
    assert list(tmp_path.iterdir()) == []  # the column is alive, its file has no name


def test_what_hid_words_hides_no_others_also_after_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, two words stood under one pad, one after the other, at the same place of the disk."""
    file = SpillFile(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *arguments: os.close(-1))  # an error that is no full disk
        with pytest.raises(DataError):
            file.write(np.arange(10, dtype=np.uint64))
    first = file.write(np.arange(3, dtype=np.uint64))
    assert (first, file.read(first, 3).tolist()) == (10, [0, 1, 2])


def test_a_full_disk_while_spilling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, data: object, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    ledger = Ledger.open(tmp_path / "ledger.db")
    with pytest.raises(DataError, match=r"the disk is full\. Nothing was answered") as caught:
        shuffle(open_source(np.full(10_000, 47114711.0)), ledger, memory_rows=100, spill_folder=tmp_path)
    assert caught.value.__context__ is None
    assert "4711" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_a_real_limit_on_file_size(tmp_path: Path) -> None:
    """The kernel refuses the write: same error, nothing left, nothing in the ledger."""
    script = (
        "import resource, signal, sys, numpy as np\n"
        "from pathlib import Path\n"
        "from privatile.client.ledger.ledger import Ledger\n"
        "from privatile.client.order.shuffle import shuffle\n"
        "from privatile.client.sources.databases import open_source\n"
        "from privatile.errors import DataError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "folder = Path(sys.argv[1])\n"
        "try:\n"
        "    shuffle(open_source(np.arange(1e5)), Ledger.open(folder / 'l.db'), memory_rows=99, spill_folder=folder)\n"
        "except DataError as error:\n"
        "    print(error)\n"
    )
    told = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True)
    assert "the disk is full" in told.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="temporary file in"):
        shuffle(open_source(np.arange(1e4)), Ledger.in_memory(), memory_rows=99, spill_folder=tmp_path / "nowhere")


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory of a process is read from /proc")
def test_memory_is_bounded() -> None:
    """Four million records through the spill file, in a process of its own: the growth is a fraction of the data.

    8 bytes a record would be 32 MB, tags as much again; with 64 Ki rows in memory and batches of 128 Ki the process
    needs a few MB. The limit is half of the data.
    """
    script = (
        "import numpy as np\n"
        "from privatile.client.order import shuffle as shuffling\n"
        "from privatile.client.ledger.ledger import Ledger\n"
        "from privatile.client.sources.source import Batch\n"
        "class Made:\n"
        "    column, person, weight, clients, refuse_copies = 'x', None, None, ['all'], lambda self: None\n"
        "    def batches(self):\n"
        "        for k in range(400):\n"
        "            yield Batch(np.arange(1e4) + k)\n"
        "shuffling.BATCH_ROWS = 1 << 17\n"
        "peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])  # not the parent's\n"
        "small = type('Small', (Made,), {'batches': lambda self: iter([Batch(np.arange(1e4))])})\n"
        "shuffling.shuffle(small(), Ledger.in_memory())\n"
        "before = peak()\n"
        "column = shuffling.shuffle(Made(), Ledger.in_memory(), memory_rows=1 << 16)['all']\n"
        "total = sum(len(block.values) for block in column.blocks(0, column.records))\n"
        "print(total, peak() - before)\n"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert int(told[0]) == 4_000_000
    assert int(told[1]) * 1024 < 4_000_000 * 8 / 2
