"""The demo compares with the truth of the very thing it estimates."""

import csv
import runpy
from pathlib import Path

import numpy as np
import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demos_truth_is_the_median_of_all_its_records(tmp_path: Path) -> None:
    truth = runpy.run_path(str(DEMO))["write_incomes"](tmp_path / "incomes.csv")
    with (tmp_path / "incomes.csv").open() as file:
        incomes = np.array([float(row["income"]) for row in csv.DictReader(file)])
    # The median of n draws is known within ½/(f√n); the mixture's density in logarithms is above ½.
    assert np.log(np.median(incomes)) == pytest.approx(np.log(truth), abs=4 / np.sqrt(incomes.size))
