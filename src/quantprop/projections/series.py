"""Functions on panels as Legendre series: the tail masses of a density, the sign changes of a residual.

A panel has 16 Gauss-Legendre nodes, as in `quantprop.numerics.quadrature`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from quantprop.core.records import Record
from quantprop.numerics.quadrature import NODES, TO_SERIES, WEIGHTS, Density

MAX_ROOTS = 8  # the most sign changes that are looked for; five are the most seen
MIN_MASS = 1e-10  # mass of a panel below which its sign changes do not matter
LIGHT_MASS = 1e-5  # mass of a panel whose tail masses are computed in another way
NEWTON_STEPS = 6

_DEGREE = np.arange(16)
# From a Legendre series to the derivative's, and to samples.
_SLOPE = np.zeros((16, 16))
_SLOPE[:-1] = np.polynomial.legendre.legder(np.eye(16))
_SAMPLES = -np.cos(np.pi * np.arange(33) / 32)
_TO_SAMPLES = np.polynomial.legendre.legvander(_SAMPLES, 15)
# The nodes cut a panel into 17 intervals, with six Gauss nodes on each.
_SPLIT = np.concatenate([[-1.0], NODES, [1.0]])
_FINE_X, _FINE_W = np.polynomial.legendre.leggauss(6)
_FINE = 0.5 * (_SPLIT[1:] + _SPLIT[:-1])[:, None] + 0.5 * np.diff(_SPLIT)[:, None] * _FINE_X
_FINE_WEIGHTS = 0.5 * np.diff(_SPLIT)[:, None] * _FINE_W
_TO_FINE = np.polynomial.legendre.legvander(_FINE, 15) @ TO_SERIES


def fine_tails(of: Density) -> tuple[Array, Array]:
    """F and 1 − F at the nodes as `Density.tails`, with a small *relative* error far out in the tails too.

    |e|^p needs that for large p. On a panel of little mass, where the density can span decades, it is
    interpolated after division by an exponential that follows it, and integrated from node to node.
    """
    density, mass = of.mass / WEIGHTS, of.mass.sum(axis=1)
    first, last = density[:, 0], density[:, -1]
    both = (first > 0) & (last > 0)
    rise = jnp.log(jnp.where(both, last, 1.0)) - jnp.log(jnp.where(both, first, 1.0))
    rate = jnp.clip(rise / (NODES[-1] - NODES[0]), -8.0, 8.0)[:, None]
    even = density * jnp.exp(-rate * NODES)
    fine = jnp.einsum("ijk,pk->pij", _TO_FINE, even) * jnp.exp(rate[..., None] * _FINE)
    part = jnp.maximum(jnp.sum(_FINE_WEIGHTS * fine, axis=-1), 0.0)
    part = part * (mass / jnp.maximum(part.sum(axis=1), 1e-300))[:, None]
    below = cut_off(density) + jnp.append(0.0, jnp.cumsum(mass)[:-1])
    above = cut_off(density[::-1, ::-1]) + jnp.append(0.0, jnp.cumsum(mass[::-1])[:-1])[::-1]
    lower = below[:, None] + jnp.cumsum(part, axis=1)[:, :-1]
    upper = above[:, None] + jnp.cumsum(part[:, ::-1], axis=1)[:, -2::-1]
    light = (mass < LIGHT_MASS)[:, None]
    plain_lower, plain_upper = of.tails()
    return jnp.where(light, lower, plain_lower), jnp.where(light, upper, plain_upper)


def cut_off(density: Float[Array, "panels 16"]) -> Array:
    """The mass to the left of the first panel, where the density falls off like an exponential there."""
    first = density[jnp.argmax(density[:, -1] > 0.0)]
    inside, next_inside = (jnp.log(jnp.maximum(first[k], 1e-300)) for k in (0, 1))
    rate = (next_inside - inside) / (NODES[1] - NODES[0])
    falls = rate > 3.0  # by more than exp(6) over the panel; else it has an edge there
    rate = jnp.where(falls, rate, 1.0)
    return jnp.where(falls, first[0] * jnp.exp(-rate * (1.0 + NODES[0])) / rate, 0.0)


def legendre(series: Float[Array, "... 16"], t: Float[Array, "..."]) -> Array:
    """Σ c_k P_k(t) by Clenshaw's recurrence; a loop, since unrolled it would triple the time to compile."""

    def add(carry, term):
        c, (forward, back) = term
        return (c + forward * t * carry[0] - back * carry[1], carry[0]), None

    nothing = jnp.zeros(jnp.broadcast_shapes(series.shape[:-1], t.shape))
    factors = np.stack([(2 * _DEGREE + 1) / (_DEGREE + 1), (_DEGREE + 1) / (_DEGREE + 2)], axis=1)
    terms = (jnp.moveaxis(series, -1, 0), factors)
    return jax.lax.scan(add, (nothing, nothing), terms, reverse=True)[0][0]


class Roots(Record):
    """Sign changes from left to right: panel, place t in it, |e′(t)|; slots with `found` false are empty."""

    panel: Int[Array, " roots"]
    t: Float[Array, " roots"]
    slope: Float[Array, " roots"]
    found: Bool[Array, " roots"]


def sign_changes(mass: Float[Array, "panels 16"], series: Float[Array, "panels 16"]) -> Roots:
    """Where e, a series on each panel, changes sign: between two samples, then by Newton's method."""
    samples = series @ _TO_SAMPLES.T
    start = jnp.append(samples[0, 0], samples[:-1, -1])  # the panel before: a root at the common end is not lost
    left = jnp.concatenate([start[:, None], samples[:, 1:-1]], axis=1) > 0
    heavy = mass.sum(axis=1) > MIN_MASS
    changes = (left != (samples[:, 1:] > 0)) & heavy[:, None]
    (index,) = jnp.nonzero(changes.ravel(), size=MAX_ROOTS, fill_value=changes.size)
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
    t, _, _ = jax.lax.fori_loop(0, NEWTON_STEPS, newton, (0.5 * (low + high), low, high))
    t = jax.lax.stop_gradient(t)  # the last step, below, carries the derivatives
    value, slope = legendre(of, t)
    slope = jax.lax.stop_gradient(jnp.abs(slope))
    close = jnp.abs(value) < 1e-6
    step = jnp.where(close, value, 0.0) / jnp.maximum(slope, 1e-30) * jnp.where(rising, 1.0, -1.0)
    at_jump = (k == 0) & ~close  # panels without mass lie between: e jumps over zero there
    return Roots(panel, jnp.clip(t - step, low, high), slope, (index < changes.size) & ~at_jump)
