"""What needs trust: local quantiles and digests that leave the client as they are, and one holder of all records.

t-digests are those of `fastdigest`, the exponential mechanism that of OpenDP (`pip install -r
benchmarks/compared/requirements.txt`); without them these rows are left out.
"""

import importlib
from typing import Any

import numpy as np
from benchmarks.compared.nonadaptive import crossing

from privatile.core.arrays import Floats

CANDIDATES = 4096
"""Values among which the exponential mechanism chooses; cells of the noisy histogram are 256."""


def average_of_quantiles(clients: Floats, level: float) -> float:
    """No privacy: every client sends its own quantile, and they are averaged."""
    return float(np.quantile(clients, level, axis=1).mean())


def merged_digests(clients: Floats, level: float) -> float:
    """No privacy: every client sends a t-digest of its records (100 centroids), and they are merged."""
    library = importlib.import_module("fastdigest")
    parts = [library.TDigest.from_values(part, max_centroids=100) for part in clients]
    return float(library.merge_all(parts).quantile(level))


def exponential_mechanism(records: Floats, level: float, epsilon: float) -> float:
    """Central: OpenDP's private quantile among equally spaced candidates; a person may be replaced by another.

    OpenDP counts a replaced person as one record gone and one come: a distance of 2.
    """
    return float(_opendp(importlib.import_module("opendp.prelude"), records.size, level, epsilon)(records))


_MADE: dict[tuple[int, float, float], Any] = {}


def _opendp(dp: Any, size: int, level: float, epsilon: float) -> Any:
    """The mechanism with the noise that spends ε; made once for every setting."""
    key = (size, level, epsilon)
    if key not in _MADE:
        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
        candidates = np.linspace(0.0, 1.0, CANDIDATES)

        def made(scale: float) -> Any:
            return space >> dp.m.then_private_quantile(dp.max_divergence(), candidates, level, scale)

        _MADE[key] = dp.binary_search_chain(made, d_in=2, d_out=epsilon, T=float)
    return _MADE[key]


def noisy_histogram(records: Floats, level: float, epsilon: float, rng: np.random.Generator, cells: int = 256) -> float:
    """Central: counts of cells with Laplace noise of scale 2/ε (a replaced person changes two counts by one)."""
    counts = np.histogram(records, bins=cells, range=(0.0, 1.0))[0] + rng.laplace(scale=2.0 / epsilon, size=cells)
    return crossing(np.cumsum(counts) / counts.sum(), level)
