from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from privatile.api.estimate import estimate
from privatile.cli import main
from privatile.errors import InputError
from privatile.inference.inference import from_ends
from privatile.result.compare import BY_ENDS, JOINED, compare, difference_ends, difference_interval
from privatile.result.result import ConfidenceInterval, QuantileResult


def result(center: float, seed: int, records: int = 8000) -> QuantileResult:
    data = {"all": np.random.default_rng(seed).normal(center, 10, records)}
    return estimate(data, q=0.5, epsilon=2, range=(0, 100), value_kind="continuous", simulate=True, rng=seed)


@pytest.fixture(scope="module")
def pair() -> tuple[QuantileResult, QuantileResult]:
    return result(50.0, 1), result(52.0, 2)


def test_the_p_value_inverts_the_displayed_interval(pair: tuple[QuantileResult, QuantileResult]) -> None:
    made = compare(*pair, disjoint=True)
    low, high = difference_interval(*pair, 1 - made.p_value)
    assert min(abs(low), abs(high)) < 1e-6 * (high - low) + 1e-9
    inside = made.confidence_interval.low <= 0 <= made.confidence_interval.high
    assert inside == (made.p_value > 0.05)
    assert compare(pair[1], pair[0], disjoint=True).p_value == pytest.approx(made.p_value, rel=1e-6)
    # Wider than either and narrower than both together.
    widths = [one.confidence_interval.high - one.confidence_interval.low for one in pair]
    assert max(widths) < made.confidence_interval.high - made.confidence_interval.low < sum(widths)
    assert made.difference == pytest.approx(pair[0].estimate - pair[1].estimate)


def any_shape(result: QuantileResult, estimate: float, low: float, high: float) -> QuantileResult:
    """A result whose interval is (low, high) at 97.5% confidence, and narrower below."""

    def in_units(level: float) -> ConfidenceInterval:
        share = min(1.0, level / 0.975)
        return ConfidenceInterval(estimate - share * (estimate - low), estimate + share * (high - estimate))

    def ends(level: float) -> tuple[float, float]:
        first, last = in_units(level)
        return result.scale.to_working(first), result.scale.to_working(last)

    inference = from_ends("any-shape", result.scale.to_working(estimate), 1.0, ends)
    shown = in_units(0.95)
    return replace(result, method="any-shape", estimate=estimate, inference=inference, confidence_interval=shown)


def test_any_shape_intervals_are_compared_by_their_ends(pair: tuple[QuantileResult, QuantileResult]) -> None:
    first, second = any_shape(pair[0], 52.0, 49.0, 53.0), any_shape(pair[1], 41.0, 40.0, 44.0)
    # Both quantiles at an end, as beside an atom: 49 and 44 are inside their intervals, so 5 must be inside theirs.
    low, high = difference_interval(first, second, 0.95)
    assert (low, high) == pytest.approx((5.0, 13.0))
    joined = difference_ends((52.0, *first.interval(0.95)), (41.0, *second.interval(0.95)))
    assert not joined[0] <= 5.0 <= joined[1]  # the control: joined like nearly normal errors, 5 would be missed
    made = compare(first, second, disjoint=True)
    assert made.rule == BY_ENDS == made.to_dict()["rule"]
    assert made.p_value < 0.05
    # What is shown is never narrower than the interval.
    wide = compare(any_shape(pair[0], 52.0, 49.98, 53.01), any_shape(pair[1], 51.0, 50.0, 54.0), disjoint=True)
    assert wide.confidence_interval == pytest.approx((-4.02, 3.01))
    assert (wide.ends_shown, wide.p_value) == (("-4.1", "3.1"), 1.0)
    # One any-shape interval is enough.
    shaped, smooth = any_shape(pair[0], 52.0, 49.0, 53.0), replace(pair[1], method="smooth")
    low, high = smooth.interval(0.975)
    assert difference_interval(shaped, smooth, 0.95) == pytest.approx((49.0 - high, 53.0 - low))
    assert compare(smooth, replace(pair[0], method="smooth"), disjoint=True).rule == JOINED


def test_that_people_are_disjoint_is_a_statement_and_shared_clients_are_named(
    pair: tuple[QuantileResult, QuantileResult],
) -> None:
    made = compare(*pair, disjoint=True)
    assert [text[:22] for text in made.caveats] == ["That no person is in b"]
    sites = {name: np.random.default_rng(5).normal(50, 10, 4000) for name in ("oslo", "bergen")}
    first, second = (estimate(sites, q=0.5, epsilon=2, range=(0, 100), simulate=True, rng=seed) for seed in (1, 2))
    shared = compare(first, second, disjoint=True)
    assert "bergen, oslo" in shared.caveats[1]
    assert shared.to_dict()["caveats"] == shared.caveats


def test_the_same_people_are_refused(pair: tuple[QuantileResult, QuantileResult]) -> None:
    with pytest.raises(InputError, match="disjoint"):
        compare(*pair, disjoint=False)
    with pytest.raises(InputError, match="itself"):
        compare(pair[0], pair[0], disjoint=True)


@pytest.mark.slow
def test_two_groups_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    rows = [f"{value:.6f},{group}" for group, center in (("f", 40), ("m", 60)) for value in rng.normal(center, 5, 3000)]
    Path("pay.csv").write_text("pay,sex\n" + "\n".join(rows) + "\n", encoding="utf-8")
    runner = CliRunner()
    # The coins are real: chance alone speaks against a smooth distribution in a few pairs of a hundred, in three pairs
    # of people one after another in less than one of a thousand.
    for attempt in range(3):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / f"state{attempt}"))
        for group in ("f", "m"):
            Path(f"{group}.db").unlink(missing_ok=True)
            options = (
                f"estimate pay.csv --value pay --client sex --only {group} --epsilon 2 --range 0 100 "
                f"--value-kind continuous --save {group}.db"
            )
            done = runner.invoke(main, options.split())
            assert done.exit_code == 0, done.output
            assert f"pay at {group}" in done.output
        assert runner.invoke(main, ["compare", "f.db", "m.db"]).exit_code == 2
        done = runner.invoke(main, ["compare", "f.db", "m.db", "--disjoint"])
        assert done.exit_code == 0, done.output
        if "not to be relied on" not in done.output:
            break
    assert "(p < 0.0001 for no difference)" in done.output
    assert "nearly normal" in done.output
    ends = runner.invoke(main, ["compare", "f.db", "m.db", "--disjoint", "--value-kind", "any"])
    assert "goes by the ends" in ends.output
    assert runner.invoke(main, ["compare", "f.db", "m.db", "--disjoint", "--value-kind", "odd"]).exit_code == 2
