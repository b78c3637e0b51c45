"""Forecasts: the distribution of y at steps after the last training input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.inference.predictive import Predictive


@dataclass(frozen=True)
class Forecast:
    """What is expected of y at later times.

    Attributes:
        times: the times, in the unit of X.
        y: the distribution of y at each of them (mean, variance, cdf, quantile, log_prob, sample).
    """

    times: Float[np.ndarray, " horizon"]
    y: Predictive


def ahead(X: Float[np.ndarray, "n d"], horizon: int, step: float | None) -> Float[np.ndarray, " horizon"]:
    """The times of a forecast: so many steps after the last, each the median of those between the data unless given."""
    if X.shape[1] != 1:
        raise ValueError(
            f"forecast needs one column of X, time; got {X.shape[1]}: use predict_y at inputs of your choice"
        )
    times = np.unique(X[:, 0])
    if step is None and len(times) < 2:
        raise ValueError("forecast needs two different times to know a step: give step=")
    by: Any = np.median(np.diff(times)) if step is None else step
    return times[-1] + by * np.arange(1, horizon + 1)
