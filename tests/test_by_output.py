"""Several outputs with a likelihood each: independent ones are separate models; tied ones borrow from each other."""

import numpy as np
import pytest

import quantprop
from quantprop import EP, QP, VB, Laplace, Model, PowerEP, fit, infer, integrate, kernels, likelihoods
from quantprop.core.parameters import packed
from quantprop.inference.task import prepare
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective

N = 20
RNG = np.random.default_rng(0)
T = RNG.uniform(-3.0, 3.0, (2, N))
COUNTS = RNG.poisson(np.exp(np.sin(T[0]) + 0.5)).astype(float)
CLASSES = np.where(2.0 * np.sin(T[1]) + RNG.normal(size=N) > 0, 1.0, -1.0)
X = np.column_stack([T.ravel(), np.repeat([0.0, 1.0], N)])
Y = np.column_stack([np.concatenate([COUNTS, CLASSES]), X[:, 1]])
MIXED = RNG.permutation(2 * N)  # rows of both outputs between each other
PARTS = likelihoods.NegativeBinomial(0.5), likelihoods.Probit()
METHODS = {"ep": EP(), "qp": QP(), "qp-1": QP(1.0), "power-ep": PowerEP(0.5), "vb": VB(), "laplace": Laplace()}


def kernel_of(weights, own):
    return kernels.SquaredExponential(1.3, 0.8).on(0) * kernels.Coregion(1, 2, weights, own).on(1)


def both(method):
    """The joint solution of two independent outputs, in the order of the separate ones, and those."""
    model = Model(kernel_of([[0.0], [0.0]], [1.0, 2.0]), likelihoods.ByOutput(PARTS))
    joint = infer(model, X[MIXED], Y[MIXED], method, tol=1e-12, max_sweeps=500)
    apart = [
        infer(Model(kernels.SquaredExponential(1.3 * own, 0.8), part), t[:, None], y, method, tol=1e-12, max_sweeps=500)
        for own, part, t, y in zip((1.0, 2.0), PARTS, T, (COUNTS, CLASSES), strict=True)
    ]
    return joint, apart, np.argsort(MIXED)


def check_independent(method):
    joint, apart, order = both(method)
    assert joint.converged
    assert joint.log_evidence == pytest.approx(sum(one.log_evidence for one in apart), abs=1e-8)
    for name in ("mean", "variance"):
        found = getattr(joint.marginals, name)[order]
        np.testing.assert_allclose(found, np.concatenate([getattr(one.marginals, name) for one in apart]), atol=1e-8)
    np.testing.assert_allclose(joint.loo[order], np.concatenate([one.loo for one in apart]), atol=1e-8)
    for k, one in enumerate(apart):
        new = np.linspace(-2.0, 2.0, 3)
        alone = one.predict_y(new[:, None])
        within = joint.predict_y(np.column_stack([new, np.full(3, k)]), output=k)
        np.testing.assert_allclose(within.mean, alone.mean, atol=1e-8)
        np.testing.assert_array_equal(within.quantile(0.9), alone.quantile(0.9))


def test_independent_outputs_are_separate_models():
    check_independent(METHODS["laplace"])


@pytest.mark.campaign
@pytest.mark.parametrize("method", METHODS)
def test_independent_outputs_are_separate_models_by_every_method(method):
    check_independent(METHODS[method])


def gradient_error(method, objective):
    """Of all seven numbers, those of the likelihoods and of their covariance among them, against differences."""
    model = Model(kernel_of([[0.7], [-0.4]], [0.3, 0.6]), likelihoods.ByOutput(PARTS))
    task = prepare(model, X, Y, method, None, None, None)
    surface = Landscape(model, task, method, as_objective(objective), True, tol=1e-12, max_sweeps=500)
    theta = packed(surface.parts)
    at, step = surface.from_cold(theta), 1e-4
    assert at.reason == "converged"
    assert len(theta) == 7
    numeric = [(surface.from_cold(theta + e).value - surface.from_cold(theta - e).value) / (2 * step)
               for e in step * np.eye(len(theta))]  # fmt: skip
    return np.linalg.norm(at.gradient - numeric) / np.linalg.norm(numeric)


@pytest.mark.parametrize(("method", "objective"), [
    pytest.param(method, objective, marks=[pytest.mark.campaign] * ((method, objective) != ("laplace", "evidence")))
    for method in ("ep", "qp", "power-ep", "vb", "laplace") for objective in ("evidence", "loo")
])  # fmt: skip
def test_gradients(method, objective):
    assert gradient_error(METHODS[method], objective) <= 1e-5


@pytest.mark.campaign
def test_classes_borrow_from_counts():
    """Classes were seen for t < 0 only, counts of the same function everywhere: they say what the classes are at t > 0,
    where the classes' own model knows next to nothing.
    """
    rng = np.random.default_rng(1)
    t, seen, new = np.linspace(-3.0, 3.0, 60), np.linspace(-3.0, 0.0, 30), np.linspace(0.5, 3.0, 40)

    def f(t):
        return 1.5 * np.sin(2.0 * t)

    counts = rng.poisson(np.exp(1.0 + f(t)))
    classes, later = (np.where(3.0 * f(at) + rng.normal(size=len(at)) > 0, 1.0, -1.0) for at in (seen, new))
    rows = np.column_stack([np.concatenate([t, seen]), np.repeat([0.0, 1.0], [60, 30])])
    y = np.column_stack([np.concatenate([counts, classes]), rows[:, 1]])
    kernel = kernels.SquaredExponential(quantprop.Parameter(1.0, fixed=True), 1.0).on(0) * kernels.Coregion(1, 2).on(1)
    joint = fit(Model(kernel, likelihoods.ByOutput((likelihoods.Poisson(), likelihoods.Probit()))), rows, y, "ep")
    alone = fit(Model(kernels.SquaredExponential(), likelihoods.Probit()), seen[:, None], classes, "ep")
    borrowed = joint.solution.predict_y(np.column_stack([new, np.ones(40)]), output=1).log_prob(later).mean()
    own = alone.solution.predict_y(new[:, None]).log_prob(later).mean()
    assert borrowed > own + 0.3
    assert borrowed > np.log(0.5)
    covariance = np.asarray(joint.solution.model.plain_kernel.right.kernel.covariance())
    assert covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]) > 0.5


@pytest.mark.campaign
def test_a_likelihood_far_from_its_rows_does_not_reach_the_others():
    """exp(f) of f = 900 overflows; the Gaussian rows have such f, the counts do not."""
    kernel = kernels.Categories(1e6).on(0)
    model = Model(kernel, likelihoods.ByOutput((likelihoods.Gaussian(1.0), likelihoods.Poisson())))
    method = QP()
    task = prepare(model, np.array([[0.0], [1.0]]), np.array([[900.0, 0.0], [3.0, 1.0]]), method, None, None, None)
    surface = Landscape(model, task, method, as_objective("evidence"))
    at = surface.from_cold(packed(surface.parts))
    assert np.isfinite([at.value, *at.gradient]).all()


def test_an_estimator_of_one_output_refuses_it():
    with pytest.raises(ValueError, match=r"predicts one output.*predict_y\(X, output=k\)"):
        quantprop.GaussianProcessRegressor(likelihood=likelihoods.ByOutput(PARTS)).fit(X, Y)


def test_rows_of_no_level_are_named():
    x, weights = X.copy(), np.ones(2 * N)
    x[[1, 3], 1], weights[1] = 2.0, 0.0  # the first of them does not count
    model = Model(kernel_of([[0.7], [-0.4]], [0.3, 0.6]), likelihoods.ByOutput(PARTS))
    with pytest.warns(kernels.NewLevelWarning, match=r"X\[3, 1\] = 2 is not a level of Coregion\(levels=2\)") as said:
        infer(model, x, Y, "laplace", weights=weights)
    assert said[0].filename == __file__


def test_files_keep_it(tmp_path):
    model = Model(kernel_of([[0.7], [-0.4]], [0.3, 0.6]), likelihoods.ByOutput(PARTS))
    fitted = fit(model, X, Y, "laplace", max_evaluations=2)
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    back = quantprop.load(path)
    assert repr(back.model) == repr(fitted.model)
    found, expected = (one.solution.predict_y(X[::7], output=0).mean for one in (back, fitted))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.campaign
def test_exposure_is_that_of_the_outputs_that_have_one():
    model = Model(kernel_of([[0.7], [-0.4]], [0.3, 0.6]), likelihoods.ByOutput((likelihoods.Poisson(), PARTS[1])))
    twice = infer(model, X, Y, "laplace", exposure=np.where(X[:, 1] == 0, 2.0, 1.0), tol=1e-12)
    more = infer(model, X, Y, "laplace", exposure=2.0, tol=1e-12)
    assert twice.log_evidence == pytest.approx(more.log_evidence, abs=1e-10)
    assert abs(twice.log_evidence - infer(model, X, Y, "laplace").log_evidence) > 0.1


@pytest.mark.campaign
def test_draws_of_an_average_are_those_of_an_output():
    model = Model(kernel_of([[0.7], [-0.4]], [0.3, 0.6]), likelihoods.ByOutput(PARTS))
    found = integrate(fit(model, X, Y, "laplace", max_evaluations=3))
    new = X[X[:, 1] == 0][:3]
    draws = found.sample_y(new, 20_000, output=0)
    there = found.predict_y(new, output=0)
    np.testing.assert_allclose(draws.mean(0), there.mean, atol=5.0 * np.sqrt(there.variance.max() / 20_000))
    with pytest.raises(ValueError, match="output must be one of 0, 1"):
        found.sample_y(new, 3)


@pytest.mark.parametrize(
    "part", [likelihoods.Censored(), likelihoods.MultinomialProbit(), likelihoods.ByOutput((likelihoods.Probit(),))]
)
def test_likelihoods_of_several_numbers_are_refused(part):
    with pytest.raises(ValueError, match=f"ByOutput: {type(part).__name__} cannot be one of several outputs"):
        likelihoods.ByOutput((likelihoods.Probit(), part))


def test_what_is_wrong_is_said():
    model = Model(kernel_of([[0.7], [-0.4]], [0.3, 0.6]), likelihoods.ByOutput(PARTS))
    with pytest.raises(TypeError, match="must be a tuple of likelihoods"):
        likelihoods.ByOutput(("probit",))
    with pytest.raises(ValueError, match=r"y must have shape \(40, 2\)"):
        infer(model, X, Y[:, 0], "laplace")
    wrong = Y.copy()
    wrong[3] = (2.5, 0.0)
    with pytest.raises(ValueError, match="outside the support of the by-output likelihood"):
        infer(model, X, wrong, "laplace")
    wrong[3] = (2.0, 2.0)
    with pytest.raises(ValueError, match="outside the support of the by-output likelihood"):
        infer(model, X, wrong, "laplace")
    solution = infer(model, X, Y, "laplace")
    with pytest.raises(ValueError, match="output must be one of 0, 1, which applies to all new rows"):
        solution.predict_y(X[:2])
    for output in (1.0, True, X[:2, 1]):  # a number of the column of X, say
        with pytest.raises(ValueError, match="output must be one of 0, 1, which applies to all new rows"):
            solution.predict_y(X[:2], output=output)
    with pytest.raises(ValueError, match="output was given, but the probit likelihood has a single output"):
        infer(Model(kernels.SquaredExponential(), likelihoods.Probit()), T[1][:, None], CLASSES, "ep").predict_y(
            [[0.0]], output=1
        )
