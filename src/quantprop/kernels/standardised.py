"""Kernels of columns on a scale of their own: in standard deviations, or by rank."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from quantprop.core.records import changed
from quantprop.kernels.base import Points, Transformed
from quantprop.runtime.display import Form, expression

MAX_KNOTS = 1024  # distinct values of a column whose scores are stored


class Standardised(Transformed):
    """A kernel of (x − centre)/scale, one centre and one scale for each column: lengthscales are in units of `scale`.

    Args:
        kernel: Kernel of the standardised columns.
        centre: What is subtracted from each column.
        scale: What each column is divided by then.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> kernel = kernels.Standardised(kernels.Linear(), centre=np.array([1000.0]), scale=np.array([2.0]))
    >>> float(kernel(np.array([1002.0]), np.array([1004.0])))
    2.0
    """

    centre: Any
    scale: Any

    def of(self, x: Points) -> Points:
        return (x - self.centre) / self.scale


class RankNormal(Transformed):
    """A kernel of the rank-normal scores of each column, Φ⁻¹ of the fraction of rows below: for heavy tails.

    The map of a column is increasing, linear between the values of the rows that it was learned from, and constant
    beyond. `fit` learns it from the rows that count; `measured` does the same.

    Args:
        kernel: Kernel of the scores.
        values: Increasing values of each column; from the data.
        scores: Their scores; from the data.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> kernel = kernels.RankNormal(kernels.Linear()).measured(np.array([[1.0], [2.0], [900.0]]))
    >>> np.asarray(kernel.of(np.array([[1.5], [900.0]])), dtype=float).round(2).tolist()
    [[-0.48], [0.97]]
    """

    values: Any = None
    scores: Any = None

    smoothness = 0

    def _expression(self, form: Form) -> str:
        return f"RankNormal({expression(self.kernel, form)})"

    def measured(self, x: Any, counts: Any = None) -> RankNormal:
        """The kernel with the scores of rows x, of which row i counts `counts[i]` times; itself if it has some. Equal
        values have one score, at the middle of their ranks. Of more than 1,024 values some are stored, evenly by rank.
        """
        if self.values is not None:
            return self
        share = np.ones(len(x)) if counts is None else np.asarray(counts, dtype=np.float64)
        maps = [_normal_scores(column, share[share > 0]) for column in np.asarray(x, dtype=np.float64)[share > 0].T]
        longest = max(values.size for values, _ in maps)
        width = 1 << (longest - 1).bit_length()  # so that folds share programs
        values, scores = (np.stack([np.pad(own, (0, width - len(own)), mode="edge") for own in each])
                          for each in zip(*maps, strict=True))  # fmt: skip
        return changed(self, values=values, scores=scores)

    def of(self, x: Points) -> Points:
        if self.values is None:
            raise ValueError("RankNormal: the scores of its columns are not set: use fit, which learns them from the "
                             "rows, or kernel.measured(X)")  # fmt: skip
        return jax.vmap(jnp.interp, in_axes=(-1, 0, 0), out_axes=-1)(jnp.asarray(x), self.values, self.scores)


def _normal_scores(x: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values of a column, or some of them, and their scores."""
    values, place = np.unique(x, return_inverse=True)
    own = np.bincount(place, counts)
    kept = np.unique(np.linspace(0, len(values) - 1, min(len(values), MAX_KNOTS)).round().astype(int))
    return values[kept], ndtri((np.cumsum(own) - 0.5 * own) / own.sum())[kept]
