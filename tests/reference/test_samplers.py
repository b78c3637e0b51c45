"""The samplers against quadrature, closed forms and each other; R-hat against chains made to agree or not."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr
from scipy.stats import multivariate_normal, t

from quantprop import Model, kernels, likelihoods, reference
from quantprop.core.gaussian import Natural
from quantprop.reference.chains import Halves, split_rhat, variance

X, X_NEW = np.array([[-1.0], [0.2], [1.0]]), np.array([[0.5], [3.0]])
Y = np.array([1.0, -1.0, 1.0])
VARIANCE = 9.0
PRIOR = Natural(np.zeros(3), np.zeros(3))  # sites of 0: the guide is the prior
EFFORT = {"chains": 64, "draws": 500, "thin": 3}


def covariance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return VARIANCE * np.exp(-0.5 * (a - b.T) ** 2)


def model(likelihood: likelihoods.Likelihood) -> Model:
    return Model(kernels.SquaredExponential(VARIANCE, 1.0), likelihood)


def close(estimate: reference.Estimate, truth: np.ndarray, most: float) -> bool:
    """Within 4.5 standard errors, which are themselves small."""
    good = np.abs(estimate.value - truth) < 4.5 * estimate.standard_error
    return bool(good.all() and (estimate.standard_error < most).all())


def by_quadrature(log_prob, predicted) -> dict[str, np.ndarray]:
    """Moments of f at X, E[predicted(mean, variance of f_new given f)] and log p(y), on a grid of whitened f."""
    grid = np.linspace(-8.0, 8.0, 97)
    z = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), axis=-1).reshape(-1, 3)
    lower = np.linalg.cholesky(covariance(X, X))
    f = z @ lower.T
    log_joint = log_prob(f).sum(1) - 0.5 * (z**2).sum(1) - 1.5 * np.log(2.0 * np.pi)
    weight = np.exp(log_joint) * (grid[1] - grid[0]) ** 3
    evidence = weight.sum()
    weight /= evidence
    mean = weight @ f
    gain = np.linalg.solve(covariance(X, X), covariance(X, X_NEW))
    left = VARIANCE - np.sum(gain * covariance(X, X_NEW), axis=0)
    centre = f @ gain
    return {
        "evidence": np.log(evidence),
        "mean": mean,
        "variance": weight @ (f - mean) ** 2,
        "new_mean": weight @ centre,
        "new_variance": left + weight @ (centre - weight @ centre) ** 2,
        "probability": weight @ predicted(centre, left),
    }


@cache
def probit_truth() -> dict[str, np.ndarray]:
    return by_quadrature(lambda f: log_ndtr(Y * f), lambda m, v: ndtr(m / np.sqrt(1.0 + v)))


@pytest.mark.campaign
@pytest.mark.parametrize(
    "sites",
    [pytest.param(None, id="guided by EP"), pytest.param(PRIOR, id="guided by the prior")],
)
def test_three_points(sites):
    """Any guide gives the same answer."""
    truth, probit = probit_truth(), model(likelihoods.Probit())
    draws = reference.sample(probit, X, Y, X_NEW, np.ones(2), sites=sites, **EFFORT)
    assert draws.rhat.max() < 1.01
    assert draws.last.shape == (64, 3)
    for name, most in {
        "mean": 0.05,
        "variance": 0.2,
        "new_mean": 0.05,
        "new_variance": 0.3,
        "probability": 2e-3,
    }.items():
        assert close(getattr(draws, name), truth[name], most), name
    evidence = reference.log_evidence(probit, X, Y, sites=sites, temperatures=300)
    assert abs(evidence.value - truth["evidence"]) < 4.5 * evidence.standard_error < 0.2


def test_gaussian_noise_in_closed_form():
    """Posterior, predictive density and evidence of regression."""
    noise = 0.25 * np.eye(3)
    k, y = covariance(X, X), np.array([0.3, -1.0, 2.0])
    gain = np.linalg.solve(k + noise, np.concatenate([k, covariance(X, X_NEW)], axis=1))
    mean = gain.T @ y
    spread = VARIANCE - np.sum(gain * np.concatenate([k, covariance(X, X_NEW)], axis=1), axis=0)
    density = np.exp(-0.5 * (1.0 - mean[3:]) ** 2 / (spread[3:] + 0.25)) / np.sqrt(2.0 * np.pi * (spread[3:] + 0.25))

    gaussian = model(likelihoods.Gaussian(0.5))
    draws = reference.sample(gaussian, X, y, X_NEW, np.ones(2), sites=PRIOR, **EFFORT)
    assert close(draws.mean, mean[:3], 0.02)
    assert close(draws.variance, spread[:3], 0.01)
    assert close(draws.new_mean, mean[3:], 0.05)
    assert close(draws.new_variance, spread[3:], 0.2)
    assert close(draws.probability, density, 2e-3)
    evidence = reference.log_evidence(gaussian, X, y, sites=PRIOR, temperatures=300)
    truth = multivariate_normal(np.zeros(3), k + noise).logpdf(y)
    assert abs(evidence.value - truth) < 4.5 * evidence.standard_error < 0.3


@pytest.mark.campaign
def test_three_points_of_robust_regression():
    """A likelihood that is not log-concave, its predictive density by quadrature."""
    y, likelihood = np.array([3.0, -3.0, 3.0]), likelihoods.StudentT(3.0, 0.5)
    nodes, weights = np.polynomial.hermite_e.hermegauss(199)

    def predicted(m, v):
        f = m[..., None] + np.sqrt(v)[:, None] * nodes
        return t.pdf(1.0, 3.0, f, 0.5) @ weights / np.sqrt(2.0 * np.pi)

    truth = by_quadrature(lambda f: t.logpdf(y, 3.0, f, 0.5), lambda m, v: np.zeros(m.shape))
    rough = by_quadrature_of_some(predicted, y)
    draws = reference.sample(model(likelihood), X, y, X_NEW, np.ones(2), chains=128, draws=3000)
    for name in ("mean", "variance", "new_mean", "new_variance"):
        assert close(getattr(draws, name), truth[name], 0.3), name
    assert close(draws.probability, rough, 2e-3)


def by_quadrature_of_some(predicted, y) -> np.ndarray:
    """E[predicted] on a coarse grid in all three directions: predicted is smooth, but dear."""
    grid = np.linspace(-6.0, 6.0, 61)
    z = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), axis=-1).reshape(-1, 3)
    f = z @ np.linalg.cholesky(covariance(X, X)).T
    weight = np.exp(t.logpdf(y, 3.0, f, 0.5).sum(1) - 0.5 * (z**2).sum(1))
    kept = weight > 1e-9 * weight.max()
    gain = np.linalg.solve(covariance(X, X), covariance(X, X_NEW))
    left = VARIANCE - np.sum(gain * covariance(X, X_NEW), axis=0)
    return weight[kept] @ predicted(f[kept] @ gain, left) / weight[kept].sum()


@pytest.mark.campaign
def test_two_samplers_agree():
    """Elliptical slice sampling and the no-U-turn sampler, on eight points of overlapping classes."""
    from reference.nuts import nuts  # blackjax takes long to import

    x, y = np.linspace(0.0, 4.0, 8)[:, None], np.array([1.0, 1, -1, 1, 1, -1, -1, -1])
    probit = model(likelihoods.Probit())
    draws = reference.sample(probit, x, y, **EFFORT)
    other = nuts(probit, x, y, chains=32, draws=1000, sites=Natural(np.zeros(8), np.zeros(8)))
    first, second = other.mean(1), (other**2).mean(1)
    mean, spread = first.mean(0), variance(first, second)
    error = np.hypot(first.std(0, ddof=1) / np.sqrt(32), draws.mean.standard_error)
    assert (np.abs(mean - draws.mean.value) < 4.5 * error).all()
    error = np.hypot(spread.standard_error, draws.variance.standard_error)
    assert (np.abs(spread.value - draws.variance.value) < 4.5 * error).all()


def halves(draws: np.ndarray) -> Halves:
    """Chains × draws of one quantity as its halves."""
    parts = np.stack(np.split(draws, 2, axis=1))[..., None]
    return Halves(parts.mean(2), (parts**2).mean(2), parts.shape[2])


def test_rhat_tells_chains_that_agree_from_chains_that_do_not():
    noise = np.random.default_rng(0).standard_normal((8, 1000))
    assert split_rhat(halves(noise))[0] < 1.005
    assert split_rhat(halves(noise + 0.5 * np.eye(8)[0][:, None]))[0] > 1.01  # one chain elsewhere
    assert split_rhat(halves(noise + np.linspace(0.0, 1.0, 1000)))[0] > 1.02  # all drift together
    wide = noise * np.where(np.arange(8) == 0, 3.0, 1.0)[:, None]  # one chain wider: seen in the squares
    assert split_rhat(halves(wide))[0] < 1.005
    assert split_rhat(halves(wide**2))[0] > 1.05


def test_rhat_by_its_definition():
    """From the draws themselves, by the book."""
    draws = np.random.default_rng(1).standard_normal((6, 40)).cumsum(1)
    split = np.concatenate(np.split(draws, 2, axis=1))
    n = split.shape[1]
    within, between = split.var(1, ddof=1).mean(), n * split.mean(1).var(ddof=1)
    assert split_rhat(halves(draws))[0] == pytest.approx(np.sqrt(((n - 1) / n * within + between / n) / within))


@pytest.mark.campaign
def test_chains_that_disagree_are_not_passed_over():
    with pytest.warns(reference.ChainsDisagree, match="R-hat is"):
        reference.sample(model(likelihoods.Probit()), X, Y, X_NEW, np.ones(2), chains=64, draws=4, warmup=0, thin=1)


def test_too_few_chains():
    with pytest.raises(ValueError, match="at least 4"):
        reference.sample(model(likelihoods.Probit()), X, Y, chains=2)
