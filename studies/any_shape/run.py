"""The straddling design on smooth cells, hard cells and real columns.

python -m studies.any_shape.run info:150,600 hard:20000 real --runs 2000 --data FILE [--device cuda] [--part 0/4]

Parts: smooth:SIZES, info:INFORMATIONS, ten:INFORMATIONS (ten clients), hard:SIZES, real[:SIZES], regions.
"""

import argparse
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from studies.any_shape.cells import hard_cells, information_cells, real_cells, region_cells, smooth_cells, ten_clients
from studies.any_shape.measure import HEAD, line, measure

from privatile.errors import require
from privatile.simulation.auto_simulation import AutoCell


def cells_of(part: str, data: Path) -> list[AutoCell]:
    """The cells that a part names."""
    name, _, rest = part.partition(":")
    sizes = tuple(int(float(each)) for each in rest.split(",") if each)
    if name == "real":
        return real_cells(data, sizes or (20_000, 204_309))
    if name == "regions":
        return region_cells(data)
    made = {"smooth": smooth_cells, "hard": hard_cells, "info": information_cells, "ten": ten_clients}
    return list(made[name](sizes))  # type: ignore[operator]


def main() -> None:
    """Measure the parts asked for, one line per cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/gov_census_2018.csv.gz"))
    parser.add_argument("--only", default="", help="parts of names, with _ for a space, separated by commas")
    parser.add_argument("--block", type=int, default=2000)
    parser.add_argument("--part", default="0/1", help="k/n: every n-th cell, from k on")
    chosen = parser.parse_args()
    xp: Any = require("cupy", "gpu") if chosen.device == "cuda" else np
    first, every = (int(each) for each in chosen.part.split("/"))
    wanted = [each.replace("_", " ") for each in chosen.only.split(",")]
    print(HEAD, flush=True)
    for part in chosen.parts:
        unit = None if part.partition(":")[0] in ("smooth", "info", "ten") else 1.0
        for cell in cells_of(part, chosen.data)[first::every]:
            if not any(each in cell.name for each in wanted):
                continue
            start = time.time()
            seed = chosen.seed * 1_000_003 + zlib.crc32(cell.name.encode()) % 1_000_000
            found = measure(cell, chosen.runs, seed, xp, unit, chosen.block)
            print(line(found), f"{time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    main()
