"""The Wasserstein-2 variance of a probit site, from a table of 108 KB.

For a cavity N(m, v) and the likelihood Φ(y f), let z = y m/√(1 + v). Up to shift and scale the tilted
variable is a standard normal truncated to (−z, ∞) plus independent Gaussian noise of deviation 1/√v. So its
shape, and with it ρ = σ_W²/σ_EP², depends on two numbers: z (Gaussian for z → ∞, exponential for z → −∞) and
the noise's share of the variance, λ² = D/(v + D), where 1/D is about the variance of the truncated normal. In
these two coordinates the corner z → −∞, v → ∞ is an ordinary corner of a rectangle.

The table holds log G, G = (1 − ρ)/B, where B carries everything that makes 1 − ρ vanish:

    s³, s = v/(v + D):              1 − ρ ~ skewness²/18 when the noise dominates;
    exp(−(1 + w)²/(1 + s)), w > 0:  1 − ρ ~ exp(−z²/(1 + sin²θ)) for z → ∞, θ = arctan √v (expand the tilted
                                    density in Hermite polynomials and sum by Laplace's method).

log G is bounded, and fitted by polynomials of degree 7 × 7 on equal cells of the unit square: so 1 − ρ stays
positive and vanishes smoothly. studies/probit_table/build.py builds the table and measures its error, 2.4e-11
at most.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import jax
import jax.numpy as jnp
import numpy as np

from quantprop.numerics.special import horner

BEND = 1.2  # width of the bend of u(z): the value with the least error for a given number of cells
SHAPE_MAX = 0.8275  # z = 6.5; G is held constant beyond, where 1 − ρ < 3e-12
# Keep the arithmetic and its derivatives finite; beyond these z, v or v/D every ratio is at its limit.
Z_MIN, Z_MAX, V_MAX, SIGNAL_MAX = -1e70, 40.0, 1e200, 1e100


@cache
def coefficients() -> np.ndarray:
    """Monomial coefficients [power of x, shape cell, noise cell, power of y]; x, y ∈ [−1, 1] in the cell."""
    source = resources.files("quantprop.projections").joinpath("probit_table.npz")
    with source.open("rb") as file, np.load(file) as table:
        return table["coefficients"]


def bend(z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The positive u, w with w − u = z − 1 and u w = BEND²: u ~ 1 − z for z → −∞, u ~ BEND²/z for z → ∞."""
    x = z - 1.0
    right = x > 0.0
    larger = 0.5 * (jnp.where(right, x, -x) + jnp.sqrt(x * x + 4.0 * BEND**2))  # |x| has no derivative at 0
    smaller = BEND**2 / larger  # not larger − |x|, which cancels
    return jnp.where(right, smaller, larger), jnp.where(right, larger, smaller)


def shape_coordinate(u: jax.Array) -> jax.Array:
    """[0, 1] from z = −∞ to z = 6.5."""
    return jnp.minimum(BEND / (SHAPE_MAX * (BEND + u)), 1.0)


def noise_coordinate(lambda2: jax.Array) -> jax.Array:
    """[0, 1] from λ² = 0 to λ² = 1, such that equal cells have about equal errors.

    The density's jump, smoothed by the noise, leaves a singularity λ² √log(1/λ) at λ = 0, which becomes
    harmless in λ^¼; the high powers of λ make the cells smaller where the noise dominates.
    """
    root = jnp.sqrt(jnp.sqrt(lambda2))
    return (3.0 * jnp.sqrt(root) + 2.0 * root + lambda2 + 3.0 * lambda2 * lambda2) / 9.0


def locate(x: jax.Array, cells: int) -> tuple[jax.Array, jax.Array]:
    """Cell of x ∈ [0, 1] and the place in it, −1 to 1."""
    index = jnp.clip((x * cells).astype(jnp.int32), 0, cells - 1)
    return index, 2.0 * (x * cells - index.astype(x.dtype)) - 1.0


def variance_gap(z: jax.Array, v: jax.Array) -> jax.Array:
    """1 − σ_W²/σ_EP² for scalars z = y m/√(1 + v) and cavity variance v ≥ 0.

    v = ∞ is the Heaviside likelihood, with z = y m/√v.
    """
    # Selections, unlike maxima, let infinite tangents of what is beyond a limit pass by.
    z, v = jnp.where(z < Z_MIN, Z_MIN, jnp.where(z > Z_MAX, Z_MAX, z)), jnp.where(v > V_MAX, V_MAX, v)
    u, w = bend(z)
    by_d = 1.0 / (1.0 + jnp.square(u - 0.5))  # 1/D; D is within 25 % of the truncated normal's 1/variance
    signal = jnp.minimum(v * by_d, SIGNAL_MAX)  # v/D
    lambda2 = 1.0 / (1.0 + signal)
    s = jnp.where(signal < 1.0, signal * lambda2, 1.0 - lambda2)  # the form whose derivative does not cancel
    shapes, noises = coefficients().shape[1:3]
    (i, x), (j, y) = locate(shape_coordinate(u), shapes), locate(noise_coordinate(lambda2), noises)
    cell = (i * noises + j).astype(jnp.uint32)  # indexing need not look for negative numbers
    # A gather for every power of x: XLA fuses these into the arithmetic. One of all 64 took four times as long on CPU.
    powers = coefficients().reshape(-1, shapes * noises, coefficients().shape[3])
    rows = [jnp.asarray(power).at[cell].get(mode="promise_in_bounds") for power in powers]
    log_g = horner(list(horner(rows, x)), y)
    # Ending in exp keeps XLA from repeating the sum for every consumer.
    return s * s * s * jnp.exp(log_g - jnp.square(1.0 + w) / (1.0 + s))
