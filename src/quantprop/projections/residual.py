"""E|e|^p of a residual e = ρ − a − b z that changes sign, and its derivatives in a and b.

The expectation is under a density on panels of Gauss-Legendre nodes. Unless p is even, |e|^{p−1} sgn e is not
smooth where e changes sign, and a sum over those nodes is not accurate. The panel with a sign change and its
neighbours are therefore integrated again, outwards from the root: with τ the distance from it, |e|^{p−1} is
τ^{p−1} times a smooth function, and τ = L u² with Gauss-Jacobi nodes in u takes care of the power, and of a
second root close by. For p = 1 this is exact: only the places of the sign changes matter, and
the density there.
"""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from quantprop.core.records import Record
from quantprop.likelihoods.base import Scalar
from quantprop.numerics.quadrature import NODES, TO_SERIES, WEIGHTS, Density

MAX_ROOTS = 8  # the most sign changes that are looked for; five are the most seen
MIN_ROOT_MASS = 1e-10  # mass of a panel below which its sign changes do not matter
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
    falls = rate > 3.0  # by more than exp(6) over the panel; otherwise it has an edge there
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
    """The sign changes of e, a series on each panel: between two samples, then by Newton's method."""
    samples = series @ _TO_SAMPLES.T
    start = jnp.append(samples[0, 0], samples[:-1, -1])  # the panel before: a root at the common end is not lost
    left = jnp.concatenate([start[:, None], samples[:, 1:-1]], axis=1) > 0
    heavy = mass.sum(axis=1) > MIN_ROOT_MASS
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


PIECE_NODES = 20
MIN_SMOOTH_P = 5.0  # |e|^{p−1} sgn e then has enough derivatives for the panels' own nodes
MIN_MASS = 1e-18  # mass of a panel below which it is left out
MIN_LENGTH = 1e-5  # a piece so short that e/τ on it is rounding noise: e′ instead
# The pieces of a root: panel relative to the root's, direction away from it, whether they begin at it. Two
# neighbours on either side, since the nearest can be a sliver between a landmark and the density's peak.
_OFFSET = np.array([-2, -1, 0, 0, 1, 2])
_AWAY = np.array([-1.0, -1.0, -1.0, 1.0, 1.0, 1.0])
_OWN = _OFFSET == 0


class Curve(Record):
    """Mass, z and ρ at the nodes of the panels; (dF/dt, z, ρ) on each as Legendre series in t ∈ [−1, 1]."""

    mass: Float[Array, "panels 16"]
    z: Float[Array, "panels 16"]
    rho: Float[Array, "panels 16"]
    series: Float[Array, "3 panels 16"]
    live: Int[Array, ""]


def curve(density: Float[Array, "panels 16"], mass: Array, z: Array, rho: Array) -> Curve:
    """From the mass at the nodes, for series; the same for sums (which may leave nodes out); z and ρ.

    Panels that have mass are moved next to one another: others lie between them where two ends coincide.
    """
    dead = density.sum(axis=1) < MIN_MASS
    order = jnp.argsort(dead, stable=True)
    density, mass, z, rho = jnp.where(dead[order, None], 0.0, jnp.stack([density, mass, z, rho])[:, order])
    series = jnp.stack([density / WEIGHTS, z, rho]) @ TO_SERIES.T
    return Curve(mass, z, rho, series, jnp.sum(~dead))


@cache
def piece_rule(p: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes u ∈ (0, 1) and weights of the pieces, and weights for second derivatives of those at the root.

    Own pieces: Σ weight_i g(u_i) = ∫ g 2u du where g is u^{2(p−1)} times a smooth function, and for smooth g
    Σ curved_i g(u_i) = (p − 1) ∫ u^{2(p−2)} g 2u du, which is g(0) at p = 1. Neighbours: smooth g.
    """
    from scipy.special import roots_jacobi  # here, for a quicker import of the library

    rules = []
    for power in (1.0, 2.0 * p - 1.0):
        x, w = roots_jacobi(PIECE_NODES, 0.0, power)
        u = 0.5 * (1.0 + x)
        rules.append((u, 2.0 * w / 2.0 ** (power + 1.0) * u ** (1.0 - power)))
    (far, far_weights), (own, own_weights) = rules
    k = np.arange(1, PIECE_NODES)
    moments = np.cumprod(np.append(1.0, (2.0 * p - 2.0 - k) / (2.0 * p - 2.0 + k)))  # of Legendre polynomials
    curved = np.linalg.solve(np.polynomial.legendre.legvander(2.0 * own - 1.0, PIECE_NODES - 1).T, moments)
    own_piece = _OWN[:, None]
    return np.where(own_piece, own, far), np.where(own_piece, own_weights, far_weights), curved


class Pieces(Record):
    """For each root: the left neighbours, the two parts of its own panel, the right neighbours."""

    panel: Int[Array, "roots 6"]
    t: Float[Array, "roots 6"]  # of the end nearest to the root
    length: Float[Array, "roots 6"]  # 0 for a missing piece
    covered: Bool[Array, " panels"]  # panels that the pieces replace


def pieces(at: Roots, panels: int, live: Int[Array, ""]) -> Pieces:
    """Pieces of the panels at and beside the roots; those of roots that are close together meet halfway.

    Places are counted in panels: the point t of panel i is i + (t + 1)/2.
    """
    place = at.panel + 0.5 * (at.t + 1.0)
    close = at.found[:-1] & at.found[1:] & (at.panel[1:] - at.panel[:-1] <= 2 * _OFFSET[-1])
    middle = 0.5 * (place[:-1] + place[1:])
    lowest = jnp.append(0.0, jnp.where(close, middle, 0.0))[:, None]
    highest = jnp.append(jnp.where(close, middle, live), live)[:, None]
    panel = at.panel[:, None] + _OFFSET
    near = jnp.where(_OWN, place[:, None], panel + 0.5 * (1.0 - _AWAY))
    far = jnp.where(_AWAY < 0, jnp.maximum(lowest, panel), jnp.minimum(highest, panel + 1))
    length = jnp.where(at.found[:, None], jnp.maximum(2.0 * (far - near) * _AWAY, 0.0), 0.0)
    index = jnp.where(at.found[:, None], panel, panels)
    covered = jnp.zeros(panels + 1, bool).at[jnp.clip(index, 0, panels)].set(True)[:-1]
    return Pieces(jnp.clip(panel, 0, panels - 1), jnp.where(_OWN, at.t[:, None], -_AWAY), length, covered)


class Level(Record):
    """E|e|^p / p, its gradient and its second derivatives in (a, b)."""

    value: Scalar
    gradient: Float[Array, "2"]
    hessian: Float[Array, "2 2"]


def level(of: Curve, at: Float[Array, "2"], p: float) -> Level:
    """E|e|^p / p for e = ρ − a − b z at (a, b). Strictly convex for p > 1, convex for p = 1."""
    e = of.rho - at[0] - at[1] * of.z
    if p >= MIN_SMOOTH_P or p % 2 == 0:
        return _sum(of.mass, (p - 1.0) * of.mass * _power(e, p - 2.0), e, of.z, p)
    series = of.series[2] - at[1] * of.series[1]
    roots = sign_changes(of.mass, series.at[:, 0].add(-at[0]))
    new = pieces(roots, len(of.mass), of.live)
    u, weight, curved = piece_rule(p)
    t = new.t[..., None] + (_AWAY * new.length)[..., None] * u**2  # at which the series are evaluated
    density, z, rho = legendre(of.series[:, new.panel][:, :, :, None], t)
    new_e = rho - at[0] - at[1] * z
    length = new.length[..., None]
    mass = length * weight * density
    by_distance = jnp.abs(new_e) / jnp.maximum(length * u**2, 1e-300)
    slope = jnp.where(length > MIN_LENGTH, by_distance, roots.slope[:, None, None])
    own = roots.found[:, None, None] * length ** (p - 1.0) * curved * density * _power(slope, p - 2.0)
    second = jnp.where(_OWN[:, None], own, (p - 1.0) * mass * _power(new_e, p - 2.0))
    plain = jnp.where(new.covered[:, None], 0.0, of.mass)
    plain_second = (p - 1.0) * plain * _power(e, p - 2.0)
    return _sum(_join(plain, mass), _join(plain_second, second), _join(e, new_e), _join(of.z, z), p)


def _join(a: Array, b: Array) -> Array:
    return jnp.concatenate([a.ravel(), b.ravel()])


def _power(e: Array, exponent: float) -> Array:
    return jnp.maximum(jnp.abs(e), 1e-30) ** exponent


def _sum(mass: Array, second: Array, e: Array, z: Array, p: float) -> Level:
    slope = mass * jnp.sign(e) * _power(e, p - 1.0)
    gradient = -jnp.array([jnp.sum(slope), jnp.sum(slope * z)])
    h = [jnp.sum(second * z**k) for k in range(3)]
    return Level(jnp.sum(slope * e) / p, gradient, jnp.array([[h[0], h[1]], [h[1], h[2]]]))
