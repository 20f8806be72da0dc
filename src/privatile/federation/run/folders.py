"""Which folder is whose: an organizer's, or that of one organization in a federation without a coordinator."""

from pathlib import Path

from privatile.errors import InputError
from privatile.federation.setup.directory import Directory
from privatile.federation.setup.peer_folder import PeerFolder
from privatile.federation.setup.peer_roster import check_coordinated
from privatile.server.folder import PEER_FILE, for_all_peers, is_for_all_peers


def open_folder(path: Path) -> Directory:
    """A federation's folder as it is: a `PeerFolder` where it is one peer's; a study for all peers is refused."""
    if (path / PEER_FILE).is_file():
        return PeerFolder.open(path)
    if is_for_all_peers(path):
        raise InputError(for_all_peers(path))
    return Directory(path)


def open_organizer(path: Path) -> Directory:
    """An organizer's folder; a peer's is refused."""
    if (path / PEER_FILE).is_file():
        raise InputError(
            f"{path} is the folder of one organization in a federation without a coordinator: nobody decides alone "
            "there. See `privatile peer --help`."
        )
    check_coordinated(path)
    return Directory(path)


def open_peer(path: Path) -> PeerFolder:
    """A peer's folder; any other is refused."""
    if not (path / PEER_FILE).is_file():
        raise InputError(f"{path} is not a peer's folder: there is no {PEER_FILE}. `privatile peer enroll` makes one.")
    return PeerFolder.open(path)
