"""Backtests: windows, baselines against formulas by hand, and scores."""

import numpy as np
import pytest
from scipy import stats

from quantprop import comparison, tables
from quantprop.comparison.compare import NumberForecast
from quantprop.comparison.origins import _gaussian, _naive, _smoothed

DAYS = np.arange("2026-01-01", "2026-03-12", dtype="datetime64[D]")
LEVEL = np.tile([0.0, 0.2, 0.1, 0.3, 0.5, 2.0, 1.5], 10)
Y = LEVEL + 0.1 * np.random.default_rng(0).standard_normal(70)
FORMULA = "matern12(date, variance=0.01, lengthscale=3) + periodic(date, variance=1, lengthscale=1, period=7)"
BACKWARDS = slice(None, None, -1)


@pytest.fixture(scope="module")
def problem():
    table = tables.from_columns({"date": DAYS[BACKWARDS], "y": Y[BACKWARDS]}, "a series")
    return tables.problem(table, "y", kernel=FORMULA)


def test_windows_follow_each_other_to_the_end(problem):
    division = comparison.origins(problem, 3, 7)
    windows = [problem.raw[test, 0] for _, test in division.splits]
    days = DAYS.astype(float)
    np.testing.assert_array_equal(np.concatenate(windows), days[-21:])
    for (train, _), window in zip(division.splits, windows, strict=True):
        np.testing.assert_array_equal(np.sort(problem.raw[train, 0]), days[days < window[0]])
    with pytest.raises(ValueError, match="at least 20 rows before the first"):
        comparison.origins(problem, 6, 10)


def test_the_seasonal_naive_forecast():
    """After Hyndman and Athanasopoulos: y of a season ago, and a variance that is h seasons' of the residuals."""
    past = np.array([1.0, 2.0, 3.0, 5.0, 5.0, 5.0])
    mean, deviation, _ = _naive(3)(past, 7)
    np.testing.assert_array_equal(mean, [5, 5, 5, 5, 5, 5, 5])
    one = np.sqrt((4.0**2 + 3.0**2 + 2.0**2) / 3.0)
    np.testing.assert_allclose(deviation, one * np.sqrt([1, 1, 1, 2, 2, 2, 3]))


def test_exponential_smoothing_of_an_exact_season():
    pytest.importorskip("statsmodels")
    mean, deviation, converged = _smoothed(LEVEL + 1e-3 * np.arange(70) % 2e-3, 7, 7)
    np.testing.assert_allclose(mean, LEVEL[:7], atol=0.02)
    assert converged
    assert (deviation < 0.05).all()


def test_scores_of_gaussian_forecasts(problem):
    rows, mean, deviation = np.arange(5), np.zeros(5), np.full(5, 2.0)
    found = _gaussian(problem, rows, mean, deviation)
    y = problem.target.y[rows]
    np.testing.assert_allclose(found.log_density, -0.5 * (y / 2.0) ** 2 - np.log(2.0 * np.sqrt(2.0 * np.pi)))
    counts = tables.problem(tables.from_columns({"t": [0, 1, 2], "n": [3, 0, 5]}, "counts"), "n", "poisson")
    found = _gaussian(counts, np.arange(3), np.full(3, 3.0), np.full(3, 2.0))
    expected = [stats.norm(3, 2).cdf(n + 0.5) - stats.norm(3, 2).cdf(n - 0.5) for n in (3, 0, 5)]
    np.testing.assert_allclose(np.exp(found.log_density), expected)
    assert isinstance(found, NumberForecast)


def test_a_model_of_the_season_beside_the_baselines(problem):
    """The model knows the season: its errors are the noise, and a naive forecast has twice their variance."""
    found = comparison.backtest({"series": problem}, comparison.origins(problem, 2, 7), {"week": 7.0}, "ep")
    rows = {row["model"]: row for row in found.rows}
    assert list(rows)[:2] == ["series", "seasonal naive (week)"]
    assert rows["series"]["difference"] == 0.0
    mean, deviation, _ = zip(*(_naive(7)(Y[:end], 7) for end in (56, 63)), strict=True)
    score = stats.norm(np.concatenate(mean), np.concatenate(deviation)).logpdf(Y[56:]).mean()
    assert rows["seasonal naive (week)"]["log score"] == pytest.approx(score)
    assert rows["seasonal naive (week)"]["difference"] == pytest.approx(score - rows["series"]["log score"])
    assert rows["series"]["rmse"] < 0.15
    assert rows["series"]["not converged"] == 0
    assert 0.7 <= rows["series"]["within 90 %"] <= 1.0
    labels = tables.problem(tables.from_columns({"t": np.arange(20), "y": np.arange(20) % 2}, "labels"), "y")
    with pytest.raises(ValueError, match="neither of classes"):
        comparison.backtest({"labels": labels}, comparison.origins(labels, 2, 3))


def test_fits_that_do_not_converge_are_counted(problem, monkeypatch):
    """Of two fits the second is cut short."""
    fit, limits = type(problem).fit, iter((200, 1))

    def cut(self, method, rows, **settings):
        return fit(self, method, rows, max_sweeps=next(limits), **settings)

    monkeypatch.setattr(type(problem), "fit", cut)
    counts = tables.from_columns({"date": DAYS, "n": np.tile([3, 0, 5, 9, 1, 2, 8], 10)}, "counts")
    posed = tables.problem(counts, "n", "poisson", FORMULA)
    found = comparison.backtest({"counts": posed}, comparison.origins(posed, 2, 7), {}, "ep")
    assert found["not converged"] == [1, 0, *[0] * (len(found.rows) - 2)]
