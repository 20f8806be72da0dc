"""Votes that are cast and not yet decided, as a peer's file keeps them: everybody sees what others have voted for."""

import json
from collections.abc import Iterable
from typing import NamedTuple

from privatile.run.run_file import RunStore, Statement

MOST_UNDECIDED = 20
"""Decisions that are kept to be shown."""


class Undecided(NamedTuple):
    """A decision that does not hold yet."""

    action: str
    """abort, readmit or key."""
    client: str | None
    """Whom it is about; nobody where it is to abort."""
    voters: tuple[str, ...]

    @property
    def words(self) -> str:
        """What is voted for.

        >>> Undecided("readmit", "west", ("north",)).words, Undecided("abort", None, ("north",)).words
        ('to readmit west', 'to abort')
        """
        what = {"readmit": f"to readmit {self.client}", "key": f"for a new key of {self.client}"}
        return what.get(self.action, "to abort")


def undecided_rows(undecided: Iterable[Undecided]) -> list[Statement]:
    """What writes them, in the place of those before."""
    found: list[Statement] = [("DELETE FROM peer_undecided", ())]
    for place, one in enumerate(undecided):
        row = (place, one.action, one.client, json.dumps(one.voters))
        found.append(("INSERT INTO peer_undecided VALUES (?, ?, ?, ?)", row))
    return found


def read_undecided(store: RunStore) -> tuple[Undecided, ...]:
    """Those of a peer's file, those with the most votes first; none where it has no such table yet."""
    if not store.query("SELECT 1 FROM sqlite_master WHERE name = 'peer_undecided'"):
        return ()
    try:
        return tuple(
            Undecided(action, client, tuple(str(name) for name in json.loads(voters)))
            for action, client, voters in store.query(
                "SELECT action, client, voters FROM peer_undecided ORDER BY place"
            )
        )
    except (ValueError, TypeError, RecursionError):
        raise store.unreadable("its votes that are not yet decided are no names.") from None
