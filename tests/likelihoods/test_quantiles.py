"""Quantiles of y against bisection on scipy's conditional distributions, averaged over f by brute force."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from quantprop import likelihoods
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import values
from quantprop.inference.predictive import Predictive

LEVELS = (0.05, 0.5, 0.95)
RATES = {"exp": np.exp, "square": np.square, "softplus": lambda f: np.logaddexp(0.0, f)}
PROBABILITIES = {"probit": stats.norm.cdf, "logit": expit}


def averaged(cdf: Callable, place: Callable, m: float, v: float) -> Callable:
    """y → E[cdf(y, f)] over f ~ N(m, v): 24 nodes on each of many panels, dense around the places where cdf changes."""
    x, w = np.polynomial.legendre.leggauss(24)
    graded = np.concatenate([-np.geomspace(1e-6, 40.0, 90)[::-1], [0.0], np.geomspace(1e-6, 40.0, 90)])

    def at(y: float) -> float:
        near = [(p - m) / np.sqrt(v) + graded for p in place(y)]
        ends = np.unique(np.clip(np.concatenate([np.linspace(-12, 12, 49), *near]), -12.0, 12.0))
        half = 0.5 * np.diff(ends)[:, None]
        u = (ends[:-1, None] + half * (1.0 + x)).ravel()
        mass = (half * w).ravel() * stats.norm.pdf(u)
        return float(mass @ cdf(y, m + np.sqrt(v) * u))

    return at


def is_quantile(y: float, q: float, cdf: Callable, whole: bool) -> bool:
    """Whether bisection on this cdf would end at y: on a whole number, or within 1e-8 of it."""
    away = 1e-8 * max(1.0, abs(y))
    return cdf(y - 1.0) < q <= cdf(y) if whole else cdf(y - away) < q <= cdf(y + away)


def rates(link: str) -> tuple[Callable, Callable]:
    """g, and where it has a given value."""
    inverse = {
        "exp": lambda r: [np.log(r)],
        "square": lambda r: [np.sqrt(r), -np.sqrt(r), 0.0],
        "softplus": lambda r: [r + np.log(-np.expm1(-r)), 0.0],
    }
    return RATES[link], inverse[link]


def counts(link: str) -> dict[str, tuple]:
    g, where = rates(link)
    return {
        f"poisson, {link}": (likelihoods.Poisson(link), lambda y, f: stats.poisson.cdf(y, g(f)),
                             lambda y: where(max(y, 0.0) + 1.0)),
        f"negative binomial, {link}": (likelihoods.NegativeBinomial(0.4, link),
                                       lambda y, f: stats.nbinom.cdf(y, 2.5, 1.0 / (1.0 + 0.4 * g(f))),
                                       lambda y: where(max(y, 0.0) + 1.0)),
        f"gamma, {link}": (likelihoods.Gamma(1.7, link), lambda y, f: stats.gamma.cdf(y, 1.7, scale=g(f) / 1.7),
                           lambda y: where(y)),
    }  # fmt: skip


def shares(link: str) -> dict[str, tuple]:
    p = PROBABILITIES[link]
    inverse = stats.norm.ppf if link == "probit" else lambda y: np.log(y / (1.0 - y))
    return {
        f"binomial, {link}": (likelihoods.Binomial(link), lambda y, f: stats.binom.cdf(y, 40, p(f)),
                              lambda y: [inverse(np.clip((y + 1.0) / 41.0, 1e-9, 1.0 - 1e-9)), 0.0]),
        f"beta, {link}": (likelihoods.Beta(30.0, link), lambda y, f: stats.beta.cdf(y, 30.0 * p(f), 30.0 * p(-f)),
                          lambda y: [inverse(np.clip(y, 1e-12, 1.0 - 1e-12)), 0.0]),
    }  # fmt: skip


CASES = {
    "student-t": (likelihoods.StudentT(1.5, 0.3), lambda y, f: stats.t.cdf(y, 1.5, f, 0.3), lambda y: [y]),
    "double exponential": (likelihoods.DoubleExponential(0.3), lambda y, f: stats.laplace.cdf(y, f, 0.3),
                           lambda y: [y]),
    "gaussian": (likelihoods.Gaussian(0.3), lambda y, f: stats.norm.cdf(y, f, 0.3), lambda y: [y]),
    "censored": (likelihoods.Censored(0.3), lambda y, f: stats.norm.cdf(y, f, 0.3), lambda y: [y]),
    "warped": (likelihoods.Warped(0.3), lambda y, f: stats.norm.cdf(y + 0.5 * np.tanh(y), f, 0.3),
               lambda y: [y + 0.5 * np.tanh(y)]),
    "weibull": (likelihoods.Weibull(0.4), lambda y, f: stats.weibull_min.cdf(y, 2.5, scale=np.exp(f)),
                lambda y: [np.log(y)]),
    "log-logistic": (likelihoods.LogLogistic(0.4), lambda y, f: stats.fisk.cdf(y, 2.5, scale=np.exp(f)),
                     lambda y: [np.log(y)]),
    "zero-inflated poisson": (likelihoods.ZeroInflatedPoisson(0.2),
                              lambda y, f: np.where(y < 0, 0.0, 0.2 + 0.8 * stats.poisson.cdf(y, np.exp(f))),
                              lambda y: [np.log(max(y, 0.0) + 1.0)]),
    "zero-inflated negative binomial": (
        likelihoods.ZeroInflatedNegativeBinomial(0.2, 0.4),
        lambda y, f: np.where(y < 0, 0.0, 0.2 + 0.8 * stats.nbinom.cdf(y, 2.5, 1.0 / (1.0 + 0.4 * np.exp(f)))),
        lambda y: [np.log(max(y, 0.0) + 1.0)],
    ),
    "ordinal": (likelihoods.Ordinal([-1.0, 0.0, 1.5]),
                lambda y, f: stats.norm.cdf(np.array([-np.inf, -1.0, 0.0, 1.5, np.inf])[int(y) + 1] - f),
                lambda y: [-1.0, 0.0, 1.5]),
    "probit": (likelihoods.Probit(), lambda y, f: stats.norm.cdf(-f) * (y >= -1) + stats.norm.cdf(f) * (y >= 1),
               lambda y: [0.0]),
    "logit": (likelihoods.Logit(), lambda y, f: expit(-f) * (y >= -1) + expit(f) * (y >= 1), lambda y: [0.0]),
    **{name: case for link in RATES for name, case in counts(link).items()},
    **{name: case for link in PROBABILITIES for name, case in shares(link).items()},
}  # fmt: skip
# One f that is nearly known, one as uncertain as y given f, one that is wide.
NARROW_TO_WIDE = [(0.8, 1e-4), (-0.4, 0.3), (1.3, 4.0)]


@pytest.mark.parametrize("name", CASES)
def test_quantiles_are_those_of_bisection_on_the_exact_cdf(name):
    likelihood, cdf, place = CASES[name]
    m, v = (np.array(column) for column in zip(*NARROW_TO_WIDE, strict=True))
    got = Predictive(values(likelihood), Normal(m, v), np.ones(3), np.full(3, 40.0)).quantile(np.array(LEVELS))
    for row in range(3):
        exact = averaged(cdf, place, m[row], v[row])
        for q, y in zip(LEVELS, got[:, row], strict=True):
            assert is_quantile(y, q, exact, likelihood.lattice is not None), (row, q, y)


def test_one_count_with_a_wide_rate():
    """f ~ N(2, 9)."""
    likelihood, cdf, place = CASES["poisson, exp"]
    exact = averaged(cdf, place, 2.0, 9.0)
    predictive = Predictive(values(likelihood), Normal(np.array([2.0]), np.array([9.0])), np.ones(1), np.ones(1))
    levels = np.array([0.01, 0.3, 0.7, 0.99])
    for q, y in zip(levels, predictive.quantile(levels).ravel(), strict=True):
        assert is_quantile(y, q, exact, whole=True), (q, y)


@pytest.mark.parametrize("rate", [1e6, 1e12, 1e15])
@pytest.mark.parametrize("likelihood", [likelihoods.Poisson(), likelihoods.NegativeBinomial(1e-4)])
def test_counts_at_large_rates(likelihood, rate):
    """The quantile is the first count whose cdf reaches q; f is known up to 1e-10 of its value, and then up to 1."""
    latent = Normal(np.log(np.array([rate, rate])), np.array([1e-20, 1.0]))
    predictive = Predictive(values(likelihood), latent, np.ones(2), np.ones(2))
    got = predictive.quantile(np.array(LEVELS))
    for q, y in zip(LEVELS, got, strict=True):
        assert (predictive.cdf(y) >= q).all()
        assert (predictive.cdf(y - 1.0) < q).all()
    spread = np.sqrt(1.0 / rate + (1e-4 if isinstance(likelihood, likelihoods.NegativeBinomial) else 0.0))
    shape = 1.0 / spread**2 if spread > 1e-4 else None
    exact = rate * (stats.gamma.ppf(LEVELS, shape) / shape if shape else 1.0 + spread * stats.norm.ppf(LEVELS))
    np.testing.assert_allclose(got[:, 0], exact, rtol=max(2e-2 * spread, 2.0 / rate))
    np.testing.assert_allclose(np.log(got[:, 1] / rate), stats.norm.ppf(LEVELS), atol=0.03)


def test_a_row_does_not_depend_on_the_others():
    likelihood = values(likelihoods.NegativeBinomial(0.4))
    m, v = np.linspace(-2.0, 4.0, 7), np.geomspace(1e-4, 9.0, 7)
    together = Predictive(likelihood, Normal(m, v), np.ones(7), np.ones(7))
    for row in range(7):
        alone = Predictive(likelihood, Normal(m[[row]], v[[row]]), np.ones(1), np.ones(1))
        assert together.quantile(0.9)[row] == alone.quantile(0.9)[0]
        assert together.cdf(3.0)[row] == pytest.approx(alone.cdf(3.0)[0], rel=1e-14)


@pytest.mark.parametrize(
    ("likelihood", "conditional"),
    [
        (likelihoods.StudentT(4.0, 0.7), lambda y, f: stats.t.cdf(y, 4.0, f, 0.7)),
        (likelihoods.DoubleExponential(0.2), lambda y, f: stats.laplace.cdf(y, f, 0.2)),
    ],
)
@pytest.mark.parametrize("sd", [1e-3, 0.3, 30.0])
def test_small_probabilities_keep_their_digits(likelihood, conditional, sd):
    y = np.array([-5.0, -8.0, -50.0]) * np.hypot(1.0, sd)
    predictive = Predictive(values(likelihood), Normal(np.zeros(3), np.full(3, sd**2)), np.ones(3), np.ones(3))
    exact = averaged(conditional, lambda y: [y], 0.0, sd**2)
    got, expected = predictive.cdf(y), np.array([exact(point) for point in y])
    kept = expected > 1e-30  # f further out than 12 deviations is not looked at
    np.testing.assert_allclose(got[kept], expected[kept], rtol=1e-9)
    assert (got[~kept] < 1e-29).all()


def negative_binomial(dispersion: float, link: str) -> tuple:
    g, where = rates(link)
    return (likelihoods.NegativeBinomial(dispersion, link),
            lambda y, f: stats.nbinom.cdf(y, 1.0 / dispersion, 1.0 / (1.0 + dispersion * g(f))),
            lambda y: [*where(y + 1.0), *where(1.0 / dispersion)])  # fmt: skip


def gamma(shape: float, link: str) -> tuple:
    g, where = rates(link)
    return (likelihoods.Gamma(shape, link), lambda y, f: stats.gamma.cdf(y, shape, scale=g(f) / shape),
            lambda y: [*where(y), *where(shape * y)])  # fmt: skip


@pytest.mark.parametrize(
    ("case", "y", "m", "sd"),
    [
        (negative_binomial(50.0, "square"), 100.0, 0.0, 10.0),
        (negative_binomial(4.0, "square"), 5.0, 0.3, 3.0),
        (negative_binomial(8.4, "exp"), 648.0, 0.0, 18.0),
        (negative_binomial(84.0, "exp"), 162754.0, 0.5, 24.7),
        (gamma(0.18, "exp"), 1.0, 0.0, 8.1),
        (gamma(0.042, "softplus"), 1e-6, -1.0, 27.8),
        (gamma(0.1, "square"), 5e-16, -0.17, 11.0),
        (CASES["poisson, exp"], 0.0, 0.0, 23.0),
    ],
)
def test_cdf_under_wide_latents(case, y, m, sd):
    """f varies by much more than the width of P(Y ≤ y | f), whose singularities off the real line are near."""
    likelihood, cdf, place = case
    got = Predictive(values(likelihood), Normal(np.array([m]), np.array([sd**2])), np.ones(1), np.ones(1)).cdf(y)
    with np.errstate(divide="ignore"):
        exact = averaged(cdf, place, m, sd**2)(y)
    np.testing.assert_allclose(got, exact, atol=1e-9, rtol=0)


def test_a_cdf_that_is_no_cdf_is_named():
    bad = likelihoods.Custom(lambda y, f: -0.5 * (y - f) ** 2, cdf=lambda y, f: 0.0 * y + 0.0 * f + 0.25)
    predictive = Predictive(bad, Normal(np.zeros(1), np.ones(1)), np.ones(1), np.ones(1))
    with pytest.raises(RuntimeError, match="is it increasing in y"):
        predictive.quantile(0.9)
