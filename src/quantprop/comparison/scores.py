"""Scores of forecasts against outcomes, their standard errors, and what a perfect forecaster would score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from quantprop.inference.predictive import Predictive

PROBABILITY_BINS = 10
QUANTILE_LEVELS = np.linspace(0.05, 0.95, 19)
DRAWS_PER_ROW = 200
CONFIDENCE = 0.95

Rows = list[Float[np.ndarray, " n"]]  # the rows of every fold


@dataclass(frozen=True)
class ClassForecast:
    """Log probabilities of the classes at some rows, and which class was observed (its index)."""

    log_p: Float[np.ndarray, "n k"]
    came: np.ndarray

    def scores(self) -> dict[str, Float[np.ndarray, " n"]]:
        """Error, negative log-likelihood and Brier score (half the squared distance) of every row."""
        p, truth = np.exp(self.log_p), np.eye(self.log_p.shape[1])[self.came]
        return {
            "error": (np.argmax(p, axis=1) != self.came).astype(float),
            "ntll": -self.log_p[np.arange(len(p)), self.came],
            "brier": 0.5 * np.sum((p - truth) ** 2, axis=1),
        }

    @property
    def stated(self) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities stated, and whether the class was observed: the second of two, the likeliest of more."""
        p = np.exp(self.log_p)
        if p.shape[1] == 2:
            return p[:, 1], self.came == 1
        return p.max(axis=1), np.argmax(p, axis=1) == self.came

    @property
    def calibration(self) -> float:
        """Expected calibration error: |observed share − probability stated|, averaged over ten bins of probability."""
        p, came = self.stated
        return float(_class_gaps(p, came[:, None])[0])

    @property
    def perfect(self) -> Float[np.ndarray, " draws"]:
        """Calibration errors of these very forecasts where classes come with the probabilities stated."""
        p = self.stated[0]
        came = np.random.default_rng(0).random((len(p), DRAWS_PER_ROW)) < p[:, None]
        return _class_gaps(p, came)


def _class_gaps(p: Float[np.ndarray, " n"], came: np.ndarray) -> Float[np.ndarray, " m"]:
    """Calibration errors of forecasts p for every column of outcomes."""
    at = np.minimum((p * PROBABILITY_BINS).astype(int), PROBABILITY_BINS - 1)
    excess = came - p[:, None]
    sums = np.array([excess[at == b].sum(axis=0) for b in range(PROBABILITY_BINS)])
    return np.abs(sums).sum(axis=0) / len(p)


@dataclass(frozen=True)
class NumberForecast:
    """Means and log densities of y at some rows, y itself, and P(Y < y), P(Y ≤ y) (equal for continuous y).

    `drawn` holds the same two probabilities for y drawn from the forecasts.
    """

    mean: Float[np.ndarray, " n"]
    log_density: Float[np.ndarray, " n"]
    y: Float[np.ndarray, " n"]
    pit: Float[np.ndarray, "n 2"]
    drawn: Float[np.ndarray, "n draws 2"]

    def scores(self) -> dict[str, Float[np.ndarray, " n"]]:
        """Squared error, absolute error and negative log-likelihood of every row."""
        return {"rmse": (self.y - self.mean) ** 2, "mae": np.abs(self.y - self.mean), "ntll": -self.log_density}

    @property
    def calibration(self) -> float:
        """The distance between levels of quantiles and the fractions of y below them, averaged over quantiles.

        Of discrete y a part counts where a quantile falls inside its step (Czado, Gneiting and Held 2009).
        """
        return _number_gaps(self.pit)

    @property
    def perfect(self) -> Float[np.ndarray, " draws"]:
        """Calibration errors of these very forecasts where y comes from them."""
        return np.array([_number_gaps(self.drawn[:, i]) for i in range(self.drawn.shape[1])])


def _number_gaps(pit: Float[np.ndarray, "n 2"]) -> float:
    return float(np.abs(fraction_below(pit, QUANTILE_LEVELS) - QUANTILE_LEVELS).mean())


def fraction_below(pit: Float[np.ndarray, "n 2"], levels: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """The fraction of y below quantiles of these levels; of discrete y a part where a quantile is inside a step."""
    lower, upper = pit[:, :1], pit[:, 1:]
    inside = np.clip((levels - lower) / np.where(upper > lower, upper - lower, 1.0), 0.0, 1.0)
    return np.where(upper > lower, inside, upper <= levels).mean(axis=0)


Forecast = ClassForecast | NumberForecast


def joined(parts: list[Forecast]) -> Forecast:
    kind = type(parts[0])
    return kind(*(np.concatenate([getattr(part, name) for part in parts]) for name in kind.__dataclass_fields__))


def drawn_pit(forecast: Predictive, seed: int) -> Float[np.ndarray, "n draws 2"]:
    """P(Y < y) and P(Y ≤ y) of y drawn from the forecasts: uniform and equal where y is continuous."""
    lattice, n = forecast.likelihood.lattice, len(forecast.exposure)
    if lattice is None:
        return np.repeat(np.random.default_rng(seed).random((n, DRAWS_PER_ROW, 1)), 2, axis=2)
    y = forecast.sample(DRAWS_PER_ROW, seed).T
    return np.clip(_at_each(forecast.cdf, np.stack([y - lattice[1], y], axis=2)), 0.0, 1.0)


def _at_each(function: Callable[[np.ndarray], np.ndarray], points: Float[np.ndarray, "n m 2"]) -> np.ndarray:
    """A function of one number per row, at many numbers per row: called once for each that differs in its row."""
    rows = [np.unique(row, return_inverse=True) for row in points.reshape(len(points), -1)]
    most = max(len(distinct) for distinct, _ in rows)
    table = np.array([np.pad(distinct, (0, most - len(distinct)), mode="edge") for distinct, _ in rows])
    values = np.array([function(column) for column in table.T])
    return np.array([values[which, i] for i, (_, which) in enumerate(rows)]).reshape(points.shape)


@dataclass(frozen=True)
class Estimate:
    """A number, its standard error and the degrees of freedom of the latter; NaN and 0 where there is none."""

    value: float
    error: float
    freedom: int

    @property
    def margin(self) -> float:
        """Half the width of the 95 % interval, by Student's t."""
        return float(stdtrit(self.freedom, 0.5 + 0.5 * CONFIDENCE)) * self.error if self.freedom else float("nan")


def pooled(name: str, folds: Rows) -> float:
    """A score of all rows together: the mean, for rmse its root."""
    mean = float(np.mean(np.concatenate(folds)))
    return mean**0.5 if name == "rmse" else mean


def estimate(name: str, folds: Rows, ratio: float) -> Estimate:
    """A score of all rows; `ratio` is the number of rows scored per row learned from, in one fold."""
    return _with_error(pooled(name, folds), _linear(name, folds), ratio)


def difference(name: str, folds: Rows, others: Rows, ratio: float) -> Estimate:
    """A score less another method's on the same rows, paired row by row."""
    paired = [a - b for a, b in zip(_linear(name, folds), _linear(name, others), strict=True)]
    return _with_error(pooled(name, folds) - pooled(name, others), paired, ratio)


def _linear(name: str, folds: Rows) -> Rows:
    """The contribution of every row to a score, to first order: d√m = dm / 2√m."""
    root = pooled(name, folds) if name == "rmse" else 0.0
    return [rows / (2.0 * root) for rows in folds] if root > 0 else folds


def _with_error(value: float, folds: Rows, ratio: float) -> Estimate:
    """Over folds, corrected since their training sets overlap; over rows where there is one fold only.

    The variance of a mean over J folds is (1/J + ratio) S², where S² is that of one fold: with 1/J alone the overlap
    makes it too small (Nadeau and Bengio 2003, Inference for the generalization error, section 3.3).
    """
    each, correction = (np.array([rows.mean() for rows in folds]), ratio) if len(folds) > 1 else (folds[0], 0.0)
    if len(each) < 2:
        return Estimate(value, float("nan"), 0)
    with np.errstate(invalid="ignore"):  # an infinite score has no standard error: NaN
        spread = np.std(each, ddof=1)
    return Estimate(value, float(np.sqrt(1.0 / len(each) + correction) * spread), len(each) - 1)
