"""The questions between which the quantile lies: an interval that needs no smooth distribution."""

import math

import numpy as np

from privatile.core.arrays import Floats
from privatile.inference.anytime import mixture_bound
from privatile.laws.normal import one_sided_z

CUTS = (0.15, 0.3, 0.5, 0.7, 0.85)
"""Shares of the precision at which `Bracket` cuts the sorted questions."""

FAR_CUTS = (0.2, 0.7, 1.5, 6.0, 40.0)
"""Distances from the estimate at which it cuts as well, in reaches of the probes: all probes of one side are in one
group."""


class Bracket:
    """Between which questions the quantile lies, for any distribution, with atoms or gaps.

    F never falls. Where the answers to a stretch of questions average τ − F > 0 beyond chance, the lowest of them lies
    below Q; where they average τ − F < 0, the highest lies at or above. All stretches of neighbouring groups on one
    side of the estimate are tried, with a Bonferroni correction for their number. `center` and `reach` (that of the
    probes) only place the groups.

    Answers may be those of several clients: `residuals` and `precisions` are rounds × clients, a precision 0 where a
    client was silent. No client's F falls, so the mean of its own answers stands for it in a stretch, Σp_k·ȳ_k with the
    `weights` p_k; where a client has none there, the stretch says nothing.

    At a look that was chosen while looking, every stretch has Robbins' bound in the place of the normal value: its sum
    is one of answers whose questions were known before they came, and its clock is its share of the precision of all
    records. Where the groups lie follows the answers, at the planned end as at every look: that is measured
    (`tests/statistical/test_stopped.py`), not proven.
    """

    def __init__(
        self, queries: Floats, residuals: Floats, precisions: Floats, weights: Floats, center: float, reach: float
    ) -> None:
        order = np.argsort(queries, kind="stable")
        asked, answered, precise = queries[order], residuals[order], precisions[order]
        precision = precise.sum(axis=1)
        before = (np.cumsum(precision) - 0.5 * precision) / precision.sum()
        far = np.array(FAR_CUTS) * reach
        # Rounds of equal length lie exactly on a cut: rounding must not decide on which side.
        group = np.searchsorted(np.array(CUTS) + 1e-9, before) + np.searchsorted(
            np.concatenate([center - far[::-1], center + far]), asked
        )
        parts = [np.flatnonzero(group == k) for k in np.unique(group)]
        sums = np.array([(precise[part] * answered[part]).sum(axis=0) for part in parts])
        totals = np.array([precise[part].sum(axis=0) for part in parts])
        middle = min(int(np.searchsorted([asked[part[-1]] for part in parts], center)), len(parts) - 1)

        def tested(first: int, last: int) -> tuple[float, float]:
            """How many standard errors the mean of a stretch lies above zero, and its clock."""
            total = totals[first : last + 1].sum(axis=0)
            if not bool((total > 0.0).all()):
                return math.nan, 0.0  # beyond nothing, on either side
            variance = float((weights**2 / total).sum())
            mean = weights @ (sums[first : last + 1].sum(axis=0) / total)
            return float(mean / math.sqrt(variance)), float((weights**2 / totals.sum(axis=0)).sum() / variance)

        # Stretches that reach beyond the estimate's own group to its other side would only be diluted by it.
        below = [(first, last) for first in range(middle + 1) for last in range(first, middle + 1)]
        above = [(first, last) for last in range(middle, len(parts)) for first in range(middle, last + 1)]
        scores, clocks = zip(*(tested(*stretch) for stretch in (*below, *above)), strict=True)
        lows, highs = scores[: len(below)], scores[len(below) :]
        self._below = [(float(asked[parts[first][0]]), score) for (first, _), score in zip(below, lows, strict=True)]
        self._above = [(float(asked[parts[last][-1]]), -score) for (_, last), score in zip(above, highs, strict=True)]
        self._clocks = list(clocks)

    def ends(self, confidence_level: float) -> tuple[float, float]:
        """Both ends at the planned end of a run; infinite on a side where no question was beyond chance."""
        least = one_sided_z((1.0 - confidence_level) / len(self._clocks))
        return self._beyond([least] * len(self._clocks))

    def ends_at_every_look(self, confidence_level: float, asked_share: float) -> tuple[float, float]:
        """Both ends, valid however often it is looked at; `asked_share` of all records have been asked."""
        each = 1.0 - 2.0 * (1.0 - confidence_level) / len(self._clocks)
        shares = [min(clock * asked_share, 1.0) for clock in self._clocks]
        return self._beyond([mixture_bound(share, each) if share > 0.0 else math.inf for share in shares])

    def _beyond(self, least: list[float]) -> tuple[float, float]:
        lows, highs = least[: len(self._below)], least[len(self._below) :]
        low = max((at for (at, score), z in zip(self._below, lows, strict=True) if score > z), default=-math.inf)
        high = min((at for (at, score), z in zip(self._above, highs, strict=True) if score > z), default=math.inf)
        return (low, high) if low <= high else (high, low)
