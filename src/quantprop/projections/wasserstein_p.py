"""W_p(tilted, Gaussian) for any p ≥ 1 (paper, section 4.1 and appendix B).

The pair (μ, σ) minimises E|f − μ − σ z(f)|^p with z = Φ⁻¹(F(f)), F the tilted CDF: a convex function,
strictly for p > 1. At p = 1 it need not be strictly convex (W₁(N(0, 1), N(0, σ²)) = |1 − σ| √(2/π)), and the
minimiser is the one that Newton's method reaches from the W₂ pair. Where the residual changes sign twice, as
for most skewed densities, that is the Gaussian with the same quartiles.

Coordinates: f = mean + σ₂ x with σ₂ the W₂ deviation; ρ = (x − z)/s with s the p-norm of x − z; then μ = mean
+ s a σ₂ and σ = σ₂ (1 + s b). So an almost Gaussian density (s → 0) is as easy as any, and nothing cancels in
1 − σ²/v.

σ lies between the least and the largest slope of the map T(z) = F⁻¹(Φ(z)): were it larger than every slope,
then e = T(z) − μ − σ z would fall through a single root z₀ and E[|e|^{p−1} sgn(e) (z − z₀)] could not vanish.
For a log-concave likelihood T′ ≤ √v (Caffarelli's contraction theorem), so σ² ≤ v for every p, as with KL.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from quantprop.core.gaussian import Normal
from quantprop.core.records import changed
from quantprop.likelihoods.additive import Gaussian
from quantprop.likelihoods.base import Datum, Likelihood, Moments, Scalar
from quantprop.likelihoods.binary import Heaviside
from quantprop.likelihoods.derived import ByOutput
from quantprop.likelihoods.tilted import quadrature_moments, tilt
from quantprop.likelihoods.warped import Warped
from quantprop.numerics.quadrature import Density, frozen, integrate, landmarks, panels
from quantprop.numerics.special import normal_score
from quantprop.projections.residual import Curve, Level, curve, fine_tails, level

MIN_DISTANCE = 1e-12  # a p-norm of x − z that is rounding error: the tilted density is Gaussian
SCORE_MAX = 8.2  # |z| of a tail mass of 1e-16
MAX_STEPS = 60
SMALLEST_STEP = 1e-11


def nearest_wp(p: float, likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
    """W_p projection by quadrature and Newton's method."""
    if isinstance(likelihood, (Gaussian, Warped)):
        return likelihood.moments(datum, cavity)  # the tilted density is Gaussian
    if isinstance(likelihood, ByOutput):
        return likelihood.each(partial(nearest_wp, p), datum, cavity)
    moved = moved_to_wp(p, *resolved(likelihood, datum, cavity), cavity)
    # A log-concave likelihood has shrink ≥ 0 (see above), from which rounding must not take it.
    least = 0.0 if likelihood.log_concave else -jnp.inf
    return changed(moved, shrink=jnp.maximum(moved.shrink, least))


def resolved(likelihood: Likelihood, datum: Datum, cavity: Normal) -> tuple[Density, Array, Moments]:
    """The tilted density on nodes, f at them up to a constant, and its moments."""
    if isinstance(likelihood, Heaviside):
        sharp = jnp.asarray(likelihood.noise) == 0.0
        nodes = jax.lax.cond(sharp, truncated_nodes, tilted_nodes, likelihood, datum, cavity)
        return *nodes, likelihood.moments(datum, cavity)
    tilted = tilt(likelihood, datum, cavity)
    return tilted.density, tilted.offset, quadrature_moments(likelihood, tilted, cavity)


def tilted_nodes(likelihood: Likelihood, datum: Datum, cavity: Normal) -> tuple[Density, Array]:
    """The tilted density and f − m at its nodes."""
    tilted = tilt(likelihood, datum, cavity)
    return tilted.density, tilted.offset


def truncated_nodes(likelihood: Heaviside, datum: Datum, cavity: Normal) -> tuple[Density, Array]:
    """The cavity truncated at zero, and f − m up to a constant, at nodes dense towards the truncation.

    There z ~ √(−2 log g) with g = |f| in standard deviations; the coordinate is g^¼, in which little mass is
    near that singularity. Beyond a margin of 40 standard deviations the truncation is nothing.
    """
    margin = jnp.minimum(likelihood.margin(datum, cavity), 40.0)

    def log_density(margin):
        return lambda w: w**4 * (margin - 0.5 * w**4) + 1.5 * jnp.log(w * w + 1e-60)  # dg = 4 w³ dw

    fixed = frozen(margin)
    width, peak = 1.0 / jnp.maximum(1.0, -fixed), jnp.maximum(fixed, 0.0)
    end, top = (peak + 45.0 * width) ** 0.25, jnp.sqrt(jnp.sqrt(peak + 1e-60))
    at = landmarks((0.0 * end, 1e-3 * width**0.25), (top, width / (4.0 * jnp.maximum(top, width**0.25) ** 3)))
    density = integrate(log_density(margin), panels(log_density(fixed), 0.0 * end, end, at))
    return density, datum.y * jnp.sqrt(cavity.variance) * (density.nodes**4 - peak)


def moved_to_wp(p: float, density: Density, offset: Array, moments: Moments, cavity: Normal) -> Moments:
    """The W_p projection of a density with these moments; `offset` is f at its nodes, up to a constant."""
    order = jnp.sign(offset[-1, -1] - offset[0, 0])
    deviation = offset - density.expect(offset)
    tails = fine_tails(density)
    z = order * jnp.clip(normal_score(*tails), -SCORE_MAX, SCORE_MAX)
    z = jax.lax.optimization_barrier(z)  # Φ⁻¹ once, not once per sum
    sigma = density.expect(deviation * z)
    difference = deviation / sigma - z
    # Nodes far out are left out: that the density is cut off beyond them shows in their z, and in |e|^p for large p.
    mass = jnp.where(jnp.minimum(*tails) > (1e-17 if p < 4.0 else 1e-15), density.mass, 0.0)
    size = jax.lax.stop_gradient(jnp.sum(mass * jnp.abs(difference) ** p) ** (1.0 / p))
    shape = curve(density.mass, mass, z, difference / jnp.maximum(size, MIN_DISTANCE))
    tolerance = jnp.where(size > MIN_DISTANCE, jnp.maximum(SMALLEST_STEP, 1e-13 / size), jnp.inf)
    a, b = jnp.where(size > MIN_DISTANCE, size * minimise(shape, p, tolerance), 0.0)
    # σ²/σ_KL² = (1 − gap)(1 + b)², gap = E[(f − mean − σ₂ z)²]/σ_KL² as for p = 2
    gap = density.expect((deviation - sigma * z) ** 2) / (moments.ratio * cavity.variance)
    narrower = moments.ratio * (gap - (1.0 - gap) * b * (2.0 + b))
    return Moments(
        moments.log_normalizer, moments.shift + a * sigma, moments.ratio - narrower, moments.shrink + narrower
    )


class NewtonState(NamedTuple):
    """Between two steps: the best pair (a, b) so far and the level there, the next to try, the damping."""

    best: Float[Array, "2"]
    at: Level
    trial: Float[Array, "2"]
    damping: Scalar
    steps: Int[Array, ""]
    done: Bool[Array, ""]


def minimise(shape: Curve, p: float, tolerance: Scalar) -> Float[Array, "2"]:
    """The (a, b) of least E|ρ − a − b z|^p: Newton's method from the W₂ pair, damped where the level rises.

    A last step outside the loop, at its end point, carries the derivatives in whatever the curve depends on.
    """
    fixed = jax.lax.stop_gradient(shape)
    nothing = Level(jnp.asarray(jnp.inf), jnp.zeros(2), jnp.eye(2))
    start = NewtonState(jnp.zeros(2), nothing, jnp.zeros(2), jnp.asarray(0.0), jnp.asarray(0), jnp.asarray(False))

    def step(s: NewtonState) -> NewtonState:
        new = level(fixed, s.trial, p)
        good = new.value <= s.at.value * (1.0 + 1e-13)
        at = jax.tree.map(lambda n, o: jnp.where(good, n, o), new, s.at)
        best = jnp.where(good, s.trial, s.best)
        damping = jnp.where(good, jnp.where(s.damping < 1e-4, 0.0, 0.1 * s.damping), 8.0 * s.damping + 1e-3)
        move = newton_step(at, damping)
        return NewtonState(best, at, best + move, damping, s.steps + 1, jnp.max(jnp.abs(move)) < tolerance)

    end = jax.lax.while_loop(lambda s: ~s.done & (s.steps < MAX_STEPS), step, start)
    last = level(shape, end.best, p)
    move = newton_step(Level(last.value, last.gradient, jax.lax.stop_gradient(last.hessian)), end.damping)
    return end.best + jnp.where(end.done, move, 0.0)


def newton_step(at: Level, damping: Array) -> Float[Array, "2"]:
    """−(H + λ(1 + tr H) I)⁻¹ g, no longer than 1, the unit of a and b. H can be singular only at p = 1."""
    (xx, xy), (_, yy) = at.hessian
    added = damping * (1.0 + xx + yy) + 1e-12 * (xx + yy) + 1e-30
    xx, yy = xx + added, yy + added
    gx, gy = at.gradient
    move = -jnp.stack([yy * gx - xy * gy, xx * gy - xy * gx]) / (xx * yy - xy * xy)
    return move / jnp.maximum(1.0, jnp.max(jnp.abs(move)))
