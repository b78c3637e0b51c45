"""What comes through the sites into QP's gradient: how large it is, and that it is left out only as far as allowed."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.stats import norm

from quantprop import EP, QP, Model, fit, kernels, likelihoods
from quantprop.inference.engine import InferenceProblem
from quantprop.inference.task import prepare
from quantprop.learning.evaluation import PROGRAMS, Found, Precision, evaluated
from quantprop.learning.implicit import Slack, unmatched
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Evidence
from quantprop.methods import Method

N = 130
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 2))
Y = np.where(np.sin(2.0 * X[:, 0]) + X[:, 1] > 0.3 * RNG.logistic(size=N), 1, -1)
MODEL = Model(kernels.SquaredExponential(), likelihoods.Probit())
THETAS = {"ordinary": np.log([1.0, 1.0]), "steep": np.log([30.0, 0.7]), "separating": np.log([2e3, 2.0])}
FARTHEST = np.array([1.0, 4.2])  # that a cavity's log precision moves with the logarithms of variance and lengthscale
NONE, ANY = Slack(0.0, 0.0), Slack(np.inf, 0.0)


def landscape(method: Method, x=X, y=Y, weights=None) -> Landscape:
    return Landscape(MODEL, prepare(MODEL, x, y, method, weights, None, None), method, Evidence(), tol=1e-12)


def found(surface: Landscape, theta: np.ndarray, slack: Slack, tol: float = 1e-12) -> Found:
    """The objective and its gradient, from cold sites."""
    precision = Precision(tol, 200, slack)
    with jax.enable_x64(True):
        return evaluated(surface.question, theta, surface.cold, precision, surface.method, Evidence(), True, PROGRAMS)


def size(surface: Landscape, theta: np.ndarray) -> float:
    """Of what comes through the sites, as learning estimates it."""
    at = found(surface, theta, NONE).out.at
    with jax.enable_x64(True):
        made, likelihood = PROGRAMS.prior(theta, surface.unbounded, surface.inputs)
        problem = InferenceProblem.of(likelihood, surface.method, made, surface.task.data, surface.task.weight)
        return float(unmatched(problem, at))


def cavities(surface: Landscape, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each datum's cavity precision, tilted variance (Rasmussen and Williams, eq. 3.87) and marginal variance."""
    at = found(surface, theta, NONE).out.at
    variance, tau = np.asarray(at.marginals.variance)[:N], np.asarray(at.sites.tau)[:N]
    mean, nu = np.asarray(at.marginals.mean)[:N], np.asarray(at.sites.nu)[:N]
    precision = 1.0 / variance - tau
    spread = 1.0 / precision
    z = Y * (mean / variance - nu) * spread / np.sqrt(1.0 + spread)
    ratio = np.exp(norm.logpdf(z) - norm.logcdf(z))
    return precision, spread - spread**2 * ratio * (z + ratio) / (1.0 + spread), variance


@pytest.mark.parametrize("theta", THETAS.values(), ids=THETAS)
def test_what_comes_through_the_sites_is_what_variances_miss_times_how_cavities_move(theta):
    """dJ/dθ less its value with sites and marginals held is −½ Σ (V_i − v_i) dτ_i/dθ: tilted variance, projected one,
    cavity precision, the last by central differences.
    """
    surface = landscape(QP())
    through = np.asarray(found(surface, theta, NONE).gradient) - np.asarray(found(surface, theta, ANY).gradient)
    precision, tilted, projected = cavities(surface, theta)
    step = 1e-4 * np.eye(2)
    moved = [(cavities(surface, theta + e)[0] - cavities(surface, theta - e)[0]) / 2e-4 for e in step]
    expected = np.array([-0.5 * np.sum((tilted - projected) * by) for by in moved])
    np.testing.assert_allclose(through, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(size(surface, theta), 0.5 * np.sum((tilted - projected) * precision), rtol=1e-6)
    assert (np.abs(through) <= FARTHEST * size(surface, theta)).all()


def test_nothing_is_unmatched_for_ep_and_copies_count_as_often_as_they_stand_for_rows():
    theta, twice = THETAS["steep"], np.r_[np.arange(N), np.arange(40)]
    assert size(landscape(EP()), theta) <= 1e-10
    repeated, weighted = landscape(QP(), X[twice], Y[twice]), landscape(QP(), weights=1.0 + (np.arange(N) < 40))
    np.testing.assert_allclose(size(weighted, theta), size(repeated, theta), rtol=1e-9)


@pytest.mark.parametrize("theta", THETAS.values(), ids=THETAS)
def test_a_gradient_misses_no_more_than_the_slack_allows(theta):
    surface = landscape(QP())
    exact, through = np.asarray(found(surface, theta, NONE, 1e-6).gradient), size(surface, theta)
    for allowed in (1e-3 * through, 0.1 * through, 0.99 * through, 1.01 * through):
        loose = np.asarray(found(surface, theta, Slack(allowed, 0.0), 1e-6).gradient)
        assert (np.abs(loose - exact) <= FARTHEST * allowed).all()
    assert np.abs(loose - exact).max() > 0.1 * through  # the last one has left all of it out


def test_nothing_is_missing_where_inference_is_as_precise_as_asked():
    surface, theta = landscape(QP()), THETAS["steep"]
    exact = found(surface, theta, NONE)
    assert float(exact.out.at.residual) > 0
    granted, refused = (found(surface, theta, Slack(np.inf, tol)).gradient for tol in (0.0, 1e-12))
    np.testing.assert_array_equal(refused, exact.gradient)
    assert np.abs(np.asarray(granted) - np.asarray(exact.gradient)).max() > 0.1 * size(surface, theta)


def test_a_search_that_starts_at_an_optimum_stays_there():
    """Where the slope is flat and all of it could be missing."""
    first = fit(MODEL, X, Y, "qp")
    again = fit(first.model, X, Y, "qp")
    assert first.status.reason == again.status.reason == "converged"
    np.testing.assert_allclose(again.solution.log_evidence, first.solution.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(again.theta, first.theta, atol=1e-4)
    assert again.status.evaluations <= 4
