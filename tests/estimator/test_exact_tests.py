"""Which runs have too few effective answers for the normal law, and that the exact tests hold there."""

import math

import numpy as np
import pytest

from privatile.core.mechanism import RandomizedResponse, debias, yes_probability
from privatile.core.scale import Linear
from privatile.estimator.clients import Client
from privatile.estimator.pools import add_round, effective_answers, level_variance, needs_exact, variance_bound
from privatile.estimator.straddle import StraddlePlan
from tests.inference.one_side import accepted_share, asked_all_the_time

RUNS, SIDE = 8_000, 0.025
FEW = {"few": (0.5, 0.4621, 200), "high": (0.95, 0.999, 600), "99%": (0.99, 0.9051, 600), "90%": (0.9, 0.9051, 600)}
MANY = {"ordinary": (0.5, 0.4621, 2_000), "ε 3": (0.5, 0.9051, 600), "ninth": (0.9, 0.4621, 2_000)}


def clients_of(*rows: tuple[float, float, int, float]) -> tuple[Client, ...]:
    return tuple(Client(f"c{k}", RandomizedResponse(r), p, level, n) for k, (level, r, n, p) in enumerate(rows))


@pytest.mark.parametrize(("case", "exact"), [*((one, True) for one in FEW), *((one, False) for one in MANY)])
def test_few_effective_answers_take_exact_tests(case: str, exact: bool) -> None:
    level, rate, records = (FEW | MANY)[case]
    clients = clients_of((level, rate, records, 1.0))
    assert needs_exact(clients) == exact
    assert StraddlePlan(clients, Linear(0.0, 1.0), 100).exact == exact


def test_a_small_client_counts_by_its_weight() -> None:
    """60 of 6,060 records that make half of the mixture are few; with their own share they are none too few."""
    assert needs_exact(clients_of((0.5, 0.4621, 60, 0.5), (0.5, 0.4621, 6_000, 0.5)))
    assert not needs_exact(clients_of((0.5, 0.4621, 60, 60 / 6060), (0.5, 0.4621, 6_000, 6000 / 6060)))
    many = clients_of(*[(0.5, 0.4621, 100, 0.02)] * 50)
    assert effective_answers(many) == pytest.approx(5_000)


@pytest.mark.parametrize(
    ("level", "rates", "weights", "records"),
    [
        (0.95, (0.999,), (1.0,), (240,)),
        (0.99, (0.9051,), (1.0,), (240,)),
        (0.95, (0.999, 0.999), (0.5, 0.5), (120, 120)),
    ],
)
def test_exact_tests_hold_where_the_normal_law_does_not(
    level: float, rates: tuple[float, ...], weights: tuple[float, ...], records: tuple[int, ...]
) -> None:
    """A side may err in .025 of runs. The control, the normal law, errs in more: rare bits have long tails."""
    assert needs_exact(clients_of(*((level, r, n, p) for r, n, p in zip(rates, records, weights, strict=True))))
    rng, rounds, errors = np.random.default_rng(1), 10, {}
    lengths = np.maximum(np.array(records) // rounds, 1)
    for exact in (True, False):
        spread = math.sqrt(float(variance_bound(level, np.array(weights), np.array(rates), lengths, exact=exact)))
        chance = yes_probability(np.array(rates), 1.0 - level)
        ones = rng.binomial(lengths, chance, size=(RUNS, rounds, len(lengths)))
        scores = (debias(np.array(rates), ones / lengths) @ np.array(weights) - (1.0 - level)) / spread
        errors[exact] = [
            accepted_share([asked_all_the_time(sign * row) for row in scores], exact=exact) for sign in (1.0, -1.0)
        ]
    assert max(errors[True]) <= SIDE
    assert max(errors[False]) > SIDE + 3.0 * math.sqrt(SIDE * (1.0 - SIDE) / RUNS)


def test_an_exact_round_is_measured_in_its_own_plain_bound() -> None:
    """The ratio of both bounds differs from round to round with who answered: one overall ratio would be wrong."""
    clients = clients_of((0.9, 0.9, 100, 0.9), (0.9, 0.9, 900, 0.1))
    ratios = []
    for lengths in ((10, 10), (1, 90)):
        plain, level = (
            add_round({}, "low", 1.0, lengths, (0.1, 0.1), clients, 0.9, exact=exact)[1].variance
            for exact in (True, False)
        )
        assert plain == pytest.approx(sum(client.noise(n) for client, n in zip(clients, lengths, strict=True)))
        ratios.append(level / plain)
    weights, rates = np.array([0.9, 0.1]), np.array([0.9, 0.9])
    overall = float(level_variance(0.9, weights, rates, np.array([100, 900]))) / sum(
        c.noise(c.records) for c in clients
    )
    assert min(ratios) < overall - 0.01
