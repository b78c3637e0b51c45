"""A kernel of columns in units of their own."""

from __future__ import annotations

from typing import Any

from quantprop.kernels.base import Matrix, Pairs, Points, Transformed


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

    def gram_of(self, pairs: Pairs) -> Matrix:
        return self.kernel.gram(self.of(pairs["x"]))
