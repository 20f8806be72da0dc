"""Who was silent in a run, by its counts, and whether its coordinator kept the study's rules about that.

Records of missed rounds are asked later only where the links that the client has signed before and after them show that
its ledger wrote nothing in between.

A coordinator goes on without a silent client for at most `patience` rounds in a row; then it has to wait
(`coordinator.round_rules`). Otherwise it could call a client silent whenever it dislikes the count, for the whole run.
A round is closed at the quorum or, with fewer answers, at its deadline: the counts cannot show the deadline, so they
only show how often there were fewer. A round of an open study closes by number and time, and waits for nobody.
"""

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from privatile.core.words import counted
from privatile.federation.record.checks import Checks
from privatile.federation.record.transcript import Exchanges
from privatile.federation.study.study import FederationStudy
from privatile.federation.wire.messages import Link

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


def check_unspent(checks: Checks, exchanged: Exchanges, links: Mapping[tuple[int, str], Link]) -> None:
    """Check by the signed links that no coin was drawn for what was asked again. `links` are by round and client."""
    before: dict[str, Link] = {}
    wrong = []
    for number, client in sorted(exchanged):
        exchange, link = exchanged[number, client], links.get((number, client))
        if exchange.unspent:
            last = before.get(client)
            if link is None or last is None or not link.adds_only(len(exchange.questions), last):
                wrong.append(f"{client} in round {number:,}")
        if link is not None:
            before[client] = link
    more = f" and {len(wrong) - MOST_NAMED:,} more" if len(wrong) > MOST_NAMED else ""
    checks.add(
        "records of missed rounds were asked later only where the client's ledger shows that no coin was drawn",
        not wrong,
        ", ".join(wrong[:MOST_NAMED]) + more,
    )


def flag_ledger_gaps(checks: Checks, exchanged: Exchanges, links: Mapping[tuple[int, str], Link]) -> None:
    """Flag clients whose signed links show entries of this run, between two counted answers, that no count stands for.

    A countersignature is not needed for this: whoever leaves an answer out cannot leave out its entry. An answer that
    came too late shows the same way, and so does a restored ledger.
    """
    before: dict[str, Link] = {}
    extra: Counter[str] = Counter()
    for key in sorted(exchanged.keys() & links.keys()):
        link, client = links[key], key[1]
        last, before[client] = before.get(client), link
        if last is not None:
            extra[client] += max(0, link.sequence - last.sequence - len(exchanged[key].questions))
    named = ", ".join(f"{client} ({count:,})" for client, count in sorted(extra.items()) if count)
    if named:
        checks.flagged.append(
            f"answers that were given and not counted, by entries of the clients' own ledgers: {named}. They came too "
            "late, were lost on the way or with a restored ledger, or were left out by somebody who had seen them, "
            "which would bias the result: ask these clients"
        )


def check_ledgers(
    checks: Checks, clients: Iterable[str], links: Mapping[tuple[int, str], Link], restored: Container[str]
) -> None:
    """Check that no client's ledger went back, but where its restore was declared. `links` are by round and client."""
    broken, across = [], []
    for client in clients:
        sequences = [links[key].sequence for key in sorted(links) if key[1] == client]
        if client in restored:
            across.append(client)
        elif any(later <= earlier for earlier, later in itertools.pairwise(sequences)):
            broken.append(client)
    checks.add("every client's ledger only went forward", not broken, ", ".join(broken))
    if across:
        checks.not_checked.append(f"the ledgers of {', '.join(sorted(across))} across their declared restore")


def check_silence(
    checks: Checks,
    study: FederationStudy,
    exchanged: Exchanges,
    countersigned: Container[str],
    *,
    closed_by: str = "the coordinator's word alone",
) -> None:
    """Check the counts against the study's rules, and flag the silence of clients that have not countersigned.

    A client that has countersigned tells itself which answers it gave. A count that is missing at one level is silence.
    """
    numbers = sorted({number for number, _ in exchanged})
    answered = {client: [None not in exchanged[number, client].ones for number in numbers] for client in study.clients}
    answers = [sum(here) for here in zip(*answered.values(), strict=True)]
    silent = [one for one in (silence_of(*each) for each in answered.items()) if one.rounds]
    if not study.is_open:  # there a client is silent while nobody comes
        beyond = [f"{one.client} for {one.longest:,}" for one in silent if one.longest > study.patience]
        checks.add(
            f"no client was silent for more than {counted(study.patience, 'round')} in a row, the study's patience",
            not beyond,
            ", ".join(beyond[:MOST_NAMED]),
        )
    empty = answers.count(0)
    checks.add("every round has an answer", not empty, f"without one: {empty:,}")
    untold = sorted((one for one in silent if one.client not in countersigned), key=lambda one: -one.rounds)
    if not untold:
        return
    named = "; ".join(
        f"{one.client} in {one.rounds:,} of {len(numbers):,} rounds, at most {one.longest:,} in a row"
        for one in untold[:MOST_NAMED]
    )
    more = f"; and {counted(len(untold) - MOST_NAMED, 'more client')}" if len(untold) > MOST_NAMED else ""
    few = sum(count < study.quorum for count in answers)
    why = ""  # the quorum closes a coordinator's round early
    if study.is_open:
        why = " In an open study a client is silent while nobody comes."
    elif study.extension is None:
        why = f" Rounds closed with fewer answers than the quorum of {study.quorum:,}: {few:,}."
    checks.flagged.append(
        f"silent clients, by {closed_by}: {named}{more}.{why} Answers that were left out by somebody "
        "who had seen them would bias the result; a countersignature of the client shows whether it had answered"
    )
