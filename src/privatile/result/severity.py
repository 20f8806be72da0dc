"""How much a caveat weighs, by its code: one table for texts, pages, JSON and `reliable`.

unreliable   the estimate or its interval is not to be relied on
act          the interval holds, but the reader must know this before the result is used
note         a fact about this run that explains its result
standing     true of every run of its kind; the documentation explains it, texts and pages leave it out
"""

from collections.abc import Iterable
from typing import Literal, Protocol, TypeVar

Severity = Literal["unreliable", "act", "note", "standing"]

SEVERITIES: dict[str, Severity] = {
    "range": "unreliable",
    "unbounded": "unreliable",
    "half-open": "unreliable",
    "not-located": "unreliable",
    "contradiction": "unreliable",
    "not-validated": "unreliable",
    "misfit": "unreliable",
    "slope": "unreliable",
    "curvature": "unreliable",
    "relaxations": "unreliable",
    "unfinished": "unreliable",
    "nobody-yet": "unreliable",
    "moved": "act",
    "no-times": "act",
    "not-private": "act",
    "weak": "act",
    "declaration": "act",
    "chosen-later": "act",
    "out-of-reach": "act",
    "much-silence": "act",
    "waiting": "act",
    "thin-tail": "act",
    "support": "note",
    "goes-on": "note",
    "silent": "note",
    "one-sided": "note",
    "crossing": "note",
    "dominance": "note",
    "atom": "note",
    "dither": "note",
    "file": "note",
    "person": "note",
    "survey-weights": "note",
    "missing": "standing",
    "central": "standing",
    "unweighted": "standing",
}
"""Of every code, the most important first."""

LOST = frozenset({"range", "unbounded", "half-open", "not-located"})
"""Caveats under which the answers have not placed the quantile: its estimate is no number to print large."""

MOST_TO_ACT_ON = 3
"""Lines that a reader must act on before anything else; more than these are read by nobody."""

_ORDER = {code: place for place, code in enumerate(SEVERITIES)}


class Coded(Protocol):
    """Whatever has the code of a caveat."""

    @property
    def code(self) -> str:
        """The code, one of `SEVERITIES`."""


Found = TypeVar("Found", bound=Coded)


def most_important_first(*found: Found) -> tuple[Found, ...]:
    """In the order of the table: a quantile outside the range comes before all else.

    >>> from privatile.result.caveats import CENTRAL, unweighted
    >>> from privatile.result.result import Caveat
    >>> [caveat.code for caveat in most_important_first(CENTRAL, Caveat("range", ""), unweighted())]
    ['range', 'central', 'unweighted']
    """
    return tuple(sorted(found, key=lambda one: _ORDER[one.code]))


def to_act_on_and_rest(found: Iterable[Found]) -> tuple[list[Found], list[Found]]:
    """At most `MOST_TO_ACT_ON` that a reader must act on, then all others that are not standing remarks.

    >>> from privatile.result.result import Caveat
    >>> codes = ("central", "dominance", "weak", "slope", "misfit", "range")
    >>> first, rest = to_act_on_and_rest(Caveat(code, "") for code in codes)
    >>> [one.code for one in first], [one.code for one in rest]
    (['range', 'misfit', 'slope'], ['weak', 'dominance'])
    """
    shown = [one for one in most_important_first(*found) if SEVERITIES[one.code] != "standing"]
    first = [one for one in shown if SEVERITIES[one.code] in ("unreliable", "act")][:MOST_TO_ACT_ON]
    return first, [one for one in shown if one not in first]
