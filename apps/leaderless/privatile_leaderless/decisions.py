"""What organizations decide together: votes are counted, and a quorum for the same decision makes it hold."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from privatile.records.keys import PublicKeys
from privatile_leaderless.entries import Decision


@dataclass
class Tally:
    """Votes so far, and what was decided. It follows from the votes in their order and from nothing else."""

    quorum: int
    keys: dict[str, PublicKeys]
    """The keys that the peers have now."""
    readmitted: set[tuple[str, int]] = field(default_factory=set)
    """Peers and the rounds of offences that were decided upon."""
    aborted: bool = False
    _used: set[str] = field(default_factory=set)
    """Signers that some peer has or had: votes from before a later change cannot bring one back."""
    _votes: dict[str, dict[str, Decision]] = field(default_factory=dict)
    """Who has voted for what is not decided, by its digest, in the log's order."""
    _decided: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, quorum: int, keys: Mapping[str, PublicKeys]) -> Self:
        """No votes yet."""
        return cls(quorum, dict(keys), _used={one.signer for one in keys.values()})

    def copy(self) -> "Tally":
        """As it is now."""
        votes = {digest: dict(voters) for digest, voters in self._votes.items()}
        return Tally(
            self.quorum,
            dict(self.keys),
            set(self.readmitted),
            self.aborted,
            set(self._used),
            votes,
            set(self._decided),
        )

    def broken(self, decision: Decision) -> str:
        """Why nobody can vote for this; empty where they can."""
        named = (decision.client, decision.round, decision.before, decision.keys)
        form = tuple(value is not None for value in named)
        expected = {
            "readmit": (True, True, False, False),
            "key": (True, False, True, True),
            "abort": (False, False, False, False),
        }[decision.action]
        if form != expected:
            return f"a decision to {decision.action} names other things than this one."
        if decision.client is not None and decision.client not in self.keys:
            return "the decision is about a peer that the study does not have."
        return ""

    def has(self, sender: str, decision: Decision) -> bool:
        """Whether this peer has voted for it, or it is decided."""
        return decision.digest in self._decided or sender in self._votes.get(decision.digest, ())

    def voters(self, decision: Decision) -> Collection[str]:
        """Who has voted for it; nobody any more where it is decided."""
        return self._votes.get(decision.digest, ())

    @property
    def undecided(self) -> Iterator[tuple[Decision, Collection[str]]]:
        """What some have voted for, and too few so far, and who; not what could change nothing any more."""
        for voters in self._votes.values():
            decision = next(iter(voters.values()))
            if decision.client is None or decision.keys is None or self._may_replace(decision):
                yield decision, voters

    def _may_replace(self, decision: Decision) -> bool:
        """Whether a key may still take the place of the one that it names."""
        new, now = decision.keys, self.keys.get(decision.client or "")
        return new is not None and now is not None and now.signer == decision.before and new.signer not in self._used

    def add(self, sender: str, decision: Decision) -> bool:
        """Count a vote; False where this peer has voted for it before, or it is decided."""
        if self.has(sender, decision):
            return False
        self._votes.setdefault(decision.digest, {})[sender] = decision
        return True

    def settle(self, decision: Decision) -> bool:
        """Let a decision hold that has its quorum now; whether it changes anything."""
        digest = decision.digest
        if digest in self._decided or len(self._votes.get(digest, ())) < self.quorum:
            return False
        self._decided.add(digest)
        del self._votes[digest]
        if decision.action == "abort":
            self.aborted = True
        elif decision.client is None:
            return False
        elif decision.round is not None:
            self.readmitted.add((decision.client, decision.round))
        elif decision.keys is not None:
            if not self._may_replace(decision):
                return False
            self.keys[decision.client] = decision.keys
            self._used.add(decision.keys.signer)
        return True
