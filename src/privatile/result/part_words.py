"""What the clients of a run are called where people read: clients, or the strata of a survey."""

from typing import NamedTuple

STRATA = "strata"
"""The weighting of a survey's run: every client is a stratum, with the weight that its study gives."""


class PartWords(NamedTuple):
    """One of the parts whose mixture is estimated, and several."""

    one: str
    many: str


CLIENTS = PartWords("client", "clients")


def parts_of(weighting: str) -> PartWords:
    """The words for the clients of a run with this weighting; fields of formats keep their names.

    >>> parts_of("size").many, parts_of(STRATA).many
    ('clients', 'strata')
    """
    return PartWords("stratum", "strata") if weighting == STRATA else CLIENTS
