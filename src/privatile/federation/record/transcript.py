"""What a run's file says was asked of every client, and answered: the transcript."""

import math
from typing import NamedTuple

from privatile.core.messages import Question
from privatile.federation.record.comparison import SAME
from privatile.server.coordinator import stored_questions
from privatile.server.run_file import RunStore


class Exchange(NamedTuple):
    """What one client was asked in one round, per level as it was sent, and its counts."""

    questions: tuple[Question, ...]
    ones: tuple[int | None, ...]

    @property
    def is_silent(self) -> bool:
        """Whether no count of this client entered the round."""
        return all(count is None for count in self.ones)


def exchanges(store: RunStore) -> dict[tuple[int, str], Exchange]:
    """All exchanges, by round and client."""
    names = [client.name for client in store.spec.clients]
    found: dict[tuple[int, str], Exchange] = {}
    for stored, questions in stored_questions(store):
        for name, question, ones in zip(names, questions, stored.ones, strict=True):
            before = found.get((stored.round, name), Exchange((), ()))
            found[stored.round, name] = Exchange((*before.questions, question), (*before.ones, ones))
    return found


def moved_questions(store: RunStore) -> list[int]:
    """Rounds whose question, as it was sent, is not the one that the estimate is computed from.

    The file holds a question twice: in units, as it was sent and signed for, and on the working scale, as the estimate
    uses it. They are the same number but for the rounding of another machine's functions.
    """
    plans = [store.spec.plan(level_index) for level_index in range(len(store.spec.levels))]
    moved = []
    for stored in store.all_rounds():
        scale = plans[stored.level_index].scale
        allowed = SAME * max(abs(stored.sent), scale.high - scale.low)
        if not math.isclose(scale.to_units(stored.query), stored.sent, rel_tol=0.0, abs_tol=allowed):
            moved.append(stored.round)
    return moved
