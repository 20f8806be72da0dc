"""The Monte Carlo engine: methods repeated thousands of times on simulated clients, each time with known truth.

An experiment is a TOML design (`experiment`) that crosses populations, levels, truth rates and methods into cells
(`cells`); `runner` runs them on compiled kernels (`engine` on the CPU, `cuda` on a GPU) and keeps each finished cell in
a file. `default_design` does the same for the designs that tune themselves, through the code of real runs; `theory` has
the efficiency bound that the results are held against. The kernels need the extra `simulation` (numba) and are
loaded when a cell is run.
"""

from privatile.simulation.cells import Cell
from privatile.simulation.engine import Outcome, Summary, run_cell, summarize
from privatile.simulation.experiment import Experiment, parse_experiment, read_experiment
from privatile.simulation.populations import Population, population
from privatile.simulation.runner import ExperimentStore, run_experiment

__all__ = [
    "Cell",
    "Experiment",
    "ExperimentStore",
    "Outcome",
    "Population",
    "Summary",
    "parse_experiment",
    "population",
    "read_experiment",
    "run_cell",
    "run_experiment",
    "summarize",
]
