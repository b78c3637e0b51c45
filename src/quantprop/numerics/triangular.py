"""Triangular factors: their inverses, and products whose outcome is known to be symmetric.

On a CPU all of these are computed by blocks, without those that are zero or known by symmetry; on an accelerator, whose
compiler tries out implementations for every shape of a product, as one operation each (`in_blocks`).

Left sides of products are taken by rows: on a CPU XLA then multiplies two to three times as fast as by columns, and as
LAPACK substitutes (docs/measured.md). LAPACK leaves a factor L by columns, which is U = Lᵀ by rows. So inverses are
those of U. Counts of operations are those of four blocks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

BLOCK = 128  # rows of a block, unless there would be fewer than MIN_BLOCKS or more than MAX_BLOCKS
MIN_BLOCKS, MAX_BLOCKS = 3, 4  # more cost more in copies than they save in arithmetic, at any n from 500 to 2000
LEAF = 96  # rows that LAPACK substitutes into at once, three times as slowly as it multiplies


def in_blocks() -> bool:
    """Whether matrices are divided into blocks, in programs traced now: on a CPU. An accelerator would wait longer for
    autotuning of many shapes than it saves; there every operation is one on whole matrices.
    """
    return jax.default_backend() == "cpu"


def _blocks(n: int) -> list[tuple[int, int]]:
    parts = min(max(-(-n // BLOCK), MIN_BLOCKS), MAX_BLOCKS) if n > LEAF and in_blocks() else 1
    return [(n * i // parts, n * (i + 1) // parts) for i in range(parts)]


def transposed(matrix: Float[Array, "m n"]) -> Float[Array, "n m"]:
    """Its transpose, written out by rows, as the left side of a product."""
    return jax.lax.optimization_barrier(matrix.T)


def triangular_inverse(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L⁻¹."""
    return upper_inverse(lower.T).T


def upper_inverse(upper: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Z = U⁻¹ by block rows, from the last to the first: U_jj Z_j = I_j − Σ_k U_jk Z_k over k > j. The sums are
    products; U_jj is substituted into, not inverted, which would lose its condition number.
    """
    n, blocks = len(upper), _blocks(len(upper))
    if not in_blocks():
        return jax.lax.linalg.triangular_solve(upper, jnp.eye(n, dtype=upper.dtype), left_side=True)
    inverse = jnp.zeros((n, n), upper.dtype)
    for i, (a, b) in reversed(list(enumerate(blocks))):
        right = jnp.eye(b - a, n - a, dtype=upper.dtype)
        for c, d in blocks[i + 1 :]:
            right = right - jnp.pad(upper[a:b, c:d] @ inverse[c:d, c:], ((0, 0), (c - a, 0)))
        inverse = jax.lax.dynamic_update_slice(inverse, _substituted(upper[a:b, a:b], right), (a, a))
    return inverse


def _substituted(upper: Float[Array, "n n"], right: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Y of U Y = right; for a wide U from that of its halves, U₁₁ Y₁ = right₁ − U₁₂ Y₂."""
    if len(upper) <= LEAF:  # Yᵀ L = rightᵀ: what is transposed here lies as LAPACK wants it
        return jax.lax.linalg.triangular_solve(upper.T, right.T, left_side=False, lower=True).T
    half = len(upper) // 2
    second = _substituted(upper[half:, half:], right[half:])
    first = _substituted(upper[:half, :half], right[:half] - upper[:half, half:] @ second)
    return jnp.concatenate([first, second])


def gram_of_upper(upper: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """U Uᵀ, without the columns of U that are zero in a block of rows: 5/8 n³ flops."""
    return _mirrored([upper[a:b, a:] @ upper[:b, a:].T for a, b in _blocks(len(upper))])


def symmetric_product(left: Float[Array, "m n"], right: Float[Array, "n m"]) -> Float[Array, "m m"]:
    """left right where that is symmetric, by the blocks of its lower triangle: 5/8 of the flops."""
    return _mirrored([left[a:b] @ right[:, :b] for a, b in _blocks(len(left))])


def weighted_gram(left: Float[Array, "m n"], weights: Float[Array, " n"]) -> Float[Array, "m m"]:
    """left diag(weights) leftᵀ."""
    return symmetric_product(left * weights, left.T)


def lower_product(lower: Float[Array, "m m"], right: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """L right, without the blocks of L that are zero: 5/8 of the flops."""
    return jnp.concatenate([lower[a:b, :b] @ right[:b] for a, b in _blocks(len(lower))])


def _mirrored(rows: list[Array]) -> Float[Array, "n n"]:
    """Block rows, each up to the diagonal, as one symmetric matrix."""
    whole = []
    for i, row in enumerate(rows):
        a, b = row.shape[1] - len(row), row.shape[1]
        whole.append(jnp.concatenate([row, *(below[:, a:b].T for below in rows[i + 1 :])], axis=1))
    return jnp.concatenate(whole)


def pivoted_cholesky(
    k: Float[Array, "n n"], rank: int, least: Array | float
) -> tuple[Float[Array, "n r"], Float[Array, " n"], Bool[Array, " n"]]:
    """The first columns of a Cholesky factor of k with pivots, the variances that they leave, and the rows that were
    pivots. Rows are pivots while their variance is above `least`; columns beyond are 0.
    """

    def column(i, state):
        columns, left, pivots = state
        pivot = jnp.argmax(jnp.where(left > least, left, 0.0))
        takes = (left > least)[pivot]
        new = (k[:, pivot] - columns @ columns[pivot]) / jnp.sqrt(jnp.where(takes, left[pivot], jnp.inf))
        left = (left - new**2).at[pivot].multiply(jnp.where(takes, 0.0, 1.0))
        return columns.at[:, i].set(new), left, pivots.at[pivot].max(takes)

    n = len(k)
    start = jnp.zeros((n, rank)), jnp.diagonal(k), jnp.zeros(n, dtype=bool)
    return jax.lax.fori_loop(0, rank, column, start)
