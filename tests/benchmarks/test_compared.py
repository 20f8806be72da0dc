"""The peers do what we know of them: privacy of each report, estimates that close in on the truth; and the page.

They were written from what we know of the methods, not from the full papers or their authors' programs.
"""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
from benchmarks.compared import nonadaptive as peers
from benchmarks.compared import page, run, sequential, settings, trusted
from benchmarks.compared.ours import Found, People
from benchmarks.compared.run import row

EPSILON = 1.0
LOW, HIGH = -4.0, 4.0


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_square_wave_is_a_law_with_the_stated_privacy(epsilon: float) -> None:
    matrix = peers.square_wave_matrix(epsilon, 64)
    np.testing.assert_allclose(matrix.sum(axis=0), 1.0, atol=1e-12)
    assert (matrix.max(axis=1) / matrix.min(axis=1)).max() <= math.exp(epsilon) * (1.0 + 1e-9)
    # Optimal: a wave a fifth wider or narrower tells less about the value.
    best = _information(epsilon, peers.square_wave_width(epsilon))
    for factor in (0.8, 1.2):
        assert _information(epsilon, factor * peers.square_wave_width(epsilon)) < best


def _information(epsilon: float, b: float) -> float:
    """Their criterion: the upper bound log(1 + 2b) − h on the mutual information of a report and a uniform value."""
    e = math.exp(epsilon)
    q = 1.0 / (2.0 * b * e + 1.0)
    p = e * q
    return math.log(2.0 * b + 1.0) + 2.0 * b * p * math.log(p) + q * math.log(q)


@pytest.mark.parametrize("value", [0.0, 0.37, 1.0])
def test_square_wave_reports_follow_the_matrix(value: float) -> None:
    count, cells = 200_000, 32
    b = peers.square_wave_width(EPSILON)
    reports = peers.square_wave(np.full(count, value), EPSILON, np.random.default_rng(1))
    assert reports.min() >= -b
    assert reports.max() <= 1.0 + b
    edges = np.linspace(-b, 1.0 + b, cells + 1)
    q = 1.0 / (2.0 * b * math.e + 1.0)
    near = np.maximum(np.minimum(edges[1:], value + b) - np.maximum(edges[:-1], value - b), 0.0)
    expected = count * (q * np.diff(edges) + (math.e - 1.0) * q * near)
    observed = np.histogram(reports, edges)[0]
    # χ² with 31 degrees of freedom lies below 75 but for one case in 50,000.
    assert float(((observed - expected) ** 2 / expected).sum()) < 75.0


def test_em_recovers_a_known_distribution() -> None:
    """From exact report frequencies EM climbs to the distribution behind them; from those of another it does not."""
    cells = 16
    matrix = peers.square_wave_matrix(3.0, cells)
    truth = np.arange(1.0, cells + 1.0) / np.sum(np.arange(1.0, cells + 1.0))
    found = peers.expectation_maximization(matrix, 1e6 * (matrix @ truth), smooth=False, tolerance=1e-9)
    assert np.abs(np.cumsum(found - truth)).max() < 2e-3
    other = peers.expectation_maximization(matrix, 1e6 * (matrix @ truth[::-1]), smooth=False, tolerance=1e-9)
    assert np.abs(np.cumsum(other - truth)).max() > 0.1


def test_unary_frequencies_are_unbiased_with_the_known_variance() -> None:
    counts = np.array([0, 100, 400, 500])
    rng = np.random.default_rng(2)
    found = np.array([peers.unary_frequencies(counts, EPSILON, rng) for _ in range(4000)])
    variance = 4.0 * math.e / (math.e - 1.0) ** 2 / 1000.0
    # 4e^ε/(e^ε − 1)² a person at share 0, a little more at others: 5 standard errors of a mean of 4,000.
    assert np.abs(found.mean(axis=0) - counts / 1000.0).max() < 5.0 * math.sqrt(1.5 * variance / 4000.0)
    # The relative error of a variance from 4,000 draws is √(2/4000) = 2%.
    assert float(np.var(found[:, 0])) == pytest.approx(variance, rel=0.12)


def test_consistency_is_the_least_squares_tree() -> None:
    rng = np.random.default_rng(3)
    levels = [rng.normal(size=3), rng.normal(size=9)]
    ours = peers.consistent(levels, 3)
    np.testing.assert_allclose(ours[0].sum(), 1.0)
    np.testing.assert_allclose(ours[1].reshape(3, 3).sum(axis=1), ours[0])
    # Leaves of the same problem by plain least squares, the sum of all pinned to 1 by a heavy row.
    design = np.vstack([np.kron(np.eye(3), np.ones(3)), np.eye(9), 1e6 * np.ones(9)])
    leaves = np.linalg.lstsq(design, np.concatenate([*levels, [1e6]]), rcond=None)[0]
    np.testing.assert_allclose(ours[1], leaves, atol=1e-5)


@pytest.mark.parametrize(
    "method",
    [
        peers.square_wave_quantile,
        peers.square_wave_plain,
        peers.hierarchy_quantile,
        peers.binary_search_quantile,
        peers.sample_quantile,
    ],
)
@pytest.mark.parametrize(("level", "truth"), [(0.5, 0.3), (0.8, 0.3 + 0.8416212)])
def test_peers_close_in_on_the_truth(method: object, level: float, truth: float) -> None:
    """With 400,000 people and ε = 3 every method errs by less than a tenth; asked for another level it does not."""
    assert callable(method)
    rng = np.random.default_rng(4)
    records = rng.normal(0.3, 1.0, 400_000)
    assert abs(method(records, level, 3.0, LOW, HIGH, rng) - truth) < 0.1
    assert abs(method(records, 0.3, 3.0, LOW, HIGH, rng) - truth) > 0.2


def test_binary_search_splits_people() -> None:
    """Every person is asked in one step only: as many reports as people."""
    drawn: list[int] = []

    class Counting(np.random.Generator):
        def uniform(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            found = super().uniform(*args, **kwargs)  # type: ignore[call-overload]
            drawn.append(np.size(found))
            return found

    rng = Counting(np.random.PCG64(5))
    peers.binary_search_quantile(rng.normal(size=10_000), 0.5, EPSILON, LOW, HIGH, rng)
    assert sum(drawn) == 10_000


def test_examples_in_the_comparison_hold() -> None:
    """`make test` looks for examples in src and tests only."""
    found = [doctest.testmod(module) for module in (page, peers, run, sequential, settings)]
    assert [failed for failed, _ in found] == [0] * len(found)
    assert sum(tried for _, tried in found) >= 8


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_reports_of_streams_and_searches_have_the_stated_privacy(epsilon: float) -> None:
    """A report is true with odds of exactly e^ε; the level asked for is that of the reports, not of the values."""
    truth = 0.5 * (1.0 + sequential.truth_rate(epsilon))
    assert truth / (1.0 - truth) == pytest.approx(math.exp(epsilon), rel=1e-12)
    for level in (0.1, 0.5, 0.9):
        told = level * truth + (1.0 - level) * (1.0 - truth)
        assert sequential.report_level(level, epsilon) == pytest.approx(told, rel=1e-12)


def test_a_frugal_step_is_unbiased_at_the_quantile_and_nowhere_else() -> None:
    target = sequential.report_level(0.8, EPSILON)
    truth = 0.5 * (1.0 + sequential.truth_rate(EPSILON))

    def drift(share_above: float) -> float:
        """The mean move from 0.5 over everything that can happen to the next person."""
        total = 0.0
        for value, weight in ((0.9, share_above), (0.1, 1.0 - share_above)):
            for truthful, chance in ((True, truth), (False, 1.0 - truth)):
                draws = (np.arange(1000) + 0.5) / 1000
                moves = [
                    sequential.frugal.py_func(
                        np.array([value]), np.array([truthful]), np.array([draw]), round(target, 3), 0.01
                    )
                    - 0.5
                    for draw in draws
                ]
                total += weight * chance * float(np.mean(moves))
        return total / 0.01

    # Draws on a grid of a thousandth: the target is rounded to it.
    assert abs(drift(0.2)) < 1e-3
    assert drift(0.3) > 0.02
    assert drift(0.1) < -0.02


@pytest.mark.parametrize("level", [0.5, 0.75])
def test_streams_close_in_on_the_truth(level: float) -> None:
    rng = np.random.default_rng(6)
    records = rng.uniform(size=20_000)
    truthful = rng.uniform(size=records.size) < 0.5 * (1.0 + sequential.truth_rate(3.0))
    target = sequential.report_level(level, 3.0)
    draws = rng.uniform(size=records.size)
    assert abs(sequential.frugal.py_func(records, truthful, draws, target, 1 / 256) - level) < 0.1
    assert abs(sequential.easy_quantile.py_func(records, truthful, target, 1 / 256) - level) < 0.15
    assert abs(sequential.frugal.py_func(records, truthful, draws, 1.0 - target + 0.2, 1 / 256) - level) > 0.1


def test_the_tree_of_the_bayesian_search_is_bayes_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its questions are those of a belief that is written out: every cell times the probability of every report."""
    monkeypatch.setattr(sequential, "multiply", sequential.multiply.py_func)
    rng, size, level, margin = np.random.default_rng(7), 32, 0.5, 0.1
    cells, truthful = rng.integers(0, size, 150), rng.uniform(size=150) < 0.8
    asked = sequential.bayes_learn.py_func(cells, truthful, size, level, margin)
    belief = np.full(size, 1.0 / size)
    for cell, told, question in zip(cells, truthful, asked, strict=True):
        splits = np.abs(np.cumsum(belief)[:-1] - 0.5)
        assert splits[question - 1] == pytest.approx(splits.min(), abs=1e-9)
        yes = (cell < question) == told
        sign = np.where(np.arange(size) < question, 1.0, -1.0)
        belief *= level + sign * margin if yes else 1.0 - level - sign * margin
        belief /= belief.sum()
    assert len(set(asked.tolist())) > 5


@pytest.mark.parametrize("search", [sequential.screening_search, sequential.middle_of_questions])
def test_the_bayesian_search_closes_in_on_the_truth(search: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(search)
    monkeypatch.setattr(sequential, "multiply", sequential.multiply.py_func)
    monkeypatch.setattr(sequential, "bayes_learn", sequential.bayes_learn.py_func)
    rng = np.random.default_rng(8)
    cells = rng.integers(0, 1024, 4000)
    found = search(cells, 1024, 0.5, 2.0, rng) / 1024
    assert abs(found - 0.5) < 0.06
    assert abs(search(np.sort(cells) // 2, 1024, 0.5, 2.0, rng) / 1024 - 0.5) > 0.1


def test_made_up_incomes_have_the_quantiles_that_errors_are_taken_from() -> None:
    heaped = settings.MAIN[4]
    assert heaped.truth == 50_000.0
    assert heaped.rank_errors(np.array([50_000.0])).tolist() == [0.0]
    beside = heaped.rank_errors(np.array([49_900.0, 50_100.0]))
    assert beside[0] < -0.005
    assert beside[1] > 0.005
    pareto = settings.SEARCHED[0]
    assert pareto.truth == math.floor(2000.0 * 2.0 ** (1.0 / 1.5))
    for setting in (heaped, pareto):
        drawn = setting.to_units(setting.sample(np.random.default_rng(9)))
        share = float(np.mean(drawn <= setting.truth))
        # Five standard errors of a share.
        assert abs(share - float(setting.ranks(np.array([setting.truth]))[0])) < 2.5 / math.sqrt(setting.people)


def test_given_people_answer_once_and_tell_what_they_have() -> None:
    records = [np.arange(40.0).reshape(10, 4) / 40.0 for _ in range(2)]
    people = People(records, 1.0, np.random.default_rng(10))
    first = people.counts(np.array([0.5, -1.0]), np.full((2, 10), 3))
    assert first.tolist() == [[0] * 5 + [2] + [3] * 4, [3] * 10]
    second = people.counts(np.array([0.5, 2.0]), np.full((2, 10), 1))
    assert second.tolist() == [[0] * 5 + [1] * 5, [0] * 10]
    assert people.used.tolist() == [[4] * 10] * 2


def test_averaged_quantiles_are_biased_where_clients_differ() -> None:
    """What federations do today: right for like clients, wrong for others, whatever their number of records."""
    rng = np.random.default_rng(11)
    alike, unlike = rng.uniform(size=(10, 5000)), rng.uniform(size=(10, 5000)) ** np.arange(1, 11)[:, None]
    assert trusted.average_of_quantiles(alike, 0.9) == pytest.approx(np.quantile(alike, 0.9), abs=0.01)
    assert abs(trusted.average_of_quantiles(unlike, 0.9) - np.quantile(unlike, 0.9)) > 0.05
    central = [trusted.noisy_histogram(alike.reshape(-1), level, EPSILON, rng) for level in (0.5, 0.9)]
    assert central == pytest.approx([0.5, 0.9], abs=0.01)


def test_a_row_scores_errors_coverage_and_width() -> None:
    setting = settings.MAIN[0]
    places = setting.to_unit(np.array([48_000.0, 48_000.0, 60_000.0, 36_000.0]))
    found = Found(places, places - 0.01, places + 0.01, 7)
    scored = row(setting, "made up", found, 0.002)
    assert (scored["coverage"], scored["rounds"], scored["milliseconds"]) == ("0.500", 7, "2")
    assert float(str(scored["error"])) == pytest.approx(math.sqrt(2 * 12_000.0**2 / 4), rel=1e-3)
    no_interval = row(setting, "made up", Found(places, None, None, 1), 0.002)
    assert (no_interval["coverage"], no_interval["width"]) == ("", "")


def test_the_page_shows_the_results() -> None:
    """Tables and numbers of docs/compared.md are those of the file of results; of others they would differ."""
    rows, facts = page.read()
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.render(text, rows, facts) == text, "run python -m benchmarks.compared.page"
    assert set(page.PARTS) <= {name for name in page.PARTS if f"<!-- {name} -->" in text}
    changed = [dict(one, over_bound="9.999") for one in rows]
    assert page.render(text, changed, facts) != text
    assert facts["date"] in text
    assert facts["command"] in text


def test_what_the_page_says_in_words_is_in_the_results() -> None:
    rows, _ = page.read()

    def of(setting: str, method: str, column: str = "rank_error") -> float:
        found = page.pick(rows, setting, method)
        assert found is not None
        return float(found[column])

    smooth = ("incomes, median", "incomes, median, ε = 0.5", "incomes, median, ε = 3", "incomes, q = 0.9")
    for setting in smooth:
        # A trusted holder: as without privacy. C1: as accurate as privatile, narrower than its default interval.
        assert of(setting, "central: exponential mechanism") < 1.15 * of(setting, "not private: all records")
        assert of(setting, "the paper, C1") < 1.15 * of(setting, "privatile")
        assert of(setting, "the paper, C1", "width") < of(setting, "privatile", "width")
        # Of the other local methods none is as accurate.
        for method in ("Square Wave, EMS", "hierarchical histogram", "naive noisy binary search", "frugal stream"):
            assert of(setting, method) > 1.3 * of(setting, "privatile")
    widths = {
        method: of("incomes, q = 0.9", method, "width") for method in ("the paper, C1", "privatile", page.CONTINUOUS)
    }
    assert max(widths, key=lambda method: widths[method]) == page.CONTINUOUS
    assert of("incomes, median", "the paper, C1", "rounds") == 10 * of("incomes, median", "privatile", "rounds")
    pareto = [setting for setting in dict.fromkeys(one["setting"] for one in rows) if setting.startswith("Pareto")]
    assert len(pareto) == 9
    assert all(of(setting, "the paper, C1") > 2.0 * of(setting, "privatile") for setting in pareto)
    for setting in (*(f"Pareto, n = {n}, ε = 0.5" for n in ("2,500", "5,000", "7,500")), "heaped salaries, median"):
        assert of(setting, "… without the screening") < of(setting, "privatile")
    for method in (page.CONTINUOUS, "the paper, C1", "DP-SGD"):
        assert of("heaped salaries, median", method, "coverage") < 0.95
    unlike = "unlike clients, q = 0.9"
    assert of(unlike, "not private: average of quantiles") > 5.0 * of(unlike, "not private: t-digests")
    assert min(of(one["setting"], "privatile", "coverage") for one in rows) >= 0.95
    given = {one["method"] for one in rows if one["coverage"]}
    assert given == {"privatile", page.CONTINUOUS, "the paper, C1", "the paper, C5", "DP-SGD", "divide and conquer"}
    assert {int(one["rounds"]) for one in rows if one["method"] == "privatile"} <= set(range(40, 201))
