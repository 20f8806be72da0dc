"""python -m studies.any_shape.run PART [--runs N] [--device cuda] [--seed S] [--data FILE]"""

import argparse
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from studies.any_shape.cells import hard_cells, information_cells, real_cells, region_cells, smooth_cells, ten_clients
from studies.any_shape.measure import HEAD, line, measure


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="+")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path, default=Path("/work/shared/data/gov_census_2018.csv.gz"))
    parser.add_argument("--only", default="")
    parser.add_argument("--block", type=int, default=2000)
    parser.add_argument("--part", default="0/1", help="k/n: every n-th cell, from k on")
    chosen = parser.parse_args()
    xp: Any = np
    if chosen.device == "cuda":
        import cupy as xp
    print(HEAD, flush=True)
    for part in chosen.parts:
        name, _, rest = part.partition(":")
        sizes = tuple(int(float(each)) for each in rest.split(",") if each)
        make = {"smooth": smooth_cells, "hard": hard_cells, "info": information_cells, "ten": ten_clients}
        if name in ("real", "regions"):
            cells = {"real": real_cells, "regions": region_cells}[name](chosen.data, sizes or (20_000, 204_309))
        else:
            cells = make[name](sizes)
        first, every = (int(each) for each in chosen.part.split("/"))
        for cell in cells[first::every]:
            if chosen.only and not any(each.replace("_", " ") in cell.name for each in chosen.only.split(",")):
                continue
            start = time.time()
            unit = None if name in ("smooth", "info", "ten") else 1.0
            seed = chosen.seed * 1_000_003 + zlib.crc32(cell.name.encode()) % 1_000_000
            found = measure(cell, chosen.runs, seed, xp, unit, chosen.block)
            print(line(found), f"{time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    main()
