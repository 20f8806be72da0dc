"""Populations against scipy, against themselves, and against their samplers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from privatile.errors import InputError
from privatile.simulation import populations
from privatile.simulation import populations as pop

PAIRS = [
    (pop.Normal(0.5, 2.0), stats.norm(0.5, 2.0)),
    (pop.Uniform(-1.0, 3.0), stats.uniform(-1.0, 4.0)),
    (pop.Cauchy(0.5, 2.0), stats.cauchy(0.5, 2.0)),
    (pop.Laplace(0.5, 2.0), stats.laplace(0.5, 2.0)),
    (pop.LogNormal(0.5, 0.7), stats.lognorm(0.7, scale=np.exp(0.5))),
    (pop.StudentT(0.5, 2.0, 3.0), stats.t(3.0, 0.5, 2.0)),
    (pop.StudentT(degrees=0.7), stats.t(0.7)),
    (pop.StudentT(degrees=150.0), stats.t(150.0)),
]
IDS = [f"{type(ours).__name__}-{i}" for i, (ours, _) in enumerate(PAIRS)]
MIXTURE = pop.Mixture((pop.Normal(0.0), pop.Uniform(1.0, 4.0), pop.Cauchy(-1.0)), (0.2, 0.3, 0.5))
COLUMNS = [populations.Dithered([1.0, 2.0, 2.0, 5.0], 0.5), populations.Empirical([1.0, 2.0, 2.0, 5.0])]
ALL: list[pop.Population] = [*(ours for ours, _ in PAIRS), MIXTURE, *COLUMNS]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=IDS)
def test_the_closed_forms_are_those_of_scipy(ours: pop.Population, theirs: stats.rv_continuous) -> None:
    x = np.linspace(-12.0, 12.0, 400)
    levels = np.array([1e-6, 0.01, 0.3, 0.5, 0.8, 0.99, 1.0 - 1e-6])
    np.testing.assert_allclose(ours.cdf(x), theirs.cdf(x), rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(ours.density(x), theirs.pdf(x), rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(ours.quantile(levels), theirs.ppf(levels), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("ours", ALL, ids=lambda ours: type(ours).__name__)
def test_samples_follow_the_cdf(ours: pop.Population) -> None:
    size = 20_000
    drawn = np.sort(ours.sample(size, np.random.default_rng(11)))
    at = np.unique(drawn)
    gap = np.max(np.abs(np.searchsorted(drawn, at, side="right") / size - ours.cdf(at)))
    # Kolmogorov: exceeded with probability 2·exp(−2·2.2²) ≈ 1e-4 at most, ties or not.
    assert gap < 2.2 / np.sqrt(size)


@pytest.mark.parametrize("ours", ALL, ids=lambda ours: type(ours).__name__)
def test_the_quantile_inverts_the_cdf(ours: pop.Population) -> None:
    levels = np.linspace(0.01, 0.99, 99)
    values = ours.quantile(levels)
    assert np.all(ours.cdf(values) >= levels - 1e-12)
    assert np.all(ours.cdf(values - 1e-6 * (1.0 + np.abs(values))) < levels)
    assert isinstance(ours.quantile(0.5), float)


@pytest.mark.parametrize("ours", ALL[:-2], ids=lambda ours: type(ours).__name__)
def test_a_population_survives_a_design(ours: pop.Population) -> None:
    assert pop.from_spec(ours.to_spec()) == ours


def test_records_never_enter_a_design_or_a_text() -> None:
    column = populations.Empirical([12345.5, 54321.5])
    assert "12345" not in repr(column)
    with pytest.raises(InputError, match="has no name in designs") as caught:
        column.to_spec()
    assert "12345" not in str(caught.value)
    with pytest.raises(InputError, match="no density"):
        column.density(1.0)
    assert column == populations.Empirical([54321.5, 12345.5])
    assert column != populations.Empirical([1.0])


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ("gauss", "family must be one of"),
        (3, "a family's name or a table"),
        ({"family": "normal", "scale": 0}, "scale must be a positive number; got 0"),
        ({"family": "normal", "location": float("nan")}, "location must be a finite"),
        ({"family": "normal", "mean": 1}, "has the parameters location, scale; got mean"),
        ({"family": "normal", "scale": "1"}, "scale must be a number; got '1'"),
        ({"family": "uniform", "low": 1, "high": 1}, "low must lie below high"),
        ({"family": "student-t", "degrees": -1}, "degrees must be a positive"),
        ({"family": "mixture"}, "at least one population"),
        ({"family": "mixture", "parts": ["normal"], "weights": [0.5, 0.5]}, "as many as parts, 1; got 2"),
        ({"family": "mixture", "parts": ["normal", "cauchy"], "weights": [0.5, 0.6]}, "sum to 1"),
    ],
)
def test_a_wrong_population_is_refused_by_its_rule(spec: object, rule: str) -> None:
    with pytest.raises(InputError, match=rule.replace("(", r"\(")):
        pop.from_spec(spec)


def test_levels_outside_the_open_interval_are_refused() -> None:
    with pytest.raises(InputError, match="inside"):
        pop.Normal().quantile(np.array([0.5, 1.0]))


def test_a_dithered_column_is_a_mixture_of_uniforms() -> None:
    values = [1.0, 2.0, 2.0, 5.0]
    dithered = populations.Dithered(values, 3.0)
    mixture = pop.Mixture(tuple(pop.Uniform(v - 1.5, v + 1.5) for v in values))
    x = np.linspace(-2.0, 8.0, 333)
    np.testing.assert_allclose(dithered.cdf(x), mixture.cdf(x), atol=1e-12)
    np.testing.assert_allclose(dithered.density(x), mixture.density(x), atol=1e-12)
    assert dithered != populations.Empirical(values)
    assert dithered != populations.Dithered(values, 2.0)
    assert len({dithered, populations.Dithered(values, 3.0)}) == 1
