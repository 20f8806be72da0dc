"""What knowing the clients' ranks, or having the file itself as the target, takes off the variance of a run."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats, array_namespace
from privatile.core.mechanism import rank_noise, report_variance
from privatile.estimator.plan import Plan, RoundState
from privatile.estimator.step import local_ranks


def variance_share(state: RoundState, plan: Plan) -> float:
    """Share of the noise that is left when the clients' ranks are known; see `known_share`."""
    if not all(state.window_asked):
        return 1.0
    clients = plan.clients
    return float(
        known_share(
            np.array([client.weight for client in clients]),
            np.array([client.mechanism.truth_rate for client in clients]),
            np.array([client.records for client in clients]),
            np.array(local_ranks(state, plan)),
            np.array(state.window_asked),
        )
    )


def known_share(weights: Floats, rates: Floats, records: NDArray[Any], ranks: Floats, asked: NDArray[Any]) -> Floats:
    """Σp_k²σ_k²/n_k over Σp_k²/(4r_k²n_k), clients along the last axis.

    σ_k² = (r_k⁻² − (2F_k − 1)²)/4; (2F_k − 1)² is estimated from the client's own answers, its upward bias 4·Var(F̂_k)
    removed.

    >>> one = np.array([1.0])
    >>> round(float(known_share(one, 0.5 * one, 100 * one, 0.9 * one, 1e9 * one)), 4)  # 1 − r²(2F − 1)²
    0.84
    """
    xp = array_namespace(ranks)
    inside = xp.clip(ranks, 0.0, 1.0)
    doubt = report_variance(rates, inside) / asked
    tilt = xp.clip((2.0 * ranks - 1.0) ** 2 - 4.0 * doubt, 0.0, 1.0)
    saved = weights**2 * tilt / (4.0 * records)
    # Without privacy, and with every record on one side, nothing would be left: a variance of 0 weighs infinitely.
    share: Floats = xp.maximum(1.0 - saved.sum(axis=-1) / rank_noise(weights, rates, records).sum(axis=-1), 1e-6)
    return share


def file_share(state: RoundState, plan: Plan, asked: Sequence[int], wander: float, inflation: float = 1.0) -> float:
    """Share of the variance that is left when the file itself is the target.

    Without replacement, sampling errs twice alike: in the answers and in the file's own quantile. Of a record's σ² its
    own F(1 − F) cancels for the share φ of the file that was `asked`, as far as it was asked about the quantile itself:
    (r⁻² − 1)/4 + (1 − φ)F(1 − F) + φ·wander remain, wander = f·mean|q − Q|. `inflation` is what the variance of the
    estimate exceeds Σp_k²σ_k²/n_k by. F is estimated from the client's own reports; its noise makes F(1 − F) smaller on
    average, which errs on the wide side.
    """
    whole = saved = 0.0
    for client, rank, count in zip(plan.clients, local_ranks(state, plan), asked, strict=True):
        if not count or math.isnan(rank):
            return 1.0
        share = min(max(rank, 0.0), 1.0)
        whole += client.weight**2 * client.mechanism.variance(share) / count
        saved += client.weight**2 * max(0.0, share * (1.0 - share) - wander) / client.file_size
    return 1.0 - saved / (whole * inflation)
