"""Stacks: their weights, the correction of left-out densities, predictions, files, and what is refused."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import norm

from quantprop import LogNormal, Model, Parameter, fit, kernels, likelihoods, load, stack
from quantprop.learning.stacking import best_weights, corrected_loo

RNG = np.random.default_rng(1)
X = RNG.normal(size=(40, 2))
F = 1.2 * X[:, 0] + np.sin(2.5 * X[:, 1])
Y = F + 0.4 * RNG.normal(size=40)
SIGNS = np.where(F + 0.5 * RNG.normal(size=40) > 0, 1.0, -1.0)
NEW = RNG.normal(size=(7, 2))


def smooth(*lengthscale):
    return kernels.SquaredExponential(
        Parameter(1.0, prior=LogNormal(1.0, 1.5)), np.array(lengthscale or (1.0,)).squeeze()
    )


@pytest.fixture(scope="module")
def numbers():
    each = {"linear": kernels.Linear(), "smooth": smooth(), "ard": smooth(np.ones(2))}
    return {name: fit(Model(kernel, likelihoods.Gaussian(0.3)), X, Y, "ep") for name, kernel in each.items()}


@pytest.fixture(scope="module")
def classes():
    each = {"linear": kernels.Linear(), "smooth": smooth()}
    return {name: fit(Model(kernel, likelihoods.Probit()), X, SIGNS, "qp") for name, kernel in each.items()}


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_weights_are_the_maximum_by_another_optimiser(seed):
    rng = np.random.default_rng(seed)
    logs, rows = rng.normal(size=(4, 60)) + rng.normal(size=(4, 1)), rng.integers(0, 3, size=60).astype(float)

    def minus(u):
        log_w = u - logsumexp(u)
        return -(rows @ logsumexp(logs + log_w[:, None], axis=0) + 0.5 * log_w.sum())

    found = minimize(
        minus, np.zeros(4), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 20_000}
    )
    w = best_weights(logs, rows)
    assert w.sum() == pytest.approx(1.0, abs=1e-12)
    assert minus(np.log(w)) <= found.fun + 2e-7
    np.testing.assert_allclose(w, np.exp(found.x - logsumexp(found.x)), atol=2e-4)


def test_rows_of_no_weight_do_not_count():
    logs = RNG.normal(size=(2, 20))
    rows = np.r_[np.ones(18), 0.0, 0.0]
    lost = np.column_stack([logs[:, :18], [np.nan, -np.inf], [1.0, 2.0]])
    np.testing.assert_allclose(best_weights(lost, rows), best_weights(logs[:, :18], np.ones(18)), atol=1e-12)


def test_equal_densities_have_equal_weights_whatever_their_size():
    logs = np.repeat(RNG.normal(size=(1, 30)) - 800.0, 3, axis=0)  # densities that underflow
    np.testing.assert_allclose(best_weights(logs, np.ones(30)), 1.0 / 3.0, atol=1e-12)


# --- the correction --------------------------------------------------------------------------------------------------


def gaussian_loo(theta):
    """log p(y_i | the other rows) of a squared exponential with Gaussian noise, each row left out in fact."""
    variance, lengthscale, scale = np.exp(theta)
    k = variance * np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1) / lengthscale**2) + scale**2 * np.eye(len(X))
    found = []
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        weights = np.linalg.solve(k[np.ix_(rest, rest)], k[rest, i])
        found.append(norm.logpdf(Y[i], weights @ Y[rest], np.sqrt(k[i, i] - weights @ k[rest, i])))
    return np.array(found)


def test_the_correction_is_that_of_dense_algebra(numbers):
    fitted = numbers["smooth"]
    np.testing.assert_allclose(fitted.solution.loo, gaussian_loo(fitted.theta), atol=1e-9)
    h = 1e-5
    g = np.stack(
        [(gaussian_loo(fitted.theta + h * e) - gaussian_loo(fitted.theta - h * e)) / (2 * h) for e in np.eye(3)], 1
    )
    curvature = g.T @ g + np.diag([1.0 / 1.5**2, 0.0, 0.0])  # a log-normal prior of the variance, deviation 1.5
    taken = np.einsum("ij,jk,ik->i", g, np.linalg.inv(curvature), g)
    found = corrected_loo(fitted)
    np.testing.assert_allclose(found.loo, fitted.solution.loo - taken, atol=2e-3 * taken.max())
    assert found.learned == pytest.approx(taken.sum(), rel=2e-3)
    assert 0.0 < found.learned < 3.0


def test_the_correction_does_not_depend_on_the_unit_of_y():
    def learned(scale):
        noise = likelihoods.Gaussian(Parameter(0.3 * scale, (1e-3 * scale, 10.0 * scale)))
        model = Model(kernels.Constant(Parameter(scale**2, fixed=True)) * smooth(), noise, mean=Parameter(0.0))
        return corrected_loo(fit(model, X, Y * scale, "ep")).learned

    assert learned(1e6) == pytest.approx(learned(1.0), rel=1e-3)


def test_what_is_fixed_needs_no_correction():
    model = Model(
        kernels.SquaredExponential(Parameter(1.0, fixed=True), Parameter(1.0, fixed=True)), likelihoods.Probit()
    )
    found = corrected_loo(fit(model, X, SIGNS, "ep"))
    assert found.learned == 0.0


# --- predictions -----------------------------------------------------------------------------------------------------


def test_the_stack_predicts_the_weighted_distributions(numbers):
    found = stack(numbers)
    assert [one.name for one in found.members] == list(numbers)
    w, y = found.weights, np.linspace(-2.0, 2.0, 7)
    assert w.sum() == pytest.approx(1.0, abs=1e-12)
    each = [one.solution.predict_y(NEW) for one in numbers.values()]
    predicted = found.predict_y(NEW)
    np.testing.assert_allclose(
        predicted.log_prob(y), logsumexp([one.log_prob(y) for one in each], axis=0, b=w[:, None])
    )
    np.testing.assert_allclose(predicted.cdf(predicted.quantile(0.9)), 0.9, atol=1e-8)
    joint = found.predict(NEW, full_cov=True)
    posteriors = [one.solution.predict(NEW, full_cov=True) for one in numbers.values()]
    mean = sum(a * f.mean for a, f in zip(w, posteriors, strict=True))
    second = sum(a * (f.covariance + np.outer(f.mean, f.mean)) for a, f in zip(w, posteriors, strict=True))
    np.testing.assert_allclose(joint.covariance, second - np.outer(mean, mean), atol=1e-12)
    draws = found.sample(NEW, 4000, seed=3)
    error = np.sqrt(np.diag(joint.covariance) / len(draws))
    assert (np.abs(draws.mean(axis=0) - mean) < 5.0 * error).all()


def test_the_score_is_that_of_left_out_rows(classes):
    found = stack(classes)
    assert found.heaviest.weight == found.weights.max()
    np.testing.assert_allclose(found.loo, logsumexp([m.loo for m in found.members], axis=0, b=found.weights[:, None]))
    for one in found.members:
        assert one.score == pytest.approx(one.loo.mean(), abs=1e-12)
        assert one.loo.mean() < one.fitted.solution.loo.mean()


def test_rows_of_weight_two_count_twice():
    weights = np.r_[2.0, np.ones(38), 0.0]
    rows = np.r_[0, np.arange(39)]
    each = {"linear": kernels.Linear(), "smooth": smooth()}
    weighted = stack({n: fit(Model(k, likelihoods.Probit()), X, SIGNS, "ep", weights=weights) for n, k in each.items()})
    written = stack({n: fit(Model(k, likelihoods.Probit()), X[rows], SIGNS[rows], "ep") for n, k in each.items()})
    np.testing.assert_allclose(weighted.weights, written.weights, atol=1e-4)


@pytest.mark.campaign
def test_joint_classes_average_their_probabilities():
    y = np.digitize(F, [-0.5, 0.5])
    fits = [fit(Model(kernel, likelihoods.MultinomialProbit(3)), X, y, "ep") for kernel in (kernels.Linear(), smooth())]
    found = stack(fits)
    each = [one.solution.predict_y(NEW).probabilities for one in fits]
    p = found.predict_y(NEW).probabilities
    np.testing.assert_allclose(p, np.tensordot(found.weights, each, 1), atol=1e-12)
    drawn = found.predict_y(NEW).sample(4000, seed=1)
    shares = np.stack([(drawn == k).mean(axis=0) for k in range(3)], axis=1)
    assert (np.abs(shares - p) < 5.0 * np.sqrt(p * (1.0 - p) / 4000) + 1e-12).all()
    mean = sum(w * one.solution.predict(NEW).mean for w, one in zip(found.weights, fits, strict=True))
    np.testing.assert_allclose(found.sample(NEW, 4000).mean(axis=0), mean, atol=0.2)
    with pytest.raises(ValueError, match=r"predict_y\(X\).sample"):
        found.sample_y(NEW, 3)


# --- what does not enter, and files ----------------------------------------------------------------------------------


def test_equal_models_count_once(numbers):
    found = stack({**numbers, "again": numbers["smooth"]})
    assert found.left_out == {"again": "equal to smooth"}
    np.testing.assert_allclose(found.weights, stack(numbers).weights)


def test_models_that_have_not_converged_are_named(numbers):
    early = fit(Model(smooth(0.1), likelihoods.Gaussian(2.0)), X, Y, "ep", max_evaluations=2)
    found = stack({**numbers, "early": early})
    assert "max-evaluations" in found.left_out["early"]
    with pytest.raises(ValueError, match="no model could be stacked: model 1: learning ended max-evaluations"):
        stack([early])


def test_other_rows_are_refused(numbers, classes):
    other = fit(Model(kernels.Linear(), likelihoods.Gaussian(0.3)), X[:-1], Y[:-1], "ep")
    with pytest.raises(ValueError, match="X of other and linear differ"):
        stack({**numbers, "other": other})
    with pytest.raises(ValueError, match="y of signs and linear differ"):
        stack({**numbers, "signs": classes["linear"]})
    with pytest.raises(TypeError, match="what fit returned"):
        stack({"solution": numbers["linear"].solution})
    with pytest.raises(ValueError, match="one model or more"):
        stack([])


def test_a_stored_stack_predicts_the_same(numbers, tmp_path):
    found = stack({**numbers, "again": numbers["ard"]})
    found.save(tmp_path / "stack.safetensors")
    again = load(tmp_path / "stack.safetensors")
    assert np.array_equal(again.predict_y(NEW).quantile(0.1), found.predict_y(NEW).quantile(0.1))
    assert np.array_equal(again.loo, found.loo)
    assert repr(again) == repr(found)
