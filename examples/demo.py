"""Make a seven-region income file whose truth is known, estimate its median privately, show both side by side."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import NormalDist

import numpy as np

from privatile.simulation.theory import estimand

FOLDER = Path("demo")
REGIONS = {  # name: (people, median income, spread of the logarithm)
    "North": (14_000, 41_000, 0.55),
    "South": (26_000, 38_000, 0.60),
    "East": (19_000, 52_000, 0.50),
    "West": (31_000, 57_000, 0.65),
    "Coast": (12_000, 61_000, 0.45),
    "Plains": (9_000, 35_000, 0.50),
    "Capital": (22_000, 74_000, 0.70),
}


def write_incomes(path: Path) -> float:
    """One row per person; returns the true median of what the incomes are drawn from."""
    rng = np.random.default_rng(2026)
    rows = [
        f"{name},{income:.2f}"
        for name, (people, median, spread) in REGIONS.items()
        for income in median * np.exp(spread * rng.standard_normal(people))
    ]
    rng.shuffle(rows)
    path.write_text("region,income\n" + "\n".join(rows) + "\n")
    logs = [NormalDist(np.log(median), spread).cdf for _, median, spread in REGIONS.values()]
    sizes = np.array([people for people, _, _ in REGIONS.values()])
    return float(np.exp(estimand(logs, sizes / sizes.sum(), 0.5, 0.0, 20.0)))


def main() -> None:
    """Data, estimate, comparison."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    truth = write_incomes(FOLDER / "incomes.csv")
    command = (
        f"estimate {FOLDER}/incomes.csv --value income --client region --q 0.5 --epsilon 1 --range 1000 1000000 --log "
        f"--ledger {FOLDER}/ledger.db --save {FOLDER}/run.db"
    )
    print(f"$ privatile {command}\n", flush=True)
    subprocess.run([sys.executable, "-m", "privatile", *shlex.split(command)], check=True)
    # The run is finished: the same command shows it again and asks no one anything.
    again = [sys.executable, "-m", "privatile", *shlex.split(command), "--json"]
    shown = json.loads(subprocess.run(again, check=True, capture_output=True, text=True).stdout)
    low, high = shown["confidence_interval"]["low"], shown["confidence_interval"]["high"]
    print("\nSide by side, because here the truth is known:")
    print(f"  truth     {truth:>10,.0f}")
    print(f"  estimate  {shown['estimate']:>10,.0f}")
    inside = "holds the truth" if low <= truth <= high else "misses the truth, as 1 in 20 does"
    print(f"  interval  {low:>10,.0f} … {high:,.0f}   {inside}")
    print(f"\nEverything is in {FOLDER}/: the data, the ledger and the run.")


if __name__ == "__main__":
    main()
