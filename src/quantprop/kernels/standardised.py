"""A kernel of columns in units of their own."""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Float

from quantprop.kernels.base import Kernel, Matrix, Others, Pairs, Point, Points


class Standardised(Kernel):
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

    kernel: Kernel
    centre: Any
    scale: Any

    def of(self, x: Any) -> Any:
        """Points, or one point, in these units."""
        return (x - self.centre) / self.scale

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.kernel(self.of(x), self.of(z))

    def cross(self, x: Points, z: Others) -> Matrix:
        return self.kernel.cross(self.of(x), self.of(z))

    def gram_of(self, pairs: Pairs) -> Matrix:
        return self.kernel.gram(self.of(pairs["x"]))

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self.kernel.diagonal(self.of(x))

    def noise(self, x: Points) -> Float[Array, " n"]:
        return self.kernel.noise(self.of(x))
