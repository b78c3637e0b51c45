"""Linear equations given by their operator alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

DIRECTIONS = 12  # that are stored
MAX_STEPS = 600


class _State(NamedTuple):
    x: Float[Array, "..."]
    left: Float[Array, "..."]  # right − A x
    pairs: Float[Array, "m 2 ..."]  # A p, orthonormal, and the directions p
    done: Int[Array, ""]


def minimal_residual(operator: Callable[[Array], Array], right: Array, tol: Array | float) -> tuple[Array, Array]:
    """x of A x = right and |right − A x|, which is at most `tol` unless MAX_STEPS steps were not enough.

    Generalised conjugate residuals (Eisenstat, Elman and Schultz 1983): the iterates of GMRES, one step at a time.
    After DIRECTIONS steps the newest direction takes the place of the oldest.
    """
    none, axes = jnp.zeros((DIRECTIONS, 2, *right.shape)), right.ndim  # arrays keep their shape: rows may be divided

    def unfinished(s: _State):
        return (_norm(s.left) > tol) & (s.done < MAX_STEPS)

    def step(s: _State):
        image = operator(s.left)
        seen = jnp.tensordot(s.pairs[:, 0], image, axes)
        pair = jnp.stack([image, s.left]) - jnp.tensordot(seen, s.pairs, 1)
        pair = pair / _norm(pair[0])
        far = jnp.sum(pair[0] * s.left)
        pairs = s.pairs.at[s.done % DIRECTIONS].set(pair)
        return _State(s.x + far * pair[1], s.left - far * pair[0], pairs, s.done + 1)

    end = jax.lax.while_loop(unfinished, step, _State(jnp.zeros_like(right), right, none, jnp.asarray(0)))
    return end.x, _norm(end.left)


def _norm(array: Array) -> Array:
    return jnp.sqrt(jnp.sum(array**2))
