"""How both intervals fare on a cell: coverage, bounded share, widths over the oracle Wald, error over the bound."""

import math
from typing import Any, NamedTuple

import numpy as np
from studies.any_shape.simulation import straddle

from privatile.inference.any_shape import ends_of
from privatile.inference.smooth_reading import fit_smooth, low_information_factor, withdrawn
from privatile.laws.fieller import fieller_reach
from privatile.laws.normal import two_sided_z
from privatile.simulation.auto_simulation import AutoCell


class Measured(NamedTuple):
    """One cell."""

    name: str
    information: float
    runs: int
    any_coverage: float
    bounded: float
    any_width: float
    """Median over the oracle Wald (or in plain units where there is no density)."""
    any_width_90: float
    smooth_coverage: float
    smooth_width: float
    smooth_error: float
    low: float
    high: float
    """Median ends."""
    placed: float
    replaced: float
    searched: float
    spent: float
    withdrawn: float
    one_or_two: float
    up_to_five: float
    grid_coverage: float
    """Whole numbers declared: share of runs whose set has at most two, five values; coverage of the set."""


def on_host(value: Any) -> Any:
    return value.get() if hasattr(value, "get") else value


def measure(
    cell: AutoCell, runs: int, seed: int, xp: Any = np, unit: float | None = None, block: int = 5000
) -> Measured:
    parts = []
    for k, first in enumerate(range(0, runs, block)):
        found = straddle(cell, min(block, runs - first), xp.random.default_rng(seed + k), xp)
        low, high = ends_of(found.state.window.tests, 0.95)
        w = found.state
        fit = fit_smooth(found.queries, found.residuals, found.noise * found.share[:, None], cell.level, w.window)
        parts.append(
            [
                on_host(v)
                for v in (
                    low,
                    high,
                    fit.center,
                    fit.error,
                    fit.slope_error,
                    w.window.placed,
                    w.window.replaced,
                    w.searched,
                    w.spent,
                )
            ]
        )
    low, high, center, error, rho, placed, replaced, searched, spent = (
        np.concatenate(column) for column in zip(*parts)
    )
    truth = cell.truth
    # P(X ≤ q) near the truth: a low end at the quantile itself is an error of the test, but the closed interval holds it.
    count = np.where(np.isfinite(high - low), np.floor(high) - np.floor(low), np.inf)
    covers = (low <= truth) & (truth <= high)
    bounded = np.isfinite(low) & np.isfinite(high)
    wald = unit if unit is not None else 2 * two_sided_z(0.95) * cell.bound
    width = (high - low)[bounded] / wald
    z = two_sided_z(0.95) * low_information_factor(cell.information)
    reach = fieller_reach(z, rho) * error
    smooth = np.abs(center - truth) <= reach
    bound = math.sqrt(2 / math.pi) * (cell.bound if unit is None else unit / 3.92)
    return Measured(
        cell.name,
        cell.information,
        runs,
        float(covers.mean()),
        float(bounded.mean()),
        *(float(np.quantile(width, p)) if bounded.any() else math.nan for p in (0.5, 0.9)),
        float(smooth.mean()),
        float(np.median(2 * reach)) / wald,
        float(np.abs(center - truth).mean()) / bound,
        float(np.median(low)),
        float(np.median(high)),
        *(float(v.mean()) for v in (placed, replaced, searched, spent)),
        float(withdrawn(center, low, high).mean()),
        *(float((count <= most).mean()) for most in (2, 5)),
        float(((np.floor(low) < truth) & (truth <= np.floor(high))).mean()),
    )


HEAD = f"{'cell':44s} {'I':>7s} {'any':>6s} {'bound':>6s} {'width':>6s} {'q90':>6s} | {'smooth':>6s} {'width':>6s} {'error':>6s} | placed repl search share  ends"


def line(m: Measured) -> str:
    return (
        f"{m.name:44s} {m.information:7.0f} {m.any_coverage:6.4f} {m.bounded:6.4f} {m.any_width:6.3f} {m.any_width_90:6.2f} | "
        f"{m.smooth_coverage:6.4f} {m.smooth_width:6.3f} {m.smooth_error:6.3f} | {m.placed:4.1f} {m.replaced:5.2f} {m.searched:5.1f} {m.spent:.3f}  {m.low:.6g} {m.high:.6g} wd {m.withdrawn:.3f} set {m.one_or_two:.3f} {m.up_to_five:.3f} {m.grid_coverage:.4f}"
    )
