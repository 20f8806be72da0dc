"""The ledger's file: durable, private, and refused with a clear word when it cannot be trusted."""

import multiprocessing
import os
import re
import shutil
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from privatile.client.ledger import ledger as ledger_file
from privatile.client.ledger.datasets import statement
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import Coins, OperatingSystemCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Position, Question
from privatile.errors import Equivocation, LedgerBusy, LedgerError


def site(ledger: Ledger, run: str = "run", epsilon: float = 1.0, coins: Coins | None = None) -> Responder:
    column = shuffle(open_source(np.arange(100.0)), ledger)["all"]
    return Responder(run, column, RandomizedResponse.from_epsilon(epsilon), ledger, coins or OperatingSystemCoins())


def ask(number: int, length: int = 5, run: str = "run") -> Question:
    return Question(run=run, round=number, level=0.5, query=10.0, length=length)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with ten answers."""
    where = tmp_path / "ledgers" / "ledger.db"
    with Ledger.open(where) as ledger:
        responder = site(ledger)
        for number in range(1, 11):
            responder.answer(ask(number))
    return where


def test_nothing_is_written_before_the_first_answer(tmp_path: Path) -> None:
    where = tmp_path / "ledger.db"
    with Ledger.open(where) as ledger:
        responder = site(ledger)
        assert responder.available() == 100
        responder.require(100)
        assert list(tmp_path.iterdir()) == []
        responder.answer(ask(1))
        assert where.exists()


def test_files_are_private(path: Path) -> None:
    with Ledger.open(path) as ledger:
        site(ledger).answer(ask(11))
        modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        names = {file.name for file in path.parent.iterdir()}
        assert names <= {"ledger.db", "ledger.db-wal", "ledger.db-shm"}


def test_loose_permissions_are_tightened(path: Path) -> None:
    path.chmod(0o644)
    Ledger.open(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_answer_is_durable_before_it_is_returned(path: Path) -> None:
    """What another connection sees right after the answer, and the pragmas that put it on the disk."""
    with Ledger.open(path) as ledger:
        ones = site(ledger).answer(ask(11)).ones
        other = sqlite3.connect(path)
        assert other.execute("SELECT ones FROM answers WHERE round = 11").fetchone() == (ones,)
        other.close()
        assert ledger.execute("PRAGMA synchronous").fetchone() == (2,)
        assert ledger.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_failed_commit_releases_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(path) as ledger:
        responder, really = site(ledger), ledger.execute

        def failing(sql: str, values: object = ()) -> sqlite3.Cursor:
            if sql == "COMMIT":
                raise LedgerError("the disk is full")
            return really(sql, values)  # type: ignore[arg-type]

        monkeypatch.setattr(ledger, "execute", failing)
        with pytest.raises(LedgerError, match="full"):
            responder.answer(ask(11))
        monkeypatch.undo()
        assert ledger.position.sequence == 10
        assert responder.available() == 50


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("attempt to write a readonly database", "cannot be written. .*make the file writable"),
        ("database or disk is full", "the disk is full"),
        ("unable to open database file", "cannot be opened. Check that its folder exists"),
        ("database disk image is malformed", "is damaged or is not a ledger"),
        ("no such function: f", r"failed \(OperationalError\)"),
        ("database is locked", "in use by another process"),
    ],
)
def test_what_sqlite_says_is_explained(said: str, told: str) -> None:
    error = ledger_file.explain(Path("l.db"), sqlite3.OperationalError(said))
    assert re.search(told, str(error))
    assert isinstance(error, LedgerBusy) == (said == "database is locked")


def test_a_full_disk_is_named(path: Path) -> None:
    with Ledger.open(path) as ledger:
        responder = site(ledger, LONG_NAME)
        (pages,) = ledger.execute("PRAGMA page_count").fetchone()
        ledger.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(LedgerError, match="disk is full"):
            answer_until_full(responder)
        ledger.verify()


LONG_NAME = "r" * 190
"""Its answers fill pages."""


def answer_until_full(responder: Responder) -> None:
    for number in range(11, 61):
        responder.answer(Question(run=LONG_NAME, round=number, level=0.5, query=1 / 3, length=1))


def test_a_path_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Ledger.open(tmp_path / "file" / "ledger.db") as ledger:
        responder = site(ledger)
        for _ in range(2):  # a repeated question is not released either
            with pytest.raises(LedgerError, match="cannot be made"):
                responder.answer(ask(1))


def test_two_that_begin_at_once(tmp_path: Path) -> None:
    one, two = Ledger.open(tmp_path / "l.db"), Ledger.open(tmp_path / "l.db")
    site(one).answer(ask(1))
    with pytest.raises(LedgerError, match="made by another process"):
        site(two).answer(ask(1))
    assert Ledger.open(tmp_path / "l.db").position == one.position


class Killed(BaseException):
    """The process dies here."""


def test_a_kill_between_key_and_ledger_leaves_the_key_and_no_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is safe first: a ledger whose key is lost would answer nobody. The next start makes both anew."""
    where, keys = tmp_path / "state" / "ledger.db", tmp_path / "keys"
    ledger, link = Ledger.open(where, keys=keys), os.link

    def killed(draft: Path, path: Path) -> None:
        if path == where:
            raise Killed
        link(draft, path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", killed)
        with pytest.raises(Killed):
            site(ledger).answer(ask(1))
    assert not where.exists()
    assert [file.read_bytes() for file in keys.glob("*.key")] == [ledger.secret.secret]
    with Ledger.open(where, keys=keys) as again:
        site(again).answer(ask(1))
        assert again.secret.secret != ledger.secret.secret
    with Ledger.open(where, keys=keys) as again:
        assert again.verify() == 1
    assert len(list(keys.glob("*.key"))) == 2


# -- files that are not a ledger, or no longer one ---------------------------------------------------------------


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
def test_a_truncated_ledger(path: Path, keep: float) -> None:
    with path.open("r+b") as stream:
        stream.truncate(int(path.stat().st_size * keep))
    with pytest.raises(LedgerError, match="damaged"):
        Ledger.open(path)


def test_an_empty_file_is_not_a_new_ledger(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(LedgerError, match="empty: it was truncated"):
        Ledger.open(path)


def test_a_file_of_something_else(path: Path) -> None:
    path.write_bytes(b"salary\n" * 1000)
    with pytest.raises(LedgerError, match="damaged or is not a ledger"):
        Ledger.open(path)


def test_overwritten_pages(path: Path) -> None:
    """Each page in turn is overwritten with noise: no such ledger opens and verifies."""
    whole = path.read_bytes()
    noise = np.random.default_rng(4).bytes(4096)
    for start in range(0, len(whole), 4096):
        path.write_bytes(whole[:start] + noise + whole[start + 4096 :])
        with pytest.raises(LedgerError):
            Ledger.open(path)


def test_a_database_of_somebody_else(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE t (x)")
    other.commit()
    other.close()
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger.open(tmp_path / "other.db")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("PRAGMA user_version = 99", "a newer privatile"),
        ("UPDATE meta SET value = 2 WHERE key = 'order'", "a newer privatile"),  # another order of records
        ("PRAGMA user_version = 5", r"they answer again\. Go on with .*commit d3633e0a.*--ledger NEW"),
    ],
)
def test_a_ledger_of_another_version_is_refused_and_stays_as_it_is(path: Path, sql: str, said: str) -> None:
    with sqlite3.connect(path) as direct:
        direct.execute(sql)
    direct.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=said):
        Ledger.open(path)
    assert path.read_bytes() == before


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="not a file"):
        Ledger.open(tmp_path)


def test_no_ledger_where_one_must_be(tmp_path: Path) -> None:
    for create, read_only in ((False, False), (True, True)):
        with pytest.raises(LedgerError, match="there is no ledger"):
            Ledger.open(tmp_path / "none.db", create=create, read_only=read_only)


def test_reading_only(path: Path) -> None:
    before = path.read_bytes()
    with Ledger.open(path, read_only=True) as ledger:
        assert statement(ledger).datasets[0].reports == 50
        with pytest.raises(LedgerError, match="cannot be written"):
            site(ledger).answer(ask(11))
    assert path.read_bytes() == before


def _hold(path: Path, ready: "multiprocessing.synchronize.Event", end: "multiprocessing.synchronize.Event") -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    ready.set()
    end.wait(60)


def test_a_ledger_held_by_another_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.1)
    context = multiprocessing.get_context("spawn")
    ready, end = context.Event(), context.Event()
    open_before = Ledger.open(path)
    responder = site(open_before)
    holder = context.Process(target=_hold, args=(path, ready, end))
    holder.start()
    try:
        assert ready.wait(60)
        with pytest.raises(LedgerError, match="in use by another process"):
            Ledger.open(path)
        with pytest.raises(LedgerError, match="in use by another process"):
            responder.answer(ask(11))
    finally:
        end.set()
        holder.join()
    assert responder.available() == 50
    responder.answer(ask(11))


def test_two_processes_may_share_a_ledger(path: Path) -> None:
    """Both read the cursor under the write lock: no record answers twice, a round has one count."""
    one, two = Ledger.open(path), Ledger.open(path)
    first, second = site(one), site(two)
    assert first.answer(ask(11)) == second.answer(ask(11))
    second.answer(ask(12))
    first.answer(ask(13))
    spans = one.execute("SELECT start, stop FROM answers ORDER BY sequence").fetchall()
    assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]


def test_two_threads_on_one_ledger_answer_one_after_the_other(path: Path) -> None:
    """The second one begins while the first one draws its coins, and waits for its commit."""
    drawing, over = threading.Event(), threading.Event()

    class SlowCoins:
        def draw(self, count: int) -> NDArray[np.uint64]:
            drawing.set()
            over.wait(0.3)  # so long the other one has to come between
            return OperatingSystemCoins().draw(count)

    with Ledger.open(path) as ledger, ThreadPoolExecutor(2) as threads:
        one, two = site(ledger, "one", coins=SlowCoins()), site(ledger, "two")
        first = threads.submit(one.answer, ask(1, run="one"))
        assert drawing.wait(10)
        second = threads.submit(two.answer, ask(1, run="two"))
        assert second.exception() is None
        over.set()
        assert first.exception() is None
        spans = ledger.execute("SELECT run, start, stop FROM answers ORDER BY start DESC LIMIT 2").fetchall()
        assert spans == [("two", 55, 60), ("one", 50, 55)]


def test_the_table_itself_holds_one_answer_for_each_round_and_level(path: Path) -> None:
    """What `replay` would have to miss first."""
    with Ledger.open(path) as ledger:
        with pytest.raises(LedgerError), ledger.transaction():
            ledger.append("run", "all", 11, ask(10), (50, 55), 5, 3)
        assert ledger.position.sequence == 10
        with ledger.transaction():  # the control
            ledger.append("run", "all", 11, replace(ask(10), level=0.9), (50, 55), 5, 3)
        assert ledger.position.sequence == 11


# -- the chain ---------------------------------------------------------------------------------------------------


def test_the_chain_notices_an_altered_entry(path: Path) -> None:
    with Ledger.open(path) as ledger:
        assert ledger.verify() == 10
    with sqlite3.connect(path) as direct:
        direct.execute("UPDATE answers SET ones = (ones + 1) % 6 WHERE sequence = 4")
    direct.close()
    with Ledger.open(path, read_only=True) as ledger, pytest.raises(LedgerError, match="altered at entry 4"):
        ledger.verify()
    with pytest.raises(LedgerError, match="altered at entry 4"):
        Ledger.open(path)


def test_the_chain_notices_a_removed_entry(path: Path) -> None:
    with sqlite3.connect(path) as direct:
        direct.execute("DELETE FROM answers WHERE sequence = 7")
    direct.close()
    with Ledger.open(path, read_only=True) as ledger, pytest.raises(LedgerError, match="altered at entry 7"):
        ledger.verify()
    with pytest.raises(LedgerError, match="altered at entry 7"):
        Ledger.open(path)


def test_sequence_and_head_come_with_an_answer(path: Path) -> None:
    with Ledger.open(path) as ledger:
        outcome = site(ledger).answer(ask(11))
        assert outcome.position == ledger.position
        assert outcome.position.sequence == 11
        assert site(ledger).answer(ask(11)) == outcome  # a replay tells where it stood then
        site(ledger).account.confirm(outcome.position)
        site(ledger).account.confirm(Position(0, bytes(16)))


def test_a_restored_backup_is_noticed_and_mended(path: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup.db"
    shutil.copy(path, backup)
    with Ledger.open(path) as ledger:
        responder = site(ledger)
        for number in range(11, 16):
            responder.answer(ask(number))
        seen = ledger.position
    with pytest.raises(LedgerError, match="has 10 entries, and had 15 before"):
        Ledger.open(backup)
    restored = Ledger.open(backup, restored=True)
    with pytest.raises(LedgerError, match="has 10 entries of run 'run', but 15 were seen"):
        site(restored).account.confirm(seen)
    responder = site(restored)
    responder.mark_spent(25, through_round=15)
    assert responder.available() == 25
    with pytest.raises(Equivocation, match="before this ledger was restored"):
        responder.answer(ask(13))
    responder.answer(ask(16))
    assert restored.execute("SELECT start FROM answers WHERE round = 16").fetchone() == (75,)
    assert statement(restored).datasets[0].reports == 80


def test_two_copies_in_use_are_noticed(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "clone.db")
    one, two = Ledger.open(path), Ledger.open(tmp_path / "clone.db")
    seen = site(one).answer(ask(11)).position
    site(two).answer(ask(11, length=6))
    with pytest.raises(LedgerError, match="another past"):
        site(two).account.confirm(seen)


def test_the_statement(path: Path) -> None:
    with Ledger.open(path) as ledger:
        site(ledger, run="second", epsilon=0.5).answer(ask(1, length=7, run="second"))
        told = statement(ledger)
        (line,) = told.datasets
        assert (line.client, line.column, line.records, line.reports, line.unasked) == ("all", "value", 100, 57, 43)
        assert (line.runs, told.entries, told.people) == (2, 11, 0)
        assert line.epsilon == pytest.approx(1.0)
