"""Faults that adversarial problems found, each with the number of the problem and its cause."""

from __future__ import annotations

from functools import cache

import jax
import mpmath
import numpy as np
import pytest
from fuzz.problems import problem

from quantprop import (
    EP,
    FixedPointWarning,
    Model,
    PowerEP,
    PrecisionWarning,
    infer,
    kernels,
    likelihoods,
    project,
    projections,
)
from quantprop.core.gaussian import Natural, Normal
from quantprop.inference.predictive import Predictive
from quantprop.likelihoods.base import Datum
from quantprop.priors import Dense, DensePrior
from quantprop.priors.cholesky import dominant
from quantprop.runtime.precision import float64, to_numpy

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


@pytest.mark.campaign
def test_powers_of_gaussian_noise_are_gaussian():
    """642: p(y | f)^½ went through quadrature, whose roundings an observation at 1e6 showed."""
    x, y = RNG.normal(size=(20, 1)), RNG.normal(size=20)
    y[3] = 1e6
    model = Model(kernels.SquaredExponential(5.0, 0.2), likelihoods.Gaussian(0.5))
    power, exact = infer(model, x, y, PowerEP(0.5)), infer(model, x, y, "ep")
    assert power.converged, power.status
    assert power.log_evidence == pytest.approx(exact.log_evidence, rel=1e-12)
    np.testing.assert_allclose(power.marginals.mean, exact.marginals.mean, rtol=1e-9)


def test_noise_below_the_rounding_of_the_kernel_matrix():
    """84: B had no Cholesky factor at the likelihood's own sites. Four equal rows know f to half their noise."""
    model = Model(kernels.SquaredExponential(1e8, 1.0), likelihoods.Gaussian(1e-5))
    y = RNG.normal(size=(5, 4))
    with pytest.warns(PrecisionWarning, match="1e[+]18 times as precise"):
        solution = infer(model, np.repeat(np.arange(5.0)[:, None], 4, axis=0), y.ravel(), "laplace")
    assert finite(solution)
    np.testing.assert_allclose(solution.marginals.variance, 0.25e-10, rtol=1e-3)
    np.testing.assert_allclose(solution.marginals.mean, np.repeat(y.mean(axis=1), 4), atol=5e-6)


@pytest.mark.campaign
def test_exp_links_start_where_the_rate_is_a_number():
    """25: under a wide prior E[exp f] is infinite at zero sites, so VB had no start."""
    model = Model(kernels.SquaredExponential(1e4, 1.0), likelihoods.Poisson())
    solution = infer(model, np.arange(6.0), np.array([1.0, 3.0, 2.0, 5.0, 4.0, 2.0]), "vb")
    assert finite(solution)
    assert solution.converged, solution.status


@pytest.mark.campaign
@pytest.mark.parametrize("method", ["laplace", "vb"])
def test_huge_counts(method):
    """906, 1066: the first step towards a count of 1e6 overflowed exp(f), and no step was left after it."""
    y = np.array([0.0, 2.0, 1e6, 1.0, 3.0])
    solution = infer(Model(kernels.SquaredExponential(1.2, 5.0), likelihoods.Poisson()), np.arange(5.0), y, method)
    assert finite(solution)
    assert solution.converged, solution.status


@pytest.mark.campaign
def test_a_kernel_that_is_no_covariance_is_named():
    """727, 1288: sin² of a distance in two or more dimensions is not positive definite; it read as any stalled fit."""
    x = RNG.normal(size=(30, 3))
    solution = infer(Model(kernels.Periodic(4.0, 0.5, 1.0), likelihoods.Probit()), x, np.sign(x[:, 0]), "laplace")
    assert solution.status.reason == "no-covariance"
    assert "Periodic is valid for a single column" in str(solution.status)


@pytest.mark.campaign
def test_rows_without_weight_under_a_huge_kernel():
    """254: from variance 1e6 on, means of rows without a site were noise, and NaN where their variance was negative."""
    x = np.repeat(RNG.normal(size=(3, 2)), 8, axis=0)
    weights = np.tile([1.0, 0.0, *[1.0] * 5, 1.0], 3)
    y = np.tile([1.0, -1.0, *[-1.0] * 5, 1.0], 3)
    kernel = kernels.SquaredExponential(1.3e6, 6.5) + kernels.White(1.3e4)
    solution = infer(Model(kernel, likelihoods.Logit()), x, y, "laplace", weights=weights)
    assert solution.converged, solution.status
    free = weights == 0.0
    np.testing.assert_allclose(solution.marginals.mean[free], solution.predict(x[free]).mean, rtol=1e-6, atol=1e-6)


def replayed(number):
    """The solution of a numbered problem."""
    p = problem(number)
    return infer(p.model, p.x, p.y, p.method, p.schedule, **p.options)


def contradictory(ups, downs, noise, projection):
    """The one candidate for a fixed point where `ups` labels 1 and `downs` labels −1 share an input of prior N(0, 1).

    Up to scale, a cavity is one number, z = mean/sd, and so are its projection, mean/sd = t(z), and its site. Equal
    labels have equal sites, labels −1 the z that belongs to −t. What is left is one equation. Returned are t and the
    prior precision times the posterior variance, 1 − Σ τ_i variance, which a Gaussian has above 0.
    """
    z = np.linspace(-12.0, 8.0, 8001)
    q = project(likelihoods.Heaviside(noise), y=np.ones_like(z), cavity=(z, np.ones_like(z)), projection=projection)
    t, tau, nu = q.mean / np.sqrt(q.variance), 1.0 - q.variance, (q.mean - z * q.variance) / np.sqrt(q.variance)
    assert (np.diff(t) > 0).all()
    tau_down, nu_down = np.interp(-t, t, tau), -np.interp(-t, t, nu)
    inside = np.flatnonzero((-t > t[0]) & (-t < t[-1]))
    balance = (t - ups * nu - downs * nu_down)[inside]
    change = np.flatnonzero(np.diff(np.sign(balance)) != 0)
    assert len(change) == 1
    at = inside[change[0]] + balance[change[0]] / (balance[change[0]] - balance[change[0] + 1])
    left = 1.0 - ups * tau - downs * tau_down
    return np.interp(at, np.arange(len(t)), t), np.interp(at, np.arange(len(t)), left)


@pytest.mark.campaign
def test_contradictory_labels_of_a_threshold():
    """659 and a dozen like it: the one fixed point is one that sweeps run away from; a path of powers leads to it."""
    p, solution = problem(659), replayed(659)
    assert solution.converged, solution.status
    assert "continuation" in solution.status.schedule
    t, share = contradictory(24, 1, float(p.model.plain_likelihood.noise), projections.KL())
    mean, variance = solution.marginals.mean[0], solution.marginals.variance[0]
    assert mean / variance**0.5 == pytest.approx(t, rel=1e-4)
    assert variance == pytest.approx(share * float(p.model.plain_kernel.variance), rel=1e-4)


@pytest.mark.campaign
def test_quantiles_of_a_noisy_threshold():
    """Found on the way: right of the threshold quantiles vary on the scale of the noise, which panels of the scale 1
    missed: errors of 1e-4, and others for another scale of f. There is none in a threshold at 0.
    """
    z = np.array([-4.0, -1.08, 0.3])
    likelihood, w2 = likelihoods.Heaviside(7.46e-6), projections.Wasserstein(2)
    ratios = [project(likelihood, y=np.ones(3), cavity=(s * z, np.full(3, s**2)), projection=w2).variance / s**2
              for s in (1.0, 1.3, 1e3)]  # fmt: skip
    for ratio in ratios:
        np.testing.assert_allclose(ratio, ratios[0], rtol=1e-10)


@pytest.mark.campaign
def test_contradictory_labels_have_no_fixed_point_of_qp():
    """1378: QP's sites are narrower than EP's, and where they contradict each other no Gaussian is left: EP's answer
    takes its place, and is named.
    """
    _, ep = contradictory(3, 2, 7.46e-6, projections.KL())
    _, qp = contradictory(3, 2, 7.46e-6, projections.Wasserstein(2))
    assert ep > 0 > qp
    with pytest.warns(FixedPointWarning, match="the solution is from EP"):
        solution = replayed(1378)
    assert solution.converged
    assert solution.method == EP()
    assert solution.status.schedule.endswith("instead of QP()")
    p = problem(1378)
    same = infer(p.model, p.x, p.y, "ep", **p.options)
    np.testing.assert_allclose(solution.marginals.mean, same.marginals.mean, rtol=1e-4)
    np.testing.assert_allclose(solution.log_evidence, same.log_evidence, rtol=1e-6)


@pytest.mark.campaign
@pytest.mark.parametrize("number", [8098, 1938])
def test_a_posterior_that_collapses_is_no_prior_without_variance(number):
    """8098, 3378, 4498, 9618: QP's sweeps shrank marginals to 0, which was taken for a kernel that gives no variance,
    so that neither a path nor EP was asked; 1938 ended with NaN.
    """
    with pytest.warns(FixedPointWarning, match="the solution is from EP"):
        solution = replayed(number)
    assert solution.converged, solution.status
    assert finite(solution)
    p = problem(number)
    same = infer(p.model, p.x, p.y, "ep", **p.options)
    np.testing.assert_allclose(solution.log_evidence, same.log_evidence, rtol=1e-6)


def test_variational_bounds_under_wide_priors():
    """1225: natural gradients crept for thousands of sweeps; Newton's method arrives from where they were given up."""
    solution = replayed(1225)
    assert solution.converged, solution.status


@pytest.mark.campaign
@pytest.mark.parametrize("number", [1415, pytest.param(8055, marks=pytest.mark.campaign)])
def test_modes_of_student_noise(number):
    """1415: where all curvatures were negative, steps were halved until none was left. 8055: under a variance of 3e6
    the products of K with what stands at negative sites left no digits of the mean.
    """
    solution = replayed(number)
    assert solution.converged, solution.status


@pytest.mark.campaign
def test_a_thousand_copies_of_a_kink():
    """136: a double-exponential term does not say how far its kink is; a thousand of them overshot for ever."""
    solution = replayed(136)
    assert solution.converged, solution.status


@pytest.mark.parametrize(
    ("row", "scale", "cavity"),
    [
        ((0.95, 1.67), 0.1, (55_000.0, 6e-4)),
        ((-1e8, -1e8 + 0.5), 2.0, (3.0, 1.0)),
        ((1.0, 1.0), 0.1, (5_200.0, 1e-2)),
        ((1.0, np.inf), 1e-5, (0.3, 1e-9)),
    ],
)
def test_censored_rows_far_from_their_data(row, scale, cavity):
    """77, 156, 395: squares of 1e11 rounded away what there was to integrate. Here y is a truncated normal variable."""
    mpmath.mp.dps = 40
    q = project(likelihoods.Censored(scale), y=np.array([row]), cavity=cavity)
    (m, v), s = map(mpmath.mpf, cavity), mpmath.mpf(scale)
    total = v + s**2
    end = mpmath.mpf(row[0] if m < row[0] else row[1])
    distance = abs(end - m) / mpmath.sqrt(total)
    hazard = 0 if row[0] == row[1] else mpmath.npdf(distance) / (mpmath.erfc(distance / mpmath.sqrt(2)) / 2) - distance
    spread = 0 if row[0] == row[1] else 1 - hazard * (hazard + distance)  # other ends are out of reach
    mean = m + v / total * (end - m + mpmath.sign(end - m) * hazard * mpmath.sqrt(total))
    assert float(q.mean[0]) == pytest.approx(float(mean), rel=1e-13)
    assert float(q.variance[0]) == pytest.approx(float(v * s**2 / total + v**2 / total * spread), rel=1e-8)


@float64
def test_negative_sites_under_a_huge_kernel():
    """772: K − VᵀV left few digits of the covariances that a negative site sends on, and fewer of b."""
    x = np.array([0.0, 0.5, 1.0, 1.5, 3.0])
    k = 5e7 * np.exp(-0.5 * (x[:, None] - x) ** 2)
    tau, nu = np.array([1.7, 2.1, -1e-6, 3.0, 0.5]), np.array([2.0, 1.0, -1e-2, 2.0, 1.0])
    prior, sites = Dense().refined(DensePrior(np.zeros(5), k)), Natural(nu, tau)
    found = jax.jit(lambda sites: prior.condition(sites, signed=True))(sites)
    assert found.proper
    mpmath.mp.dps = 40
    inverse = mpmath.inverse(mpmath.eye(5) + mpmath.diag(tau.tolist()) * mpmath.matrix(k.tolist()))
    mean = mpmath.matrix(k.tolist()) * inverse * mpmath.matrix(nu.tolist())
    np.testing.assert_allclose(found.marginals.b, [float(inverse[i, i]) for i in range(5)], rtol=1e-9)
    np.testing.assert_allclose(found.marginals.mean, np.array([float(m) for m in mean]), rtol=1e-7)


def test_variances_whose_factors_underflow_and_overflow():
    """6983, 3900, 8839: Var[exp f] = E² (exp v − 1) was 0 · ∞ far below the data, under a wide prior."""
    mpmath.mp.dps = 40
    m, v = mpmath.mpf(-1000), mpmath.mpf(720)
    mean, variance = mpmath.exp(m + v / 2), mpmath.exp(2 * m + v) * mpmath.expm1(v)
    new = Normal(np.array([-1000.0, -3000.0]), np.array([720.0, 750.0]))
    ones = np.ones(2)
    poisson = Predictive(likelihoods.Poisson(), new, ones, ones)
    gamma = Predictive(likelihoods.Gamma(2.0), new, ones, ones)
    np.testing.assert_allclose(poisson.variance, [float(mean + variance), 0.0], rtol=1e-12)
    np.testing.assert_allclose(gamma.variance, [float(variance + (variance + mean**2) / 2), 0.0], rtol=1e-12)


def test_cavities_a_billion_times_wider_than_marginals():
    """4378, 6331: 1 − share (1 − b) left nothing of a cavity whose b is below 1e-16."""
    model = Model(kernels.SquaredExponential(1e8), likelihoods.Gaussian(1e-5))
    with pytest.warns(PrecisionWarning):
        solution = infer(model, np.zeros(1), np.ones(1), "ep")
    assert solution.loo[0] == pytest.approx(-0.5 * np.log(2e8 * np.pi) - 0.5e-8, abs=1e-6)


@float64
@pytest.mark.parametrize(
    "row",
    [
        (1e6, 1e6 + 2.0),
        (1.0, np.inf),
        *(pytest.param(r, marks=pytest.mark.campaign) for r in ((-1e6, -1e6), (-np.inf, -3e5))),
    ],
)
def test_expectations_of_censored_rows_far_from_their_data(row):
    """2718, 4558, 6798: squares of 1e13 at the nodes left six digits of the slopes of VB's bound."""
    mpmath.mp.dps = 40
    scale, marginal = 0.3, Normal(np.array(0.1), np.array(0.04))
    datum = Datum(np.array(row), np.array(1.0), np.array(1.0))
    got = jax.jit(likelihoods.Censored(scale).expected_log_prob)(datum, marginal)
    lower, upper = map(mpmath.mpf, row)

    def log_p(f):
        if lower == upper:
            return mpmath.log(mpmath.npdf(lower, f, scale))
        flip = -1 if f < lower else 1  # from the tail that is nearer
        ends = [flip * (end - f) / mpmath.mpf(scale) for end in (lower, upper)][::flip]
        return mpmath.log(mpmath.erfc(-ends[1] / mpmath.sqrt(2)) / 2 - mpmath.erfc(-ends[0] / mpmath.sqrt(2)) / 2)

    @cache  # all three expectations are taken on the same nodes
    def weighted(u):
        return log_p(mpmath.mpf(0.1) + mpmath.mpf(0.2) * u) * mpmath.npdf(u)

    def expected(weight):
        return mpmath.quad(lambda u: weight(u) * weighted(u), np.linspace(-12.0, 12.0, 13).tolist())

    want = expected(lambda u: 1), expected(lambda u: u) / 0.2, expected(lambda u: u * u - 1) / 0.08
    np.testing.assert_allclose(np.array(got), [float(part) for part in want], rtol=1e-11)


def exact_posterior(k, sites):
    """Means, variances and b = diag (I + S K)⁻¹, in 60 digits."""
    mpmath.mp.dps = 60
    k, tau = mpmath.matrix(k.tolist()), mpmath.diag(sites.tau.tolist())
    inverse = mpmath.inverse(mpmath.eye(len(sites.tau)) + tau * k)
    mean, covariance = k * inverse * mpmath.matrix(sites.nu.tolist()), k * inverse
    diagonals = ([float(part[i, i]) for i in range(len(sites.tau))] for part in (covariance, inverse))
    return np.array([float(m) for m in mean]), *map(np.array, diagonals)


@float64
def posterior(k, sites):
    prior = Dense().refined(DensePrior(np.zeros(len(k)), k))
    return jax.jit(lambda sites: prior.condition(sites, signed=False))(sites)


def test_rows_that_are_equal_up_to_rounding_under_a_huge_kernel():
    """3848, 905, 5639: after the first of 94 such rows only roundings were left, and pivots among them grew to 1e9."""
    k = 5e6 * (1.0 + 1e-9 * np.add.outer(x := RNG.normal(size=24), x))
    parts = to_numpy(float64(dominant)(k))
    np.testing.assert_allclose(parts.low @ parts.low.T + parts.rest, k, rtol=24 * 2.3e-16)
    assert np.abs(parts.low).max() < 3e3
    assert (np.diagonal(parts.rest) >= 0).all()


def test_strong_sites_under_a_huge_kernel():
    """2541: roundings of 1e-8 in rows that the dominant part explains, times a τ of 1e8, left no Cholesky factor."""
    x = np.round(2.0 * RNG.normal(size=19))
    k = 1e8 * np.exp(-0.5 * np.subtract.outer(x, x) ** 2) + 1e6 * np.eye(19)
    sites = Natural(1e8 * RNG.normal(size=19), np.full(19, 1e8))
    found, (mean, _, b) = posterior(k, sites), exact_posterior(k, sites)
    assert found.proper
    np.testing.assert_allclose(found.marginals.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(found.marginals.b, b, rtol=1e-6)


def test_slopes_without_curvature_under_a_huge_kernel():
    """7397, 7876: a small count far below its neighbours is a site (y, exp −80). K times it is 1e8, whose roundings
    came back √(τ K) times as large: errors of 1 in the means.
    """
    x = np.array([-1.44, -1.37, -0.78, -0.62, -0.09, 0.31, 0.44, 0.97, 1.79])
    k = 1e8 * np.exp(-0.5 * (np.subtract.outer(x, x) / 30.0) ** 2) + 1e-3 * np.eye(9)
    tau = np.array([1e-20, 1e-18, 0.1, 20.0, 215.0, 28.0, 1.1, 1e-11, 1e-35])
    sites = Natural(np.array([2.0, -1e-18, 0.6, 45.0, 2170.0, 74.0, 0.0, 1.0, 2.0]), tau)
    found, (mean, _, _) = posterior(k, sites), exact_posterior(k, sites)
    np.testing.assert_allclose(found.marginals.mean, mean, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("number", [905, pytest.param(6783, marks=pytest.mark.campaign)])
def test_bounds_are_numbers_under_the_widest_priors(number):
    """905, 6783: for a prior variance of 1e13 and 5e20 no sites had a posterior, and VB's bound at zero sites is −∞."""
    solution = replayed(number)
    assert finite(solution)
    assert solution.converged, solution.status


def test_rows_without_a_site_beside_strong_ones():
    """5820: K_ii − Σ V² left 0, or a negative number, of the variance 2e-9 of a row that others know exactly."""
    x = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 3.0])
    k = 1e8 * np.exp(-0.5 * np.subtract.outer(x, x) ** 2)
    sites = Natural(np.array([0.0, 1e8, 2e8, 0.0, 1.0, 0.0]), np.array([0.0, 1e8, 4e8, 0.0, 1.0, 0.0]))
    found, (mean, variance, _) = posterior(k, sites).marginals, exact_posterior(k, sites)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-6)
