"""Own entries that were published and not yet read in the log, and when to publish each of them again.

A second copy does no harm, but costs everybody a message; a lost entry costs a wait. So the time depends on what
own entries usually take. What the servers say of an entry moves it, and decides nothing else.
"""

from collections import deque
from dataclasses import dataclass
from statistics import median

from privatile_leaderless.chain import payload_digest

RETRY, LONGEST_RETRY, LATE = 0.3, 2.4, 4.0
"""Seconds until an entry that was not seen is published again, doubling each time up to the second number, and how many
times the usual delay it must be late at least: on a slow network or machine it is given more time."""

STORED = 5.0
"""Seconds until that, where the servers have said that they hold it."""

REFUSED = 0.1
"""Seconds until that, where the log had no leader to take it."""

DELAYS = 9
"""Own entries whose median time until they are read back is the usual delay: a server that is lost leaves it alone."""


@dataclass
class _Unseen:
    payload: bytes
    since: float
    at: float
    """When to publish it again."""
    wait: float = RETRY
    """The last wait, where nothing is known of the usual delay."""


class Outbox:
    """What is unseen, by digest.

    >>> box = Outbox()
    >>> digest = box.add(b"an entry", now=0.0)
    >>> box.due(0.2), box.due(0.3), box.due(0.4)
    ([], [b'an entry'], [])
    >>> box.stored(digest, now=0.5)
    >>> box.due(5.0), box.seen(b"an entry", now=5.1), box.due(100.0), box.delay, box.retry
    ([], None, [], 5.1, 20.4)
    """

    def __init__(self) -> None:
        self._unseen: dict[str, _Unseen] = {}
        self._delays: deque[float] = deque(maxlen=DELAYS)
        self.delay = 0.0
        """How long an entry usually takes until it is read back."""

    def __contains__(self, payload: bytes) -> bool:
        return payload_digest(payload) in self._unseen

    @property
    def retry(self) -> float:
        """Seconds until an entry is published again for the first time."""
        return max(RETRY, LATE * self.delay)

    def add(self, payload: bytes, now: float) -> str:
        """An entry is published for the first time; gives its digest."""
        digest = payload_digest(payload)
        self._unseen[digest] = _Unseen(payload, now, now + self.retry)
        return digest

    def seen(self, payload: bytes, now: float) -> None:
        """An entry was read in the log."""
        found = self._unseen.pop(payload_digest(payload), None)
        if found is not None:
            self._delays.append(now - found.since)
            self.delay = median(self._delays)

    def due(self, now: float) -> list[bytes]:
        """What to publish again now."""
        found = [one for one in self._unseen.values() if now >= one.at]
        for one in found:
            one.wait = min(2.0 * one.wait, LONGEST_RETRY)
            one.at = now + max(one.wait, self.retry)
        return [one.payload for one in found]

    def next_at(self, latest: float) -> float:
        """When there is something to publish again, at the latest then."""
        return min((one.at for one in self._unseen.values()), default=latest)

    def stored(self, digest: str, now: float) -> None:
        """The servers say that they hold this entry."""
        if digest in self._unseen:
            self._unseen[digest].at = max(self._unseen[digest].at, now + STORED)

    def refused(self, digest: str, now: float) -> None:
        """The servers had no leader to take this entry."""
        if digest in self._unseen:
            self._unseen[digest].at = min(self._unseen[digest].at, now + REFUSED)
