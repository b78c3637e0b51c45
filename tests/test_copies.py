"""What is stored, sent or copied comes back with all its digits: no array of a device travels with it."""

from __future__ import annotations

import copy
import io
import pickle

import jax
import joblib
import numpy as np
import pytest

from quantprop import (
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    Model,
    fit,
    infer,
    kernels,
    likelihoods,
    predict_many,
)

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (40, 1))
Y = np.sin(2 * X[:, 0]) + 0.01 * RNG.normal(size=40)
NEW = np.linspace(-2, 2, 9)[:, None]
GAUSSIAN = Model(kernels.SquaredExponential(1.0, 0.7), likelihoods.Gaussian(0.01))
LABELS = np.where(Y > 0, "up", "down")


def by_joblib(thing):
    file = io.BytesIO()
    joblib.dump(thing, file)
    file.seek(0)
    return joblib.load(file)


COPIES = {"pickle": lambda thing: pickle.loads(pickle.dumps(thing)), "deepcopy": copy.deepcopy, "joblib": by_joblib}


def latent_forecasts(solution):
    one, joint = solution.predict(NEW), solution.predict(NEW, full_cov=True)
    y = solution.predict_y(NEW)
    draws = solution.sample(NEW, 3, seed=1)
    (many,) = predict_many([solution], [NEW])
    return [one.mean, one.variance, joint.covariance, y.mean, y.variance, y.quantile(0.9), draws, many.variance]


def regressor_forecasts(model):
    return [*model.predict(NEW, return_std=True), model.sample_y(NEW, 2, random_state=0), model.loo_,
            model.log_marginal_likelihood(model.kernel_.theta)]  # fmt: skip


def classifier_forecasts(model):
    return [model.predict_proba(NEW), model.predict(NEW), model.log_marginal_likelihood(model.kernel_.theta)]


THINGS = {
    "solution": (lambda: infer(GAUSSIAN, X, Y, "ep"), latent_forecasts),
    "fitted": (lambda: fit(GAUSSIAN, X, Y, "ep", max_evaluations=4), lambda fitted: latent_forecasts(fitted.solution)),
    "regressor": (lambda: GaussianProcessRegressor(alpha=1e-4).fit(X, Y), regressor_forecasts),
    "classifier": (lambda: GaussianProcessClassifier(method="ep").fit(X, LABELS), classifier_forecasts),
}


def arrays_of_a_device(thing, seen: set[int]) -> list[str]:
    """Where in an object, as deep as pickling would go, there are arrays of JAX."""
    if id(thing) in seen or isinstance(thing, (str, bytes, int, float, type(None), np.ndarray, type)):
        return []
    seen.add(id(thing))
    if isinstance(thing, jax.Array):
        return [str(thing.shape)]
    if isinstance(thing, dict):
        parts = list(thing.items())
    elif isinstance(thing, (list, tuple)):
        parts = list(enumerate(thing))
    else:
        state = thing.__getstate__() if hasattr(thing, "__getstate__") else getattr(thing, "__dict__", None)
        parts = list(state.items()) if isinstance(state, dict) else []
    return [f"{name}.{where}" for name, part in parts for where in arrays_of_a_device(part, seen)]


@pytest.mark.parametrize("name", THINGS)
def test_copies_forecast_the_same_bits_before_and_after_a_prediction(name):
    make, forecasts = THINGS[name]
    thing = make()
    before = {how: by(thing) for how, by in COPIES.items()}
    expected = forecasts(thing)
    after = {how: by(thing) for how, by in COPIES.items()}
    assert arrays_of_a_device(thing, set()) == []
    for how in COPIES:
        for twin in (before[how], after[how]):
            for found, wanted in zip(forecasts(twin), expected, strict=True):
                np.testing.assert_array_equal(found, wanted, err_msg=how)
