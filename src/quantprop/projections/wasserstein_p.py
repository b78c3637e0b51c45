"""W_p(tilted, Gaussian) for any p ≥ 1 (paper, section 4.1 and appendix B).

The pair (μ, σ) minimises E|f − μ − σ z(f)|^p with z = Φ⁻¹(F(f)), F the tilted CDF: a convex function, strictly for
p > 1. Coordinates: f = mean + σ₂ x with σ₂ the W₂ deviation, ρ = (x − z)/s with s its p-norm, (μ, σ) = (mean + s a σ₂,
σ₂ (1 + s b)). So a tilted density that is almost Gaussian (s → 0) is as easy as any other, and nothing cancels in 1 − σ²/v.

σ lies between the least and the largest slope of the map T(z) = F⁻¹(Φ(z)): were it larger than all slopes, e = T(z) − μ − σ z
would fall through one root z₀, and E[|e|^{p−1} sgn(e) (z − z₀)] would not vanish. For a log-concave likelihood T′ ≤ √v
(Caffarelli's contraction theorem), so σ² ≤ v for every p: no site precision is negative, as with KL.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from quantprop.gaussian import Normal
from quantprop.likelihoods.base import Datum, Likelihood, Moments, Scalar, quadrature_moments, tilt
from quantprop.likelihoods.gaussian import Gaussian
from quantprop.projections.residual import Curve, Level, curve, level
from quantprop.special import normal_score

GAUSSIAN = 1e-12  # a p-norm of x − z that is rounding error: the tilted density is Gaussian
SCORE_MAX = 8.2  # |z| of a tail mass of 1e-16, the least that the nodes resolve
MAX_STEPS = 60
SMALLEST_STEP = 1e-11


def nearest_wp(p: float, likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
    """W_p projection by quadrature and Newton's method."""
    if isinstance(likelihood, Gaussian):
        return likelihood.moments(datum, cavity)  # the tilted density is Gaussian
    tilted = tilt(likelihood, datum, cavity)
    moments = quadrature_moments(likelihood, datum, tilted, cavity)
    density, deviation = tilted.density, tilted.offset - moments.shift
    z = jax.lax.optimization_barrier(jnp.clip(normal_score(*density.tails()), -SCORE_MAX, SCORE_MAX))
    sigma = density.expect(deviation * z)
    difference = deviation / sigma - z
    size = jax.lax.stop_gradient(density.expect(jnp.abs(difference) ** p) ** (1.0 / p))
    shape = curve(density.mass, z, difference / jnp.maximum(size, GAUSSIAN))
    a, b = jnp.where(size > GAUSSIAN, size * minimise(shape, p), 0.0)
    # σ²/σ_KL² = (1 − gap)(1 + b)², gap = E[(f − mean − σ₂ z)²]/σ_KL² as for p = 2
    gap = density.expect((deviation - sigma * z) ** 2) / (moments.ratio * cavity.variance)
    narrower = moments.ratio * (gap - (1.0 - gap) * b * (2.0 + b))
    shrink = moments.shrink + narrower
    if likelihood.log_concave:
        shrink = jnp.maximum(shrink, 0.0)  # see above; rounding only
    return Moments(moments.log_normalizer, moments.shift + a * sigma, moments.ratio - narrower, shrink)


class State(NamedTuple):
    """Between two steps: the best pair (a, b) so far and the level there, the next to try, the damping."""

    best: Float[Array, "2"]
    at: Level
    trial: Float[Array, "2"]
    damping: Scalar
    steps: Int[Array, ""]
    done: Bool[Array, ""]


def minimise(shape: Curve, p: float) -> Float[Array, "2"]:
    """The (a, b) of least E|ρ − a − b z|^p: Newton's method from the W₂ pair, damped where the level would rise.

    A last step outside the loop, at its end point, carries the derivatives in whatever the curve depends on.
    """
    fixed = jax.lax.stop_gradient(shape)
    nothing = Level(jnp.asarray(jnp.inf), jnp.zeros(2), jnp.eye(2))
    start = State(jnp.zeros(2), nothing, jnp.zeros(2), jnp.asarray(0.0), jnp.asarray(0), jnp.asarray(False))

    def step(s: State) -> State:
        new = level(fixed, s.trial, p)
        good = new.value <= s.at.value * (1.0 + 1e-13)
        at = jax.tree.map(lambda n, o: jnp.where(good, n, o), new, s.at)
        best = jnp.where(good, s.trial, s.best)
        damping = jnp.where(good, jnp.where(s.damping < 1e-4, 0.0, 0.1 * s.damping), 8.0 * s.damping + 1e-3)
        move = newton_step(at, damping)
        return State(best, at, best + move, damping, s.steps + 1, jnp.max(jnp.abs(move)) < SMALLEST_STEP)

    end = jax.lax.while_loop(lambda s: ~s.done & (s.steps < MAX_STEPS), step, start)
    last = level(shape, end.best, p)
    move = newton_step(Level(last.value, last.gradient, jax.lax.stop_gradient(last.hessian)), end.damping)
    return end.best + jnp.where(end.done, move, 0.0)


def newton_step(at: Level, damping: Array) -> Float[Array, "2"]:
    """−(H + λ tr(H) I)⁻¹ g; the 1e-12 keeps the step finite where H is singular, as it can be at p = 1."""
    (xx, xy), (_, yy) = at.hessian
    added = (damping + 1e-12) * (xx + yy) + 1e-30
    xx, yy = xx + added, yy + added
    gx, gy = at.gradient
    return -jnp.stack([yy * gx - xy * gy, xx * gy - xy * gx]) / (xx * yy - xy * xy)
