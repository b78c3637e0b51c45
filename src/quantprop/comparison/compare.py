"""Methods side by side: each learned on the same rows of a table and scored on the same others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from quantprop import kernels
from quantprop.comparison.errors import Estimate, difference, estimate
from quantprop.comparison.perfect import drawn_pit
from quantprop.comparison.scores import ClassForecast, Forecast, NumberForecast, joined
from quantprop.estimators import GaussianProcessClassifier
from quantprop.estimators.core import Core
from quantprop.inference.solution import Solution
from quantprop.inference.task import as_method
from quantprop.parameters import Parameter
from quantprop.runtime.threads import one_blas_thread
from quantprop.tables import Problem, TableModel

Report = Callable[[str, int, int], None]  # method, fits done, fits in all

OFFSET = kernels.Constant(Parameter(100.0, fixed=True))  # any value of f that data could ask for


BASELINES = ("constant", "linear")


def simpler_kernels(problem: Problem) -> dict[str, kernels.Kernel]:
    """What f may be, in place of what the kernel says: constant, or linear in all columns that are no groups."""
    coded = [column.treatment == "coded" for column in problem.encoding.columns]
    if not any(coded):
        return dict(zip(BASELINES, (OFFSET, OFFSET + kernels.Linear()), strict=True))
    numbers = [i for i, code in enumerate(coded) if not code]
    groups = [i for i, code in enumerate(coded) if code]
    wide = kernels.Categories(Parameter(100.0, fixed=True))
    effects = [wide.on(i) for i in groups] + ([kernels.Linear().on(numbers)] if numbers else [])
    linear: kernels.Kernel = OFFSET
    for effect in effects:
        linear = linear + effect
    return dict(zip(BASELINES, (OFFSET, linear), strict=True))


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
        """Its scores less those of another on the same rows, with their standard errors."""
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
    posteriors: tuple[Solution, ...] = field(
        repr=False
    )  # EP's, and QP's with EP's hyperparameters (of the first class); or none, as of all classes jointly

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

    Beside them stand two baselines, by the first method: the same likelihood with f constant, and with f linear in the
    features (a generalised linear model: probit, logistic, Poisson regression and so on). Fits keep their warnings to
    themselves: how each ended is in its status, which is shown.
    """
    if problem.target.y.ndim > 1 or problem.target.units.log:
        raise ValueError("methods are scored on y as it was observed: neither on censored y nor on its logarithm")
    for method in methods:
        as_method(method)  # which refuses a name before the first is learned
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jobs = [Job(method, method, {}) for method in methods]
        simpler = [Job(name, methods[0], {"kernel": kernel}) for name, kernel in simpler_kernels(problem).items()]
        evaluate = partial(_evaluated, problem, division, report)
        if threads == 1:
            evaluated, baselines = tuple(map(evaluate, jobs)), tuple(map(evaluate, simpler))
        else:
            with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
                evaluated = tuple(pool.map(evaluate, jobs))
                baselines = tuple(pool.map(evaluate, simpler))  # after the first method, whose programs they share
        return Comparison(problem, division, evaluated, baselines, _posteriors(evaluated))


@dataclass(frozen=True)
class Job:
    """What is to be evaluated: its name, a method, and settings of the estimator."""

    name: str
    method: str
    settings: dict[str, Any]


def _evaluated(problem: Problem, division: Division, report: Report, job: Job) -> Evaluated:
    """One method on every split. The first split is learned from twice: the first time compiles."""
    same = [i for i, (train, _) in enumerate(division.splits) if np.array_equal(train, division.shown)]
    done, total, shown = [], 1 + len(division.splits) + (not same), None
    report(job.name, 0, total)
    _, cold = _timed(problem, job, division.splits[0][0])
    report(job.name, 1, total)
    for i, (train, test) in enumerate(division.splits):
        model, seconds = _timed(problem, job, train)
        done.append(_fold(problem, model, train, test, seconds))
        shown = model if i in same else shown
        report(job.name, 1 + len(done), total)
    if shown is None:
        shown = problem.fit(job.method, division.shown, **job.settings)
        report(job.name, total, total)
    return Evaluated(job.name, tuple(done), max(cold - done[0].seconds, 0.0), shown)  # programs may be there already


def _timed(problem: Problem, job: Job, rows: np.ndarray) -> tuple[TableModel, float]:
    start = time.perf_counter()
    model = problem.fit(job.method, rows, **job.settings)
    return model, time.perf_counter() - start


def _fold(problem: Problem, model: TableModel, train: np.ndarray, test: np.ndarray, seconds: float) -> Fold:
    converged = all(fitted.converged for fitted in model.fits)
    bad = next((fitted for fitted in model.fits if not fitted.converged), model.fits[0])
    status = f"learning {bad.status}; inference {bad.solution.status}"
    return Fold(len(train), test, forecast_of(problem, model, test), seconds, converged, status)


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
    """EP's posterior at the rows shown, and QP's where EP learned to be; by the program that learned, already there."""
    by = {one.method: one.model for one in evaluated}
    if not {"ep", "qp"} <= set(by) or not isinstance(by["ep"].fits[0].solution, Solution):
        return ()
    ep, qp = by["ep"].fits[0], _core(by["qp"])
    return ep.solution, qp.moved(qp.landscape.from_cold(ep.theta)).fitted.solution


def _core(model: TableModel) -> Core:
    """What an estimator learned, with its data; of the first class, if several."""
    estimator = model.estimator
    return estimator._models()[0].core if isinstance(estimator, GaussianProcessClassifier) else estimator._core
