"""Softmax: Laplace against Rasmussen and Williams' Algorithm 3.3, VB as a bound, gradients, predictions and files."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from quantprop import VB, Inducing, Laplace, Model, fit, infer, kernels, likelihoods, load
from quantprop.core.gaussian import Normal
from quantprop.core.parameters import packed
from quantprop.inference.classes import ClassPredictive, factors_of
from quantprop.inference.task import prepare, settled
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective

LONGER = partial(pytest.param, marks=pytest.mark.campaign)
RNG = np.random.default_rng(5)
X = RNG.uniform(-2, 2, (10, 1))
Y = np.array([0, 2, 1, 0, 1, 2, 2, 0, 1, 0])
NEW = np.array([[0.3], [-1.7]])
EACH = kernels.PerClass((
    kernels.SquaredExponential(2.0, 0.8), kernels.Matern32(1.0, 0.5), kernels.SquaredExponential(0.7, 1.5),
))  # fmt: skip
SOFTMAX = likelihoods.Softmax(3)


def newton(k: np.ndarray, y: np.ndarray, sweeps: int = 100) -> tuple[float, np.ndarray, np.ndarray]:
    """The mode by Newton's method on all C n values, written out: evidence, mode and the sites' precision."""
    c, n = k.shape[:2]
    prior = np.zeros((c, n, c, n))
    prior[np.arange(c), :, np.arange(c), :] = k
    prior, target = prior.reshape(c * n, c * n), (np.arange(c)[:, None] == y).astype(float).ravel()
    f = np.zeros(c * n)
    for _ in range(sweeps):
        pi = softmax(f.reshape(c, n), axis=0)
        w = np.diag(pi.ravel()) - np.einsum("ai,bj,ij->aibj", pi, pi, np.eye(n)).reshape(c * n, c * n)
        b = w @ f + target - pi.ravel()
        f = prior @ (b - np.linalg.solve(np.eye(c * n) + w @ prior, w @ prior @ b))
    log_prob = log_softmax(f.reshape(c, n), axis=0)[y, np.arange(n)].sum()
    size = np.linalg.slogdet(np.eye(c * n) + w @ prior)[1]
    return log_prob - 0.5 * f @ np.linalg.solve(prior, f) - 0.5 * size, f.reshape(c, n), w


def test_laplace_is_algorithm_3_3():
    k = np.stack([np.asarray(kernel.gram(X)) for kernel in EACH.kernels])
    evidence, mode, w = newton(k, Y)
    solution = infer(Model(EACH, SOFTMAX), X, Y, "laplace", tol=1e-11)
    assert solution.converged
    assert solution.log_evidence == pytest.approx(evidence, abs=1e-7)
    found = solution.predict(X)
    np.testing.assert_allclose(found.mean, mode.T, atol=1e-7)
    prior = np.zeros((3, 10, 3, 10))
    prior[np.arange(3), :, np.arange(3), :] = k
    prior = prior.reshape(30, 30)
    covariance = np.linalg.solve(np.eye(30) + prior @ w, prior).reshape(3, 10, 3, 10)
    np.testing.assert_allclose(found.covariance, covariance[:, np.arange(10), :, np.arange(10)], atol=1e-7)


def test_the_bound_is_one_and_its_posterior_is_near_the_truth():
    """Two data of three classes: the evidence by draws of the prior."""
    x, y = np.array([[-0.5], [0.6]]), np.array([0, 2])
    solution = infer(Model(EACH, SOFTMAX), x, y, "vb", tol=1e-10)
    rng = np.random.default_rng(0)
    roots = [np.linalg.cholesky(np.asarray(kernel.gram(x))) for kernel in EACH.kernels]
    f = np.stack([rng.standard_normal((400_000, 2)) @ root.T for root in roots], axis=1)  # draws, classes, data
    weight = np.exp(log_softmax(f, axis=1)[:, y, [0, 1]].sum(axis=1))
    evidence, mean = np.log(weight.mean()), np.einsum("s,sci->ic", weight, f) / weight.sum()
    assert evidence - 0.2 < solution.log_evidence < evidence
    np.testing.assert_allclose(solution.predict(x).mean, mean, atol=0.1)


@pytest.mark.parametrize("process", [None, LONGER(Inducing(X[:4] + 0.1))])
@pytest.mark.parametrize("method", [Laplace(), LONGER(VB())], ids=str)
def test_gradients_are_finite_differences(method, process):
    model = Model(EACH, SOFTMAX) if process is None else Model(EACH, SOFTMAX, process=process)
    model, rows, y = factors_of(model, X, Y)
    model = settled(model, rows)
    task = prepare(model, rows, y, method, None, None, None)
    landscape = Landscape(model, task, method, as_objective("evidence"), True, 1e-12)
    theta, h = packed(landscape.parts), 1e-4
    slope = landscape.at(theta).gradient
    for i, step in enumerate(np.eye(len(theta)) * h):
        f = [landscape.at(theta + s * step).value for s in (-2, -1, 1, 2)]
        expected = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)
        assert slope[i] == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.campaign
@pytest.mark.parametrize("method", ["laplace", "vb"])
def test_with_the_inputs_as_points_everything_is_dense(method):
    dense = infer(Model(EACH, SOFTMAX), X, Y, method, tol=1e-11)
    low = infer(Model(EACH, SOFTMAX, process=Inducing(X, jitter=0.0)), X, Y, method, tol=1e-11)
    assert low.log_evidence == pytest.approx(dense.log_evidence, abs=1e-7)
    np.testing.assert_allclose(low.predict(NEW).covariance, dense.predict(NEW).covariance, atol=1e-7)
    np.testing.assert_allclose(low.loo, dense.loo, atol=1e-7)


@pytest.mark.campaign
def test_two_classes_are_the_logit_model():
    """Of f_1 − f_0, whose variance is twice theirs."""
    y, kernel = (Y > 0).astype(int), kernels.SquaredExponential(1.5, 0.7)
    two = infer(Model(kernel, likelihoods.Softmax()), X, y, "laplace", tol=1e-11)
    one = infer(Model(kernels.SquaredExponential(3.0, 0.7), likelihoods.Logit()), X, y, "laplace", tol=1e-11)
    assert two.log_evidence == pytest.approx(one.log_evidence, abs=1e-7)
    latent = two.predict(NEW)
    np.testing.assert_allclose(latent.mean[:, 1] - latent.mean[:, 0], one.predict(NEW).mean, atol=1e-7)
    expected = np.exp(one.predict_y(NEW).log_prob(1.0))
    np.testing.assert_allclose(two.predict_y(NEW).probabilities[:, 1], expected, atol=1e-6)


def test_probabilities_are_means_of_softmax():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(3, 4, 4)) * np.array([0.5, 1.0, 4.0])[:, None, None]
    mean, covariance = rng.normal(size=(3, 4)), root @ np.swapaxes(root, 1, 2)
    latent = Normal(mean, np.diagonal(covariance, axis1=1, axis2=2), covariance)
    found = ClassPredictive(latent, likelihoods.Softmax()).probabilities
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    grid = np.stack(np.meshgrid(node, node, node, indexing="ij"), axis=-1).reshape(-1, 3)
    weights = np.einsum("i,j,k->ijk", weight, weight, weight).ravel() / (2 * np.pi) ** 1.5
    apart = np.eye(4)[:3] - np.eye(4)[3]
    for i in range(2):  # of narrow latent values, which the grid resolves
        lower = np.linalg.cholesky(apart @ covariance[i] @ apart.T)
        f = np.column_stack([apart @ mean[i] + grid @ lower.T, np.zeros(len(grid))])
        np.testing.assert_allclose(found[i], weights @ softmax(f, axis=1), atol=1e-5)
    draws = mean[2] + np.random.default_rng(2).standard_normal((1_000_000, 4)) @ root[2].T
    np.testing.assert_allclose(found[2], softmax(draws, axis=1).mean(axis=0), atol=2e-3)


def test_ep_and_qp_name_the_probit():
    for method in ("ep", "qp", "power-ep"):
        with pytest.raises(ValueError, match=r"softmax likelihood: use likelihoods.MultinomialProbit\(\)"):
            infer(Model(EACH, SOFTMAX), X, Y, method)


@pytest.mark.campaign
def test_a_learned_model_and_its_file(tmp_path):
    fitted = fit(Model(kernels.SquaredExponential(2.0), likelihoods.Softmax()), X, Y, "laplace", max_evaluations=4)
    assert isinstance(fitted.model.likelihood, likelihoods.Softmax)
    assert fitted.objective_value == pytest.approx(fitted.solution.log_evidence, abs=1e-6)
    np.testing.assert_array_equal(fitted.solution.y, Y)
    fitted.save(tmp_path / "softmax.safetensors")
    back = load(tmp_path / "softmax.safetensors")
    expected = fitted.solution.predict_y(NEW)
    np.testing.assert_array_equal(back.solution.predict_y(NEW).probabilities, expected.probabilities)
    assert back.objective_value == pytest.approx(fitted.objective_value, abs=1e-12)
    with jax.enable_x64(True):
        one = float(SOFTMAX.log_prob(likelihoods.Datum(1.0, 1.0, 1.0), np.array([0.5, -1.0, 2.0])))
    assert one == pytest.approx(log_softmax([0.5, -1.0, 2.0])[1], abs=1e-12)
