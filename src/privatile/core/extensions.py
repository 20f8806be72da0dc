"""Distributions of their own that hold a federation in another way, loaded where a study, a folder or a file names one.

A study names one by a key, an organization's folder by a file, a run's file by a table, an invitation by its first
field. `KNOWN` is all that this package knows of them, installed or not. The command that installs one is never read
from a study, a folder or a record: they were written by somebody else.
"""

import contextlib
import importlib.util
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast

from privatile.errors import MissingExtra

if TYPE_CHECKING:
    import click

    from privatile.core.decoding import Place
    from privatile.federation.setup.folder import Directory
    from privatile.federation.study import FederationStudy
    from privatile.records.verification import Checks
    from privatile.run.tables import FolderFacts

STUDY_FILE = "study.toml"
LARGEST_INVITATION = 1 << 25
"""Bytes of an invitation that is looked into: a study of 100,000 clients has 10 MB."""


class Known(NamedTuple):
    """What is known of an extension before it is loaded."""

    name: str
    package: str
    install: str
    command: str
    about: str
    """The command's line in `--help`."""
    options: Mapping[str, tuple[str, ...]]
    """Options that it adds to other commands."""
    key: str
    """In a study."""
    file: str
    """In an organization's folder."""
    table: str
    """In a run's file."""
    invitation: str
    """The first field of an invitation."""


KNOWN = (
    Known(
        "leaderless",
        "privatile_leaderless",
        "pip install ./apps/leaderless in a clone of privatile's repository",
        "peer",
        "A federation without a coordinator: one organization's part.",
        {"federation": ("--leaderless", "--tolerate"), "release": ("--sign",)},
        "tolerate",
        "peer.json",
        "peer",
        "privatile_peer_invitation",
    ),
)


class Extension(Protocol):
    """What an extension provides, under its name in the entry points `privatile.extensions`."""

    tables: tuple[str, ...]
    """Statements that create the tables of its run files."""
    lasting: Mapping[str, str]
    """Alarms that begin with an event of their name, each with the event that ends it."""
    events: Mapping[str, Literal["good", "note", "worry", "plain"]]
    """What happens in its runs, and how it is shown."""
    sign_of_life: tuple[str, str]
    """What the time beside a client is, in words and in two."""
    joins: str
    """The command that starts a client."""
    remarks: Mapping[str, str]
    """Comments in a study file, by key."""

    def broken_rules(self, study: "FederationStudy") -> "Iterator[tuple[Place, str]]":
        """Every rule that a study breaks."""

    def begin(self, path: Path, study: "FederationStudy") -> None:
        """Write a new study into a folder."""

    def facts(self, folder: Path) -> "FolderFacts":
        """About the folder of one organization."""

    def open_folder(self, path: Path) -> "Directory":
        """An organization's folder; any other is refused."""

    def refusal(self, path: Path) -> str:
        """Why a folder or an invitation is not for the commands of organizers and sites."""

    def verify(self, checks: "Checks", record: dict[str, Any], study: "FederationStudy", file: Path | None) -> None:
        """Check a release record of such a study, and with a run's file recompute it."""

    def how_to_sign(self, record: Path) -> str:
        """Why a site does not countersign such a record, and what it does."""

    def command(self) -> "click.Command":
        """Its own command."""

    def extend(self, name: str, command: "click.Command") -> "click.Command":
        """Another command, with its options."""


def installed() -> list[Known]:
    """Those that can be loaded, without loading them."""
    return [known for known in KNOWN if importlib.util.find_spec(known.package) is not None]


def find(known: Known) -> Extension:
    """Load an extension; where it is not installed, the error says how to install it."""
    from importlib.metadata import entry_points  # takes as long to import as all else that `--help` needs

    for point in entry_points(group="privatile.extensions", name=known.name):
        return cast(Extension, point.load())
    raise MissingExtra(f"this needs the extension {known.name}, which is not installed. Install it: {known.install}.")


def _first(holds: Callable[[Known], bool]) -> Extension | None:
    return next((find(known) for known in KNOWN if holds(known)), None)


def of_study(plain: object) -> Extension | None:
    """That of a study, given as plain values."""
    return _first(lambda known: isinstance(plain, Mapping) and plain.get(known.key) is not None)


def of_organization(folder: Path) -> Extension | None:
    """That of one organization's folder."""
    return _first(lambda known: (folder / known.file).is_file())


def of_path(path: Path) -> Extension | None:
    """That of a folder, an organization's or its study's, or of an invitation; a file that cannot be read has none."""
    from privatile.core.decoding import json_value

    plain: object = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if path.is_dir():
            plain = tomllib.loads((path / STUDY_FILE).read_text(encoding="utf-8"))
        else:
            with path.open("rb") as file:
                plain = json_value(file.read(LARGEST_INVITATION))
    if path.is_dir():
        return of_organization(path) or of_study(plain)
    return _first(lambda known: isinstance(plain, Mapping) and known.invitation in plain)


def of_file(query: Callable[[str], Any]) -> Extension | None:
    """That of a run's file, by its tables; `query` reads from the file."""
    tables = {name for (name,) in query("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return _first(lambda known: known.table in tables)
