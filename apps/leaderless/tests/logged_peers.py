"""Organizations without a coordinator and without a network: real folders, sites and files; the log is a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privatile.client.sources.databases import open_source
from privatile.federation.operations.join import JoinOptions, prepare_responder
from privatile.federation.site.folder import Site, enroll
from privatile.federation.study import ClientAgreement, FederationStudy
from privatile_leaderless import quorums
from privatile_leaderless.folder import PeerFolder, ServerPlace, make_peer_folder
from privatile_leaderless.peer_file import LogEntry, PeerLog
from privatile_leaderless.replica import Replica
from privatile_leaderless.roster import PeerInvitation
from tests.federation.kit import make_study

NAMES = ("north", "south", "west")


def leaderless_study(names: Sequence[str] = NAMES, rounds: int = 6, **settings: Any) -> FederationStudy:
    clients = {name: ClientAgreement(2.0, 1 / len(names), rounds * 20) for name in names}
    return make_study(clients, rounds, **{"extra": {"tolerate": 0}, "patience": 2, **settings})


class LoggedPeer:
    """One organization: its folder, its site, what it has read."""

    def __init__(self, folder: Path, study: FederationStudy, name: str, values: Any, *, server: bool) -> None:
        self.name, self.study = name, study
        invited = PeerInvitation(name, study)
        self.site: Site = enroll(invited, folder / f"site-{name}", max_epsilon=study.clients[name].epsilon)
        place = ServerPlace("localhost" if server else "", 4222, 6222, "127.0.0.1")
        self.folder: PeerFolder = make_peer_folder(folder / name, study, name, self.site.path, self.site.key(), place)
        self.key = self.site.key()
        self.values = values
        self.log: PeerLog
        self.replica: Replica

    def begin(self, *, restored: bool = False) -> None:
        """Open ledger and file, as the service does when it starts; `restored`: the site says that of its ledger."""
        roster = self.folder.peers()
        invited = PeerInvitation(self.name, self.study, roster)
        self.limits, self.responder = prepare_responder(
            invited, self.site, open_source(self.values, value=None), JoinOptions("value", restored=restored)
        )
        self.log = PeerLog.open(self.folder.store_file, self.study, roster.digest, durable=False)
        self.replica = self.log.replica(roster.keys)

    def answer(self) -> bytes:
        """Its answer to the open round."""
        assert self.replica.asked is not None
        questions = self.replica.asked.questions(self.name)
        assert self.log.claim(self.replica.claims, self.replica.asks)
        answer = self.responder.message(self.study.digest, questions)
        assert answer is not None
        return self.replica.answer(answer).pack(self.key)


class Peers:
    """All organizations of a study, and their log."""

    def __init__(self, folder: Path, study: FederationStudy | None = None) -> None:
        self.study = study or leaderless_study()
        rng = np.random.default_rng(1)
        self.peers = {
            name: LoggedPeer(folder, self.study, name, rng.normal(50, 10, one.records), server=not place)
            for place, (name, one) in enumerate(self.study.clients.items())
        }
        self.position = 0
        self.entries: list[bytes] = []
        files = [peer.folder.enrolment_file for peer in self.peers.values()]
        for peer in self.peers.values():
            peer.folder.admit(files)
            peer.begin()

    def __getitem__(self, name: str) -> LoggedPeer:
        return self.peers[name]

    def write(self, sender: str, payload: bytes) -> None:
        """Write an entry into the log; everybody reads it."""
        self.position += 1
        self.entries.append(payload)
        for peer in self.peers.values():
            found = peer.replica.apply(sender, payload)
            peer.log.save([LogEntry(self.position, sender, payload)], peer.replica, found)

    def play(
        self,
        rounds: int | None = None,
        silent: Callable[[str, int], bool] = lambda *_: False,
        finals: int | None = None,
    ) -> None:
        """Go on for so many rounds, or to the end, where the first `finals` organizations sign it (all of them)."""
        first = next(iter(self.peers.values()))
        done = first.replica.closed + (rounds if rounds is not None else 10**6)
        while first.replica.closed < done:
            number = first.replica.closed + 1
            self.write(first.name, first.replica.proposal(first.name).pack(first.key))
            if first.replica.ended:
                self._sign_end(finals)
                return
            asked = [peer for peer in self.peers.values() if not silent(peer.name, number)]
            for peer in asked:
                self.write(peer.name, peer.answer())
            if len(asked) < len(self.peers):
                for peer in asked[: 1 + quorums.liars(self.study)]:
                    self.write(peer.name, peer.replica.close_vote(peer.name).pack(peer.key))

    def _sign_end(self, finals: int | None) -> None:
        for peer in list(self.peers.values())[:finals]:
            assert peer.log.claim(peer.replica.claims)
            self.write(peer.name, peer.replica.final(peer.name).pack(peer.key))

    def close(self) -> None:
        """Close all files."""
        for peer in self.peers.values():
            peer.log.store.close()


def with_a_silence(folder: Path) -> Peers:
    """A finished run of three organizations, one of them silent in one round."""
    peers = Peers(folder)
    peers.play(silent=lambda name, number: (name, number) == ("west", 3))
    peers.close()
    return peers
