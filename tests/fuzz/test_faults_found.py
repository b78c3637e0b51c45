"""Faults that adversarial problems found, each with the number of the problem and its cause."""

from __future__ import annotations

import numpy as np
import pytest

from quantprop import Model, PowerEP, infer, kernels, likelihoods
from quantprop.gaussian import Natural

RNG = np.random.default_rng(0)


def finite(solution):
    sites, marginals = solution.sites, solution.marginals
    numbers = [sites.nu, sites.tau, marginals.mean, marginals.variance, [solution.log_evidence]]
    return np.isfinite(np.concatenate(numbers)).all() and (marginals.variance >= 0).all()


def steep_line(n=30):
    """One input at 1e6: under a linear kernel the prior variance there is 5e12."""
    x = RNG.normal(size=(n, 1))
    x[n // 2] = 1e6
    return x, Model(kernels.Linear(5.0) + kernels.Constant(5.0), likelihoods.Gaussian(0.2))


def test_sequential_sweeps_end_in_their_last_proper_posterior():
    """81: rank-one updates lost the posterior to rounding, and the NaN of the sweep after it was returned."""
    x, model = steep_line()
    none = Natural(np.zeros(30), np.zeros(30))
    assert finite(infer(model, x, RNG.normal(size=30), "ep", "sequential", sites=none))


@pytest.mark.parametrize("method", ["vb", pytest.param("laplace", marks=pytest.mark.campaign)])
def test_gaussian_noise_starts_at_its_own_sites(method):
    """243: from zero sites, steps of 5e12 prior standard deviations were undone until none was left."""
    x, model = steep_line()
    solution = infer(model, x, np.where(np.arange(30) == 3, 1.6, -1.5), method)
    assert solution.converged, solution.status
    assert solution.sweeps == 1


def test_powers_of_gaussian_noise_are_gaussian():
    """642: p(y | f)^½ went through quadrature, whose roundings an observation at 1e6 showed."""
    x, y = RNG.normal(size=(20, 1)), RNG.normal(size=20)
    y[3] = 1e6
    model = Model(kernels.SquaredExponential(5.0, 0.2), likelihoods.Gaussian(0.5))
    power, exact = infer(model, x, y, PowerEP(0.5)), infer(model, x, y, "ep")
    assert power.converged, power.status
    assert power.log_evidence == pytest.approx(exact.log_evidence, rel=1e-12)
    np.testing.assert_allclose(power.marginals.mean, exact.marginals.mean, rtol=1e-9)


def test_noise_below_the_rounding_of_the_kernel_matrix_is_said_and_brings_no_nan():
    """84: B has no Cholesky factor at the likelihood's own sites; sweeps then start from the prior."""
    model = Model(kernels.SquaredExponential(1e8, 1.0), likelihoods.Gaussian(1e-5))
    solution = infer(model, np.repeat(RNG.normal(size=(5, 1)), 4, axis=0), RNG.normal(size=20), "laplace")
    assert finite(solution)
    assert not solution.converged
    assert solution.status.remedy
    assert solution.status.remedy in str(solution.status)


def test_exp_links_start_where_the_rate_is_a_number():
    """25: under a wide prior E[exp f] is infinite at zero sites, so VB had no start."""
    model = Model(kernels.SquaredExponential(1e4, 1.0), likelihoods.Poisson())
    solution = infer(model, np.arange(6.0), np.array([1.0, 3.0, 2.0, 5.0, 4.0, 2.0]), "vb")
    assert finite(solution)
    assert solution.converged, solution.status


@pytest.mark.parametrize("method", ["laplace", pytest.param("vb", marks=pytest.mark.campaign)])
def test_huge_counts(method):
    """906, 1066: the first step towards a count of 1e6 overflowed exp(f), and no step was left after it."""
    y = np.array([0.0, 2.0, 1e6, 1.0, 3.0])
    solution = infer(Model(kernels.SquaredExponential(1.2, 5.0), likelihoods.Poisson()), np.arange(5.0), y, method)
    assert finite(solution)
    assert solution.converged, solution.status


def test_a_kernel_that_is_no_covariance_is_named():
    """727, 1288: sin² of a distance in two or more dimensions is not positive definite; it read as any stalled fit."""
    x = RNG.normal(size=(30, 3))
    solution = infer(Model(kernels.Periodic(4.0, 0.5, 1.0), likelihoods.Probit()), x, np.sign(x[:, 0]), "laplace")
    assert solution.status.reason == "no-covariance"
    assert "Periodic is one of a single feature" in str(solution.status)


def test_rows_without_weight_under_a_huge_kernel():
    """254: from variance 1e6 on, means of rows without a site were noise, and NaN where their variance was negative."""
    x = np.repeat(RNG.normal(size=(3, 2)), 4, axis=0)
    weights = np.tile([1.0, 0.0, 5.0, 1.0], 3)
    y = np.tile([1.0, -1.0, -1.0, 1.0], 3)
    kernel = kernels.SquaredExponential(1.3e6, 6.5) + kernels.White(1.3e4)
    solution = infer(Model(kernel, likelihoods.Logit()), x, y, "laplace", weights=weights)
    assert solution.converged, solution.status
    free = weights == 0.0
    np.testing.assert_allclose(solution.marginals.mean[free], solution.predict(x[free]).mean, rtol=1e-6, atol=1e-6)
