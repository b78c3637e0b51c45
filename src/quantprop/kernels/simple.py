"""Kernels without a lengthscale: linear functions, offsets, noise."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.kernels.base import VARIANCE, Kernel, Matrix, Others, Pairs, Point, Points, bounded


class Linear(Kernel):
    """Σ_j variance_j (x_j − c_j)(z_j − c_j): slopes with independent priors, for lines that pass through 0 at `centre`.

    `variance` is one for all columns, or one each; `centre` is 0 if not given.
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
    """The same covariance everywhere: an unknown offset; as a factor, a variance."""

    variance: Any = 1.0

    bounds = bounded(variance=VARIANCE)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * jnp.ones(())

    def cross(self, x: Points, z: Others) -> Matrix:
        return self.variance * jnp.ones((len(x), len(z)))


class White(Kernel):
    """Independent noise: `variance` for a datum with itself, 0 for two data, even at the same inputs."""

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
