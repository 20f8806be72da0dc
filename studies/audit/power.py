"""What an audit finds, measured on simulated audits: false alarms of honest clients, and the power of each check.

    python -m studies.audit.power honest 20000 8 # honest clients that fail, check by check, at epsilon 8 (1)
    python -m studies.audit.power power 200      # the smallest departure of each kind that is found 99 times of 100

Both print Markdown tables; docs/tasks/audit.md shows them. Counts are simulated from the plan's own laws: binomial, as
if every record were drawn anew. A real client draws without replacement, which `studies.audit.broken` simulates. The
checks are those of a real audit (`privatile.federation.audit.checks`).
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.federation.audit.checks import CHECKS, find_ratio, run_checks
from privatile.federation.audit.plan import Asks, Plan, make_plan
from privatile.federation.audit.statistics import Counts

EPSILON = 1.0
BATCH = 100
"""Audits that are simulated together, with one plan."""

Chosen = NDArray[np.bool_] | bool
"""Which questions of a site a departure is about."""

Simulated = dict[tuple[str, str], Counts]


@dataclass
class Truths:
    """Simulated truths: how many records of each question take 1 for the truth; the copy asks the same records."""

    known: Counts
    missing: Counts


def draw_truths(plan: Plan, audits: int, rng: np.random.Generator) -> dict[tuple[str, str], Truths]:
    found: dict[tuple[str, str], Truths] = {}
    for sitting in plan.sittings:
        for site, asks in sitting.asks.items():
            if sitting.name == "copy":
                found["copy", site] = found["first", site]
                continue
            share = asks.file.missing / asks.file.records
            missing = rng.binomial(asks.length, share, size=(audits, len(asks.length)))
            known = rng.binomial(asks.length - missing, np.clip(asks.above / (1.0 - share), 0.0, 1.0))
            found[sitting.name, site] = Truths(known, missing)
    return found


Rate = Callable[[Asks, str, int], Floats | float]
"""The truth rate of each question, given the sitting and the place of the site."""


def draw(plan: Plan, audits: int, rng: np.random.Generator, rate: Rate | None = None) -> tuple[Simulated, Simulated]:
    """Counts, and the numbers of true ones behind them."""
    counts: Simulated = {}
    trues: Simulated = {}
    truths = draw_truths(plan, audits, rng)
    for sitting in plan.sittings:
        for place, (site, asks) in enumerate(sitting.asks.items()):
            truth = truths[sitting.name, site]
            ones = truth.known + rng.binomial(truth.missing, 1.0 - asks.level)
            right = (1.0 + (asks.rate if rate is None else rate(asks, sitting.name, place))) / 2.0
            trues[sitting.name, site] = ones
            counts[sitting.name, site] = rng.binomial(ones, right) + rng.binomial(asks.length - ones, 1.0 - right)
    return counts, trues


Noise = Callable[[str, int, Asks, Floats], Floats]
"""What becomes of the standardised noise of a site's counts, given the sitting and the place of the site."""


def reshape(plan: Plan, audits: int, rng: np.random.Generator, noise: Noise) -> Simulated:
    """Counts whose noise is changed: mean given the truths + deviation × noise, rounded at random, within bounds."""
    counts, trues = draw(plan, audits, rng)
    for sitting in plan.sittings:
        for place, (site, asks) in enumerate(sitting.asks.items()):
            key = (sitting.name, site)
            mean = asks.length * (1.0 - asks.rate) / 2.0 + asks.rate * trues[key]
            deviation = np.sqrt(asks.length * (1.0 - asks.rate**2)) / 2.0
            # A count in the middle of its rounding interval: the noise is continuous, and honest noise stays honest.
            spread = counts[key] + rng.random(counts[key].shape) - 0.5
            changed = mean + deviation * noise(sitting.name, place, asks, (spread - mean) / deviation)
            touched = np.clip(np.floor(changed + 0.5), 0, asks.length).astype(np.int64)
            counts[key] = touched
    return counts


# -- departures: each makes counts for a magnitude


def wrong_rate(where: Callable[[Asks, str], Chosen]) -> Callable[[Plan, float, np.random.Generator], Simulated]:
    def make(plan: Plan, size: float, rng: np.random.Generator) -> Simulated:
        def rate(asks: Asks, sitting: str, place: int) -> Floats:
            return asks.rate + np.asarray(where(asks, sitting)) * size * (1.0 - asks.rate) * np.ones(len(asks.length))

        return draw(plan, BATCH, rng, rate)[0]

    return make


def scaled(where: Callable[[Asks], Chosen]) -> Callable[[Plan, float, np.random.Generator], Simulated]:
    def make(plan: Plan, size: float, rng: np.random.Generator) -> Simulated:
        def noise(sitting: str, place: int, asks: Asks, values: Floats) -> Floats:
            return np.where(where(asks), np.sqrt(size) * values, values)

        return reshape(plan, BATCH, rng, noise)

    return make


def truncated(plan: Plan, size: float, rng: np.random.Generator) -> Simulated:
    def noise(sitting: str, place: int, asks: Asks, values: Floats) -> Floats:
        far = np.abs(values) > size
        while far.any():
            values = np.where(far, rng.permuted(values, axis=0), values)
            far = np.abs(values) > size
        return values

    return reshape(plan, BATCH, rng, noise)


def linked(plan: Plan, size: float, rng: np.random.Generator) -> Simulated:
    def noise(sitting: str, place: int, asks: Asks, values: Floats) -> Floats:
        values = values.copy()
        for column in range(1, values.shape[1]):
            values[:, column] = size * values[:, column - 1] + np.sqrt(1.0 - size**2) * values[:, column]
        return values

    return reshape(plan, BATCH, rng, noise)


def balanced(plan: Plan, size: float, rng: np.random.Generator) -> Simulated:
    """Each count takes back a share of the errors so far."""

    def noise(sitting: str, place: int, asks: Asks, values: Floats) -> Floats:
        values, owed = values.copy(), np.zeros(len(values))
        weights = np.sqrt(asks.length)
        for column in range(values.shape[1]):
            values[:, column] -= size * owed / weights[column]
            owed += values[:, column] * weights[column]
        return values

    return reshape(plan, BATCH, rng, noise)


def shared_by(kind: str) -> Callable[[Plan, float, np.random.Generator], Simulated]:
    """Noise with a common part: among the levels of a round, the sites of a round, or two sittings."""

    def make(plan: Plan, size: float, rng: np.random.Generator) -> Simulated:
        common: dict[tuple[str, int], Floats] = {}

        def noise(sitting: str, place: int, asks: Asks, values: Floats) -> Floats:
            if kind == "levels":
                part = rng.standard_normal((len(values), int(asks.round.max()) + 1))[:, asks.round]
            elif kind == "sites":
                key = (sitting, len(asks.length))
                part = common.setdefault(key, rng.standard_normal(values.shape))
            else:
                if sitting not in ("first", kind):
                    return values
                index = 2 * place if sitting == "other" else place  # the other study asks the first and the third site
                part = common.setdefault(("", index), rng.standard_normal(values.shape))
            return np.asarray(np.sqrt(size) * part + np.sqrt(1.0 - size) * values)

        return reshape(plan, BATCH, rng, noise)

    return make


def parity(plan: Plan, size: float, rng: np.random.Generator) -> Simulated:
    """A share of the counts is made even."""
    counts, _ = draw(plan, BATCH, rng)
    for sitting in plan.sittings:
        for site in sitting.asks:
            found = counts[sitting.name, site]
            change = (rng.random(found.shape) < size) & (found % 2 == 1)
            counts[sitting.name, site] = np.where(change, np.maximum(found - 1, 0), found)
    return counts


def everywhere(asks: Asks, sitting: str = "") -> bool:
    return True


DEPARTURES: dict[str, tuple[Callable[[Plan, float, np.random.Generator], Simulated], tuple[float, ...]]] = {
    "a share of the records tells the truth": (wrong_rate(everywhere), (0.005, 0.01, 0.015, 0.02, 0.03)),
    "… in cohorts of one": (wrong_rate(lambda asks, _: asks.length == 1), (0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)),
    "… in cohorts below 10": (wrong_rate(lambda asks, _: asks.length < 10), (0.1, 0.2, 0.3, 0.5, 0.7)),
    "… in cohorts below 100": (wrong_rate(lambda asks, _: asks.length < 100), (0.02, 0.03, 0.05, 0.1)),
    "… in cohorts from 100": (wrong_rate(lambda asks, _: asks.length >= 100), (0.005, 0.01, 0.015, 0.02)),
    "… in the first round": (wrong_rate(lambda asks, _: asks.round == 1), (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)),
    "… in the last tenth of the rounds": (
        wrong_rate(lambda asks, _: asks.round > 0.9 * asks.round.max()),
        (0.01, 0.02, 0.03, 0.05, 0.1),
    ),
    "… at the highest level": (wrong_rate(lambda asks, _: asks.level == asks.level.max()), (0.01, 0.02, 0.03, 0.05)),
    "… in local mode": (wrong_rate(lambda _, sitting: sitting == "local"), (0.1, 0.2, 0.3, 0.4)),
    "… where records are missing": (wrong_rate(lambda asks, _: asks.file.missing > 0), (0.1, 0.2, 0.3, 0.5, 0.7)),
    "noise of less variance": (scaled(everywhere), (0.95, 0.9, 0.85, 0.8, 0.75, 0.7)),
    "noise of more variance": (scaled(everywhere), (1.05, 1.1, 1.15, 1.2, 1.25, 1.3)),
    "noise of less variance in cohorts from 10 to 99": (
        scaled(lambda asks: (asks.length >= 10) & (asks.length < 100)),
        (0.85, 0.8, 0.75, 0.7, 0.65),
    ),
    "noise of less variance where records lie on both sides": (
        scaled(lambda asks: ~asks.same_truth),
        (0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5),
    ),
    "noise cut off, in standard deviations": (truncated, (2.8, 2.6, 2.5, 2.4, 2.2, 2.0)),
    "noise correlated from question to question": (linked, (0.1, 0.125, 0.15, 0.175, 0.2, 0.25)),
    "share of earlier errors taken back": (balanced, (0.02, 0.05, 0.1, 0.15, 0.2)),
    "share of the noise common to the levels of a round": (shared_by("levels"), (0.1, 0.15, 0.2, 0.25, 0.3)),
    "share of the noise common to all sites": (shared_by("sites"), (0.2, 0.3, 0.4, 0.5)),
    "share of the noise repeated by a copy": (shared_by("copy"), (0.1, 0.15, 0.2, 0.25, 0.3, 0.4)),
    "share of the noise repeated by another study": (shared_by("other"), (0.2, 0.3, 0.4, 0.5, 0.6)),
    "share of the counts made even": (parity, (0.05, 0.1, 0.15, 0.2)),
}


def ratio_fails(plan: Plan, counts: Simulated) -> Counts:
    key = next(key for key in counts if key[0] == "long")
    rows = [not find_ratio(plan, {key: row[None]}).passed for row in counts[key]]
    return np.array(rows)


def failed(plan: Plan, counts: Simulated, rng: np.random.Generator) -> dict[str, Counts]:
    """For every check, which audits fail it."""
    found: dict[str, Counts] = {"ratio": ratio_fails(plan, counts)}
    found |= {check.name: np.asarray(~check.passed) for check in run_checks(plan, counts, rng)}
    return found


def measure_honest(audits: int, epsilon: float = EPSILON, seed: int = 1) -> None:
    rng = np.random.default_rng(seed)
    totals = dict.fromkeys(["ratio", *CHECKS, "any"], 0)
    for _ in range(audits // BATCH):
        plan = make_plan(epsilon, rng)
        found = failed(plan, draw(plan, BATCH, rng)[0], rng)
        found["any"] = np.logical_or.reduce(list(found.values()))
        for name, rows in found.items():
            totals[name] += int(rows.sum())
    print(
        f"{audits // BATCH * BATCH:,} audits of honest clients at epsilon {epsilon:g}\n\n| check | failed |\n|---|---|"
    )
    for name, total in totals.items():
        print(f"| {name} | {total} |")


def measure_power(audits: int, epsilon: float = EPSILON, seed: int = 2) -> None:
    rng = np.random.default_rng(seed)
    plans = [make_plan(epsilon, rng) for _ in range(audits // BATCH)]
    print("| departure | found 99 times of 100 from | found | checks that find it |\n|---|---|---|---|")
    for words, (make, sizes) in DEPARTURES.items():
        for size in sizes:
            caught, by = [], dict.fromkeys(["ratio", *CHECKS], 0)
            for plan in plans:
                found = failed(plan, make(plan, size, rng), rng)
                caught.append(np.logical_or.reduce(list(found.values())))
                for name, rows in found.items():
                    by[name] += int(rows.sum())
            power = float(np.concatenate(caught).mean())
            if power >= 0.99 or size == sizes[-1]:
                names = ", ".join(name for name, total in by.items() if total >= 0.5 * audits)
                print(f"| {words} | {size:g} | {power:.1%} | {names} |", flush=True)
                break


if __name__ == "__main__":
    measure = {"honest": measure_honest, "power": measure_power}[sys.argv[1]]
    measure(int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else EPSILON)
