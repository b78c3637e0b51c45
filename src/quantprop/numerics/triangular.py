"""Triangular factors: their inverses, and products whose outcome is known to be symmetric.

All of these are computed by blocks, without those that are zero or known by symmetry: of halves on an accelerator,
whose compiler tries out implementations for every shape of a product, and of more on a CPU (`in_many_blocks`).

Left sides of products are taken by rows: on a CPU XLA then multiplies two to three times as fast as by columns, and as
LAPACK substitutes (docs/design-log.md). LAPACK leaves a factor L by columns, which is U = Lᵀ by rows. So everything is
done with U, and in its block rows, each from the diagonal on: nothing is transposed, and products leave out zeros.
Counts of operations are those of four blocks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

BLOCK = 128  # rows of a block, unless there would be fewer than MIN_BLOCKS or more than MAX_BLOCKS
MIN_BLOCKS, MAX_BLOCKS = 3, 4  # more cost more in copies than they save in arithmetic, at any n from 500 to 2000
MIN_DIVIDED = 256  # products of a larger triangular factor with wide matrices are divided
LEAF = 96  # rows that LAPACK substitutes into at once, three times as slowly as it multiplies


def in_many_blocks() -> bool:
    """Return whether matrices are divided into more than two blocks in programs traced now: on a CPU. An accelerator
    would wait longer for autotuning of many shapes than it saves.
    """
    return jax.default_backend() == "cpu"


def _blocks(n: int) -> list[tuple[int, int]]:
    many = min(max(-(-n // BLOCK), MIN_BLOCKS), MAX_BLOCKS) if in_many_blocks() else 2
    parts = many if n > LEAF else 1
    return [(n * i // parts, n * (i + 1) // parts) for i in range(parts)]


def _halves(n: int) -> list[tuple[int, int]]:
    """Blocks of products with wide matrices, whose slices cost as much as smaller products save."""
    return [(0, n // 2), (n // 2, n)] if n > MIN_DIVIDED else [(0, n)]


def transposed(matrix: Float[Array, "m n"]) -> Float[Array, "n m"]:
    """The transpose, written out by rows, as the left side of a product."""
    return jax.lax.optimization_barrier(matrix.T)


def triangular_inverse(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    return assembled(inverse_rows(block_rows(lower.T))).T


def block_rows(upper: Float[Array, "n n"]) -> list[Array]:
    """The block rows of U, each from the diagonal on."""
    return [upper[a:b, a:] for a, b in _blocks(len(upper))]


def assembled(rows: list[Array]) -> Float[Array, "n n"]:
    """U of its block rows."""
    n = rows[0].shape[1]
    upper = jnp.zeros((n, n), rows[0].dtype)
    for row in reversed(rows):
        a = n - row.shape[1]
        upper = jax.lax.dynamic_update_slice(upper, row, (a, a))
    return upper


def inverse_rows(rows: list[Array]) -> list[Array]:
    """The block rows of Z = U⁻¹ from U Z = I, from the last to the first: U_jj Z_j = I_j − Σ_k U_jk Z_k over k > j.
    The sums are products; U_jj is substituted into, not inverted, which would lose its condition number.
    """
    found: list[Array] = []  # of the rows below
    for row in reversed(rows):
        width, ends = len(row), row.shape[1]
        own, eye = row[:, :width], jnp.eye(width, dtype=row.dtype)
        products = [row[:, -z.shape[1] :][:, : len(z)] @ z for z in found]
        right = [-sum(jnp.pad(p, ((0, 0), (ends - width - p.shape[1], 0))) for p in products)] if found else []
        found = [_substituted(own, jnp.concatenate([eye, *right], axis=1)), *found]
    return found


def _substituted(upper: Float[Array, "n n"], right: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Y of U Y = right; for a wide U from that of its halves, U₁₁ Y₁ = right₁ − U₁₂ Y₂."""
    if len(upper) <= LEAF or not in_many_blocks():  # Yᵀ L = rightᵀ: what is transposed here lies as LAPACK wants it
        return jax.lax.linalg.triangular_solve(upper.T, right.T, left_side=False, lower=True).T
    half = len(upper) // 2
    second = _substituted(upper[half:, half:], right[half:])
    first = _substituted(upper[:half, :half], right[:half] - upper[:half, half:] @ second)
    return jnp.concatenate([first, second])


def squares_beside(rows: list[Array]) -> Float[Array, " n"]:
    """Σ_k U_ik² over k > i, right of the diagonal, from the block rows of U."""
    return jnp.concatenate([jnp.sum(_strictly(row) ** 2, 1) + jnp.sum(row[:, len(row) :] ** 2, 1) for row in rows])


def squares_above(rows: list[Array]) -> Float[Array, " n"]:
    """Σ_k U_ki² over k < i, above the diagonal, from the block rows of U."""
    n = rows[0].shape[1]
    sums = [jnp.concatenate([jnp.sum(_strictly(r) ** 2, 0), jnp.sum(r[:, len(r) :] ** 2, 0)]) for r in rows]
    return sum((jnp.pad(s, (n - len(s), 0)) for s in sums), jnp.zeros(n))


def _strictly(row: Float[Array, "w m"]) -> Float[Array, "w w"]:
    """A block row's block on the diagonal, without the diagonal."""
    return jnp.where(jnp.eye(len(row), dtype=bool), 0.0, row[:, : len(row)])


def gram_of_upper(upper: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """U Uᵀ, without the columns of U that are zero in a block of rows: 5/8 n³ flops."""
    return _mirrored([upper[a:b, a:] @ upper[:b, a:].T for a, b in _blocks(len(upper))])


def weighted_gram(left: Float[Array, "m n"], weights: Float[Array, " n"]) -> Float[Array, "m m"]:
    """left diag(weights) leftᵀ."""
    return symmetric_product(left * weights, left.T)


def symmetric_product(left: Float[Array, "m n"], right: Float[Array, "n m"]) -> Float[Array, "m m"]:
    """left right, which is symmetric, by the halves of its lower triangle: 3/4 of the flops."""
    return _mirrored([left[a:b] @ right[:, :b] for a, b in _halves(len(left))])


@jax.custom_vjp
def lower_product(lower: Float[Array, "m m"], right: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """L right, without the quarter of L that is zero: 3/4 of the flops, and so its derivatives."""
    return jnp.concatenate([lower[a:b, :b] @ right[:b] for a, b in _halves(len(lower))])


def upper_product(upper: Float[Array, "m m"], right: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """U right, without the quarter of U that is zero: 3/4 of the flops."""
    return jnp.concatenate([upper[a:b, a:] @ right[a:] for a, b in _halves(len(upper))])


def _lower_product_forward(lower, right):
    return lower_product(lower, right), (lower, right)


def _lower_product_backward(saved, by):
    lower, right = saved
    rows = [jnp.pad(by[a:b] @ right[:b].T, ((0, 0), (0, len(lower) - b))) for a, b in _halves(len(lower))]
    return jnp.concatenate(rows), upper_product(transposed(lower), by)


lower_product.defvjp(_lower_product_forward, _lower_product_backward)


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
