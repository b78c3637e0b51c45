"""Kernels without a lengthscale: linear functions, offsets, noise."""

from __future__ import annotations

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
