"""The change alarm, the series over weeks, and what liars can do."""

import math
from itertools import pairwise

import numpy as np
import pytest

from privatile.core.arrays import Floats
from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.clients import Client
from privatile.estimator.open_ended import OpenRules, begin, learn, round_length
from privatile.estimator.straddle import SEARCH
from privatile.inference.series import (
    Change,
    bit_influences,
    change,
    change_in,
    largest_influences,
    least_falling_sum,
    series,
    shares,
)
from privatile.inference.trajectory import ClientAnswers
from privatile.simulation.populations import Normal

RATE = math.tanh(0.5)


def answers_of(runs: int, people: int, shift: float, seed: int, step: float = 0.0) -> tuple[Floats, ...]:
    """Window answers (rounds × runs) of normal values, or of values on a grid, that move by `shift` at half time."""
    rules, rng = OpenRules(0.5, -10.0, 10.0), np.random.default_rng(seed)
    states, rows, came = [begin(rules) for _ in range(runs)], [], 0
    while came < people:
        length = round_length(came)
        came += length
        query = np.array([state.query for state in states])
        place = step * np.floor(query / step) if step else query
        above = 1.0 - Normal().cdf(place - (shift if came > people / 2 else 0.0))
        answer = (rng.binomial(length, 0.5 + RATE * (above - 0.5)) / length - 0.5) / RATE
        precision, inside = 4.0 * RATE**2 * length, [state.stage != SEARCH for state in states]
        rows.append((query, answer, np.full(runs, precision), inside))
        for state, residual in zip(states, answer.tolist(), strict=True):
            state.belief.make_room()
            learn(rules, state, residual, 1.0 / precision)
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def found_in(run: int, columns: tuple[Floats, ...], until: int | None = None) -> Change:
    queries, answers, precisions, inside = (column[:until, run] for column in columns)
    used = np.flatnonzero(inside)
    return change_in(queries[used], answers[used], precisions[used], (used + 1).tolist())


def test_the_least_falling_sum_is_the_smallest_of_all_falling_functions() -> None:
    rng = np.random.default_rng(1)
    places = rng.integers(0, 6, 30).astype(np.float64)
    values, weights = rng.normal(size=30), rng.uniform(1, 5, 30)
    least = least_falling_sum(places, values, weights)
    for _ in range(2000):
        falling = np.sort(rng.normal(0.0, 0.7, 6))[::-1][places.astype(int)]
        assert least <= float(weights @ (values - falling) ** 2)
    flat = float(weights @ (values - np.average(values, weights=weights)) ** 2)
    assert least < flat
    assert float(shares(10**6, 12).sum()) <= 1.0


@pytest.mark.statistical
def test_no_alarm_without_a_change_and_one_with_it() -> None:
    """6 looks of 40 runs, normal and whole-number values: .05 allowed, far less found. A move of 0.3 is found."""
    for step in (0.0, 0.5):
        columns = answers_of(20, 20_000, 0.0, 3, step)
        looks = np.linspace(40, len(columns[0]), 6).astype(int)
        assert sum(any(found_in(run, columns, look).alarm for look in looks) for run in range(20)) <= 2
    moved = answers_of(12, 60_000, 0.3, 4)
    found = [found_in(run, moved) for run in range(12)]
    assert sum(one.alarm and one.jump > 0.0 for one in found) >= 10
    half = np.searchsorted(np.cumsum(moved[2][:, 0]), moved[2][:, 0].sum() / 2)
    assert np.median([abs(one.round - half) for one in found]) < 25


def test_an_alarm_from_a_wrong_precision_is_the_control() -> None:
    """Answers counted with thirty times their precision look like a change."""
    queries, answers, precisions, inside = answers_of(10, 30_000, 0.0, 5)
    wrong = (queries, answers, 30.0 * precisions, inside)
    assert sum(found_in(run, wrong).alarm for run in range(10)) >= 5


def test_strata_are_watched_together_and_one_by_one() -> None:
    """Only the second of two moves, and in half of the rounds the other is absent."""
    columns = [answers_of(1, 60_000, shift, 6 + k) for k, shift in enumerate((0.0, 0.5))]
    rounds = len(columns[0][0])
    queries = columns[1][0][:, 0]
    rng, moves = np.random.default_rng(2), np.cumsum(columns[1][2][:, 0]) > columns[1][2][:, 0].sum() / 2
    residuals, precisions = np.zeros((rounds, 2)), np.zeros((rounds, 2))
    for k in range(2):
        lengths = columns[1][2][:, 0] / (4.0 * RATE**2) / 2.0
        above = 1.0 - Normal().cdf(queries - (0.5 * moves if k else 0.0))
        residuals[:, k] = (rng.binomial(lengths.astype(int), 0.5 + RATE * (above - 0.5)) / lengths - 0.5) / RATE
        precisions[:, k] = 4.0 * RATE**2 * lengths
    precisions[::2, 0] = 0.0
    weights, first = np.array([0.5, 0.5]), int(np.flatnonzero(columns[1][3][:, 0])[0])
    assert change(ClientAnswers(queries, residuals, precisions), weights, first).alarm


def test_a_series_follows_what_moves() -> None:
    """Four periods; the quantile moves by 0.3 after the second. Most intervals cover what was true then."""
    covered, widths, one = 0, [], (np.ones(1), np.array([RATE]), 0.95)
    columns = answers_of(15, 60_000, 0.3, 8)
    for run in range(15):
        queries, answers, precisions, inside = (column[:, run] for column in columns)
        used = np.flatnonzero(inside)
        periods = np.minimum((4.0 * np.cumsum(precisions) / precisions.sum()).astype(int), 3)[used]
        each = ClientAnswers(queries[used], answers[used, None], precisions[used, None])
        parts = series(each, periods.tolist(), *one)
        assert sum(part.people for part in parts) == round(precisions[used].sum() / (4.0 * RATE**2))  # each person once
        covered += sum(part.low < truth < part.high for part, truth in zip(parts, (0.0, 0.0, 0.3, 0.3), strict=True))
        widths += [part.high - part.low for part in parts]
    assert covered >= 51  # of 60; 51 or fewer have probability .001 at .95
    assert float(np.median(widths)) < 0.2
    empty = each.precisions.copy()
    empty[periods == 1] = 0.0
    silent = series(ClientAnswers(each.queries, each.residuals, empty), periods.tolist(), *one)
    assert math.isnan(silent[1].estimate)
    assert math.isinf(silent[1].high)


def test_the_influence_of_a_bit_is_what_a_flipped_answer_moves() -> None:
    """Against the lines themselves: one liar in one cell, and the sum of the largest is never beaten by any choice."""
    rng = np.random.default_rng(3)
    clients = tuple(
        Client(name, RandomizedResponse.from_epsilon(epsilon), weight, 0.5, 1)
        for name, epsilon, weight in (("many", 1.0, 0.8), ("few", 2.0, 0.2))
    )
    rates = np.array([client.mechanism.truth_rate for client in clients])
    people = np.stack([rng.integers(20, 200, 30), rng.integers(1, 9, 30)], axis=1).astype(float)
    answers = ClientAnswers(rng.normal(0.1, 0.4, 30), np.zeros((30, 2)), 4.0 * rates**2 * people)
    each, bits = bit_influences(clients, answers, 0.0)
    assert np.allclose(bits, people)
    heights = []
    for bit in (0.0, 1.0):  # of the person of cell (7, 1), by the regression itself
        y = np.zeros(30)
        y[7] = bit * (1.0 + rates[1]) / (2.0 * rates[1]) / people[7, 1]
        line = np.polynomial.Polynomial.fit(answers.queries, y, 1, w=np.sqrt(answers.precisions[:, 1]))
        heights.append(0.2 * float(line(0.0)))
    assert abs(heights[1] - heights[0]) == pytest.approx(each[7, 1])
    found = dict(largest_influences(clients, answers, 0.0, (1, 5, 50)))
    assert found[1] == pytest.approx(each.max())
    pool = np.repeat(each.ravel(), people.astype(int).ravel())
    assert found[50] == pytest.approx(np.sort(pool)[-50:].sum())
    assert all(found[50] >= rng.choice(pool, 50, replace=False).sum() for _ in range(100))
    alone = largest_influences(clients[:1], ClientAnswers(np.zeros(1), np.zeros((1, 1)), np.full((1, 1), 1000.0)), 0.0)
    bound = [(1.0 + RATE) / (2.0 * RATE) * k * 0.8 * 4.0 * RATE**2 / 1000.0 for k, _ in alone]
    assert [rank for _, rank in alone] == pytest.approx(bound)
    assert all(a < b for a, b in pairwise(bound))
