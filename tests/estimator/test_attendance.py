"""Silent clients: answers wait for the others, and none is used twice."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privatile.core.arrays import Floats
from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.clients import Client
from privatile.estimator.pools import Pools, add_round
from privatile.inference.curve import fit_client_lines

CLIENTS = tuple(Client(name, RandomizedResponse(0.5), weight, 0.5, 1000) for name, weight in (("a", 0.25), ("b", 0.75)))


def test_every_answer_is_heard_once_and_waits_where_a_client_is_silent() -> None:
    rng = np.random.default_rng(1)
    pools: Pools = {}
    said, heard_records, answered = 0.0, 0.0, np.zeros(2, dtype=int)
    for m in range(400):
        silent = rng.random(2) < 0.4
        means = [None if quiet else float(rng.random()) for quiet in silent]
        answered += np.where(silent, 0, 10)
        pools, heard = add_round(pools, "low", float(m), (10, 10), means, CLIENTS, 0.5)
        if math.isfinite(heard.variance):
            said += 1
            # 1/w = 1/Σp²/(4r²N): with p = ¼, ¾ and r = ½ the records follow from it only together; count the pool's.
            heard_records += heard.rounds
        waiting = pools.get("low")
        assert waiting is None or not all(waiting.records)
    waiting_rounds = len(pools["low"].places)
    silent_rounds = 400 - heard_records - waiting_rounds
    # Rounds in which nobody answered (a share of .16) stand for nothing; all others were heard once or still wait.
    assert 0.1 < silent_rounds / 400 < 0.22
    assert said > 100


def test_a_pool_stands_at_its_outermost_question() -> None:
    for stage, place in (("low", 1.0), ("high", 3.0)):
        pools, heard = add_round({}, stage, 3.0, (10, 10), (0.4, None), CLIENTS, 0.5)
        assert heard.variance == math.inf
        pools, heard = add_round(pools, stage, 2.0, (10, 10), (0.4, None), CLIENTS, 0.5)
        pools, heard = add_round(pools, stage, 1.0, (10, 10), (None, 0.7), CLIENTS, 0.5)
        assert heard.place == place
        assert math.isclose(heard.variance, sum(client.noise(n) for client, n in zip(CLIENTS, (20, 10), strict=True)))
        assert not pools[stage].places


def test_client_lines_keep_the_estimand_where_leaving_silent_clients_out_does_not() -> None:
    """Two clients at 0 and 2, the second silent half of the time: the mixture's median is 1."""
    rng = np.random.default_rng(2)
    queries = 1.0 + rng.normal(0.0, 0.15, 300)
    ranks = 0.5 * (1.0 + np.tanh(0.8 * (queries[:, None] - np.array([0.0, 2.0]))))
    truth = 0.5 - ranks
    precisions = np.full((300, 2), 400.0)
    precisions[rng.random(300) < 0.5, 1] = 0.0
    residuals = truth + rng.normal(size=(300, 2)) / 20.0
    lines = fit_client_lines(queries, residuals, precisions, np.array([0.5, 0.5]))
    assert abs(lines.center - 1.0) < 4.0 * lines.error
    assert lines.error < 0.03
    came = precisions > 0.0
    shares = np.where(came, 0.5, 0.0) / np.where(came, 0.5, 0.0).sum(axis=1, keepdims=True)
    renormalised = float((shares * residuals).sum(axis=1).mean() / lines.slope + queries.mean())
    assert abs(renormalised - 1.0) > 10.0 * lines.error


def repeated(residuals: Floats, precisions: Floats) -> tuple[Floats, Floats]:
    """The control: where a client is silent its last answer stands once more, as if it were new."""
    residuals, precisions = residuals.copy(), precisions.copy()
    for m in range(1, len(residuals)):
        silent = precisions[m] == 0.0
        residuals[m, silent], precisions[m, silent] = residuals[m - 1, silent], precisions[m - 1, silent]
    return residuals, precisions


@pytest.mark.parametrize("repeats", [False, True])
def test_the_stated_error_of_client_lines_is_their_scatter_and_a_repeated_answer_is_found(repeats: bool) -> None:
    rng = np.random.default_rng(3)
    queries = np.linspace(-0.3, 0.3, 60)
    slopes, shifts = np.array([0.4, 0.9, 0.6]), np.array([0.1, -0.2, 0.1])
    weights = np.array([0.2, 0.3, 0.5])
    truth = float(weights @ (slopes * shifts)) / float(weights @ slopes)
    found, stated = [], []
    for _ in range(600):
        precisions = np.where(rng.random((60, 3)) < 0.3, 0.0, 300.0)
        answers = -slopes * (queries[:, None] - shifts) + rng.normal(size=(60, 3)) / math.sqrt(300.0)
        if repeats:
            answers, precisions = repeated(answers, precisions)
        lines = fit_client_lines(queries, answers, precisions, weights)
        found.append(lines.center)
        stated.append(lines.error)
    ratio = float(np.std(found)) / float(np.mean(stated))
    tolerance = 4.0 / math.sqrt(1200)
    if repeats:
        assert ratio > 1.0 + tolerance
        return
    assert abs(float(np.mean(found)) - truth) < 4.0 * float(np.std(found)) / math.sqrt(600)
    assert abs(ratio - 1.0) < tolerance
