"""A ledger on a network file system is refused; on a folder shared with a host it does without the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from privatile.client.ledger.ledger import Ledger
from privatile.core import file_systems
from privatile.errors import LedgerError


def mount(monkeypatch: pytest.MonkeyPatch, folder: Path, kind: str) -> None:
    """A table of mounts in which `folder`, or the folder around it, is of this kind."""
    table = folder.parent / "mounts"
    point = str(folder).replace(" ", "\\040")
    table.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/home {point} {kind} rw,vers=4.2 0 0\nshort line\n")
    monkeypatch.setattr(file_systems, "MOUNTS", table)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "ceph"])
def test_a_ledger_on_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    folder = tmp_path / "home of ada"
    folder.mkdir()
    with Ledger.open(folder / "there.db") as ledger, ledger.transaction():
        pass
    mount(monkeypatch, folder, kind)
    for path in (folder / "there.db", folder / "new.db", folder / "sub" / "new.db"):
        with pytest.raises(LedgerError, match=rf"network file system \({kind}\).*disk of this machine"):
            Ledger.open(path)
    Ledger.open(folder / "there.db", read_only=True).close()
    # Negative control: a name that only begins alike lies elsewhere.
    Ledger.open(tmp_path / "home of ada 2" / "new.db").close()


@pytest.mark.parametrize(
    ("kind", "journal"), [("9p", "delete"), ("virtiofs", "delete"), ("ext4", "wal"), ("xfs", "wal")]
)
def test_a_shared_folder_does_without_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, journal: str
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    mount(monkeypatch, folder, kind)
    with Ledger.open(folder / "ledger.db") as ledger:
        with ledger.transaction():
            pass
        assert ledger.execute("PRAGMA journal_mode").fetchone() == (journal,)
        assert ledger.execute("PRAGMA synchronous").fetchone()[0] >= 2


def test_where_no_mounts_can_be_read_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_systems, "MOUNTS", tmp_path / "none")
    assert file_systems.journal_for(tmp_path / "ledger.db") == "WAL"


@pytest.mark.parametrize(("kind", "kept"), [("overlay", False), ("tmpfs", False), ("ext4", True), ("xfs", True)])
def test_in_the_container_a_ledger_lies_on_a_mounted_volume_or_nothing_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, kept: bool
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    mount(monkeypatch, folder, kind)
    monkeypatch.setenv("PRIVATILE_REQUIRE_VOLUME", "1")
    if kept:
        Ledger.open(folder / "ledger.db").close()
    else:
        with pytest.raises(LedgerError, match=r"gone with it.*Mount a volume there"):
            Ledger.open(folder / "ledger.db")
    # Beside the volume, in the container's own layer, whatever its kind.
    with pytest.raises(LedgerError, match=r"lie in the container itself \(/, ext4\)"):
        Ledger.open(tmp_path / "elsewhere" / "ledger.db")
    # Negative control: outside the image nothing is refused.
    monkeypatch.delenv("PRIVATILE_REQUIRE_VOLUME")
    Ledger.open(tmp_path / "elsewhere" / "ledger.db").close()
