"""Information of observations, against draws of f and y, closed forms, and brute force."""

import warnings

import jax
import numpy as np
import pytest
from scipy.stats import norm

from quantprop import Model, infer, kernels, likelihoods
from quantprop.core.gaussian import Normal
from quantprop.inference.information import expected, of_mean
from quantprop.inference.predictive import predictive_of
from quantprop.likelihoods.base import Datum, encode

LATENT = Normal(np.array([0.3, -0.8, 1.4]), np.array([0.4, 1.5, 0.09]))
LEVEL = 0.5
CASES = {
    "gaussian": (likelihoods.Gaussian(0.7), {}),
    "probit": (likelihoods.Probit(), {}),
    "logit": (likelihoods.Logit(), {}),
    "heaviside": (likelihoods.Heaviside(0.1), {}),
    "poisson": (likelihoods.Poisson(), {"exposure": 5.0}),
    "square": (likelihoods.Poisson("square"), {"exposure": 3.0}),
    "negative binomial": (likelihoods.NegativeBinomial(0.5), {"exposure": 40.0}),
    "binomial": (likelihoods.Binomial(), {"trials": 12.0}),
    "student-t": (likelihoods.StudentT(4.0, 0.5), {}),
    "double exponential": (likelihoods.DoubleExponential(0.6), {}),
    "gamma": (likelihoods.Gamma(2.0), {}),
    "beta": (likelihoods.Beta(9.0), {}),
    "ordinal": (likelihoods.Ordinal(np.array([-1.0, 0.5, 1.0])), {}),
    "censored": (likelihoods.Censored(0.6), {}),
    "weibull": (likelihoods.Weibull(0.6), {}),
    "log-logistic": (likelihoods.LogLogistic(0.4), {}),
    "zero-inflated": (likelihoods.ZeroInflatedPoisson(0.3), {"exposure": 4.0}),
    "zero-inflated nb": (likelihoods.ZeroInflatedNegativeBinomial(0.3, 0.6), {"exposure": 4.0}),
}  # fmt: skip
QUICK = ("probit", "student-t")


def by_draws(likelihood, scales, latent, n):
    """Both informations and their standard errors, from draws of f and y; p(y) and P(f > level | y) by fine sums."""
    rng, found = np.random.default_rng(1), []
    t = np.linspace(-9, 9, 801)
    w = norm.pdf(t) * (t[1] - t[0])
    for mean, variance in zip(latent.mean, latent.variance, strict=True):
        f, sd = mean + np.sqrt(variance) * rng.standard_normal(n), np.sqrt(variance)
        y = likelihood.draw(rng, Datum(f, *(np.full(n, scales.get(name, 1.0)) for name in ("exposure", "trials"))), f)
        values, place = np.unique(y, return_inverse=True)
        at = values if len(values) < 2000 else values[np.linspace(0, len(values) - 1, 2000).astype(int)]
        grid = mean + sd * t
        mass = w[:, None] * np.exp(given(likelihood, grid[:, None], at, scales))
        z, above = mass.sum(0), mass[grid > LEVEL].sum(0) / mass.sum(0)
        gain = given(likelihood, f, y, scales) - np.interp(values, at, np.log(z))[place]
        q, p = norm.cdf((mean - LEVEL) / sd), np.interp(values, at, above)[place]
        event = np.where(f > LEVEL, np.log(np.maximum(p, 1e-300) / q), np.log(np.maximum(1 - p, 1e-300) / (1 - q)))
        found.append([(part.mean(), part.std() / np.sqrt(n)) for part in (gain, event)])
    return np.array(found)


@jax.jit
def density(likelihood, data, f):
    return jax.vmap(likelihood.log_prob)(data, f)


def given(likelihood, f, y, scales):
    """log p(y | f), for arrays that broadcast."""
    f, y = np.broadcast_arrays(f, y)
    y = np.clip(y, 1e-100, 1 - 1e-16) if likelihood.name == "beta" else y  # draws round to the ends, 0 and 1
    rows = y.ravel() if likelihood.columns == 1 else np.repeat(y.reshape(-1, 1), 2, axis=1)
    with jax.enable_x64(True):
        return np.asarray(density(likelihood, encode(likelihood, rows, (y.size,), **scales), f.ravel())).reshape(
            y.shape
        )


@pytest.mark.parametrize(
    ("name", "n"),
    [(name, 100_000) for name in QUICK] + [pytest.param(name, 1_000_000, marks=pytest.mark.campaign) for name in CASES],
)
def test_information_is_the_average_over_draws(name, n):
    likelihood, scales = CASES[name]
    # draws of beta variables of very small shapes round to 0 and 1
    latent = Normal(0.3 * LATENT.mean, 0.1 * LATENT.variance) if name == "beta" else LATENT
    draws = by_draws(likelihood, scales, latent, n)
    new = predictive_of(likelihood, latent, scales.get("exposure"), scales.get("trials"), None)
    found = expected(new, LEVEL)
    for part, own in zip((found.of_f, found.of_event), draws.transpose(1, 0, 2), strict=True):
        assert np.all(np.abs(part - own[:, 0]) < 4 * own[:, 1] + 2e-4), (part, own)


def test_gaussian_noise_has_a_closed_form():
    found = expected(predictive_of(likelihoods.Gaussian(0.7), LATENT, None, None, None))
    np.testing.assert_allclose(found.of_f, 0.5 * np.log1p(LATENT.variance / 0.49), atol=1e-8)
    np.testing.assert_allclose(found.variance, 1 / (1 / LATENT.variance + 1 / 0.49), atol=1e-8)


def test_two_classes_are_entropies():
    """Of probit by a fine trapezium rule: H(E p) − E H(p)."""
    t = np.linspace(-10, 10, 20_001)[:, None]
    w, p = norm.pdf(t) * 1e-3, norm.cdf(LATENT.mean + np.sqrt(LATENT.variance) * t)
    q = (w * p).sum(0)

    def entropy(p):
        return -p * np.log(p) - (1 - p) * np.log1p(-p)

    inside = np.clip(p, 1e-300, 1 - 1e-16)
    found = expected(predictive_of(likelihoods.Probit(), LATENT, None, None, None))
    np.testing.assert_allclose(found.of_f, entropy(q) - (w * entropy(inside)).sum(0), atol=1e-9)


def test_large_counts_are_thinned_without_loss():
    """Counts of about 1,000 times a mean that varies: against all values, by scipy-free sums."""
    likelihood = likelihoods.Poisson()
    new = predictive_of(likelihood, Normal(np.array([0.0]), np.array([0.04])), np.array([2000.0]), None, None)
    y = np.arange(500.0, 6000.0)
    t = np.linspace(-9, 9, 301)
    w, f = norm.pdf(t) * (t[1] - t[0]), 0.2 * t
    log_p = given(likelihood, f[:, None], y, {"exposure": 2000.0})
    entropy = -w @ (np.exp(log_p) * log_p).sum(1)
    p = w @ np.exp(log_p)
    brute = -(p * np.log(p)).sum() - entropy
    assert expected(new).of_f[0] == pytest.approx(brute, abs=1e-5)


def test_what_is_known_reveals_nothing():
    new = predictive_of(likelihoods.Probit(), Normal(np.array([0.3, 40.0]), np.array([0.0, 1.0])), None, None, None)
    found = expected(new, 1.0)
    assert found.of_f[0] == found.of_event[0] == 0.0
    assert 0 <= found.of_f[1] < 1e-12
    assert abs(found.of_event[1]) < 1e-12


def test_improvement_has_a_closed_form_for_gaussian_noise():
    gain, upper = of_mean(predictive_of(likelihoods.Gaussian(0.7), LATENT, None, None, None), 0.6)
    sd = np.sqrt(LATENT.variance)
    z = (LATENT.mean - 0.6) / sd
    np.testing.assert_allclose(gain, sd * (z * norm.cdf(z) + norm.pdf(z)), atol=1e-4)
    np.testing.assert_allclose(upper, LATENT.mean + 1.645 * sd, rtol=1e-12)


def test_the_solution_has_the_information_of_its_predictions():
    X, y = np.linspace(-2, 2, 9)[:, None], np.array([-1, -1, -1, 1, -1, 1, 1, 1, 1])
    solution = infer(Model(kernels.SquaredExponential(2.0), likelihoods.Probit()), X, y, "ep")
    new = np.array([[0.0], [5.0]])
    np.testing.assert_array_equal(solution.information(new), expected(solution.predict_y(new)).of_f)
    np.testing.assert_array_equal(solution.information(new, level=0.2), expected(solution.predict_y(new), 0.2).of_event)
    with pytest.raises(TypeError, match="Gaussian posterior"):
        expected(solution.corrected().predict_y(new))
    with warnings.catch_warnings(), pytest.raises(ValueError, match="output"):
        solution.information(new, output=1)
