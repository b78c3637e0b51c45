"""What is left to gain: by formulas, and by going on from where searches of many rows have ended."""

import dataclasses
import math

import numpy as np
import pytest

from quantprop import Dense, Inducing, Markov, Model, Parameter, fit, fit_many, kernels, likelihoods
from quantprop.inference.results import Ending
from quantprop.learning.ascent import projected
from quantprop.learning.remaining import Seen, converged, expected_gain, gain_by_secants, remaining_gain
from quantprop.storage.fitted import ENDING, ended

RNG = np.random.default_rng(5)
KINDS = ("probit", "poisson", "gaussian", "student")
TIGHT = {"gtol": 1e-7, "tol": 1e-10}


def drawn(kind, x):
    """A likelihood and targets, from a surface that the first columns make."""
    rng, n = np.random.default_rng(0), len(x)
    f = 1.5 * np.sin(1.3 * x[:, 0])
    f = f + (np.cos(1.7 * x[:, 1]) * x[:, 2] if x.shape[1] > 1 else 0.5 * np.cos(0.3 * x[:, 0]))
    if kind == "probit":
        return likelihoods.Probit(), np.where(f + rng.normal(size=n) > 0, 1, -1)
    if kind == "poisson":
        return likelihoods.Poisson(), rng.poisson(np.exp(0.5 * f)).astype(float)
    if kind == "gaussian":
        return likelihoods.Gaussian(0.3), f + 0.5 * rng.normal(size=n)
    return likelihoods.StudentT(), f + 0.3 * rng.standard_t(3, n)


def problem(process, kind, n):
    """Rows of a surface of several columns, or of a series."""
    rng = np.random.default_rng(1)
    if isinstance(process, Markov):
        x = np.sort(rng.uniform(0.0, n / 20, n))[:, None]
        likelihood, y = drawn(kind, x)
        return Model(kernels.Matern32(), likelihood, mean=Parameter(0.0), process=process), x, y
    x = rng.uniform(-3.0, 3.0, (n, 4))
    likelihood, y = drawn(kind, x)
    return Model(kernels.SquaredExponential(1.0, np.ones(4)), likelihood, process=process), x, y


def check_that_nothing_is_left(model, x, y, **rows):
    fitted = fit(model, x, y, "ep", **rows)
    assert fitted.status.reason == "converged", fitted.status
    assert 0.0 <= fitted.status.remaining < 1e-4
    further = fit(fitted.model, x, y, "ep", **TIGHT, **rows)
    assert further.objective_value - fitted.objective_value < 1e-4
    return fitted


# --- formulas --------------------------------------------------------------------------------------------------------


def test_the_expected_gain_is_that_of_a_parabola():
    half = RNG.normal(size=(4, 4))
    curvature, slope = half @ half.T + np.eye(4), RNG.normal(size=4)
    top = np.linalg.solve(curvature, slope)
    assert expected_gain(slope, curvature) == pytest.approx(slope @ top - 0.5 * top @ curvature @ top, rel=1e-12)


def test_a_bound_takes_its_entry_out_of_the_expected_gain():
    curvature, box = np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([[0.0, 1.0], [-5.0, 5.0]])
    held = projected(np.array([-4.0, 1.0]), np.array([0.0, 0.0]), box)
    assert expected_gain(held, curvature) == pytest.approx(1.0**2 / (2.0 * 2.0), rel=1e-12)
    assert expected_gain(projected(np.array([-4.0, 0.0]), np.zeros(2), box), curvature) == 0.0


def test_without_a_maximum_the_expected_gain_is_finite_and_large():
    flat = expected_gain(np.array([0.1]), np.zeros((1, 1)))
    assert flat == pytest.approx(0.1 * 3.0)
    assert expected_gain(np.array([0.1]), -np.eye(1)) > flat


@pytest.mark.parametrize("size", [3, 200])
def test_secants_along_the_axes_tell_the_whole_curvature(size):
    """Conjugate steps, after which BFGS has the curvature exactly; more entries than steps are even, as these are."""
    bend = np.full(size, 7.0)
    bend[:3] = (1.0, 10.0, 1e4)
    places = np.vstack([np.zeros(size), np.tril(np.ones((3, size)))])
    seen = [Seen(place, 0.0, -bend * place) for place in places]
    slope = np.zeros(size)
    slope[:3] = (0.3, -0.2, 0.1)
    assert gain_by_secants(slope, places[-1], seen) == pytest.approx(np.sum(slope**2 / (2.0 * bend)), rel=1e-9)


def test_a_tail_beside_steep_entries_is_seen():
    """As of the lengthscale of a feature that does not matter: little slope, little curvature, and few steps along."""

    def at(steep, tail, value=-1.0):
        return Seen(np.array([steep, tail]), value, np.array([-1e3 * steep, 8e-4 * np.exp(-tail)]))

    seen = [at(0.1, -0.5, -9.0), at(0.01, -0.4), at(-1e-3, -0.2), at(1e-5, 0.0), at(1e-6, 0.0)]
    left = remaining_gain(seen[-1].gradient, seen[-1].theta, seen)
    assert 8e-4 / 4.0 < left < 8e-4 * 4.0


def test_a_curvature_learned_on_the_way_up_is_not_trusted():
    places, slope = np.linspace(-1.0, -0.5, 5), np.array([0.5, 0.0])

    def left(values, slope):
        seen = [Seen(np.array([p, 0.0]), v, np.array([-1e9 * p, 0.0])) for p, v in zip(places, values, strict=False)]
        return remaining_gain(slope, seen[-1].theta, seen)

    climbing, resting = [-9.0, -5.0, -3.0, -2.0, -1.0], [-9.0, -1.0, -1.0, -1.0, -1.0 + 1e-5]
    assert left(climbing, slope) == 0.5
    assert left(resting, slope) == pytest.approx(0.5**2 / 2e9)
    assert left(resting[:3], slope) == 0.5  # too few to know
    assert left(climbing, np.array([1e-5, 0.0])) == pytest.approx(1e-10 / 2e9)  # the slope is small itself


@pytest.mark.parametrize(
    ("remaining", "value", "slope", "gtol", "expected"),
    [
        (9e-5, -1.0, 1.0, 1e-4, True),
        (2e-4, -1.0, 1e-5, 1e-4, False),
        (2e-4, -1e13, 1.0, 1e-4, True),
        (1e-12, -1.0, 1e-6, 1e-8, False),
        (math.nan, -1.0, 0.0, 1e-4, False),
    ],
)
def test_converged_is_said_of_nats(remaining, value, slope, gtol, expected):
    assert converged(remaining, value, slope, gtol) == expected


# --- statuses --------------------------------------------------------------------------------------------------------


def test_statuses_give_the_number_and_files_without_it_can_be_read():
    ending = Ending("converged", 12, 0, 3.8e-4, (), 2e-7)
    assert "2.0e-07 nats left to gain" in str(ending)
    old = {name: getattr(ending, name) for name in ENDING.rules if name != "remaining"} | {"at_bounds": {"tuple": []}}
    read = ended(ENDING, old)
    assert math.isnan(read.remaining)
    assert dataclasses.replace(read, remaining=2e-7) == ending
    assert "nats" not in str(read)


# --- searches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "weight"), [("poisson", 1e3), pytest.param("gaussian", 1e7, marks=pytest.mark.campaign)]
)
def test_an_objective_of_any_size_converges(kind, weight):
    """Weights make it as large as that of many rows."""
    x = np.sort(np.random.default_rng(1).uniform(-3.0, 3.0, 40))[:, None]
    likelihood, y = drawn(kind, x)
    model = Model(kernels.SquaredExponential(), likelihood)
    fitted = check_that_nothing_is_left(model, x, y, weights=weight)
    many = fit_many(model, [x], [y], "ep", weights=[weight])[0]
    assert many.status.reason == "converged", many.status
    assert many.objective_value == pytest.approx(fitted.objective_value, abs=1e-4)
    early = fit(model, x, y, "ep", weights=weight, max_evaluations=3)
    assert early.status.reason == "max-evaluations"
    assert early.status.remaining > 1e-4
    assert early.objective_value < fitted.objective_value - 1e-4


@pytest.mark.parametrize(
    ("process", "kind", "n"),
    [(Inducing(32), "probit", 1_000), pytest.param(Markov(), "poisson", 5_000, marks=pytest.mark.campaign)],
)
def test_fits_of_many_rows_converge(process, kind, n):
    model, x, y = problem(process, kind, n)
    check_that_nothing_is_left(model, x, y)
    assert fit(model, x, y, "ep", max_evaluations=8).status.reason == "max-evaluations"


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("process", "n"), [(Inducing(64), 20_000), (Dense(), 5_000), (Markov(), 100_000)])
def test_fits_of_very_many_rows_converge(process, kind, n):
    model, x, y = problem(process, kind, n)
    check_that_nothing_is_left(model, x, y)
    early = fit(model, x, y, "ep", max_evaluations=8)
    assert early.status.reason == "max-evaluations"
    assert early.status.remaining > 1e-4
