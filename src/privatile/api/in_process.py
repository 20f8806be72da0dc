"""Carry rounds inside one process: coordinator and responders side by side, all clients' answers in one commit."""

from collections.abc import Callable, Sequence

from privatile.client.responder import Responder, answer_all
from privatile.server.coordinator import Coordinator

Progress = Callable[[int, int], None]
"""Called after every round with rounds done and rounds planned."""


def run(coordinator: Coordinator, responders: Sequence[Responder], progress: Progress | None = None) -> None:
    """Ask until the plan is over. Killed at any moment, the same call continues where it stopped.

    The ledger is on the disk before a count reaches the coordinator; a round that was counted but not yet stored is
    asked again and gets the stored count.
    """
    while (rounds := coordinator.rounds()) is not None:
        pairs = [pair for each in rounds for pair in zip(responders, each.questions, strict=True)]
        ones = iter([answer.check(asked).ones for answer, (_, asked) in zip(answer_all(pairs), pairs, strict=True)])
        coordinator.accept([[next(ones) for _ in each.questions] for each in rounds])
        if progress is not None:
            progress(coordinator.done, coordinator.planned)
    coordinator.finish()
