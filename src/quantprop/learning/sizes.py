"""The scale of y, and distances between rows of X: starting values and units of θ are taken from them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import pdist

from quantprop.runtime.jobs import sampled

NORMAL_MAD = 0.6744897501960817  # median of |z| for z ~ N(0, 1)
ROUNDING = 1e-12  # deviations smaller than this times the largest |y| are rounding errors
MAX_ROWS_CHECKED = 200  # a sample by which the initial kernel is judged


@dataclasses.dataclass(frozen=True)
class Size:
    """Robust location and scale of y; a row of weight 2 counts as two equal rows."""

    centre: float
    spread: float

    def variance_about(self, mean: float) -> float:
        """The mean square of y about a prior mean, which a kernel has to explain."""
        return self.spread**2 + (self.centre - mean) ** 2


def size_of(y: np.ndarray, weights: Float[np.ndarray, " n"] | None = None) -> Size:
    """The median, and the median absolute deviation as the standard deviation of a normal distribution has it.

    Of a censored y the middle counts, or its finite end. Where more than half of y are equal, the standard deviation
    takes the place of the median one; where all are, their size does.
    """
    weights = sampled(np.ones(len(y)) if weights is None else weights)
    y = sampled(y)
    ends = np.where(np.isfinite(y), y, np.nan)
    points = ends if ends.ndim == 1 else np.nanmean(ends, axis=1)
    centre = _median(points, weights)
    spread = _median(np.abs(points - centre), weights) / NORMAL_MAD
    largest = float(np.abs(points).max())
    if spread > ROUNDING * largest:
        return Size(centre, spread)
    unit = largest if largest > 0 else 1.0
    around = (points - np.average(points, weights=weights)) / unit
    deviation = float(np.sqrt(np.average(around**2, weights=weights)))
    return Size(centre, unit * deviation if deviation > ROUNDING else unit)


def _median(values: np.ndarray, weights: np.ndarray) -> float:
    return float(np.quantile(values, 0.5, weights=weights, method="inverted_cdf"))


def typical_distance(x: Float[np.ndarray, "n d"]) -> float:
    """The median distance between (at most 500) different rows; 1 if all are equal."""
    rows = sampled(x)
    rows = rows[distinct(rows, 500)]
    scale = np.abs(rows).max() if rows.size and np.abs(rows).max() > 0 else 1.0
    distances = pdist(rows / scale)
    distances = distances[distances > 0]
    return float(np.median(distances) * scale) if len(distances) else 1.0


def distinct(x: Float[np.ndarray, "n d"], most: int = MAX_ROWS_CHECKED) -> np.ndarray:
    """The indices of about so many of the different rows."""
    rows = np.unique(x, axis=0, return_index=True)[1]
    return rows[:: max(1, len(rows) // most)]


def size_in(landscape: Any) -> Size:
    """The size of a landscape's y, in the unit of f, rows that do not count left out."""
    n, weights = len(landscape.task.x), landscape.task.weight.total
    counted = weights[:n] > 0
    y = landscape.parts.likelihood.response(np.asarray(landscape.task.data.y[:n][counted]))
    return size_of(y, weights[:n][counted])
