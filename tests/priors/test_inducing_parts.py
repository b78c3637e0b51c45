"""Rows in parts: a posterior as the prior of further rows, and `partial_fit` of both estimators."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from priors.inducing_cases import COUNTS, DATA, KERNEL, LABELS, METHODS, NEW, REALS, X, Z, fitc, point
from sklearn.base import clone

from quantprop import (
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    Inducing,
    Model,
    Parameter,
    infer,
    kernels,
    likelihoods,
    load,
)
from quantprop.core.parameters import declared, packed

HALVES = slice(None, None, 2), slice(1, None, 2)


def in_parts(model: Model, y, method, parts=HALVES, weights=None):
    """The posterior of all rows, one part after the other."""
    solution = None
    for rows in parts:
        model = model if solution is None else solution.as_prior()
        more = {} if weights is None else {"weights": weights[rows]}
        solution = infer(model, X[rows], y[rows], method, tol=1e-10, **more)
    return solution


def test_gaussian_rows_in_parts_are_all_rows():
    """FITC's closed form: evidence, means and covariances; the prior mean is not counted twice."""
    model = Model(KERNEL, likelihoods.Gaussian(0.3), mean=0.4, process=Inducing(Z, jitter=0.0))
    solution = in_parts(model, REALS, "ep", (slice(0, 10), slice(10, 20), slice(20, 30)))
    value, mean, covariance = fitc(1.0, REALS - 0.4, 0.3)
    latent = solution.predict(NEW, full_cov=True)
    assert solution.log_evidence == pytest.approx(value, abs=1e-8)
    np.testing.assert_allclose(latent.mean, 0.4 + mean, atol=1e-9)
    np.testing.assert_allclose(latent.covariance, covariance, atol=1e-9)


@pytest.mark.campaign
@pytest.mark.parametrize("method", ["power ½", "vb", "laplace", "qp"])
def test_gaussian_rows_in_parts_are_all_rows_for_every_method(method):
    model, weights = Model(KERNEL, likelihoods.Gaussian(0.3), process=Inducing(Z)), np.tile([1.0, 2.0, 1.0], 10)
    parts = in_parts(model, REALS, METHODS[method], weights=weights)
    whole = infer(model, X, REALS, METHODS[method], tol=1e-10, weights=weights)
    assert parts.log_evidence == pytest.approx(whole.log_evidence, abs=1e-8)
    np.testing.assert_allclose(parts.predict(NEW).variance, whole.predict(NEW).variance, atol=1e-10)


def slopes_agree(likelihood: str, method) -> None:
    """The gradient in kernel and likelihood, the message of the first half being held, by differences of the value."""
    kind, y = DATA[likelihood]
    model = infer(Model(KERNEL, kind, process=Inducing(Z)), X[::2], y[::2], method, tol=1e-10).as_prior()
    theta, step = packed(declared(model)) + 0.1, 1e-4
    at = point(model, y[1::2], method, theta=theta, x=X[1::2])
    for i in range(len(theta)):
        ends = [point(model, y[1::2], method, theta=theta + move, x=X[1::2]).value
                for move in (step * np.eye(len(theta))[i], -step * np.eye(len(theta))[i])]  # fmt: skip
        assert at.gradient[i] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-5)


@pytest.mark.campaign
def test_gradients_with_a_message_are_those_of_finite_differences():
    slopes_agree("probit", METHODS["laplace"])


@pytest.mark.campaign
@pytest.mark.parametrize("likelihood", list(DATA))
@pytest.mark.parametrize("method", list(METHODS))
def test_gradients_with_a_message_for_every_method(likelihood, method):
    slopes_agree(likelihood, METHODS[method])


def test_points_and_mean_stay_and_dense_is_refused():
    model = Model(KERNEL, likelihoods.Probit(), mean=Parameter(0.1), process=Inducing(Z, learn=True))
    after = infer(model, X, LABELS, "ep").as_prior()
    assert (after.mean.value, after.mean.fixed) == (0.1, True)
    np.testing.assert_array_equal(after.process.points, Z)
    assert not after.process.learn
    with pytest.raises(TypeError, match=r"Dense cannot summarise earlier rows: use process=Inducing\(512\)"):
        infer(Model(KERNEL, likelihoods.Probit()), X, LABELS, "ep").as_prior()


# --- estimators ------------------------------------------------------------------------------------------------------


@pytest.mark.campaign
def test_a_classifier_takes_further_rows(tmp_path):
    """A class that the first rows lack, a file and a pickle in between, and a clone that knows nothing."""
    model = GaussianProcessClassifier(KERNEL, optimizer=None, method="ep", process=Inducing(Z))
    label = np.where(LABELS > 0, "yes", "no")
    order = np.argsort(label, kind="stable")  # every "no" first
    parts = order[:10], order[10:20], order[20:]
    with pytest.raises(ValueError, match="pass classes= in the first call of partial_fit"):
        model.partial_fit(X[parts[0]], label[parts[0]])
    model.partial_fit(X[parts[0]], label[parts[0]], classes=["yes", "no"])
    model.save(tmp_path / "model.safetensors")
    model = load(tmp_path / "model.safetensors").partial_fit(X[parts[1]], label[parts[1]])
    model.save(tmp_path / "model.safetensors")
    again = pickle.loads(pickle.dumps(load(tmp_path / "model.safetensors")))
    twin = model.partial_fit(X[parts[2]], label[parts[2]]).predict_proba(NEW)
    np.testing.assert_allclose(again.partial_fit(X[parts[2]], label[parts[2]]).predict_proba(NEW), twin, atol=1e-9)
    whole = GaussianProcessClassifier(KERNEL, optimizer=None, method="ep", process=Inducing(Z)).fit(X, label)
    np.testing.assert_allclose(twin, whole.predict_proba(NEW), atol=0.05)  # sites of earlier rows are not renewed
    assert model.log_marginal_likelihood_value_ == pytest.approx(whole.log_marginal_likelihood_value_, abs=0.5)
    with pytest.raises(ValueError, match=r"y\[1\] = 'maybe' is not one of the labels \['no', 'yes'\]"):
        model.partial_fit(X[:2], ["yes", "maybe"])
    assert not hasattr(clone(model), "classes_")


def test_a_dense_estimator_has_no_partial_fit():
    for make in (GaussianProcessClassifier, GaussianProcessRegressor):
        assert not hasattr(make(), "partial_fit")
        with pytest.raises(AttributeError, match=r"needs a model with inducing points: use process=Inducing\(512\)"):
            make().partial_fit(X, LABELS)


@pytest.mark.campaign
def test_a_regressor_takes_further_rows_with_weights_and_exposure(tmp_path):
    process, exposure, weights = Inducing(Z), np.linspace(0.5, 2.0, 30), np.tile([1.0, 0.0, 2.0], 10)
    model = GaussianProcessRegressor(KERNEL, likelihood="poisson", method="ep", process=process, mean="constant")
    for rows in HALVES:
        model.partial_fit(X[rows], COUNTS[rows], weights[rows], exposure=exposure[rows])
    whole = clone(model).fit(X, COUNTS, weights, exposure=exposure)
    model.save(tmp_path / "model.safetensors")
    twin = load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(twin.predict(NEW), model.predict(NEW))
    ratio = model.predict(NEW) / whole.predict(NEW)
    assert np.abs(np.log(ratio)).max() < 0.3
    scaled = GaussianProcessRegressor(KERNEL, alpha=0.01, optimizer=None, normalize_y=True, process=process)
    for rows in HALVES:
        scaled.partial_fit(X[rows], REALS[rows])
    assert scaled.score(X, REALS) > 0.8


@pytest.mark.campaign
@pytest.mark.parametrize("by_pairs", [False, True])
def test_several_classes_in_parts(by_pairs):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 2))
    label = np.digitize(x[:, 0] + 0.3 * rng.normal(size=300), [-0.5, 0.5])
    model = GaussianProcessClassifier(process=Inducing(10), multi_class="one_vs_one" if by_pairs else "one_vs_rest")
    for rows in np.array_split(np.arange(300), 3):
        model.partial_fit(x[rows], label[rows], classes=[0, 1, 2])
    model.partial_fit(x[label == 0][:5], label[label == 0][:5])  # some pairs have no rows
    assert model.score(x, label) > 0.75


def held_out(parts: int, n: int, kind: str, seed: int = 0) -> float:
    """Mean log density of as many rows again, learned from n rows in parts by EP."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, (2 * n, 2))
    f = 1.5 * np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
    y = np.sign(f + rng.normal(size=2 * n)) if kind == "probit" else rng.poisson(np.exp(0.5 * f)).astype(float)
    model = GaussianProcessRegressor(
        kernels.SquaredExponential(1.0, [1.0, 1.0]), method="ep", process=Inducing(20),
        likelihood=likelihoods.Probit() if kind == "probit" else "poisson",
    )  # fmt: skip
    for rows in np.array_split(np.arange(n), parts):
        model.partial_fit(x[rows], y[rows])
    return float(model.log_predictive_density(x[n:], y[n:]).mean())


@pytest.mark.campaign
def test_ten_parts_score_as_the_whole():
    assert held_out(10, 1500, "probit") == pytest.approx(held_out(1, 1500, "probit"), abs=0.01)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["probit", "poisson"])
@pytest.mark.parametrize("seed", range(3))
def test_ten_parts_of_many_rows_score_as_the_whole(kind, seed):
    assert held_out(10, 5000, kind, seed) == pytest.approx(held_out(1, 5000, kind, seed), abs=0.01)
