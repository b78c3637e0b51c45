"""Draws from a model before any data: their moments in closed form."""

import numpy as np
import pytest

from quantprop import LogNormal, Model, Parameter, kernels, likelihoods, prior_predictive

X = np.array([[0.0], [1.0], [5.0]])


def test_moments_of_gaussian_draws():
    """Mean, variances and covariances of y, to Monte Carlo error of 4,000 draws."""
    model = Model(kernels.SquaredExponential(2.0, 1.5), likelihoods.Gaussian(0.5), mean=3.0)
    drawn = prior_predictive(model, X, 4000, seed=1)
    covariance = 2.0 * np.exp(-0.5 * ((X - X.T) / 1.5) ** 2) + 0.25 * np.eye(3)
    np.testing.assert_allclose(drawn.mean(axis=0), 3.0, atol=4 * 1.5 / np.sqrt(4000))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.2)


def test_counts_with_exposure_and_a_prior_of_the_variance():
    """E y = n E exp(v/2) over the prior of v, and the same seed gives the same draws."""
    variance = Parameter(0.7, prior=LogNormal(0.5, 0.4))
    model = Model(kernels.Constant(variance), likelihoods.Poisson())
    drawn = prior_predictive(model, X, 4000, exposure=[1.0, 5.0, 20.0])
    v = 0.5 * np.exp(0.4 * np.random.default_rng(9).standard_normal(400_000))
    mean = np.exp(0.5 * v).mean() * np.array([1.0, 5.0, 20.0])
    np.testing.assert_allclose(drawn.mean(axis=0), mean, rtol=0.1)
    np.testing.assert_array_equal(drawn[:5], prior_predictive(model, X, 5, exposure=[1.0, 5.0, 20.0]))
    fixed = Model(kernels.Constant(Parameter(1e-12, prior=LogNormal(9.0, 1.0), fixed=True)), likelihoods.Gaussian(1e-6))
    assert np.abs(prior_predictive(fixed, X, 5)).max() < 1e-4
    with pytest.raises(ValueError, match="trials was given"):
        prior_predictive(fixed, X, trials=2)
