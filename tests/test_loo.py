"""Leave-one-out densities from the cavities against brute force: inference without each point."""

import jax
import numpy as np
import pytest

from quantprop import EP, QP, Model, datasets, fit, infer, kernels, likelihoods
from quantprop.core.parameters import packed
from quantprop.inference.leave_one_out import loo_at, loo_of
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Evidence


def standardised(name):
    data = datasets.load(name, "paper")
    scale = data.X.std(0)
    return (data.X - data.X.mean(0)) / np.where(scale > 0, scale, 1.0), data.y


def differences(name, variance, lengthscale, method, rows):
    """log p(y_i) from the cavity minus that from the posterior without row i."""
    X, y = standardised(name)
    model = Model(kernels.SquaredExponential(variance, lengthscale), likelihoods.Probit())
    whole = infer(model, X, y, method=method, tol=1e-8)
    gaps = []
    for i in rows:
        weights = np.ones(len(y))
        weights[i] = 0.0
        without = infer(model, X, y, method=method, tol=1e-8, weights=weights, sites=whole.sites)
        gaps.append(whole.loo[i] - without.predict_y(X[i : i + 1]).log_prob(y[i])[0])
    return np.array(gaps)


def test_gaussian_leave_one_out_is_exact():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 1))
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=20)
    model = Model(kernels.SquaredExponential(1.2, 0.8), likelihoods.Gaussian(0.3))
    k = 1.2 * np.exp(-0.5 * ((X - X.T) / 0.8) ** 2) + 0.09 * np.eye(20)
    precision = np.linalg.inv(k)  # Rasmussen and Williams, equations 5.10 to 5.12
    variance = 1.0 / np.diag(precision)
    exact = -0.5 * ((precision @ y) ** 2 * variance + np.log(2.0 * np.pi * variance))
    np.testing.assert_allclose(infer(model, X, y, method="ep", tol=1e-10).loo, exact, atol=1e-8)


@pytest.mark.campaign
@pytest.mark.parametrize("method", ["ep", "qp"])
@pytest.mark.parametrize(("name", "variance", "lengthscale"), [("sonar", 31.6, 6.3), ("wine1", 1e4, 10.0)])
def test_probit_leave_one_out_against_brute_force(name, variance, lengthscale, method):
    _, y = standardised(name)
    assert np.mean(np.abs(differences(name, variance, lengthscale, method, range(len(y))))) <= 0.01


CASES = {
    "probit": (likelihoods.Probit(), lambda rng, f: np.where(f + rng.normal(size=len(f)) > 0, 1.0, -1.0)),
    "logit": (likelihoods.Logit(), lambda rng, f: np.where(f + rng.logistic(size=len(f)) > 0, 1.0, -1.0)),
    "heaviside": (likelihoods.Heaviside(0.1), lambda rng, f: np.where(f > 0, 1.0, -1.0)),
    "poisson": (likelihoods.Poisson(), lambda rng, f: rng.poisson(np.exp(f)).astype(float)),
    "student-t": (likelihoods.StudentT(), lambda rng, f: f + 0.3 * rng.standard_t(3, size=len(f))),
    "gaussian": (likelihoods.Gaussian(0.3), lambda rng, f: f + 0.3 * rng.normal(size=len(f))),
}


DEFAULT = {("probit", "EP"), ("heaviside", "EP"), ("gaussian", "EP"), ("student-t", "EP"), ("probit", "QP")}


@pytest.mark.parametrize(
    ("case", "method"),
    [
        pytest.param(case, method(), marks=[pytest.mark.campaign] * ((case, method.__name__) not in DEFAULT))
        for case in CASES
        for method in (EP, QP)
    ],
)
def test_what_the_rule_has_integrated_is_the_density_of_the_row_left_out(case, method):
    """log Z_i taken out of a datum's value, against an integral over its cavity; rows count 0, 1 and 3 times."""
    likelihood, draw = CASES[case]
    rng = np.random.default_rng(3)
    X = np.sort(rng.uniform(-3.0, 3.0, 30))[:, None]
    y, weights = draw(rng, np.sin(2.0 * X[:, 0])), np.tile([1.0, 3.0, 0.0, 1.0, 1.0], 6)
    model = Model(kernels.SquaredExponential(1.5, 0.8), likelihood)
    task = prepare(model, X, y, method, weights, None, None)
    surface = Landscape(model, task, method, Evidence())
    point = surface.from_cold(packed(surface.parts))
    assert point.usable
    with jax.enable_x64(True):
        apart = loo_of(None, point.likelihood, task.data, task.weight, point.out.at)
    found = loo_at(method, point.likelihood, task, point.out.at)
    np.testing.assert_allclose(np.asarray(found)[:30], np.asarray(apart)[:30], rtol=0, atol=1e-9)


@pytest.mark.campaign
@pytest.mark.parametrize("learned", [True, False])
def test_an_outlier_that_counts_for_nothing_has_a_density(learned):
    """Few nodes do not resolve it, and no sweep waits for it: its density is that of a model without its row."""
    rng = np.random.default_rng(0)
    X = np.linspace(-3.0, 3.0, 20)[:, None]
    y, weights = np.exp(np.sin(2.0 * X[:, 0])) * rng.gamma(2.0, size=20), np.ones(20)
    y[7], weights[7] = 1e12, 0.0
    model = Model(kernels.SquaredExponential(1.0, 0.8), likelihoods.Gamma())
    others = np.arange(20) != 7
    whole = fit(model, X, y, "ep", weights=weights).solution if learned else infer(model, X, y, "ep", weights=weights)
    without = infer(whole.model, X[others], y[others], "ep")
    expected = without.predict_y(X[7:8]).log_prob(y[7:8])[0]
    assert whole.converged
    np.testing.assert_allclose(whole.loo[7], expected, rtol=1e-6)


@pytest.mark.parametrize("size", [1e30, 1e100, 1e149])
@pytest.mark.parametrize(
    ("likelihood", "method"),
    [(likelihoods.DoubleExponential(), "vb"), (likelihoods.StudentT(), "laplace"), (likelihoods.Gaussian(), "vb")],
)
def test_converged_means_that_all_results_are_finite(likelihood, method, size):
    """Else the status says so, and the remedy that it names works."""
    x = np.linspace(0.0, 6.0, 20)[:, None]
    y = np.sin(x[:, 0]) + 0.1 * np.cos(7.0 * x[:, 0])
    model = Model(kernels.SquaredExponential(), likelihood)
    solution = infer(model, x, size * y, method)
    finite = np.isfinite([*solution.loo, solution.log_evidence, *solution.marginals.variance]).all()
    assert finite == solution.converged
    assert finite or (solution.status.reason == "not-finite" and "rescale y" in str(solution.status))
    assert infer(model, x, y, method).converged
