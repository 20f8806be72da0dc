"""Width of the any-shape interval over the oracle Wald interval at other confidence levels, for `expected_width`.

python -m studies.any_shape.by_confidence [--runs N]

The median over the runs of smooth cells, largest information first; questions do not depend on the confidence level.
"""

import argparse

import numpy as np
from studies.any_shape.cells import make_cell
from studies.any_shape.measure import BLOCK, seed_of
from studies.any_shape.run import SEED

from privatile.laws.ratio import two_sided_z
from privatile.simulation.default_design import read_straddled, simulate

CONFIDENCE = (0.8, 0.9, 0.95, 0.99, 0.999)
LAWS = ("normal", "log-normal", "t3", "laplace")


def widths(information: float, runs: int) -> list[float]:
    """The median at each level, mean over the laws."""
    found = []
    for law in LAWS:
        cell = make_cell(law, 1, 0.5, 0.5, information)
        rng = np.random.default_rng(seed_of(cell.name, SEED))
        parts = read_straddled(simulate(cell, cell.straddle_plan, min(runs, BLOCK), rng), CONFIDENCE)
        found.append(
            [
                float(np.median(part.any_shape.high - part.any_shape.low)) / (2.0 * two_sided_z(level) * cell.bound)
                for level, part in zip(CONFIDENCE, parts, strict=True)
            ]
        )
    return [float(mean) for mean in np.mean(found, axis=0)]


def main() -> None:
    """Print a line for each information."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    given = parser.parse_args()
    for information in (60_000.0, 6000.0, 1500.0, 600.0, 150.0):
        pairs = zip(CONFIDENCE, widths(information, given.runs), strict=True)
        print(f"I = {information:6.0f}: " + ", ".join(f"({level}, {width:.2f})" for level, width in pairs))


if __name__ == "__main__":
    main()
