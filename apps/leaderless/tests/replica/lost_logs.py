"""Random histories in which logs are lost again and again, and everybody is honest: when all are up, the run ends.

Peers read their log to different places before it is lost; some are away when the next one begins, and come back into
a later one; processes are killed. Every machine computes the next question a little differently, within the tolerance.
In the end nothing is lost any more and all are there. What is compared with: the run's end, and the ledgers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import msgspec

from privatile.federation.study import FederationStudy
from privatile_leaderless import quorums
from privatile_leaderless.entries import Proposal
from replica.hostile import Wrong, play_each
from replica.kit import Logged, StoredPeer, make_study, one_history

SHAPES = ((4, 1), (5, 1), (7, 2), (3, 0), (4, 0))
MAX_LOSSES = 6
STUDIES = {shape: make_study(shape[0], 4, shape[1], patience=20) for shape in SHAPES}


class Machine(StoredPeer):
    """A peer with a file whose processor computes in its own way, which is away at times, and killed."""

    def __init__(self, study: FederationStudy, name: str) -> None:
        super().__init__(study, name)
        self.epoch = 0
        self.off = 1e-11 * list(study.clients).index(name)

    def proposes(self) -> bytes:
        """The next question as it comes out here."""
        replica = self.replica
        true = replica.proposal(self.name)
        asks = [msgspec.structs.replace(one, query=one.query + self.off, sent=one.sent + self.off) for one in true.asks]
        made: Proposal = msgspec.structs.replace(true, asks=tuple(asks))
        return made.pack(self.key)

    def wants(self, *, proposes: bool = True) -> list[bytes]:
        found = super().wants(proposes=False)
        replica = self.replica
        if proposes and replica.round is not None and replica.asked is None:
            found.append(self.proposes())
        return found

    def renew(self, epoch: int) -> None:
        self.save()
        self.log.begin_epoch(epoch)
        self.epoch, self.read = epoch, 0
        self.replica.new_epoch(epoch)


class Losses:
    """One history."""

    def __init__(self, seed: int, *, only_quorum: bool = False) -> None:
        """`only_quorum`: in the end, in one more log, the others do not come back."""
        self.only_quorum = only_quorum
        self.chance = random.Random(seed)
        shape = self.chance.choice(SHAPES)
        self.study = STUDIES[shape]
        self.peers = [Machine(self.study, name) for name in self.study.clients]
        self.logs: dict[int, list[Logged]] = {}
        self.counts: Counter[str] = Counter()

    def play(self) -> None:
        """Lose logs, then none."""
        epoch, up = 0, list(self.peers)
        self.turns(up, 10 * len(up), late=False)  # the first round needs all answers
        for _ in range(self.chance.randint(1, MAX_LOSSES)):
            epoch += 1
            self.counts["logs lost"] += 1
            away = self.chance.randint(0, len(self.peers) - quorums.signing(self.study))
            up = self.chance.sample(self.peers, len(self.peers) - away)
            for peer in up:
                peer.renew(epoch)
            self.turns(up, self.chance.randint(5, 60), late=True)
        for peer in self.peers:
            if peer.epoch < epoch:
                peer.renew(epoch)
        if self.only_quorum:
            gone = self.chance.sample(self.peers, len(self.peers) - quorums.signing(self.study))
            self.peers = [peer for peer in self.peers if peer not in gone]
            for peer in self.peers:
                peer.renew(epoch + 1)
        self.finish()

    def turns(self, up: list[Machine], number: int, *, late: bool) -> None:
        for _ in range(number):
            peer = self.chance.choice(up)
            log = self.logs.setdefault(peer.epoch, [])
            for _ in range(self.chance.randint(0, 8)):
                if peer.read < len(log):
                    peer.see(*log[peer.read])
                    peer.read += 1
            if self.chance.random() < 0.05:
                peer.restart()
                self.counts["kills"] += 1
            if peer.replica.behind is not None and self.chance.random() < 0.3:
                peer.take_over(self.chance.choice(up))
            peer.is_late = late and self.chance.random() < 0.5
            self.publish(peer, log)

    def publish(self, peer: Machine, log: list[Logged]) -> bool:
        new = [entry for payload in peer.wants() if (entry := (peer.name, payload)) not in log]
        log += new
        return bool(new)

    def read_all(self, log: list[Logged]) -> None:
        """Everybody reads everything and writes what is due, until nobody has anything new."""
        news = True
        while news:
            news = False
            for late in (False, True):
                for peer in self.peers:
                    peer.follow(log)
                    peer.is_late = late
                    news |= self.publish(peer, log)

    def finish(self) -> None:
        """All are up, and everybody reads everything: the run must end, one history, as the ledgers have it."""
        log = self.logs.setdefault(max(peer.epoch for peer in self.peers), [])
        self.read_all(log)
        # Those that do not come to the end ask the others for their files.
        while sum(peer.take_over(other) for peer in self.peers for other in self.peers if not peer.replica.finished):
            self.counts["files taken over"] += 1
            self.read_all(log)
        if not all(peer.replica.finished for peer in self.peers):
            raise Wrong(f"the run does not go on: {self.peers[0].replica.paused or self.peers[0].replica.missing}")
        if not one_history(self.peers):
            raise Wrong("two histories")
        for record in self.peers[0].replica.committed_rounds():
            for peer in self.peers:
                accepted = record.accepted.get(peer.name)
                if (
                    accepted
                    and (accepted.body.ones, accepted.body.ledger) != peer.ledger.given[record.closed.round][1:]
                ):
                    raise Wrong(f"the count of {peer.name} is not that of its ledger")
        rounds = self.peers[0].replica.closed_rounds()
        self.counts["rounds that lack an answer"] += sum(None in one.answers for one in rounds)


def play_losses(seeds: Iterable[int]) -> Counter[str]:
    """Honest peers, and logs that are lost."""
    return play_each(Losses, seeds)


def count_stuck(seeds: Iterable[int], *, only_quorum: bool = False) -> int:
    """How many histories do not come to their end."""
    stuck = 0
    for seed in seeds:
        try:
            Losses(seed, only_quorum=only_quorum).play()
        except Wrong:
            stuck += 1
    return stuck
