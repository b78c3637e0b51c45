"""The inverse of a triangular matrix, and products whose outcome is known to be symmetric.

Left sides of products are taken by rows: on a CPU XLA then multiplies two to three times as fast as by columns, and as
LAPACK substitutes (docs/measured.md). Counts of operations are those of four blocks.

LAPACK leaves a factor L by columns, which is U = Lᵀ by rows. So everything is done with U, and in its block rows, each
from the diagonal on: nothing is transposed, and products leave out what is zero.

A symmetric matrix that is only ever multiplied with symmetric ones, entry by entry, and summed may be *folded*: zero in
the blocks above those on the diagonal, twice itself below them. No pass over memory is spent on its other half.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SMALLEST = 128  # rows of a wide matrix from which blocks are worth their number
PARTS = 4  # more cost more in copies than they save in arithmetic, at any n from 500 to 2000
LEAF = 128  # rows of a block, unless there are PARTS already: each takes time to compile
WIDEST = 96  # block that LAPACK substitutes into at once; its substitution takes three times as long as a product


def transposed(matrix: Float[Array, "m n"]) -> Float[Array, "n m"]:
    """Its transpose, written out by rows, as the left side of a product."""
    return jax.lax.optimization_barrier(matrix.T)


def triangular_inverse(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L⁻¹."""
    return assembled(inverse_rows(block_rows(lower.T))).T


def block_rows(upper: Float[Array, "n n"]) -> list[Array]:
    """The block rows of U, each from the diagonal on."""
    return [upper[a:b, a:] for a, b in _blocks(len(upper), fewest=3)]


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
    if len(upper) <= WIDEST:  # Yᵀ L = rightᵀ: what is transposed here lies as LAPACK wants it
        return jax.lax.linalg.triangular_solve(upper.T, right.T, left_side=False, lower=True).T
    half = len(upper) // 2
    second = _substituted(upper[half:, half:], right[half:])
    first = _substituted(upper[:half, :half], right[:half] - upper[:half, half:] @ second)
    return jnp.concatenate([first, second])


def squares_beside(rows: list[Array]) -> Float[Array, " n"]:
    """Σ_k U_ik² over k > i: what a row has right of the diagonal."""
    return jnp.concatenate([jnp.sum(_strictly(row) ** 2, 1) + jnp.sum(row[:, len(row) :] ** 2, 1) for row in rows])


def squares_above(rows: list[Array]) -> Float[Array, " n"]:
    """Σ_k U_ki² over k < i: what a column has above the diagonal."""
    n = rows[0].shape[1]
    sums = [jnp.concatenate([jnp.sum(_strictly(r) ** 2, 0), jnp.sum(r[:, len(r) :] ** 2, 0)]) for r in rows]
    return sum((jnp.pad(s, (n - len(s), 0)) for s in sums), jnp.zeros(n))


def _strictly(row: Float[Array, "w m"]) -> Float[Array, "w w"]:
    """A block row's block on the diagonal, without the diagonal."""
    width = len(row)
    return jnp.where(jnp.eye(width, dtype=bool), 0.0, row[:, :width])


def gram_of_upper(upper: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """U Uᵀ, a block of its lower triangle at a time, without the columns of U that are zero there: 5/8 n³ flops."""
    return _mirrored(_gram_rows(upper))


def folded_gram(upper: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """U Uᵀ, folded."""
    return _folded(_gram_rows(upper))


def folded_product(left: Float[Array, "n n"], right: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """left right where that is symmetric, folded: 3/2 n³ flops in two blocks. More would take as long, and memory."""
    half = len(left) // 2
    return _folded([left[:half] @ right[:, :half], left[half:] @ right])


def lower_product(lower: Float[Array, "m m"], right: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """L right, without the blocks of L that are zero: 5/8 of the flops."""
    return jnp.concatenate([lower[a:b, :b] @ right[:b] for a, b in _worthwhile_blocks(len(lower))])


def weighted_gram(left: Float[Array, "m n"], weights: Float[Array, " n"]) -> Float[Array, "m m"]:
    """left diag(weights) leftᵀ by the blocks of its lower triangle: 5/8 of the flops."""
    scaled = left * weights
    return _mirrored([scaled[a:b] @ left[:b].T for a, b in _worthwhile_blocks(len(left))])


def _worthwhile_blocks(m: int) -> list[tuple[int, int]]:
    return _blocks(m) if m >= SMALLEST else [(0, m)]


def _blocks(n: int, fewest: int = 2) -> list[tuple[int, int]]:
    parts = min(max(-(-n // LEAF), fewest), PARTS)
    return [(a, b) for a, b in itertools.pairwise(n * i // parts for i in range(parts + 1)) if a < b]


def _gram_rows(upper: Float[Array, "n n"]) -> list[Array]:
    return [upper[a:b, a:] @ upper[:b, a:].T for a, b in _blocks(len(upper))]


def _folded(rows: list[Array]) -> Float[Array, "n n"]:
    """Block rows, each up to the diagonal, as one matrix; what is left of the diagonal blocks is doubled."""
    n = rows[-1].shape[1]
    scaled = [row * jnp.where(jnp.arange(row.shape[1]) < row.shape[1] - len(row), 2.0, 1.0) for row in rows]
    return jnp.concatenate([jnp.pad(row, ((0, 0), (0, n - row.shape[1]))) for row in scaled])


def _mirrored(rows: list[Array]) -> Float[Array, "n n"]:
    """Block rows, each up to the diagonal, as one symmetric matrix."""
    whole = []
    for i, row in enumerate(rows):
        a, b = row.shape[1] - len(row), row.shape[1]
        whole.append(jnp.concatenate([row, *(below[:, a:b].T for below in rows[i + 1 :])], axis=1))
    return jnp.concatenate(whole)
