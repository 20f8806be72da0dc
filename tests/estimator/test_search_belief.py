import math

import numpy as np
import pytest

from privatile.estimator import search


def answer(queries: np.ndarray, center: float, spread: float, level: float) -> np.ndarray:
    return level - 1 / (1 + np.exp(-np.clip((queries - center) / spread, -700, 700)))


@pytest.mark.parametrize(("low", "high", "level"), [(-10, 10, 0.5), (-1e6, 1e6, 0.5), (0, 1e5, 0.9)])
def test_the_belief_finds_the_quantile_of_a_curve(low: float, high: float, level: float) -> None:
    """Answers without noise, said to be noisy: forty rounds leave less than a spread of doubt, six decades or not."""
    center, spread = 3.0, 0.5
    belief = search.begin(level, low, high)
    for _ in range(40):
        query, _ = search.best_question(belief, 1e-4)
        belief = search.learn(belief, query, answer(query, center, spread, level), np.array([1e-3]))
    known = search.summarize(belief)
    truth = center + spread * math.log(level / (1 - level))
    assert abs(float(known.quantile[0]) - truth) < spread
    assert float(known.error[0]) < spread
    assert 0.3 < float(known.spread[0]) / spread < 3


def test_a_belief_that_was_led_astray_comes_back() -> None:
    """Unlucky answers point to 400 and the grid zooms in there; enough honest ones bring it back to −300."""
    belief = search.begin(0.5, -1000.0, 1000.0)
    for _ in range(5):
        query, _ = search.best_question(belief, 0.01)
        belief = search.learn(belief, query, answer(query, 400.0, 2.0, 0.5), np.array([0.09]))
    assert float(belief.boxes[0, 0]) > -300.0  # cut off
    for _ in range(60):
        query, _ = search.best_question(belief, 0.01)
        belief = search.learn(belief, query, answer(query, -300.0, 2.0, 0.5), np.array([0.01]))
    assert float(belief.boxes[0, 0]) < -300.0 < float(belief.boxes[0, 1])
    assert abs(float(search.summarize(belief).quantile[0]) + 300.0) < 30


def test_runs_of_a_batch_do_not_touch_each_other() -> None:
    rng = np.random.default_rng(3)
    together = search.begin(0.3, -5.0, 5.0, runs=3)
    alone = [search.begin(0.3, -5.0, 5.0) for _ in range(3)]
    for _ in range(12):
        queries, _ = search.best_question(together, 0.01)
        residuals = answer(queries, 1.0, 0.7, 0.3) + 0.1 * rng.standard_normal(3)
        together = search.learn(together, queries, residuals, np.full(3, 0.01))
        for i in range(3):
            own, _ = search.best_question(alone[i], 0.01)
            assert own[0] == queries[i]
            alone[i] = search.learn(alone[i], queries[i : i + 1], residuals[i : i + 1], np.array([0.01]))


def test_an_answer_of_infinite_variance_changes_nothing() -> None:
    belief = search.begin(0.5, -5.0, 5.0)
    after = search.learn(belief, np.array([1.0]), np.array([0.4]), np.array([np.inf]))
    assert np.array_equal(after.weights, belief.weights)
