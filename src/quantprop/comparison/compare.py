"""Methods side by side: each learned on the same rows of a table and scored on the same others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantprop.comparison.scores import ClassForecast, Forecast, NumberForecast, joined, with_error
from quantprop.estimators import GaussianProcessClassifier
from quantprop.estimators.core import Core
from quantprop.solution import Solution
from quantprop.tables import Problem, TableModel
from quantprop.threads import one_blas_thread

Report = Callable[[str, int, int], None]  # method, fits done, fits in all


@dataclass(frozen=True)
class Division:
    """Rows to learn from and rows to score on, some times over; and the rows of the model that is shown."""

    splits: tuple[tuple[np.ndarray, np.ndarray], ...]
    shown: np.ndarray
    words: str


@dataclass(frozen=True)
class Fold:
    """One fit: the rows it was scored on, how they were forecast, how long learning took and how it ended."""

    rows: np.ndarray
    forecast: Forecast
    seconds: float
    converged: bool
    status: str


@dataclass(frozen=True)
class Evaluated:
    """One method: its folds, and the model that is shown."""

    method: str
    folds: tuple[Fold, ...]
    model: TableModel

    @property
    def forecast(self) -> Forecast:
        """The forecasts of all folds."""
        return joined([fold.forecast for fold in self.folds])

    @property
    def scores(self) -> dict[str, tuple[float, float]]:
        """Scores with their standard errors; the calibration error is of all folds together, without one."""
        rows = [fold.forecast.scores() for fold in self.folds]
        found = {name: with_error(name, [fold[name] for fold in rows]) for name in rows[0]}
        return {**found, "calibration": (self.forecast.calibration, float("nan"))}

    @property
    def seconds(self) -> float:
        """The median time of a fit: with several folds the first one, which compiles, does not show."""
        return float(np.median([fold.seconds for fold in self.folds]))


@dataclass(frozen=True)
class Comparison:
    """Methods on one problem, the first of them the one that is looked at more closely."""

    problem: Problem
    division: Division
    methods: tuple[Evaluated, ...]
    posteriors: tuple[Solution, ...]  # EP's, and QP's with EP's hyperparameters (of the first class); or none

    @property
    def first(self) -> Evaluated:
        """The method looked at."""
        return self.methods[0]


# --- divisions -------------------------------------------------------------------------------------------------------


def folds(problem: Problem, count: int, seed: int = 0) -> Division:
    """Every row scored once, by a model of the others; each class spread evenly over the folds."""
    parts = _dealt(problem, count, seed)
    splits = tuple((np.flatnonzero(parts != k), np.flatnonzero(parts == k)) for k in range(count))
    return Division(splits, np.arange(len(parts)), f"{count} folds, seed {seed}")


def held_out(problem: Problem, one_in: int, seed: int = 0) -> Division:
    """One row in so many scored, by a model of the others, which is also the one shown."""
    parts = _dealt(problem, one_in, seed)
    train, test = np.flatnonzero(parts), np.flatnonzero(parts == 0)
    return Division(((train, test),), train, f"{len(test)} rows held out, seed {seed}")


def _dealt(problem: Problem, count: int, seed: int) -> np.ndarray:
    """The number of every row's fold: rows shuffled, sorted by class, and dealt out like cards."""
    y, n = problem.target.y, len(problem.raw)
    if not 2 <= count <= n:
        raise ValueError(f"folds must lie between 2 and the number of rows, {n}; got {count}")
    order = np.random.default_rng(seed).permutation(n)
    if problem.target.classes:
        labels, counts = np.unique(y, return_counts=True)
        if counts.min() < 2:
            raise ValueError(f"label {labels[np.argmin(counts)]} of column {problem.target.name!r} is in one row only: "
                             "no model can be scored on it; take the row out")  # fmt: skip
        order = order[np.argsort(y[order], kind="stable")]
    parts = np.empty(n, dtype=int)
    parts[order] = np.arange(n) % count
    return parts


# --- evaluation ------------------------------------------------------------------------------------------------------


def compare(
    problem: Problem,
    methods: Sequence[str],
    division: Division,
    report: Report = lambda method, done, total: None,
    threads: int = 1,
) -> Comparison:
    """Learn by each method on each split, and once more on the rows to be shown; so many methods at a time.

    Fits keep their warnings to themselves: how each ended is in its status, which is shown.
    """
    if problem.target.likelihood == "censored" or problem.target.units.log:
        raise ValueError("methods are scored on y as it was observed: neither on censored y nor on its logarithm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if threads == 1:
            evaluated = tuple(_evaluated(problem, method, division, report) for method in methods)
        else:
            with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
                evaluated = tuple(pool.map(lambda method: _evaluated(problem, method, division, report), methods))
        return Comparison(problem, division, evaluated, _posteriors(evaluated))


def _evaluated(problem: Problem, method: str, division: Division, report: Report) -> Evaluated:
    same = [i for i, (train, _) in enumerate(division.splits) if np.array_equal(train, division.shown)]
    done, total, shown = [], len(division.splits) + (not same), None
    report(method, 0, total)
    for i, (train, test) in enumerate(division.splits):
        start = time.perf_counter()
        model = problem.fit(method, train)
        seconds = time.perf_counter() - start
        done.append(_fold(problem, model, test, seconds))
        shown = model if i in same else shown
        report(method, len(done), total)
    if shown is None:
        shown = problem.fit(method, division.shown)
        report(method, total, total)
    return Evaluated(method, tuple(done), shown)


def _fold(problem: Problem, model: TableModel, test: np.ndarray, seconds: float) -> Fold:
    converged = all(fitted.converged for fitted in model.fits)
    bad = next((fitted for fitted in model.fits if not fitted.converged), model.fits[0])
    status = f"learning {bad.status}; inference {bad.solution.status}"
    return Fold(test, forecast_of(problem, model, test), seconds, converged, status)


def forecast_of(problem: Problem, model: TableModel, rows: np.ndarray) -> Forecast:
    """The forecast of some rows of a problem, beside what came."""
    x = model.encoding.standardised(problem.raw[rows])
    y, estimator = problem.target.y[rows], model.estimator
    if isinstance(estimator, GaussianProcessClassifier):
        return ClassForecast(estimator.predict_log_proba(x), np.searchsorted(estimator.classes_, y))
    scales: dict[str, Any] = problem.scales(rows)
    at = estimator.predictive_cdf(x, y, **scales)
    lattice = estimator.likelihood_.lattice
    below = at if lattice is None else estimator.predictive_cdf(x, y - lattice[1], **scales)
    pit = np.clip(np.stack([below, at], axis=1), 0.0, 1.0)  # a cdf is right to 1e-12: it may end beyond 1
    mean, density = estimator.predict(x, **scales), estimator.log_predictive_density(x, y, **scales)
    return NumberForecast(np.asarray(mean), density, y, pit)


def _posteriors(evaluated: Sequence[Evaluated]) -> tuple[Solution, ...]:
    """EP's posterior at the rows shown, and QP's where EP learned to be; by the program that learned, already there."""
    by = {one.method: one.model for one in evaluated}
    if not {"ep", "qp"} <= set(by):
        return ()
    ep, qp = by["ep"].fits[0], _core(by["qp"])
    return ep.solution, qp.moved(qp.landscape.from_cold(ep.theta)).fitted.solution


def _core(model: TableModel) -> Core:
    """What an estimator learned, with its data; of the first class, if several."""
    estimator = model.estimator
    return estimator._models()[0].core if isinstance(estimator, GaussianProcessClassifier) else estimator._core
