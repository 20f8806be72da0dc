"""Which folder is whose: an organizer's, or that of one organization in a federation without a coordinator."""

from pathlib import Path

from privatile.errors import InputError
from privatile.federation.setup.directory import Directory
from privatile.federation.setup.peer_folder import PEER_FILE, PeerFolder


def open_folder(path: Path) -> Directory:
    """A federation's folder as it is: a `PeerFolder` where the folder is one peer's."""
    return PeerFolder(path) if (path / PEER_FILE).is_file() else Directory(path)


def open_organizer(path: Path) -> Directory:
    """An organizer's folder; a peer's is refused."""
    if (path / PEER_FILE).is_file():
        raise InputError(
            f"{path} is the folder of one organization in a federation without a coordinator: nobody decides alone "
            "there. See `privatile peer --help`."
        )
    return Directory(path)


def open_peer(path: Path) -> PeerFolder:
    """A peer's folder; any other is refused."""
    if not (path / PEER_FILE).is_file():
        raise InputError(f"{path} is not a peer's folder: there is no {PEER_FILE}. `privatile peer enroll` makes one.")
    return PeerFolder(path)
