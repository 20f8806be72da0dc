"""Survey weights in a federation: weight classes of a site are clients of the study, agreed like everything else.

    [clients.north-1]
    site = "north"            # whose records these are: all classes of a site have the same
    weights = [1.0, 1.2]      # the smallest and the largest weight of the class

A site joins once for each of its classes, with one file and one folder. It takes the records of the class from its file
and lets each take part with probability w/w_max, by its own draw (`client.order.strata`). Shares of the total weight,
numbers of records and bounds are agreed in the study and are public.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from privatile.client.order.weight_classes import AgreedClass
from privatile.client.sources.source import ONLY_CLIENT

if TYPE_CHECKING:
    from privatile.federation.study.study import ClientAgreement


def agreed_class(clients: "Mapping[str, ClientAgreement]", client: str) -> AgreedClass | None:
    """The weight class that a client answers for, with all classes of its site; None where it has no weights."""
    own = clients[client]
    if own.weights is None:
        return None
    every = (one.weights for one in clients.values() if one.site == own.site and one.weights is not None)
    return AgreedClass(own.weights, tuple(sorted(every)))


def name_in_ledger(clients: "Mapping[str, ClientAgreement]", client: str) -> str:
    """A site has one name for itself in its ledger, whatever a study calls it, and one for each weight class."""
    found = agreed_class(clients, client)
    return ONLY_CLIENT if found is None else found.name


def broken_classes(clients: "Mapping[str, ClientAgreement]") -> Iterator[tuple[str, ...]]:
    """Broken rules, each followed by its place among the clients."""
    sites: dict[str, list[tuple[tuple[float, float], str]]] = {}
    for name, agreement in clients.items():
        if (agreement.weights is None) != (agreement.site is None):
            yield "site and weights go together: whose records they are, and the weights of the class.", name
        elif agreement.weights is not None and agreement.site is not None:
            low, high = agreement.weights
            if not 0.0 < low <= high:
                rule = f"must be positive and rise: the smallest and the largest weight; got {low:g} to {high:g}."
                yield rule, name, "weights"
            sites.setdefault(agreement.site, []).append((agreement.weights, name))
    for own in sites.values():
        for ((_, high), _), ((low, _), name) in pairwise(sorted(own)):
            if low <= high:
                yield "the classes of one site must not overlap: its records would answer twice.", name, "weights"
