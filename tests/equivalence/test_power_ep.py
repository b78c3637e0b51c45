"""Power EP joins EP (power 1) to variational Bayes (power towards 0), and its evidence is stationary in the sites.

EP on 1/a copies of every datum, each with the likelihood p(y | f)^a, is power EP of power a. Stated so, the power is a
number in the data and not part of the program: one compiled sweep serves all powers.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax
import mpmath
import numpy as np
import pytest

from quantprop import EP, VB, Model, PowerEP, infer, kernels, likelihoods
from quantprop.core.gaussian import Natural, Normal
from quantprop.inference.engine import Evaluation, InferenceProblem, swept
from quantprop.likelihoods import Datum, Likelihood
from quantprop.likelihoods.derived import Remainder, Tempered
from quantprop.methods.base import Weight
from quantprop.priors import DensePrior

N = 12
RNG = np.random.default_rng(4)
X = RNG.uniform(-2.0, 2.0, (N, 1))
F = 1.2 * np.sin(2.0 * X[:, 0])
ONES = np.ones(N)
TIGHT = {"tol": 1e-12, "max_sweeps": 400}
SMALL_POWERS = (1e-2, 1e-3, 1e-4)


class Case(NamedTuple):
    likelihood: Likelihood
    mean: float
    y: np.ndarray

    @property
    def model(self) -> Model:
        return Model(kernels.SquaredExponential(variance=1.5, lengthscale=0.9), self.likelihood, self.mean)


CASES = {
    "probit": Case(likelihoods.Probit(), 0.0, np.where(RNG.uniform(size=N) < 0.5 + F / 3.0, 1.0, -1.0)),
    "poisson": Case(likelihoods.Poisson("exp"), 0.5, RNG.poisson(np.exp(0.5 + F)).astype(float)),
    "student-t": Case(likelihoods.StudentT(4.0, 0.5), 0.0, F + 0.5 * RNG.standard_t(4.0, N)),
    "gamma": Case(likelihoods.Gamma(2.0), 0.0, RNG.gamma(2.0, np.exp(F) / 2.0)),
}
each_case = pytest.mark.parametrize(
    "name", ["probit", *(pytest.param(name, marks=pytest.mark.campaign) for name in list(CASES)[1:])]
)
sweep = jax.jit(lambda problem, sites: swept(problem, sites)[0])
moments = jax.jit(lambda likelihood, datum, cavity: likelihood.moments(datum, cavity))


def problem(name: str, power: float) -> InferenceProblem:
    """EP on 1/power copies of each datum, as a fixed point on the plain kernel matrix."""
    case = CASES[name]
    covariance = 1.5 * np.exp(-0.5 * (X - X.T) ** 2 / 0.9**2)
    prior = DensePrior(np.full(N, case.mean), covariance)
    return InferenceProblem(
        case.likelihood, EP(), prior, Datum(case.y, ONES, ONES), Weight(ONES, ONES / power, power * ONES)
    )


@cache
def fixed_point(name: str, power: float) -> Evaluation:
    """Plain full steps until the sites converge."""
    with jax.enable_x64(True):
        at = sweep(problem(name, power), Natural(np.zeros(N), 0.1 * ONES))
        for _ in range(200):
            if at.residual <= 1e-12 * power:  # of one of the 1/power copies
                return jax.tree.map(np.asarray, at)
            at = sweep(problem(name, power), jax.tree.map(np.add, at.sites, at.change))
    raise AssertionError(f"{name}, power {power}: residual {at.residual}")


@cache
def solution(name: str, method):
    case = CASES[name]
    solution = infer(case.model, X, case.y, method, **TIGHT)
    assert solution.converged, str(solution.status)
    return solution


def same(at: Evaluation, solved) -> None:
    for a, b in (
        (at.sites.nu, solved.sites.nu),
        (at.sites.tau, solved.sites.tau),
        (at.marginals.mean, solved.marginals.mean),
        (at.marginals.variance, solved.marginals.variance),
        (at.evidence, solved.log_evidence),
    ):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


@pytest.mark.campaign
@each_case
def test_power_one_is_ep(name):
    assert PowerEP(1.0) == EP()
    same(fixed_point(name, 1.0), solution(name, EP()))


@each_case
def test_power_ep_is_ep_on_copies_of_a_root_of_the_likelihood(name):
    same(fixed_point(name, 1e-2), solution(name, PowerEP(1e-2)))


def differences(name: str, power: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Power EP − VB: marginal means, marginal variances, evidence."""
    at, vb = fixed_point(name, power), solution(name, VB())
    mean, variance = at.marginals.mean - vb.marginals.mean, at.marginals.variance - vb.marginals.variance
    return mean, variance, np.array([at.evidence - vb.log_evidence])


@each_case
def test_the_difference_from_vb_is_linear_in_the_power(name):
    for power in SMALL_POWERS[:-1]:
        for large, small in zip(differences(name, power), differences(name, power / 10.0), strict=True):
            assert np.linalg.norm(large) / np.linalg.norm(small) == pytest.approx(10.0, rel=0.05)
            assert np.linalg.norm(large - 10.0 * small) <= 0.05 * np.linalg.norm(large)


def derivatives(stated: InferenceProblem, at: Evaluation, step: float = 1e-2) -> np.ndarray:
    """∂ evidence/∂(p, q) of every site, δν = p/σ + μ q/σ² and δτ = q/σ², by a central difference of sixth order."""
    mean, variance = at.marginals.mean, at.marginals.variance
    directions = [Natural(row / np.sqrt(variance), 0.0 * row) for row in np.eye(N)]
    directions += [Natural(row * mean / variance, row / variance) for row in np.eye(N)]
    found = []
    with jax.enable_x64(True):
        for way in directions:
            off = [jax.tree.map(lambda s, d, k=k: s + k * step * d, at.sites, way) for k in (-3, -2, -1, 1, 2, 3)]
            values = np.array([sweep(stated, sites).evidence for sites in off])
            found.append(values @ [-1.0, 9.0, -45.0, 45.0, -9.0, 1.0] / (60.0 * step))
    return np.array(found)


@each_case
@pytest.mark.parametrize("power", [0.5, *(pytest.param(one, marks=pytest.mark.campaign) for one in (1.0, 0.1, 0.01))])
def test_the_evidence_is_stationary_in_the_sites(name, power):
    stated, at = problem(name, power), fixed_point(name, power)
    assert np.abs(derivatives(stated, at)).max() <= 1e-8
    with jax.enable_x64(True):
        away = jax.tree.map(np.asarray, sweep(stated, Natural(at.sites.nu + 0.1, at.sites.tau)))
    assert np.abs(derivatives(stated, away)).max() > 1e-4


# --- a square link: |f|^(2 y a) has a cusp at 0, which the fixed points above have not -------------------------------


def weighted_moments(m: float, v: float, s: float) -> tuple[float, float]:
    """shift = E[f] − m and shrink = 1 − Var[f]/v of the density ∝ |f|^s N(f | m, v), through Kummer's function."""
    mpmath.mp.dps = 40
    m, v, s = mpmath.mpf(m), mpmath.mpf(v), mpmath.mpf(s)

    def absolute(s, m):
        return (2 * v) ** (s / 2) * mpmath.gamma((1 + s) / 2) * mpmath.hyp1f1(-s / 2, 0.5, -m * m / (2 * v))

    shift = v * mpmath.diff(lambda m: mpmath.log(absolute(s, m)), m)
    second = absolute(s + 2, m) / absolute(s, m)
    return float(shift), float(1 - (second - (m + shift) ** 2) / v)


@pytest.mark.xfail(reason="the quadrature does not resolve a cusp or a logarithm at f = 0", strict=True)
@pytest.mark.parametrize("power", [0.5, *(pytest.param(one, marks=pytest.mark.campaign) for one in (0.1, 0.01))])
def test_a_root_of_a_square_link_count_has_the_moments_of_kummers_function(power):
    y, m, v = 1.0, 1.0, 0.3
    rest = Tempered(Remainder(likelihoods.Poisson("square")), np.array(power))
    with jax.enable_x64(True):
        got = moments(rest, Datum(np.array(y), np.array(1.0), np.array(1.0)), Normal(np.array(m), np.array(v)))
    np.testing.assert_allclose([got.shift, got.shrink], weighted_moments(m, v, 2.0 * y * power), atol=1e-10 * power)
