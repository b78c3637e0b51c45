"""Covariance functions. A kernel is a record that sees one pair of points; `gram` and `cross` do the rest.

Kernels add and multiply: `SquaredExponential() + Constant(2.0) * Linear()`. A kernel of your own is a subclass with one
method, `__call__(x, z)`, written in jax.numpy.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Point = Float[Array, " d"]
_SQRT3, _SQRT5 = 3.0**0.5, 5.0**0.5


class Kernel(eqx.Module):
    """Base of all kernels: k(x, z) for two points, plus `+` and `*`."""

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        raise NotImplementedError

    def __add__(self, other: Kernel) -> Kernel:
        return Sum(self, other)

    def __mul__(self, other: Kernel) -> Kernel:
        return Product(self, other)


class Sum(Kernel):
    """k₁ + k₂."""

    left: Kernel
    right: Kernel

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.left(x, z) + self.right(x, z)


class Product(Kernel):
    """k₁ · k₂."""

    left: Kernel
    right: Kernel

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.left(x, z) * self.right(x, z)


def _squared_distance(x: Point, z: Point, lengthscale: Any) -> Float[Array, ""]:
    return jnp.sum(((x - z) / lengthscale) ** 2)


def _distance(x: Point, z: Point, lengthscale: Any) -> Float[Array, ""]:
    """Euclidean distance with derivative 0, not NaN, where the points coincide."""
    square = _squared_distance(x, z, lengthscale)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


class SquaredExponential(Kernel):
    """variance · exp(−|x − z|²/(2 lengthscale²)); one lengthscale, or one per feature (ARD)."""

    variance: Any = 1.0
    lengthscale: Any = 1.0

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * jnp.exp(-0.5 * _squared_distance(x, z, self.lengthscale))


class Matern12(Kernel):
    """variance · exp(−r), r = |x − z|/lengthscale."""

    variance: Any = 1.0
    lengthscale: Any = 1.0

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * jnp.exp(-_distance(x, z, self.lengthscale))


class Matern32(Kernel):
    """variance · (1 + √3 r) exp(−√3 r)."""

    variance: Any = 1.0
    lengthscale: Any = 1.0

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        r = _SQRT3 * _distance(x, z, self.lengthscale)
        return self.variance * (1.0 + r) * jnp.exp(-r)


class Matern52(Kernel):
    """variance · (1 + √5 r + 5r²/3) exp(−√5 r)."""

    variance: Any = 1.0
    lengthscale: Any = 1.0

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        r = _SQRT5 * _distance(x, z, self.lengthscale)
        return self.variance * (1.0 + r + r * r / 3.0) * jnp.exp(-r)


class Linear(Kernel):
    """variance · xᵀ z."""

    variance: Any = 1.0

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * jnp.sum(x * z)


class Constant(Kernel):
    """The same covariance everywhere: an unknown offset."""

    variance: Any = 1.0

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * jnp.ones(())


def cross(kernel: Kernel, x: Float[Array, "n d"], z: Float[Array, "k d"]) -> Float[Array, "n k"]:
    """k(x_i, z_j) for all pairs; XLA fuses the sum over features, no n × k × d array is formed."""
    return jax.vmap(lambda a: jax.vmap(lambda b: kernel(a, b))(z))(x)


def diagonal(kernel: Kernel, x: Float[Array, "n d"]) -> Float[Array, " n"]:
    """k(x_i, x_i)."""
    return jax.vmap(lambda a: kernel(a, a))(x)
