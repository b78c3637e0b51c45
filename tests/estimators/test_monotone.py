"""Functions of known shape: constraints are kept, learning is exact, and their absence changes nothing."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone

from quantprop import EP, GaussianProcessClassifier, GaussianProcessRegressor, Model, infer, kernels, likelihoods
from quantprop.core.parameters import packed
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.learning.shaped import Constraint, Shape, _constrained, _landscape
from quantprop.likelihoods.binary import Sign

RNG = np.random.default_rng(2)
X = np.linspace(0.1, 10.0, 40)[:, None]
Y = 3.0 / (1.0 + np.exp(10.0 - 2.0 * X[:, 0])) + RNG.normal(size=40)
NEW = np.linspace(0.1, 10.0, 200)[:, None]
rows = kernels.Derivatives.rows


@pytest.fixture(scope="module")
def increasing():
    return GaussianProcessRegressor(method="ep", mean="constant", monotone={0: +1}).fit(X, Y)


def test_the_mean_increases(increasing):
    free = GaussianProcessRegressor(method="ep", mean="constant").fit(X, Y)
    assert (np.diff(free.predict(NEW)) < 0).any()
    assert (np.diff(increasing.predict(NEW)) > 0).all()
    constraint = increasing.constraint_
    assert constraint.kept
    assert 0 < len(constraint.sign) <= 32
    slope = increasing.posterior_.derivative(NEW, 0)
    assert norm.cdf(-slope.mean / np.sqrt(slope.variance)).max() < 0.17


def test_it_predicts_and_has_the_attributes_of_other_models(increasing):
    mean, deviation = increasing.predict(NEW, return_std=True)
    assert np.all(deviation > increasing.likelihood_.scale)
    low, high = increasing.predict_quantiles(NEW, [0.05, 0.95]).T
    assert np.all((low < mean) & (mean < high))
    assert increasing.loo_.shape == (40,)
    assert increasing.sample_y(NEW[:5], 3, random_state=0).shape == (5, 3)
    assert increasing.posterior_.information(NEW[:3]).shape == (3,)
    assert clone(increasing).monotone == {0: 1}
    assert increasing.kernel_ is not None
    value, slope = increasing.log_marginal_likelihood(increasing.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(increasing.log_marginal_likelihood_value_, abs=1e-5)
    assert np.abs(slope).max() < 0.1
    with pytest.raises(ValueError, match="terms is not supported"):
        increasing.posterior_.terms(NEW)


def landscape_of(model, x, y, constraint):
    task = prepare(model, x, y, EP())
    given = Landscape(task.model, task, EP(), as_objective("evidence"), tol=1e-12)
    shapes = [Shape(0, 1, 1.0)]
    values = rows(x), np.column_stack([y, np.zeros(len(x))])
    return _landscape(_constrained(model, shapes), given, values, constraint)


MODEL = Model(kernels.SquaredExponential(1.5, 2.0), likelihoods.Gaussian(0.8))


def test_one_virtual_row_is_exact():
    """log Z(y, c) − log Z(c) with one sign: the Gaussian evidence and Φ of the slope's mean given y, over Φ(0)."""
    x, y = X[::8], Y[::8]
    constraint = Constraint(rows([[4.0]], 0), np.ones(1), 1.0)
    landscape = landscape_of(MODEL, x, y, constraint)
    given = infer(Model(kernels.Derivatives(MODEL.kernel), MODEL.likelihood), rows(x), y, "ep")
    slope = given.predict(rows([[4.0]], 0))
    expected = given.log_evidence + norm.logcdf(slope.mean[0] / np.sqrt(slope.variance[0])) - np.log(0.5)
    assert landscape.from_cold(packed(landscape.parts)).value == pytest.approx(expected, abs=1e-9)


def test_the_gradient_is_that_of_differences():
    constraint = Constraint(rows([[2.0], [4.0], [9.0]], 0), np.ones(3), 1.0)
    landscape = landscape_of(MODEL, X, Y, constraint)
    theta = packed(landscape.parts)
    slope = landscape.from_cold(theta).gradient
    for way, found in zip(1e-5 * np.eye(3), slope, strict=True):
        up, down = (landscape.from_cold(theta + sign * way).value for sign in (1, -1))
        assert found == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-6)


def test_what_obeys_the_constraint_is_unchanged():
    y = 0.5 * X[:, 0] + 0.1 * RNG.normal(size=40)
    free = GaussianProcessRegressor(method="ep").fit(X, y)
    kept = GaussianProcessRegressor(method="ep", monotone={0: "increasing"}).fit(X, y)
    assert not len(kept.constraint_.sign)
    np.testing.assert_array_equal(kept.predict(NEW), free.predict(NEW))


@pytest.mark.campaign
@pytest.mark.parametrize(("shape", "order", "sign"), [("decreasing", 1, -1), ("convex", 2, 1), ("concave", 2, -1)])
def test_other_shapes(shape, order, sign):
    truth = {"decreasing": -Y, "convex": 0.05 * (X[:, 0] - 4.0) ** 2, "concave": np.sqrt(X[:, 0])}[shape]
    y = truth + 0.5 * np.random.default_rng(1).normal(size=40)
    model = GaussianProcessRegressor(method="ep", mean="constant", monotone={0: shape}).fit(X, y)
    assert model.constraint_.kept
    assert np.all(sign * np.diff(model.predict(NEW), order) > -1e-8)


@pytest.mark.campaign
def test_two_classes_and_two_columns_by_name():
    import pandas as pd

    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, (120, 2))
    y = np.where(rng.uniform(size=120) < norm.cdf(x[:, 0] - 2.0 + 0.3 * np.sin(3 * x[:, 1])), "yes", "no")
    frame = pd.DataFrame(x, columns=["dose", "age"])
    model = GaussianProcessClassifier("ard", method="ep", monotone={"dose": +1}).fit(frame, y)
    grid = pd.DataFrame({"dose": np.tile(np.linspace(0, 4, 30), 5), "age": np.repeat(np.linspace(0.5, 3.5, 5), 30)})
    assert np.all(np.diff(model.predict_proba(grid)[:, 1].reshape(5, 30), axis=1) > -1e-3)


def test_signs_are_half_lines():
    """Moments of a truncated normal by scipy."""
    from scipy.stats import truncnorm

    from quantprop import project

    found = project(Sign(), y=-1, cavity=(0.7, 2.0))
    exact = truncnorm(-np.inf, -0.7 / np.sqrt(2.0), loc=0.7, scale=np.sqrt(2.0))
    assert float(found.mean) == pytest.approx(exact.mean(), abs=1e-12)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"monotone": {3: 1}}, "no column 3"),
        ({"monotone": {"dose": 1}}, "no column 'dose'"),
        ({"monotone": {}}, "must name a column"),
        ({"monotone": {0: "rising"}}, "increasing"),
        ({"monotone": {0: 1}, "method": "vb"}, "method='ep'"),
        ({"monotone": {0: 1}, "objective": "loo"}, "objective='evidence'"),
        ({"monotone": {0: 1}, "kernel": kernels.Matern12()}, "no first derivative"),
        ({"monotone": {0: "convex"}, "kernel": kernels.Matern32()}, "no second derivative"),
        pytest.param({"monotone": {0: 1}, "kernel": "auto"}, "single model", marks=pytest.mark.campaign),
        ({"monotone": {0: 1}, "process": "markov", "kernel": kernels.Matern52()}, "process='dense'"),
    ],
)
def test_what_is_not_supported_is_named(given, words):
    settings = {"method": "ep", "optimizer": None} | given
    with pytest.raises(ValueError, match=words):
        GaussianProcessRegressor(**settings).fit(X[:10], Y[:10])
    with pytest.raises(ValueError, match="two classes"):
        GaussianProcessClassifier(monotone={0: 1}).fit(X, np.arange(40) % 3)


def test_files_are_refused(increasing, tmp_path):
    with pytest.raises((TypeError, ValueError), match="cannot be stored"):
        increasing.save(tmp_path / "model.safetensors")
