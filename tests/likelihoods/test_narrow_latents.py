"""The distribution of y where f is known exactly, or nearly: that given f, by scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from quantprop import likelihoods
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import values
from quantprop.inference.predictive import Predictive

M = np.array([0.0, 1.0, -0.4])
# A likelihood, scipy's distribution of y given f, and a y.
CASES = {
    "student-t": (likelihoods.StudentT(4.0, 0.3), lambda f: stats.t(4.0, f, 0.3), 0.5),
    "double exponential": (likelihoods.DoubleExponential(1.0), lambda f: stats.laplace(f, 1.0), 0.5),
    "beta": (likelihoods.Beta(3.0), lambda f: stats.beta(3 * stats.norm.cdf(f), 3 * stats.norm.cdf(-f)), 0.3),
    "gamma": (likelihoods.Gamma(2.0), lambda f: stats.gamma(2.0, scale=np.exp(f) / 2.0), 0.5),
    "poisson, square": (likelihoods.Poisson("square"), lambda f: stats.poisson(f * f), 2.0),
    "negative binomial": (
        likelihoods.NegativeBinomial(0.4),
        lambda f: stats.nbinom(2.5, 1 / (1 + 0.4 * np.exp(f))),
        3.0,
    ),
}


def predictive(likelihood: likelihoods.Likelihood, m: np.ndarray, sd: np.ndarray | float) -> Predictive:
    latent = Normal(m, np.broadcast_to(np.square(sd), m.shape))
    return Predictive(values(likelihood), latent, np.ones(len(m)), np.ones(len(m)))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.campaign] * (name not in ("student-t", "gamma"))) for name in CASES],
)
def test_y_is_distributed_as_given_f_where_f_has_no_variance(name):
    likelihood, conditional, y = CASES[name]
    got, exact = predictive(likelihood, M, 0.0), conditional(M)
    discrete = likelihood.lattice is not None
    with np.errstate(divide="ignore"):
        log_prob = exact.logpmf(y) if discrete else exact.logpdf(y)
    np.testing.assert_allclose(got.mean, exact.mean(), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(got.variance, exact.var(), rtol=1e-12)
    np.testing.assert_allclose(got.cdf(y), exact.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(got.log_prob(y), log_prob, rtol=1e-11)
    quantile = np.maximum(exact.ppf(0.8), likelihood.interval[0])  # scipy has −1 where the rate is 0
    np.testing.assert_allclose(got.quantile(0.8), quantile, rtol=1e-8, atol=1e-8)


def test_rows_with_and_without_variance_do_not_mix():
    likelihood, conditional, y = CASES["gamma"]
    mixed = predictive(likelihood, M, np.array([0.0, 0.7, 0.0]))
    spread = predictive(likelihood, M, 0.7)
    for of in (lambda p: p.cdf(y), lambda p: p.log_prob(y), lambda p: p.mean, lambda p: p.quantile(0.3)):
        assert of(mixed)[1] == pytest.approx(of(spread)[1], rel=1e-12)
    np.testing.assert_allclose(mixed.cdf(y)[[0, 2]], conditional(M).cdf(y)[[0, 2]], rtol=1e-12)


@pytest.mark.parametrize(
    "name", ["gamma", "double exponential", pytest.param("negative binomial", marks=pytest.mark.campaign)]
)
def test_log_prob_under_narrow_latents(name):
    """p(y | f) at the mean: what the variance adds is of second order."""
    likelihood, conditional, y = CASES[name]
    sd = np.array([1e-7, 1e-9, 1e-10, 1e-12, 1e-20, 1e-100])
    got, exact = predictive(likelihood, np.full(len(sd), 0.2), sd).log_prob(y), conditional(0.2)
    np.testing.assert_allclose(got, exact.logpmf(y) if likelihood.lattice else exact.logpdf(y), rtol=1e-12)


def test_log_prob_at_a_kink_under_narrow_latents():
    """E[exp(−|f − y|)] = 1 − √(2/π) sd + ½ sd² − ... at y = m."""
    sd = np.array([1e-6, 1e-8, 1e-10, 1e-13])
    got = predictive(likelihoods.DoubleExponential(1.0), np.full(len(sd), 0.2), sd).log_prob(0.2)
    np.testing.assert_allclose(got, np.log(0.5) + np.log1p(-np.sqrt(2.0 / np.pi) * sd + 0.5 * sd**2), rtol=1e-14)


@pytest.mark.parametrize("sd", [1e-2, 1e-4, 1e-6, 1e-12])
def test_double_exponential_cdf_when_f_is_nearly_known(sd):
    """½ exp(t + ½ c²) far below the mean, t = (y − m)/scale and c = sd/scale; 1 − that above."""
    got = predictive(likelihoods.DoubleExponential(300.0), np.zeros(3), sd)
    y = np.array([-700.0, -20.0, 700.0])
    tail = 0.5 * np.exp(-np.abs(y) / 300.0 + 0.5 * (sd / 300.0) ** 2)
    np.testing.assert_allclose(got.cdf(y), np.where(y < 0, tail, 1.0 - tail), rtol=1e-14)
    np.testing.assert_allclose(got.quantile(tail[1]), -20.0, rtol=1e-9)


ALL = [
    *(likelihood for likelihood, _, _ in CASES.values()),
    likelihoods.Gaussian(0.7),
    likelihoods.Probit(),
    likelihoods.Logit(),
    likelihoods.Heaviside(0.05),
    likelihoods.Poisson("softplus"),
    likelihoods.Gamma(2.0, "square"),
    likelihoods.Binomial(),
    likelihoods.Ordinal([-1.0, 0.5]),
    likelihoods.Censored(0.7),
    likelihoods.Weibull(0.7),
    likelihoods.LogLogistic(0.7),
    likelihoods.ZeroInflatedPoisson(0.2),
    likelihoods.ZeroInflatedNegativeBinomial(0.2),
    likelihoods.Warped(0.7),
]


@pytest.mark.parametrize("likelihood", ALL, ids=repr)
def test_cdf_at_infinity(likelihood):
    got = predictive(likelihood, np.array([0.3, 0.3, 0.3]), np.array([0.5, 0.5, 0.0]))
    np.testing.assert_array_equal(got.cdf(np.array([-np.inf, np.inf, np.inf])), [0.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="y must not contain NaN"):
        got.cdf(np.array([0.0, np.nan, 1.0]))
