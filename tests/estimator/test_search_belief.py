import math
from typing import NamedTuple

import pytest

from privatile.estimator.search import Belief, begin_belief, best_question, copied, learn_in_search, summarize


class Bounds(NamedTuple):
    level: float
    low: float
    high: float
    boundary: float = 1.0


def asked(bounds: Bounds, belief: Belief, center: float, spread: float, times: int, variance: float) -> Belief:
    """After so many answers without noise, said to have a variance, of a logistic curve."""
    for _ in range(times):
        query, _ = best_question(bounds, belief, 0.01 * variance)
        belief = copied(belief)
        answer = bounds.level - 0.5 * (1.0 + math.tanh(0.5 * (query - center) / spread))
        learn_in_search(bounds, belief, query, answer, variance)
    return belief


@pytest.mark.parametrize(("low", "high", "level"), [(-10, 10, 0.5), (-1e6, 1e6, 0.5), (0, 1e5, 0.9)])
def test_the_belief_finds_the_quantile_of_a_curve(low: float, high: float, level: float) -> None:
    """Forty rounds leave less than a spread of doubt, six decades or not."""
    center, spread, bounds = 3.0, 0.5, Bounds(level, low, high)
    known = summarize(bounds, asked(bounds, begin_belief(bounds), center, spread, 40, 1e-3))
    assert abs(known.quantile - (center + spread * math.log(level / (1 - level)))) < spread
    assert known.error < spread
    assert 0.3 < known.spread / spread < 3


def test_a_belief_that_was_led_astray_comes_back() -> None:
    """Unlucky answers point to 400 and the grid zooms in there; enough honest ones bring it back to −300."""
    bounds = Bounds(0.5, -1000.0, 1000.0)
    belief = asked(bounds, begin_belief(bounds, room=4), 400.0, 2.0, 5, 0.09)
    assert belief.box[0] > -300.0  # cut off
    belief = asked(bounds, belief, -300.0, 2.0, 60, 0.01)
    assert belief.box[0] < -300.0 < belief.box[1]
    assert abs(summarize(bounds, belief).quantile + 300.0) < 30


def test_an_answer_of_infinite_variance_changes_nothing_and_a_full_belief_takes_none() -> None:
    bounds = Bounds(0.5, -5.0, 5.0)
    belief = begin_belief(bounds, room=1)
    learn_in_search(bounds, belief, 1.0, 0.4, math.inf)
    assert belief.answers == 0
    assert not belief.logs.any()
    learn_in_search(bounds, belief, 1.0, 0.4, 0.1)
    with pytest.raises(IndexError, match="no room"):
        learn_in_search(bounds, belief, 1.0, 0.4, 0.1)


def test_a_copy_is_not_changed_by_later_answers() -> None:
    bounds = Bounds(0.5, -5.0, 5.0)
    belief = asked(bounds, begin_belief(bounds), 1.0, 0.5, 3, 0.1)
    kept = copied(belief)
    learn_in_search(bounds, belief, 2.0, -0.3, 0.1)
    assert (kept.answers, belief.answers) == (3, 4)
    assert not (kept.logs == belief.logs).all()
