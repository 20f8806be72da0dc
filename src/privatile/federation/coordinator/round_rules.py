"""Rules that look at a run's counts: when a round may be closed, and whose counts are impossible. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from privatile.core.mechanism import RandomizedResponse
from privatile.federation.coordinator.answer_intake import AnswerIntake
from privatile.federation.study.study import FederationStudy
from privatile.server.coordinator import Track

IMPOSSIBLE = 5.0
"""Standard errors by which a share of ones must leave its possible range: 3·10⁻⁷ for an honest client at the edge."""


class Closing(NamedTuple):
    """Whether a round may be closed now; if not, why the run has to pause (empty while it only waits)."""

    allowed: bool
    pause: str = ""


def may_close(intake: AnswerIntake, study: FederationStudy, tracks: Sequence[Track], *, late: bool) -> Closing:
    """Close at once when every client has answered, else at the quorum or, when it is `late`, at the deadline.

    The last means of silent clients stand in for them, as far as the study's patience allows.
    """
    missing = intake.missing
    if intake.quarantined:
        names = ", ".join(sorted(intake.quarantined))
        return Closing(False, f"quarantined: {names}. Decide with `privatile federation resume` or `abort`")
    if not missing:
        return Closing(True)
    if len(intake.answers) < study.quorum and not late:
        return Closing(False)
    absence = _cannot_replace(missing, tracks, study.patience)
    if absence:
        return Closing(False, absence if late else "")
    if not intake.answers:
        return Closing(False, "no client answered within the deadline")
    return Closing(True)


def _cannot_replace(missing: Sequence[str], tracks: Sequence[Track], patience: int) -> str:
    """Why the last means of silent clients cannot stand in for them; empty when they can."""
    names = set(missing)
    for track in tracks:
        if track.ask is None:
            continue
        for client, used in zip(track.plan.clients, track.state.used, strict=True):
            if client.name not in names:
                continue
            if not used:
                return f"client {client.name} has never answered: the first round needs every client"
            if used - 1 >= patience:
                return f"client {client.name} has been silent for {used - 1} rounds"
    return ""


def impossible_clients(tracks: Sequence[Track]) -> Iterator[str]:
    """Clients whose share of ones over all rounds is impossible under their truth rate."""
    for track in tracks:
        for client, ones, asked in zip(track.plan.clients, track.state.ones, track.state.asked, strict=True):
            if impossible_share(ones, asked, client.mechanism):
                yield client.name


def impossible_share(ones: int, asked: int, mechanism: RandomizedResponse) -> bool:
    """Whether a cumulative share of ones leaves [(1−r)/2, (1+r)/2] by 5 standard errors: provably a lie.

    >>> coin = RandomizedResponse(0.5)
    >>> impossible_share(760, 1000, coin), impossible_share(900, 1000, coin), impossible_share(100, 1000, coin)
    (False, True, True)
    """
    if not asked:
        return False
    low = (1.0 - mechanism.truth_rate) / 2.0
    # At either end the variance of a report is the same, (1 − r²)/4.
    margin = IMPOSSIBLE * math.sqrt(low * (1.0 - low) / asked)
    share = ones / asked
    return share < low - margin or share > 1.0 - low + margin
