"""Messages, bytes and time of a round, by the shape in which many peers work together.

    everybody   every peer reads the question and all K answers: K² deliveries
    committee   K answers go to a committee of m; its signatures go with the next question to everybody: K·m + m² + K
    tree        groups of b do as `everybody` does, each in a log of its own, and sign their sum; everybody reads the
                sums: K·(1 + 2b + K/b)

A log appends one message after another; each of its servers delivers to its own readers, one delivery after another; a
reader reads one message after another. All three are queues, and the times are those of the last reader. Every cost was
measured (`costs.py`) but the time on the network, which is an assumption.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from studies.leaderless.committees import signing_quorum, tolerated

from privatile.core.arrays import Floats

QUESTION, ANSWER, SIGNATURE = 480, 560, 100
"""Bytes: a proposal for clients of equal size, an answer, one more signature with the name of its key."""

SHARE = 260
"""Bytes: a signature of a chain value or of a group's sum, as a message of its own."""


class Costs(NamedTuple):
    """Seconds, and what was measured where."""

    sign: float
    read: float
    """Check one signature, decode and take one message."""
    check: float
    """Check one more signature of the same bytes."""
    append: float
    """One message into the log, copied to the replicas and synced."""
    deliver: float
    """One message from a server to one reader."""
    answer: float
    """A cohort's count: the durable transaction of the ledger."""
    hop: float
    """One way between two machines: assumed."""


class Round(NamedTuple):
    """What one round costs, at one distance (`Costs.hop`)."""

    hop: float
    shape: str
    peers: int
    size: int
    """Of the committee, or of a group; all peers where everybody reads everything."""
    published: int
    """Messages into logs."""
    delivered: int
    """Messages to readers."""
    megabytes: float
    """Delivered to all of them together."""
    read: int
    """Messages that the busiest peer reads."""
    checked: int
    """Signatures that the busiest peer checks."""
    processor: float
    """Seconds of all processors together, peers and servers: what one machine would need for everybody."""
    seconds: float
    """On the clock, every peer and server on a machine of its own."""


def through_log(sent: Floats, readers: int, costs: Costs, servers: int, read: float) -> Floats:
    """When each reader of one server has read everything that was sent at these times."""
    places = np.arange(1, -(-readers // servers) + 1) * costs.deliver
    kept = delivered = 0.0
    done = np.zeros(len(places))
    for time in np.sort(sent) + costs.hop:
        kept = max(kept, time) + costs.append
        arrived = max(kept, delivered) + places
        delivered = float(arrived[-1])
        done = np.maximum(done, arrived + costs.hop) + read
    return done


def everybody(peers: int, costs: Costs, servers: int = 3) -> Round:
    """All read all."""
    asked = through_log(np.array([costs.sign]), peers, costs, servers, costs.read)
    answers = np.resize(asked, peers) + costs.answer + costs.sign
    done = through_log(answers, peers, costs, servers, costs.read)
    published = 1 + peers
    size = peers * (_question(peers) + peers * ANSWER)
    delivered = published * peers
    work = _work(published, delivered, 0, costs)
    seconds = float(done[-1])
    return Round(
        costs.hop, "everybody", peers, peers, published, delivered, size / 1e6, published, published, work, seconds
    )


def committee(peers: int, members: int, costs: Costs, servers: int = 3) -> Round:
    """A committee closes rounds; the others read the question with the committee's signatures of what was before."""
    quorum = signing_quorum(members, tolerated(members))
    certified = costs.read + quorum * costs.check
    asked = through_log(np.array([costs.sign]), peers, costs, servers, certified)
    answers = np.resize(asked, peers) + costs.answer + costs.sign
    counted = through_log(answers, members, costs, servers, costs.read)
    signed = through_log(np.resize(counted, members) + costs.sign, members, costs, servers, costs.read)
    question = _question(peers) + quorum * SIGNATURE
    delivered = peers + members * (peers + members)
    size = peers * question + members * (peers * ANSWER + members * SHARE)
    read = 1 + peers + members
    work = _work(read, delivered, peers * quorum, costs)
    seconds = float(signed[-1])
    return Round(
        costs.hop, "committee", peers, members, read, delivered, size / 1e6, read, read + quorum, work, seconds
    )


def tree(peers: int, group: int, costs: Costs, servers: int = 3) -> Round:
    """Groups count and sign their sums; everybody reads the sums and computes the next question."""
    groups, quorum = -(-peers // group), signing_quorum(group, tolerated(group))
    own = min(servers, group)
    asked = through_log(np.array([costs.sign]), group, costs, own, costs.read)
    answers = np.resize(asked, group) + costs.answer + costs.sign
    counted = through_log(answers, group, costs, own, costs.read)
    signed = through_log(np.resize(counted, group) + costs.sign, group, costs, own, costs.read)
    sums = np.full(groups, float(signed[-1]) + costs.sign)
    done = through_log(sums, peers, costs, servers, costs.read + quorum * costs.check)
    published = groups * (1 + 2 * group + 1)
    delivered = peers * (1 + 2 * group + groups)
    each = _question(groups) + group * (ANSWER + SHARE) + groups * (ANSWER + quorum * SIGNATURE)
    read = 1 + 2 * group + groups
    checked, work = groups * quorum, _work(published, delivered, peers * groups * quorum, costs)
    seconds = float(done[-1])
    return Round(
        costs.hop, "tree", peers, group, published, delivered, peers * each / 1e6, read, read + checked, work, seconds
    )


def _work(signed: int, delivered: int, checked: int, costs: Costs) -> float:
    """Processor seconds: signing, delivering and reading, and checking further signatures."""
    return signed * costs.sign + delivered * (costs.deliver + costs.read) + checked * costs.check


def _question(clients: int) -> int:
    """Bytes of a question where cohorts are of unequal size: 14 more per client."""
    return QUESTION + 14 * clients


def best_group(peers: int, costs: Costs, sizes: Sequence[int] = (4, 7, 10, 13, 16, 22, 31, 43, 61, 100)) -> int:
    """The size of a group that makes a round of the tree shortest."""
    return min((size for size in sizes if 2 * size <= peers), key=lambda size: tree(peers, size, costs).seconds)
