"""Table 5: the salary data, once as published and once properly.

As published, every region is oversampled to the size of the largest: a record's copies answer several times, and a
record pays copies × ε. Properly, every record answers once, in cohorts of unequal size, and pays ε.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from privatile.core.arrays import Floats
from privatile.errors import DataError
from privatile.estimator.schedule import PRESETS
from privatile.paper.tables import markdown_table, published_salary
from privatile.simulation.cells import DATA_SEED, Cell
from privatile.simulation.engine import Outcome, run_cell
from privatile.simulation.experiment import PUBLISHED_CONSTANT, PUBLISHED_LOG
from privatile.simulation.populations import Empirical, Mixture, Normal, Uniform

REGION, SALARY = "economic_region", "salary"
OTHERS = "Others"
LEVELS = (0.3, 0.5, 0.8)
METHODS = {"C1": "paper-c1", "C5": "paper-c5", "Log": "paper-log"}
RATES: dict[str, tuple[float, float]] = {"0.6": (0.6, 0.6), "hetero": (0.6, 0.9), "0.9": (0.9, 0.9)}
REPLICATIONS = 128
SEED = 5
STATED_RANGE = (1_000.0, 1_000_000.0)
"""Dollars: what a user who has not seen the data would state; the proper run starts anywhere in it, in logs."""


def read_salaries(path: str | Path) -> dict[str, Floats]:
    """Salaries by client, largest region first; the three smallest regions are merged into one, as in the paper."""
    import pyarrow.csv  # type: ignore[import-untyped]

    file = Path(path)
    kinds = {REGION: pyarrow.string(), SALARY: pyarrow.float64()}
    options = pyarrow.csv.ConvertOptions(column_types=kinds, include_columns=list(kinds))
    # No error repeats what Arrow says: it may be somebody's record.
    try:
        table = pyarrow.csv.read_csv(file, convert_options=options)
    except KeyError:
        raise DataError(f"{file.name} has no column {REGION}, or no column {SALARY}.") from None
    except OSError as error:
        raise DataError(f"{file} cannot be read: {type(error).__name__}. Give the salary table with --data.") from None
    except pyarrow.ArrowInvalid:
        raise DataError(f"{file.name} is no CSV in UTF-8, or holds a salary that is no positive number.") from None
    salaries = table[SALARY].to_numpy()
    if not np.all((salaries > 0.0) & np.isfinite(salaries)):
        raise DataError(f"{file.name} holds a salary that is no positive number.")
    names = table[REGION].to_numpy()
    regions = {name: salaries[names == name] for name in dict.fromkeys(names.tolist())}
    if len(regions) < 5:
        raise DataError(f"{file.name} has {len(regions)} regions; merging the three smallest needs at least five.")
    ordered = sorted(regions, key=lambda name: -regions[name].size)
    kept = {name: regions[name] for name in ordered[:-3]}
    kept[OTHERS] = np.concatenate([regions[name] for name in ordered[-3:]])
    return dict(sorted(kept.items(), key=lambda item: -item[1].size))


class Oversampled(NamedTuple):
    """The published data set: all clients as large as the largest."""

    values: Floats
    """Clients by records, dollars."""
    most_copies: int
    """How often the most duplicated record appears."""


def oversample(clients: dict[str, Floats]) -> Oversampled:
    """Every record once, then draws with replacement up to the largest client, in random order (seed 42)."""
    source = np.random.RandomState(DATA_SEED)
    size = max(values.size for values in clients.values())
    rows, most = [], 1
    for values in clients.values():
        extra = source.randint(0, values.size, size - values.size)
        most = max(most, 1 + int(np.bincount(extra, minlength=1).max()) if extra.size else 1)
        rows.append(values[source.permutation(np.concatenate([np.arange(values.size), extra]))])
    return Oversampled(np.array(rows), most)


def salary_table(
    clients: dict[str, Floats], replications: int = REPLICATIONS, threads: int = 1
) -> list[dict[str, Any]]:
    """All 27 cells of Table 5, as published and properly, in dollars; `replications` draws of the coins each."""
    printed = published_salary()
    copies = oversample(clients)
    source = np.random.RandomState(DATA_SEED)
    once = np.full(copies.values.shape, np.nan)
    for row, values in zip(once, clients.values(), strict=True):
        row[: values.size] = np.log(values[source.permutation(values.size)])
    rows = []
    for level in LEVELS:
        exact = {
            "empirical_equal": Mixture(tuple(Empirical(v) for v in clients.values())).quantile(level),
            "empirical_pooled": Empirical(np.concatenate(list(clients.values()))).quantile(level),
        }
        for rate_name, ends in RATES.items():
            for method in METHODS:
                rates = tuple(np.linspace(*ends, len(clients)).tolist())
                epsilon = 2.0 * math.atanh(max(rates))
                estimate, length = printed[(f"{level:g}", rate_name, method)]
                common = {"level": f"{level:g}", "truth_rate": rate_name, "method": method}
                theirs = {"published_estimate": estimate, "published_length": length, **exact}
                cell = _published_cell(clients, level, rates, method)
                found = run_cell(cell, replications, SEED, threads=threads, data=np.log(copies.values))
                paid = {"copies": copies.most_copies, "epsilon": epsilon, "epsilon_paid": copies.most_copies * epsilon}
                rows.append({"how": "as published", **common, **_dollars(cell, found), **theirs, **paid})
                cell = _proper_cell(clients, level, rates, method)
                found = run_cell(cell, replications, SEED, threads=threads, data=once)
                paid = {"copies": 1, "epsilon": epsilon, "epsilon_paid": epsilon}
                rows.append({"how": "properly", **common, **_dollars(cell, found), **theirs, **paid})
    return rows


def start_table(clients: dict[str, Floats]) -> list[dict[str, Any]]:
    """What Table 5 leaves open, at τ = 0.5, C1, r = 0.6, as published: the base of the logarithm and the start."""
    copies = oversample(clients)
    natural = _published_cell(clients, 0.5, (0.6,) * len(clients), "C1")
    ways = (
        ("natural logarithm, start from N(0, 1)", 1.0, natural.start),
        ("logarithm to base 10, start from N(0, 1)", math.log(10.0), natural.start),
        ("natural logarithm, start at the truth", 1.0, Normal(natural.truth, 1e-9)),
    )
    rows = []
    printed = published_salary()[("0.5", "0.6", "C1")]
    for name, base, start in ways:
        cell = replace(natural, start=start)
        found = run_cell(cell, REPLICATIONS, SEED, data=np.log(copies.values) / base)
        ours = _dollars(cell, found, base)
        amounts = {"estimate": ours["mean_estimate"], "length": ours["mean_length"]}
        amounts |= {"published_estimate": printed[0], "published_length": printed[1]}
        rows.append({"as_published": name, **{key: round(value) for key, value in amounts.items()}})
    return rows


def _published_cell(clients: dict[str, Floats], level: float, rates: Sequence[float], method: str) -> Cell:
    count, size = len(clients), max(values.size for values in clients.values())
    return Cell(
        populations=tuple(Empirical(np.log(values)) for values in clients.values()),
        levels=(level,) * count,
        truth_rates=tuple(rates),
        weights=(1.0 / count,) * count,
        design=PRESETS[METHODS[method]],
        records=(size,) * count,
        start=Normal(),
        fixed_data=True,
        fixed_step=True,
        critical=PUBLISHED_LOG if method == "Log" else PUBLISHED_CONSTANT,
    )


def _proper_cell(clients: dict[str, Floats], level: float, rates: Sequence[float], method: str) -> Cell:
    low, high = STATED_RANGE
    return replace(
        _published_cell(clients, level, rates, method),
        # Unequal cohorts drift in local mode; all records of a round answer about the same q instead.
        design=replace(PRESETS[METHODS[method]], mode="cohort"),
        records=tuple(values.size for values in clients.values()),
        start=Uniform(math.log(low), math.log(high)),
        fixed_step=False,
        critical=None,
    )


def _dollars(cell: Cell, found: Outcome, base: float = 1.0) -> dict[str, Any]:
    """Estimates and lengths back from logarithms, which were divided by `base`: one run, then mean and spread."""
    half = cell.critical_value * np.sqrt(found.normalizers)
    values = np.exp(base * found.estimates)
    lengths = np.exp(base * (found.estimates + half)) - np.exp(base * (found.estimates - half))
    return {
        "one_estimate": float(values[0]),
        "one_length": float(lengths[0]),
        "mean_estimate": float(values.mean()),
        "spread": float(values.std(ddof=1)),
        "mean_length": float(lengths.mean()),
        "rounds": int(cell.lengths.shape[1]),
        "critical_value": cell.critical_value,
    }


def salary_text(rows: Sequence[dict[str, Any]]) -> str:
    """Table 5 as Markdown."""
    header = (
        "τ", "r", "method", "", "estimate, mean over coins (spread)", "one run", "interval length",
        "published estimate", "published length", "empirical, equal weights", "pooled", "ε a record pays",
    )  # fmt: skip
    dollars = (
        "one_estimate", "mean_length", "published_estimate", "published_length", "empirical_equal", "empirical_pooled",
    )  # fmt: skip
    lines = [
        [
            *(str(row[name]) for name in ("level", "truth_rate", "method", "how")),
            f"{row['mean_estimate']:,.0f} ({row['spread']:,.0f})",
            *(f"{row[name]:,.0f}" for name in dollars),
            f"{row['epsilon_paid']:.2f}",
        ]
        for row in rows
    ]
    return "\n".join(["### Table 5: salary data, dollars", "", *markdown_table(header, lines), ""])
