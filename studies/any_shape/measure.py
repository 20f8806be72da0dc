"""How both intervals fare on a cell: coverage, bounded share, widths over the oracle Wald, error over the bound."""

import math
from typing import Any, NamedTuple

import numpy as np

from privatile.inference.any_shape import ends_of
from privatile.inference.smooth_reading import fit_smooth, withdrawn
from privatile.laws.fieller import fieller_reach, low_information_factor
from privatile.laws.normal import two_sided_z
from privatile.simulation.auto_simulation import AutoCell
from privatile.simulation.straddled_simulation import straddle


class Measured(NamedTuple):
    """One cell. Widths are over the oracle Wald, in plain units where the population has no density."""

    name: str
    information: float
    runs: int
    any_coverage: float
    bounded: float
    any_width: float
    any_width_90: float
    """Median and 90% point of the bounded ones."""
    smooth_coverage: float
    smooth_width: float
    smooth_error: float
    """Mean absolute error over that of the efficiency bound."""
    withdrawn: float
    """Share of runs whose smooth centre lies outside the any-shape interval."""
    low: float
    high: float
    """Median ends."""
    placed: float
    replaced: float
    searched: float
    spent: float
    """Means: placements, those inside a block, rounds and share of the search."""
    one_or_two: float
    up_to_five: float
    grid_coverage: float
    """Whole numbers declared: share of runs whose set has at most two, five values; coverage of the set."""


def measure(
    cell: AutoCell, runs: int, seed: int, xp: Any = np, unit: float | None = None, block: int = 5000
) -> "Measured":
    """Run a cell in blocks and sum it up; `unit` measures widths where there is no density."""
    parts = []
    for k, first in enumerate(range(0, runs, block)):
        found = straddle(cell, min(block, runs - first), xp.random.default_rng(seed + k), xp)
        state = found.state
        low, high = ends_of(state.window.tests, 0.95)
        fit = fit_smooth(found.queries, found.residuals, found.noise * found.share[:, None], cell.level, state.window)
        facts = (state.window.placed, state.window.replaced, state.searched, state.spent)
        columns = (low, high, fit.center, fit.error, fit.slope_error, *facts)
        parts.append([column.get() if hasattr(column, "get") else column for column in columns])
    low, high, center, error, slope_error, *counted = (np.concatenate(column) for column in zip(*parts, strict=True))
    truth, bounded = cell.truth, np.isfinite(low) & np.isfinite(high)
    wald = 2 * two_sided_z(0.95) * cell.bound if unit is None else unit
    bound = math.sqrt(2 / math.pi) * wald / (2 * two_sided_z(0.95))
    width = (high - low)[bounded] / wald if bounded.any() else np.array([math.nan])
    reach = fieller_reach(two_sided_z(0.95) * low_information_factor(cell.information), slope_error) * error
    count = np.where(bounded, np.floor(np.where(bounded, high, 0.0)) - np.floor(np.where(bounded, low, 0.0)), np.inf)
    placed, replaced, searched, spent = (float(values.mean()) for values in counted)
    return Measured(
        cell.name,
        cell.information,
        runs,
        any_coverage=float(((low <= truth) & (truth <= high)).mean()),
        bounded=float(bounded.mean()),
        any_width=float(np.median(width)),
        any_width_90=float(np.quantile(width, 0.9)),
        smooth_coverage=float((np.abs(center - truth) <= reach).mean()),
        smooth_width=float(np.median(2 * reach)) / wald,
        smooth_error=float(np.abs(center - truth).mean()) / bound,
        withdrawn=float(withdrawn(center, low, high).mean()),
        low=float(np.median(low)),
        high=float(np.median(high)),
        placed=placed,
        replaced=replaced,
        searched=searched,
        spent=spent,
        one_or_two=float((count <= 2).mean()),
        up_to_five=float((count <= 5).mean()),
        grid_coverage=float(((np.floor(low) < truth) & (truth <= np.floor(high))).mean()),
    )


HEAD = f"{'cell':44s}       I    any  bound  width    q90 | smooth  width  error | placed repl search share  ends"


def line(found: "Measured") -> str:
    """A cell as one line of a table."""
    m = found
    parts = (
        f"{m.name:44s} {m.information:7.0f} {m.any_coverage:6.4f} {m.bounded:6.4f} {m.any_width:6.3f} "
        f"{m.any_width_90:6.2f}",
        f"{m.smooth_coverage:6.4f} {m.smooth_width:6.3f} {m.smooth_error:6.3f}",
        f"{m.placed:4.1f} {m.replaced:5.2f} {m.searched:5.1f} {m.spent:.3f}  {m.low:.6g} {m.high:.6g} "
        f"wd {m.withdrawn:.3f} set {m.one_or_two:.3f} {m.up_to_five:.3f} {m.grid_coverage:.4f}",
    )
    return " | ".join(parts)
