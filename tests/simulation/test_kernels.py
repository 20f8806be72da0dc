"""The kernels against plain Python with the same draws, against exact laws, and against the record-by-record path."""

from __future__ import annotations

import ctypes
import math
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privatile.core.arrays import Floats
from privatile.estimator.schedule import PRESETS, Constant, Design
from privatile.simulation import engine, kernels, packing
from privatile.simulation.cells import Cell, states, uniforms
from privatile.simulation.populations import (
    ACCURACY,
    Cauchy,
    Dithered,
    Empirical,
    LogNormal,
    Mixture,
    Normal,
    Population,
    StudentT,
    Uniform,
    make_grid,
    sampler_arrays,
)
from tests.simulation.plain import algorithm_1, algorithm_2, xoshiro128pp

LANES = kernels.LANES
C1, C5, LOG = PRESETS["paper-c1"], PRESETS["paper-c5"], PRESETS["paper-log"]
COHORT = Design("cohort", Constant(20), burn_in=0.1)
SMALL_COHORT = Design("cohort", Constant(4))
DIVIDE = replace(C1, step_scale=2.0)
ALIKE: tuple[Population, ...] = (Normal(), Normal(), Normal())
APART: tuple[Population, ...] = (Normal(-1.0), Uniform(-1.0, 1.0), Cauchy(0.5, 2.0))
ROUGH: tuple[Population, ...] = (
    StudentT(degrees=3.0),
    LogNormal(),
    Mixture((Normal(-2.0), Normal(1.0, 0.5)), (0.3, 0.7)),
)


def cell(populations: tuple[Population, ...], design: Design, records: int = 300, **changes: Any) -> Cell:
    clients = len(populations)
    made = Cell(
        populations=populations,
        levels=(0.7,) * clients,
        truth_rates=tuple(np.linspace(0.5, 0.9, clients).tolist()),
        weights=(0.5, 0.3, 0.2) if clients == 3 else (1.0 / clients,) * clients,
        design=design,
        records=(records,) * clients,
    )
    return replace(made, **changes)


def test_the_generator_is_xoshiro128plusplus() -> None:
    words = states(3, "generator", 0, LANES).reshape(-1)
    lane = 17
    draw = xoshiro128pp(words[lane::LANES].tolist())
    w = np.concatenate([words, np.zeros((kernels.WORDS - 4) * LANES, np.uint32)])
    assert [int(kernels._draw(w, np.uint64(lane))) for _ in range(1000)] == [draw() for _ in range(1000)]
    # The first outputs for state 1, 2, 3, 4, as computed by the authors' C code.
    known = xoshiro128pp([1, 2, 3, 4])
    assert [known() for _ in range(4)] == [641, 1573767, 3222811527, 3517856514]


def replayed(setting: Cell, seed: int, lane: int) -> tuple[float, float]:
    """Replication `lane` in plain Python: the same generator, the same table, the report drawn as the kernel says."""
    draw = xoshiro128pp(states(seed, setting.key, 0, LANES)[:, lane].tolist())
    start = float(setting.start.quantile(float(uniforms(seed, setting.key, 0, LANES)[lane])))
    low, high = packing.first_range(setting, np.asarray(setting.start.quantile(uniforms(seed, setting.key, 0, LANES))))
    reach = packing.reach(setting)
    grid = make_grid(setting.populations, low - reach, high + reach)
    assert grid is not None
    cells = grid.tables.shape[1] - 1
    in_local = setting.design.mode == "local" and int(setting.lengths.max()) > 1

    def report(k: int, q: float) -> bool:
        r, g = setting.truth_rates[k], grid.groups[k]
        at = (q - grid.lows[g]) * grid.inverses[g]
        row = grid.tables[grid.rows[g]].astype(float)
        bits = draw()
        if in_local:
            survival = row[math.floor(at + ((bits & 1023) + 0.5) / 1024)]
        else:
            survival = row[int(at)] + (at - int(at)) * (row[int(at) + 1] - row[int(at)])
        assert 0 <= at < cells
        return bool(bits / 2**32 < (1 - r) / 2 + r * survival)

    lengths, steps = setting.lengths[0].tolist(), setting.steps.tolist()
    queries = algorithm_1(
        start, report, setting.truth_rates, setting.weights, setting.level, lengths, steps,
        in_cohort=setting.design.mode == "cohort",
    )  # fmt: skip
    return algorithm_2(queries[setting.skip :], lengths[setting.skip :])


REPLAYED = {
    "C1": cell(ALIKE, C1),
    "C5": cell(APART, C5),
    "Log": cell(ROUGH, replace(LOG, burn_in=0.2)),
    "cohort of 4": cell(APART, SMALL_COHORT),
}


@pytest.mark.parametrize("name", REPLAYED)
def test_a_kernel_is_algorithm_1_with_the_same_draws(name: str) -> None:
    found = engine.run_cell(REPLAYED[name], LANES, seed=5, path="law")
    for lane in (0, 1, LANES - 1):
        mean, value = replayed(REPLAYED[name], 5, lane)
        # Steps inside a round are rounded to 2⁻²⁰ of a table's cell; everything else is double precision.
        assert found.estimates[lane] == pytest.approx(mean, abs=1e-6)
        assert found.normalizers[lane] == pytest.approx(value, rel=1e-4)


def test_reports_on_one_data_set_are_algorithm_1_too() -> None:
    setting = cell(APART, C5, fixed_data=True)
    data = setting.data()
    found = engine.run_cell(setting, LANES, seed=5)
    for lane in (0, 77):
        draw = xoshiro128pp(states(5, setting.key, 0, LANES)[:, lane].tolist())
        used = [0, 0, 0]

        def report(k: int, q: float, draw: Any = draw, used: list[int] = used) -> bool:
            x, r = data[k, used[k]], setting.truth_rates[k]
            used[k] += 1
            return bool(draw() / 2**32 < ((1 + r) / 2 if x > q else (1 - r) / 2))

        start = float(setting.start.quantile(float(uniforms(5, setting.key, 0, LANES)[lane])))
        lengths, steps = setting.lengths[0].tolist(), setting.steps.tolist()
        queries = algorithm_1(start, report, setting.truth_rates, setting.weights, setting.level, lengths, steps)
        mean, value = algorithm_2(queries, lengths)
        assert used == [300, 300, 300]
        assert found.estimates[lane] == pytest.approx(mean, abs=1e-10)
        assert found.normalizers[lane] == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize("length", [12, 33, 100, 1000])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.731])
def test_counts_from_bits_are_binomial(length: int, share: float) -> None:
    w = np.zeros(kernels.WORDS * LANES, np.uint32)
    w[: 4 * LANES] = states(1, f"{length}{share}", 0, LANES).reshape(-1)
    w[kernels.THRESHOLD * LANES :][:LANES] = int(share * 2**31)
    counts = []
    for _ in range(200):
        kernels._count_binomial(w, length)
        counts.append(w[kernels.COUNT * LANES :][:LANES].copy())
    drawn = np.concatenate(counts)
    law = stats.binom(length, share)
    edges = np.unique(law.ppf(np.linspace(0.05, 0.95, 10)))
    seen = np.histogram(drawn, np.concatenate([[-0.5], edges + 0.5, [length + 0.5]]))[0]
    expected = drawn.size * np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]]))
    # Twelve tests of this kind: a chance of 1e-4 each leaves one in a thousand for all.
    assert stats.chisquare(seen, expected).pvalue > 1e-4


def test_the_laplace_variate_is_minus_log_of_its_uniform() -> None:
    for bits in (0, 1, 2, 3, 255, 2**31, 2**31 + 1, 2**32 - 1, 123_456_789, 987_654_321):
        uniform = ((bits >> 1) | 1) / 2**31
        exact = -math.log(uniform) * (1 if bits & 1 else -1)
        assert float(kernels._laplace(np.uint32(bits))) == pytest.approx(exact, abs=3e-6)


@pytest.mark.parametrize("populations", [ALIKE, APART, ROUGH])
def test_tables_give_the_survival_function(populations: tuple[Population, ...]) -> None:
    grid = make_grid(populations, -6.0, 7.0)
    assert grid is not None
    cells = grid.tables.shape[1] - 1
    q = np.random.default_rng(2).uniform(-6.0, 7.0, 20_000)
    for population, group in zip(populations, grid.groups, strict=True):
        at = (q - grid.lows[group]) * grid.inverses[group]
        row, knot = grid.tables[grid.rows[group]].astype(float), at.astype(int)
        assert at.min() >= 0
        assert at.max() < cells
        table = row[knot] + (at - knot) * (row[knot + 1] - row[knot])
        assert np.max(np.abs(table - (1.0 - population.cdf(q)))) < ACCURACY
        # The dithered look-up: the mean over its 1,024 equally likely low bits.
        few = at[:50]
        dithered = np.mean([row[np.floor(few + (j + 0.5) / 1024).astype(int)] for j in range(1024)], axis=0)
        assert np.max(np.abs(dithered - (1.0 - population.cdf(q[:50])))) < ACCURACY


ALARM = 2e-4
"""Level of a Kolmogorov–Smirnov test: with sixteen of them, one false alarm in three hundred seeds."""


def same_law(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> float:
    return float(stats.ks_2samp(ours, theirs).pvalue)


TWO_PATHS = {
    "C1 alike": cell(ALIKE, C1),
    "C1 apart": cell(APART, C1),
    "C5": cell(APART, C5),
    "Log": cell(ROUGH, LOG),
    "cohort": cell(APART, COHORT),
    "cohort rough": cell(ROUGH, SMALL_COHORT),
    "dp-sgd": cell(APART, C1, method="dp-sgd"),
    "divide": cell(APART, DIVIDE, method="divide", levels=(0.6, 0.7, 0.8)),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", TWO_PATHS)
def test_drawing_reports_and_drawing_records_agree_in_law(name: str) -> None:
    setting = TWO_PATHS[name]
    law = engine.run_cell(setting, 4096, seed=1, path="law")
    records = engine.run_cell(setting, 4096, seed=2, path="records")
    assert same_law(law.estimates, records.estimates) > ALARM
    assert same_law(law.normalizers, records.normalizers) > ALARM


@pytest.mark.slow
def test_records_are_drawn_from_every_family() -> None:
    populations = (*ROUGH, Uniform(0.0, 2.0), Cauchy(), Dithered([1.0, 2.0, 4.0], 3.0), Empirical([1.0, 2.0, 4.0]))
    setting = cell(populations, C1, records=2, truth_rates=(1.0,) * 7)
    sampler = sampler_arrays(populations)
    w = states(1, "families", 0, LANES).reshape(-1).copy()
    for k, population in enumerate(populations):
        drawn = np.array(
            [kernels._record(w, i % LANES, sampler[0][k], sampler[0][k + 1], *sampler[1:]) for i in range(4000)]
        )
        if type(population) is Empirical:
            shares = [np.mean(drawn == value) for value in (1.0, 2.0, 4.0)]
            assert shares == pytest.approx([1 / 3] * 3, abs=4 * math.sqrt(2 / 9 / 4000))
        else:
            assert stats.kstest(drawn, population.cdf).pvalue > 1e-3
    assert setting.updates == 14


MISTAKES = {
    "none": {},
    "truth rate off by 2%": {
        "c.base, c.slope, tables": "{c.base + F32(0.01) * c.slope | c.base}, {F32(0.98) * c.slope | c.slope}, tables"
    },
    "step index off": {
        "step, length, each = r.step, r.length, r.each": "step, length = r.step, r.length\n"
        "        each = {rounds[U64(job.first_round) + U64(min(m + 1, last - 1))].step / length | r.each}"
    },
    "missing 1/r": {
        "c.rise * each, c.fall * each": "{c.rise * c.share / c.move | c.rise} * each, "
        "{c.fall * c.share / c.move | c.fall} * each"
    },
}
"""Text of the kernels, and what replaces it: {wrong | right} is what stands before the bar where this is chosen."""


@pytest.fixture(scope="module")
def kernels_with_mistakes() -> tuple[ModuleType, list[int]]:
    """The kernels' file with all mistakes in it, compiled once and never cached, and which one is made (its number)."""
    source, chosen = Path(kernels.__file__).read_text(encoding="utf-8").replace("cache=True, ", ""), [0]
    for number, replacements in enumerate(MISTAKES.values()):
        for old, new in replacements.items():
            assert old in source
            source = source.replace(old, re.sub(r"{(.*?) \| (.*?)}", rf"(\1 if _mistake() == {number} else \2)", new))
    module = ModuleType("wrong_kernels")
    # A function of C, since compiled code takes variables for constants.
    module.__dict__["_mistake"] = ctypes.CFUNCTYPE(ctypes.c_int64)(lambda: chosen[0])
    exec(compile(source, "wrong_kernels", "exec"), module.__dict__)
    return module, chosen


# Two clients whose truth rates differ: a forgotten 1/r moves the root, and a truth rate off by 2% moves it by
# 0.02·(τ − ½)/f, a third of a standard deviation here: plain to see in 4,096 replications.
UNLIKE = cell((Normal(0.0), Normal(2.0)), C5, 2000, levels=(0.85, 0.85), truth_rates=(0.9, 0.5))


@pytest.fixture(scope="module")
def estimates_from_records() -> Floats:
    return engine.run_cell(UNLIKE, 4096, seed=2, path="records").estimates


@pytest.mark.statistical
@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_kernel_is_caught(
    name: str,
    kernels_with_mistakes: tuple[ModuleType, list[int]],
    estimates_from_records: Floats,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same two checks pass the kernel without a mistake and fail each wrong one."""
    real = engine.run_cell(REPLAYED["C5"], LANES, seed=5, path="law")
    module, chosen = kernels_with_mistakes
    chosen[0] = list(MISTAKES).index(name)
    monkeypatch.setattr(engine, "load_kernels", lambda: module)
    found = engine.run_cell(REPLAYED["C5"], LANES, seed=5, path="law")
    miss = max(abs(found.estimates[lane] - replayed(REPLAYED["C5"], 5, lane)[0]) for lane in (0, 1, LANES - 1))
    law = same_law(engine.run_cell(UNLIKE, 4096, seed=1, path="law").estimates, estimates_from_records)
    assert (miss < 1e-6) == np.array_equal(found.estimates, real.estimates) == (name == "none")
    if name == "step index off":
        # A step of the wrong round hardly changes the law: only the replay sees it, by a thousandfold.
        assert miss > 1e-4
    else:
        assert (law > ALARM) == (name == "none")
