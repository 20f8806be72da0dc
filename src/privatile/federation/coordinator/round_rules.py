"""Rules that look at a run's counts: when a round may be closed, and whose counts are impossible. Pure functions."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from privatile.federation.coordinator.answer_intake import AnswerIntake
from privatile.federation.study.study import FederationStudy
from privatile.server.coordinator import Track

IMPOSSIBLE = "its share of ones over all rounds is impossible under its truth rate (5 standard errors)"
"""Why a client of `impossible_clients` is put in quarantine."""


class Closing(NamedTuple):
    """Whether a round may be closed now; if not, why the run has to pause (empty while it only waits)."""

    allowed: bool
    pause: str = ""


def may_close(intake: AnswerIntake, study: FederationStudy, tracks: Sequence[Track], *, late: bool) -> Closing:
    """Close at once when every client has answered, else at the quorum or, when it is `late`, at the deadline.

    The run goes on without silent clients as far as the study's patience allows.
    """
    missing = intake.missing
    if pause := quarantine_pause(intake):
        return Closing(False, pause)
    if not missing:
        return Closing(True)
    if len(intake.answers) < study.quorum and not late:
        return Closing(False)
    absence = must_wait_for(missing, tracks, study.patience)
    if absence:
        return Closing(False, absence if late else "")
    if not intake.answers:
        return Closing(False, "no client answered within the deadline")
    return Closing(True)


def quarantine_pause(intake: AnswerIntake) -> str:
    """Why the run pauses until the organizer has decided about a client; empty where there is none to decide about."""
    if not intake.quarantined:
        return ""
    names = ", ".join(sorted(intake.quarantined))
    return f"quarantined: {names}. Decide with `privatile federation resume` or `abort`"


def must_wait_for(missing: Sequence[str], tracks: Sequence[Track], patience: int) -> str:
    """Why a round cannot be closed without the answers of these clients; empty when it can."""
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
            if client.mechanism.impossible(ones, asked):
                yield client.name
