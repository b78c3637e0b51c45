"""A function on panels as Legendre series: its tail masses where it is a density, its sign changes where it is not.

Panels have 16 Gauss-Legendre nodes, as those of `quantprop.quadrature`.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

ROOTS = 8  # the most sign changes that are looked for; five are the most seen
HEAVY = 1e-10  # mass of a panel below which its sign changes do not matter
NEWTON_STEPS = 6

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
_DEGREE = np.arange(16)
TO_SERIES = (
    (_DEGREE[:, None] + 0.5) * np.polynomial.legendre.legvander(NODES, 15).T * WEIGHTS
)  # values → Legendre series
_SLOPE = np.zeros((16, 16))
_SLOPE[:-1] = np.polynomial.legendre.legder(np.eye(16))  # Legendre series → series of its derivative
_SAMPLES = -np.cos(np.pi * np.arange(33) / 32)
_TO_SAMPLES = np.polynomial.legendre.legvander(_SAMPLES, 15)
_SPLIT = np.concatenate(
    [[-1.0], NODES, [1.0]]
)  # the nodes cut a panel into 17 intervals; on each, six Gauss nodes
_FINE_X, _FINE_W = np.polynomial.legendre.leggauss(6)
_FINE = 0.5 * (_SPLIT[1:] + _SPLIT[:-1])[:, None] + 0.5 * np.diff(_SPLIT)[:, None] * _FINE_X
_FINE_WEIGHTS = 0.5 * np.diff(_SPLIT)[:, None] * _FINE_W
_TO_FINE = np.polynomial.legendre.legvander(_FINE, 15) @ TO_SERIES


def fine_tails(mass: Float[Array, "panels 16"]) -> tuple[Array, Array]:
    """F and 1 − F at the nodes with a small *relative* error, also where a panel's density spans many decades.

    |e|^p needs that for large p. The density over an exponential that follows it is interpolated, then integrated from one
    node to the next, all terms positive; `Density.tails` integrates its polynomial, good to 1e-16 of the panel's mass.
    """
    density = mass / WEIGHTS
    first, last = density[:, 0], density[:, -1]
    both = (first > 0) & (last > 0)
    rate = jnp.where(both, jnp.log(jnp.where(both, last, 1.0) / jnp.where(both, first, 1.0)), 0.0) / (
        NODES[-1] - NODES[0]
    )
    even = density * jnp.exp(-rate[:, None] * NODES)
    fine = jnp.einsum("ijk,pk->pij", _TO_FINE, even) * jnp.exp(rate[:, None, None] * _FINE)
    part = jnp.maximum(jnp.sum(_FINE_WEIGHTS * fine, axis=-1), 0.0)
    below = jnp.cumsum(part.ravel()).reshape(part.shape)
    above = jnp.cumsum(part.ravel()[::-1])[::-1].reshape(part.shape)
    return below[:, :-1], above[:, 1:]


def legendre(series: Float[Array, "... 16"], t: Float[Array, "..."]) -> Array:
    """Σ c_k P_k(t) by Clenshaw's recurrence; a loop, since unrolled it would triple the time to compile."""

    def add(carry, term):
        c, (forward, back) = term
        return (c + forward * t * carry[0] - back * carry[1], carry[0]), None

    nothing = jnp.zeros(jnp.broadcast_shapes(series.shape[:-1], t.shape))
    factors = np.stack([(2 * _DEGREE + 1) / (_DEGREE + 1), (_DEGREE + 1) / (_DEGREE + 2)], axis=1)
    terms = (jnp.moveaxis(series, -1, 0), factors)
    return jax.lax.scan(add, (nothing, nothing), terms, reverse=True)[0][0]


class Roots(eqx.Module):
    """Sign changes from left to right: panel, place t in it, |e′(t)|; those with `found` false are empty slots."""

    panel: Int[Array, " roots"]
    t: Float[Array, " roots"]
    slope: Float[Array, " roots"]
    found: Bool[Array, " roots"]


def sign_changes(mass: Float[Array, "panels 16"], series: Float[Array, "panels 16"]) -> Roots:
    """Where e, given as a series on each panel, changes sign: bracketed by samples, then by guarded Newton steps."""
    samples = series @ _TO_SAMPLES.T
    start = jnp.append(
        samples[0, 0], samples[:-1, -1]
    )  # of the panel before: a root at their common end is not lost
    left = jnp.concatenate([start[:, None], samples[:, 1:-1]], axis=1) > 0
    heavy = mass.sum(axis=1) > HEAVY
    changes = (left != (samples[:, 1:] > 0)) & heavy[:, None]
    (index,) = jnp.nonzero(changes.ravel(), size=ROOTS, fill_value=changes.size)
    panel, k = jnp.divmod(jnp.minimum(index, changes.size - 1), len(_SAMPLES) - 1)
    of, rising = jnp.stack([series[panel], series[panel] @ _SLOPE.T]), samples[panel, k + 1] > 0

    def newton(_, state):
        t, low, high = state
        value, slope = legendre(of, t)
        beyond = (value > 0) == rising
        low, high = jnp.where(beyond, low, t), jnp.where(beyond, t, high)
        new = t - value / slope
        return jnp.where((new >= low) & (new <= high), new, 0.5 * (low + high)), low, high

    low, high = jnp.asarray(_SAMPLES)[k], jnp.asarray(_SAMPLES)[k + 1]
    t, _, _ = jax.lax.stop_gradient(
        jax.lax.fori_loop(0, NEWTON_STEPS, newton, (0.5 * (low + high), low, high))
    )
    value, slope = legendre(of, t)
    slope = jax.lax.stop_gradient(jnp.abs(slope))
    step = (
        jnp.where(jnp.abs(value) < 1e-6, value, 0.0)
        / jnp.maximum(slope, 1e-30)
        * jnp.where(rising, 1.0, -1.0)
    )
    at_jump = (k == 0) & (jnp.abs(value) > 1e-6)  # panels of no mass lie between: e jumps over zero there
    return Roots(panel, jnp.clip(t - step, low, high), slope, (index < changes.size) & ~at_jump)
