"""Random histories around a lost log in which the operator shows every peer what it likes, entry by entry.

There is no log at all: whatever anybody has signed lies in one heap. The operator divides the peers into one and all
others, and shows either side, turn by turn, a part of the heap: where some stand, checkpoints of one
place, answers of one side or all. Peers are killed and forget what they were shown of a log, though not what they have
signed: a real one forgets neither. It begins just before a round is closed, mostly the last one: there the rules have
the least to hold on to. All peers are honest, or f of them sign whatever they are shown.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from privatile_leaderless.chain import closed_chain
from privatile_leaderless.entries import Checkpoint, CloseVote, Final, PeerAnswer, PositionReport, Proposal
from replica.hostile import Wrong, play_each
from replica.kit import (
    Logged,
    Peer,
    TwoFaced,
    answer_of,
    asked_after,
    make_study,
    new_replica,
    read,
)

SHAPES = ((3, 0), (4, 1), (5, 1))
ROUNDS, LIVE_TURNS = 3, 4
STUDIES = {shape: make_study(shape[0], ROUNDS, shape[1], patience=5) for shape in SHAPES}
ORDER = (PositionReport, Checkpoint, Proposal, PeerAnswer, CloseVote, Final)


class Heap:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        shape = chance.choice(SHAPES)
        study = STUDIES[shape]
        names = list(study.clients)
        lying = set(chance.sample(names, shape[1])) if chance.random() < 0.3 else set()
        self.peers = [(TwoFaced if name in lying else Peer)(study, name) for name in names]
        self.honest = [peer for peer in self.peers if peer.name not in lying]
        self.liars = [peer for peer in self.peers if peer.name in lying]
        self.alone = chance.choice(self.peers)
        self.first = chance.choice((1, ROUNDS - 1, ROUNDS - 1))
        self.entries: list[Logged] = asked_after(self.peers, self.first)
        answers = [answer_of(peer) for peer in self.peers]
        self.known = {*self.entries, *answers}
        self.entries += answers
        for entry in answers:  # one has read all answers before the log is lost, the others some
            self.alone.see(*entry)
        self.renew(1)
        self.committed: dict[int, str] = {}
        self.ends: set[str] = set()
        self.counts: Counter[str] = Counter()

    def renew(self, epoch: int) -> None:
        """All are told to read another log."""
        self.epoch = epoch
        for peer in self.peers:
            peer.replica.new_epoch(epoch)
        self.kept = {peer.name: peer.replica.closed_rounds() for peer in self.peers}
        for liar in self.liars:  # who says that it has signed what the one has closed: so too few can sign before it
            true = self.alone.replica.stand(liar.name, liar.slots, ())
            if true.last is not None:
                chain = closed_chain(true.last, tuple(liar.study.clients))
                false = msgspec.structs.replace(true, slot=true.last.round + 1, chain=chain, ended=False)
                self.entries.append((liar.name, false.pack(liar.key)))

    def kill(self, peer: Peer) -> None:
        """It stands where it stood when this log began."""
        peer.replica, peer.stood = new_replica(peer.study), {}
        peer.replica.catch_up(self.kept[peer.name])
        peer.replica.new_epoch(self.epoch)

    def play(self) -> None:
        """First the operator shows parts and takes what is written; then the peers go on with what they are shown."""
        quiet = self.chance.randint(0, 25)
        for number in range(quiet + LIVE_TURNS):
            if self.chance.random() < 0.02:
                self.renew(self.epoch + 1)
            side = [self.alone] if self.chance.random() < 0.4 else [one for one in self.peers if one is not self.alone]
            if self.chance.random() < 0.35:
                for peer in side:
                    self.kill(peer)
            self.turn(side, live=number >= quiet)
            for peer in self.honest:
                self.check(peer)

    def turn(self, side: Sequence[Peer], *, live: bool) -> None:
        """Show these peers a part of the heap, and where they stand, and take what they write; or as in a log, all."""
        late = live and self.chance.random() < 0.7
        part = self.part([peer.name for peer in side], live=live)
        for _ in range(6 if live else 2):
            news = False
            for peer in side:
                for entry in part:
                    peer.see(*entry)
                peer.is_late = late
                for payload in peer.wants():
                    if (entry := (peer.name, payload)) not in self.known:
                        self.known.add(entry)
                        self.entries.append(entry)
                        news = True
                    if entry not in part and (live or isinstance(read(entry), PositionReport)):
                        part.append(entry)
            if not news:
                return

    def part(self, side: Sequence[str], *, live: bool) -> list[Logged]:
        """Where peers stand, checkpoints of one place, and of what is said in rounds all or one side's."""
        chance, found = self.chance, [(read(entry), entry) for entry in self.entries]
        places = sorted({(one.epoch, one.round) for one, _ in found if isinstance(one, Checkpoint)})
        place = chance.choice([*places, None])
        told = chance.choice(
            [*{one.last.round for one, _ in found if isinstance(one, PositionReport) and one.last}, None]
        )
        if self.alone.name in side and chance.random() < 0.8:  # mostly it is to stay where it is
            told, place = self.first + 1, chance.choice([one for one in places if one[1] > self.first] or [None])
        few = not live and chance.random() < 0.7  # checkpoints: enough to be told of, too few to begin a log
        senders = set(side) if chance.random() < 0.5 else {peer.name for peer in self.peers}
        shown = []
        for one, entry in found:
            if isinstance(one, PositionReport):
                take = one.epoch == self.epoch and told in (None, one.last and one.last.round)
            elif isinstance(one, Checkpoint):
                take = place == (one.epoch, one.round)
                place = None if take and few else place
            else:
                take = live and entry[0] in senders
            if take:
                shown.append((ORDER.index(type(one)), entry))
        return [entry for _, entry in sorted(shown, key=lambda row: row[0])]

    def check(self, peer: Peer) -> None:
        replica = peer.replica
        for record in replica.committed_rounds():
            number = record.closed.round
            if self.committed.setdefault(number, record.chain) != record.chain:
                raise Wrong(f"round {number} was committed with two chain values")
        if replica.finished:
            self.ends.add(replica.head)
            self.counts["finished"] = 1
        if len(self.ends) > 1:
            raise Wrong("two ends were committed")
        self.counts["rounds"] = len(self.committed)


def play_heaps(seeds: Iterable[int]) -> Counter[str]:
    """What the operator shows is a part of the heap."""
    return play_each(Heap, seeds)
