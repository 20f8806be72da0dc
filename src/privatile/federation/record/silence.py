"""Who was silent in a run, by its counts, and whether its coordinator kept the study's rules about that.

A coordinator uses the last answer of a silent client again, for at most `patience` rounds in a row; then it has to wait
(`coordinator.round_rules`). Otherwise it could call a client silent whenever it dislikes the count, for the whole run.
A round is closed at the quorum or, with fewer answers, at its deadline: the counts cannot show the deadline, so they
only show how often there were fewer.
"""

from collections.abc import Container
from typing import NamedTuple

from privatile.federation.record.checks import Checks
from privatile.federation.record.transcript import Exchanges
from privatile.federation.study.study import FederationStudy

MOST_NAMED = 10
"""Clients named in one line; the others are counted."""


class Silence(NamedTuple):
    """How often one client was silent."""

    client: str
    rounds: int
    longest: int
    """Rounds in a row."""


def silence_of(client: str, answered: list[bool]) -> Silence:
    """Count the rounds without an answer.

    >>> silence_of("south", [True, False, False, True, False])
    Silence(client='south', rounds=3, longest=2)
    """
    longest = in_a_row = 0
    for here in answered:
        in_a_row = 0 if here else in_a_row + 1
        longest = max(longest, in_a_row)
    return Silence(client, answered.count(False), longest)


def check_silence(checks: Checks, study: FederationStudy, exchanged: Exchanges, countersigned: Container[str]) -> None:
    """Check the counts against the study's rules, and flag the silence of clients that have not countersigned.

    A client that has countersigned tells itself which answers it gave. A count that is missing at one level is silence.
    """
    numbers = sorted({number for number, _ in exchanged})
    answered = {client: [None not in exchanged[number, client].ones for number in numbers] for client in study.clients}
    answers = [sum(here) for here in zip(*answered.values(), strict=True)]
    silent = [one for one in (silence_of(*each) for each in answered.items()) if one.rounds]
    beyond = [f"{one.client} for {one.longest:,}" for one in silent if one.longest > study.patience]
    checks.add(
        f"no client was silent for more than {study.patience:,} rounds in a row, the study's patience",
        not beyond,
        ", ".join(beyond[:MOST_NAMED]),
    )
    empty = answers.count(0)
    checks.add("every round has an answer", not empty, f"{empty:,} have none")
    untold = sorted((one for one in silent if one.client not in countersigned), key=lambda one: -one.rounds)
    if not untold:
        return
    named = "; ".join(
        f"{one.client} in {one.rounds:,} of {len(numbers):,} rounds, at most {one.longest:,} in a row"
        for one in untold[:MOST_NAMED]
    )
    more = f"; and {len(untold) - MOST_NAMED:,} more clients" if len(untold) > MOST_NAMED else ""
    few = sum(count < study.quorum for count in answers)
    checks.flagged.append(
        f"silent clients, by the coordinator's word alone: {named}{more}. Rounds closed with fewer answers than the "
        f"quorum of {study.quorum:,}: {few:,}. Answers that were left out by somebody who had seen them would bias the "
        "result; a countersignature of the client shows whether it had answered"
    )
