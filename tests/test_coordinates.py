"""Coordinates of L-BFGS-B: their inverse and derivative, which entries they bend, and what that saves."""

import numpy as np
import pytest

from quantprop import Model, Parameter, fit, kernels, likelihoods
from quantprop.core.parameters import box, labels, packed
from quantprop.inference.task import prepare
from quantprop.learning.coordinates import coordinates
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import as_objective
from quantprop.methods import by_name

RNG = np.random.default_rng(2)
X = RNG.normal(size=(60, 3)) * [1.0, 100.0, 0.01]
Y = np.sign(X[:, 0] + 0.3 * RNG.normal(size=60))


def coordinates_of(kernel, x=X):
    model = Model(kernel, likelihoods.Probit())
    method = by_name("ep")
    task = prepare(model, x, Y, method)
    landscape = Landscape(task.model, task, method, as_objective("evidence"))
    bounds = box(landscape.parts)
    return coordinates(landscape, np.ones(len(bounds)), bounds), packed(landscape.parts), bounds, landscape


@pytest.mark.parametrize("log_lengthscale", [-12.0, -3.0, 0.0, 3.0, 8.0, 13.0])
def test_coordinates_go_there_and_back(log_lengthscale):
    place, theta, bounds, _ = coordinates_of(kernels.SquaredExponential(2.0, np.std(X, axis=0)))
    theta = theta + np.array([0.5, *np.full(3, log_lengthscale)])
    theta = np.clip(theta, *bounds.T)
    assert np.allclose(place.theta(place.of(theta), bounds), theta, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("log_lengthscale", [-3.0, 0.0, 4.0])
def test_their_derivative_is_that_of_differences(log_lengthscale):
    place, theta, bounds, _ = coordinates_of(kernels.SquaredExponential(2.0, np.std(X, axis=0)))
    theta = theta + np.array([0.5, *np.full(3, log_lengthscale)])
    u, step = place.of(theta), 1e-6
    slope = (place.theta(u + step, bounds) - place.theta(u - step, bounds)) / (2.0 * step)
    assert np.allclose(place.stretch(theta), slope, rtol=1e-6)


def test_lengthscales_of_columns_are_bent_beyond_twenty_deviations():
    kernel = kernels.SquaredExponential(1.0, np.ones(2)).on([2, 1]) + kernels.Matern32(1.0, 1.0)
    place, _, _, landscape = coordinates_of(kernel)
    expected = {label: 0.0 for label in labels(landscape.parts)}
    own = 1.0 / (20.0 * X.std(axis=0))
    expected |= {"kernel.left.kernel.lengthscale[0]": own[2], "kernel.left.kernel.lengthscale[1]": own[1]}
    assert dict(zip(labels(landscape.parts), place.inverse, strict=True)) == pytest.approx(expected, rel=1e-12)


def test_deviations_are_those_of_what_a_kernel_sees():
    kernel = kernels.Standardised(kernels.SquaredExponential(1.0, np.ones(3)), X.mean(axis=0), X.std(axis=0))
    assert coordinates_of(kernel)[0].inverse[1:4] == pytest.approx(np.full(3, 1.0 / 20.0), rel=1e-12)


def test_constant_columns_and_unbounded_lengthscales_keep_their_logarithms():
    x = X * [1.0, 0.0, 1.0]
    assert (coordinates_of(kernels.SquaredExponential(1.0, np.ones(3)), x)[0].inverse > 0).tolist() == [
        False, True, False, True,
    ]  # fmt: skip
    free = Parameter(np.ones(3), bounds=(1e-3, np.inf))
    assert not coordinates_of(kernels.SquaredExponential(1.0, free))[0].inverse.any()


def test_columns_that_do_not_matter_cost_few_evaluations():
    """In logarithms this search took 43 evaluations, most of them along the tails of eleven lengthscales."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(150, 12))
    y = np.sign(np.sin(2.0 * x[:, 0]) + 0.3 * rng.normal(size=150))
    model = Model(kernels.SquaredExponential(1.0, np.full(12, 5.0)), likelihoods.Probit())
    fitted = fit(model, x, y, "ep")
    assert fitted.status.reason == "converged", fitted.status
    assert len(fitted.trace) <= 35
    further = fit(fitted.model, x, y, "ep", gtol=1e-7, tol=1e-10)
    assert further.objective_value - fitted.objective_value < 1e-4
