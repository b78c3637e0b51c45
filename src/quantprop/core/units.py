"""The units of y inside a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Units:
    """y inside a model is (y − centre)/scale, or that of log y."""

    centre: float = 0.0
    scale: float = 1.0
    log: bool = False

    def inward(self, y: np.ndarray) -> np.ndarray:
        """y of the table as the model takes it: labels as they are."""
        if self == Units():
            return y
        with np.errstate(divide="ignore"):
            return ((np.log(np.maximum(y, 0.0)) if self.log else y) - self.centre) / self.scale  # log 0 = −∞

    def outward(self, y: np.ndarray) -> np.ndarray:
        """y of the model, or quantiles of it, in the table's units."""
        there = self.centre + self.scale * y
        return np.exp(there) if self.log else there

    def moments(self, mean: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of y in the table's units; those of a log-normal where the model is of log y."""
        mean, deviation = self.centre + self.scale * mean, self.scale * deviation
        if not self.log:
            return mean, deviation
        expected = np.exp(mean + 0.5 * deviation**2)
        return expected, expected * np.sqrt(np.expm1(deviation**2))
