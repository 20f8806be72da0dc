"""Closed rounds out of a run's file: a peer's own after a restart, or another's to catch up with."""

from collections.abc import Iterator

from privatile.core.messages import Answer, Position, Question
from privatile.errors import ProtocolError, StoreError
from privatile.federation.study import FederationStudy
from privatile.federation.wire import RoundAnswers
from privatile.run.coordinator import stored_questions
from privatile.run.run_file import RunStore, StoredRound
from privatile_leaderless.chain import closed_chain, first_chain
from privatile_leaderless.entries import ClosedRound, LevelAsk, Note, PeerAnswer


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
