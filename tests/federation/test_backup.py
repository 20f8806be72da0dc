"""Backups are whole while a run goes on, and what is put back works: at the organizer's, and at a site's."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.client.ledger.ledger import Ledger
from privatile.core.private_files import key_folder
from privatile.errors import InputError, LedgerError, StoreError
from privatile.federation.operations.commands import back_up, copy_database
from privatile.federation.setup.check import check
from privatile.federation.setup.folder import Directory
from privatile.federation.setup.invitation import read_invitation
from privatile.federation.site.folder import find_site
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from tests.federation.kit import PATIENCE, Federation, make_study, tasks, until
from tests.marks import forget_marks

ROUNDS = 2000
"""Four backups last as long as about ten of them: on a slow machine too the run is not over before. It is stopped."""


@pytest.mark.network
def test_backups_of_a_running_federation_are_whole_and_can_be_put_back(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(2, rounds=ROUNDS, length=3, deadline=60.0))
    folder, site = federation.directory.path, federation.sites["site1"].path

    async def scene() -> None:
        run = federation.open_run()
        async with federation.running_broker():
            first, other = federation.coordinator(run), federation.client("site1")
            async with tasks(first.run(), other.run(), federation.client("site0").run()) as running:
                await until(lambda: run.coordinator.done >= 5)
                # In threads: the run goes on meanwhile.
                copies = [await asyncio.to_thread(back_up, folder, tmp_path / f"study{k}") for k in range(3)]
                ledger = await asyncio.to_thread(back_up, site, tmp_path / "site")
                assert run.coordinator.done < ROUNDS, "the run was over before the backup: make it longer"
                backed_up = run.coordinator.done  # no backup holds more
                await until(lambda: run.coordinator.done > backed_up + 5)
                other.stop()
                first.stop()
                assert await asyncio.wait_for(asyncio.gather(*running[:2]), PATIENCE) == ["stopped", "stopped"]
            run.store.close()
            assert all("rounds done" in one.state for one in copies)
            assert "entries in the ledger" in ledger.state
            with RunStore.open(tmp_path / "study2" / "run.db", read_only=True) as store:
                done = Coordinator(store).done  # replayed: every round of it is as it was written
            lost = run.coordinator.done
            assert 5 <= done <= backed_up < lost
            # The organizer's disk is lost: an older run continues, and the clients' ledgers give the same counts again.
            for file in folder.glob("run.db*"):
                file.unlink()
            shutil.copy(tmp_path / "study2" / "run.db", folder)
            again = federation.open_run()
            coordinator = federation.coordinator(again)
            async with tasks(coordinator.run(), federation.client("site0").run()):
                other = federation.client("site1")
                async with tasks(other.run()):
                    await until(lambda: again.coordinator.done > lost + 5)
                # The site's disk is lost: it says so, or is refused.
                for file in site.glob("ledger.db*"):
                    file.unlink()
                shutil.copy(tmp_path / "site" / "ledger.db", site)
                forget_marks()  # as if they were lost too: the copy says itself what it is
                with pytest.raises(LedgerError, match=r"copy from a backup.*`privatile join --restored`"):
                    federation.client("site1")
                with closing(sqlite3.connect(site / "ledger.db")) as book:  # copied by hand: the coordinator can tell
                    book.execute("DELETE FROM meta WHERE key = 'copy'")
                    book.commit()
                with pytest.raises(LedgerError, match=r"`privatile join … --restored`"):
                    await asyncio.wait_for(federation.client("site1").run(), PATIENCE)
                before = again.coordinator.done
                async with tasks(federation.client("site1", restored=True).run()):
                    await until(lambda: again.coordinator.done > before + 2)

    asyncio.run(scene())
    with federation.ledger("site0") as ledger:
        ledger.verify()


def test_keys_are_left_out_unless_asked_for_and_nothing_is_overwritten(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(1), port=4222)
    federation.open_run().store.close()
    folder, site = federation.directory.path, federation.sites["site0"].path
    with Ledger.open(site / "ledger.db") as ledger, ledger.transaction():
        pass
    fingerprint = Ledger.open(site / "ledger.db", read_only=True).meta("key")
    assert fingerprint is not None
    key = key_folder() / f"ledger-{fingerprint.hex()}.key"
    secrets = [path.read_bytes() for path in (*federation.directory.secrets, *site.glob("*.key"), key)]

    def copied(of: Path, name: str, *options: str) -> tuple[int, int]:
        """How many files there are, and how many secrets are in them."""
        done = CliRunner().invoke(main, ["federation", "backup", str(of), str(tmp_path / name), *options])
        assert done.exit_code == 0, done.output
        files = [path for path in (tmp_path / name).rglob("*") if path.is_file()]
        assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in files if path.name != "backup.json")
        manifest = json.loads((tmp_path / name / "backup.json").read_text())
        assert manifest["files"] == {
            str(path.relative_to(tmp_path / name)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
            if path.name != "backup.json"
        }
        contents = [path.read_bytes() for path in files]
        return len(files), sum(any(secret in content for content in contents) for secret in secrets)

    assert copied(folder, "one") == (9 - 1, 0)
    assert copied(folder, "two", "--keys") == (9 - 1 + 3, 3)
    assert copied(site, "three")[1] == 0
    assert copied(site, "four", "--keys")[1] == 2
    assert not list((tmp_path / "four").rglob("*.mark"))
    with pytest.raises(InputError, match="not empty"):
        back_up(folder, tmp_path / "one")
    with pytest.raises(InputError, match="neither a federation's folder"):
        back_up(tmp_path, tmp_path / "five")


def test_a_backup_without_its_keys_says_which_files_to_put_back(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(1), port=4222)
    study, site = federation.directory.path, federation.sites["site0"]
    back_up(study, tmp_path / "again")
    shutil.copytree(study / "keys", tmp_path / "again" / "keys")
    found = check(Directory(tmp_path / "again"))  # the broker's files are no part of a backup: `serve` writes them
    assert found.errors == []
    assert any("nats.conf is not there: `privatile serve` writes it" in text for text in found.remarks)
    invitation = federation.directory.invitation_file("site0")
    with Ledger.open(site.path / "ledger.db") as ledger, ledger.transaction():
        pass
    back_up(site.path, tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"site0\.key: the key of this site is missing.*Put the file back.*--new-key"):
        find_site(tmp_path / "elsewhere", read_invitation(invitation), invitation)
    with pytest.raises(InputError, match=r"no key yet\. Make it here with: privatile enroll"):
        find_site(tmp_path / "never", read_invitation(invitation), invitation)


def test_a_backup_that_fails_halfway_is_not_in_the_way_of_the_next(tmp_path: Path) -> None:
    federation = Federation(tmp_path, make_study(1), port=4222)
    federation.open_run().store.close()
    folder, to = federation.directory.path, tmp_path / "backup"
    whole = (folder / "run.db").read_bytes()
    (folder / "run.db").write_bytes(whole[:100] + bytes(len(whole) - 100))  # copied after the small files
    with pytest.raises(StoreError, match=r"run\.db"):
        back_up(folder, to, keys=True)
    assert not any(to.iterdir())
    (folder / "run.db").write_bytes(whole)
    made = back_up(folder, to, keys=True)
    assert {str(path.relative_to(to)) for path in to.rglob("*") if path.is_file()} == {*made.files, "backup.json"}


def test_a_damaged_file_gives_no_copy(tmp_path: Path) -> None:
    """SQLite copies page by page, whatever is in them. Two pages changed places: rows are found or not, as it comes."""
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE TABLE answers (sequence INTEGER PRIMARY KEY, head BLOB)")
        file.executemany("INSERT INTO answers VALUES (?, zeroblob(100))", [(k,) for k in range(1000)])
    assert copy_database(path, copy) == "copy.db"
    copy.unlink()
    content = path.read_bytes()
    pages = [content[start : start + 4096] for start in range(0, len(content), 4096)]
    pages[5:7] = pages[6], pages[5]
    path.write_bytes(b"".join(pages))
    with pytest.raises(StoreError, match=r"is damaged: the copy .* does not hold together"):
        copy_database(path, copy)
    assert not copy.exists()
