"""Larger federations without a coordinator: python -m studies.leaderless.run

Writes rounds.csv (messages, bytes and time of a round by shape and number of peers), committees.csv (how large a
committee has to be) and groups.csv (how often a group of a tree is broken). Takes a few seconds.
"""

import argparse
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from studies.coverage.rows import write_rows
from studies.leaderless import committees, shapes
from studies.leaderless.shapes import Costs, Round

RESULTS = Path(__file__).parent / "results"

MEASURED = Costs(sign=3.9e-5, read=1.75e-4, check=6.9e-5, append=1.7e-4, deliver=1.1e-5, answer=3.1e-3, hop=0.0)
"""`python -m studies.leaderless.costs`, medians of 4, 16 November 2026, two cores at a load of 5, nats-server 2.15."""

HOPS = (0.0005, 0.02)
"""Seconds one way, assumed: in one building, and between two ends of a continent."""

PEERS = (5, 20, 50, 100, 200, 500, 1000)
LIARS = (0.1, 0.2, 0.25)
"""Shares of all peers."""

RISKS = (Fraction(1, 10**6), Fraction(1, 10**9))
COMMITTEE_RISK, COMMITTEE_LIARS = Fraction(1, 10**9), 0.1
"""The committee of rounds.csv: the smallest at this risk with a tenth of liars."""


def all_rounds() -> Iterator[Round]:
    """Every shape, number of peers and distance."""
    for hop in HOPS:
        costs = MEASURED._replace(hop=hop)
        for peers in PEERS:
            yield shapes.everybody(peers, costs)
            if peers >= 20:
                members = committees.smallest(peers, int(COMMITTEE_LIARS * peers), COMMITTEE_RISK)
                yield shapes.committee(peers, members or peers, costs)
                yield shapes.tree(peers, shapes.best_group(peers, costs), costs)


def main() -> None:
    """Write the three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    folder: Path = parser.parse_args().results
    write_rows(list(all_rounds()), folder / "rounds.csv", digits=4)
    sizes = [(peers, int(share * peers)) for peers in PEERS[3:] for share in LIARS]
    write_rows([committees.committee(*size, risk) for size in sizes for risk in RISKS], folder / "committees.csv")
    groups = [committees.groups(*size, group) for size in sizes for group in (10, 22, 31, 61) if 2 * group <= size[0]]
    write_rows(groups, folder / "groups.csv")


if __name__ == "__main__":
    main()
