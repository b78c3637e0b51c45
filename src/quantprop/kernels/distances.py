"""Squared distances of all pairs of points, with derivatives that keep their digits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Points = Float[Array, "n d"]
Others = Float[Array, "k d"]
Matrix = Float[Array, "n k"]

UNROLLED = 32  # features whose squares are added in one pass over the pairs
MAX_LOSS = 1e-12  # of the sum of all pairs' magnitudes, that a derivative by products may be wrong by


@jax.custom_vjp
def squared_distances(x: Points, z: Others, lengthscale: Float[Array, "..."]) -> Matrix:
    """Σ_d ((x_id − z_jd)/ℓ_d)², some features at a time; exactly 0 for equal rows.

    Differences come first. Never as |x|² + |z|² − 2 xᵀz: near pairs would lose their digits, and a large variance shows
    it. Nor of points that were divided by ℓ: a compiler may round x/ℓ otherwise than z/ℓ, and roots amplify 1e-33.
    """
    scale = jnp.broadcast_to(1.0 / lengthscale, x.shape[1:])

    def add(square, feature):
        a, b, scale = feature
        return square + ((a[:, None] - b) * scale) ** 2, None

    return jax.lax.scan(add, jnp.zeros((len(x), len(z))), (x.T, z.T, scale), unroll=min(x.shape[1], UNROLLED))[0]


def _distances_forward(x, z, lengthscale):
    square = squared_distances(x, z, lengthscale)
    return square, (x, z, lengthscale, square)


def _distances_backward(saved, by):
    """Of Σ_ij c_ij r²_ij: 2/ℓ_d² Σ_j c_ij (x_id − z_jd) in x, its mirror image in z, and in ℓ
    −2/ℓ_d³ Σ_ij c_ij (x_id − z_jd)², which for a single ℓ is −2/ℓ Σ_ij c_ij r²_ij.

    Compiled programs leave out what is not asked for.
    """
    x, z, lengthscale, square = saved
    by_x, by_z = _moments(x, z, by, 1), _moments(z, x, by.T, 1)
    if jnp.size(lengthscale) == 1:
        by_lengthscale = -2.0 * jnp.reshape(jnp.vdot(by, square), jnp.shape(lengthscale)) / lengthscale
    else:
        by_lengthscale = -2.0 * _second_moments(x, z, by, square, lengthscale) / lengthscale**3
    return 2.0 * by_x / lengthscale**2, 2.0 * by_z / lengthscale**2, by_lengthscale


def _second_moments(x: Points, z: Others, by: Matrix, square: Matrix, lengthscale: Float[Array, " d"]) -> Array:
    """Σ_ij c_ij (x_id − z_jd)² for all d: Σ_i x_id² Σ_j c_ij + Σ_j z_jd² Σ_i c_ij − 2 Σ_i x_id (c z)_id, one product of
    matrices, unless rounding errors of its terms might exceed MAX_LOSS times Σ_ij |c_ij| r²_ij.

    They do where c is largest for near pairs: with lengthscales far below the range of x, and under a root.
    """
    middle = jnp.mean(z, axis=0)
    a, b = x - middle, z - middle
    reach = jnp.max((jnp.max(a**2, axis=0) + jnp.max(b**2, axis=0)) / lengthscale**2)
    size = jnp.abs(by)
    loss = 4.0 * jnp.finfo(by.dtype).eps * reach * jnp.sum(size)

    def by_product() -> Array:
        return jnp.sum(by, axis=1) @ a**2 + jnp.sum(by, axis=0) @ b**2 - 2.0 * jnp.sum(a * (by @ b), axis=0)

    return jax.lax.cond(
        loss <= MAX_LOSS * jnp.sum(size * square), by_product, lambda: jnp.sum(_moments(x, z, by, 2), axis=0)
    )


def _moments(x: Points, z: Others, by: Matrix, power: int) -> Points:
    """Σ_j c_ij (x_id − z_jd)^power for all i and d, feature by feature, so that no array has more entries than c.

    One product of matrices, x_id Σ_j c_ij − Σ_j c_ij z_jd, would cancel: under a root c_ij grows like 1/r_ij.
    """
    return jax.lax.map(lambda row: jnp.sum(by * (row[0][:, None] - row[1]) ** power, axis=1), (x.T, z.T)).T


squared_distances.defvjp(_distances_forward, _distances_backward)


def squares(x: Points) -> dict[str, Array]:
    """The distances that one lengthscale only divides, as a piece of `Kernel.pairs`."""
    return {"squares": squared_distances(x, x, jnp.ones(()))}


def root(square: Any) -> Any:
    """√square with derivative 0, not NaN, at 0."""
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
