"""Integrals of a likelihood times a Gaussian: the tilted density on panels, or by the small rule, and expectations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from quantprop.core.gaussian import LOG_2PI, Normal
from quantprop.core.records import Record, changed
from quantprop.core.sites import Datum, Factor, Moments, Scalar, Split
from quantprop.numerics.quadrature import (
    Density,
    Landmarks,
    fixed_panels,
    frozen,
    integrate,
    panels,
)
from quantprop.numerics.smooth import TRUSTED_ERROR, Nodes, Peak, on_nodes, place, sums
from quantprop.numerics.trusted import unless_trusted

FINDABLE = 1e-8  # width of a Gaussian, in units of the likelihood's, that panels graded around the latter alone resolve
OUTERMOST = 12.0  # standard deviations of a Gaussian that expectations look at


class Tilted(Record):
    """p(y | f) N(f | m, v), normalised, on quadrature nodes."""

    density: Density
    offset: Float[Array, "panels 16"]  # f − m at the nodes, exact where the cavity is the narrower factor
    f: Float[Array, "panels 16"]
    slope: Float[Array, "panels 16"]  # ∂ log p(y | f)/∂f


def tilt(likelihood: Factor, datum: Datum, cavity: Normal) -> Tilted:
    """The tilted density on nodes placed for both factors.

    Coordinates are measured from the narrower factor's centre (the pivot), so that a cavity of standard deviation 1e-8
    at mean 1e8, or a likelihood of width 1e-3 under a cavity of width 1e3, keeps its digits.
    """
    if likelihood.tilted is not None:
        return likelihood.tilted
    split = likelihood.split(datum, cavity)
    pivot, ends = _mesh(*frozen((likelihood, datum, cavity)))
    density = integrate(_log_tilted(split, pivot), ends)
    log_normalizer = density.log_normalizer + split.constant - 0.5 * (jnp.log(split.core.variance) + LOG_2PI)
    density = changed(density, log_normalizer=log_normalizer)
    f = pivot + density.nodes
    slope = jax.vmap(jax.vmap(jax.grad(lambda f: likelihood.log_prob(datum, f))))(f)
    return Tilted(density, density.nodes - (cavity.mean - pivot), f, slope)


def _log_tilted(split: Split, pivot: Scalar) -> Callable:
    """log of rest times core at pivot + g, as a function of g, up to the Gaussian's constant."""
    m, sd = split.core.mean, jnp.sqrt(split.core.variance)
    return lambda g: split.rest(pivot + g) - 0.5 * ((g - (m - pivot)) / sd) ** 2


def _mesh(likelihood: Factor, datum: Datum, cavity: Normal) -> tuple[Scalar, Float[Array, " points"]]:
    """The pivot, and panel ends measured from it."""
    at, split = likelihood.landmarks(datum), likelihood.split(datum, cavity)
    core = split.core
    locations, scales = jnp.append(at.location, core.mean), jnp.append(at.scale, jnp.sqrt(core.variance))
    pivot = locations[jnp.argmin(scales)]
    if likelihood.log_concave:  # otherwise the cavity may add a peak far from the likelihood's
        relative = _within_reach(Landmarks(at.location - pivot, at.scale), core.mean - pivot, jnp.sqrt(core.variance))
    else:
        relative = Landmarks(locations - pivot, scales)
    lower = jnp.min(locations - pivot - 40.0 * scales)
    upper = jnp.max(locations - pivot + 40.0 * scales)
    return pivot, panels(_log_tilted(split, pivot), lower, upper, relative)


def _within_reach(at: Landmarks, mean: Scalar, sd: Scalar) -> Landmarks:
    """The landmarks, or, where a Gaussian is too narrow to be found by zooming in on them, those within its reach."""
    narrow = sd < FINDABLE * jnp.min(at.scale)
    near = jnp.clip(at.location, mean - 40.0 * sd, mean + 40.0 * sd)
    return Landmarks(jnp.where(narrow, near, at.location), jnp.where(narrow, sd, at.scale))


def quadrature_moments(likelihood: Factor, tilted: Tilted, cavity: Normal) -> Moments:
    """log Z, mean and variance of a tilted density from its nodes."""
    density, offset = tilted.density, tilted.offset
    shift = density.expect(offset)
    deviation = offset - shift
    ratio = density.expect(deviation**2) / cavity.variance
    shrink = 1.0 - ratio
    if likelihood.continuous:
        # Stein's identity: 1 − Var(f)/v = −Cov(f, ∂ log p). Without it a flat likelihood's shrink is rounding noise of
        # either sign; with it, it has all digits and the right sign for every log-concave likelihood.
        around = tilted.slope - density.expect(tilted.slope)  # far from the data slopes are huge, and nearly equal
        shrink = jnp.where(ratio < 0.5, shrink, -density.expect(deviation * around))
        ratio = jnp.where(ratio < 0.5, ratio, 1.0 - shrink)  # both from one number: sites see m (1 − ratio − shrink)
    return Moments(density.log_normalizer, shift, ratio, shrink)


def panel_moments(likelihood: Factor, datum: Datum, cavity: Normal) -> Moments:
    return quadrature_moments(likelihood, tilt(likelihood, datum, cavity), cavity)


class FewNodes(NamedTuple):
    """The tilted density at the nodes of the small rule, its moments, and whether they are accurate."""

    nodes: Nodes
    total: Scalar
    moments: Moments
    trusted: Bool[Array, ""]


def on_few_nodes(likelihood: Factor, datum: Datum, cavity: Normal, kept: Callable = lambda x: x) -> FewNodes:
    """Moments as in `quadrature_moments`, whose two ways to the variance must agree where both matter.

    Improper cavities are trusted: nothing resolves them. `kept` is that of `on_nodes`.
    """

    def peak(likelihood, datum, cavity):
        at = likelihood.landmarks(datum)
        first, last = at.location[0] - cavity.mean, at.location[-1] - cavity.mean
        log_prob = partial(likelihood.log_prob, datum)
        return Peak(lambda d: log_prob(cavity.mean + d), first, last, at.scale[0], likelihood.log_concave)

    fixed, v = frozen((likelihood, datum, cavity)), cavity.variance
    at = place(peak(*fixed), fixed[2].variance)
    nodes = on_nodes(peak(likelihood, datum, cavity).log_prob, v, at, kept)
    of = sums(nodes, at)
    ratio, shrink = of.variance / v, -of.covariance  # Stein's identity
    narrow, left = ratio < 0.5, jnp.where(ratio < 0.5, 0.0, jnp.abs(1.0 - ratio - shrink))
    log_normalizer = at.top + jnp.log(of.total) - 0.5 * (jnp.log(v) + LOG_2PI)
    moments = Moments(
        log_normalizer, of.mean, jnp.where(narrow, ratio, 1.0 - shrink), jnp.where(narrow, 1.0 - ratio, shrink)
    )
    trusted = at.whole & (of.error <= TRUSTED_ERROR) & (left <= TRUSTED_ERROR)
    return FewNodes(nodes, of.total, moments, trusted | ~(jnp.isfinite(cavity.mean) & (v > 0)))


def few_node_moments(likelihood: Factor, datum: Datum, cavity: Normal) -> tuple[Moments, Bool[Array, ""]]:
    """Moments of the tilted density by the small rule, and whether they are accurate."""
    few = on_few_nodes(likelihood, datum, cavity)
    return few.moments, few.trusted


smooth_moments = unless_trusted(few_node_moments, panel_moments)


# --- expectations under a Gaussian ----------------------------------------------------------------------------------


def latent_nodes(at: Landmarks, latent: Normal) -> tuple[Density, Float[Array, "panels 16"]]:
    """N(latent) itself on nodes that resolve the landmarks: the density of u = (f − mean)/sd, and f."""
    mean, sd = latent.mean, jnp.sqrt(latent.variance)
    relative = frozen(Landmarks((at.location - mean) / sd, at.scale / sd))
    density = integrate(lambda u: -0.5 * u * u, fixed_panels(-OUTERMOST, OUTERMOST, relative))
    return density, mean + sd * density.nodes


def quadrature_expectation(ell: Callable, at: Landmarks, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
    """E_q[ℓ], ∂/∂μ = E_q[u ℓ]/σ and ∂/∂v = E_q[(u² − 1) ℓ]/(2v) with u = (f − μ)/σ, ℓ(f) = log p(y | f).

    The forms with derivatives of ℓ diverge for a square link and miss the kink of double-exponential noise.
    """
    density, f = latent_nodes(at, marginal)
    u = density.nodes
    value = jax.vmap(jax.vmap(ell))(f)
    expected = density.expect(value)
    centred = value - expected  # the derivatives do not see constants
    by_mean = density.expect(u * centred) / jnp.sqrt(marginal.variance)
    return expected, by_mean, density.expect((u * u - 1.0) * centred) / (2.0 * marginal.variance)
