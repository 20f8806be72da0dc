"""How many organizations sign, close and lie: what a study without a coordinator says, and its rules."""

from collections.abc import Iterator

from privatile.core.decoding import Place
from privatile.core.text import short
from privatile.errors import InputError
from privatile.federation.study import FederationStudy
from privatile.federation.wire import MAX_ASK

NOTE_BYTES = 900
"""A bound of a signed vote, or of a restored ledger, as a closed round holds it."""


def is_leaderless(study: FederationStudy) -> bool:
    """Whether a study has no coordinator."""
    return "tolerate" in study.extra


def liars(study: FederationStudy) -> int:
    """f, how many organizations may lie; an error where the study has a coordinator."""
    if not is_leaderless(study):
        raise InputError("the study has a coordinator: only a study with `tolerate` is signed by a quorum.")
    return int(study.extra["tolerate"])


def signing(study: FederationStudy) -> int:
    """q, the smallest whole number above (K + f)/2: that many of the K organizations sign what counts as the history.

    Two quorums have more than f organizations in common.
    """
    return (len(study.clients) + liars(study)) // 2 + 1


def closing(study: FederationStudy) -> int:
    """f + 1: so many close a round without everybody's answer, one of them honest at least."""
    return liars(study) + 1


def closed_round_bytes(study: FederationStudy) -> int:
    """A bound of a closed round with every signed answer, the votes that close it and a quorum's to abort.

    It is one entry of a log, for those who lack the round. What is left of an entry is for other votes.
    """
    answers = len(study.clients) * (700 + 70 * len(study.levels))
    return answers + (closing(study) + signing(study)) * NOTE_BYTES


def broken_rules(study: FederationStudy) -> Iterator[tuple[Place, str]]:
    """Every rule that a study without a coordinator breaks, with the place of its setting."""
    clients, tolerate = len(study.clients), study.extra["tolerate"]
    if type(tolerate) is not int:
        yield ("tolerate",), f"must be a whole number of organizations; got {tolerate!r:.60}."
        return
    fewest = 3 * tolerate + 1
    if tolerate < 0:
        yield ("tolerate",), f"must be at least 0 organizations; got {short(tolerate)}."
    elif clients < 2:
        rule = f"must be at least 2 in a study without a coordinator, who agree with each other; got {clients}."
        yield ("clients",), rule
    elif clients < fewest:
        rule = f"{short(tolerate)} takes at least {short(fewest)} clients; the study has {clients}."
        yield ("tolerate",), f"{rule} With fewer, liars could lead the others along two histories."
    if clients and study.quorum != clients:
        rule = f"must be left out, or be {clients}, in a study without a coordinator: there a round closes when all"
        yield ("quorum",), f"{rule} have answered, or after its deadline; got {short(study.quorum)}."
    # A closed round is one entry of a log, for those who lack it, with the votes of a quorum for one decision at least.
    size = 0 if tolerate < 0 else closed_round_bytes(study) + signing(study) * NOTE_BYTES
    if size > MAX_ASK:
        rule = f"a closed round of {clients:,} clients would take about {size:,} bytes, and an entry may have"
        rule = f"{rule} {MAX_ASK:,}: without a coordinator ask fewer clients, or for fewer levels."
        yield ("clients",), rule
    if study.is_open:
        rule = 'cannot be "open" in a study without a coordinator. Choose another design, or a coordinator.'
        yield ("design",), rule
