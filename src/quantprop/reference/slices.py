"""Elliptical slice sampling: one chain, one step (Murray, Adams and MacKay 2010, Fig. 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.likelihoods.base import Scalar


class ChainState(NamedTuple):
    """Where a chain is: d, of prior N(0, factor factorᵀ), and the log-likelihood there."""

    d: Float[Array, " n"]
    value: Scalar


class SliceBracket(NamedTuple):
    """The last angle tried, the log-likelihood there, and the ends between which the next one is drawn."""

    key: Array
    angle: Scalar
    value: Scalar
    lower: Scalar
    upper: Scalar


def start(key: Array, log_likelihood: Callable, factor: Float[Array, "n r"]) -> ChainState:
    """A draw from the prior."""
    d = factor @ jax.random.normal(key, factor.shape[1:])
    return ChainState(d, log_likelihood(d))


def step(
    key: Array, state: ChainState, log_likelihood: Callable, factor: Float[Array, "n r"], beta: Scalar = 1.0
) -> ChainState:  # fmt: skip
    """A move that leaves N(d | 0, factor factorᵀ) exp(beta · log_likelihood(d)) invariant.

    One product with `factor` per step; along the ellipse everything linear in d follows by cosine and sine.
    """
    for_other, for_level, for_ends, key = jax.random.split(key, 4)
    other = factor @ jax.random.normal(for_other, factor.shape[1:])  # Fig. 2, line 1: the ellipse
    level = beta * state.value - jax.random.exponential(for_level)  # line 2: log y = log L(f) + log u
    upper = jax.random.uniform(for_ends, maxval=2.0 * jnp.pi)  # line 3; the first angle is drawn from the whole ellipse

    def at(angle: Scalar) -> Float[Array, " n"]:
        return state.d * jnp.cos(angle) + other * jnp.sin(angle)  # line 4

    def tried(bracket: SliceBracket) -> SliceBracket:
        """Lines 8 to 10: a rejected angle becomes an end; angle 0, where the chain is, stays inside."""
        key, _, _, lower, upper = bracket
        key, drawn = jax.random.split(key)
        angle = jax.random.uniform(drawn, minval=lower, maxval=upper)
        lower, upper = jnp.where(angle < 0, angle, lower), jnp.where(angle < 0, upper, angle)
        return SliceBracket(key, angle, log_likelihood(at(angle)), lower, upper)

    first = SliceBracket(key, upper, -jnp.inf, upper - 2.0 * jnp.pi, upper)
    end = jax.lax.while_loop(lambda bracket: ~(beta * bracket.value > level), tried, first)
    return ChainState(at(end.angle), end.value)
