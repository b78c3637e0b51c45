"""Locality (the paper's Theorem 3): what holds is locality under the nested coupling, and only that.

Cavity: f₁ ~ N(m, v) and f₂ = a f₁ + b + c ε. The likelihood tilts f₁ only. Step (b) of the proof in the paper's
appendix couples f₁ with f₁' first and then, for each pair of values, the two conditionals by themselves. Among

    f₁' ~ N(m', s'²), f₂' = a' f₁' + b' + c' ε'    (every bivariate Gaussian has this form)

that nested distance is E[(f₁ − f₁')² + (a f₁ + b − a' f₁' − b')²] + (c − c')², minimised over the couplings of f₁
with f₁'. Only E[f₁ f₁'] depends on the coupling, with the factor −2(1 + a a'): the quantile coupling is best where
that is negative, its mirror image elsewhere. With z ~ N(0, 1), f₁ = F⁻¹(Φ(z)) and f₁' = m' + s' z, s' > 0 gives the
one and s' < 0 the other: the distance is one sum of squares over the real parameters (m', s', a', b', c').
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from local_rule import renewals
from scipy.optimize import least_squares, linear_sum_assignment
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp, owens_t
from scipy.stats import norm, qmc

from quantprop import likelihoods

STEP = 0.02  # of the trapezoidal rule: these integrands decay, and are analytic


class Quantiles(NamedTuple):
    """Points f of a tilted density, their normal scores z = Φ⁻¹(F(f)) and weights: E[g(f)] = Σ weight g(f)."""

    f: np.ndarray
    z: np.ndarray
    weight: np.ndarray


def truncated(m: float, sd: float) -> Quantiles:
    """N(m, sd²) on f > 0 (a half-normal at m = 0) at equal steps of z: its upper tails are in proportion."""
    z = np.arange(-10.0, 10.0, STEP)
    return Quantiles(m - sd * ndtri_exp(log_ndtr(-z) + log_ndtr(m / sd)), z, STEP * norm.pdf(z))


def probit(m: float, sd: float) -> Quantiles:
    """Φ(f) N(f | m, sd²)/Z at equal steps of f; F by Owen's function (the paper's appendix C.1)."""
    h = np.arange(-10.0, 10.0, STEP) + STEP / 3  # h = 0 is a special case of the formula
    k, rho = m / np.hypot(1.0, sd), sd / np.hypot(1.0, sd)
    f, root = m + sd * h, np.sqrt(1.0 - rho**2)
    by_h, by_k = owens_t(h, (k + rho * h) / (h * root)), owens_t(k, (h + rho * k) / (k * root))
    cdf = (ndtr(h) / 2 + ndtr(k) / 2 - by_h - by_k - 0.5 * (h * k < 0)) / ndtr(k)
    return Quantiles(f, ndtri(np.clip(cdf, 1e-15, 1 - 1e-15)), STEP * norm.pdf(h) * ndtr(f) / ndtr(k))


TILTS = {
    "half-normal": (likelihoods.Heaviside(), truncated, 0.0, 1.0),
    "truncated normal": (likelihoods.Heaviside(), truncated, -0.8, 1.5),
    "probit": (likelihoods.Probit(), probit, 0.3, 2.0),
    "probit, far": (likelihoods.Probit(), probit, -2.0, 3.0),
}
CONDITIONALS = [(1.0, 0.0, 1.0), (-0.8, 2.0, 0.3), (0.25, -1.0, 2.0)]  # slope a, offset b, deviation c


@pytest.mark.parametrize("tilt", TILTS)
def test_the_nested_distance_keeps_the_conditional_and_projects_the_marginal(tilt):
    likelihood, quantiles, m, sd = TILTS[tilt]
    out = renewals(likelihood, 1.0, [m], [sd**2])
    mean, variance, least = m + out.kl.shift[0], sd**2 * out.kl.ratio[0], sd**2 * out.w2.ratio[0]
    f, z, weight = quantiles(m, sd)
    root = np.sqrt(weight)
    assert weight @ f == pytest.approx(mean, abs=1e-10)
    assert weight @ (f - mean) ** 2 == pytest.approx(variance, rel=1e-10)
    rng = np.random.default_rng(0)
    for a, b, c in CONDITIONALS:

        def residuals(p: np.ndarray, a=a, b=b, c=c) -> np.ndarray:
            to = p[0] + p[1] * z
            return np.concatenate([root * (f - to), root * (a * f + b - p[2] * to - p[3]), [c - p[4]]])

        expected = np.array([mean, np.sqrt(least), a, b, c])
        for _ in range(4):
            start = expected + rng.normal(0.0, 1.0, 5)
            start[1] = abs(start[1])
            found = least_squares(residuals, start, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15)
            assert found.x == pytest.approx(expected, abs=1e-8)
            # The least distance is the paper's (1 + a²)(σ² − σ*²).
            assert 2.0 * found.cost == pytest.approx((1.0 + a * a) * (variance - least), rel=1e-7)


def nearest_gaussian(x: np.ndarray, g: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Covariance of the Gaussian nearest to the points x in W2, from standard normal points g and a first root.

    Two steps in turn, neither of which can increase the distance: the best assignment of the points x to the points
    mean + root g (exact transport), and the best affine map of g for that assignment (least squares).
    """
    mean, costs = x.mean(axis=0), []
    while len(costs) < 3 or costs[-2] - costs[-1] > 1e-6 * costs[-1]:
        cost = np.sum((x[:, None] - (mean + g @ root.T)) ** 2, axis=2)
        rows, columns = linear_sum_assignment(cost)
        costs.append(cost[rows, columns].mean())
        affine = np.linalg.lstsq(np.column_stack([np.ones(len(x)), g[columns]]), x, rcond=None)[0]
        mean, root = affine[0], affine[1:].T
    return root @ root.T, costs


@pytest.mark.campaign
def test_the_unrestricted_minimiser_has_another_conditional():
    """Exact transport on 1,024 points: slope 1.07 where locality says 1; a Gaussian tilt is the control."""
    u, g = qmc.Sobol(2, seed=1).random(1024), ndtri(qmc.Sobol(2, seed=101).random(1024))
    half_normal, gaussian = ndtri(0.5 + 0.5 * u[:, 0]), 0.8 + 0.6 * ndtri(u[:, 0])

    def slope_and_costs(f1: np.ndarray, slope: float) -> tuple[float, list[float]]:
        x = np.column_stack([f1, f1 + ndtri(u[:, 1])])  # f₂ = f₁ + ε: the cavity's slope is 1
        covariance, costs = nearest_gaussian(x, g, np.array([[f1.std(), 0.0], [slope * f1.std(), 1.0]]))
        return covariance[0, 1] / covariance[0, 0], costs

    control, _ = slope_and_costs(gaussian, 1.0)
    assert control == pytest.approx(1.0, abs=0.012)
    for start in (1.0, 1.3):  # at the nested solution, and from the other side
        slope, costs = slope_and_costs(half_normal, start)
        assert slope == pytest.approx(1.072, abs=0.02)
        assert costs[-1] < costs[0]


def test_the_nested_map_is_not_a_gradient():
    """Why: an optimal map's Jacobian is symmetric; that of the nested map is [[g', 0], [a(g' − 1), 1]]."""
    f, z, _ = truncated(0.0, 1.0)
    sd = np.sqrt(renewals(likelihoods.Heaviside(), 1.0, [0.0], [1.0]).w2.ratio[0])
    bulk = np.abs(z[1:]) < 1.5
    g_prime = sd * STEP / np.diff(f)[bulk]  # of the quantile map from f₁ to f₁' = m' + s' z
    # The off-diagonal entry at a = 1 is g' − 1, which is 0 nowhere but in passing.
    assert g_prime.max() > 1.2
    assert g_prime.min() < 0.9
