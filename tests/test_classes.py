"""Several classes jointly: the multinomial probit against the binary model, nested EP, brute force and refits."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.nested_ep import nested_ep
from scipy.special import log_ndtr, logsumexp, ndtr
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_iris, load_wine

from quantprop import (
    EP,
    QP,
    VB,
    Dense,
    GaussianProcessClassifier,
    Laplace,
    Markov,
    Model,
    Parameter,
    PowerEP,
    fit,
    fit_many,
    infer,
    kernels,
    likelihoods,
    load,
    means,
)
from quantprop.core.gaussian import Natural, Normal
from quantprop.core.parameters import packed
from quantprop.inference.classes import ClassPredictive, ClassSolution, factors_of, predictive
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective

LONGER = partial(pytest.param, marks=pytest.mark.campaign)
RNG = np.random.default_rng(5)
X = RNG.uniform(-2, 2, (10, 1))  # 20 factors of three classes: one padded shape for all
Y = np.array([0, 2, 1, 0, 1, 2, 2, 0, 1, 0])
KERNEL = kernels.SquaredExponential(2.0, 0.8)
EACH = kernels.PerClass((KERNEL, kernels.Matern32(1.0, 0.5), kernels.SquaredExponential(0.7, 1.5)))
JOINT = Model(KERNEL, likelihoods.MultinomialProbit())


@pytest.fixture(scope="module")
def by_ep() -> ClassSolution:
    return infer(Model(EACH, likelihoods.MultinomialProbit()), X, Y, "ep", tol=1e-11)


# --- two classes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [LONGER("ep"), "qp"])
def test_two_classes_are_the_binary_model(method):
    """P(f_1 + e_1 > f_0 + e_0) = Φ((f_1 − f_0)/√2), and (f_1 − f_0)/√2 has the kernel (k_0 + k_1)/2."""
    y = (Y > 0).astype(int)
    joint, binary = (
        infer(JOINT, X, y, method, tol=1e-11),
        infer(Model(KERNEL, likelihoods.Probit()), X, y, method, tol=1e-11),
    )
    assert joint.log_evidence == pytest.approx(binary.log_evidence, abs=1e-8)
    np.testing.assert_allclose(joint.loo, binary.loo, atol=1e-8)
    new = np.array([[0.1], [1.7]])
    both, one = joint.predict(new), binary.predict(new)
    np.testing.assert_allclose((both.mean[:, 1] - both.mean[:, 0]) / np.sqrt(2), one.mean, atol=1e-8)
    apart = both.covariance[:, 0, 0] + both.covariance[:, 1, 1] - 2 * both.covariance[:, 0, 1]
    np.testing.assert_allclose(apart / 2, one.variance, atol=1e-8)
    expected = np.exp(binary.predict_y(new).log_prob(1.0))
    np.testing.assert_allclose(joint.predict_y(new).probabilities[:, 1], expected, atol=1e-8)


def with_u(y: np.ndarray) -> np.ndarray:
    """Two classes as the factors of three would be, u + f_y − f_j, in place of (f_y − f_j)/√2."""
    weights = np.where(y[:, None] == np.arange(2), 1.0, -1.0)
    return np.column_stack([X, weights, np.arange(len(y))])


@pytest.mark.parametrize(("method", "apart"), [("ep", (0.0, 1e-8)), LONGER("qp", (1e-5, 1e-2))])
def test_what_u_does_to_two_classes(method, apart, monkeypatch):
    """Moments of f do not depend on how u is integrated out; W₂ along u + f_y − f_j is not W₂ along f_y − f_j."""
    y = (Y > 0).astype(int)
    kernel = kernels.PerClass((KERNEL,), 2)
    monkeypatch.setattr("quantprop.inference.task.is_multi_class", lambda model: False)  # rows as factors see them
    found = ClassSolution(infer(Model(kernel, likelihoods.Probit()), with_u(y), np.ones(len(y)), method, tol=1e-11))
    monkeypatch.undo()
    binary = infer(JOINT, X, y, method, tol=1e-11)
    least, most = apart
    assert least <= abs(found.log_evidence - binary.log_evidence) <= most
    difference = np.abs(found.predict(X).mean - binary.predict(X).mean).max()
    assert least <= difference <= most


# --- the fixed point -------------------------------------------------------------------------------------------------


def test_ep_is_nested_ep(by_ep):
    k = [np.asarray(kernel.cross(X, X)) for kernel in EACH.kernels]
    truth = nested_ep(k, Y)
    assert by_ep.log_evidence == pytest.approx(truth.log_evidence, abs=1e-7)
    found = by_ep.predict(X)
    np.testing.assert_allclose(found.mean, truth.mean, atol=1e-7)
    blocks = truth.covariance.reshape(len(X), 3, len(X), 3)[np.arange(len(X)), :, np.arange(len(X)), :]
    np.testing.assert_allclose(found.covariance, blocks, atol=1e-7)


@pytest.mark.parametrize("method", [LONGER(QP()), LONGER(EP())])
def test_the_structure_changes_nothing(method, monkeypatch):
    """The same factors under a dense covariance of all of them."""
    model, rows, y = factors_of(Model(EACH, likelihoods.MultinomialProbit()), X, Y)
    dense = Model(model.kernel, model.likelihood, model.mean, Dense())
    monkeypatch.setattr("quantprop.inference.task.is_multi_class", lambda model: False)  # which refuses the dense one
    found, expected = (infer(one, rows, y, method, tol=1e-11) for one in (model, dense))
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
    np.testing.assert_allclose(found.sites.tau, expected.sites.tau, atol=1e-9)
    np.testing.assert_allclose(found.sites.nu, expected.sites.nu, atol=1e-9)


@pytest.mark.parametrize("variance", [1.0, LONGER(100.0)])
@pytest.mark.parametrize("method", ["ep", LONGER("qp")])
def test_three_data_against_brute_force(method, variance):
    """The posterior by rejection: functions and noise are drawn, and kept where every datum's class is the largest."""
    x, y = np.array([[-0.5], [0.2], [0.9]]), np.array([0, 1, 2])
    kernel = kernels.SquaredExponential(variance, 1.0)
    solution = infer(Model(kernel, likelihoods.MultinomialProbit()), x, y, method)
    rng, root = np.random.default_rng(0), np.linalg.cholesky(np.asarray(kernel.gram(x)))
    f = rng.standard_normal((1_500_000, 3, 3)) @ root.T  # draws, classes, data
    noisy = f + rng.standard_normal(f.shape)
    kept = f[(noisy.argmax(axis=1) == y).all(axis=1)]
    evidence = np.log(len(kept) / len(f))
    close = 1.0 if variance == 1.0 else 20.0  # wide priors are harder for every method
    assert abs(solution.log_evidence - evidence) < 0.02 * close
    mean, sd = kept.mean(axis=0).T, kept.std(axis=0).T
    assert (np.abs(solution.predict(x).mean - mean) / sd).max() < 0.05 * close


# --- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [Laplace(), *map(LONGER, (EP(), QP(), PowerEP(0.5), VB()))])
@pytest.mark.parametrize("kernel", [KERNEL, LONGER(EACH)])
def test_gradients_are_those_of_finite_differences(method, kernel):
    model, rows, y = factors_of(Model(kernel, likelihoods.MultinomialProbit()), X, Y)
    task = prepare(model, rows, y, method, None, None, None)
    landscape = Landscape(model, task, method, as_objective("evidence"), True, 1e-12)
    theta, h = packed(landscape.parts), 1e-4
    slope = landscape.at(theta).gradient
    for i, step in enumerate(np.eye(len(theta)) * h):
        f = [landscape.at(theta + s * step).value for s in (-2, -1, 1, 2)]
        expected = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)
        assert slope[i] == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.campaign
def test_a_learned_model_and_its_file(tmp_path):
    """Kernels and means of their own; the mean of each class is learned."""
    mean = means.PerClass((0.0, Parameter(0.1), Parameter(-0.1)))
    kernel = kernels.PerClass([kernels.SquaredExponential(v, Parameter(1.0, fixed=True)) for v in (1.0, 2.0, 3.0)])
    fitted = fit(Model(kernel, likelihoods.MultinomialProbit(3), mean), X, Y, "ep", max_evaluations=3)
    assert len(fitted.theta) == 5
    assert fitted.hyperparameters.keys() == {
        "kernel.kernels[0].variance", "kernel.kernels[1].variance", "kernel.kernels[2].variance", "mean.means[1]",
        "mean.means[2]",
    }  # fmt: skip
    again = infer(fitted.model, X, Y, "ep", tol=1e-8)
    assert fitted.solution.log_evidence == pytest.approx(again.log_evidence, abs=1e-6)
    fitted.save(tmp_path / "classes.safetensors")
    back = load(tmp_path / "classes.safetensors")
    new = np.array([[0.3]])
    expected = fitted.solution.predict_y(new).probabilities
    np.testing.assert_array_equal(back.solution.predict_y(new).probabilities, expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).solution.predict_y(new).probabilities, expected)
    assert back.hyperparameters == fitted.hyperparameters


def test_many_fits_refuse_what_one_fit_refuses():
    for learn, given in ((fit, lambda one: one), (fit_many, lambda one: [one])):
        with pytest.raises(ValueError, match="exposure"):
            learn(JOINT, given(X), given(Y), "ep", exposure=given(np.ones(len(X))))


def test_loo_as_an_objective_is_refused():
    with pytest.raises(ValueError, match=r"objective='loo'.*objective='evidence'"):
        fit(JOINT, X, Y, "ep", objective="loo")


# --- predictions -----------------------------------------------------------------------------------------------------


def largest(mean: np.ndarray, covariance: np.ndarray, entry: int) -> float:
    """P(g_entry is the largest): a Gaussian probability of all differences being positive."""
    others = [j for j in range(len(mean)) if j != entry]
    a = np.eye(len(mean))[entry] - np.eye(len(mean))[others]
    return float(multivariate_normal.cdf(a @ mean, cov=a @ covariance @ a.T, maxpts=200_000, abseps=1e-7))


@pytest.mark.parametrize("classes", [3, LONGER(6)])
def test_class_probabilities_against_brute_force(classes):
    rng = np.random.default_rng(classes)
    root = rng.normal(size=(6, classes, classes)) * np.array([0.3, 1.0, 3.0, 10.0, 1.0, 1.0])[:, None, None]
    mean, covariance = 2.0 * rng.normal(size=(6, classes)), root @ np.swapaxes(root, 1, 2)
    mean[5] = 0.0
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    found = ClassPredictive(Normal(mean, variance, covariance)).probabilities
    expected = [
        [largest(m, v + np.eye(classes), c) for c in range(classes)] for m, v in zip(mean, covariance, strict=True)
    ]
    np.testing.assert_allclose(found, expected, atol=1e-5 if classes == 3 else 1e-4)  # the oracle's own error


@pytest.mark.parametrize("classes", [5, *map(LONGER, (7, 10))])
def test_probabilities_of_many_classes(classes):
    """Functions that share one direction, f = μ + r t + noise: two numbers, t and the class's own, are integrated."""
    rng = np.random.default_rng(2)
    mean, own = rng.normal(size=(8, classes)), rng.uniform(0.1, 4.0, (8, classes))
    r = rng.normal(size=(8, classes)) * np.linspace(0.2, 4.0, 8)[:, None]
    covariance = own[:, :, None] * np.eye(classes) + r[:, :, None] * r[:, None, :]
    found = ClassPredictive(Normal(mean, np.diagonal(covariance, axis1=1, axis2=2), covariance)).probabilities
    shared, node = np.linspace(-8.5, 8.5, 401), np.linspace(-8.5, 8.5, 101)
    weight = np.outer(norm.pdf(shared), norm.pdf(node)) * (shared[1] - shared[0]) * (node[1] - node[0])
    for i in range(8):
        g = mean[i] + shared[:, None] * r[i]  # t, classes
        sd = np.sqrt(1.0 + own[i])
        for c in range(classes):
            top = g[:, None, c] + sd[c] * node  # t, noise of the class
            others = [ndtr((top - g[:, None, j]) / sd[j]) for j in range(classes) if j != c]
            assert found[i, c] == pytest.approx(np.sum(weight * np.prod(others, axis=0)), abs=1e-5)


@pytest.mark.parametrize("classes", [10, LONGER(3), LONGER(26)])
def test_probabilities_where_a_posterior_ties_all_functions(classes):
    """Wide functions with two common parts, as a classifier of digits has at new inputs: correlations of 0.2 to 0.8.
    Given both parts and the value of a class the other functions are independent: three numbers are integrated.
    """
    rng = np.random.default_rng(4)
    mean, own = rng.normal(scale=45.0, size=(3, classes)), rng.uniform(300.0, 900.0, (3, classes))
    first, second = rng.uniform(15.0, 35.0, (3, classes)), rng.normal(scale=10.0, size=(3, classes))
    covariance = own[:, :, None] * np.eye(classes)
    for part in (first, second):
        covariance = covariance + part[:, :, None] * part[:, None, :]
    found = ClassPredictive(Normal(mean, np.diagonal(covariance, axis1=1, axis2=2), covariance)).probabilities
    node = np.linspace(-6.5, 6.5, 33)
    weight = norm.pdf(node) * (node[1] - node[0])
    for i, c in np.ndindex(found.shape):
        sd = np.sqrt(1.0 + own[i])
        g = mean[i] + node[:, None, None] * first[i] + node[:, None] * second[i]  # first, second, classes
        top = g[:, :, c, None] + sd[c] * node
        others = np.ones_like(top)
        for j in range(classes):
            if j != c:
                others = others * ndtr((top - g[:, :, j, None]) / sd[j])
        assert found[i, c] == pytest.approx(np.einsum("i,j,k,ijk", weight, weight, weight, others), abs=1e-4)


def test_errors_of_few_classes_that_cancel_in_the_sum_are_seen():
    mean = np.array([1.489268951324601, -4.941215482411521, 17.747506718145612])
    covariance = np.array(
        [
            [3607.6775660448066, 2072.8073751103384, -839.1157886867886],
            [2072.8073751103384, 1320.3768516055247, -984.4135641500105],
            [-839.1157886867886, -984.4135641500105, 2866.5566696219303],
        ]
    )
    found = ClassPredictive(Normal(mean[None], np.diagonal(covariance)[None], covariance[None])).probabilities[0]
    expected = [largest(mean, covariance + np.eye(3), c) for c in range(3)]
    np.testing.assert_allclose(found, expected, atol=3e-5)


def test_nearly_independent_functions_need_few_points(monkeypatch):
    """Ten functions as a posterior has them: independent but for a part that all share, which no class sees."""
    rng = np.random.default_rng(3)
    mean, own, shared = rng.normal(scale=3.0, size=(6, 10)), rng.uniform(1.0, 6.0, (6, 10)), 2.5
    covariance = own[:, :, None] * np.eye(10) + shared
    points, over = [], predictive._over
    monkeypatch.setattr(predictive, "_over", lambda model, rule, *rest: points.append(rule) or over(model, rule, *rest))
    found = ClassPredictive(Normal(mean, own + shared, covariance)).log_probabilities
    assert {rule.points for rule in points} == {163}, points
    node, sd = np.linspace(-12.0, 12.0, 2001), np.sqrt(1.0 + own)
    for i, c in np.ndindex(found.shape):
        top = mean[i, c] + sd[i, c] * node  # the class's value, which no other may exceed
        others = [log_ndtr((top - mean[i, j]) / sd[i, j]) for j in range(10) if j != c]
        expected = logsumexp(norm.logpdf(node) + np.sum(others, axis=0)) + np.log(node[1] - node[0])
        assert found[i, c] == pytest.approx(expected, abs=1e-4)
        assert np.exp(found[i, c]) == pytest.approx(np.exp(expected), abs=2e-6)


def test_probabilities_far_out_keep_their_digits():
    """One function is known to be far below: P(y = 2) = E_u Φ(u − 41)Φ(u − 40), the Gaussian tail of a maximum."""
    latent = Normal(np.array([[41.0, 40.0, 0.0]]), np.zeros((1, 3)), np.zeros((1, 3, 3)))
    found = ClassPredictive(latent).log_probabilities[0, 2]
    model = likelihoods.MultinomialProbit(3)
    with jax.enable_x64(True):
        expected = float(model.log_prob(likelihoods.Datum(2.0, 1.0, 1.0), jnp.asarray(latent.mean[0])))
    assert found == pytest.approx(expected, rel=1e-4)
    assert expected < -500


def test_leaving_a_datum_out_leaves_out_all_its_factors(by_ep):
    """The posterior with the sites of one datum set to nothing predicts it as `loo` says."""
    for i in (0, 4, 9):
        keep = np.repeat(np.arange(len(X)) != i, 2)
        sites = Natural(np.where(keep, by_ep.sites.nu, 0.0), np.where(keep, by_ep.sites.tau, 0.0))
        without = ClassSolution(replace(by_ep.factors, sites=sites))
        assert by_ep.loo[i] == pytest.approx(without.predict_y(X[i : i + 1]).log_prob(Y[i])[0], abs=1e-5)


def test_draws_are_of_the_joint_posterior(by_ep):
    new = np.array([[-0.4], [0.5]])
    joint, draws = by_ep.predict(new, full_cov=True), by_ep.sample(new, 40_000, seed=1)
    one = by_ep.predict(new)
    np.testing.assert_allclose(joint.mean, one.mean, atol=1e-12)
    np.testing.assert_allclose(joint.covariance[[0, 1], :, [0, 1], :], one.covariance, atol=1e-10)
    flat = draws.reshape(len(draws), -1)
    np.testing.assert_allclose(flat.mean(axis=0), one.mean.ravel(), atol=0.03)
    np.testing.assert_allclose(np.cov(flat.T), joint.covariance.reshape(6, 6), atol=0.05)
    classes = by_ep.predict_y(new).sample(40_000, seed=2)
    np.testing.assert_allclose((classes == 1).mean(axis=0), by_ep.predict_y(new).probabilities[:, 1], atol=0.01)


def test_weights_are_repeated_rows(by_ep):
    model, weights = by_ep.model, np.array([1, 2, 0, 1, 1, 1, 1, 1, 1, 1])
    found = infer(model, X, Y, "ep", weights=weights, tol=1e-11)
    expected = infer(model, np.repeat(X, weights, axis=0), np.repeat(Y, weights), "ep", tol=1e-11)
    assert found.log_evidence == expected.log_evidence
    np.testing.assert_array_equal(found.y, np.repeat(Y, weights))


@pytest.mark.parametrize(
    ("model", "y", "more", "words"),
    [
        (JOINT, Y + 0.5, {}, r"y\[0\] = 0.5 is outside the support"),
        (JOINT, Y, {"weights": np.full(10, 0.5)}, "weights must be integers"),
        (Model(KERNEL, likelihoods.MultinomialProbit(2)), Y, {}, "classes - 1|classes − 1"),
        (Model(EACH, likelihoods.MultinomialProbit()), Y + 1, {}, "the number of classes differs: 4 in y"),
        (Model(KERNEL, likelihoods.MultinomialProbit(), Parameter(1.0)), Y, {}, "cancels"),
        (Model(KERNEL, likelihoods.MultinomialProbit(), process=Markov()), Y, {}, "process must be Dense"),
        (JOINT, Y, {"exposure": 2.0}, "exposure was given"),
        (JOINT, np.where(Y == 1, 10**6, Y), {}, "no row of class 1, but of class 1000000: number the classes"),
        (
            Model(EACH, likelihoods.Probit()),
            np.sign(Y - 0.5),
            {},
            "PerClass has one latent function per class, but the probit",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(model, y, more, words):
    with pytest.raises(ValueError, match=words):
        infer(model, X, y, "ep", **more)


# --- estimators ------------------------------------------------------------------------------------------------------


def test_leave_one_out_densities_are_of_the_rows_that_were_written_out():
    x, y, weights = np.arange(6.0)[:, None], np.array(list("abcabc")), np.array([0, 2, 1, 1, 1, 1])
    classifier = GaussianProcessClassifier(multi_class="joint", method="ep", optimizer=None)
    found, expected = classifier.fit(x, y, weights), GaussianProcessClassifier(**classifier.get_params())
    expected.fit(np.repeat(x, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(found.loo_, expected.loo_, atol=1e-7)
    np.testing.assert_array_equal(found.base_estimator_.X_train_, expected.base_estimator_.X_train_)


def test_the_classifier_learns_all_classes_jointly(tmp_path):
    labels = np.array(["ash", "oak", "elm"])[Y]
    model = GaussianProcessClassifier(multi_class="joint", method="ep").fit(X, labels)
    new = np.array([[0.1], [-1.3]])
    kernel = model.solution_.model.kernel
    direct = infer(Model(kernel, likelihoods.MultinomialProbit()), X, np.searchsorted(model.classes_, labels), "ep")
    expected = direct.predict_y(new).probabilities
    np.testing.assert_allclose(model.predict_proba(new), expected, atol=1e-6)
    np.testing.assert_array_equal(model.predict(new), model.classes_[expected.argmax(axis=1)])
    assert model.latent(new)[0].shape == (2, 3)
    assert model.loo_.shape == (10,)
    value, slope = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(model.log_marginal_likelihood_value_, abs=1e-6)
    assert np.abs(slope).max() < 1e-3
    model.save(tmp_path / "trees.safetensors")
    back = load(tmp_path / "trees.safetensors")
    np.testing.assert_array_equal(back.predict_proba(new), model.predict_proba(new))
    assert back.log_marginal_likelihood(back.kernel_.theta) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(("data", "every"), [(load_iris, 4), LONGER(load_iris, 1), LONGER(load_wine, 1)])
def test_a_short_search_of_joint_classes_ends_at_the_optimum(data, every):
    """The optimum is that of a search that goes on until the gradient vanishes."""
    x, y = data(return_X_y=True)
    x, y = ((x - x.mean(0)) / x.std(0))[::every], y[::every]
    kernel = kernels.SquaredExponential(Parameter(1.0, bounds=(1e-3, 1e5)), 1.5)
    model = Model(kernel, likelihoods.MultinomialProbit())
    found, expected = (fit(model, x, y, gtol=gtol) for gtol in (1e-4, 1e-7))
    assert found.status.reason == "converged"
    assert len(found.trace) <= 14
    assert found.objective_value == pytest.approx(expected.objective_value, rel=1e-6)
    probabilities = [one.solution.predict_y(x + 0.1).probabilities for one in (found, expected)]
    np.testing.assert_allclose(*probabilities, atol=1e-4)


def test_overlapping_classes_are_learned_from_the_start_that_is_better():
    """Classes that x does not separate: a search from the larger variance alone would have far to come back."""
    y = np.random.default_rng(3).integers(0, 3, 36)
    x = np.random.default_rng(4).normal(size=(36, 1))
    found = fit(Model(kernels.SquaredExponential(1.0, 1.0), likelihoods.MultinomialProbit()), x, y)
    visited = [step.theta[0] for step in found.trace]
    assert visited[0] == pytest.approx(np.log(1000.0))
    assert visited[1] == pytest.approx(0.0)
    assert found.objective_value >= max(step.value for step in found.trace) - 1e-6


def test_a_joint_classifier_is_of_probits():
    with pytest.raises(ValueError, match=r"likelihood must be 'probit'.*one_vs_rest"):
        GaussianProcessClassifier(multi_class="joint", likelihood="logit").fit(X, Y)
