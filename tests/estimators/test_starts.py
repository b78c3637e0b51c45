"""Where the estimators start: models do not depend on the units of X and y, and do not end in poor optima."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import cross_val_score

import quantprop
from quantprop import (
    GaussianProcessClassifier,
    GaussianProcessRanker,
    GaussianProcessRegressor,
    Parameter,
    fit,
    likelihoods,
)
from quantprop.core.parameters import declared, named
from quantprop.estimators.first_kernel import WEAK_PRIOR
from quantprop.learning.sizes import size_of
from quantprop.likelihoods import Gaussian, Likelihood

N = 30
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(0, 6, N))[:, None]
F = np.sin(X[:, 0])
NEW = np.linspace(-0.5, 6.5, 8)[:, None]
PLANE = np.random.default_rng(5).normal(size=(N, 2))
campaign = pytest.mark.campaign

REAL = F + 0.3 * RNG.normal(size=N)
LIMIT = np.where(REAL > 0.8, 0.8, REAL)
CENSORED = np.column_stack([LIMIT, np.where(REAL > 0.8, np.inf, LIMIT)])
SCALED = {  # regressors whose y may have any unit
    "gaussian": ({"likelihood": Gaussian(), "method": "ep"}, REAL),
    "gaussian, constant mean": ({"likelihood": Gaussian(), "method": "ep", "mean": "constant"}, REAL + 5.0),
    "gaussian, ard": ({"likelihood": Gaussian(), "method": "ep", "kernel": "ard"}, REAL),
    "student-t": ({"likelihood": "student-t", "method": "laplace"}, REAL),
    "student-t, vb": ({"likelihood": "student-t", "method": "vb"}, REAL),
    "double-exponential": ({"likelihood": "double-exponential", "method": "ep"}, REAL),
    "censored": ({"likelihood": "censored", "method": "laplace"}, CENSORED),
    "warped": ({"likelihood": "warped", "method": "ep", "mean": "constant"}, np.exp(REAL)),
}
COUNTS = np.round(np.exp(1.0 + F))
OTHERS = {  # f has a scale of its own, X may have any unit
    "poisson": ({"likelihood": "poisson", "method": "laplace"}, COUNTS),
    "poisson, constant mean": ({"likelihood": "poisson", "method": "laplace", "mean": "constant"}, COUNTS),
    "negative-binomial": ({"likelihood": "negative-binomial", "method": "laplace"}, COUNTS),
    "gamma": ({"likelihood": "gamma", "method": "laplace"}, np.exp(REAL)),
    "beta": ({"likelihood": "beta", "method": "laplace"}, 1.0 / (1.0 + np.exp(-REAL))),
    "ordinal": ({"likelihood": likelihoods.Ordinal([-0.3, 0.3]), "method": "laplace"}, np.digitize(REAL, [-0.3, 0.3])),
}
BY_DEFAULT = ("gaussian", "poisson")


def cases(table):
    return [pytest.param(*table[name], id=name, marks=() if name in BY_DEFAULT else campaign) for name in table]


def numbers(settings, y, x_unit=1.0, y_unit=1.0):
    """Everything that a regressor says, in units of x_unit and y_unit: its numbers, predictions and evidence."""
    model = GaussianProcessRegressor(**settings).fit(x_unit * X, y_unit * y)
    mean, deviation = model.predict(x_unit * NEW, return_std=True)
    variance, lengthscale = np.exp(model.kernel_.theta[0]) / y_unit**2, np.exp(model.kernel_.theta[1:]) / x_unit
    noise = [] if model.likelihood_.noise_name is None else [model.likelihood_.scale / y_unit]
    density = model.log_marginal_likelihood_value_ + (y.ndim == 1) * N * np.log(y_unit)  # censored: see below
    said = [[variance], lengthscale, noise, mean / y_unit, deviation / y_unit, [density]]
    return np.concatenate(said[: 6 if y.ndim == 1 else 5])  # densities of some rows, probabilities of others


@pytest.mark.parametrize(("settings", "y"), cases(SCALED))
def test_the_unit_of_y_does_not_matter(settings, y):
    base = numbers(settings, y)
    for unit in (1e6, 1e-6):
        np.testing.assert_allclose(numbers(settings, y, y_unit=unit), base, rtol=1e-6, atol=1e-6)


@campaign
@pytest.mark.parametrize("likelihood", ["weibull", "log-logistic"])
def test_the_unit_of_times_only_moves_f(likelihood):
    """log y = f + scale · ε: years or seconds, the model is the same, and its predictions change their unit."""
    times = np.exp(np.where(np.isfinite(CENSORED), CENSORED, np.inf))
    said = []
    for unit in (1.0, 1e6, 1e-6):
        model = GaussianProcessRegressor(likelihood=likelihood, method="laplace", mean="constant").fit(X, unit * times)
        theta, scale = model.kernel_.theta, model.likelihood_.scale
        level, quantiles = model.mean_ - np.log(unit), model.predict_quantiles(NEW, [0.1, 0.9]) / unit
        said.append(np.concatenate([theta, [scale, level], quantiles.ravel()]))
    np.testing.assert_allclose(said[1], said[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(said[2], said[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("settings", "y"), cases(SCALED | OTHERS))
def test_the_unit_of_x_does_not_matter(settings, y):
    base = numbers(settings, y)
    for unit in (1e6, 1e-6):
        np.testing.assert_allclose(numbers(settings, y, x_unit=unit), base, rtol=1e-6, atol=1e-6)


AGE = np.sort(np.random.default_rng(9).integers(40, 80, N)).astype(float)[:, None]  # with repeated rows
BARE = {  # (estimator, X, y, whether y has a unit)
    "regressor": (GaussianProcessRegressor(), X, REAL, True),
    "ard": (GaussianProcessRegressor("ard"), np.column_stack([X, PLANE]), REAL, True),
    "repeated rows": (GaussianProcessRegressor(), AGE, REAL, True),
    "terms": (GaussianProcessRegressor("se(0) + linear(1)"), PLANE, REAL + PLANE[:, 1], True),
    "white": (GaussianProcessRegressor("se(0) + white()"), X, REAL, True),
    "constant mean": (GaussianProcessRegressor(mean="constant"), X, REAL + 3.0, True),
    "integrated": (GaussianProcessRegressor(hyperparameters="integrated"), X, REAL, True),
    "student-t": (GaussianProcessRegressor(likelihood="student-t"), X, REAL, True),
    "double-exponential": (GaussianProcessRegressor(likelihood="double-exponential"), X, REAL, True),
    "warped": (GaussianProcessRegressor(likelihood="warped"), X, np.exp(REAL), True),
    "poisson": (GaussianProcessRegressor(likelihood="poisson", method="laplace"), X, COUNTS, False),
    "ordinal": (GaussianProcessRegressor(likelihood="ordinal", method="laplace"), X, np.round(REAL), False),
    "increasing": (GaussianProcessRegressor(monotone={0: 1}), X, REAL, True),
    "classifier": (GaussianProcessClassifier(), X, REAL > 0, False),
    "joint classes": (GaussianProcessClassifier(multi_class="joint"), X, np.digitize(REAL, [-0.3, 0.3]), False),
    "ranker": (GaussianProcessRanker(), X, np.argsort(REAL).reshape(-1, 2)[:, ::-1], False),
}
QUICK = ("regressor", "ard", "repeated rows", "terms", "white")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else campaign) for n in BARE])
def test_no_default_estimator_depends_on_units(name):
    """The objective, after the Jacobian of y's unit, to 1e-6; and what is predicted."""
    estimator, x, y, measured = BARE[name]

    def said(x_unit, y_unit):
        model = clone(estimator).fit(x_unit * x, y_unit * y if measured else y)
        way = model.predict_quantiles if measured else getattr(model, "predict_log_proba", model.predict)
        objective = model.log_marginal_likelihood_value_ + measured * len(y) * np.log(y_unit)
        return objective, way(x_unit * (x[::3] + 0.1)) / y_unit

    base = said(1.0, 1.0)
    for units in ((1e6, 1.0), (1e-6, 1.0), *([(1.0, 1e6), (1.0, 1e-6), (1e6, 1e-6)] if measured else [])):
        objective, predicted = said(*units)
        assert objective == pytest.approx(base[0], abs=1e-6), units
        np.testing.assert_allclose(predicted, base[1], rtol=1e-5, atol=1e-5)


def test_the_unit_of_x_does_not_matter_to_classes():
    labels = np.where(REAL > 0, "high", "low")

    def said(unit):
        model = GaussianProcessClassifier(method="laplace").fit(unit * X, labels)
        return np.concatenate([model.predict_log_proba(unit * NEW).ravel(), [model.log_marginal_likelihood_value_]])

    for unit in (1e6, 1e-6):
        np.testing.assert_allclose(said(unit), said(1.0), rtol=1e-6)


def test_noise_by_alpha_is_in_the_unit_of_y():
    """With the likelihood given by name noise is a number of the user's: the default of 1e-10 has y's unit squared."""
    base = numbers({"alpha": 0.1}, REAL[:, None][:, 0])
    for unit in (1e6, 1e-6):
        scaled = GaussianProcessRegressor(alpha=0.1 * unit**2).fit(X, unit * REAL)
        mean, deviation = scaled.predict(NEW, return_std=True)
        np.testing.assert_allclose(mean / unit, base[-2 * len(NEW) - 1 : -len(NEW) - 1], rtol=1e-6)
        np.testing.assert_allclose(deviation / unit, base[-len(NEW) - 1 : -1], rtol=1e-6)


# --- optima ----------------------------------------------------------------------------------------------------------

NOISES = {
    "gaussian": (Gaussian(), "ep", lambda rng: rng.normal(size=N)),
    "student-t": (likelihoods.StudentT(), "laplace", lambda rng: rng.standard_t(3, size=N)),
    "double-exponential": (likelihoods.DoubleExponential(), "ep", lambda rng: rng.laplace(size=N)),
}


def noisy_sine(seed, draw, unit):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 6, N))[:, None]
    return x, unit * (np.sin(x[:, 0]) + 0.5 * draw(rng))


@pytest.mark.parametrize(
    ("name", "seeds"),
    [("gaussian", range(3)), *(pytest.param(n, range(8), marks=campaign) for n in NOISES)],
)
def test_regressions_do_not_end_below_what_other_starts_reach(name, seeds):
    likelihood, method, draw = NOISES[name]
    for seed in seeds:
        ends = []
        for unit in (1.0, 100.0, 1e5):
            x, y = noisy_sine(seed, draw, unit)
            model = GaussianProcessRegressor(likelihood=likelihood, method=method).fit(x, y)
            ends.append(model.log_marginal_likelihood_value_ + N * np.log(unit))
        assert np.ptp(ends) < 1e-6
        if seed < 3:
            again = fit(model._core.landscape.model, x, y, method, restarts=3, seed=seed)
            assert again.objective_value <= model.log_marginal_likelihood_value_ + 1e-4


def test_an_optimum_that_takes_everything_for_noise_is_left():
    """A rough function in three dimensions: from the first start noise takes it all, 1.3 nats below the best end."""
    rng = np.random.default_rng([4, 7])
    x = rng.normal(size=(N, int(rng.integers(1, 4))))
    lengthscale, noise = np.exp(rng.uniform(np.log(0.1), np.log(4))), np.exp(rng.uniform(np.log(0.03), np.log(3)))
    k = np.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(-1) / lengthscale**2) + 1e-9 * np.eye(N)
    y = np.linalg.cholesky(k) @ rng.normal(size=N) + noise * rng.normal(size=N)
    fitted = GaussianProcessRegressor(likelihood=Gaussian(), method="ep").fit(x, y).fitted_
    first = max(step.value for step in fitted.trace if step.restart == 0)
    assert {step.restart for step in fitted.trace} > {0}
    assert fitted.objective_value > first + 1.0


# --- the size of y ---------------------------------------------------------------------------------------------------


def test_weights_are_repeated_rows_to_the_size_of_y():
    y, weights = RNG.normal(size=9), RNG.integers(1, 5, size=9)
    assert size_of(y, weights) == size_of(np.repeat(y, weights))


@pytest.mark.parametrize(
    ("y", "spread"),
    [
        (np.array([0.0, 1.0, 2.0, 3.0, 4.0]), 1.0 / 0.6744897501960817),
        (np.array([0.0, 1.0, 2.0, 3.0, 1e9]), 1.0 / 0.6744897501960817),  # one outlier
        (np.array([5.0, 5.0, 5.0, 5.0, 10.0]), 2.0),  # more than half equal: the standard deviation
        (np.array([-3.0, -3.0]), 3.0),
        (np.zeros(4), 1.0),
        (np.array([[0.0, 0.0], [1.0, 1.0], [1.5, 2.5], [3.0, np.inf], [-np.inf, 4.0]]), 1.0 / 0.6744897501960817),
    ],
)
def test_the_spread_of_y(y, spread):
    assert size_of(y).spread == pytest.approx(spread)


def test_numbers_of_the_users_own_are_kept():
    for scale in (0.2, 1.0):
        given = GaussianProcessRegressor(likelihood=Gaussian(scale), method="ep", optimizer=None).fit(X, 1e6 * REAL)
        assert given.likelihood_.scale == scale
    bounded = Gaussian(Parameter(0.2, bounds=(0.1, 0.3)))
    learned = GaussianProcessRegressor(likelihood=bounded, method="ep").fit(X, REAL)
    assert 0.1 <= learned.likelihood_.scale <= 0.3


# --- the prior of the default kernel's variance ----------------------------------------------------------------------


def priors(model):
    return {name: p.prior for name, p in named(declared(model.fitted_.model.kernel)) if p.prior is not None}


def test_a_weak_prior_keeps_the_variance_of_separable_classes_finite(tmp_path):
    separable = PLANE[:, 0] > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GaussianProcessClassifier(method="laplace").fit(PLANE, separable)
    assert priors(model) == {"left.variance": WEAK_PRIOR}
    variance = model.kernel_.k1.constant_value
    assert 1.0 < variance < 1e5
    assert model.score(PLANE, separable) == 1.0
    assert model.log_marginal_likelihood_value_ == pytest.approx(
        model.solution_.log_evidence - 0.5 * (np.log(variance) / 10.0) ** 2, abs=1e-6
    )
    model.save(tmp_path / "model.safetensors")
    theta = model.kernel_.theta + 0.1
    again = quantprop.load(tmp_path / "model.safetensors")
    assert again.log_marginal_likelihood(theta) == model.log_marginal_likelihood(theta)


def test_given_kernels_and_real_y_have_no_prior():
    kernel = ConstantKernel(1.0) * RBF(1.0)
    assert not priors(GaussianProcessClassifier(kernel, optimizer=None).fit(PLANE, PLANE[:, 0] > 0))
    assert not priors(GaussianProcessRegressor(likelihood=Gaussian(), method="ep", optimizer=None).fit(X, REAL))


# --- warnings --------------------------------------------------------------------------------------------------------


def told(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        function()
    return [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)]


TIGHT = ConstantKernel(1.0, (0.5, 2.0)) * RBF(1.0, "fixed")


def test_ten_classes_bring_one_warning():
    (text,) = told(lambda: GaussianProcessClassifier(TIGHT, method="laplace").fit(PLANE, np.arange(N) % 10))
    assert text.count("dimension 0 of parameter k1__constant_value is close to the specified upper bound 2.0") == 1


def test_a_cross_validation_of_separable_classes_brings_none():
    model = GaussianProcessClassifier(method="laplace")
    assert not told(lambda: cross_val_score(model, PLANE, PLANE[:, 0] > 0, cv=5))


def test_a_likelihoods_number_at_a_bound_is_named():
    likelihood = Gaussian(Parameter(0.05, bounds=(0.01, 0.1)))
    (text,) = told(lambda: GaussianProcessRegressor(likelihood=likelihood, method="ep").fit(X, REAL))
    assert "likelihood.scale is close to its upper bound" in text


def test_every_likelihood_with_noise_says_so():
    kinds = [kind for kind in vars(likelihoods).values() if isinstance(kind, type) and issubclass(kind, Likelihood)]
    assert {kind.__name__ for kind in kinds if kind.noise_name} == {
        "Gaussian", "StudentT", "DoubleExponential", "Censored", "Weibull", "LogLogistic", "Warped",
    }  # fmt: skip
