"""The tilted density of both latent values of a row on a grid, for likelihoods without a closed integral over f.

Panels of Gauss-Legendre nodes in f and in g. The window of g is that of an approximate integral over f, and the window
of f that of a sum over some values of g.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float

from quantprop.core.gaussian import LOG_2PI, Normal
from quantprop.core.records import field
from quantprop.core.sites import Datum, Scalar
from quantprop.likelihoods.base import Landmarks, Likelihood
from quantprop.likelihoods.tilted import Tilted
from quantprop.numerics.quadrature import MAX_ZOOMS, NODES, TO_SERIES, WEIGHTS, Density, frozen, panels
from quantprop.numerics.special import norm_logpdf

HERMITE, OF_HERMITE = np.polynomial.hermite_e.hermegauss(4)
OF_HERMITE = OF_HERMITE / OF_HERMITE.sum()
FARTHEST = 12.0  # g is looked for up to this many standard deviations from the mean of its cavity, and farther
STEEPEST = 100.0  # where log p changes by this much per unit of g
SCAN, ZOOMS = 17, 3  # values of g at a time, and how often they are refined
INSIDE = 0.2  # how far inside of these ends, relative to their distance, the scale of the likelihood matters
VALUES_OF_G = 6  # at which the density of f is looked at
UNDERFLOW = -700.0  # log density relative to the largest, below which it is nothing
MAX_END = 1e-9  # largest density at an end, relative to the maximum


class Fineness(NamedTuple):
    """Settings of a grid, and the errors up to which it counts as resolved."""

    zooms: int  # of the window of f
    every: int  # which ends of panels in f are kept: every second one, for example
    in_g: int  # panels in g, which end where
    depth: float  # the approximate density of g is exp(−depth) of its maximum
    max_last: float  # of the share of the last coefficients of the panels' polynomials; the error is about its square
    max_score: float  # of E z and E z² − 1, where z = Φ⁻¹(F), for projections that use the distribution


COARSE = Fineness(3, 2, 3, 24.0, 5e-4, 1e-8)  # enough for moments under most cavities of a fit
COARSE_FOR_SCORES = Fineness(3, 2, 6, 34.0, 1e-5, 1e-9)
FINE = Fineness(
    MAX_ZOOMS, 1, 16, 34.0, 1e-3, 1e-6
)  # its errors are mostly far smaller; beyond these bounds there is no finer one


class OnGrid(NamedTuple):
    """Likelihoods of f and of g, the other integrated out, with their cavities; and whether the grid resolves them."""

    each: tuple[tuple[Likelihood, Normal], ...]
    resolved: Bool[Array, ""]

    def if_resolved(self, value: Any) -> Any:
        """A value found from these, NaN where they are not resolved."""
        return jax.tree.map(lambda part: jnp.where(self.resolved, part, jnp.nan), value)


class OnNodes(Likelihood):
    """The likelihood of one latent value, of which the tilted density at nodes is known, and nothing else."""

    known: Tilted
    max_score: float = field(static=True)

    name = "of one latent value"
    support = "as its base"
    continuous = False  # no derivatives in f are known
    tilted: ClassVar[Any] = property(lambda self: self.known)


def on_grid(likelihood: Any, datum: Datum, cavity: Normal, fineness: Fineness) -> OnGrid:
    """The joint density of f and g of a `Varying` likelihood, summed over each."""
    f, g = (Normal(cavity.mean[k], cavity.variance[k]) for k in range(2))
    ends_f, ends_g, top = _mesh(fineness, *frozen((likelihood, datum, f, g)))
    (nodes_f, of_f), (nodes_g, of_g) = _gauss(ends_f), _gauss(ends_g)
    d = nodes_f.ravel()
    log_prior = -0.5 * d * d / f.variance - top

    def add(by_f: Array, node: tuple[Scalar, Scalar]) -> tuple[Array, Scalar]:
        e, weight = node
        of = likelihood.at(g.mean + e)
        values = jax.vmap(lambda d: of.log_prob(datum, f.mean + d))(d) + log_prior - 0.5 * e * e / g.variance
        there = values > UNDERFLOW  # elsewhere derivatives may be infinite
        mass = jnp.where(there, jnp.exp(jnp.where(there, values, 0.0)), 0.0) * of_f.ravel() * weight
        mass = jax.lax.optimization_barrier(mass)  # once, not once per sum
        return by_f + mass, jnp.sum(mass)

    by_f, by_g = jax.lax.scan(add, jnp.zeros_like(d), (nodes_g.ravel(), of_g.ravel()))
    total = jnp.sum(by_g)
    log_normalizer = top + jnp.log(total) - 0.5 * (jnp.log(f.variance) + jnp.log(g.variance)) - LOG_2PI

    proper = jnp.all(jnp.isfinite(cavity.mean) & (cavity.variance > 0))
    densities = [Density(at, (mass / total).reshape(at.shape), log_normalizer)
                 for at, mass in ((nodes_f, by_f), (nodes_g, by_g))]  # fmt: skip
    last = jnp.maximum(_last(densities[0], of_f), _last(densities[1], of_g))
    each = tuple((OnNodes(_tilted(density, own.mean), fineness.max_score), own)
                 for density, own in zip(densities, (f, g), strict=True))  # fmt: skip
    return OnGrid(each, (last <= fineness.max_last) | ~proper)


def _tilted(density: Density, mean: Scalar) -> Tilted:
    """A density of distances from the cavity's mean, without derivatives in f."""
    return Tilted(density, density.nodes, mean + density.nodes, jnp.zeros_like(density.nodes))


def _last(density: Density, weights: Float[Array, "panels 16"]) -> Scalar:
    """The share of the last coefficients of the panels' polynomials, infinite if the density goes on beyond them."""
    last = jnp.sum(jnp.abs((density.mass / WEIGHTS) @ TO_SERIES[-2:].T))
    height = jnp.where(weights > 0, density.mass / jnp.where(weights > 0, weights, 1.0), 0.0)
    ends = jnp.maximum(height[0, 0], height[-1, -1])
    return jnp.where(ends <= MAX_END * jnp.max(height), last, jnp.inf)


def _gauss(ends: Float[Array, " points"]) -> tuple[Float[Array, "panels 16"], Float[Array, "panels 16"]]:
    """Nodes and weights on panels with these ends."""
    centre, half = 0.5 * (ends[1:] + ends[:-1]), 0.5 * (ends[1:] - ends[:-1])
    return centre[:, None] + half[:, None] * NODES, half[:, None] * WEIGHTS


def _mesh(fineness: Fineness, likelihood: Any, datum: Datum, f: Normal, g: Normal) -> tuple[Array, Array, Scalar]:
    """Ends of panels in f and in g, relative to the means of the cavities; about the largest log density."""

    def of_g(e: Scalar) -> Scalar:
        value = _roughly(likelihood.at(g.mean + e), datum, f) - 0.5 * e * e / g.variance
        return jnp.where(jnp.isnan(value), -jnp.inf, value)  # of a parameter that is out of all bounds

    sd = jnp.sqrt(g.variance)
    reach = FARTHEST * jnp.where(sd < 1.0, jnp.minimum(1.0, sd + STEEPEST * g.variance), sd)
    first, last, top = _window(of_g, reach, fineness.depth)
    some = jnp.linspace(first, last, VALUES_OF_G)

    def of_f(d: Scalar) -> Scalar:
        given = jax.vmap(lambda e: likelihood.at(g.mean + e).log_prob(datum, f.mean + d))(some)
        return logsumexp(given - 0.5 * some**2 / g.variance) - 0.5 * d * d / f.variance

    inner = jnp.array([1.0 - INSIDE, INSIDE]) * first + jnp.array([INSIDE, 1.0 - INSIDE]) * last
    at = jax.vmap(lambda e: likelihood.at(g.mean + e).landmarks(datum))(inner)
    narrow = at.location[jnp.argmin(at.scale[:, 0])] - f.mean
    own = Landmarks(jnp.append(narrow, 0.0), jnp.append(jnp.min(at.scale, axis=0), jnp.sqrt(f.variance)))
    lower, upper = jnp.min(own.location - 40.0 * own.scale), jnp.max(own.location + 40.0 * own.scale)
    ends = panels(of_f, lower, upper, Landmarks(narrow, own.scale[:-1]), fineness.zooms)
    every = fineness.every if likelihood.base.smooth else 1  # a kink is at an end
    kept = jnp.append(ends[:-1:every], ends[-1])
    return kept, jnp.linspace(first, last, fineness.in_g + 1), top


def _roughly(likelihood: Likelihood, datum: Datum, f: Normal) -> Scalar:
    """log ∫ p(y | f) N(f) df, by importance weights on nodes about the likelihood, the Gaussian, and their product."""
    at = likelihood.landmarks(datum)
    a, s2, v = at.location[0], at.scale[0] ** 2, f.variance
    mean, variance = jnp.stack([a, f.mean, (a * v + f.mean * s2) / (v + s2)]), jnp.stack([s2, v, v * s2 / (v + s2)])
    nodes = (mean[:, None] + jnp.sqrt(variance)[:, None] * HERMITE).ravel()
    z = (nodes[:, None] - mean) / jnp.sqrt(variance)
    drawn = logsumexp(norm_logpdf(z) - 0.5 * jnp.log(variance), axis=1)
    of_f = norm_logpdf((nodes - f.mean) / jnp.sqrt(v)) - 0.5 * jnp.log(v)
    value = jax.vmap(lambda f: likelihood.log_prob(datum, f))(nodes) + of_f - drawn
    return logsumexp(value, b=jnp.tile(OF_HERMITE, 3))


def _window(log_density: Callable, reach: Scalar, depth: float) -> tuple[Scalar, Scalar, Scalar]:
    """Where a density about 0 is more than exp(−depth) of its maximum, and the logarithm of that."""

    def zoom(_: Any, found: tuple[Scalar, Scalar, Scalar]) -> tuple[Scalar, Scalar, Scalar]:
        points = jnp.linspace(*found[:2], SCAN)
        values = jax.vmap(log_density)(points)
        kept = values > jnp.max(values) - depth
        first, last = jnp.argmax(kept), SCAN - 1 - jnp.argmax(kept[::-1])
        return points[jnp.maximum(first - 1, 0)], points[jnp.minimum(last + 1, SCAN - 1)], jnp.max(values)

    return jax.lax.fori_loop(0, ZOOMS, zoom, (-reach, reach, jnp.zeros_like(reach)))
