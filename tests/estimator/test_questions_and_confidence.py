"""No question depends on the confidence level that is asked for."""

import math

import numpy as np
import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.plan import begin, step
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.inference.trajectory import Trajectory
from privatile.result.summary import summarize
from privatile.simulation.populations import Normal

RATE = math.tanh(0.5)


@pytest.mark.parametrize(("design", "values"), [("straddle", "any"), ("tuned", "continuous")])
def test_no_question_depends_on_the_confidence_level(design: str, values: str) -> None:
    """The same coins: whatever confidence is asked for, cohorts and questions are the same to the last bit."""
    clients = (ClientSpec("all", RandomizedResponse.from_epsilon(1.0).threshold, 1.0, 6000),)
    asked, widths = [], []
    for confidence in (0.8, 0.95, 0.999):
        spec = RunSpec(
            "x", (0.3,), clients, "linear", 0.0, 100.0, design=design, value_kind=values, confidence_level=confidence
        )
        plan, rng, questions = spec.plan(), np.random.default_rng(5), []
        state, trajectory = begin(plan), Trajectory()
        while (ask := plan.ask(state)) is not None:
            questions.append((ask.query, ask.lengths))
            above = 1.0 - float(Normal(40.0, 10.0).cdf(np.array(plan.scale.to_units(ask.query))))
            state = step(state, ask, [int(rng.binomial(n, 0.5 + RATE * (above - 0.5))) for n in ask.lengths], plan)
            trajectory.record(ask, state, plan)
        asked.append(questions)
        low, high = summarize(spec, plan, state, trajectory, "r").confidence_interval
        widths.append(high - low)
    assert asked[0] == asked[1] == asked[2]
    assert widths[0] < widths[2]  # what is reported does
