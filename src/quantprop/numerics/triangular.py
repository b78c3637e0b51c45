"""The inverse of a triangular matrix, and products whose outcome is known to be symmetric.

A symmetric matrix that is only ever multiplied with symmetric ones, entry by entry, and summed may be *folded*: zero in
the blocks above those on the diagonal, twice itself below them. No pass over memory is spent on its other half.
"""

from __future__ import annotations

import itertools

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

SMALLEST = 128  # rows of a wide matrix from which blocks are worth their number
PARTS = 4  # more cost more in copies than they save in arithmetic, at any n from 500 to 2000


def triangular_inverse(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L⁻¹ by substitution, a block of columns at a time: above its own rows a block is zero.

    15/32 n³ flops, against n³ for substitution with the whole identity at once.
    """
    n = len(lower)
    columns = [
        jnp.concatenate([jnp.zeros((a, b - a)), solve_triangular(lower[a:, a:], jnp.eye(n - a, b - a), lower=True)])
        for a, b in _blocks(n)
    ]
    return jnp.concatenate(columns, axis=1)


def gram_of_lower(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lᵀ L, a block of its lower triangle at a time, without the rows of L that are zero there: 5/8 n³ flops."""
    half = _joined(_gram_rows(lower))
    return jnp.tril(half) + jnp.tril(half, -1).T


def folded_gram(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lᵀ L, folded."""
    return _joined(_gram_rows(lower), below=2.0)


def folded_product(left: Float[Array, "n n"], right: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """leftᵀ right where that is symmetric, folded: 5/4 n³ flops."""
    return _joined([left[:, a:b].T @ right[:, :b] for a, b in _blocks(len(left))], below=2.0)


def lower_product(lower: Float[Array, "m m"], right: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """L right, without the blocks of L that are zero: 5/8 of the flops."""
    return jnp.concatenate([lower[a:b, :b] @ right[:b] for a, b in _worthwhile_blocks(len(lower))])


def weighted_gram(left: Float[Array, "m n"], weights: Float[Array, " n"]) -> Float[Array, "m m"]:
    """left diag(weights) leftᵀ by the blocks of its lower triangle: 5/8 of the flops."""
    scaled = left * weights
    half = _joined([scaled[a:b] @ left[:b].T for a, b in _worthwhile_blocks(len(left))])
    return jnp.tril(half) + jnp.tril(half, -1).T


def _worthwhile_blocks(m: int) -> list[tuple[int, int]]:
    return _blocks(m) if m >= SMALLEST else [(0, m)]


def _blocks(n: int) -> list[tuple[int, int]]:
    return list(itertools.pairwise(n * i // PARTS for i in range(PARTS + 1)))


def _gram_rows(lower: Float[Array, "n n"]) -> list[Array]:
    return [lower[a:, a:b].T @ lower[a:, :b] for a, b in _blocks(len(lower))]


def _joined(rows: list[Array], below: float = 1.0) -> Float[Array, "n n"]:
    """Block rows, each up to the diagonal, as one matrix; what is left of the diagonal blocks is multiplied."""
    n = rows[-1].shape[1]
    scaled = [row * jnp.where(jnp.arange(row.shape[1]) < row.shape[1] - len(row), below, 1.0) for row in rows]
    return jnp.concatenate([jnp.pad(row, ((0, 0), (0, n - row.shape[1]))) for row in scaled])
