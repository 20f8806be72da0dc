"""The rows of a source in batches of about one size, whatever the source's own are."""

from collections.abc import Iterator

import numpy as np

from privatile.client.sources.source import Batch


def regrouped(batches: Iterator[Batch], size: int) -> Iterator[Batch]:
    """The same rows in batches of about `size`."""
    waiting: list[Batch] = []
    rows = 0
    for batch in batches:
        for start in range(0, len(batch.values), size):
            piece = batch.piece(start, start + size)
            waiting.append(piece)
            rows += len(piece.values)
            if rows >= size:
                yield _merged(waiting)
                waiting, rows = [], 0
    if waiting:
        yield _merged(waiting)


def _merged(batches: list[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    codes = [batch.codes for batch in batches if batch.codes is not None]
    people = [batch.people for batch in batches if batch.people is not None]
    weights = [batch.weights for batch in batches if batch.weights is not None]
    return Batch(
        np.concatenate([batch.values for batch in batches]),
        np.concatenate(codes) if codes else None,
        [person for group in people for person in group] if people else None,
        np.concatenate(weights) if weights else None,
    )
