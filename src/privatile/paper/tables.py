"""The paper's Tables 1 to 4 and two figures, ours beside the printed ones, and three experiments beyond.

What the paper has: the designs of its tables and the values it prints.

The paper's Tables 1–4, ours beside the printed ones.

A difference is marked where it exceeds what the two Monte Carlo errors explain: `MARK_AT` standard errors of the
difference, the authors' error taken from their 1,000 replications and the rounding of their print. With 672 comparisons
fewer than two marks are expected by chance.

The paper's two figures, from our runs: SVG and PNG.

Beyond the paper's tables: three small experiments.

1. The L1 and sup normalisers beside L2: coverage and width, from the same trajectories.
2. Divide and conquer against synchronising, as the records grow: one error falls, the other stays (a design).
3. What local privacy costs: the estimator beside a central mechanism and the plain sample quantile, at equal ε.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.kinds import Normalizer
from privatile.core.mechanism import RandomizedResponse, yes_probability
from privatile.errors import InputError
from privatile.estimator.plan import Averages, add, half_width, normalizer, normalizer_of
from privatile.estimator.schedule import PRESETS, Constant, Design
from privatile.laws.critical import NORMALIZERS, critical_value
from privatile.report.pages import BLUE, GREEN, GREY, VERMILION, print_style, save_figure
from privatile.simulation.cells import Cell
from privatile.simulation.engine import Outcome, run_cell
from privatile.simulation.experiment import Experiment, Protocol, read_experiment
from privatile.simulation.populations import Normal
from privatile.simulation.runner import MARK_AT, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TABLES = ("table1", "table2", "table3", "table4")


def designs_folder() -> Path:
    """Where the paper's designs are: in the installed package, or in the checkout."""
    here = Path(__file__).resolve()
    for folder in (here.parent / "designs", here.parents[3] / "studies" / "paper"):
        if folder.is_dir():
            return folder
    raise InputError("the paper's designs are missing from this installation: reinstall privatile.")


def paper_experiment(table: str, protocol: Protocol = "independent", replications: int | None = None) -> Experiment:
    """The design of a table, or `divide`, a comparison that no table of the paper has."""
    return read_experiment(designs_folder() / f"{table}.toml", protocol=protocol, replications=replications)


class Published(NamedTuple):
    """A printed pair."""

    coverage: float
    mae: float


def published_tables() -> dict[tuple[str, ...], Published]:
    """(table, scenario, size, level, truth rate, method) -> what is printed there."""
    names = ("scenario", "size", "tau", "truth_rate", "method")
    return {
        (f"table{row['table']}", *(row[name] for name in names)): Published(float(row["coverage"]), float(row["mae"]))
        for row in _rows("published_tables.csv")
    }


def published_salary() -> dict[tuple[str, str, str], tuple[float, float]]:
    """(level, truth rate, method) -> (estimate, interval length) as printed."""
    return {
        (row["tau"], row["truth_rate"], row["method"]): (float(row["estimate"]), float(row["interval_length"]))
        for row in _rows("published_salary.csv")
    }


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (designs_folder() / name).open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


PUBLISHED_REPLICATIONS = 1000
MARK = "*"


@dataclass(frozen=True)
class Comparison:
    """One cell: ours, theirs, and whether the Monte Carlo errors explain the difference."""

    table: str
    scenario: str
    size_kind: str
    size: int
    level: str
    truth_rate: str
    method: str
    ours: dict[str, Any]
    theirs: Published

    @property
    def coverage_like_theirs(self) -> float:
        """Our coverage with the authors' critical value: the one to compare with theirs."""
        beside = float(self.ours["coverage_beside"])
        return float(self.ours["coverage"]) if math.isnan(beside) else beside

    @property
    def coverage_differs(self) -> bool:
        """|ours − theirs| above the error of a difference of two shares (pooled; one success and failure added)."""
        count = int(self.ours["replications"])
        ours, theirs = self.coverage_like_theirs, self.theirs.coverage
        pooled = (count * ours + PUBLISHED_REPLICATIONS * theirs + 1.0) / (count + PUBLISHED_REPLICATIONS + 2.0)
        error = math.sqrt(pooled * (1.0 - pooled) * (1.0 / count + 1.0 / PUBLISHED_REPLICATIONS))
        return abs(ours - theirs) > MARK_AT * error + 0.0005

    @property
    def mae_differs(self) -> bool:
        """|ours − theirs| above the error of a difference of two means, theirs scaled from ours."""
        count, error = int(self.ours["replications"]), float(self.ours["mae_error"])
        both = error * math.sqrt(1.0 + count / PUBLISHED_REPLICATIONS)
        return abs(float(self.ours["mae"]) - self.theirs.mae) > MARK_AT * both + 0.00005

    def row(self) -> dict[str, Any]:
        """Flat, for CSV."""
        ours = self.ours
        names = ("table", "scenario", "size_kind", "size", "level", "truth_rate", "method")
        return {
            **{name: getattr(self, name) for name in names},
            "coverage": ours["coverage"],
            "coverage_error": ours["coverage_error"],
            "coverage_paper_v": self.coverage_like_theirs,
            "published_coverage": self.theirs.coverage,
            "coverage_differs": int(self.coverage_differs),
            "mae": ours["mae"],
            "mae_error": ours["mae_error"],
            "published_mae": self.theirs.mae,
            "mae_differs": int(self.mae_differs),
            "bias": ours["bias"],
            "rmse": ours["rmse"],
            "mean_width": ours["width"],
            "error_over_bound": ours["rmse"] / ours["bound"],
            **{name: ours[name] for name in ("critical_value", "truth", "replications")},
        }


def compare(table: str, rows: Sequence[dict[str, Any]]) -> list[Comparison]:
    """A finished table's rows beside the printed ones."""
    printed = published_tables()
    found = []
    for row in rows:
        kind = "records" if "records" in row else "rounds"
        key = (table, row["population"], row[kind], row["level"], row["truth_rate"], row["method"])
        found.append(
            Comparison(key[0], key[1], "t_T" if kind == "records" else "T", int(key[2]), *key[3:], row, printed[key])
        )
    return found


LEVEL_NAMES = {"low": "τ_low", "high": "τ_high"}

Blocks = dict[tuple[str, str, int], dict[tuple[str, str], dict[str, Comparison]]]


def blocks_of(cells: Sequence[Comparison]) -> Blocks:
    """(scenario, kind of size, size) -> (level, truth rate) -> method -> cell."""
    blocks: Blocks = {}
    for cell in sorted(cells, key=lambda cell: cell.size):
        block = blocks.setdefault((cell.scenario, cell.size_kind, cell.size), {})
        block.setdefault((cell.level, cell.truth_rate), {})[cell.method] = cell
    return blocks


def _pair(coverage: float, mae: float, coverage_mark: str = "", mae_mark: str = "") -> str:
    return f"{plain(coverage, '.3f')}{coverage_mark} ({plain(mae, '.4f')}{mae_mark})"


def _lines(level: str, rate: str, row: dict[str, Comparison], protocol: Protocol) -> list[list[str]]:
    """The lines of one setting: ours, its errors, ours with the authors' critical value, theirs."""
    cells, ours = row.values(), [cell.ours for cell in row.values()]
    marks = [(MARK * cell.coverage_differs, MARK * cell.mae_differs) for cell in cells]
    found = [_pair(own["coverage"], own["mae"], *mark) for own, mark in zip(ours, marks, strict=True)]
    lines = [
        [level, rate, "ours" if protocol == "published" else "ours, exact v", *found],
        ["", "", "± MC error", *(_pair(own["coverage_error"], own["mae_error"]) for own in ours)],
        ["", "", "published", *(_pair(cell.theirs.coverage, cell.theirs.mae) for cell in cells)],
    ]
    if protocol == "independent":
        lines.insert(2, ["", "", "ours, v of the paper", *(plain(cell.coverage_like_theirs, ".3f") for cell in cells)])
    return lines


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table.

    >>> print(*markdown_table(["τ", "", "C1"], [["0.5", "ours", "0.95"], ["", "published", "0.94"]]), sep=chr(10))
    | τ | | C1 |
    |---|---|---|
    | 0.5 | ours | 0.95 |
    | | published | 0.94 |
    """
    lines = ["|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in (header, *rows)]
    return [lines[0], "|" + "---|" * len(header), *lines[1:]]


def markdown(title: str, cells: Sequence[Comparison], protocol: Protocol) -> str:
    """A table of the paper as Markdown: coverage (MAE), ours above theirs."""
    parts = [f"### {title}", ""]
    for (scenario, kind, size), rows in blocks_of(cells).items():
        lines = [
            line
            for (level, rate), row in rows.items()
            for line in _lines(LEVEL_NAMES.get(level, level), rate, row, protocol)
        ]
        methods = next(iter(rows.values()))
        parts += [f"**{scenario} | {kind} = {size:,}**", "", *markdown_table(["τ", "r", "", *methods], lines), ""]
    return "\n".join(parts)


def agreeing(cells: Sequence[Comparison]) -> int:
    """How many cells agree with the printed ones, within the two Monte Carlo errors."""
    return sum(not (cell.coverage_differs or cell.mae_differs) for cell in cells)


def differing(cells: Sequence[Comparison], method: str) -> str:
    """How many of a method's cells differ from the printed ones, of how many."""
    own = [cell for cell in cells if cell.method == method]
    return f"{len(own) - agreeing(own)} of {len(own)}"


def verdict(cells: Sequence[Comparison]) -> str:
    """One sentence on how many cells differ, by method."""
    counts = [f"{method} {differing(cells, method)}" for method in dict.fromkeys(cell.method for cell in cells)]
    return "Cells that differ by more than the two Monte Carlo errors explain: " + ", ".join(counts) + "."


PANELS = (
    ("table2", "Hete L", "0.5", "0.9", "Different distributions (Hete L), r = 0.9, τ = 0.5"),
    ("table1", "homogeneous", "low", "hetero", "Different levels (τ_low), truth rates from 0.25 to 0.9"),
)
"""The two panels of Figure 2, by the cells they show."""


def _save(figure: "Figure", folder: Path, name: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return [save_figure(figure, folder / f"{name}{suffix}") for suffix in (".svg", ".png")]


@dataclass(frozen=True)
class Trajectory:
    """One run as it goes: Q_m with its interval against the records asked of a client."""

    records: NDArray[np.int64]
    means: Floats
    half_widths: Floats
    truth: float


def path_queries(outcome: Outcome) -> Floats:
    """The query after every round, from the running means that an outcome kept: a column per replication."""
    if outcome.paths is None:
        raise InputError("these replications keep no trajectory.")
    sums = np.arange(1, len(outcome.paths) + 1)[:, None] * outcome.paths
    return np.diff(sums, axis=0, prepend=0.0)


def trajectory(cell: Cell, seed: int) -> Trajectory:
    """One replication of a cell without burn-in, round by round; the critical value is that of the whole schedule."""
    queries = path_queries(run_cell(cell, 1, seed, keep_paths=True))[:, 0]
    sums = Averages(center=float(queries.mean()))
    path = [sums := add(sums, *entry) for entry in zip(queries.tolist(), cell.round_weights.tolist(), strict=True)]
    half = cell.critical_value * np.sqrt([normalizer(sums) for sums in path])
    return Trajectory(np.cumsum(cell.lengths[0]), np.array([sums.estimate for sums in path]), half, cell.truth)


@print_style()
def figure2(folder: Path) -> list[Path]:
    """Two trajectories with their intervals and the truth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, (table, population, level, rate, title) in zip(axes, PANELS, strict=True):
        labels = {"population": population, "level": level, "truth_rate": rate, "method": "C1", "records": "10000"}
        cell = next(entry.scheduled for entry in paper_experiment(table).entries if dict(entry.labels) == labels)
        run = trajectory(cell, seed=7)
        # The first 2% lead away from the start; the picture begins where the interval means something. About 800
        # points are more than a printed line can show.
        shown = slice(run.means.size // 50, None, max(1, run.means.size // 800))
        records, means, half = run.records[shown], run.means[shown], run.half_widths[shown]
        axis.fill_between(records, means - half, means + half, color=BLUE, alpha=0.2, lw=0, label="95% interval")
        axis.plot(records, means, color=BLUE, lw=1.2, label="estimate")
        axis.axhline(run.truth, color=VERMILION, ls=":", lw=1.4, label="truth Q*")
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("records answered per client")
        axis.set_ylim(run.truth - 0.3, run.truth + 0.3)
    axes[0].set_ylabel("q")
    axes[0].legend(loc="upper right", frameon=False)
    return _save(figure, folder, "figure2")


@print_style()
def figure1(clients: dict[str, Floats], folder: Path) -> list[Path]:
    """How clients differ: salaries by region, and what a report still says at three privacy budgets."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = sorted(clients, key=lambda name: float(np.median(clients[name])))
    for place, name in enumerate(names):
        low, middle, high = np.quantile(clients[name], [0.25, 0.5, 0.75]) / 1000.0
        left.plot([low, high], [place, place], color=GREY, lw=2.0, solid_capstyle="round")
        left.plot(middle, place, "o", color=BLUE)
        left.annotate(
            f"{middle:.1f}", (middle, place), textcoords="offset points", xytext=(0, 5), ha="center", fontsize=7
        )
    left.set_yticks(range(len(names)), [f"{name} ({clients[name].size:,})" for name in names])
    left.set_ylim(-0.6, len(names) - 0.3)
    left.set_xlabel("salary, thousand dollars per year: median and middle half")
    left.set_title("Data heterogeneity: regions as clients", fontsize=9)
    q = np.linspace(10_000.0, 120_000.0, 221)
    everyone = np.concatenate(list(clients.values()))
    above = 1.0 - np.searchsorted(np.sort(everyone), q, side="right") / everyone.size
    for rate, color, style in ((1.0, GREY, ":"), (0.9, BLUE, "-"), (0.6, GREEN, "--"), (0.25, VERMILION, "-.")):
        budget = "no privacy" if rate == 1.0 else f"r = {rate:g}, ε = {2.0 * math.atanh(rate):.2f}"
        right.plot(q / 1000.0, yes_probability(rate, above), color=color, ls=style, label=budget)
    right.set_xlabel("question: is your salary above … thousand dollars?")
    right.set_ylabel("share of reports that say yes")
    right.set_ylim(0.0, 1.0)
    right.legend(frameon=False)
    right.set_title("Privacy heterogeneity: what a report still says", fontsize=9)
    return _save(figure, folder, "figure1")


SEED = 1
BLOCK = 128
"""Replications whose trajectories are in memory at a time."""


def _ten_clients(design: Design, records: int, rate: float) -> Cell:
    return Cell((Normal(),) * 10, (0.5,) * 10, (rate,) * 10, (0.1,) * 10, design, (records,) * 10)


def normalizer_experiment(
    replications: int = 1000,
    threads: int = 1,
    methods: Sequence[str] = ("C1", "C5", "Log"),
    rates: Sequence[float] = (0.25, 0.9),
) -> list[dict[str, Any]]:
    """Coverage and mean width of 95% intervals by normaliser, N(0, 1), τ = 0.5, ten clients, 10,000 records each."""
    rows = []
    for name in methods:
        for rate in rates:
            cell = _ten_clients(PRESETS[f"paper-{name.lower()}"], 10_000, rate)
            values = {kind: critical_value(None, 0.95, kind, weights=cell.round_weights) for kind in NORMALIZERS}
            errors: list[float] = []
            found: dict[Normalizer, list[float]] = {kind: [] for kind in NORMALIZERS}
            for first in range(0, replications, BLOCK):
                count = min(BLOCK, replications - first)
                outcome = run_cell(cell, count, SEED, first=first, threads=threads, keep_paths=True)
                errors += np.abs(outcome.estimates - cell.truth).tolist()
                for queries in path_queries(outcome).T:
                    for kind in NORMALIZERS:
                        value = normalizer_of(queries, cell.round_weights, kind)
                        found[kind].append(half_width(value, kind))
            l2_width = values["l2"].value * np.mean(found["l2"])
            for kind in NORMALIZERS:
                half = values[kind].value * np.array(found[kind])
                coverage = float(np.mean(errors <= half))
                rows.append(
                    {
                        "method": name,
                        "truth_rate": rate,
                        "normalizer": kind,
                        "critical_value": values[kind].value,
                        "critical_value_error": values[kind].standard_error,
                        "coverage": coverage,
                        "coverage_error": math.sqrt(coverage * (1.0 - coverage) / replications),
                        "mean_width": float(2.0 * half.mean()),
                        "width_over_l2": float(half.mean() / l2_width),
                    }
                )
    return rows


def central_quantile(
    values: Floats, level: float, epsilon: float, low: float, high: float, rng: np.random.Generator
) -> float:
    """The exponential mechanism for a quantile under central ε-DP, replace-one (Smith, 2011).

    Between neighbouring order statistics the utility −|i − τn| is constant and has sensitivity 1: an interval is chosen
    with probability ∝ length·exp(−ε|i − τn|/2), then a point of it uniformly.
    """
    ordered = np.concatenate([[low], np.sort(np.clip(values, low, high)), [high]])
    ranks = np.arange(ordered.size - 1)
    with np.errstate(divide="ignore"):
        scores = np.log(np.diff(ordered)) - epsilon * np.abs(ranks - level * values.size) / 2.0
    # The Gumbel trick draws from softmax(scores) without overflow.
    chosen = int(np.argmax(scores + rng.gumbel(size=scores.size)))
    return float(rng.uniform(ordered[chosen], ordered[chosen + 1]))


def cost_experiment(
    replications: int = 500,
    threads: int = 1,
    records: int = 1_000,
    epsilons: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 4.0),
) -> list[dict[str, Any]]:
    """Root mean squared errors of the median of ten N(0, 1) clients: local, central and no privacy, at equal ε."""
    rng = np.random.default_rng(SEED)
    plain = np.empty(replications)
    central = np.empty((len(epsilons), replications))
    for i in range(replications):
        sample = np.sort(rng.standard_normal(10 * records))
        plain[i] = np.median(sample)
        for j, epsilon in enumerate(epsilons):
            central[j, i] = central_quantile(sample, 0.5, epsilon, -10.0, 10.0, rng)

    def rmse(values: Floats) -> float:
        return float(np.sqrt(np.mean(values**2)))

    rows = []
    for epsilon, at_centre in zip(epsilons, central, strict=True):
        rate = RandomizedResponse.from_epsilon(epsilon).truth_rate
        cell = _ten_clients(Design("cohort", Constant(1), burn_in=0.1), records, rate)
        local = rmse(run_cell(cell, replications, SEED, threads=threads).estimates)
        rows.append(
            {
                "epsilon": epsilon,
                "truth_rate": rate,
                "records": 10 * records,
                "no_privacy": rmse(plain),
                "central": rmse(at_centre),
                "local": local,
                "local_bound": cell.bound,
                "local_over_central": local / rmse(at_centre),
                "records_for_the_same_error": (local / rmse(at_centre)) ** 2,
            }
        )
    return rows
