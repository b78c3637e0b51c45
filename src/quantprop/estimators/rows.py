"""Rows of X and y: their weights, equal rows, and summaries of the rows of all processes of a job, which have to be
called by all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.core.data import row_weights
from quantprop.core.parameters import values
from quantprop.inference.task import has_white_noise
from quantprop.model import Model
from quantprop.runtime import jobs

Rows = dict[str, Any]  # what else was given for each row: weights, exposure, trials


def given_rows(**rows: Any) -> Rows:
    """The arguments that are not None."""
    return {name: value for name, value in rows.items() if value is not None}


def with_weight(X: np.ndarray, y: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray, Rows]:
    """The rows whose weight is not zero."""
    if "weights" not in rows:
        return X, y, rows
    weights = row_weights(rows["weights"], len(X), "sample_weight")
    return X[weights > 0], y[weights > 0], _at({**rows, "weights": weights}, len(X), weights > 0)


def written_out(model: Model, X: np.ndarray, y: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray, Rows]:
    """Rows of integer weight above 1 repeated, if white noise in the kernel makes equal rows data of their own and the
    process does not see to that itself.
    """
    if "weights" not in rows or model.process.copies_apart:
        return X, y, rows
    weights = rows["weights"]
    repeated = (weights > 1.0) & (weights == np.rint(weights))
    if not repeated.any() or not has_white_noise(values(model.kernel), X[repeated]):
        return X, y, rows
    which = np.repeat(np.arange(len(X)), np.where(repeated, weights, 1.0).astype(int))
    return X[which], y[which], _at({**rows, "weights": np.where(repeated, 1.0, weights)}, len(X), which)


def merged(model: Model, X: np.ndarray, y: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray, Rows, np.ndarray]:
    """Equal rows (x, y and noise) as one with their total weight, and which one represents each row.

    Not with white noise in the kernel, nor with inducing points, where equal rows have values of their own.
    """
    every = np.arange(len(X))
    if model.process.copies_apart:
        return X, y, rows, every
    noise, weights = (np.broadcast_to(rows.get(name, 1.0), (len(X),)) for name in ("exposure", "weights"))
    _, first, which = np.unique(np.column_stack([X, y, noise]), axis=0, return_index=True, return_inverse=True)
    if len(first) == len(X) or has_white_noise(model.plain_kernel, X):
        return X, y, rows, every
    order = np.argsort(first)  # distinct rows in the order of their first appearance
    first, which = first[order], np.argsort(order)[which.ravel()]
    return X[first], y[first], {**_at(rows, len(X), first), "weights": np.bincount(which, weights)}, which


def _at(rows: Rows, n: int, which: np.ndarray) -> Rows:
    return {name: np.broadcast_to(value, (n,))[which] for name, value in rows.items()}


# --- over all processes of a job -------------------------------------------------------------------------------------


def label_counts(codes: np.ndarray, n: int, weights: Any) -> np.ndarray:
    """The total weight of each of n labels."""
    return jobs.sums(np.bincount(codes.astype(int), weights, minlength=n))[0]


def mean_and_deviation(y: np.ndarray, weights: Any) -> tuple[float, float]:
    """Mean and standard deviation of y; a deviation of 0 becomes 1."""
    weights = np.broadcast_to(weights, y.shape)
    total, count = jobs.sums(np.sum(weights * y), np.sum(weights))
    mean = float(total / count)
    deviation = float(np.sqrt(jobs.sums(np.sum((y - mean) ** 2 * weights))[0] / count))
    return mean, deviation if deviation > 0 else 1.0


def sampled_rows(
    x: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"] | None
) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, " k"]]:
    """Rows of all processes and their weights: all rows, or a sample of many."""
    return jobs.sampled(x), jobs.sampled(np.ones(len(x)) if weights is None else weights)


def column_moments(
    x: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"] | None
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Mean and variance of each column; a row of weight 2 counts as two."""
    rows, counts = sampled_rows(x, weights)
    centre = np.average(rows, axis=0, weights=counts)
    return centre, np.average((rows - centre) ** 2, axis=0, weights=counts)
