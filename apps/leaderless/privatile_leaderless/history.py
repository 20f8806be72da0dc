"""The closed rounds of a replica and the state that follows from them, and from nothing else.

Whoever has the same chain value has the same state: the run, the last links of the ledgers, keys, votes and decisions.
So a round that somebody else relays, or that comes from another peer's file, is followed as if it had been read from
the log, and a replica can go back to any of its rounds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from privatile.core.messages import Answer, Position, Question
from privatile.core.text import canonical_json
from privatile.errors import PrivatileError, ProtocolError, StoreError
from privatile.estimator.open_ended import Reason
from privatile.estimator.plan import Ask, RoundState
from privatile.federation.coordinator.intake import AnswerIntake, LateLink
from privatile.federation.study import FederationStudy
from privatile.federation.wire import RoundAnswers, Signed
from privatile.records.keys import PublicKeys
from privatile.run.coordinator import Coordinator, stored_questions
from privatile.run.rounds import IMPOSSIBLE_SHARE, impossible_clients, must_wait_for
from privatile.run.run_file import RunStore, StoredRound
from privatile_leaderless import quorums
from privatile_leaderless.chain import closed_chain, end_chain, first_chain, signed_value
from privatile_leaderless.entries import (
    MAX_ENTRY_BYTES,
    AnyEntry,
    ClosedRound,
    CloseVote,
    LevelAsk,
    Note,
    PeerAnswer,
    Restored,
    Vote,
    asks_digest,
    read_entry,
)

MAX_NOTES = 20
"""Restored ledgers of one peer that count in one round; of all together as many as an entry has room for beside the
answers and votes to abort (`quorums.closed_round_bytes`). What does not count in a round is published again in the
next one."""


class Quarantine(NamedTuple):
    """Why no round closes any more, and the round of the offence."""

    reason: str
    round: int


class RoundRecord(NamedTuple):
    """A closed round as a run's file keeps it."""

    closed: ClosedRound
    chain: str
    """The value after it."""
    stored: tuple[StoredRound, ...]
    accepted: Mapping[str, Signed[RoundAnswers]]


class _Mark(NamedTuple):
    """The state right after a closed round."""

    abort_voters: set[str]
    links: dict[str, Position]
    restored: dict[str, int]
    quarantined: dict[str, Quarantine]
    tracks: list[tuple[RoundState, Ask | None, Reason | None]]


class History:
    """Closed rounds, and what has changed since the last of them."""

    def __init__(self, study: FederationStudy, keys: Mapping[str, PublicKeys], first: str) -> None:
        self.study = study
        self.keys = dict(keys)
        self._first = first
        self._begin()

    def _begin(self) -> None:
        self.records: list[RoundRecord] = []
        self.chains = [self._first]
        self.coordinator = Coordinator(RunStore.create(":memory:", self.study.run, self.study.spec))
        self.abort_voters: set[str] = set()
        self.links: dict[str, Position] = {}
        """The last link of each peer's ledger, by counted answers."""
        self.restored: dict[str, int] = {}
        """The round in which a peer's ledger was last restored."""
        self.quarantined: dict[str, Quarantine] = {}
        self.notes: list[Note] = []
        self._note_bytes = 0
        """What restored ledgers take of them."""
        self._set_mark()

    def _set_mark(self) -> None:
        tracks = [(track.state, track.ask, track.why_ended) for track in self.coordinator.tracks]
        self._mark = _Mark(
            set(self.abort_voters), dict(self.links), dict(self.restored), dict(self.quarantined), list(tracks)
        )

    @property
    def aborted(self) -> bool:
        """Whether a quorum has voted to end the run for good."""
        return len(self.abort_voters) >= quorums.signing(self.study)

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
        coordinator = self.coordinator
        intake = AnswerIntake(
            self.study.digest,
            {client: keys.signer for client, keys in self.keys.items()},
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
        size = len(canonical_json({"sender": sender, "payload": payload.decode("ascii")}))
        if isinstance(entry, Vote):
            if sender in self.abort_voters:
                return False
            self.abort_voters.add(sender)
        elif (
            sum(note.sender == sender for note in self.notes) >= MAX_NOTES
            or self._note_bytes + size > MAX_ENTRY_BYTES - quorums.closed_round_bytes(self.study)
            or not entry.lost == self.links.get(sender) != entry.link
        ):
            return False
        else:
            self.links[sender] = entry.link
            self.restored[sender] = self.closed + 1
            self._note_bytes += size
        self.notes.append(Note(sender, payload.decode("ascii")))
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
        record = RoundRecord(closed, closed_chain(closed, tuple(self.study.clients)), stored, accepted)
        self.records.append(record)
        self.chains.append(record.chain)
        self.links.update((name, one.body.ledger) for name, one in accepted.items())
        self.notes, self._note_bytes = [], 0
        self.quarantined = {
            name: Quarantine(IMPOSSIBLE_SHARE, number) for name in impossible_clients(self.coordinator.tracks)
        }
        self._set_mark()
        return record

    # -- going back, and following others ------------------------------------------------------------------------

    def drop_open(self) -> None:
        """Stand right after the last closed round again."""
        mark = self._mark
        self.abort_voters, self.links, self.restored = set(mark.abort_voters), dict(mark.links), dict(mark.restored)
        self.quarantined, self.notes, self._note_bytes = dict(mark.quarantined), [], 0
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
        intake = self.intake()
        payloads = {
            client: payload.encode()
            for client, payload in zip(self.study.clients, closed.answers, strict=True)
            if payload is not None
        }
        # A peer whose answer stands in the round restores no ledger: its answer comes after that.
        for note in closed.notes:
            entry = self.entry_of(note.sender, note.payload)
            if not isinstance(entry, Vote | Restored):
                raise ProtocolError("a note of the round is not a vote or a restored ledger of its sender.")
            if not self.note(entry, note.payload.encode()):
                raise ProtocolError("a note of the round changes nothing.")
            if isinstance(entry, Restored):
                intake.relink(note.sender, entry.link, self.closed + 1)
        for client, payload in payloads.items():
            if not self._counts(intake, client, payload):
                raise ProtocolError(f"the answer of {client} is not one to this round.")
        if len(intake.answers) < quorums.signing(self.study):
            raise ProtocolError("the round has fewer answers than the quorum.")
        if intake.quarantined or must_wait_for(intake.missing, self.coordinator.tracks, self.study.patience):
            raise ProtocolError("the round cannot be closed without the peers that it lacks.")
        self._check_votes(closed, needed=quorums.closing(self.study) if intake.missing else 0)
        record = self.close(closed.asks, intake, payloads, closed.votes)
        if record.closed != closed:
            raise ProtocolError("the round says another thing about missed records than its answers.")
        return record

    def _check_votes(self, closed: ClosedRound, needed: int) -> None:
        """Check the votes to close a round that lacks answers: so many peers, in one log."""
        voters, epochs = set(), set()
        for vote in closed.votes:
            entry, about = self.entry_of(vote.sender, vote.payload), (closed.round, closed.before)
            asked = asks_digest(closed.asks)
            if not isinstance(entry, CloseVote) or (entry.round, entry.chain, entry.question) != (*about, asked):
                raise ProtocolError("a vote to close the round is not one of its sender's.")
            voters.add(vote.sender)
            epochs.add(entry.epoch)
        if not len(voters) == len(closed.votes) == needed or len(epochs) > 1:
            raise ProtocolError(f"closing the round takes the votes of {needed} peers in one log.")

    def _counts(self, intake: AnswerIntake, client: str, payload: bytes) -> bool:
        answer = self.entry_of(client, payload)
        if not isinstance(answer, PeerAnswer) or answer.chain != self.chain:
            return False
        return intake.offer(client, payload, read=lambda *_: answer).outcome == "counted"

    def entry_of(self, sender: str, payload: str | bytes) -> AnyEntry | None:
        """The entry of this study and run that this peer has signed; None where it is none."""
        try:
            entry = read_entry(payload.encode() if isinstance(payload, str) else payload, self.keys[sender].signer)
        except (ProtocolError, KeyError):
            return None
        ours = (entry.study, entry.run, entry.sender) == (self.study.digest, self.study.run, sender)
        return entry if ours else None


def closed_rounds(store: RunStore, study: FederationStudy, roster: str) -> Iterator[ClosedRound]:
    """The rounds of a run's file as the log had them; `roster` is the roster's digest.

    Every answer is written down again, with its signature: whoever follows the rounds checks them.
    """
    if store.run != study.run or store.spec.digest != study.spec.digest:
        raise StoreError(f"{store.path} holds a run of another study.")
    asked: dict[int, list[tuple[StoredRound, tuple[Question, ...]]]] = {}
    for stored, questions in stored_questions(store):
        asked.setdefault(stored.round, []).append((stored, questions))
    evidence = {
        (row[0], row[1]): row[2:]
        for row in store.query("SELECT round, client, sequence, hash, signature FROM evidence")
    }
    notes, votes = _notes(store, "peer_notes"), _notes(store, "peer_votes")
    chain, clients = first_chain(study.digest, study.run, roster), tuple(study.clients)
    for number in sorted(asked):
        levels = asked[number]
        answers = []
        for place, client in enumerate(clients):
            row = evidence.get((number, client))
            answers.append(None if row is None else _payload(study, chain, client, place, levels, row))
        closed = ClosedRound(
            chain,
            number,
            tuple(LevelAsk.of(stored.level_index, stored.ask) for stored, _ in levels),
            tuple(answers),
            tuple(stored.unspent for stored, _ in levels),
            tuple(notes.get(number, ())),
            tuple(votes.get(number, ())),
        )
        yield closed
        chain = closed_chain(closed, clients)


def _notes(store: RunStore, table: str) -> dict[int, list[Note]]:
    found: dict[int, list[Note]] = {}
    for number, sender, payload in store.query(f"SELECT round, sender, payload FROM {table} ORDER BY round, place"):
        found.setdefault(number, []).append(Note(sender, payload))
    return found


def _payload(
    study: FederationStudy,
    chain: str,
    client: str,
    place: int,
    levels: list[tuple[StoredRound, tuple[Question, ...]]],
    row: tuple[int, str, str],
) -> str:
    """The signed answer of one client, as the evidence and the counts tell it."""
    sequence, head, signature = row
    answers = []
    for stored, asked in levels:
        ones = stored.ones[place]
        if ones is None:
            raise ProtocolError(f"round {stored.round} has a signature of {client}, and no count.")
        answers.append(Answer(asked[place], client, ones, Position(sequence, bytes.fromhex(head))))
    message = RoundAnswers.of(study.digest, answers)
    return f"{PeerAnswer.after(chain, message).text().decode()}\n{signature}"


Evidence = dict[tuple[int, str], tuple[int, str, str, str]]
"""Entry, hash, signer and signature of every counted answer, by round and client."""


@dataclass
class Followed:
    """A run's file as far as its rounds follow one another."""

    history: History
    evidence: Evidence
    broken: str = ""
    """Which round does not follow, and why; empty where all do."""
    finals: list[str] = field(default_factory=list)
    """Who has signed that the run is over after this history: with a final, or in a new log with a checkpoint."""


def follow_file(study: FederationStudy, keys: Mapping[str, PublicKeys], roster: str, store: RunStore) -> Followed:
    """Follow every round of a run's file; `keys` and `roster`, its digest, are those before the first round."""
    rows = store.query("SELECT round, client, sequence, hash, signer, signature FROM evidence")
    history = History(study, keys, first_chain(study.digest, study.run, roster))
    found = Followed(history, {(row[0], row[1]): row[2:] for row in rows})
    kept: dict[int, list[StoredRound]] = {}
    for stored in store.all_rounds():
        kept.setdefault(stored.round, []).append(stored)
    rounds = closed_rounds(store, study, roster)
    for number in sorted(kept):
        try:
            record = history.follow(next(rounds))
        except PrivatileError as error:
            found.broken = f"round {number:,}: {error}"
            break
        told = {client: found.evidence[number, client][2] for client in record.accepted}
        signers = {client: one.signer for client, one in record.accepted.items()}
        if (_counted(record.stored), told) != (_counted(kept[number]), signers):
            found.broken = f"round {number:,}: its counts are not those that were signed"
            break
    rest = "SELECT round FROM peer_notes UNION SELECT round FROM peer_votes"
    ((over,),) = store.query(f"SELECT min(round) FROM ({rest}) WHERE round > ?", (history.closed,))
    if over is not None and not found.broken:
        found.broken = f"votes or restored ledgers of round {over:,}, which is not there"
    end = (history.closed + 2, end_chain(history.chain, history.closed))
    for client, payload in store.query("SELECT client, payload FROM peer_proof ORDER BY client"):
        entry = history.entry_of(client, payload)
        if entry is not None and signed_value(entry) == end:
            found.finals.append(client)
    return found


def _counted(stored: Iterable[StoredRound]) -> list[tuple[object, ...]]:
    """What was asked and counted in a round."""
    return sorted(((one.level_index, one.ask, tuple(one.ones), tuple(one.unspent)) for one in stored), key=str)
