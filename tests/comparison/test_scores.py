"""Scores over folds, their errors, what a perfect forecaster would score, and the sentence that concludes."""

import math

import numpy as np
import pytest
from scipy import stats

from quantprop import likelihoods, methods, report
from quantprop.comparison import ClassForecast, Comparison, Division, Evaluated, Fold, NumberForecast
from quantprop.comparison.compare import BASELINES
from quantprop.comparison.scores import DRAWS_PER_ROW, difference, drawn_pit, estimate
from quantprop.core.gaussian import Normal
from quantprop.inference import results
from quantprop.inference.predictive import Predictive
from quantprop.inference.status import REMEDIES
from quantprop.report import names
from quantprop.report.study import _pairs

RNG = np.random.default_rng(5)


# --- pooled scores ---------------------------------------------------------------------------------------------------


def test_rmse_is_the_root_of_the_mean_over_all_rows():
    squares = [np.array([1.0, 1.0, 1.0, 1.0]), np.array([16.0])]  # the mean of two roots would be 2.5
    assert estimate("rmse", squares, 0.5).value == pytest.approx(2.0)
    assert estimate("mae", squares, 0.5).value == pytest.approx(4.0)


def test_errors_over_one_fold_are_those_of_a_bootstrap():
    a, b = RNG.normal(size=400) ** 2, 2.0 * RNG.normal(size=400) ** 2
    draws = RNG.integers(400, size=(4000, 400))
    for name, of in (("rmse", np.sqrt), ("mae", lambda mean: mean)):
        roots = of(a[draws].mean(axis=1)), of(b[draws].mean(axis=1))
        assert estimate(name, [a], 0.1).error == pytest.approx(np.std(roots[0]), rel=0.06)
        paired = difference(name, [a], [b], 0.1)
        assert paired.value == pytest.approx(of(a.mean()) - of(b.mean()))
        assert paired.error == pytest.approx(np.std(roots[0] - roots[1]), rel=0.06)
        assert paired.margin == pytest.approx(stats.t.ppf(0.975, 399) * paired.error)


def test_errors_over_folds_hold_what_they_promise():
    """The squared error of the training mean, σ²(1 + 1/n), over forty splits of sixty rows: the 95 % interval covers
    it; without the correction it shrinks with every further split of the same rows, and would not.
    """
    n, test, splits = 60, 10, 40
    exact, ratio = 1.0 + 1.0 / (n - test), test / (n - test)
    covered, naive = [], []
    for _ in range(400):
        rows = RNG.normal(size=n)
        order = np.argsort(RNG.random((splits, n)), axis=1)
        held, learned = rows[order[:, :test]], rows[order[:, test:]]
        squares = (held - learned.mean(axis=1, keepdims=True)) ** 2
        found, spread = estimate("mae", list(squares), ratio), np.std(squares.mean(axis=1), ddof=1)
        assert found.error == pytest.approx(spread * np.sqrt(1 / splits + 1 / 5))
        covered.append(abs(found.value - exact) <= found.margin)
        naive.append(abs(found.value - exact) <= stats.t.ppf(0.975, splits - 1) * spread / np.sqrt(splits))
    assert np.mean(covered) > 0.9
    assert np.mean(naive) < 0.7


# --- perfect forecasters ---------------------------------------------------------------------------------------------


def gap(n, p):
    """E |Bin(n, p)/n − p|, exactly."""
    k = np.arange(n + 1)
    return np.sum(stats.binom.pmf(k, n, p) * np.abs(k / n - p))


def close(found, exact):
    return abs(found.mean() - exact) < 5 * found.std() / np.sqrt(len(found))


def test_a_perfect_forecaster_of_classes():
    p = np.repeat([0.25, 0.65], 40)
    forecast = ClassForecast(np.log(np.stack([1 - p, p], axis=1)), np.zeros(80, dtype=int))
    assert close(forecast.perfect, 0.5 * gap(40, 0.25) + 0.5 * gap(40, 0.65))
    assert forecast.calibration == pytest.approx(0.45)
    three = ClassForecast(np.log(np.tile([0.2, 0.2, 0.6], (50, 1))), np.full(50, 2))
    assert close(three.perfect, gap(50, 0.6))


def test_a_perfect_forecaster_of_numbers():
    n = 30
    latent = Normal(np.full(n, -1.0), np.full(n, 1e-12))
    continuous = Predictive(likelihoods.Gaussian(1.0), latent, np.ones(n), np.ones(n))
    exact = np.mean([gap(n, level) for level in np.linspace(0.05, 0.95, 19)])
    assert close(forecast_of(drawn_pit(continuous, 0)).perfect, exact)
    counts = drawn_pit(Predictive(likelihoods.Poisson(), latent, np.ones(n), np.ones(n)), 0)
    rate = np.exp(-1.0)
    y = RNG.poisson(rate, size=(n, 2000))
    brute = np.stack([stats.poisson.cdf(y - 1, rate), stats.poisson.cdf(y, rate)], axis=2)
    assert counts.shape == (n, DRAWS_PER_ROW, 2)
    assert close(forecast_of(counts).perfect, forecast_of(brute).perfect.mean())
    assert not close(forecast_of(counts).perfect, exact)  # steps make it smaller


def forecast_of(drawn):
    empty = np.zeros(len(drawn))
    return NumberForecast(empty, empty, empty, drawn[:, 0], drawn)


# --- conclusions -----------------------------------------------------------------------------------------------------


def evaluated(method, log_p, folds=5):
    """A method that gives 100 outcomes these log probabilities."""
    parts = np.split(np.broadcast_to(log_p, 100), folds)
    forecasts = [ClassForecast(np.stack([np.log(-np.expm1(part)), part], axis=1), np.ones(len(part), dtype=int))
                 for part in parts]  # fmt: skip
    return Evaluated(method, tuple(Fold(80, np.arange(20), f, 0.1, True) for f in forecasts), 1.0, None)


def concluded(first, *others, constant=-2.0, linear=-1.5):
    wave = -0.5 + 0.3 * np.sin(np.arange(100.0))
    methods = [evaluated(name, wave + shift) for name, shift in (("qp", first), *others)]
    baselines = [evaluated(name, wave + shift) for name, shift in (("constant", constant), ("linear", linear))]
    return report.conclusion(Comparison(None, None, tuple(methods), tuple(baselines), ()))


def test_comparisons_print_no_rows():
    found = Comparison(None, Division((), np.arange(9), "two folds"), (evaluated("qp", -0.5),), (), ())
    assert repr(found) == (
        "Comparison(division=Division(words='two folds'), methods=(Evaluated(method='qp', compiling=1.0),), "
        "baselines=())"
    )


def test_conclusions():
    noise = 0.05 * np.sin(7.0 * np.arange(100.0))
    said = concluded(0.0, ("ep", 1e-7), ("vb", noise), ("laplace", -0.5 + noise))
    assert "QP predicts better than Laplace, the constant and the linear model" in said
    assert "QP does not differ significantly from EP or VB" in said
    assert "calibration error of QP" in said
    assert "EP and VB predict better than QP" in concluded(-1.0, ("ep", -0.5 + noise), ("vb", -0.4 + noise))
    assert "not significantly better than a constant" in concluded(0.0, constant=noise, linear=-0.5)
    assert "a linear model predicts as well" in concluded(0.0, linear=noise)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert "QP predicts better than EP" in concluded(0.0, ("ep", -np.inf))


def test_everything_has_a_name_for_people():
    assert {*methods.METHODS, *BASELINES} == set(names.METHODS)
    assert set(names.REASONS) == set(REMEDIES)
    ending = results.Ending("max-evaluations", 1, 0, 0.1, ("kernel.left.lengthscale[1]", "likelihood.scale", "mean"))
    said = names.learning_ended(ending, ["age", "height"])
    assert said == (
        "the limit of evaluations was reached; 1 evaluation, gradient 1e-01; at a bound: lengthscale of height, "
        "scale of the likelihood and mean"
    )


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ([(0.12345, 0.0123), (0.2, 0.3)], ["0.123 ± 0.012", "0.200 ± 0.300"]),
        ([(1234567.0, 4321.0)], ["1.23e+06 ± 4.32e+03"]),
        ([(1.5e-7, 2e-9)], ["1.5e-07 ± 2e-09"]),
        ([(0.25, math.nan), (0.0, math.nan)], ["0.2500", "0.0000"]),
        ([(0.0, 0.0), (math.inf, math.nan)], ["0.000 ± 0.000", "inf"]),
    ],
)
def test_numbers_have_the_digits_that_their_errors_leave(scores, said):
    assert _pairs(scores) == said
