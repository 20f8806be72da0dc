"""People who lie one after another: where they decide the interval no bound is printed, and the result says so."""

import math
import os
from statistics import NormalDist

import numpy as np
import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.clients import UNKNOWN_SIZE
from privatile.estimator.open_ended import round_length
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.result.result import QuantileResult
from privatile.result.summary import summarize
from privatile.run.coordinator import LevelRun
from privatile.simulation.populations import Normal

COIN = RandomizedResponse.from_epsilon(1.0)
SPEC = RunSpec(
    "value", (0.5,), (ClientSpec("all", COIN.threshold, 1.0, UNKNOWN_SIZE),), "identity", -10.0, 10.0,
    weighting="given", simulated=True, design="open",
)  # fmt: skip
PEOPLE = 2_000
FAR = 0.35
"""In rank: 100 of 2,000 with equal leverage move an estimate by 0.16, whose standard error is 0.024 or more."""

LONG = bool(os.environ.get("PRIVATILE_LONG"))


def survey(seed: int, first: int, liars: int) -> QuantileResult:
    """Normal values at ε = 1; `liars` people from `first` on say yes whatever they are asked."""
    rng, track, came = np.random.default_rng(seed), LevelRun(SPEC, 0), 0
    values, honest = rng.standard_normal(PEOPLE), rng.random(PEOPLE) < 0.5 * (1.0 + COIN.truth_rate)
    lying = (np.arange(PEOPLE) >= first) & (np.arange(PEOPLE) < first + liars)
    while came < PEOPLE:
        assert track.ask is not None
        here = slice(came, came := min(came + round_length(came), PEOPLE))
        bits = np.where(lying[here], True, (values[here] > track.ask.query) == honest[here])
        track.advance([int(bits.sum())], (), [len(bits)])
    return summarize(SPEC, track.plan, track.state, track.trajectory, "run", at_fixed_end=False)


def told(result: QuantileResult) -> bool:
    """Whether the result says that answers contradict each other."""
    return any("contradict the others" in caveat.text for caveat in result.caveats)


def rank_off(result: QuantileResult) -> float:
    """How far from the median the estimate is, in rank."""
    return abs(float(Normal().cdf(result.estimate)) - 0.5)


def rank_error(result: QuantileResult) -> float:
    """Standard error of the estimate's rank: its own, at least that of an efficient estimate of so many bits."""
    density = 1.0 / math.sqrt(2.0 * math.pi)
    return max(density * result.inference.error_scale, 1.0 / (2.0 * COIN.truth_rate * math.sqrt(PEOPLE)))


@pytest.mark.statistical
def test_liars_who_come_together_are_told_of_or_bounded() -> None:
    """100 of 2,000 in a row, after 500: a result prints a bound that holds, or says that nothing is bounded.

    In 64 of 200 surveys the median looks like a quantile beyond 0.85, which no bound would cover: these are told of.
    """
    seeds = range(200 if LONG else 16)
    # Of so many results by chance alone, one in a thousand has one that is off by more standard errors.
    errors = NormalDist().inv_cdf(1.0 - 0.0005 / len(seeds))
    fooled = 0
    for seed in seeds:
        result = survey(seed, 500, 100)
        bounds = {one["people"]: one["rank"] for one in result.facts()["liars"]}
        assert told(result) == (not bounds)
        if told(result):
            assert not result.reliable
            fooled += rank_off(result) > FAR
        else:
            assert list(bounds) == [1, 10, 100, 1000]
            assert rank_off(result) < min(FAR, bounds[100] + errors * rank_error(result)), seed
    # The control: there is something to tell of. None in 16 has the probability .68^16 = .002.
    assert fooled >= 1
    if LONG:
        print(f"fooled {fooled} of {len(seeds)}")
        assert abs(fooled - 0.32 * len(seeds)) < 4.0 * math.sqrt(0.32 * 0.68 * len(seeds))


@pytest.mark.statistical
def test_honest_people_contradict_nobody() -> None:
    seeds = range(200 if LONG else 6)
    errors = NormalDist().inv_cdf(1.0 - 0.0005 / len(seeds))
    for seed in seeds:
        plain = survey(seed, 0, 0)
        assert [one["people"] for one in plain.facts()["liars"]] == [1, 10, 100, 1000]
        assert not told(plain)
        assert rank_off(plain) < errors * rank_error(plain), seed
