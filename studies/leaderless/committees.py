"""How safe a committee is that was drawn by lot, and groups of a tree: exact numbers, no simulation.

Of K peers F lie. A committee of m = 3f + 1 is drawn among all K, and q = (m + f)//2 + 1 of its members have to sign.
With at most f liars in it no two histories can both be signed. The number of liars in it is hypergeometric, so

    P(broken) = Σ_{l > f} C(F, l)·C(K − F, m − l) / C(K, m)

is a quotient of whole numbers. A committee that is drawn anew in every round is broken in some round with at most
`rounds` times that. Groups of a tree are such committees beside each other: some group is broken with at most
(number of groups) times that, and a broken group may report any sum.
"""

from fractions import Fraction
from math import comb
from typing import NamedTuple


def tolerated(members: int) -> int:
    """The most liars among so many members with which no two histories can both be signed.

    >>> [tolerated(members) for members in (3, 4, 7, 31)]
    [0, 1, 2, 10]
    """
    return (members - 1) // 3


def signing_quorum(members: int, liars: int) -> int:
    """The smallest whole number above (members + liars)/2.

    >>> signing_quorum(5, 1), signing_quorum(3, 0), signing_quorum(4, 1)
    (4, 2, 3)
    """
    return (members + liars) // 2 + 1


def two_histories(members: int, quorum: int, liars: int) -> bool:
    """Whether liars who sign both can get two histories signed by a quorum each; the others sign one each.

    >>> two_histories(5, 4, 1), two_histories(5, 4, 3)
    (False, True)
    """
    honest = members - liars
    return honest >= 2 * (quorum - liars) or quorum <= liars


def broken(peers: int, liars: int, members: int) -> Fraction:
    """The probability that a committee drawn among the peers has more liars than it tolerates.

    >>> broken(4, 1, 4), broken(6, 2, 4)
    (Fraction(0, 1), Fraction(2, 5))
    """
    above = range(tolerated(members) + 1, min(liars, members) + 1)
    ways = sum(comb(liars, found) * comb(peers - liars, members - found) for found in above)
    return Fraction(ways, comb(peers, members))


def smallest(peers: int, liars: int, risk: Fraction) -> int | None:
    """The smallest committee of m = 3f + 1 members whose risk, and that of every larger one, is at most `risk`.

    None where not even all peers together tolerate the liars.

    >>> smallest(100, 10, Fraction(1, 10**6)), smallest(100, 40, Fraction(1, 100))
    (28, None)
    """
    found = None
    for members in reversed(range(1, peers + 1, 3)):
        if broken(peers, liars, members) > risk:
            break
        found = members
    if found is None and liars <= tolerated(peers):
        return peers
    return found


class Committee(NamedTuple):
    """How large a committee has to be, by peers, liars and risk."""

    peers: int
    liars: int
    risk: float
    """At most this for the one committee of a run."""
    members: int
    """0 where not even all peers together tolerate so many liars."""
    quorum: int
    probability: float
    """That it is broken, exact."""
    every_round: int
    """Members where 500 committees are drawn, one per round, at the same risk for the run."""


class Groups(NamedTuple):
    """A tree whose leaves are groups drawn by lot."""

    peers: int
    liars: int
    group: int
    one: float
    """The probability that one given group is broken: also the expected share of peers whose group's sum may be
    anything."""
    any: float
    """At most this is the probability that some group is broken."""


def committee(peers: int, liars: int, risk: Fraction) -> Committee:
    """The smallest committee at this risk."""
    members = smallest(peers, liars, risk) or 0
    if not members:
        return Committee(peers, liars, float(risk), 0, 0, 1.0, 0)
    quorum = signing_quorum(members, tolerated(members))
    probability = float(broken(peers, liars, members))
    return Committee(peers, liars, float(risk), members, quorum, probability, smallest(peers, liars, risk / 500) or 0)


def groups(peers: int, liars: int, group: int) -> Groups:
    """Groups of equal size."""
    one = broken(peers, liars, group)
    return Groups(peers, liars, group, float(one), float(min(Fraction(1), one * (peers // group))))
