"""A client's records divided by their survey weights: each class a column of its own, less those who do not take part.

Who takes part is drawn once for every record, by a stream of the ledger's key: word i belongs to the holder's record i
of this column; where people are known, a keyed digest of the person takes its place, whatever the order of the rows. No
run, no question and no restart enters it, so that nobody is chosen by asking often enough. The key comes from the
operating system's randomness (`key_files`), and no one who lacks it can tell who takes part.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from privatile.client.order.spill import Shelf, Words
from privatile.client.order.weight_classes import AgreedClass, WeightClass, takes_part
from privatile.client.sources.source import ONLY_CLIENT
from privatile.core.messages import LONGEST_NAME
from privatile.errors import DataError, InputError


class Stratum(NamedTuple):
    """One weight class of one holder."""

    name: str
    holder: str
    weights: WeightClass | None
    """None where a column is not divided: all of it."""


class StratumRows(NamedTuple):
    """A class, and how many of its records take part; of these, how many have no value."""

    stratum: Stratum
    records: int
    missing: int


def person_draws(key: bytes, high: Words, low: Words) -> Words:
    """A person's draw for one column: a keyed digest of the two words by which the ledger knows the person.

    >>> one, two = np.array([1], dtype=np.uint64), np.array([2], dtype=np.uint64)
    >>> bool((person_draws(b"k" * 32, one, two) == person_draws(b"k" * 32, two, one)).any())
    False
    """
    start = hashlib.blake2b(key=key, digest_size=8)
    text, digests = np.stack([high, low], axis=1).astype("<u8").tobytes(), []
    for at in range(0, len(text), 16):
        one = start.copy()
        one.update(text[at : at + 16])
        digests.append(one.digest())
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64, copy=False)


def name_strata(classes: Mapping[str, Sequence[WeightClass]]) -> list[Stratum]:
    """The classes of all holders, lightest first, under names of their own."""
    strata = []
    for holder, own in classes.items():
        short = len({str(one) for one in own}) == len(own)
        for one in own:
            words = str(one) if short else f"weight {one.low!r} to {one.high!r}"
            name = words if holder == ONLY_CLIENT else f"{holder}, {words}"
            if len(name) > LONGEST_NAME:
                raise DataError(
                    f"with survey weights a client's name may have {LONGEST_NAME - len(words) - 2} characters, as the "
                    "names of its weight classes begin with it; the client column holds a longer one."
                )
            strata.append(Stratum(name, holder, one))
    return strata


def agreed_stratum(agreed: AgreedClass, holders: Sequence[str]) -> Stratum:
    """A class whose bounds are agreed, of the one holder there is."""
    if list(holders) != [ONLY_CLIENT]:
        raise InputError(
            "a class that was agreed is one of a site's own records: give one file without a client column."
        )
    low, high = agreed.bounds
    return Stratum(agreed.name, ONLY_CLIENT, WeightClass(low, high, 0, 0.0, 0.0))


def thinned(old: Shelf, new: Shelf, strata: Sequence[Stratum], bucket_rows: int) -> Iterator[StratumRows]:
    """Move the rows of every holder (tag, value, weight, draw, perhaps person) to its classes, less who is not drawn.

    What weighs nothing belongs to no class.
    """
    for holder in dict.fromkeys(stratum.holder for stratum in strata):
        own = [stratum for stratum in strata if stratum.holder == holder]
        bounds = [(one.weights.low, one.weights.high) for one in own if one.weights is not None]
        counts = [[0, 0] for _ in own]
        buckets = old.take(holder)
        for bucket, rows in enumerate(buckets.divide(bucket_rows)):
            if not rows:
                continue
            tags, values, weights, draws, *people = buckets.load(bucket)
            weight = weights.view(np.float64)
            for place, stratum in enumerate(own):
                low, high = bounds[place]
                kept = np.flatnonzero((weight >= low) & (weight <= high))
                kept = kept[takes_part(weight[kept], high, draws[kept])]
                counts[place][0] += len(kept)
                counts[place][1] += int(np.count_nonzero(np.isnan(values[kept].view(np.float64))))
                if len(kept):
                    new.add(stratum.name, (tags[kept], values[kept], *(half[kept] for half in people)))
        for stratum, (records, missing) in zip(own, counts, strict=True):
            yield StratumRows(stratum, records, missing)
