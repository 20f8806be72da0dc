"""Coverage of the weighted quantile, and the variance against Kish's, through the code of real runs.

    python -m studies.survey.run --runs 400

Records and weights are drawn anew in every run. Weight classes, draws, specification, questions and readings are those
of `privatile.estimate`; the answers are counted without a ledger's file. "forgotten" is the control: the same records,
asked without their weights. "alike" has as many records of weight 1 as the survey's effective number: what is lost
without any weights, so that mse over that of "alike" is the realised price of the weights, beside the formula's
`variance`. Cells that the file already holds, with as many runs, are left out.
"""

import argparse
import math
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr
from studies.coverage.rows import read_rows, write_rows

from privatile.api.local_run import parts_of, specification
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import ShuffledColumn, shuffle
from privatile.client.order.weights import ClassRule
from privatile.client.sources.databases import open_source
from privatile.core.arrays import Floats
from privatile.estimator.plan import begin, step
from privatile.estimator.spec import RunSpec
from privatile.inference.trajectory import Trajectory
from privatile.planning.options import Options
from privatile.result.result import QuantileResult
from privatile.result.summary import summarize

RESULTS = Path(__file__).parent / "results.csv"

WEIGHTS = ("from .2 to 8", "log-normal", "four values")
"""Log-uniform; log-normal with σ = 0.6, cut at .2 and 8; 1, 1.5, 2 and 3."""


FORGOTTEN = 30
"""Runs of a control: it never covers."""


class Cell(NamedTuple):
    """A survey: what the weights are, how many records, ε, the level, how many clients, what is declared."""

    weights: str
    records: int
    epsilon: float
    level: float
    clients: int
    values: str
    weighted: bool = True

    @property
    def name(self) -> str:
        """In words."""
        words = f"{self.weights}, n = {self.records}, ε = {self.epsilon:g}, q = {self.level:g}, K = {self.clients}"
        return words + f", {self.values}" + ("" if self.weighted else ", forgotten")


SURVEYS = (
    ("from .2 to 8", 5_000, 2.0, 0.5, 1),
    ("log-normal", 20_000, 1.0, 0.25, 1),
    ("four values", 12_000, 2.0, 0.8, 3),
)
THIN = ("log-normal", 5_000, 2.0, 0.5, 1)
"""So few records with the largest weights that the variance is beyond what is promised, and the result says so."""

ALIKE = "alike"
EFFECTIVE = {"from .2 to 8": 0.516, "log-normal": 0.7, "four values": 0.865}
"""Kish's effective number over the number of records."""

CELLS = (
    *(
        Cell(*survey, values, weighted)
        for survey in SURVEYS
        for values, weighted in (("continuous", True), ("any", True), ("continuous", False))
    ),
    Cell(*THIN, "continuous"),
    *(
        Cell(ALIKE, round(EFFECTIVE[weights] * records), epsilon, level, clients, "continuous")
        for weights, records, epsilon, level, clients in (*SURVEYS, THIN)
    ),
)


class Row(NamedTuple):
    """One cell: how often the interval covers the weighted quantile, and the precision."""

    cell: str
    runs: int
    covers: float
    bounded: float
    variance: float
    """By the formula: Σp_c²/n_c over Kish's 1/n_eff, mean over the runs."""
    mse: float
    """Realised: mean squared error of the estimate over Wald's bound at n_eff."""
    width: float
    """Median width over Wald's at n_eff."""
    classes: float
    rounds: float
    seed: int
    date: str


def drawn_weights(kind: str, records: int, rng: np.random.Generator) -> Floats:
    """Weights of a survey's records."""
    if kind == "from .2 to 8":
        return np.exp(rng.uniform(math.log(0.2), math.log(8.0), records))
    if kind == ALIKE:
        return np.ones(records)
    if kind == "log-normal":
        return np.clip(np.exp(rng.normal(0.0, 0.6, records)), 0.2, 8.0)
    return rng.choice([1.0, 1.5, 2.0, 3.0], records)


def population(cell: Cell) -> tuple[float, float]:
    """The weighted quantile and the weighted density there: values are normal around 50 + 5·log w, deviation 10."""
    weights = np.sort(drawn_weights(cell.weights, 400_000, np.random.default_rng(1)))
    share = weights / weights.sum()
    middle = 50.0 + 5.0 * np.log(weights)
    truth = brentq(lambda q: float(share @ ndtr((q - middle) / 10.0)) - cell.level, 0.0, 100.0)
    density = float(share @ np.exp(-0.5 * ((truth - middle) / 10.0) ** 2)) / (10.0 * math.sqrt(2.0 * math.pi))
    return float(truth), density


def survey_run(cell: Cell, rng: np.random.Generator) -> tuple[QuantileResult, RunSpec, Floats]:
    """One survey: its result, its specification and the weights."""
    weights = drawn_weights(cell.weights, cell.records, rng)
    table = np.zeros(cell.records, dtype=[("x", float), ("w", float), ("site", "U4")])
    table["w"], table["x"] = weights, rng.normal(50.0 + 5.0 * np.log(weights), 10.0)
    table["site"] = np.array([f"s{k}" for k in range(cell.clients)])[rng.integers(0, cell.clients, cell.records)]
    options = Options(
        value="x",
        client="site" if cell.clients > 1 else None,
        weight="w" if cell.weighted else None,
        q=cell.level,
        epsilon=cell.epsilon,
        range=(0.0, 100.0),
        value_kind=cell.values,
    )
    source = open_source(table, value="x", client=options.client, weight=options.weight)
    columns = shuffle(source, Ledger.in_memory(master=rng.bytes(32)), classes=ClassRule())
    spec = specification(options, parts_of(columns, None), simulated=True)
    return asked(spec, columns, rng), spec, weights


def asked(spec: RunSpec, columns: Mapping[str, ShuffledColumn], rng: np.random.Generator) -> QuantileResult:
    """Ask a whole run: every record once, in its column's order, by the mechanism of its client."""
    plan = spec.plan()
    state, trajectory = begin(plan), Trajectory()
    values = [next(columns[client.name].blocks(0, client.records)).values for client in spec.clients]
    at = [0] * len(values)
    while (ask := plan.ask(state)) is not None:
        query, counts = plan.scale.to_units(ask.query), []
        for k, (client, length) in enumerate(zip(spec.clients, ask.lengths, strict=True)):
            cohort = values[k][at[k] : at[k] + length]
            at[k] += length
            coins = rng.integers(0, 1 << 64, size=length, dtype=np.uint64)
            counts.append(int(np.count_nonzero(client.mechanism.respond(cohort > query, coins))))
        state = step(state, ask, counts, plan)
        trajectory.record(ask, state, plan)
    return summarize(spec, plan, state, trajectory, "study")


Outcome = tuple[bool, bool, float, float, float, int, int]
"""Covers, bounded, variance over Kish's, squared error, width, classes, rounds."""


def outcomes(cell: Cell, seed: int, first: int, every: int, runs: int) -> list[Outcome]:
    """Every `every`-th of the runs of a cell, from `first` on."""
    truth, density = population(cell)
    found = []
    for run in range(first, runs, every):
        rng = np.random.default_rng([seed, run, CELLS.index(cell)])
        result, spec, weights = survey_run(cell, rng)
        low, high = result.confidence_interval
        kish = float(np.sum(weights**2) / np.sum(weights) ** 2)
        wald = math.sqrt(spec.clients[0].mechanism.variance(cell.level) * kish) / density
        reached = sum(client.weight**2 / client.records for client in spec.clients) / kish
        bounded = low > spec.low and high < spec.high
        error = ((result.estimate - truth) / wald) ** 2
        found.append(
            (
                low <= truth <= high,
                bounded,
                reached,
                error,
                (high - low) / (2 * 1.96 * wald),
                len(spec.clients),
                result.rounds,
            )
        )
    return found


def run_cell(cell: Cell, runs: int, seed: int, jobs: int) -> Row:
    """All runs of a cell, shared among processes: each has a generator of its own."""
    with ProcessPoolExecutor(jobs) as pool:
        parts = [pool.submit(outcomes, cell, seed, first, jobs, runs) for first in range(jobs)]
        rows = np.array([one for part in parts for one in part.result()], dtype=np.float64)
    covers, bounded, reached, error, width, classes, rounds = rows.T
    return Row(
        cell.name,
        runs,
        float(covers.mean()),
        float(bounded.mean()),
        float(reached.mean()),
        float(error.mean()),
        float(np.median(width)),
        float(classes.mean()),
        float(rounds.mean()),
        seed,
        time.strftime("%Y-%m-%d"),
    )


def main() -> None:
    """Run the cells that are missing, append them to the file, and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", help="a part of a cell's name")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    kept = {row.cell: row for row in read_rows(given.results, Row)}
    for cell in CELLS:
        runs = given.runs if cell.weighted else min(given.runs, FORGOTTEN)
        if given.only in cell.name and (cell.name not in kept or kept[cell.name].runs < runs):
            kept[cell.name] = run_cell(cell, runs, given.seed, given.jobs)
            write_rows([kept[one.name] for one in CELLS if one.name in kept], given.results, digits=4)
            print(*kept[cell.name], flush=True)


if __name__ == "__main__":
    main()
