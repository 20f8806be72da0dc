"""The closed rounds of a replica and the state that follows from them, and from nothing else.

Whoever has the same chain value has the same state: the run, the last links of the ledgers, keys, votes and decisions.
So a round that somebody else relays, or that comes from another peer's file, is followed as if it had been read from
the log, and a replica can go back to any of its rounds.
"""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from privatile.core.messages import Position
from privatile.core.text import canonical_json
from privatile.errors import ProtocolError
from privatile.estimator.open_ended import Reason
from privatile.estimator.plan import Ask, RoundState
from privatile.federation.coordinator.intake import AnswerIntake, LateLink
from privatile.federation.study import FederationStudy
from privatile.federation.wire import RoundAnswers, Signed
from privatile.records.keys import PublicKeys
from privatile.run.coordinator import Coordinator
from privatile.run.rounds import IMPOSSIBLE_SHARE, impossible_clients, must_wait_for
from privatile.run.run_file import RunStore, StoredRound
from privatile_leaderless import quorums
from privatile_leaderless.chain import closed_chain
from privatile_leaderless.decisions import Tally
from privatile_leaderless.entries import (
    LARGEST_ENTRY,
    ClosedRound,
    CloseVote,
    Decision,
    LevelAsk,
    Note,
    PeerAnswer,
    Restored,
    Vote,
    asks_digest,
    read_entry,
)

MOST_NOTES = 20
"""Votes and restored ledgers of one peer that count in one round; of all together as many as an entry has room for
beside the answers (`quorums.closed_round_bytes`). Votes to abort are no part of either: liars must not be able
to crowd them out. What does not count in a round is published again in the next one."""


class Quarantine(NamedTuple):
    """Why no round closes until a quorum has decided about a peer, and the round that a decision names."""

    reason: str
    round: int


class NewKey(NamedTuple):
    """A key that was replaced within a round: it holds after so many of the round's notes."""

    after: int
    client: str
    keys: PublicKeys


class RoundRecord(NamedTuple):
    """A closed round as a run's file keeps it."""

    closed: ClosedRound
    chain: str
    """The value after it."""
    stored: tuple[StoredRound, ...]
    accepted: Mapping[str, Signed[RoundAnswers]]
    new_keys: tuple[NewKey, ...]
    """Keys that a quorum has replaced in it, in order."""


class _Mark(NamedTuple):
    """The state right after a closed round."""

    tally: Tally
    links: dict[str, Position]
    restored: dict[str, int]
    quarantined: dict[str, Quarantine]
    tracks: list[tuple[RoundState, Ask | None, Reason | None]]


class History:
    """Closed rounds, and what has changed since the last of them."""

    def __init__(self, study: FederationStudy, keys: Mapping[str, PublicKeys], first: str) -> None:
        self.study = study
        self._keys = dict(keys)
        self._first = first
        self._begin()

    def keys_after(self, number: int) -> dict[str, PublicKeys]:
        """The keys of the peers right after this round, which is closed here."""
        return self._keys | {change.client: change.keys for place, change in self._replaced if place <= number}

    def keys_of(self, client: str) -> list[PublicKeys]:
        """All keys that a peer has had, up to the last closed round."""
        return [self._keys[client], *(change.keys for _, change in self._replaced if change.client == client)]

    def _begin(self) -> None:
        self.records: list[RoundRecord] = []
        self.chains = [self._first]
        self.coordinator = Coordinator(RunStore.create(":memory:", self.study.run, self.study.spec))
        self.tally = Tally.of(quorums.signing(self.study), self._keys)
        self.links: dict[str, Position] = {}
        """The last link of each peer's ledger, by counted answers."""
        self.restored: dict[str, int] = {}
        """The round in which a peer's ledger was last restored."""
        self.quarantined: dict[str, Quarantine] = {}
        self.notes: list[Note] = []
        self._note_bytes = 0
        """What those take that are limited."""
        self._new_keys: list[NewKey] = []
        self._replaced: list[tuple[int, NewKey]] = []
        """All of the closed rounds, with their rounds."""
        self._set_mark()

    def _set_mark(self) -> None:
        tracks = [(track.state, track.ask, track.why_ended) for track in self.coordinator.tracks]
        self._mark = _Mark(
            self.tally.copy(), dict(self.links), dict(self.restored), dict(self.quarantined), list(tracks)
        )

    @property
    def closed(self) -> int:
        """Rounds that are closed."""
        return len(self.records)

    @property
    def chain(self) -> str:
        """The chain value after them."""
        return self.chains[-1]

    # -- the next round ------------------------------------------------------------------------------------------

    def own_asks(self) -> tuple[LevelAsk, ...]:
        """What the design asks next, here; nothing where it is over."""
        tracks = enumerate(self.coordinator.tracks)
        return tuple(LevelAsk.of(index, track.ask) for index, track in tracks if track.ask is not None)

    def take(self, asks: Sequence[LevelAsk]) -> None:
        """Let the next round ask this, or without any level be the end; a ProtocolError changes nothing."""
        asked = {one.level: one.ask for one in asks}
        tracks = self.coordinator.tracks
        if len(asked) < len(asks) or list(asked) != sorted(asked) or not set(asked) <= set(range(len(tracks))):
            raise ProtocolError("a question names levels that the study does not have, or out of order.")
        saved = [(track.state, track.ask, track.why_ended) for track in tracks]
        try:
            for index, track in enumerate(tracks):
                if index not in asked:
                    track.end()
                elif track.state.round == self.closed:
                    track.take(asked[index])
                else:
                    raise ProtocolError(f"level {track.plan.level:.6g} was over before round {self.closed + 1}.")
        except ProtocolError:
            for track, (state, ask, why) in zip(tracks, saved, strict=True):
                track.state, track.ask, track.why_ended = state, ask, why
            raise

    def intake(self) -> AnswerIntake:
        """What judges the answers of the round that was taken."""
        coordinator, tally = self.coordinator, self.tally
        intake = AnswerIntake(
            self.study.digest,
            {client: keys.signer for client, keys in tally.keys.items()},
            self.links,
            {client: one.reason for client, one in self.quarantined.items()},
            coordinator.asked,
            {client: LateLink(None, number) for client, number in self.restored.items()},
        )
        intake.open(coordinator.questions())
        return intake

    def note(self, entry: Vote | Restored, payload: bytes) -> bool:
        """Count a vote or a restored ledger; False where it changes nothing."""
        sender = entry.sender
        if (entry.round, entry.chain) != (self.closed + 1, self.chain):
            return False
        is_abort = isinstance(entry, Vote) and entry.decision.action == "abort"
        size = len(canonical_json({"sender": sender, "payload": payload.decode("ascii")}))
        if not is_abort and (
            sum(note.sender == sender for note in self.notes) >= MOST_NOTES
            or self._note_bytes + size > LARGEST_ENTRY - quorums.closed_round_bytes(self.study)
        ):
            return False
        if isinstance(entry, Vote):
            if self.tally.broken(entry.decision) or not self.tally.add(sender, entry.decision):
                return False
        elif entry.lost == self.links.get(sender) != entry.link:
            self.links[sender] = entry.link
            self.restored[sender] = self.closed + 1
        else:
            return False
        self.notes.append(Note(sender, payload.decode("ascii")))
        self._note_bytes += 0 if is_abort else size
        return True

    def close(
        self, asks: Sequence[LevelAsk], intake: AnswerIntake, payloads: Mapping[str, bytes], votes: Sequence[Note]
    ) -> RoundRecord:
        """Close the round with what the intake has counted; `payloads` are the signed answers behind it.

        `votes` are those to close it, where an answer is missing.
        """
        number, accepted = self.closed + 1, dict(intake.answers)
        self.coordinator.accept(intake.counts(), (), intake.unspent)
        store = self.coordinator.store
        stored = tuple(next(store.rounds(one.level, self.closed)) for one in asks)
        closed = ClosedRound(
            self.chain,
            number,
            tuple(asks),
            tuple(payloads[name].decode("ascii") if name in accepted else None for name in self.study.clients),
            tuple(one.unspent for one in stored),
            tuple(self.notes),
            tuple(votes),
        )
        chain, new_keys = closed_chain(closed, tuple(self.study.clients)), tuple(self._new_keys)
        record = RoundRecord(closed, chain, stored, accepted, new_keys)
        self.records.append(record)
        self.chains.append(record.chain)
        self.links.update((name, one.body.ledger) for name, one in accepted.items())
        self._replaced += ((number, change) for change in new_keys)
        self.notes, self._note_bytes, self._new_keys = [], 0, []
        # A peer about which a quorum has decided in this very round is looked at again after the next one.
        self.quarantined = {
            name: Quarantine(IMPOSSIBLE_SHARE, number)
            for name in impossible_clients(self.coordinator.tracks)
            if (name, number) not in self.tally.readmitted
        }
        self._set_mark()
        return record

    # -- going back, and following others ------------------------------------------------------------------------

    def drop_open(self) -> None:
        """Stand right after the last closed round again."""
        mark = self._mark
        self.tally, self.links, self.restored = mark.tally.copy(), dict(mark.links), dict(mark.restored)
        self.quarantined, self.notes, self._note_bytes, self._new_keys = dict(mark.quarantined), [], 0, []
        for track, (state, ask, why) in zip(self.coordinator.tracks, mark.tracks, strict=True):
            track.state, track.ask, track.why_ended = state, ask, why

    def back_to(self, number: int) -> None:
        """Stand right after this round, which is closed here."""
        if number == self.closed:
            self.drop_open()
            return
        kept = self.records[:number]
        self._begin()
        for record in kept:
            self.follow(record.closed)

    def follow(self, closed: ClosedRound) -> RoundRecord:
        """Go one round further as somebody else has closed it; a ProtocolError changes nothing.

        Everything is checked as if it had been read from the log: question, signatures, counts, quorum, patience.
        """
        before = self.closed
        try:
            return self._follow(closed)
        except ProtocolError:
            if self.closed > before:
                self.back_to(before)
            self.drop_open()
            raise

    def _follow(self, closed: ClosedRound) -> RoundRecord:
        self.drop_open()
        if (closed.before, closed.round) != (self.chain, self.closed + 1):
            raise ProtocolError("the round does not follow the last one here.")
        if len(closed.answers) != len(self.study.clients) or not closed.asks:
            raise ProtocolError("a closed round has a question, and an answer or none for every peer.")
        self.take(closed.asks)
        intake, keys = self.intake(), dict(self.tally.keys)
        payloads = {
            client: payload.encode()
            for client, payload in zip(self.study.clients, closed.answers, strict=True)
            if payload is not None
        }
        left = dict(payloads)
        for place, note in enumerate(closed.notes):
            # A key may have been replaced within the round: answers before that have the older one. A restored ledger
            # goes on after the note, and a peer that was in quarantine counts after it.
            later = {one.sender for one in closed.notes[place:] if one.is_restored}
            later |= {client for client, payload in left.items() if self._read(client, payload) is None}
            later |= set(intake.quarantined)
            self._offer(intake, left, later)
            self._follow_note(note, intake)
        self._offer(intake, left)
        if len(intake.answers) < quorums.signing(self.study):
            raise ProtocolError("the round has fewer answers than the quorum.")
        if intake.quarantined or must_wait_for(intake.missing, self.coordinator.tracks, self.study.patience):
            raise ProtocolError("the round cannot be closed without the peers that it lacks.")
        self._check_votes(closed, keys, needed=quorums.closing(self.study) if intake.missing else 0)
        record = self.close(closed.asks, intake, payloads, closed.votes)
        if record.closed != closed:
            raise ProtocolError("the round says another thing about missed records than its answers.")
        return record

    def _check_votes(self, closed: ClosedRound, before: Mapping[str, PublicKeys], needed: int) -> None:
        """Check the votes to close a round that lacks answers: so many peers, in one log.

        Each is signed with a key that its sender had in the round: the one of `before`, or one that replaced it there.
        """
        voters, epochs = set(), set()
        for vote in closed.votes:
            entry = None
            held = [before[vote.sender]] if vote.sender in before else []
            held += [change.keys for change in self._new_keys if change.client == vote.sender]
            for keys in held:
                with contextlib.suppress(ProtocolError):
                    entry = entry or read_entry(vote.payload.encode(), keys.signer)
            own = (self.study.digest, self.study.run, vote.sender, closed.round, closed.before)
            if (
                not isinstance(entry, CloseVote)
                or entry.question != asks_digest(closed.asks)
                or own
                != (
                    entry.study,
                    entry.run,
                    entry.sender,
                    entry.round,
                    entry.chain,
                )
            ):
                raise ProtocolError("a vote to close the round is not one of its sender's.")
            voters.add(vote.sender)
            epochs.add(entry.epoch)
        if not len(voters) == len(closed.votes) == needed or len(epochs) > 1:
            raise ProtocolError(f"closing the round takes the votes of {needed} peers in one log.")

    def _read(self, client: str, payload: bytes) -> PeerAnswer | None:
        try:
            entry = read_entry(payload, self.tally.keys[client].signer)
        except ProtocolError:
            return None
        return entry if isinstance(entry, PeerAnswer) and entry.chain == self.chain else None

    def _offer(self, intake: AnswerIntake, left: dict[str, bytes], but: Collection[str] = ()) -> None:
        for client in [name for name in left if name not in but]:
            message = self._read(client, left[client])
            if message is None or not offer(intake, client, left[client], message):
                raise ProtocolError(f"the answer of {client} is not one to this round.")
            del left[client]

    def _follow_note(self, note: Note, intake: AnswerIntake) -> None:
        payload = note.payload.encode()
        keys = self.tally.keys.get(note.sender)
        entry = None if keys is None else read_entry(payload, keys.signer)
        ours = isinstance(entry, Vote | Restored) and entry.study == self.study.digest and entry.run == self.study.run
        if not isinstance(entry, Vote | Restored) or not ours or entry.sender != note.sender:
            raise ProtocolError("a note of the round is not a vote or a restored ledger of its sender.")
        if not self.note(entry, payload):
            raise ProtocolError("a note of the round changes nothing.")
        if isinstance(entry, Restored):
            intake.relink(note.sender, entry.link, self.closed + 1)
        else:
            self.settle(entry.decision, intake)

    def settle(self, decision: Decision, intake: AnswerIntake | None) -> bool:
        """Let a decision hold that has its quorum now, for the open round too; whether it changes anything."""
        if not self.tally.settle(decision):
            return False
        if decision.client is not None and decision.keys is not None:
            self._new_keys.append(NewKey(len(self.notes), decision.client, decision.keys))
        for client, one in list(self.quarantined.items()):
            if (client, one.round) in self.tally.readmitted:
                del self.quarantined[client]
                if intake is not None:
                    intake.readmit(client)
        if intake is not None:
            intake.replace_signers({client: keys.signer for client, keys in self.tally.keys.items()})
        return True


def offer(intake: AnswerIntake, client: str, payload: bytes, message: PeerAnswer) -> bool:
    """Offer an answer whose signature was checked; whether it counts."""
    return intake.offer(client, payload, read=lambda *_: message).outcome == "counted"
