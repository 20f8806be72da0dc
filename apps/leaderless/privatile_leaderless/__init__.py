"""A federation without a coordinator: the extension that privatile loads (`privatile.core.extensions`).

Every organization runs the same state machine over one ordered log and computes the result itself. Modules are
imported when something is called: `privatile --help` loads none of them.

quorums     how many organizations sign, close and lie; the rules of a study
roster      enrolments of organizations, and the roster that all build from them
folder      the folder of one organization, and the configuration of its server of the cluster
entries     what organizations write into the log, signed
chain       one hash for everything that was asked, answered and decided; what a peer has signed, one value per slot for
            ever; why no two histories can both be committed
history     closed rounds and the state that follows from them; followed from a run's file
recovery    where a new log begins after a lost one
standing    where a replica stands: what there is to read and to sign, and what an entry has changed
replica     the state machine: entries in, rounds out; how a new log begins; following rounds of others
peer_file   a peer's own file
log         the log on the broker: publish until seen, read by a consumer
conduct     what a peer does where it stands: propose, answer, vote to close or to abort, sign the end
service     a folder becomes a running peer: connect, read the log, apply, act; recover, catch up
notes       events, metrics and alarms
record      the record of a run: made, signed by one organization after the other, checked
cli         the command `privatile peer`, and the options added to other commands
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import click

    from privatile.core.decoding import Place
    from privatile.federation.setup.folder import Directory
    from privatile.federation.study import FederationStudy
    from privatile.records.verification import Checks
    from privatile.run.state import Tone
    from privatile.run.tables import FolderFacts

__all__ = ["extension"]

PEER_FILE, PEER_PROCESS = "peer.json", "peer.pid"
"""Marks the folder of one organization; locked by whoever runs it."""

TABLES = (
    "CREATE TABLE IF NOT EXISTS peer (roster TEXT NOT NULL, epoch INTEGER NOT NULL, base INTEGER NOT NULL,"
    " position INTEGER NOT NULL, last TEXT NOT NULL, restored INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS peer_entries (place INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, sender TEXT NOT NULL,"
    " payload BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS peer_slots (slot INTEGER PRIMARY KEY, chain TEXT NOT NULL, asks TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS peer_chain (round INTEGER PRIMARY KEY, chain TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS peer_notes (round INTEGER NOT NULL, place INTEGER NOT NULL, sender TEXT NOT NULL,"
    " payload TEXT NOT NULL, PRIMARY KEY (round, place)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS peer_votes (round INTEGER NOT NULL, place INTEGER NOT NULL, sender TEXT NOT NULL,"
    " payload TEXT NOT NULL, PRIMARY KEY (round, place)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS peer_proof (client TEXT PRIMARY KEY, payload TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS peer_evidence (round INTEGER NOT NULL, client TEXT NOT NULL, kind TEXT NOT NULL,"
    " payload BLOB NOT NULL, PRIMARY KEY (round, client, kind, payload)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS peer_unsigned (round INTEGER NOT NULL, client TEXT NOT NULL, times INTEGER NOT NULL,"
    " PRIMARY KEY (round, client)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS peer_abort (client TEXT PRIMARY KEY)",
)
"""What a peer keeps in the run's file besides (`peer_file`)."""


EVENTS: "dict[str, Tone]" = {
    **dict.fromkeys(("ended", "log back", "begun", "vote"), "good"),
    **dict.fromkeys(("closed without", "unsigned", "restored file"), "note"),
    **dict.fromkeys(("log lost", "refused", "other history", "two answers", "astray", "behind"), "worry"),
}
"""What happens in a run of peers besides what happens in every federation (`privatile.run.state.EVENTS`)."""


class _Leaderless:
    """What privatile asks of this extension (`privatile.core.extensions.Extension`)."""

    tables: tuple[str, ...] = TABLES
    lasting: Mapping[str, str] = {"log lost": "log back"}
    events: "Mapping[str, Tone]" = EVENTS
    sign_of_life = ("last entry in the log", "last entry")
    joins = "privatile peer run"
    remarks: Mapping[str, str] = {"tolerate": "  # organizations that may lie; there is no coordinator"}

    def broken_rules(self, study: "FederationStudy") -> "Iterator[tuple[Place, str]]":
        from privatile_leaderless.quorums import broken_rules

        return broken_rules(study)

    def begin(self, path: Path, study: "FederationStudy") -> None:
        from privatile_leaderless.cli import write_study

        write_study(path, study)

    def facts(self, folder: Path) -> "FolderFacts":
        from privatile.core.decoding import json_value
        from privatile.run.tables import FolderFacts

        try:
            client = str(json_value((folder / PEER_FILE).read_text(encoding="utf-8"))["client"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            client = None
        return FolderFacts(folder / PEER_PROCESS, "this organization", f"privatile peer run {folder}", client)

    def open_folder(self, path: Path) -> "Directory":
        from privatile_leaderless.folder import open_peer

        return open_peer(path)

    def refusal(self, path: Path) -> str:
        text = (
            f"{path}: this study has no coordinator, so nobody serves or joins it, and nobody decides alone. Each "
            "organization enrolls with `privatile peer enroll INVITATION DIR --as-client NAME`, and takes part with "
            "`privatile peer run DIR`. See `privatile peer --help`."
        )
        if (path / PEER_FILE).is_file():
            return text
        return f"{text} Give your organization's folder, the one that `privatile peer enroll` made."

    def verify(self, checks: "Checks", record: dict[str, Any], study: "FederationStudy", file: Path | None) -> None:
        from privatile_leaderless.record import verify

        verify(checks, record, study, file)

    def how_to_sign(self, record: Path) -> str:
        return (
            "this record has no coordinator: an organization signs it with `privatile release DIR --sign "
            f"{record}`, where DIR is its own folder."
        )

    def command(self) -> "click.Command":
        from privatile_leaderless.cli import peer

        return peer

    def extend(self, name: str, command: "click.Command") -> "click.Command":
        from privatile_leaderless.cli import extend

        return extend(name, command)


extension = _Leaderless()
