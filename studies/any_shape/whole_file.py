"""One fixed file: every record answers once, in another order in every run; the target is the file's own quantile."""

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.mechanism import yes_probability
from privatile.simulation.default_design import AutoCell
from privatile.simulation.populations import Empirical, LogOf


class WholeFile:
    """The answers of clients whose populations are their files: `straddle` takes it in the place of drawn records."""

    def __init__(self, cell: AutoCell, rng: np.random.Generator, runs: int) -> None:
        self.rng, self.rates = rng, np.array(cell.truth_rates)
        self.used = np.zeros((runs, len(cell.records)), dtype=np.int64)
        self.orders: list[list[Floats]] = []
        columns = [_values(law) for law in cell.populations]
        for values, records in zip(columns, cell.records, strict=True):
            if len(values) != records:
                raise ValueError(f"a file of {len(values)} records cannot answer for {records}")
        for _ in range(runs):
            self.orders.append([rng.permutation(values) for values in columns])

    def counts(self, queries: Floats, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ones of every run's clients: their next records, each with its coin."""
        ones = np.zeros_like(lengths)
        for run, query in enumerate(queries.tolist()):
            for client, length in enumerate(lengths[run].tolist()):
                first = self.used[run, client]
                above = int((self.orders[run][client][first : first + length] > query).sum())
                high, low = yes_probability(self.rates[client], 1.0), yes_probability(self.rates[client], 0.0)
                ones[run, client] = self.rng.binomial(above, high) + self.rng.binomial(length - above, low)
        self.used += lengths
        return ones


def _values(law: object) -> Floats:
    """The records of a column, on the working scale."""
    if isinstance(law, LogOf):
        return np.log(_values(law.inner))
    if not isinstance(law, Empirical):
        raise TypeError(f"{type(law).__name__} is no file of records")
    return law.values
