"""Which file systems a ledger may lie on.

The write-ahead log needs memory that all processes share and locks that hold. A network file system gives neither:
two machines could both answer with the same records, and a cut connection could lose an answer that was given. There a
ledger is refused. A folder that a virtual machine or a container shares with its host gives the locks, but not always
the memory: there SQLite's older journal is used, which is slower and needs locks only.
"""

import os
import re
from pathlib import Path
from typing import Literal

from privatile.errors import LedgerError

MOUNTS = Path("/proc/self/mounts")
"""Where Linux says what is mounted; elsewhere nothing is known and nothing is refused."""

NETWORK = {
    *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "ncpfs", "coda", "davfs"),
    *("ceph", "lustre", "gpfs", "beegfs", "glusterfs", "orangefs", "pvfs2"),
    *("fuse.sshfs", "fuse.smbnetfs", "fuse.gvfsd-fuse", "fuse.curlftpfs", "fuse.davfs2", "fuse.glusterfs"),
    *("fuse.ceph", "fuse.ceph-fuse", "fuse.s3fs", "fuse.mount-s3", "fuse.gcsfuse", "fuse.blobfuse", "fuse.blobfuse2"),
    *("fuse.rclone", "fuse.juicefs"),
}
SHARED = {"9p", "virtiofs", "vboxsf", "drvfs", "prl_fs", "fuse.vmhgfs-fuse", "fuse.grpcfuse", "fuse.osxfs"}

FLEETING = {"overlay", "aufs", "tmpfs", "ramfs"}
"""Kinds that a container, or a start of the machine, takes with it."""

REQUIRE_VOLUME = "PRIVATILE_REQUIRE_VOLUME"
"""Set in the container image: ledgers and runs must lie on a mounted volume."""

Journal = Literal["WAL", "DELETE"]


def mount_of(path: Path) -> tuple[str, str]:
    """Where the file system of a file is mounted, and its kind; both empty where that cannot be told."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return "", ""
    where = os.path.realpath(path)
    mounted, kind, longest = "", "", -1
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        # Spaces and the like are written as three octal digits.
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[1])
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:  # of two mounts on one point the later one is seen
            mounted, kind, longest = point, fields[2], len(point)
    return mounted, kind


def require_volume(path: Path, what: str) -> None:
    """In the container image: refuse what would be gone with its container.

    A ledger that is lost has forgotten who has answered. Where the variable is not set nothing is refused.
    """
    if not os.environ.get(REQUIRE_VOLUME):
        return
    mounted, kind = mount_of(path)
    if mounted in ("", "/") or kind in FLEETING:
        where = f"{mounted or '/'}, {kind or 'unknown'}"
        raise LedgerError(
            f"{what} {path} would lie in the container itself ({where}) and be gone with it: who has answered would be "
            f"forgotten, and records would answer again. Mount a volume there, as in --volume NAME:{path.parent}; a "
            "bind mount of a folder of this machine will do."
        )


def journal_for(path: Path) -> Journal:
    """How SQLite keeps a ledger at `path`; refused on a network file system, and in a container's own layer."""
    require_volume(path, "the ledger")
    _, kind = mount_of(path)
    if kind in NETWORK:
        raise LedgerError(
            f"the ledger {path} would lie on a network file system ({kind}), where neither locks nor the log of SQLite "
            "are safe: records could answer twice. Put it on a disk of this machine: name another path, or set "
            "XDG_STATE_HOME to a folder there. To move a ledger, stop everything that uses it and copy ledger.db and "
            "ledger.db-wal together."
        )
    return "DELETE" if kind in SHARED else "WAL"
