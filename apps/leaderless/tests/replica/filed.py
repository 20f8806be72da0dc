"""Peers whose file is written as a running peer writes it, and what such a file says happened."""

from __future__ import annotations

from typing import Any

from privatile_leaderless.notes import PeerNotes
from privatile_leaderless.peer_file import LogEntry
from privatile_leaderless.standing import LogEffect
from replica.kit import Peer, StoredPeer, make_study

Row = tuple[str, str | None, int]
"""Kind, the peer it is about, round."""

ATTACKS = frozenset(
    {"unsigned", "refused", "other history", "astray", "two answers", "quarantined", "close vote", "closed without"}
)
"""Kinds that a run leaves in no file where all are honest and in time."""


class FiledPeer(StoredPeer):
    """What happens goes through the notes of a running peer, which thin it out, before it is written."""

    def restart(self) -> None:
        super().restart()
        self.notes = PeerNotes(self.study, self.replica, self.log.journal)

    def see(self, sender: str, payload: bytes) -> tuple[LogEffect, ...]:
        found = Peer.see(self, sender, payload)
        self.news += self.notes.happened(sender, found)
        self.unwritten.append(LogEntry(self.read + 1, sender, payload))
        return found

    def renew(self, epoch: int = 1) -> None:
        """The log is gone: read another."""
        self.save()
        self.log.begin_epoch(epoch)
        self.replica.new_epoch(epoch)
        self.read = 0


def filed(clients: int = 5, rounds: int = 4, tolerate: int = 1, **settings: Any) -> list[FiledPeer]:
    """Organizations with files."""
    study = make_study(clients, rounds, tolerate, **settings)
    return [FiledPeer(study, name) for name in study.clients]


def events(peer: FiledPeer) -> set[Row]:
    """The events of an attack in a peer's file."""
    peer.save()
    return {(one.kind, one.client, one.round or 0) for one in peer.log.journal.events() if one.kind in ATTACKS}


def evidence(peer: FiledPeer) -> dict[Row, set[bytes]]:
    """The entries that it keeps, by what they show."""
    peer.save()
    found: dict[Row, set[bytes]] = {}
    for kind, client, number, payload in peer.store.query("SELECT kind, client, round, payload FROM peer_evidence"):
        found.setdefault((kind, client, number), set()).add(payload)
    return found
