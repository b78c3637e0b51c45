"""Probabilities of classes of a Gaussian vector: that an entry is the largest, and the mean of softmax."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_softmax
from jax.scipy.special import log_ndtr, logsumexp, ndtr, ndtri
from jaxtyping import Array, Float, Int

SHIFT = 0.25  # of a step: in one dimension the midpoint rule, and no coordinate is 0 or 1 after the tent map
FEW = 1e-290  # mass of a half-line whose quantiles double precision holds
APART = 0.7548776662466927  # between the shifts of two dimensions


class Rule(NamedTuple):
    """A rank-1 lattice, its generator found component by component (P₂ criterion, weights 1/j²)."""

    points: int
    generator: tuple[int, ...]


COARSE = Rule(4093, (
    1, 1210, 1542, 1785, 424, 1717, 801, 79, 450, 194, 368, 1075, 1894, 1380, 1933, 698, 715, 120, 945, 1239, 491, 1511,
    1828, 1468,
))  # fmt: skip
FINE = Rule(65521, (
    1, 17689, 28549, 2117, 11149, 14612, 12828, 10315, 14188, 21497, 24098, 23351, 1477, 20850, 22454, 31429, 30252,
    14241, 20506, 9396, 11999, 484, 6741, 2281,
))  # fmt: skip


def lattice(rule: Rule, dimensions: int, shift: float = 0.0) -> Float[np.ndarray, "points dimensions"]:
    """Points of the unit cube, with the tent map, which makes smooth integrands periodic; the generator repeats, with
    shifts, after its 24 numbers. Lattices of different `shift` have errors of their own.
    """
    j = np.arange(dimensions)
    z = np.resize(rule.generator, dimensions) + j // len(rule.generator)
    points = np.mod((np.arange(rule.points)[:, None] * z + SHIFT) / rule.points + shift * (1.0 + APART * j), 1.0)
    return np.abs(2.0 * points - 1.0)


def log_largest(
    mean: Float[Array, " c"], covariance: Float[Array, "c c"], entry: Int[Array, ""], w: Float[Array, "points d"]
) -> Array:
    """log P(g_entry > all others) for g ~ N(mean, covariance), over the points w of a lattice of c − 2 dimensions or
    more.

    The differences g_entry − g_j are Gaussian. With L Lᵀ their covariance, their signs are settled one after the other,
    the least certain first (Genz 1992): what is averaged over the lattice is Π_j Φ(b_j), b_j the standardised mean of
    difference j given those before it, drawn from their positive halves. In logarithms: exact far into the tails.
    """
    others = jnp.arange(len(mean) - 1)
    others = others + (others >= entry)
    apart = mean[entry] - mean[others]
    tie = covariance[entry, others]
    spread = covariance[entry, entry] - tie[:, None] - tie + covariance[others[:, None], others]
    order = jnp.argsort(apart / jnp.sqrt(jnp.diagonal(spread)))
    apart, lower = apart[order], jnp.linalg.cholesky(spread[order[:, None], order])
    last = len(mean) - 2

    def settle(j: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        y, total = state
        b = (apart[j] + lower[j] @ y) / lower[j, j]
        return y.at[j].set(_positive_half(b, w[:, jnp.minimum(j, w.shape[1] - 1)])), total + log_ndtr(b)

    nothing = jnp.zeros((last + 1, len(w))), jnp.zeros(len(w))
    y, total = jax.lax.fori_loop(0, last, settle, nothing)
    total = total + log_ndtr((apart[last] + lower[last] @ y) / lower[last, last])
    return logsumexp(total) - jnp.log(len(w))


def _positive_half(b: Array, w: Array) -> Array:
    """The quantile at 1 − w of a standard normal number above −b; far out it exceeds −b by an exponential one."""
    mass = ndtr(b)
    held = mass > FEW
    near = -ndtri(w * jnp.where(held, mass, 0.5))
    far = jnp.where(held, 1.0, b)
    return jnp.where(held, near, -far + jnp.log(w) / far)


def log_probabilities(
    mean: Float[Array, " c"], covariance: Float[Array, "c c"], w: Float[Array, "points d"]
) -> Float[Array, " c"]:
    """log P(g_c is the largest) for every entry; normalised, so that what the lattice misses is shared out."""
    each = jax.vmap(lambda entry: log_largest(mean, covariance, entry, w))(jnp.arange(len(mean)))
    return each - logsumexp(each)


def log_mean_softmax(
    mean: Float[Array, " c"], covariance: Float[Array, "c c"], w: Float[Array, "points d"]
) -> Float[Array, " c"]:
    """log E softmax(g) for g ~ N(mean, covariance), over a lattice of c − 1 dimensions, the directions of largest
    variance first. What all entries share does not matter, and is left out.
    """
    c = len(mean)
    centre = jnp.eye(c) - 1.0 / c
    values, vectors = jnp.linalg.eigh(centre @ covariance @ centre)
    root = vectors[:, ::-1] * jnp.sqrt(jnp.maximum(values[::-1], 0.0))
    each = log_softmax(mean + ndtri(w) @ root[:, : c - 1].T, axis=1)
    return logsumexp(each, axis=0) - jnp.log(len(w))
