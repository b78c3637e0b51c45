"""Scores over all rows, their differences between two methods, and the standard errors of both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

CONFIDENCE = 0.95

Rows = list[Float[np.ndarray, " n"]]  # the rows of every fold


@dataclass(frozen=True)
class Estimate:
    """A number, its standard error and the degrees of freedom of the latter; NaN and 0 where there is none."""

    value: float
    error: float
    freedom: int

    @property
    def margin(self) -> float:
        """Half the width of the 95 % interval, by Student's t."""
        from scipy.special import stdtrit

        return float(stdtrit(self.freedom, 0.5 + 0.5 * CONFIDENCE)) * self.error if self.freedom else float("nan")


def pooled(name: str, folds: Rows) -> float:
    """A score of all rows together: the mean, for rmse its root."""
    mean = float(np.mean(np.concatenate(folds)))
    return mean**0.5 if name == "rmse" else mean


def estimate(name: str, folds: Rows, ratio: float) -> Estimate:
    """A score of all rows. `ratio` is that of rows scored to rows learned from, of one fold."""
    return _with_error(pooled(name, folds), _linear(name, folds), ratio)


def difference(name: str, folds: Rows, others: Rows, ratio: float) -> Estimate:
    """A score less another method's on the same rows, paired row by row."""
    paired = [a - b for a, b in zip(_linear(name, folds), _linear(name, others), strict=True)]
    return _with_error(pooled(name, folds) - pooled(name, others), paired, ratio)


def _linear(name: str, folds: Rows) -> Rows:
    """What every row adds to a score, to first order: d√m = dm / 2√m."""
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
