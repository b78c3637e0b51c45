"""Methods side by side: each learned on the same rows of a table and scored on the same others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from quantprop import kernels
from quantprop.comparison.scores import (
    ClassForecast,
    Estimate,
    Forecast,
    NumberForecast,
    difference,
    drawn_pit,
    estimate,
    joined,
)
from quantprop.core.parameters import Parameter
from quantprop.estimators import GaussianProcessClassifier
from quantprop.inference.solution import Solution
from quantprop.methods import by_name as method_by_name
from quantprop.runtime.threads import one_blas_thread
from quantprop.tables import Problem, TableModel

Report = Callable[[str, int, int], None]  # method, fits done, fits in all

WIDE = Parameter(100.0, fixed=True)  # a variance that allows any value of f that data could ask for
OFFSET = kernels.Constant(WIDE)
BASELINES = ("constant", "linear")


def linear_kernel(problem: Problem) -> kernels.Kernel:
    """The kernel of an f that is linear in all columns of numbers, and has a level of its own for each group."""
    groups = [i for i, column in enumerate(problem.encoding.columns) if column.treatment == "coded"]
    if not groups:
        return OFFSET + kernels.Linear()
    numbers = [i for i in range(len(problem.encoding.columns)) if i not in groups]
    kernel: kernels.Kernel = OFFSET
    for group in groups:
        kernel = kernel + kernels.Categories(WIDE).on(group)
    return kernel + kernels.Linear().on(numbers) if numbers else kernel


@dataclass(frozen=True)
class Division:
    """Rows to learn from and rows to score on, some times over; and the rows of the model that is shown."""

    splits: tuple[tuple[np.ndarray, np.ndarray], ...] = field(repr=False)
    shown: np.ndarray = field(repr=False)
    words: str


@dataclass(frozen=True)
class Fold:
    """One fit: how many rows it learned from, those it was scored on and how they were forecast, how long learning
    took (without compiling) and how it ended.
    """

    learned: int
    rows: np.ndarray = field(repr=False)
    forecast: Forecast = field(repr=False)
    seconds: float
    converged: bool
    status: str


@dataclass(frozen=True)
class Evaluated:
    """One method or baseline: its folds, how long its programs took to compile, and the model that is shown."""

    method: str
    folds: tuple[Fold, ...] = field(repr=False)
    compiling: float
    model: TableModel = field(repr=False)

    @property
    def forecast(self) -> Forecast:
        """The forecasts of all folds."""
        return joined([fold.forecast for fold in self.folds])

    @property
    def rows(self) -> dict[str, list[np.ndarray]]:
        """The scores of every row, by fold."""
        each = [fold.forecast.scores() for fold in self.folds]
        return {name: [fold[name] for fold in each] for name in each[0]}

    @property
    def ratio(self) -> float:
        """Rows scored to rows learned from, of a fold."""
        return float(np.mean([len(fold.rows) / fold.learned for fold in self.folds]))

    @property
    def scores(self) -> dict[str, tuple[float, float]]:
        """Scores of all rows with their standard errors; none for the calibration error."""
        found = {name: estimate(name, folds, self.ratio) for name, folds in self.rows.items()}
        pairs = {name: (one.value, one.error) for name, one in found.items()}
        return {**pairs, "calibration": (self.forecast.calibration, float("nan"))}

    @property
    def perfect(self) -> tuple[float, float]:
        """The calibration error that a perfect forecaster would score: on average, and in 95 of 100 cases at most."""
        errors = self.forecast.perfect
        return float(errors.mean()), float(np.quantile(errors, 0.95))

    def less(self, other: Evaluated) -> dict[str, Estimate]:
        """Its scores minus the scores of another on the same rows, with their standard errors."""
        own, others = self.rows, other.rows
        return {name: difference(name, own[name], others[name], self.ratio) for name in own}

    @property
    def seconds(self) -> float:
        """The median time of a fit whose programs are compiled."""
        return float(np.median([fold.seconds for fold in self.folds]))


@dataclass(frozen=True)
class Comparison:
    """Methods on one problem, the first of them the one that is looked at more closely, beside simpler models."""

    problem: Problem = field(repr=False)
    division: Division
    methods: tuple[Evaluated, ...]
    baselines: tuple[Evaluated, ...]
    posteriors: tuple[Solution, ...] = field(repr=False)  # EP's, and QP's with EP's hyperparameters; or none

    @property
    def first(self) -> Evaluated:
        """The method looked at."""
        return self.methods[0]

    @property
    def all(self) -> tuple[Evaluated, ...]:
        """Methods and baselines."""
        return (*self.methods, *self.baselines)


# --- divisions -------------------------------------------------------------------------------------------------------


def folds(problem: Problem, count: int, seed: int = 0) -> Division:
    """Every row scored once, by a model of the others; each class spread evenly over the folds."""
    parts = _assigned(problem, count, seed)
    splits = tuple((np.flatnonzero(parts != k), np.flatnonzero(parts == k)) for k in range(count))
    return Division(splits, np.arange(len(parts)), f"{count} folds, seed {seed}")


def held_out(problem: Problem, one_in: int, seed: int = 0) -> Division:
    """One row in so many scored, by a model of the others, which is also the one shown."""
    parts = _assigned(problem, one_in, seed)
    train, test = np.flatnonzero(parts), np.flatnonzero(parts == 0)
    return Division(((train, test),), train, f"{len(test)} rows held out, seed {seed}")


def _assigned(problem: Problem, count: int, seed: int) -> np.ndarray:
    """The number of every row's fold: rows shuffled, sorted by class, and assigned to folds in turn."""
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
    """Learn by each method on each split, and once more on the rows to be shown; `threads` methods at a time.

    Beside them stand two baselines, by the first method: the same likelihood with f constant, and with f linear in the
    features (a generalised linear model: probit, logistic, Poisson regression and so on). Fits keep their warnings to
    themselves: how each ended is in its status, which is shown.
    """
    if problem.target.y.ndim > 1 or problem.target.units.log:
        raise ValueError("methods are scored on y as it was observed: neither on censored y nor on its logarithm")
    for method in methods:
        method_by_name(method)  # which refuses a name before the first is learned
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluate = partial(_evaluated, problem, division, report)
        first = repeat(methods[0])
        simpler = [{"kernel": OFFSET}, {"kernel": linear_kernel(problem)}]
        if threads == 1:
            evaluated = tuple(map(evaluate, methods, methods, repeat({})))
            baselines = tuple(map(evaluate, BASELINES, first, simpler))
        else:
            with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
                evaluated = tuple(pool.map(evaluate, methods, methods, repeat({})))
                baselines = tuple(pool.map(evaluate, BASELINES, first, simpler))  # by programs that are compiled by now
        return Comparison(problem, division, evaluated, baselines, _posteriors(evaluated))


def _evaluated(
    problem: Problem, division: Division, report: Report, name: str, method: str, settings: dict[str, Any]
) -> Evaluated:
    """One method on every split. The first split is learned from twice: the first time compiles."""
    done, shown, total = [], None, 2 + len(division.splits)

    def learned(rows: np.ndarray) -> tuple[TableModel, float]:
        start = time.perf_counter()
        model = problem.fit(method, rows, **settings)
        return model, time.perf_counter() - start

    report(name, 0, total)
    _, cold = learned(division.splits[0][0])
    for train, test in division.splits:
        report(name, 1 + len(done), total)
        model, seconds = learned(train)
        done.append(_fold(problem, model, train, test, seconds))
        shown = model if np.array_equal(train, division.shown) else shown
    report(name, 1 + len(done), total)
    shown = shown or problem.fit(method, division.shown, **settings)
    report(name, total, total)
    return Evaluated(name, tuple(done), max(cold - done[0].seconds, 0.0), shown)  # programs may be there already


def _fold(problem: Problem, model: TableModel, train: np.ndarray, test: np.ndarray, seconds: float) -> Fold:
    bad = next((fitted for fitted in model.fits if not fitted.converged), model.fits[0])
    status = f"learning {bad.status}; inference {bad.solution.status}"
    return Fold(len(train), test, forecast_of(problem, model, test), seconds, model.converged, status)


def forecast_of(problem: Problem, model: TableModel, rows: np.ndarray) -> Forecast:
    """The forecast of some rows of a problem, beside the outcomes."""
    x = model.encoding.standardised(problem.raw[rows])
    y, estimator = problem.target.y[rows], model.estimator
    if isinstance(estimator, GaussianProcessClassifier):
        return ClassForecast(estimator.predict_log_proba(x), np.searchsorted(estimator.classes_, y))
    scales: dict[str, Any] = problem.scales(rows)
    at = estimator.predictive_cdf(x, y, **scales)
    lattice = estimator.likelihood_.lattice
    below = at if lattice is None else estimator.predictive_cdf(x, y - lattice[1], **scales)
    pit = np.clip(np.stack([below, at], axis=1), 0.0, 1.0)  # a cdf is right to 1e-12: it may end beyond 1
    drawn = drawn_pit(estimator.solution_.predict_y(x, **scales), seed=int(rows[0]))  # other rows, other draws
    mean, density = estimator.predict(x, **scales), estimator.log_predictive_density(x, y, **scales)
    return NumberForecast(np.asarray(mean), density, y, pit, drawn)


def _posteriors(evaluated: Sequence[Evaluated]) -> tuple[Solution, ...]:
    """EP's posterior at the rows shown, and QP's at EP's hyperparameters, of the first class; none of joint classes."""
    by = {one.method: one.model for one in evaluated}
    if not {"ep", "qp"} <= set(by) or not isinstance(by["ep"].fits[0].solution, Solution):
        return ()
    ep, estimator = by["ep"].fits[0], by["qp"].estimator
    qp = estimator._models()[0].core if isinstance(estimator, GaussianProcessClassifier) else estimator._core
    return ep.solution, qp.moved(qp.landscape.at(ep.theta)).fitted.solution
