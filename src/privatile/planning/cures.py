"""Where one small client costs most of the information: what would narrow the interval, before anyone is asked."""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from privatile.estimator.clients import Client, pooled_noise
from privatile.estimator.spec import RunSpec
from privatile.result.diagnostics import known_beforehand, two_digits
from privatile.result.result import Caveat
from privatile.result.rows import Row

WORTH_IT = 0.9
"""A cure that leaves the interval wider than this share of what it would be is none."""


class Cure(NamedTuple):
    """Another choice, and how many times as wide the interval would then be."""

    client: str
    """Who costs most."""
    option: str
    times_as_wide: float

    def to_text(self) -> str:
        """A sentence.

        >>> Cure("south", "--leave-out south", 0.2413).to_text()
        'With --leave-out south the interval would be about 0.24 times as wide.'
        """
        return f"With {self.option} the interval would be about {two_digits(self.times_as_wide)} times as wide."


def cures(spec: RunSpec) -> Iterator[Cure]:
    """What would help where the result would say that one client decides the width ("dominance"); else nothing.

    The interval is as wide as the square root of the pooled noise Σp²/(4r²n), whatever the level.
    """
    clients = spec.at_level(0)
    found = known_beforehand(spec.levels[0], clients, "any-shape")
    if not any(isinstance(one, Caveat) and one.code == "dominance" for one in found):
        return
    costly: str = next(one.value["client"] for one in found if isinstance(one, Row) and one.key == "dominance")
    if spec.weighting != "size" and spec.survey is None:
        total = sum(client.records for client in clients)
        by_size = [replace(client, weight=client.records / total) for client in clients]
        yield from _worth_it(costly, "--weights size", clients, by_size)
    others = [client for client in clients if client.held_by != costly]
    share = math.fsum(client.weight for client in others)
    left = [replace(client, weight=client.weight / share) for client in others]
    yield from _worth_it(costly, f"--leave-out {shlex.quote(costly)}", clients, left)


def _worth_it(costly: str, option: str, before: Sequence[Client], after: Sequence[Client]) -> Iterator[Cure]:
    times = math.sqrt(pooled_noise(after) / pooled_noise(before))
    if times < WORTH_IT:
        yield Cure(costly, option, times)
