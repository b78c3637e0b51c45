"""Small matrices, many at a time: rows and columns first, then whatever runs over time or stretches of it.

All loops over entries are written out, so that a step of a filter is a few fused loops over long arrays, and no call of
LAPACK. Beyond FEW entries a side the sums over inner indices are loops of the compiler instead.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

Matrix = Float[Array, "d d *many"]
Vector = Float[Array, "d *many"]

FEW = 8


def product(a: Matrix, b: Matrix) -> Matrix:
    """A B."""
    if not 0 < len(b) <= FEW:
        return jnp.einsum("ij...,jk...->ik...", a, b)
    return sum((a[:, j, None] * b[None, j] for j in range(1, len(b))), a[:, 0, None] * b[None, 0])


def times(a: Matrix, x: Vector) -> Vector:
    """A x."""
    if len(x) > FEW:
        return jnp.einsum("ij...,j...->i...", a, x)
    return sum((a[:, j] * x[j] for j in range(1, len(x))), a[:, 0] * x[0])


def dot(x: Vector, y: Vector) -> Array:
    """xᵀ y."""
    return jnp.sum(x * y, axis=0)


def outer(x: Vector, y: Vector) -> Matrix:
    """x yᵀ."""
    return x[:, None] * y[None]


def transposed(a: Matrix) -> Matrix:
    """Aᵀ."""
    return jnp.swapaxes(a, 0, 1)


def symmetric(a: Matrix) -> Matrix:
    """The symmetric part, which rounding errors leave."""
    return 0.5 * (a + transposed(a))


def identity(a: Matrix) -> Matrix:
    """I, as many times as there are matrices."""
    own = jnp.eye(len(a), dtype=a.dtype)
    return jnp.broadcast_to(own.reshape(own.shape + (1,) * (a.ndim - 2)), a.shape)


def cholesky(a: Matrix, least: float = 0.0) -> Matrix:
    """L with A = L Lᵀ. A pivot that is not above `least` is rounding: if that is 0, so is its column."""
    d, columns = len(a), []
    for j in range(d):
        above = a[0, 0] > least
        root = jnp.where(above, jnp.sqrt(jnp.where(above, a[0, 0], 1.0)), least**0.5)
        column = a[:, 0] * jnp.where(above | (least > 0.0), 1.0 / jnp.where(root > 0.0, root, 1.0), 0.0)
        column = jnp.concatenate([root[None], column[1:]])
        columns.append(jnp.concatenate([jnp.zeros((j, *root.shape)), column]))
        a = a[1:, 1:] - outer(column[1:], column[1:])
    return jnp.stack(columns, axis=1)


def forward_solve(lower: Matrix, x: Vector) -> Vector:
    """L⁻¹ x of a lower triangle L without zeros on its diagonal."""
    found = []
    for i in range(len(x)):
        rest = sum((lower[i, j] * found[j] for j in range(i)), jnp.zeros_like(x[i]))
        found.append((x[i] - rest) / lower[i, i])
    return jnp.stack(found)


def inverse(a: Matrix) -> Matrix:
    """A⁻¹ by Gauss-Jordan elimination with partial pivoting."""
    d = len(a)
    if d > FEW:
        return jnp.moveaxis(jnp.linalg.inv(jnp.moveaxis(a, (0, 1), (-2, -1))), (-2, -1), (0, 1))
    rows = list(jnp.concatenate([a, identity(a)], axis=1))
    for j in range(d):
        for i in range(j + 1, d):
            larger = jnp.abs(rows[i][j]) > jnp.abs(rows[j][j])
            rows[i], rows[j] = jnp.where(larger, rows[j], rows[i]), jnp.where(larger, rows[i], rows[j])
        pivot = rows[j] / rows[j][j]
        rows = [pivot if i == j else row - row[j] * pivot for i, row in enumerate(rows)]
    return jnp.stack([row[d:] for row in rows])
