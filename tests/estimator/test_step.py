import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import Identity
from privatile.errors import InputError, ProtocolError
from privatile.estimator.clients import Client, check_clients, shares
from privatile.estimator.plan import TablePlan, begin, local_ranks, plan_from_design, replay, round_weight, step
from privatile.estimator.schedule import PRESETS, DecayingStep

LINE = Identity(-50.0, 50.0)


def make_clients(rates: list[float], levels: list[float], records: int) -> list[Client]:
    return [
        Client(f"c{k}", RandomizedResponse(rate), 1 / len(rates), level, records)
        for k, (rate, level) in enumerate(zip(rates, levels, strict=True))
    ]


def algorithm_1(
    rates: list[float], level: float, lengths: np.ndarray, steps: np.ndarray, data: np.ndarray, coins: np.ndarray
) -> tuple[list[float], list[list[int]], float]:
    """The paper's listing, record by record: queries after each round, counts of ones, and the average."""
    q, queries, counts, average, used = 0.0, [], [], 0.0, 0
    for m, (length, gamma) in enumerate(zip(lengths, steps, strict=True), start=1):
        ends, ones = [], []
        for k, rate in enumerate(rates):
            local, count = q, 0
            for t in range(used, used + length):
                truth = data[k, t] > local
                report = truth if coins[k, t] < (1 + rate) / 2 else not truth
                up = (1 - rate + 2 * level * rate) / (2 * rate)
                down = (1 + rate - 2 * level * rate) / (2 * rate)
                local += (gamma / length) * (up if report else -down)
                count += report
            ends.append(local)
            ones.append(int(count))
        used += length
        q = float(np.mean(ends))
        average = ((m - 1) * average + q) / m
        queries.append(q)
        counts.append(ones)
    return queries, counts, average


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_local_mode_through_counts_is_algorithm_1(preset: str) -> None:
    rng = np.random.default_rng(3)
    rates, records = [0.3, 0.6, 0.9], 400
    design = PRESETS[preset]
    plan = plan_from_design(design, make_clients(rates, [0.4, 0.5, 0.6], records), LINE, start=0.0)
    data, coins = rng.normal(size=(3, records)), rng.random((3, records))
    queries, counts, average = algorithm_1(rates, 0.5, design.lengths(records), plan.steps, data, coins)
    state = begin(plan)
    for query, ones in zip(queries, counts, strict=True):
        ask = plan.ask(state)
        assert ask is not None
        state = step(state, ask, ones, plan)
        assert state.query == pytest.approx(query, abs=1e-12)
    assert plan.ask(state) is None
    assert state.averages.estimate == pytest.approx(average, abs=1e-12)
    assert replay(plan, counts) == state


def test_own_and_global_levels_move_q_alike() -> None:
    clients = make_clients([0.5, 0.5], [0.2, 0.6], 10)
    plans = [
        plan_from_design(PRESETS["paper-c1"], clients, LINE, start=0.0, local_level=kind) for kind in ("global", "own")
    ]
    counts = [[1, 0]] * 10
    one, other = (replay(plan, counts) for plan in plans)
    assert one.query == pytest.approx(other.query, abs=1e-12)
    assert plans[0].level == pytest.approx(0.4)


def test_query_is_clipped_after_aggregation() -> None:
    client = Client("a", RandomizedResponse(0.1), 1.0, 0.5, 10)
    plan = TablePlan((client,), Identity(-1.0, 1.0), np.ones((1, 10), dtype=np.int64), np.ones(10))
    assert replay(plan, [[1]]).query == 1.0
    assert replay(plan, [[0]] * 3).query == -1.0


@settings(max_examples=50)
@given(st.lists(st.booleans(), min_size=3, max_size=30))
def test_a_silent_client_keeps_its_weight_and_its_noise_counts_squared(silent: list[bool]) -> None:
    clients = make_clients([0.5, 0.8], [0.5, 0.5], 1000)
    rounds = len(silent) + 1
    plan = TablePlan(tuple(clients), LINE, np.full((2, rounds), 4), np.full(rounds, 0.1))
    state = begin(plan)
    runs = [1]
    for m, quiet in enumerate([False, *silent]):
        ask = plan.ask(state)
        assert ask is not None
        state = step(state, ask, [2, None if quiet else m % 5], plan)
        if m:
            runs = [*runs[:-1], runs[-1] + 1] if quiet else [*runs, 1]
    noise = [(0.5 / c.mechanism.truth_rate) ** 2 / 16 for c in clients]
    # A report used c times in a row weighs c²: the variance of c·noise.
    assert state.averages.weight == pytest.approx(rounds * noise[0] + sum(c * c for c in runs) * noise[1])
    assert state.used[1] == runs[-1]
    assert round_weight(state) == pytest.approx(noise[0] + (2 * runs[-1] - 1) * noise[1])


def test_dropout_does_not_change_the_estimand() -> None:
    """Two clients N(0,1) and N(2,1), the second silent half the time: 1.0; renormalised weights give 0.384."""
    rng = np.random.default_rng(11)
    rounds, length = 4000, 50
    clients = make_clients([0.8, 0.8], [0.5, 0.5], rounds * length)
    steps = DecayingStep(2.0, offset=20.0).table(rounds)
    plan = TablePlan(tuple(clients), LINE, np.full((2, rounds), length), steps, burn_in=400, start=0.0)

    def report(center: float, query: float) -> int:
        above = 0.5 * math.erfc((query - center) / math.sqrt(2))
        return int(rng.binomial(length, 0.1 + 0.8 * above))

    state, renormalised, wrong = begin(plan), 0.0, []
    for m in range(rounds):
        ask = plan.ask(state)
        assert ask is not None
        quiet = m > 0 and rng.random() < 0.5
        state = step(state, ask, [report(0.0, state.query), None if quiet else report(2.0, state.query)], plan)
        counts = [report(center, renormalised) for center in (0.0, 2.0)]
        means = [c.mechanism.debias(ones, length) for c, ones in zip(clients, counts, strict=True)]
        heard = means[:1] if quiet else means
        renormalised += steps[m] * (sum(heard) / len(heard) - 0.5)
        wrong.append(renormalised)
    # Standard error at the root: √Σ(p/r)²·(silence triples the second's)/(4·n) / f, f = φ(1) = 0.242.
    error = math.sqrt((0.5 / 0.8) ** 2 * (1 + 3) / (4 * 3600 * length)) / 0.242
    assert abs(state.averages.estimate - 1.0) < 5 * error
    assert abs(np.mean(wrong[400:]) - 0.384) < 0.05


def test_a_client_that_never_answered_cannot_be_stood_in_for() -> None:
    plan = plan_from_design(PRESETS["paper-c1"], make_clients([0.5, 0.5], [0.5, 0.5], 10), LINE)
    with pytest.raises(ProtocolError, match="c1 has never answered: the first round needs every client"):
        replay(plan, [[1, None]])


@pytest.mark.parametrize("ones", [[2, 0], [-1, 0], [1], [1, 1, 1]])
def test_impossible_counts_are_refused(ones: list[int]) -> None:
    plan = plan_from_design(PRESETS["paper-c1"], make_clients([0.5, 0.5], [0.5, 0.5], 10), LINE)
    with pytest.raises(ProtocolError):
        replay(plan, [ones])


def test_a_transcript_longer_than_the_plan_is_refused() -> None:
    plan = plan_from_design(PRESETS["paper-c1"], make_clients([0.5], [0.5], 10), LINE)
    with pytest.raises(ProtocolError, match="last round, 10"):
        replay(plan, [[1]] * 11)


def test_local_ranks_come_from_the_averaged_rounds_only() -> None:
    client = Client("a", RandomizedResponse(0.5), 1.0, 0.5, 100)
    plan = TablePlan((client,), LINE, np.full((1, 4), 8), np.full(4, 0.1), burn_in=2)
    state = replay(plan, [[8], [8], [4], [4]])
    assert local_ranks(state, plan) == (0.5,)
    assert state.ones == (24,)
    assert state.averages.rounds == 2


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ([0.5, 0.4], "sum to 0.9"),
        ([0.5, 0.50000001], "sum to 1.00000001"),
        ([1.5, -0.5], "positive"),
        ([math.nan, 1.0], "positive"),
        ([0.0, 1.0], "positive"),
    ],
)
def test_weights_are_checked(weights: list[float], text: str) -> None:
    clients = [Client(f"c{k}", RandomizedResponse(0.5), w, 0.5, 10) for k, w in enumerate(weights)]
    with pytest.raises(InputError, match=text):
        check_clients(clients)


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=40))
def test_weights_written_with_six_decimals_become_exact_shares(raw: list[float]) -> None:
    written = {f"c{k}": round(weight / math.fsum(raw), 6) for k, weight in enumerate(raw)}
    exact = shares(written)
    assert abs(math.fsum(exact.values()) - 1.0) <= 2.0**-50
    check_clients([Client(name, RandomizedResponse(0.5), weight, 0.5, 10) for name, weight in exact.items()])


@pytest.mark.parametrize("weights", [{"a": 0.5, "b": 0.49999}, {"a": 1.5, "b": -0.5}, {"a": math.inf}, {"a": 0.0}])
def test_what_is_no_share_is_refused(weights: dict[str, float]) -> None:
    with pytest.raises(InputError, match="weights must"):
        shares(weights)


def test_names_and_levels_are_checked() -> None:
    same = [Client("a", RandomizedResponse(0.5), 0.5, 0.5, 10)] * 2
    with pytest.raises(InputError, match="must differ"):
        check_clients(same)
    with pytest.raises(InputError, match=r"inside \(0, 1\)"):
        check_clients([Client("a", RandomizedResponse(0.5), 1.0, 1.0, 10)])
    with pytest.raises(InputError, match="at least one"):
        check_clients([])


def test_a_plan_checks_its_tables() -> None:
    client = Client("a", RandomizedResponse(0.5), 1.0, 0.5, 10)
    with pytest.raises(InputError, match="asks 11 records of client a, which has 10"):
        TablePlan((client,), LINE, np.full((1, 11), 1), np.ones(11))
    with pytest.raises(InputError, match="at least two"):
        TablePlan((client,), LINE, np.full((1, 4), 1), np.ones(4), burn_in=3)
    with pytest.raises(InputError, match="a row per client"):
        TablePlan((client,), LINE, np.full((2, 4), 1), np.ones(4))
    with pytest.raises(InputError, match="positive"):
        TablePlan((client,), LINE, np.full((1, 4), 1), np.array([1.0, 1.0, 0.0, 1.0]))
