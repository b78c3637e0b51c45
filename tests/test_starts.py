"""Starts from which nothing can be learned are told, and ends that interpolate are left."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

from quantprop import (
    GaussianProcessRegressor,
    KernelWarning,
    LogNormal,
    Model,
    Parameter,
    fit,
    fit_many,
    infer,
    kernels,
    likelihoods,
)
from quantprop.core.parameters import declared, values
from quantprop.core.records import changed
from quantprop.inference.prediction import gram_of
from quantprop.learning.sizes import typical_distance
from quantprop.learning.starts import scaled
from quantprop.runtime.precision import float64

RNG = np.random.default_rng(1)
X = np.sort(RNG.uniform(0, 6, 30))[:, None]
Y = np.sin(X[:, 0]) + 0.5 * RNG.normal(size=30)
SECONDS = 86400.0 * X


def model(kernel, noise=0.5):
    return Model(kernel, likelihoods.Gaussian(noise))


@pytest.mark.parametrize(
    ("x", "word"), [(SECONDS, "diagonal"), (np.repeat(SECONDS[:15], 2, axis=0), "diagonal"), (1e-6 * X, "constant")]
)
def test_a_fit_that_starts_blind_says_so(x, word):
    with pytest.warns(KernelWarning, match=f"fit: the initial kernel is {word}"):
        fit(model(kernels.SquaredExponential()), x, np.resize(Y, len(x)), "ep", max_evaluations=1)


def test_the_remedy_of_a_blind_start_works():
    """Scaled by the distance that the warning names, the same data are learned as well as any."""
    with pytest.warns(KernelWarning, match="typical distance between rows") as caught:
        blind = fit(model(kernels.SquaredExponential()), SECONDS, Y, "ep")
    distance = float(str(caught[0].message).split("typical distance between rows: ")[1].split(")")[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seeing = fit(model(kernels.SquaredExponential()), SECONDS / distance, Y, "ep")
    assert seeing.objective_value > blind.objective_value + 3.0


@pytest.mark.parametrize(
    ("kernel", "x"),
    [
        (kernels.SquaredExponential(), X),
        (kernels.Constant(), X),
        (kernels.Linear(), 1e9 + X),
        (kernels.White(), X),
        (kernels.SquaredExponential(), np.ones((30, 1))),
        (kernels.Linear(), np.zeros((30, 1))),
    ],
)
def test_kernels_that_see_what_there_is_bring_no_warning(kernel, x):
    with warnings.catch_warnings():
        warnings.simplefilter("error", KernelWarning)
        fit(model(kernel), x, Y, "ep", max_evaluations=1)


# --- dates -----------------------------------------------------------------------------------------------------------

DAYS = np.datetime64("2020-01-01") + (10 * X[:, 0]).astype("timedelta64[D]")
DATES = {
    "array": DAYS[:, None],
    "vector": DAYS,
    "list": list(DAYS),
    "objects": DAYS.astype(object)[:, None],
    "durations": (DAYS - DAYS[0])[:, None],
    "pandas": pd.DataFrame({"day": DAYS}),
    "pandas, mixed": pd.DataFrame({"x": X[:, 0], "day": DAYS}),
    "pandas, time zone": pd.DataFrame({"day": pd.Series(DAYS).dt.tz_localize("UTC")}),
    "polars": pl.DataFrame({"day": DAYS}),
}


@pytest.mark.parametrize("name", DATES)
def test_dates_are_refused_with_a_remedy(name):
    said = r"X.* holds (dates|durations).*np.timedelta64\(1, 'D'\)"
    with pytest.raises(ValueError, match=said):
        infer(model(kernels.SquaredExponential()), DATES[name], Y)
    if name not in ("vector", "list"):  # estimators want a matrix
        with pytest.raises(ValueError, match=said):
            GaussianProcessRegressor().fit(DATES[name], Y)


def test_the_remedy_for_dates_works():
    d = DAYS
    days = (d - d.min()) / np.timedelta64(1, "D")
    assert infer(model(kernels.SquaredExponential(1.0, 10.0)), days, Y, "ep").converged
    with pytest.raises(ValueError, match="X holds dates"):
        GaussianProcessRegressor(method="ep", optimizer=None).fit(days[:, None], Y).predict(DAYS[:, None])


def test_dates_as_y_are_refused():
    with pytest.raises(ValueError, match="y holds dates"):
        infer(model(kernels.SquaredExponential()), X, DAYS)


# --- further starts --------------------------------------------------------------------------------------------------


def test_an_interpolating_optimum_is_left():
    """From next to no noise and a short lengthscale learning ends where noise is gone, 9 nats below the best end."""
    start = model(kernels.SquaredExponential(1.0, 0.01), 1e-3)
    alone, batched = fit(start, X, Y, "ep"), fit_many(start, [X, X], [Y, Y], "ep")[1]
    best = fit(model(kernels.SquaredExponential()), X, Y, "ep").objective_value
    first = max(step.value for step in alone.trace if step.restart == 0)
    assert first < best - 5.0
    for fitted in (alone, batched):
        assert fitted.objective_value == pytest.approx(best, abs=1e-4)
        assert fitted.converged
    assert max(step.restart for step in alone.trace) >= 1


def test_noise_that_is_not_learned_brings_no_further_start():
    kernel = kernels.SquaredExponential(1.0, Parameter(0.01, bounds=(0.01, 0.02)))
    fixed = Model(kernel, likelihoods.Gaussian(Parameter(1e-3, fixed=True)))
    assert {step.restart for step in fit(fixed, X, Y, "ep").trace} == {0}


def test_a_kernel_is_scaled_once():
    """Whatever a kernel is made of, its values are multiplied by the factor, and lengthscales by theirs."""
    se, white = kernels.SquaredExponential(2.0, 0.5), kernels.White(0.1)
    fixed = kernels.Matern32(Parameter(1.0, fixed=True), 0.7)
    x = X[:4]
    for kernel in (se + white, kernels.Constant(3.0) * se, fixed * kernels.Constant(2.0), se**2, se * fixed + white):
        whole = scaled(declared(kernel), 5.0, 1.0)
        np.testing.assert_allclose(gram(whole, x), 5.0 * gram(kernel, x), rtol=1e-12)
        short = scaled(declared(kernel), 1.0, 0.5)
        np.testing.assert_allclose(gram(short, 0.5 * x), gram(kernel, x), rtol=1e-12)


@float64
def gram(kernel, x):
    return np.asarray(gram_of(values(kernel), x))


@pytest.mark.parametrize("rows", [2, 65, 192])
def test_the_typical_distance_is_the_median_of_all_pairs(rows):
    x = np.random.default_rng(rows).normal(size=(rows, 3)) * [1.0, 1e-3, 1e4]
    apart = np.sqrt(((x[:, None] - x) ** 2).sum(axis=-1))[np.triu_indices(rows, 1)]
    np.testing.assert_allclose(typical_distance(x), np.median(apart), rtol=1e-14)


@pytest.mark.parametrize(("distance", "larger"), [(4.0, True), (0.7, False)])
def test_classes_start_from_the_variance_that_explains_them_better(distance, larger):
    """Far apart they need a large variance, close together one of about 1; the optimum is that of other starts."""
    rng = np.random.default_rng(5)
    y = np.repeat([0, 1, 2], 10)
    x = rng.normal(size=(30, 2)) + distance * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])[y]
    variance, classes = Parameter(1.0, (1e-5, 1e7), LogNormal(1.0, 10.0)), likelihoods.MultinomialProbit()
    fitted = fit(Model(kernels.SquaredExponential(variance, 2.0), classes), x, y, "ep")
    first, second = fitted.trace[:2]
    given = np.array([0.0, np.log(2.0)])
    np.testing.assert_allclose(first.theta - given, [np.log(1e3), 0.0], atol=1e-12)
    tried = bool(np.allclose(second.theta, given))  # the given one, where the objective rises towards it
    assert tried == (not larger)
    assert (not tried or first.value > second.value) == larger
    after = fitted.trace[1 + tried].theta - (first if larger else second).theta
    assert np.abs(after).max() < 3.0 + 1e-12
    known = Model(kernels.SquaredExponential(changed(variance, value=30.0), 3.0), classes)
    assert fitted.objective_value == pytest.approx(fit(known, x, y, "ep").objective_value, abs=1e-4)


def test_a_fixed_variance_of_classes_stays():
    x, y = np.linspace(-2.0, 2.0, 12)[:, None], np.repeat([0, 1, 2], 4)
    kernel = kernels.SquaredExponential(Parameter(1.0, fixed=True), 1.0)
    fitted = fit(Model(kernel, likelihoods.MultinomialProbit()), x, y, "ep", max_evaluations=5)
    assert len({tuple(step.theta) for step in fitted.trace}) == len(fitted.trace)
    assert all(step.theta.shape == (1,) for step in fitted.trace)
