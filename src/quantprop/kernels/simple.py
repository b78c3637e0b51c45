"""Kernels without a lengthscale: linear functions, offsets, noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.kernels.base import VARIANCE, Bounds, Kernel, Matrix, Others, Pairs, Point, Points


class Linear(Kernel):
    """variance · xᵀ z."""

    variance: Any = 1.0

    bounds: ClassVar[Mapping[str, Bounds]] = {"variance": VARIANCE}

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * jnp.sum(x * z)

    def cross(self, x: Points, z: Others) -> Matrix:
        return self.variance * (x @ z.T)


class Constant(Kernel):
    """The same covariance everywhere: an unknown offset; as a factor, a variance."""

    variance: Any = 1.0

    bounds: ClassVar[Mapping[str, Bounds]] = {"variance": VARIANCE}

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * jnp.ones(())

    def cross(self, x: Points, z: Others) -> Matrix:
        return self.variance * jnp.ones((len(x), len(z)))


class White(Kernel):
    """Independent noise: `variance` for a datum with itself, 0 for two data, even at the same inputs."""

    variance: Any = 1.0

    bounds: ClassVar[Mapping[str, Bounds]] = {"variance": VARIANCE}

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
