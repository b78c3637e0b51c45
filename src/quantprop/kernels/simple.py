"""Kernels without a lengthscale: linear functions, offsets, noise."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.kernels.base import VARIANCE, Kernel, Matrix, Others, Pairs, Point, Points, bounded


class Linear(Kernel):
    """Σ_j variance_j (x_j − c_j)(z_j − c_j): linear functions that vanish at `centre`, with independent priors on their
    slopes.

    Args:
        variance: Prior variance of the slopes, one value or one per column; learned.
        centre: Point c at which the functions are 0, one value per column; 0 by default.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> float(kernels.Linear(2.0)(np.array([1.0, 2.0]), np.array([3.0, 1.0])))
    10.0
    """

    variance: Any = 1.0
    centre: Any = None

    bounds = bounded(variance=VARIANCE)

    def about(self, x: Points) -> Points:
        """Points, or one point, relative to the centre."""
        return x if self.centre is None else x - self.centre

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return jnp.sum(self.variance * self.about(x) * self.about(z))

    def cross(self, x: Points, z: Others) -> Matrix:
        return (self.variance * self.about(x)) @ self.about(z).T


class Lines(Kernel):
    """(1, x − c) L Lᵀ (1, z − c)ᵀ: linear functions whose intercept and slopes are correlated. Multiplied by
    `Categories` of a column, each of its levels has its own.

    Args:
        factor: L, lower triangular, row by row: (p + 1)(p + 2) / 2 values for p columns; learned.
        centre: Point c at which the intercept is taken, one value per column; 0 by default.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> lines = kernels.Lines(np.array([2.0, 1.0, 3.0]))
    >>> np.asarray(lines.covariance()).tolist(), float(lines(np.array([1.0]), np.array([0.0])))
    ([[4.0, 2.0], [2.0, 10.0]], 6.0)
    """

    factor: Any
    centre: Any = None

    bounds = bounded(factor=(-float("inf"), float("inf")))

    def root(self) -> Float[Array, "q q"]:
        """L."""
        entries = jnp.asarray(self.factor)
        size = (math.isqrt(1 + 8 * len(entries)) - 1) // 2
        return jnp.zeros((size, size)).at[jnp.tril_indices(size)].set(entries)

    def covariance(self) -> Float[Array, "q q"]:
        """L Lᵀ, of the intercept and the slopes."""
        return self.root() @ self.root().T

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.cross(x[None], z[None])[0, 0]

    def cross(self, x: Points, z: Others) -> Matrix:
        return self._weighted(x) @ self._weighted(z).T

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return jnp.sum(self._weighted(x) ** 2, axis=1)

    def _weighted(self, x: Points) -> Float[Array, "n q"]:
        about = x if self.centre is None else x - self.centre
        return jnp.concatenate([jnp.ones((len(x), 1)), about], axis=1) @ self.root()


class Constant(Kernel):
    """The same covariance everywhere: an unknown offset. As a factor, a variance.

    Args:
        variance: Prior variance; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> round(float(kernels.Constant(2.0)(np.zeros(1), np.ones(1))), 4)
    2.0
    """

    variance: Any = 1.0

    bounds = bounded(variance=VARIANCE)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * jnp.ones(())

    def cross(self, x: Points, z: Others) -> Matrix:
        return self.variance * jnp.ones((len(x), len(z)))


class White(Kernel):
    """Independent noise: `variance` for a row with itself, 0 for two rows, even at equal inputs.

    Args:
        variance: Noise variance; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> np.asarray(kernels.White(2.0).gram(np.zeros((2, 1)))).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """

    variance: Any = 1.0

    bounds = bounded(variance=VARIANCE)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return 0.0 * self.variance

    def cross(self, x: Points, z: Others) -> Matrix:
        return 0.0 * self.variance * jnp.ones((len(x), len(z)))

    def gram_of(self, pairs: Pairs) -> Matrix:
        return self.variance * jnp.eye(len(pairs["x"]))

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self.variance * jnp.ones(len(x))

    def noise(self, x: Points) -> Float[Array, " n"]:
        return self.variance * jnp.ones(len(x))
