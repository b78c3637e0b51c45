"""E|e|^p of a residual e = ρ − a − b z that changes sign, and its derivatives in a and b.

The expectation is under a density on panels of Gauss-Legendre nodes. For p other than an even number |e|^{p−1} sgn e
is not smooth where e changes sign, so a sum over those nodes is not accurate. The panel with a sign change and its two
neighbours are therefore integrated anew, outwards from the root: with τ the distance from it, |e|^{p−1} is τ^{p−1} times
a smooth function, and τ = L u² with Gauss-Jacobi nodes in u takes care of the power, and of a second root close by.
For p = 1 this is exact: only the places of the sign changes matter, and the density there.
"""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import roots_jacobi

from quantprop.likelihoods.base import Scalar

ROOTS = 8  # sign changes that get pieces of their own; five are the most seen
PIECE_NODES = 20
SMOOTH_FROM = 5.0  # |e|^{p−1} sgn e has enough derivatives for the panels' own nodes from this p on
LIVE, HEAVY = 1e-18, 1e-10  # mass below which a panel is left out, and below which its sign changes do not matter
NEWTON_STEPS = 6
SHORT = 1e-5  # a piece so short that e/τ on it is rounding noise: e′ instead

_X, _W = np.polynomial.legendre.leggauss(16)
_DEGREE = np.arange(16)
_TO_SERIES = (_DEGREE[:, None] + 0.5) * np.polynomial.legendre.legvander(_X, 15).T * _W  # values → Legendre series
_SAMPLES = -np.cos(np.pi * np.arange(33) / 32)
_TO_SAMPLES = np.polynomial.legendre.legvander(_SAMPLES, 15)


class Curve(eqx.Module):
    """Mass, z and ρ at the nodes of the panels, and (mass/dt, z, ρ) as Legendre series in t ∈ [−1, 1] on each."""

    mass: Float[Array, "panels 16"]
    z: Float[Array, "panels 16"]
    rho: Float[Array, "panels 16"]
    series: Float[Array, "3 panels 16"]
    live: Int[Array, ""]


def curve(mass: Float[Array, "panels 16"], z: Array, rho: Array) -> Curve:
    """The panels that have mass, in front and next to one another (others lie between them where two ends coincide)."""
    dead = mass.sum(axis=1) < LIVE
    order = jnp.argsort(dead, stable=True)
    mass, z, rho = jnp.where(dead[order, None], 0.0, jnp.stack([mass, z, rho])[:, order])
    series = jnp.stack([mass / _W, z, rho]) @ _TO_SERIES.T
    return Curve(mass, z, rho, series, jnp.sum(~dead))


def legendre(series: Float[Array, "... 16"], t: Float[Array, "..."]) -> tuple[Array, Array]:
    """Σ c_k P_k(t) and its derivative, by the three-term recurrence."""
    before, now, slope_before, slope_now = jnp.ones_like(t), t, jnp.zeros_like(t), jnp.ones_like(t)
    value, slope = series[..., 0] + series[..., 1] * t, series[..., 1] + 0.0 * t
    for k in range(1, 15):
        before, now = now, ((2 * k + 1) * t * now - k * before) / (k + 1)
        slope_before, slope_now = slope_now, slope_before + (2 * k + 1) * before
        value, slope = value + series[..., k + 1] * now, slope + series[..., k + 1] * slope_now
    return value, slope


class Roots(eqx.Module):
    """Sign changes from left to right: panel, place t in it, |e′(t)|; those with `found` false are empty slots."""

    panel: Int[Array, " roots"]
    t: Float[Array, " roots"]
    slope: Float[Array, " roots"]
    found: Bool[Array, " roots"]


def sign_changes(mass: Float[Array, "panels 16"], series: Float[Array, "panels 16"]) -> Roots:
    """Where e, given as a series on each panel, changes sign: bracketed by samples, then by guarded Newton steps."""
    samples = series @ _TO_SAMPLES.T
    start = jnp.append(samples[0, 0], samples[:-1, -1])  # of the panel before: a root at their common end is not lost
    left = jnp.concatenate([start[:, None], samples[:, 1:-1]], axis=1) > 0
    heavy = mass.sum(axis=1) > HEAVY
    changes = (left != (samples[:, 1:] > 0)) & heavy[:, None]
    (index,) = jnp.nonzero(changes.ravel(), size=ROOTS, fill_value=changes.size)
    panel, k = jnp.divmod(jnp.minimum(index, changes.size - 1), len(_SAMPLES) - 1)
    of, rising = series[panel], samples[panel, k + 1] > 0

    def newton(_, state):
        t, low, high = state
        value, slope = legendre(of, t)
        beyond = (value > 0) == rising
        low, high = jnp.where(beyond, low, t), jnp.where(beyond, t, high)
        new = t - value / slope
        return jnp.where((new >= low) & (new <= high), new, 0.5 * (low + high)), low, high

    low, high = jnp.asarray(_SAMPLES)[k], jnp.asarray(_SAMPLES)[k + 1]
    t, _, _ = jax.lax.stop_gradient(jax.lax.fori_loop(0, NEWTON_STEPS, newton, (0.5 * (low + high), low, high)))
    value, slope = legendre(of, t)
    slope = jax.lax.stop_gradient(jnp.abs(slope))
    step = jnp.where(jnp.abs(value) < 1e-6, value, 0.0) / jnp.maximum(slope, 1e-30) * jnp.where(rising, 1.0, -1.0)
    at_jump = (k == 0) & (jnp.abs(value) > 1e-6)  # panels of no mass lie between: e jumps over zero there
    return Roots(panel, jnp.clip(t - step, low, high), slope, (index < changes.size) & ~at_jump)


@cache
def piece_rule(p: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes u ∈ (0, 1) and weights for the pieces (neighbour, own, own, neighbour), and the second derivative's weights.

    Own pieces: Σ weight_i g(u_i) = ∫ g 2u du where g = u^{2(p−1)} times a smooth function, and Σ curved_i g(u_i) =
    (p − 1) ∫ u^{2(p−2)} g 2u du for smooth g, which is g(0) at p = 1. Neighbours: smooth g.
    """
    rules = []
    for power in (1.0, 2.0 * p - 1.0):
        x, w = roots_jacobi(PIECE_NODES, 0.0, power)
        u = 0.5 * (1.0 + x)
        rules.append((u, 2.0 * w / 2.0 ** (power + 1.0) * u ** (1.0 - power)))
    (far, far_weights), (own, own_weights) = rules
    k = np.arange(1, PIECE_NODES)
    moments = np.cumprod(np.append(1.0, (2.0 * p - 2.0 - k) / (2.0 * p - 2.0 + k)))  # of Legendre polynomials on (0, 1)
    curved = np.linalg.solve(np.polynomial.legendre.legvander(2.0 * own - 1.0, PIECE_NODES - 1).T, moments)
    return np.stack([far, own, own, far]), np.stack([far_weights, own_weights, own_weights, far_weights]), curved


class Pieces(eqx.Module):
    """For each root the neighbour to the left, the own panel's two parts, the neighbour to the right; as t and length."""

    panel: Int[Array, "roots 4"]
    t: Float[Array, "roots 4"]  # of the end nearest to the root
    length: Float[Array, "roots 4"]  # 0 for a piece that is not there
    covered: Bool[Array, " panels"]  # panels that the pieces replace


_AWAY = np.array([-1.0, -1.0, 1.0, 1.0])  # direction away from the root


def pieces(at: Roots, panels: int, live: Int[Array, ""]) -> Pieces:
    """Pieces of the panels at and beside the roots; between roots less than three panels apart they meet halfway.

    Places are counted in panels: the point t of panel i is i + (t + 1)/2.
    """
    i, place = at.panel, at.panel + 0.5 * (at.t + 1.0)
    close = at.found[:-1] & at.found[1:] & (i[1:] - i[:-1] <= 2)
    middle = 0.5 * (place[:-1] + place[1:])
    lowest = jnp.append(0.0, jnp.where(close, middle, 0.0))
    highest = jnp.append(jnp.where(close, middle, live), live)
    offset = jnp.array([-1, 0, 0, 1])
    far = jnp.stack([jnp.maximum(lowest, i - 1), jnp.maximum(lowest, i), jnp.minimum(highest, i + 1), jnp.minimum(highest, i + 2)], 1)
    near = jnp.stack([i + 0.0, place, place, i + 1.0], axis=1)
    length = jnp.where(at.found[:, None], jnp.maximum(2.0 * (far - near) * _AWAY, 0.0), 0.0)
    t = jnp.stack([jnp.ones_like(at.t), at.t, at.t, -jnp.ones_like(at.t)], axis=1)
    index = jnp.where(at.found[:, None], i[:, None] + offset, panels)
    covered = jnp.zeros(panels + 1, bool).at[jnp.clip(index, 0, panels)].set(True)[:-1]
    return Pieces(jnp.clip(i[:, None] + offset, 0, panels - 1), t, length, covered)


class Level(eqx.Module):
    """E|e|^p / p, its gradient and its second derivatives in (a, b)."""

    value: Scalar
    gradient: Float[Array, "2"]
    hessian: Float[Array, "2 2"]


def level(of: Curve, at: Float[Array, "2"], p: float) -> Level:
    """E|e|^p / p for e = ρ − a − b z at (a, b)."""
    e = of.rho - at[0] - at[1] * of.z
    if p >= SMOOTH_FROM or p % 2 == 0:
        return _sum(of.mass, (p - 1.0) * of.mass * _power(e, p - 2.0), e, of.z, p)
    series = of.series[2] - at[1] * of.series[1]
    roots = sign_changes(of.mass, series.at[:, 0].add(-at[0]))
    new = pieces(roots, len(of.mass), of.live)
    u, weight, curved = piece_rule(p)
    t = new.t[..., None] + (_AWAY * new.length)[..., None] * u**2
    density, z, rho = legendre(of.series[:, new.panel][:, :, :, None], t)[0]
    new_e = rho - at[0] - at[1] * z
    mass = new.length[..., None] * weight * density
    by_distance = jnp.abs(new_e) / jnp.maximum(new.length[..., None] * u**2, 1e-300)
    slope = jnp.where(new.length[..., None] > SHORT, by_distance, roots.slope[:, None, None])
    own = roots.found[:, None, None] * new.length[..., None] ** (p - 1.0) * curved * density * _power(slope, p - 2.0)
    second = jnp.where((_OWN)[:, None], own, (p - 1.0) * mass * _power(new_e, p - 2.0))
    plain = jnp.where(new.covered[:, None], 0.0, of.mass)
    joined = [
        jnp.concatenate([a.ravel(), b.ravel()])
        for a, b in ((plain, mass), ((p - 1.0) * plain * _power(e, p - 2.0), second), (e, new_e), (of.z, z))
    ]
    return _sum(*joined, p)


_OWN = np.array([False, True, True, False])


def _power(e: Array, exponent: float) -> Array:
    return jnp.maximum(jnp.abs(e), 1e-30) ** exponent


def _sum(mass: Array, second: Array, e: Array, z: Array, p: float) -> Level:
    slope = mass * jnp.sign(e) * _power(e, p - 1.0)
    gradient = -jnp.array([jnp.sum(slope), jnp.sum(slope * z)])
    h = [jnp.sum(second * z**k) for k in range(3)]
    return Level(jnp.sum(slope * e) / p, gradient, jnp.array([[h[0], h[1]], [h[1], h[2]]]))
