"""How far a run is, as lines of a service's log: soon after its start, and then ever more rarely."""

import logging

from privatile.core.words import duration
from privatile.federation.monitoring import facts

FIRST, LONGEST = 10.0, 3600.0
"""Seconds until the first line; each pause is twice the one before, up to the second number."""


class Progress:
    """Tells rounds, pace since the last line and what may be left; nothing where no round has closed since.

    >>> from unittest.mock import Mock
    >>> log = Mock()
    >>> progress = Progress(log, planned=400, done=0, now=0.0)
    >>> for now in range(41):
    ...     progress.tell(done=5 * now, now=float(now))
    >>> [tuple(call.kwargs["extra"]["facts"].values()) for call in log.info.call_args_list]
    [('50 of 400', 5.0, '70 s'), ('150 of 400', 5.0, '50 s')]
    """

    def __init__(self, log: logging.Logger, planned: int, done: int, now: float) -> None:
        """`planned` is 0 where nobody knows how many rounds there will be."""
        self._log, self._planned = log, planned
        self._done, self._since, self._pause = done, now, FIRST

    def tell(self, done: int, now: float) -> None:
        """So many rounds are done at this time of a clock that never goes back."""
        lasted = now - self._since
        if lasted < self._pause or done <= self._done:
            return
        pace = (done - self._done) / lasted
        rounds = f"{done} of {self._planned}" if self._planned else str(done)
        left = duration((self._planned - done) / pace) if self._planned > done else None
        self._log.info("progress", extra=facts(rounds=rounds, per_second=float(f"{pace:.3g}"), left=left))
        self._done, self._since, self._pause = done, now, min(2 * self._pause, LONGEST)
