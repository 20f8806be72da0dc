"""Would one fit for nine levels give a narrower joint band? python -m studies.any_shape.joint_levels

Each level .1 … .9 has a ninth of the people, so its estimate is Q_j with standard error 3s/f_j, independent of the
others. One fit for all takes Q as a polynomial in logit τ with 5, 6 or 7 coefficients, weighted by these errors.
Rows of results/joint_levels.csv are the mean width of its joint band over that of nine separate estimates, and how
often it covers all nine quantiles; the band of separate estimates does in .95.

For the any-shape interval nothing is to be gained. The test of a candidate end for level j takes answers on one side of
it; those about another level have a mean of the wrong sign, at least 0.1 in rank, so that their best weight is 0.
"""

import math
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from studies.any_shape.cells import SMOOTH
from studies.coverage.rows import write_rows

from privatile.core.arrays import Floats
from privatile.laws.ratio import two_sided_z

LEVELS = np.arange(1, 10) / 10.0
RATE = math.tanh(0.5)
SIZES = (20_000, 120_000, 600_000)
PARAMETERS = (5, 6, 7)
DRAWS = 20_000
SEED = 20_261_116
RESULTS = Path(__file__).parent / "results" / "joint_levels.csv"


class Joint(NamedTuple):
    """One law, one size, one number of parameters."""

    law: str
    records: int
    parameters: int
    width: float
    covers: float
    draws: int
    date: str
    command: str


def joint_fit(errors: Floats, parameters: int) -> Floats:
    """The matrix that turns nine separate estimates into those of the joint fit."""
    place = np.log(LEVELS / (1.0 - LEVELS)) / 2.2
    basis = np.vander(place, parameters) / errors[:, None]
    hat = basis @ np.linalg.pinv(basis)
    fitted: Floats = hat * errors[:, None] / errors[None, :]
    return fitted


def band(truth: Floats, errors: Floats, parameters: int, rng: np.random.Generator) -> tuple[float, float]:
    """Width of the joint fit's band over that of separate estimates, and how often it covers all nine quantiles."""
    fitted = joint_fit(errors, parameters)
    spread = fitted * errors[None, :]
    joint = np.sqrt((spread**2).sum(axis=1))
    z = two_sided_z(0.95 ** (1.0 / len(LEVELS)))
    noise = rng.standard_normal((DRAWS, len(LEVELS))) @ spread.T
    # The critical value of correlated estimates, from the noise itself.
    critical = float(np.quantile(np.abs(noise / joint).max(axis=1), 0.95))
    off = fitted @ truth - truth + noise
    return float(np.mean(critical * joint / (z * errors))), float((np.abs(off / joint).max(axis=1) <= critical).mean())


def main() -> None:
    """All smooth laws, into the file."""
    command, rng, rows = "python -m studies.any_shape.joint_levels", np.random.default_rng(SEED), []
    for name, law in SMOOTH.items():
        truth = np.array([float(law.quantile(level)) for level in LEVELS])
        density = np.array([float(law.density(np.array(value))) for value in truth])
        for n in SIZES:
            errors = 3.0 / (2.0 * RATE * math.sqrt(n)) / density
            for count in PARAMETERS:
                width, covers = band(truth, errors, count, rng)
                rows.append(Joint(name, n, count, width, covers, DRAWS, time.strftime("%Y-%m-%d"), command))
                print(*rows[-1][:5], flush=True)
    write_rows(rows, RESULTS, digits=4)


if __name__ == "__main__":
    main()
