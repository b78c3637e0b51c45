"""Observations drawn from forecasts: what a forecaster would see whose distributions are the true ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from quantprop.inference.predictive import Predictive

DRAWS = 200  # of y per row


def drawn_pit(forecast: Predictive, seed: int) -> Float[np.ndarray, "n draws 2"]:
    """P(Y < y) and P(Y ≤ y) of y drawn from the forecasts: uniform and equal where y is continuous."""
    lattice, n = forecast.likelihood.lattice, len(forecast.exposure)
    if lattice is None:
        return np.repeat(np.random.default_rng(seed).random((n, DRAWS, 1)), 2, axis=2)
    y = forecast.sample(DRAWS, seed).T
    return np.clip(_at_each(forecast.cdf, np.stack([y - lattice[1], y], axis=2)), 0.0, 1.0)


def _at_each(function: Callable[[np.ndarray], np.ndarray], points: Float[np.ndarray, "n m 2"]) -> np.ndarray:
    """A function of one number per row, at many numbers per row: called once for each that differs in its row."""
    rows = [np.unique(row, return_inverse=True) for row in points.reshape(len(points), -1)]
    most = max(len(distinct) for distinct, _ in rows)
    table = np.array([np.pad(distinct, (0, most - len(distinct)), mode="edge") for distinct, _ in rows])
    values = np.array([function(column) for column in table.T])
    return np.array([values[which, i] for i, (_, which) in enumerate(rows)]).reshape(points.shape)
