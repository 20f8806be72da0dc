"""privatile beside what one would pick instead: same people, same ε, one run.

pip install -r benchmarks/compared/requirements.txt
python -m benchmarks.compared.run --replications 100 --sizes 60 --out benchmarks/compared/results.csv

n people in ten equally large clients; everybody is asked once, with the whole ε. Every method knows the range of the
values, works on its logarithm, and begins in the middle. In every replication all methods get the same people, drawn
anew, but for the paper's designs (see `ours.py`). Seeds are fixed. Rank errors are those of the returned value; the
bound is that of one randomized bit per person, which a method that reports more than a bit may in principle undercut.
Time is processor time of one run on one core, the people's side included; that of privatile is one call of
`privatile.estimate`.
"""

import argparse
import csv
import datetime
import importlib.util
import io
import math
import os
import platform
import sys
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.compared import nonadaptive, trusted
from benchmarks.compared.ours import DESIGNS, Found, any_shape, by_kernel, declared_continuous
from benchmarks.compared.sequential import (
    easy_quantile,
    frugal,
    middle_of_questions,
    report_level,
    screening_search,
    truth_rate,
)
from benchmarks.compared.settings import CELLS, MAIN, SEARCHED, SIZES, Setting

import privatile
from privatile.core.arrays import Floats

SEED = 20261116
STEPS = tuple(2.0**-k for k in range(5, 13))
"""Steps that the streams may take, as shares of the range; each gets the one that serves it best (`tuned_step`)."""

One = Callable[[Setting, Floats, np.random.Generator], float]
"""One replication: clients by people in, an estimate between 0 and 1 out."""


def in_order(clients: Floats) -> Floats:
    """All people, one of every client in turn."""
    return np.ascontiguousarray(clients.T).reshape(-1)


def square_wave(setting: Setting, clients: Floats, rng: np.random.Generator) -> float:
    return nonadaptive.square_wave_quantile(in_order(clients), setting.level, setting.epsilon, 0.0, 1.0, rng)


def square_wave_plain(setting: Setting, clients: Floats, rng: np.random.Generator) -> float:
    return nonadaptive.square_wave_plain(in_order(clients), setting.level, setting.epsilon, 0.0, 1.0, rng)


def hierarchy(setting: Setting, clients: Floats, rng: np.random.Generator) -> float:
    return nonadaptive.hierarchy_quantile(in_order(clients), setting.level, setting.epsilon, 0.0, 1.0, rng)


def binary_search(setting: Setting, clients: Floats, rng: np.random.Generator) -> float:
    return nonadaptive.binary_search_quantile(in_order(clients), setting.level, setting.epsilon, 0.0, 1.0, rng)


def cells_of(clients: Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.minimum((in_order(clients) * CELLS).astype(np.int64), CELLS - 1)


def screening(setting: Setting, clients: Floats, rng: np.random.Generator) -> float:
    return screening_search(cells_of(clients), CELLS, setting.level, setting.epsilon, rng) / CELLS


def without_screening(setting: Setting, clients: Floats, rng: np.random.Generator) -> float:
    return middle_of_questions(cells_of(clients), CELLS, setting.level, setting.epsilon, rng) / CELLS


def frugal_stream(setting: Setting, clients: Floats, rng: np.random.Generator, step: float) -> float:
    records = in_order(clients)
    truthful = rng.uniform(size=records.size) < 0.5 * (1.0 + truth_rate(setting.epsilon))
    target = report_level(setting.level, setting.epsilon)
    return float(frugal(records, truthful, rng.uniform(size=records.size), target, step))


def easy_stream(setting: Setting, clients: Floats, rng: np.random.Generator, step: float) -> float:
    records = in_order(clients)
    truthful = rng.uniform(size=records.size) < 0.5 * (1.0 + truth_rate(setting.epsilon))
    return float(easy_quantile(records, truthful, report_level(setting.level, setting.epsilon), step))


def sample_quantile(setting: Setting, clients: Floats, rng: np.random.Generator) -> float:
    return float(np.quantile(clients, setting.level))


def averaged(setting: Setting, clients: Floats, rng: np.random.Generator) -> float:
    return trusted.average_of_quantiles(clients, setting.level)


def digests(setting: Setting, clients: Floats, rng: np.random.Generator) -> float:
    return trusted.merged_digests(clients, setting.level)


def exponential(setting: Setting, clients: Floats, rng: np.random.Generator) -> float:
    return trusted.exponential_mechanism(in_order(clients), setting.level, setting.epsilon)


def central_histogram(setting: Setting, clients: Floats, rng: np.random.Generator) -> float:
    return trusted.noisy_histogram(in_order(clients), setting.level, setting.epsilon, rng)


OURS = {"privatile": any_shape, "privatile, values continuous": declared_continuous}
LOCAL: dict[str, One] = {
    "Square Wave, EMS": square_wave,
    "Square Wave, EM": square_wave_plain,
    "hierarchical histogram": hierarchy,
    "naive noisy binary search": binary_search,
    "Bayesian screening search": screening,
    "… without the screening": without_screening,
}
STREAMS: dict[str, Callable[..., float]] = {"frugal stream": frugal_stream, "EasyQuantile stream": easy_stream}
TRUSTED: dict[str, One] = {
    "central: exponential mechanism": exponential,
    "central: noisy histogram": central_histogram,
    "not private: average of quantiles": averaged,
    "not private: t-digests": digests,
    "not private: all records": sample_quantile,
}
ROUNDS: dict[str, Callable[[int], int]] = {
    "naive noisy binary search": lambda n: math.ceil(0.5 * math.log2(n)) + 2,
    "Bayesian screening search": lambda n: math.floor(0.8 * n) + 4,
    "… without the screening": lambda n: n,
    **dict.fromkeys(STREAMS, lambda n: n),
}
"""Questions that wait for the answers before them; 1 for the methods not named."""
COLUMNS = (
    *("setting", "method", "people", "epsilon", "level", "replications"),
    *("rank_error", "rank_error_se", "over_bound", "bias", "error", "error_se"),
    *("coverage", "coverage_se", "width", "rounds", "milliseconds"),
)
IN_MAIN_ONLY = {"the paper, C5", "divide and conquer", "EasyQuantile stream", "Square Wave, EM"}
"""Run in the main settings alone: each is worse there than a method of its kind."""
NEEDS = {"not private: t-digests": "fastdigest", "central: exponential mechanism": "opendp"}


def tuned_step(setting: Setting, stream: Callable[..., float], replications: int = 40) -> float:
    """The step with the smallest rank error on people of their own: an advantage that a real run does not have."""

    def cost(step: float) -> float:
        found = []
        for i in range(replications):
            rng = np.random.default_rng([SEED + 1, i])
            found.append(stream(setting, setting.sample(rng), rng, step))
        return float(np.mean(setting.rank_errors(setting.to_units(np.array(found))) ** 2))

    return min(STEPS, key=cost)


def seed_of(method: str) -> int:
    """A method's own seed, from its name: another method more or less changes no other row.

    >>> seed_of("frugal stream")
    2543303650
    """
    return zlib.crc32(method.encode())


def one_by_one(setting: Setting, records: list[Floats], one: One, rounds: int, method: str) -> tuple[Found, float]:
    """A method's replications one after the other, with the processor time of one."""
    one(setting, records[0], np.random.default_rng(0))  # compile, import
    own = seed_of(method)
    begun = time.process_time()
    found = [one(setting, clients, np.random.default_rng([SEED, i, own])) for i, clients in enumerate(records)]
    return Found(np.array(found), None, None, rounds), (time.process_time() - begun) / len(records)


def seconds_of_estimate(setting: Setting, clients: Floats, values: str) -> float:
    """Processor time of one call of `privatile.estimate` on these people."""
    data = {f"client {k}": setting.to_units(part) for k, part in enumerate(clients)}
    begun = time.process_time()
    privatile.estimate(
        data,
        q=setting.level,
        epsilon=setting.epsilon,
        range=(setting.low, setting.high),
        scale="log",
        value_kind=values,
        simulate=True,
        rng=1,
    )
    return time.process_time() - begun


def row(setting: Setting, method: str, found: Found, seconds: float) -> dict[str, object]:
    """A line of the results, errors with their Monte Carlo standard errors."""
    estimates = setting.to_units(found.estimates)
    count, errors = estimates.size, estimates - setting.truth
    ranks = setting.rank_errors(estimates)

    def rmse(values: Floats) -> tuple[float, float]:
        root = math.sqrt(float(np.mean(values**2)))
        # Delta method on the mean of squares.
        return root, float(np.std(values**2, ddof=1)) / (2.0 * max(root, 1e-300) * math.sqrt(count))

    (rank, rank_se), (error, error_se) = rmse(ranks), rmse(errors)
    coverage, coverage_se, width = "", "", ""
    if found.low is not None and found.high is not None:
        low, high = (setting.low * (setting.high / setting.low) ** end for end in (found.low, found.high))
        covered = float(np.mean((low <= setting.truth) & (setting.truth <= high)))
        coverage, coverage_se = f"{covered:.3f}", f"{math.sqrt(covered * (1.0 - covered) / count):.3f}"
        width = f"{float(np.median(high - low)):.4g}"
    values = (
        *(setting.name, method, setting.people, setting.epsilon, setting.level, count),
        *(f"{rank:.5f}", f"{rank_se:.5f}", f"{rank / setting.rank_bound:.3f}"),
        *(f"{float(errors.mean()):.4g}", f"{error:.4g}", f"{error_se:.2g}"),
        *(coverage, coverage_se, width, found.rounds, f"{1e3 * seconds:.3g}"),
    )
    return dict(zip(COLUMNS, values, strict=True))


def compare(setting: Setting, replications: int) -> list[dict[str, object]]:
    """All methods on the same people."""
    records = [setting.sample(np.random.default_rng([SEED, i])) for i in range(replications)]
    left_out: set[str] = set() if setting in MAIN else IN_MAIN_ONLY
    timed = 3 if setting in MAIN else 1
    rows = []

    def add(method: str, found: Found, seconds: float) -> None:
        rows.append(row(setting, method, found, seconds))
        print("  " + "  ".join(str(rows[-1][column]) for column in COLUMNS[1:]), flush=True)

    for method, run in OURS.items():
        values = "any" if method == "privatile" else "continuous"
        seconds = float(np.median([seconds_of_estimate(setting, records[i], values) for i in range(timed)]))
        add(method, run(setting, records, np.random.default_rng([SEED, seed_of(method)])), seconds)
    for method in sorted(DESIGNS.keys() - left_out):
        by_kernel(method, setting, 1, SEED)  # compile
        begun = time.process_time()
        found = by_kernel(method, setting, replications, SEED)
        add(method, found, (time.process_time() - begun) / replications)
    for method, stream in STREAMS.items():
        if method in left_out:
            continue
        step = tuned_step(setting, stream)
        one = partial(stream, step=step)
        add(method, *one_by_one(setting, records, one, ROUNDS[method](setting.people), method))
    for method, peer in (LOCAL | TRUSTED).items():
        if method in left_out:
            continue
        if method in NEEDS and importlib.util.find_spec(NEEDS[method]) is None:
            print(f"  {method}: left out, {NEEDS[method]} is not installed", flush=True)
            continue
        if peer in (screening, without_screening) and setting.level != 0.5:
            continue  # described for the median
        rounds = ROUNDS[method](setting.people) if method in ROUNDS else 1
        add(method, *one_by_one(setting, records, peer, rounds, method))
    return rows


def write(path: Path, rows: list[dict[str, object]]) -> None:
    """The results with their date, command and machine in front."""
    text = io.StringIO()
    text.write(f"# date: {datetime.datetime.now(datetime.UTC).date().isoformat()}\n")
    text.write(f"# command: python -m benchmarks.compared.run {' '.join(sys.argv[1:])}\n")
    text.write(f"# machine: {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")


def main() -> None:
    """Run all settings; the results so far are written after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=100)
    parser.add_argument("--sizes", type=int, default=60, help="replications for the settings that differ in size only")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    for setting in (*MAIN, *SEARCHED, *SIZES):
        print(f"\n{setting.name}: truth {setting.truth:,.0f}, bound of the rank {setting.rank_bound:.5f}", flush=True)
        rows += compare(setting, options.sizes if setting in SIZES else options.replications)
        if options.out:
            write(options.out, rows)


if __name__ == "__main__":
    main()
