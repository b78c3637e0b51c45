"""The inverse of a triangular matrix, and products whose outcome is known to be symmetric.

Left sides of products are taken by rows: on a CPU XLA then multiplies two to three times as fast as by columns, and as
LAPACK substitutes (docs/measured.md). Counts of operations are those of four blocks.

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
    """X = L⁻¹ from X L = I, a block of columns at a time from the last to the first: X_·j L_jj = I_·j − Σ_k X_·k L_kj
    over k > j. The sums are products; L_jj is substituted into, not inverted, which would lose its condition number.
    """
    n, rows = len(lower), jax.lax.optimization_barrier(lower)  # by rows, not by columns as LAPACK leaves it
    x = jnp.zeros((0, 0), lower.dtype)  # of the columns so far, without the rows above, where it is zero
    for a, b in reversed(_blocks(n, fewest=3)):
        right = jnp.concatenate([jnp.eye(b - a, dtype=lower.dtype), -(x @ rows[b:, a:b])])
        new = _substituted(rows[a:b, a:b], right)
        x = jnp.concatenate([new, jnp.pad(x, ((b - a, 0), (0, 0)))], axis=1)
    return x


def _substituted(lower: Float[Array, "n n"], right: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """Y of Y L = right; for a wide L from that of its halves, Y₁ L₁₁ = right₁ − Y₂ L₂₁."""
    if len(lower) <= WIDEST:
        return jax.lax.linalg.triangular_solve(lower, right, left_side=False, lower=True)
    half = len(lower) // 2
    second = _substituted(lower[half:, half:], right[:, half:])
    first = _substituted(lower[:half, :half], right[:, :half] - second @ lower[half:, :half])
    return jnp.concatenate([first, second], axis=1)


def gram_of_lower(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lᵀ L, a block of its lower triangle at a time, without the rows of L that are zero there: 5/8 n³ flops."""
    return _mirrored(_gram_rows(lower))


def folded_gram(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lᵀ L, folded."""
    return _folded(_gram_rows(lower))


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
    return list(itertools.pairwise(n * i // parts for i in range(parts + 1)))


def _gram_rows(lower: Float[Array, "n n"]) -> list[Array]:
    upper = transposed(lower)
    return [upper[a:b, a:] @ lower[a:, :b] for a, b in _blocks(len(lower))]


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
