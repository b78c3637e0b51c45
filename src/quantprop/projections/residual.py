"""E|e|^p of a residual e = ρ − a − b z that changes sign, and its derivatives in a and b.

The expectation is under a density on panels of Gauss-Legendre nodes. Unless p is even, |e|^{p−1} sgn e is not
smooth where e changes sign, and a sum over those nodes is not accurate. The panel with a sign change and its
two neighbours are therefore integrated anew, outwards from the root: with τ the distance from it, |e|^{p−1}
is τ^{p−1} times a smooth function, and τ = L u² with Gauss-Jacobi nodes in u takes care of the power, and of
a second root close by. For p = 1 this is exact: only the places of the sign changes matter, and the density
there.
"""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import roots_jacobi

from quantprop.likelihoods.base import Scalar
from quantprop.projections.series import TO_SERIES, WEIGHTS, Roots, legendre, sign_changes

PIECE_NODES = 20
SMOOTH_FROM = 5.0  # from this p on |e|^{p−1} sgn e has enough derivatives for the panels' own nodes
LIVE = 1e-18  # mass of a panel below which it is left out
SHORT = 1e-5  # a piece so short that e/τ on it is rounding noise: e′ instead
_AWAY = np.array([-1.0, -1.0, 1.0, 1.0])  # of the pieces of a root: their direction away from it
_OWN = np.array([False, True, True, False])  # those that begin at the root; the others are neighbours


class Curve(eqx.Module):
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
    dead = density.sum(axis=1) < LIVE
    order = jnp.argsort(dead, stable=True)
    density, mass, z, rho = jnp.where(dead[order, None], 0.0, jnp.stack([density, mass, z, rho])[:, order])
    series = jnp.stack([density / WEIGHTS, z, rho]) @ TO_SERIES.T
    return Curve(mass, z, rho, series, jnp.sum(~dead))


@cache
def piece_rule(p: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes u ∈ (0, 1), weights for the pieces (neighbour, own, own, neighbour), and for second derivatives.

    Own pieces: Σ weight_i g(u_i) = ∫ g 2u du where g is u^{2(p−1)} times a smooth function, and for smooth g
    Σ curved_i g(u_i) = (p − 1) ∫ u^{2(p−2)} g 2u du, which is g(0) at p = 1. Neighbours: smooth g.
    """
    rules = []
    for power in (1.0, 2.0 * p - 1.0):
        x, w = roots_jacobi(PIECE_NODES, 0.0, power)
        u = 0.5 * (1.0 + x)
        rules.append((u, 2.0 * w / 2.0 ** (power + 1.0) * u ** (1.0 - power)))
    (far, far_weights), (own, own_weights) = rules
    k = np.arange(1, PIECE_NODES)
    moments = np.cumprod(np.append(1.0, (2.0 * p - 2.0 - k) / (2.0 * p - 2.0 + k)))  # of Legendre polynomials
    curved = np.linalg.solve(np.polynomial.legendre.legvander(2.0 * own - 1.0, PIECE_NODES - 1).T, moments)
    weights = np.stack([far_weights, own_weights, own_weights, far_weights])
    return np.stack([far, own, own, far]), weights, curved


class Pieces(eqx.Module):
    """For each root: the left neighbour, the two parts of its own panel, the right neighbour."""

    panel: Int[Array, "roots 4"]
    t: Float[Array, "roots 4"]  # of the end nearest to the root
    length: Float[Array, "roots 4"]  # 0 for a piece that is not there
    covered: Bool[Array, " panels"]  # panels that the pieces replace


def pieces(at: Roots, panels: int, live: Int[Array, ""]) -> Pieces:
    """Pieces of the panels at and beside the roots; those of roots less than three panels apart meet halfway.

    Places are counted in panels: the point t of panel i is i + (t + 1)/2.
    """
    i, place = at.panel, at.panel + 0.5 * (at.t + 1.0)
    close = at.found[:-1] & at.found[1:] & (i[1:] - i[:-1] <= 2)
    middle = 0.5 * (place[:-1] + place[1:])
    lowest = jnp.append(0.0, jnp.where(close, middle, 0.0))
    highest = jnp.append(jnp.where(close, middle, live), live)
    offset = jnp.array([-1, 0, 0, 1])
    left, right = (
        (jnp.maximum(lowest, end) for end in (i - 1, i)),
        (jnp.minimum(highest, end) for end in (i + 1, i + 2)),
    )
    far = jnp.stack([*left, *right], axis=1)
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
    """E|e|^p / p for e = ρ − a − b z at (a, b). Strictly convex for p > 1, convex for p = 1."""
    e = of.rho - at[0] - at[1] * of.z
    if p >= SMOOTH_FROM or p % 2 == 0:
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
    slope = jnp.where(length > SHORT, by_distance, roots.slope[:, None, None])
    own = roots.found[:, None, None] * length ** (p - 1.0) * curved * density * _power(slope, p - 2.0)
    second = jnp.where(_OWN[:, None], own, (p - 1.0) * mass * _power(new_e, p - 2.0))
    plain = jnp.where(new.covered[:, None], 0.0, of.mass)
    joined = [
        jnp.concatenate([a.ravel(), b.ravel()])
        for a, b in ((plain, mass), ((p - 1.0) * plain * _power(e, p - 2.0), second), (e, new_e), (of.z, z))
    ]
    return _sum(*joined, p)


def _power(e: Array, exponent: float) -> Array:
    return jnp.maximum(jnp.abs(e), 1e-30) ** exponent


def _sum(mass: Array, second: Array, e: Array, z: Array, p: float) -> Level:
    slope = mass * jnp.sign(e) * _power(e, p - 1.0)
    gradient = -jnp.array([jnp.sum(slope), jnp.sum(slope * z)])
    h = [jnp.sum(second * z**k) for k in range(3)]
    return Level(jnp.sum(slope * e) / p, gradient, jnp.array([[h[0], h[1]], [h[1], h[2]]]))
