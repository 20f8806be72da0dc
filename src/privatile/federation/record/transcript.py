"""What a run's file says was asked of every client, and answered: the transcript."""

from typing import NamedTuple

from privatile.core.messages import Question
from privatile.server.coordinator import stored_questions
from privatile.server.run_file import RunStore


class Exchange(NamedTuple):
    """What one client was asked in one round, per level as it was sent, and its counts."""

    questions: tuple[Question, ...]
    ones: tuple[int | None, ...]
    unspent: bool = False
    """Whether records of rounds that the client had missed before were counted as not asked."""

    @property
    def is_silent(self) -> bool:
        """Whether no count of this client entered the round."""
        return all(count is None for count in self.ones)


Exchanges = dict[tuple[int, str], Exchange]
"""Exchanges by round and client."""


def exchanges(store: RunStore) -> Exchanges:
    """All exchanges, by round and client."""
    names = [client.name for client in store.spec.clients]
    found: Exchanges = {}
    for stored, questions in stored_questions(store):
        for k, (name, question, ones) in enumerate(zip(names, questions, stored.ones, strict=True)):
            before = found.get((stored.round, name), Exchange((), ()))
            unspent = before.unspent or k in stored.unspent
            found[stored.round, name] = Exchange((*before.questions, question), (*before.ones, ones), unspent)
    return found
