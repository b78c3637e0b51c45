"""The inverse of a triangular matrix."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

PARTS = 4  # more cost more in copies than they save in arithmetic, at any n from 500 to 2000


def triangular_inverse(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L⁻¹ by substitution, a block of columns at a time: above its own rows a block is zero.

    15/32 n³ flops, against n³ for substitution with the whole identity at once.
    """
    n = len(lower)
    cuts = [n * i // PARTS for i in range(PARTS + 1)]
    columns = [
        jnp.concatenate([jnp.zeros((a, b - a)), solve_triangular(lower[a:, a:], jnp.eye(n - a, b - a), lower=True)])
        for a, b in itertools.pairwise(cuts)
    ]
    return jnp.concatenate(columns, axis=1)
