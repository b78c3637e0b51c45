"""Gradient boosting as a baseline: the models of scikit-learn, and what is made of them as distributions of y."""

import math

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from quantprop import tables
from quantprop.comparison import boosting

RNG = np.random.default_rng(7)
N = 240
X, Z = RNG.normal(size=(2, N))
F = np.sin(2.0 * X) + 0.3 * Z
TRAIN, TEST = np.arange(N) % 3 > 0, np.arange(N) % 3 == 0
ROWS = np.flatnonzero(TRAIN), np.flatnonzero(TEST)


@pytest.fixture(autouse=True)
def one_thread():
    """Threads of tests that run side by side would wait for each other."""
    with threadpool_limits(limits=1, user_api="openmp"):
        yield


def problem(y, likelihood, *, roles=None, **more):
    table = tables.from_columns({"x": X, "z": Z, **more, "y": y}, "made up")
    return tables.problem(table, "y", likelihood, roles=roles or tables.Roles())


def inputs():
    return np.column_stack([X, Z])


@pytest.mark.parametrize("cuts", [[0.0], [-0.5, 0.5]])
def test_classes_have_the_probabilities_of_scikit_learn(cuts):
    y = np.digitize(F, cuts)
    found = boosting.forecast(problem(np.array(list("abc"))[y], "probit"), *ROWS)
    model = HistGradientBoostingClassifier(random_state=0).fit(inputs()[TRAIN], y[TRAIN])
    np.testing.assert_allclose(np.exp(found.log_p), model.predict_proba(inputs()[TEST]), atol=1e-12)
    np.testing.assert_array_equal(found.came, y[TEST])


def test_counts_are_poisson_with_an_exposure():
    years = RNG.uniform(0.5, 4.0, N)
    y = RNG.poisson(years * np.exp(F))
    found = boosting.forecast(problem(y, "poisson", years=years, roles=tables.Roles(exposure="years")), *ROWS)
    model = HistGradientBoostingRegressor(loss="poisson", random_state=0)
    model.fit(inputs()[TRAIN], (y / years)[TRAIN], sample_weight=years[TRAIN])
    mean = model.predict(inputs()[TEST]) * years[TEST]
    np.testing.assert_allclose(found.mean, mean)
    log_factorial = np.array([math.lgamma(k + 1.0) for k in y[TEST]])
    np.testing.assert_allclose(found.log_density, y[TEST] * np.log(mean) - mean - log_factorial, rtol=1e-10)
    np.testing.assert_allclose(np.diff(found.pit)[:, 0], np.exp(found.log_density), atol=1e-12)


def test_successes_are_counted_with_their_trials():
    trials = RNG.integers(1, 30, N)
    y = RNG.binomial(trials, 1.0 / (1.0 + np.exp(-2.0 * F)))
    found = boosting.forecast(problem(y, "binomial", n=trials, roles=tables.Roles(trials="n")), *ROWS)
    twice = np.concatenate([inputs()[TRAIN]] * 2)
    model = HistGradientBoostingClassifier(random_state=0)
    weights = np.concatenate([y[TRAIN], (trials - y)[TRAIN]])
    model.fit(twice, np.repeat([1, 0], TRAIN.sum()), sample_weight=weights)
    np.testing.assert_allclose(found.mean, trials[TEST] * model.predict_proba(inputs()[TEST])[:, 1])
    assert found.calibration < 0.12


def test_grades_have_cumulative_probabilities():
    y = np.digitize(F, [-0.8, 0.0, 0.8])
    found = boosting.forecast(problem(y + 1, "ordinal"), *ROWS)
    p = HistGradientBoostingClassifier(random_state=0).fit(inputs()[TRAIN], y[TRAIN]).predict_proba(inputs()[TEST])
    np.testing.assert_allclose(found.log_density, np.log(p[np.arange(len(p)), y[TEST]]))
    np.testing.assert_allclose(found.mean, p @ [0, 1, 2, 3])
    np.testing.assert_allclose(found.pit[:, 1], [p[i, : k + 1].sum() for i, k in enumerate(y[TEST])])
    np.testing.assert_allclose(np.diff(found.pit)[:, 0], np.exp(found.log_density))
    assert (np.diff(found.drawn, axis=2) > 0).all()  # what is drawn has a probability


@pytest.mark.parametrize(
    ("likelihood", "freedom"), [("student-t", 3.0), pytest.param("gaussian", 50.0, marks=pytest.mark.campaign)]
)
def test_the_density_of_errors_is_that_of_held_out_rows(likelihood, freedom):
    """Noise alone: the density is nearly the true one, although every training row is fitted closely."""
    rng = np.random.default_rng(1)
    n = 2400
    noise = 2.0 * stats.t.rvs(freedom, size=n, random_state=rng)
    y = 3.0 + noise
    table = tables.from_columns({"x": rng.normal(size=n), "y": y}, "made up")
    rows = np.flatnonzero(np.arange(n) % 2), np.flatnonzero(np.arange(n) % 2 == 0)
    found = boosting.forecast(tables.problem(table, "y", likelihood), *rows)
    best = stats.t.logpdf(noise[rows[1]] / 2.0, freedom).mean() - np.log(2.0)
    fitted = np.sqrt(np.mean((found.mean - 3.0) ** 2))  # the error of the mean costs at most this
    assert best - 0.15 - fitted < found.log_density.mean() < best + 0.01
    assert found.calibration < 0.05
    assert (found.drawn >= 0).all()
    assert found.drawn.shape[::2] == (len(rows[1]), 2)


def test_positive_numbers_have_a_gamma_density():
    rng = np.random.default_rng(2)
    y = rng.gamma(4.0, np.exp(F) / 4.0)
    found = boosting.forecast(problem(y, "gamma"), *ROWS)
    mean = HistGradientBoostingRegressor(loss="gamma", random_state=0).fit(inputs()[TRAIN], y[TRAIN])
    ratio = found.mean / mean.predict(inputs()[TEST])
    assert np.ptp(ratio) < 1e-12
    assert abs(ratio[0] - 1.0) < 0.15
    assert found.calibration < 0.08
    truth = stats.gamma.logpdf(y[TEST], 4.0, scale=np.exp(F[TEST]) / 4.0).mean()
    assert truth - 0.4 < found.log_density.mean() < truth


def test_rows_of_weight_zero_do_not_count():
    weights = np.where(np.arange(N) % 5, 1.0, 0.0)
    y = np.where(weights > 0, F, 100.0)
    given = problem(y, "gaussian", w=weights, roles=tables.Roles(weights="w"))
    some = ROWS[0][weights[ROWS[0]] > 0]
    left = np.setdiff1d(ROWS[1], np.flatnonzero(weights == 0))
    all_rows, without = (boosting.forecast(given, rows, left) for rows in (ROWS[0], some))
    np.testing.assert_array_equal(all_rows.log_density, without.log_density)
    np.testing.assert_array_equal(all_rows.mean, without.mean)


def test_densities_integrate_to_one():
    found = problem(F, "gaussian")
    of = boosting._distribution(found, ROWS[0], ROWS[1][:1])
    total, _ = integrate.quad(lambda y: float(of.pdf(y)[0]), -50.0, 50.0, limit=400, points=[float(of.mean()[0])])
    assert total == pytest.approx(1.0, abs=1e-2)
