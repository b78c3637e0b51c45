"""Methods side by side: each learned on the same rows of a table and scored on the same others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from quantprop import kernels
from quantprop.comparison import boosting
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

WIDE_VARIANCE = Parameter(100.0, fixed=True)  # a variance that allows any value of f that data could ask for
OFFSET = kernels.Constant(WIDE_VARIANCE)
LINEAR, BOOSTING = "linear", "boosting"
BASELINES = ("constant", LINEAR, BOOSTING)


def linear_kernel(problem: Problem) -> kernels.Kernel:
    """The kernel of an f that is linear in all columns of numbers, and has a level of its own for each group."""
    groups = [i for i, column in enumerate(problem.encoding.columns) if column.treatment == "coded"]
    if not groups:
        return OFFSET + kernels.Linear()
    numbers = [i for i in range(len(problem.encoding.columns)) if i not in groups]
    kernel: kernels.Kernel = OFFSET
    for group in groups:
        kernel = kernel + kernels.Categories(WIDE_VARIANCE).on(group)
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
    took (without compiling) and whether it converged (True of boosting).
    """

    learned: int
    rows: np.ndarray = field(repr=False)
    forecast: Forecast = field(repr=False)
    seconds: float
    converged: bool


@dataclass(frozen=True)
class Evaluated:
    """One method or baseline: its folds, how long its programs took to compile, and the model that is shown (None of
    boosting).
    """

    method: str
    folds: tuple[Fold, ...] = field(repr=False)
    compiling: float
    model: Any = field(repr=False)

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
        """The scores minus those of another method on the same rows, with standard errors."""
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


def folds(problem: Problem, count: int, seed: int = 0) -> Division:
    """Split into cross-validation folds, stratified by class: every row is scored once.

    Args:
        problem: A learning problem, as returned by `tables.problem`.
        count: Number of folds.
        seed: Seed of the random numbers. The same seed gives the same result.

    Returns:
        The splits.
    """
    parts = _assigned(problem, count, seed)
    splits = tuple((np.flatnonzero(parts != k), np.flatnonzero(parts == k)) for k in range(count))
    return Division(splits, np.arange(len(parts)), f"{count} folds, seed {seed}")


def held_out(problem: Problem, one_in: int, seed: int = 0) -> Division:
    """Split once: a random fraction 1/one_in of the rows is scored by a model of the others, which is also shown.

    Args:
        problem: A learning problem, as returned by `tables.problem`.
        one_in: One row in this many is held out.
        seed: Seed of the random numbers. The same seed gives the same result.

    Returns:
        The split.
    """
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
            raise ValueError(f"label {labels[np.argmin(counts)]} of column {problem.target.name!r} is in one row only, "
                             "so no model can be scored on it: remove the row")  # fmt: skip
        order = order[np.argsort(y[order], kind="stable")]
    parts = np.empty(n, dtype=int)
    parts[order] = np.arange(n) % count
    return parts


def compare(
    problem: Problem,
    methods: Sequence[str],
    division: Division,
    report: Report = lambda method, done, total: None,
    threads: int = 1,
) -> Comparison:
    """Fit every method on each split, and once more on the rows to show.

    Two baselines are fitted by the first method: the same likelihood with f constant, and with f linear in the features
    (a generalised linear model: probit, logistic, Poisson regression and so on). A third is scikit-learn's gradient
    boosting by histograms, with its own settings. Warnings of fits are suppressed: each fit's status reports why it
    stopped, and is shown.

    Args:
        problem: A learning problem, as returned by `tables.problem`.
        methods: Names of methods; the others are compared with the first.
        division: Train–test splits, from `folds` or `held_out`.
        report: Called with (method, fits done, fits in total).
        threads: Number of methods fitted at a time.

    Returns:
        Scores, paired differences and fits.
    """
    if problem.target.y.ndim > 1 or problem.target.units.log:
        raise ValueError("methods are scored on y as it was observed: neither on censored y nor on its logarithm")
    for method in methods:
        method_by_name(method)  # which refuses a name before the first is learned
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluate = partial(_evaluated, problem, division, report)
        simpler = [{"kernel": OFFSET}, {"kernel": linear_kernel(problem)}]
        with ExitStack() as stack:
            run: Any = map
            if threads > 1:
                stack.enter_context(one_blas_thread())
                run = stack.enter_context(ThreadPoolExecutor(threads)).map
            evaluated = tuple(run(evaluate, methods, methods, repeat({})))
            baselines = tuple(run(evaluate, BASELINES, repeat(methods[0]), simpler))  # by programs compiled by now
        boosted = _boosted(problem, division, report)
        return Comparison(problem, division, evaluated, (*baselines, boosted), _posteriors(evaluated))


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
        done.append(Fold(len(train), test, forecast_of(problem, model, test), seconds, model.converged))
        shown = model if np.array_equal(train, division.shown) else shown
    report(name, 1 + len(done), total)
    shown = shown or problem.fit(method, division.shown, **settings)
    report(name, total, total)
    return Evaluated(name, tuple(done), max(cold - done[0].seconds, 0.0), shown)  # programs may be there already


def _boosted(problem: Problem, division: Division, report: Report) -> Evaluated:
    done: list[Fold] = []
    for train, test in division.splits:
        report(BOOSTING, len(done), len(division.splits))
        start = time.perf_counter()
        found = boosting.forecast(problem, train, test)
        done.append(Fold(len(train), test, found, time.perf_counter() - start, True))
    report(BOOSTING, len(done), len(done))
    return Evaluated(BOOSTING, tuple(done), 0.0, None)


def forecast_of(problem: Problem, model: TableModel, rows: np.ndarray) -> Forecast:
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
    ep, qp = by["ep"].fits[0], by["qp"].estimator._cores()[0]
    return ep.solution, qp.fitted_at(qp.landscape.from_cold(ep.theta)).solution
