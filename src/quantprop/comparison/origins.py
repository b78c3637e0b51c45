"""Backtests of series: forecasts from rolling origins, beside a seasonal naive forecast and exponential smoothing."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from quantprop.comparison.compare import Division, Report, forecast_of
from quantprop.comparison.scores import DRAWS_PER_ROW, NumberForecast, fraction_below, joined
from quantprop.estimators.shared import ConvergenceWarning
from quantprop.runtime.listing import Listing
from quantprop.tables import Problem
from quantprop.tables.series import process_for

MAX_SMOOTHED = 60  # rows of a season that exponential smoothing has a state for

Ahead = tuple[np.ndarray, np.ndarray, bool]  # mean and standard deviation of the next rows; True if it converged
Baseline = Callable[[Float[np.ndarray, " n"], int], Ahead]  # of the past and a horizon


def origins(problem: Problem, count: int, horizon: int) -> Division:
    """Split a series at some origins: each time, the rows up to the origin forecast the next ones.

    Args:
        problem: A learning problem with a column of dates, or with time as its first column.
        count: Number of origins.
        horizon: Number of rows to forecast from each; the windows follow each other to the end of the series.

    Returns:
        The splits, the earliest origin first.
    """
    order = np.argsort(_times(problem), kind="stable")
    first = len(order) - count * horizon
    if count < 1 or horizon < 1 or first < 2 * horizon:
        raise ValueError(f"origins must leave at least {2 * horizon} rows before the first, twice the horizon; "
                         f"{count} of {horizon} rows leave {first} of {len(order)}")  # fmt: skip
    ends = [first + k * horizon for k in range(count)]
    splits = tuple((order[:end], order[end : end + horizon]) for end in ends)
    return Division(splits, splits[-1][0], f"{count} origins, {horizon} rows ahead")


def backtest(
    problems: dict[str, Problem], division: Division, seasons: Mapping[str, float] = {}, method: str = "qp",
    report: Report = lambda name, done, total: None,
) -> Listing:  # fmt: skip
    """Score forecasts from rolling origins.

    Each problem is learned from the rows before every origin, above 2,500 rows with 256 inducing points. The seasonal
    naive forecast repeats the last season; its variance is that of seasonal differences, and grows by as much with
    every season ahead. Exponential smoothing has additive errors and trend, and the shortest season of up to 60 rows
    (statsmodels, if it is installed). Both take rows as equally spaced, and their distributions are Gaussian.

    Args:
        problems: Learning problems of the same rows that differ in their kernels, by name.
        division: Splits of these rows, as returned by `origins`.
        seasons: Periods in the unit of time, by name.
        method: Name of the method.
        report: Called with (name, origins done, origins in total).

    Returns:
        A table of models with log score per row, its difference from the first model's with the standard error over
        origins, the fraction of y within 90 % intervals, the root mean squared error, and the number of fits that did
        not converge.
    """
    one = next(iter(problems.values()))
    if one.target.classes or one.target.y.ndim > 1 or one.target.units.log:
        raise ValueError(
            "backtests score predictions of numbers: neither of classes, nor of intervals, nor of logarithms"
        )
    size = len(division.splits)
    found: dict[str, list[tuple[Any, bool]]] = {}
    for name, problem in problems.items():
        for train, test in division.splits:
            report(name, len(found.setdefault(name, [])), size)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # counted
                model = problem.fit(method, train, process=process_for(len(train)))
            found[name].append((forecast_of(problem, model, test), model.converged))
        report(name, size, size)
    days = np.unique(_times(one))
    lengths = {name: max(1, round(period / float(np.median(np.diff(days))))) for name, period in seasons.items()}
    for name, forecast in _baselines(lengths).items():
        found[name] = []
        for train, test in division.splits:
            mean, deviation, converged = forecast(one.target.y[train], len(test))
            found[name].append((_gaussian(one, test, mean, deviation), converged))
    return _listing(division.words, found)


def _times(problem: Problem) -> Float[np.ndarray, " n"]:
    """The column of dates, or the first one."""
    encoding = problem.encoding
    dates = [encoding.features.index(column.name) for column in encoding.columns if column.dates]
    return problem.raw[:, dates[0] if dates else 0]


def _listing(words: str, found: dict[str, list[tuple[Any, bool]]]) -> Listing:
    names = ("model", "log score", "difference", "error", "within 90 %", "rmse", "not converged")
    columns: dict[str, list] = {name: [] for name in names}
    first = np.array([part.log_density.mean() for part, _ in next(iter(found.values()))])
    for name, fits in found.items():
        parts, failed = [part for part, _ in fits], sum(not converged for _, converged in fits)
        whole: Any = joined(parts)
        less = np.array([part.log_density.mean() for part in parts]) - first
        low, high = fraction_below(whole.pit, np.array([0.05, 0.95]))
        error = float(less.std(ddof=1) / np.sqrt(len(less))) if len(less) > 1 else float("nan")
        rmse = float(np.sqrt(np.mean((whole.y - whole.mean) ** 2)))
        row = (name, float(whole.log_density.mean()), float(less.mean()), error, float(high - low), rmse, failed)
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return Listing(f"predictions from {words}; differences are from the first model", columns)


def _gaussian(one: Problem, rows: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> NumberForecast:
    """Gaussian forecasts of some rows; of discrete y the probability of a unit around each."""
    y, of_y = one.target.y[rows].astype(float), stats.norm(mean, deviation)
    if not one.target.discrete:
        at = of_y.cdf(y)
        return NumberForecast(
            mean,
            stats.norm.logpdf(y, mean, deviation),
            y,
            np.stack([at, at], axis=1),
            np.zeros((len(y), DRAWS_PER_ROW, 2)),
        )
    pit = np.stack([of_y.cdf(y - 0.5), of_y.cdf(y + 0.5)], axis=1)
    with np.errstate(divide="ignore"):
        return NumberForecast(mean, np.log(np.ptp(pit, axis=1)), y, pit, np.zeros((len(y), DRAWS_PER_ROW, 2)))


def _baselines(lengths: Mapping[str, int]) -> dict[str, Baseline]:
    """Simple forecasts by name, with the numbers of rows in each season."""
    found = {f"seasonal naive ({name})": _naive(length) for name, length in lengths.items()} or {"naive": _naive(1)}
    if importlib.util.find_spec("statsmodels"):
        short = min((length for length in lengths.values() if 1 < length <= MAX_SMOOTHED), default=0)
        found["exponential smoothing"] = lambda past, horizon: _smoothed(past, horizon, short)
    return found


def _naive(length: int) -> Baseline:
    """The last season again (Hyndman and Athanasopoulos, Forecasting, section 5.5)."""

    def forecast(past: Float[np.ndarray, " n"], horizon: int) -> Ahead:
        ahead = np.arange(horizon)
        change = past[length:] - past[:-length]
        return past[len(past) - length + ahead % length], np.sqrt(np.mean(change**2) * (1 + ahead // length)), True

    return forecast


def _smoothed(past: Float[np.ndarray, " n"], horizon: int, length: int) -> Ahead:
    import pandas  # which statsmodels needs
    from statsmodels.tools.sm_exceptions import ConvergenceWarning as Stopped  # pyright: ignore[reportMissingImports]
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel  # pyright: ignore[reportMissingImports]

    more = {"seasonal": "add", "seasonal_periods": length} if length else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Stopped)  # counted
        model = ETSModel(pandas.Series(past.astype(float)), error="add", trend="add", damped_trend=True, **more)
        fitted: Any = model.fit(disp=False)
        found = fitted.get_prediction(len(past), len(past) + horizon - 1)
    converged = bool(fitted.mle_retvals["converged"])
    return np.asarray(found.predicted_mean), np.sqrt(np.asarray(found.forecast_variance)), converged
