"""The paper's 336 cells under both protocols, bit for bit: a hash per cell of a short seeded run on the CPU.

`python -m tests.golden.cells` compares all of them (half a minute), `python -m tests.golden.cells write` writes them
again. The suite compares a sample. The kernels' own arithmetic is the same on every CPU; the tables of distribution
functions that they read are numpy's, which may round their last bit otherwise on a CPU of another kind.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from privatile.paper.tables import TABLES, paper_experiment
from privatile.simulation.cells import Cell
from privatile.simulation.engine import run_cell
from privatile.simulation.experiment import Protocol

CELLS = Path(__file__).with_name("cells.json")
PROTOCOLS: tuple[Protocol, ...] = ("independent", "published")
REPLICATIONS = 8


def cells() -> Iterator[tuple[str, Cell, int]]:
    """Name, cell and seed of each."""
    for protocol in PROTOCOLS:
        for table in TABLES:
            experiment = paper_experiment(table, protocol)
            for entry in experiment.entries:
                labels = " ".join(value for _, value in entry.labels)
                yield f"{protocol} {table} {labels}", entry.scheduled, experiment.seed


def digest(cell: Cell, seed: int) -> str:
    """Estimates and normalizers of the first replications, to the last bit."""
    outcome = run_cell(cell, REPLICATIONS, seed, threads=os.cpu_count() or 1)
    return hashlib.sha256(outcome.estimates.tobytes() + outcome.normalizers.tobytes()).hexdigest()[:12]


def kept() -> dict[str, str]:
    """The stored hashes by name."""
    found: dict[str, str] = json.loads(CELLS.read_text(encoding="utf-8"))
    return found


def main() -> int:
    """Compare all cells, or write them."""
    found = {name: digest(cell, seed) for name, cell, seed in cells()}
    if "write" in sys.argv[1:]:
        CELLS.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
        return 0
    before = kept()
    other = [name for name in {**before, **found} if before.get(name) != found.get(name)]
    print("\n".join([*(f"differs: {name}" for name in other), f"{len(found)} cells, {len(other)} differ"]))
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
