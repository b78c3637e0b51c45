"""Scores of forecasts against outcomes, and what a perfect forecaster would score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from quantprop.comparison.perfect import DRAWS

BINS = 10
LEVELS = np.linspace(0.05, 0.95, 19)


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
        came = np.random.default_rng(0).random((len(p), DRAWS)) < p[:, None]
        return _class_gaps(p, came)


def _class_gaps(p: Float[np.ndarray, " n"], came: np.ndarray) -> Float[np.ndarray, " m"]:
    """Calibration errors of forecasts p for every column of outcomes."""
    at = np.minimum((p * BINS).astype(int), BINS - 1)
    excess = came - p[:, None]
    sums = np.array([excess[at == b].sum(axis=0) for b in range(BINS)])
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
        """How far the shares of y below their own quantiles are from what they should be, averaged over quantiles.

        Of discrete y a part counts where a quantile falls inside its step (Czado, Gneiting and Held 2009).
        """
        return _number_gaps(self.pit)

    @property
    def perfect(self) -> Float[np.ndarray, " draws"]:
        """Calibration errors of these very forecasts where y comes from them."""
        return np.array([_number_gaps(self.drawn[:, i]) for i in range(self.drawn.shape[1])])


def _number_gaps(pit: Float[np.ndarray, "n 2"]) -> float:
    lower, upper = pit[:, :1], pit[:, 1:]
    inside = np.clip((LEVELS - lower) / np.where(upper > lower, upper - lower, 1.0), 0.0, 1.0)
    below = np.where(upper > lower, inside, upper <= LEVELS).mean(axis=0)
    return float(np.abs(below - LEVELS).mean())


Forecast = ClassForecast | NumberForecast


def joined(parts: list[Forecast]) -> Forecast:
    """The forecasts of several sets of rows as one."""
    kind = type(parts[0])
    return kind(*(np.concatenate([getattr(part, name) for part in parts]) for name in kind.__dataclass_fields__))
