"""The tables of the demos, which the documentation uses: made up, and the same on every machine."""

import math
import random
from itertools import islice
from pathlib import Path
from statistics import NormalDist

from privatile.errors import InputError

Columns = dict[str, list[float]]
"""Client -> its values."""

MEDIANS = {"north": 41_000, "south": 38_000, "east": 52_000, "west": 45_000, "coast": 60_000}
"""Of the yearly salaries of each region; their logarithms are normal with standard deviation 0.6."""

# Of Python's generator only `random` is used: its numbers are the same in every version.


def salaries(regions: int = 3, people: int = 8_000) -> Columns:
    """The salaries of so many people in each of the first regions, rounded to tens.

    >>> {region: (len(values), values[0]) for region, values in salaries().items()}
    {'north': (8000, 21110.0), 'south': (8000, 66420.0), 'east': (8000, 14470.0)}
    """
    rng, normal = random.Random(1), NormalDist(0.0, 0.6)
    return {
        region: [round(median * math.exp(normal.inv_cdf(rng.random())), -1) for _ in range(people)]
        for region, median in islice(MEDIANS.items(), regions)
    }


def waiting_days() -> Columns:
    """2,000 waiting times in whole days in each of two hospitals; each the sum of two exponential times of mean 20."""
    rng = random.Random(2)
    return {
        hospital: [float(round(-20 * math.log((1 - rng.random()) * (1 - rng.random())))) for _ in range(2_000)]
        for hospital in ("st-mary", "county")
    }


def write_table(path: Path, client: str, value: str, columns: Columns) -> None:
    """Write one row per person, unless the file is there already; a file with other content is never overwritten."""
    rows = [
        f"{name},{name[0]}{person},{number:.0f}"
        for name, numbers in columns.items()
        for person, number in enumerate(numbers)
    ]
    text = "\n".join([f"{client},person,{value}", *rows, ""])
    if not path.exists():
        path.write_text(text, encoding="utf-8")
    elif path.read_bytes() != text.encode():
        raise InputError(
            f"{path} is here already and is not the demo's table; it stays as it is. Give the command in another "
            "folder, or move that file."
        )


def write_tables(folder: Path) -> None:
    """Write `salaries.csv` and `waiting.csv` into a folder."""
    write_table(folder / "salaries.csv", "region", "salary", salaries())
    write_table(folder / "waiting.csv", "hospital", "days", waiting_days())
