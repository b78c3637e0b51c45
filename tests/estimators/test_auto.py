"""kernel="auto": a stack of models behind the estimators."""

import numpy as np
import pytest
from scipy.special import logsumexp

from quantprop import (
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    Inducing,
    Model,
    fit,
    kernels,
    likelihoods,
    load,
)
from quantprop.estimators.first_kernel import DefaultKernel
from quantprop.inference.stacked import Stack

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
F = 1.5 * X[:, 0] + np.sin(2.0 * X[:, 1])
Y = F + 0.3 * RNG.normal(size=60)
LABELS = np.where(F + 0.5 * RNG.normal(size=60) > 0, "yes", "no")
NEW = RNG.normal(size=(9, 3))
MEMBERS = ["linear", "isotropic", "shrunk + linear", "additive", "shrunk + linear on ranks", "additive on ranks"]


@pytest.fixture(scope="module")
def classifier():
    return GaussianProcessClassifier("auto", method="ep").fit(X, LABELS)


@pytest.fixture(scope="module")
def regressor():
    return GaussianProcessRegressor("auto", method="ep").fit(X, Y)


def test_members_are_the_kernels_alone(classifier):
    stack = classifier.posterior_
    assert isinstance(stack, Stack)
    assert [one.name for one in stack.members] == MEMBERS
    for name, kernel in (("isotropic", None), ("additive", "additive")):
        alone = GaussianProcessClassifier(kernel, method="ep").fit(X, LABELS)
        member = next(one for one in stack.members if one.name == name)
        assert member.fitted.objective_value == alone.log_marginal_likelihood_value_
    assert classifier.solution_ is stack.heaviest.fitted.solution
    assert classifier.log_marginal_likelihood_value_ == stack.heaviest.fitted.objective_value


def test_probabilities_are_the_weighted_ones(classifier):
    stack = classifier.posterior_
    each = [one.fitted.solution.predict_y(NEW).log_prob(np.ones(9)) for one in stack.members]
    expected = np.exp(logsumexp(each, axis=0, b=stack.weights[:, None]))
    np.testing.assert_allclose(classifier.predict_proba(NEW)[:, 1], expected, rtol=1e-12)
    assert np.array_equal(classifier.loo_, stack.loo)


def test_quantiles_of_numbers_are_those_of_the_mixture(regressor):
    y = regressor.posterior_.predict_y(NEW)
    np.testing.assert_allclose(y.cdf(regressor.predict_quantiles(NEW, [0.05])[:, 0]), 0.05, atol=1e-8)
    mean, deviation = regressor.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, y.mean)
    np.testing.assert_allclose(deviation, np.sqrt(y.variance))
    draws = regressor.sample_y(NEW, 4000, random_state=1)
    assert (np.abs(draws.mean(axis=1) - mean) < 5.0 * deviation / np.sqrt(4000)).all()


@pytest.mark.parametrize(("factor", "shift", "size"), [(1.0, 1000.0, 1.0), (1e6, 0.0, 1.0), (1.0, 0.0, 1e-6)])
def test_units_do_not_matter(regressor, factor, shift, size):
    other = GaussianProcessRegressor("auto", method="ep").fit(X * factor + shift, Y * size)
    np.testing.assert_allclose(other.posterior_.weights, regressor.posterior_.weights, atol=2e-3)
    np.testing.assert_allclose(
        other.predict(NEW * factor + shift), size * regressor.predict(NEW), rtol=0, atol=2e-3 * size
    )


@pytest.mark.parametrize("variance", [0.0, 0.6])
def test_counts_have_residuals_of_the_size_that_they_were_drawn_with(variance):
    x = RNG.normal(size=(150, 2))
    y = RNG.poisson(np.exp(2.0 + 0.5 * x[:, 0] + np.sqrt(variance) * RNG.normal(size=150))).astype(float)
    kernel = DefaultKernel(residuals=True).members(x)["linear"]
    learned = fit(Model(kernel, likelihoods.Poisson()), x, y, "ep").solution
    (white,) = (term for term in kernels.summands(learned.model.plain_kernel) if isinstance(term, kernels.White))
    assert white.variance == pytest.approx(variance, abs=0.03 + 0.3 * variance)
    assert not any(isinstance(term, kernels.White) for term in kernels.summands(DefaultKernel().members(x)["linear"]))


@pytest.mark.campaign
def test_heavy_tails_give_weight_to_ranks(tmp_path):
    rng = np.random.default_rng(1)
    x = np.exp(3.0 * rng.normal(size=(120, 2)))
    y = np.sin(np.log(x[:, 0])) + 0.3 * np.log(x[:, 1]) + 0.2 * rng.normal(size=120)
    model = GaussianProcessRegressor("auto", method="ep").fit(x[:60], y[:60])
    weight = {one.name: one.weight for one in model.posterior_.members}
    assert weight["shrunk + linear on ranks"] + weight["additive on ranks"] > 0.8
    assert model.score(x[60:], y[60:]) > 0.8
    assert GaussianProcessRegressor("shrunk", method="ep").fit(x[:60], y[:60]).score(x[60:], y[60:]) < 0.6
    np.testing.assert_allclose(model.predict(x[60:]), model.fit(1e6 * x[:60], y[:60]).predict(1e6 * x[60:]), atol=2e-3)


def test_columns_of_two_values_have_no_members_of_ranks():
    assert [*DefaultKernel().members(np.sign(X))] == MEMBERS[:4]


@pytest.mark.campaign
@pytest.mark.usefixtures("two_members")
def test_several_classes_jointly_or_apart():
    y = np.digitize(F, [-0.7, 0.7])
    joint = GaussianProcessClassifier("auto", multi_class="joint", method="laplace").fit(X, y)
    np.testing.assert_allclose(joint.predict_proba(NEW).sum(axis=1), 1.0, atol=1e-12)
    each = [one.fitted.solution.predict_y(NEW).probabilities for one in joint.posterior_.members]
    np.testing.assert_allclose(joint.predict_proba(NEW), np.tensordot(joint.posterior_.weights, each, 1), atol=1e-12)
    apart = GaussianProcessClassifier("auto", method="ep").fit(X, y)
    assert [type(one) for one in apart.posterior_] == [Stack] * 3
    assert joint.score(X, y) > 0.8
    assert apart.score(X, y) > 0.8


def test_a_stored_estimator_predicts_the_same(classifier, regressor, tmp_path):
    for model, of in ((classifier, "predict_proba"), (regressor, "predict")):
        model.save(tmp_path / "model.safetensors")
        again = load(tmp_path / "model.safetensors")
        assert np.array_equal(getattr(again, of)(NEW), getattr(model, of)(NEW))
        assert repr(again.posterior_) == repr(model.posterior_)


def test_what_a_stack_does_not_take_is_refused():
    with pytest.raises(ValueError, match="hyperparameters='integrated'"):
        GaussianProcessClassifier("auto", hyperparameters="integrated").fit(X, LABELS)
    with pytest.raises(ValueError, match="process='markov'"):
        GaussianProcessRegressor("auto", process="markov").fit(X[:, :1], Y)
    with pytest.raises(ValueError, match="warm_start"):
        GaussianProcessClassifier("auto", warm_start=True).fit(X, LABELS)
    with pytest.raises(AttributeError, match="stacks several"):
        GaussianProcessClassifier("auto", process=Inducing(8)).partial_fit(X, LABELS, classes=["no", "yes"])
