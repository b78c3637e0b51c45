"""Several classes by inducing points, against the dense process, the binary model, finite differences and a fit without
the datum.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from quantprop import (
    EP,
    QP,
    VB,
    GaussianProcessClassifier,
    Inducing,
    Laplace,
    Model,
    PowerEP,
    infer,
    kernels,
    likelihoods,
    load,
)
from quantprop.core.gaussian import Natural
from quantprop.core.parameters import packed
from quantprop.inference.classes import ClassSolution, factors_of
from quantprop.inference.task import prepare, settled
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.priors.classes import process as process_module

LONGER = partial(pytest.param, marks=pytest.mark.campaign)
RNG = np.random.default_rng(5)
X = RNG.uniform(-2, 2, (12, 2))
Y = np.array([0, 2, 1, 0, 1, 2, 2, 0, 1, 0, 2, 1])
NEW = RNG.uniform(-2, 2, (4, 2))
KERNEL = kernels.Matern32(2.0, 0.8)
EACH = kernels.PerClass((KERNEL, kernels.Matern32(1.0, 0.5), kernels.SquaredExponential(0.7, 1.5)))
PROBIT = likelihoods.MultinomialProbit(3)
METHODS = [EP(), *map(LONGER, (QP(), VB(), Laplace()))]


def point(model: Model, y: np.ndarray, method, theta=None):
    """The objective with its gradient; the landscape."""
    model, rows, ones = factors_of(model, X, y)
    model = settled(model, rows)
    landscape = Landscape(model, prepare(model, rows, ones, method, None, None, None), method,
                          as_objective("evidence"), True, 1e-12)  # fmt: skip
    return landscape, landscape.at(packed(landscape.parts) if theta is None else theta)


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("kernel", [EACH, LONGER(KERNEL)])
def test_with_the_inputs_as_points_everything_is_dense(method, kernel, monkeypatch):
    """In several chunks of data, with no jitter."""
    monkeypatch.setattr(process_module, "chunk_bytes", lambda: 8 * 3 * 12 * 5)
    models = Model(kernel, PROBIT), Model(kernel, PROBIT, process=Inducing(X, jitter=0.0))
    dense, low = (infer(model, X, Y, method, tol=1e-11) for model in models)
    assert low.converged
    assert low.log_evidence == pytest.approx(dense.log_evidence, abs=1e-7)
    np.testing.assert_allclose(low.sites.tau, dense.sites.tau, atol=1e-7)
    np.testing.assert_allclose(low.loo, dense.loo, atol=1e-7)
    for full in (False, True):
        one, other = low.predict(NEW, full_cov=full), dense.predict(NEW, full_cov=full)
        np.testing.assert_allclose(one.mean, other.mean, atol=1e-7)
        np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-7)


@pytest.mark.campaign
@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("kernel", [EACH, KERNEL])
def test_with_the_inputs_as_points_gradients_are_dense(method, kernel):
    models = Model(kernel, PROBIT), Model(kernel, PROBIT, process=Inducing(X, jitter=0.0))
    (_, there), (_, here) = (point(model, Y, method) for model in models)
    assert here.usable
    np.testing.assert_allclose(here.gradient, there.gradient, atol=1e-7)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_gradients_are_finite_differences(method):
    """Of kernels and points."""
    model = Model(EACH, PROBIT, process=Inducing(X[[0, 3, 5, 8]] + 0.1, learn=True))
    landscape, at = point(model, Y, method)
    theta, h = at.theta, 1e-4
    assert len(theta) == 6 + 8
    for way in np.random.default_rng(1).normal(size=(2, len(theta))):
        f = [landscape.at(theta + s * h * way).value for s in (-2, -1, 1, 2)]
        expected = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)
        assert at.gradient @ way == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.campaign
@pytest.mark.parametrize("method", ["ep", "qp", "vb"])
def test_two_classes_are_the_binary_model(method):
    y, process = (Y > 0).astype(int), Inducing(X[:4] + 0.2)
    joint = infer(Model(KERNEL, likelihoods.MultinomialProbit(), process=process), X, y, method, tol=1e-11)
    binary = infer(Model(KERNEL, likelihoods.Probit(), process=process), X, y, method, tol=1e-11)
    assert joint.log_evidence == pytest.approx(binary.log_evidence, abs=1e-8)
    np.testing.assert_allclose(joint.loo, binary.loo, atol=1e-8)
    both, one = joint.predict(NEW), binary.predict(NEW)
    np.testing.assert_allclose((both.mean[:, 1] - both.mean[:, 0]) / np.sqrt(2), one.mean, atol=1e-8)
    expected = np.exp(binary.predict_y(NEW).log_prob(1.0))
    np.testing.assert_allclose(joint.predict_y(NEW).probabilities[:, 1], expected, atol=1e-8)


@pytest.mark.campaign
def test_leaving_a_datum_out_is_a_fit_with_a_gaussian_site_less():
    """Sites of one datum set to nothing: what is then predicted at it, its own unexplained part being as before."""
    model = Model(EACH, PROBIT, process=Inducing(X[:5] + 0.1))
    solution = infer(model, X, Y, "ep", tol=1e-11)
    factors = solution.factors
    for i in (0, 7):
        keep = np.repeat(np.arange(len(X)) != i, 2)
        sites = Natural(np.where(keep, factors.sites.nu, 0.0), np.where(keep, factors.sites.tau, 0.0))
        without = ClassSolution(replace(factors, sites=sites))
        assert solution.loo[i] == pytest.approx(without.predict_y(X[i : i + 1]).log_prob(Y[i])[0], abs=1e-5)


@pytest.mark.campaign
def test_a_classifier_with_points_is_learned_and_stored(tmp_path):
    labels = np.array(["ash", "oak", "elm"])[Y]
    model = GaussianProcessClassifier(multi_class="joint", method="ep", process=Inducing(5)).fit(X, labels)
    found = model.solution_.model
    assert found.process.points.shape == (5, 2)
    codes = np.searchsorted(model.classes_, labels)
    expected = infer(found, X, codes, "ep").predict_y(NEW).probabilities
    np.testing.assert_allclose(model.predict_proba(NEW), expected, atol=1e-6)
    model.save(tmp_path / "trees.safetensors")
    np.testing.assert_array_equal(load(tmp_path / "trees.safetensors").predict_proba(NEW), model.predict_proba(NEW))
    back = pickle.loads(pickle.dumps(model.solution_))
    np.testing.assert_array_equal(back.predict(NEW).mean, model.solution_.predict(NEW).mean)


def test_powers_are_refused():
    with pytest.raises(ValueError, match=r"powers other than 1.*use EP, QP, VB or Laplace"):
        infer(Model(KERNEL, PROBIT, process=Inducing(4)), X, Y, PowerEP(0.5))
