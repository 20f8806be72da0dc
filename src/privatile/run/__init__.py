"""The side that asks: `Coordinator` turns state into questions and counts into the next state, `RunStore` keeps a run.

Nothing here is private: a run's file holds its specification and every round's counts. How questions and answers
travel is left to the caller (`privatile.api` in one process, `privatile.federation` over a broker). `RunView` is the
one reader of a file, `status` says where its run stands. `web` holds what the pages that watch a run share.
"""

from privatile.run.coordinator import ClientTotals, Coordinator, LevelRound, LevelRun, new_run_name
from privatile.run.locks import claim, writer_lives
from privatile.run.run_file import RunStore, StoredRound
from privatile.run.view import RunView

__all__ = [
    "ClientTotals",
    "Coordinator",
    "LevelRound",
    "LevelRun",
    "RunStore",
    "RunView",
    "StoredRound",
    "claim",
    "new_run_name",
    "writer_lives",
]
