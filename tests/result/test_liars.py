"""People who lie one after another: where they decide the interval no bound is printed, and the result says so."""

import numpy as np
import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.clients import UNKNOWN_SIZE
from privatile.estimator.ending import round_length
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.result.result import QuantileResult
from privatile.result.summary import summarize
from privatile.server.coordinator import Track
from privatile.simulation.populations import Normal

COIN = RandomizedResponse.from_epsilon(1.0)
SPEC = RunSpec(
    "value", (0.5,), (ClientSpec("all", COIN.threshold, 1.0, UNKNOWN_SIZE),), "identity", -10.0, 10.0,
    weighting="given", simulated=True, design="open",
)  # fmt: skip
PEOPLE = 2_000


def survey(seed: int, first: int, liars: int) -> QuantileResult:
    """Normal values at ε = 1; `liars` people from `first` on say yes whatever they are asked."""
    rng, track, came = np.random.default_rng(seed), Track(SPEC, 0), 0
    values, honest = rng.standard_normal(PEOPLE), rng.random(PEOPLE) < 0.5 * (1.0 + COIN.truth_rate)
    lying = (np.arange(PEOPLE) >= first) & (np.arange(PEOPLE) < first + liars)
    while came < PEOPLE:
        assert track.ask is not None
        here = slice(came, came := min(came + round_length(came), PEOPLE))
        bits = np.where(lying[here], True, (values[here] > track.ask.query) == honest[here])
        track.advance([int(bits.sum())], (), [len(bits)])
    return summarize(SPEC, track.plan, track.state, track.trajectory, "run", at_fixed_end=False)


@pytest.mark.parametrize("seed", [4, 8])
def test_liars_who_come_together_are_told_of_and_not_bounded(seed: int) -> None:
    fooled, plain = survey(seed, 500, 100), survey(seed, 0, 0)
    assert Normal().cdf(fooled.estimate) > 0.9  # 100 of 2,000 made the median look like the upper tenth
    assert fooled.facts()["liars"] == []
    assert not fooled.reliable
    assert any("contradict the others" in caveat.text for caveat in fooled.caveats)
    assert [one["people"] for one in plain.facts()["liars"]] == [1, 10, 100, 1000]
    assert not any(caveat.code == "contradiction" for caveat in plain.caveats)
    assert abs(Normal().cdf(plain.estimate) - 0.5) < 0.1
