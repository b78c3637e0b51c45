"""Gradients of every objective against central differences of the objective at its re-converged fixed point."""

import numpy as np
import pytest

from quantprop import EP, QP, VB, Laplace, Model, Parameter, PowerEP, kernels, likelihoods, means
from quantprop.core.parameters import packed
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective

N = 24
RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, size=(N, 2))
F = np.sin(2.0 * X[:, 0])
NOISE = RNG.normal(size=(3, N))
DATA = {
    "probit": (likelihoods.Probit(), np.where(F + 0.3 * NOISE[0] > 0, 1.0, -1.0)),
    "poisson": (likelihoods.Poisson(), np.round(np.exp(F + 0.3 * NOISE[1]))),
    "student-t": (likelihoods.StudentT(4.0, 0.3), F + 0.2 * NOISE[2]),
}
TIMES = np.exp(F + 0.3 * NOISE[2])
COUNTS = np.where(NOISE[0] > 0.7, 0.0, np.round(np.exp(1.0 + F + 0.3 * NOISE[1])))
MORE = {  # with numbers of their own
    "weibull": (likelihoods.Weibull(0.4), np.column_stack([TIMES, np.where(NOISE[1] > 0.5, np.inf, TIMES)])),
    "log-logistic": (likelihoods.LogLogistic(0.3), np.column_stack([np.where(NOISE[1] > 0.5, 0.0, TIMES), TIMES])),
    "zero-inflated-poisson": (likelihoods.ZeroInflatedPoisson(0.2), COUNTS),
    "zero-inflated-negative-binomial": (likelihoods.ZeroInflatedNegativeBinomial(0.2, 0.4), COUNTS),
    "warped": (likelihoods.Warped(0.3, [0.5, 0.3], [0.5, 1.0], [-0.4, 0.8]), F + 0.2 * NOISE[2]),
}
METHODS = {"ep": EP(), "qp": QP(), "power-ep": PowerEP(0.5), "vb": VB(), "laplace": Laplace()}
MATRIX = [
    (method, objective, likelihood)
    for likelihood in DATA
    for method in METHODS
    for objective in ("evidence", "loo")
] + [("vb", "elbo", "probit")] + [
    (method, objective, likelihood)
    for likelihood in MORE
    for method in ("qp", "vb", "laplace")
    for objective in ("evidence", "loo")
]  # fmt: skip
BY_DEFAULT = [
    ("qp", "evidence", "probit"),
    ("laplace", "loo", "student-t"),
]
BESIDE = [("laplace", "evidence", "poisson"), ("qp", "loo", "student-t"), ("laplace", "evidence", "weibull")]


def landscape(method, objective, likelihood, exact=True):
    """ARD kernel, learned mean, and whatever the likelihood has: 4 to 11 numbers in all."""
    kind, y = (DATA | MORE)[likelihood]
    model = Model(kernels.SquaredExponential(1.5, np.array([0.8, 1.3])), kind, mean=Parameter(0.2))
    task = prepare(model, X, y, method, None, None, None)
    return Landscape(model, task, method, as_objective(objective), exact, tol=1e-12, max_sweeps=400)


def relative_error(surface, step):
    theta = packed(surface.parts)
    at = surface.from_cold(theta)
    assert at.reason == "converged"
    along = step * np.eye(len(theta))
    numeric = np.array(
        [(surface.from_cold(theta + e).value - surface.from_cold(theta - e).value) / (2 * step) for e in along]
    )
    return np.linalg.norm(at.gradient - numeric) / np.linalg.norm(numeric)


@pytest.mark.parametrize("case", BY_DEFAULT, ids="-".join)
def test_total_derivatives_along_one_direction(case):
    """That changes all numbers."""
    surface = landscape(METHODS[case[0]], *case[1:])
    theta = packed(surface.parts)
    at, way = surface.from_cold(theta), np.linspace(0.7, -0.5, len(theta))
    assert at.reason == "converged"
    up, down = (surface.from_cold(theta + step * way).value for step in (1e-4, -1e-4))
    assert at.gradient @ way == pytest.approx((up - down) / 2e-4, abs=1e-5 * np.linalg.norm(at.gradient))


@pytest.mark.campaign
@pytest.mark.parametrize("case", MATRIX, ids="-".join)
def test_total_derivative_of_every_objective(case):
    assert relative_error(landscape(METHODS[case[0]], *case[1:]), 1e-4) <= 1e-5


@pytest.mark.campaign
@pytest.mark.parametrize("likelihood", DATA)
@pytest.mark.parametrize("objective", ["evidence", "loo"])
@pytest.mark.parametrize("p", [1.5, 3.0])
def test_total_derivative_with_other_wasserstein_distances(p, objective, likelihood):
    assert relative_error(landscape(QP(p), objective, likelihood), 1e-3) <= 1e-3


@pytest.mark.campaign
@pytest.mark.parametrize("likelihood", ["probit", "student-t"])
def test_sites_held_fixed_give_another_gradient_for_qp(likelihood):
    """The paper's gradient: the one that evidence would have if sites did not move with the hyperparameters."""
    exact, partial = (landscape(QP(), "loo", likelihood, exact) for exact in (True, False))
    theta = packed(exact.parts)
    difference = exact.from_cold(theta).gradient - partial.from_cold(theta).gradient
    assert np.linalg.norm(difference) > 1e-3 * np.linalg.norm(exact.from_cold(theta).gradient)


def test_derivative_in_a_linear_mean_and_weights():
    model = Model(kernels.Matern32(1.5, 0.8), likelihoods.Probit(), mean=means.Linear(np.array([0.3, -0.2]), 0.1))
    weights = np.where(np.arange(N) % 3 == 0, 2.0, 1.0)
    task = prepare(model, X, DATA["probit"][1], QP(), weights, None, None)
    assert relative_error(Landscape(model, task, QP(), as_objective("evidence"), True, 1e-12, 400), 1e-4) <= 1e-5


@pytest.mark.parametrize(
    "case",
    [
        *(pytest.param(case, id="-".join(case)) for case in BY_DEFAULT),
        *(pytest.param(case, marks=pytest.mark.campaign, id="-".join(case)) for case in BESIDE),
    ],
)
def test_weights_are_equal_rows_on_the_way_of_learning_too(case):
    """Value and gradient to rounding, however loose inference is, though padding and the order of rows differ."""
    method, (kind, y) = METHODS[case[0]], (DATA | MORE)[case[2]]
    model = Model(kernels.SquaredExponential(1.5, np.array([0.8, 1.3])), kind, mean=Parameter(0.2))
    weights = np.array([1, 2, 4, 0, 3, 1, 1, 5, 0, 2, 1, 3])
    rows = np.repeat(np.arange(12), weights)[::-1]
    surfaces = [
        Landscape(model, prepare(model, X[take], y[take], method, given, None, None), method, as_objective(case[1]))
        for take, given in ((np.arange(12), weights), (rows, None))
    ]
    theta = packed(surfaces[0].parts)
    for tol in (1e-1, 1e-2, 1e-4, 1e-8):
        weighted, repeated = (surface._from(theta, surface.cold, tol) for surface in surfaces)
        assert int(weighted.out.sweeps) == int(repeated.out.sweeps)
        assert weighted.value == pytest.approx(repeated.value, rel=1e-11)
        np.testing.assert_allclose(weighted.gradient, repeated.gradient, rtol=1e-9, atol=1e-10)


def test_a_prior_density_adds_its_own_slope():
    kind, y = DATA["probit"]
    lengthscale = Parameter(0.8, bounds=(1e-3, 1e3), prior=lambda v: -0.5 * v**2)
    models = [Model(kernels.SquaredExponential(1.5, ell), kind) for ell in (0.8, lengthscale)]
    points = [
        Landscape(m, prepare(m, X, y, QP(), None, None, None), QP(), as_objective("evidence")).from_cold(
            np.log([1.5, 0.8])
        )
        for m in models
    ]
    assert points[1].value - points[0].value == pytest.approx(-0.32, abs=1e-12)
    np.testing.assert_allclose(points[1].gradient - points[0].gradient, [0.0, -0.64], atol=1e-9)
