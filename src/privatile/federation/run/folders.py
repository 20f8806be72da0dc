"""Which folder is whose: an organizer's, or that of an extension's organization."""

from pathlib import Path

from privatile.core.extensions import of_path
from privatile.federation.setup.directory import Directory, check_coordinated


def open_folder(path: Path) -> Directory:
    """A federation's folder as it is."""
    extension = of_path(path)
    return Directory(path) if extension is None else extension.open_folder(path)


def open_organizer(path: Path) -> Directory:
    """An organizer's folder; any other is refused."""
    check_coordinated(path)
    return Directory(path)
