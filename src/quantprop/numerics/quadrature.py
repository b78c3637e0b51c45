"""Adaptive panel quadrature of a one-dimensional density that is known up to a constant.

A density here is a Gaussian times a likelihood term. It varies on two kinds of scale: its own width, and the scales of
the likelihood around a few *landmarks* (a threshold, a kink, an observation), which can be a million times narrower.
Panels are therefore the common refinement of several meshes over the support: one with equal steps, and one for every
landmark whose steps grow in proportion to the distance from it. On each panel sit 16 Gauss-Legendre nodes.
Everything has a fixed shape, so that one datum's integral can be vmapped over data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.records import Record

EQUAL_PANELS = 10
GRADED_PANELS = 14
FIXED_PANELS = 8
LEVELS = 6
MAX_ZOOMS = 10  # enough if the likelihood is 1e8 times as wide as the cavity, or as narrow
BISECTIONS = 10
# A density below exp(−DEPTH) of its maximum is left out: 4e-19 of the mass of anything that decays like a Gaussian.
DEPTH = 42.0


NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
_K, _LEGENDRE = np.arange(16), np.polynomial.legendre.legvander(NODES, 16)
TO_SERIES = (_K[:, None] + 0.5) * _LEGENDRE[:, :16].T * WEIGHTS  # maps values at the nodes to coefficients of P_k
# C with (C g)_i = ∫_{−1}^{x_i} g for polynomials g of degree < 16, since ∫ P_k = (P_{k+1} − P_{k−1})/(2k + 1)
_LOWER = np.concatenate([-np.ones((16, 1)), _LEGENDRE[:, :15]], axis=1)
_CUMULATIVE = (_LEGENDRE[:, 1:] - _LOWER) / (2 * _K + 1) @ TO_SERIES


class Landmarks(Record):
    """Locations where a function of f is concentrated or rough: K of them, with the scale on which it varies."""

    location: Float[Array, " K"]
    scale: Float[Array, " K"]


def landmarks(*pairs: tuple) -> Landmarks:
    locations, scales = zip(*pairs, strict=True)
    return Landmarks(
        jnp.stack([jnp.asarray(x, float) for x in locations]), jnp.stack([jnp.asarray(x, float) for x in scales])
    )


class Density(Record):
    """A normalised density on quadrature nodes: ∫ g q ≈ Σ mass · g(nodes)."""

    nodes: Float[Array, "panels 16"]
    mass: Float[Array, "panels 16"]
    log_normalizer: Float[Array, ""]

    def expect(self, values: Float[Array, "panels 16"]) -> Float[Array, ""]:
        """E_q[g] from the values of g at the nodes (g may be infinite where there is no mass)."""
        return jnp.sum(jnp.where(self.mass > 0, self.mass * values, 0.0))

    def tails(self) -> tuple[Float[Array, "panels 16"], Float[Array, "panels 16"]]:
        """F and 1 − F at the nodes, each summed from its own end so that both tails keep their digits."""
        panel = self.mass.sum(axis=1)
        before = jnp.concatenate([jnp.zeros(1), jnp.cumsum(panel)[:-1]])
        after = jnp.concatenate([jnp.cumsum(panel[::-1])[-2::-1], jnp.zeros(1)])
        density = self.mass / WEIGHTS
        return before[:, None] + density @ _CUMULATIVE.T, after[:, None] + density @ (WEIGHTS - _CUMULATIVE).T


def graded(lower, upper, at: Landmarks) -> Float[Array, " points"]:
    """Points over [lower, upper] that are dense around every landmark; the landmarks themselves among them."""
    start, stop = (jnp.arcsinh((end - at.location) / at.scale) for end in (lower, upper))
    step = (stop - start) / GRADED_PANELS
    inner = at.location + at.scale * jnp.sinh(start + step * jnp.arange(1.0, GRADED_PANELS)[:, None])
    return jnp.clip(jnp.append(inner.ravel(), at.location), lower, upper)


def panels(
    log_density: Callable, lower, upper, at: Landmarks, zooms: int = MAX_ZOOMS
) -> Float[Array, " points"]:  # fmt: skip
    """Sorted panel ends over the part of [lower, upper] that matters, found by zooming in on it.

    What matters is density, and density times the cube of the distance from the nearest landmark (at least that
    landmark's scale), its reach into a second moment: a low, wide tail is not dropped for the sake of a high, narrow
    peak. Panel ends are the points graded around the landmarks, and on either side the outermost points where the
    square root of the log density's drop has made j/LEVELS of its way: equal steps for a Gaussian, and no panel over
    which any tail falls far.
    """

    def reach(x):
        return 3.0 * jnp.log(jnp.min(jnp.hypot(x - at.location, at.scale)))

    def sample(lower, upper):
        equal = lower + (upper - lower) * jnp.linspace(0.0, 1.0, EQUAL_PANELS + 1)
        points = jnp.sort(jnp.concatenate([equal, graded(lower, upper, at)]))
        return points, jax.vmap(log_density)(points), jax.vmap(reach)(points)

    def brackets(points, values, reaches):
        """Neighbouring points (outer, inner) between which the density starts, and ends, to matter."""
        reaching = values + reaches
        kept = (reaching > jnp.max(reaching) - DEPTH) | (values > jnp.max(values) - DEPTH)
        first, last = jnp.argmax(kept), len(points) - 1 - jnp.argmax(kept[::-1])
        outer = jnp.array([jnp.maximum(first - 1, 0), jnp.minimum(last + 1, len(points) - 1)])
        return points[outer], points[jnp.array([first, last])]

    def zoom(_, ends):
        points, values, reaches = sample(*ends)
        return tuple(brackets(points, values, reaches)[0])

    points, values, reaches = sample(*jax.lax.fori_loop(0, zooms, zoom, (lower, upper)))
    least, least_reaching = jnp.max(values) - DEPTH, jnp.max(values + reaches) - DEPTH

    def halve(_, ends):
        outer, inner = ends
        middle = 0.5 * (outer + inner)
        value = jax.vmap(log_density)(middle)
        matters = (value > least) | (value + jax.vmap(reach)(middle) > least_reaching)
        return jnp.where(matters, outer, middle), jnp.where(matters, middle, inner)

    (left, right), _ = jax.lax.fori_loop(0, BISECTIONS, halve, brackets(points, values, reaches))
    drop = jnp.minimum(jnp.max(values) - values, 4.0 * DEPTH)
    steps = jnp.concatenate([_levels(points, drop, right), -_levels(-points[::-1], drop[::-1], -left)])
    inner = jnp.concatenate([steps, points[jnp.argmin(drop)][None]])
    return jnp.sort(jnp.concatenate([jnp.clip(inner, left, right), graded(left, right, at)]))


def fixed_panels(lower: float, upper: float, at: Landmarks) -> Float[Array, " points"]:
    """Sorted panel ends over [lower, upper], for a density that is known to fill it: equal steps, and graded ones."""
    equal = jnp.linspace(lower, upper, FIXED_PANELS + 1)
    return jnp.sort(jnp.concatenate([equal, graded(lower, upper, at)]))


def _levels(points: Array, drop: Array, end: Array) -> Float[Array, " levels"]:
    """The rightmost points at equal steps of √drop, up to the right `end`."""
    root = jnp.sqrt(jax.lax.cummin(drop, reverse=True))
    steps = jnp.linspace(0.0, 1.0, LEVELS + 1)[1:] * jnp.interp(end, points, root)
    return jnp.interp(steps, root, points).at[-1].set(end)


def integrate(log_density: Callable, ends: Float[Array, " points"]) -> Density:
    """Normalise exp(log_density) over panels with these ends.

    An integral does not depend on where its panels end: make them from `frozen` inputs, and derivatives of what is
    integrated pass through the values at the nodes alone.
    """
    centre, half = 0.5 * (ends[1:] + ends[:-1]), 0.5 * (ends[1:] - ends[:-1])
    nodes = centre[:, None] + half[:, None] * NODES
    values = jax.vmap(jax.vmap(log_density))(nodes)
    top = jax.lax.stop_gradient(jnp.max(values))
    inside = values > -jnp.inf  # derivatives of −∞ may be infinite, or NaN
    mass = jnp.where(inside, jnp.exp(values - top), 0.0) * half[:, None] * WEIGHTS
    total = mass.sum()
    return Density(nodes, mass / total, top + jnp.log(total))


def frozen(tree: Any) -> Any:
    """The same numbers, with no derivatives."""
    return jax.lax.stop_gradient(tree)
