"""Kernels and likelihoods compared by leave-one-out density."""

import jax
import numpy as np
import pytest
from scipy.stats import norm

from quantprop import comparison, tables
from quantprop.comparison.choice import summed


def table(seed, n=120):
    """A smooth effect of a, a linear one of b and one of every level of g; c, h and s do nothing."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.uniform(-3, 3, (3, n))
    g, h = rng.integers(0, 6, n), rng.integers(0, 6, n)
    f = 1.5 * np.sin(1.5 * a + rng.uniform(0, 6)) + 0.5 * b + rng.normal(size=6)[g]
    words = {"g": [f"g{level}" for level in g], "h": [f"h{level}" for level in h]}
    return tables.from_columns({"c": c, **words, "a": a, "b": b, "y": f + 0.5 * rng.normal(size=n)}, "generated")


def problems(of):
    return lambda likelihood, kernel: tables.problem(of, "y", likelihood, kernel)


@pytest.fixture(scope="module")
def choice():
    small = table(0, 50)
    return comparison.choose(comparison.candidates(problems(small), ["gaussian"], ["se(a) + group(g)", "se(a)"]), "ep")


def test_the_paired_difference_by_hand(choice):
    """Under Gaussian noise LOO is known in closed form: y_i − α_i/K⁻¹_ii, 1/K⁻¹_ii (Rasmussen and Williams, 5.12)."""
    logs = {}
    for one in choice.standings:
        fitted, scale = one.model.fits[0], one.model.estimator._y_std
        kernel, x = fitted.model.plain_kernel, fitted.solution.X
        y = one.model.estimator.y_train_
        with jax.enable_x64(True):
            gram = np.asarray(kernel.gram(x))
        k = gram + float(fitted.model.plain_likelihood.scale) ** 2 * np.eye(len(x))
        inverse = np.linalg.inv(k)
        mean, sd = y - inverse @ y / np.diagonal(inverse), np.sqrt(1.0 / np.diagonal(inverse))
        logs[one.name] = norm.logpdf(y, mean, sd) - np.log(scale)
        np.testing.assert_allclose(one.loo, logs[one.name], rtol=0, atol=1e-4)
    best, other = choice.standings
    assert best.name == "se(a) + group(g)"
    difference = logs["se(a)"] - logs["se(a) + group(g)"]
    less = other.less(best)
    assert less.value == pytest.approx(difference.sum(), abs=1e-3)
    assert less.error == pytest.approx(np.sqrt(len(difference)) * difference.std(ddof=1), abs=1e-3)


def test_rows_are_unreliable_where_their_log_density_is_uncertain():
    """Var log Poisson(y | eᶠ) for f ~ N(m, v) is y² v + Var(eᶠ) − 2 y Cov(f, eᶠ), with eᶠ log-normal."""
    rng = np.random.default_rng(3)
    counts = tables.from_columns({"a": np.linspace(-2, 2, 25), "y": rng.poisson(np.linspace(0.3, 12, 25))}, "generated")
    found = comparison.choose(comparison.candidates(problems(counts), ["poisson"], ["se(a)"]), "laplace")
    one, solution = found.best, found.best.model.fits[0].solution
    m, v, y = solution.marginals.mean, solution.marginals.variance, found.best.model.estimator.y_train_
    rate = np.exp(m + 0.5 * v)
    spread = y**2 * v + rate**2 * np.expm1(v) - 2 * y * v * rate
    assert 0 < (spread > 0.4).sum() < len(y)
    np.testing.assert_array_equal(one.unreliable, spread > 0.4)
    assert len(found.warnings) == 1


def test_exact_cavities_are_reliable(choice):
    """Of Gaussian noise, as the closed form above says, however uncertain the log density of a row is."""
    for one in choice.standings:
        fitted = one.model.fits[0]
        (m, v), s = (fitted.solution.marginals.mean, fitted.solution.marginals.variance), fitted.model.likelihood.scale
        spread = ((one.model.estimator.y_train_ - m) ** 2 * v + 0.5 * v**2) / float(s.value) ** 4
        assert (spread > 0.4).any()
        assert not one.unreliable.any()
    assert choice.warnings == ()


def test_densities_and_probabilities_are_not_compared():
    counts = tables.from_columns({"a": np.arange(20.0), "y": np.arange(20) % 4}, "generated")
    with pytest.raises(ValueError, match="gaussian has a density and others probabilities"):
        comparison.choose(comparison.candidates(problems(counts), ["gaussian", "poisson"], ["linear(a)"]), "laplace")


def test_a_row_counts_as_often_as_its_weight():
    """Sums and their errors are those of repeated rows."""
    rows, weights = np.array([-1.0, 0.5, 2.0, -0.25]), np.array([3.0, 1.0, 2.0, 4.0])
    counted, repeated = summed(rows, weights), summed(np.repeat(rows, weights.astype(int)))
    assert counted.value == pytest.approx(repeated.value, rel=1e-14)
    assert counted.error == pytest.approx(repeated.error, rel=1e-14)
    assert counted.freedom == repeated.freedom == 9


def test_a_varying_parameter_beside_a_constant():
    """Noise that grows tenfold: both densities are those of models fitted alone, and the difference is paired."""
    rng = np.random.default_rng(4)
    a = np.linspace(0.0, 3.0, 60)
    y = np.sin(a) + 0.1 * 10.0 ** (a / 3.0) * rng.standard_normal(60)
    data, terms = tables.from_columns({"a": a, "y": y}, "generated"), {"scale": "se(a)"}
    made = comparison.candidates(
        lambda likelihood, kernel: tables.problem(data, "y", likelihood, kernel, varying=terms), ["gaussian"], ["se(a)"]
    )
    assert [one.name for one in made] == ["constant scale", "scale = se(a)"]
    best, other = comparison.choose(made, "ep").standings
    assert best.name == "scale = se(a)"
    alone = [tables.problem(data, "y", "gaussian", "se(a)", varying=one).fit("ep") for one in (terms, {})]
    for standing, model in zip((best, other), alone, strict=True):
        scale = model.estimator._y_std * model.units.scale
        density = model.fits[0].solution.loo - np.log(scale)
        np.testing.assert_allclose(standing.loo, density, atol=1e-6)
    assert other.less(best).value == pytest.approx((other.loo - best.loo).sum())
    assert other.less(best).value + 2.0 * other.less(best).error < 0.0
