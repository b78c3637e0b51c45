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
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quantprop.numerics.special import horner

BEND = 1.2  # width of the bend of u(z): the value with the least error for a given number of cells
SHAPE_MAX = 0.8275  # z = 6.5; G is held constant beyond, where 1 − ρ < 3e-12
# Keep the arithmetic and its derivatives finite; beyond these z or v every ratio is at its limit.
Z_MIN, Z_MAX, V_MAX = -1e70, 40.0, 1e200


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


def noise_slope(lambda2: jax.Array) -> jax.Array:
    """λ⁴ times its derivative in λ²: minus that in v/D, and finite at λ = 0."""
    root = jnp.sqrt(jnp.sqrt(lambda2))
    return lambda2 * (0.375 * jnp.sqrt(root) + 0.5 * root + lambda2 * (1.0 + 6.0 * lambda2)) / 9.0


def locate(x: jax.Array, cells: int) -> tuple[jax.Array, jax.Array]:
    """Cell of x ∈ [0, 1] and the place in it, −1 to 1."""
    index = jnp.clip((x * cells).astype(jnp.int32), 0, cells - 1)
    return index, 2.0 * (x * cells - index.astype(x.dtype)) - 1.0


class Place(NamedTuple):
    """Where z and v lie, in all coordinates that are needed."""

    u: jax.Array
    w: jax.Array
    by_d: jax.Array  # 1/D; D is within 25 % of the truncated normal's 1/variance
    signal: jax.Array  # v/D
    lambda2: jax.Array
    s: jax.Array
    shape: jax.Array
    noise: jax.Array


def place(z: jax.Array, v: jax.Array) -> Place:
    """The coordinates of z and v."""
    u, w = bend(jnp.clip(z, Z_MIN, Z_MAX))
    by_d = 1.0 / (1.0 + jnp.square(u - 0.5))
    signal = jnp.minimum(v, V_MAX) * by_d
    lambda2 = 1.0 / (1.0 + signal)
    return Place(u, w, by_d, signal, lambda2, signal * lambda2, shape_coordinate(u), noise_coordinate(lambda2))


@jax.custom_jvp
def variance_gap(z: jax.Array, v: jax.Array) -> jax.Array:
    """1 − σ_W²/σ_EP² for scalars z = y m/√(1 + v) and cavity variance v ≥ 0.

    v = ∞ is the Heaviside likelihood, with z = y m/√v.
    """
    at = place(z, v)
    cell, x, y = _cell(at.shape, at.noise)
    # A gather for every power of x: XLA fuses these into the arithmetic. One of all 64 took four times as long on CPU.
    rows = [jnp.asarray(power).at[cell].get(mode="promise_in_bounds") for power in _by_cell()]
    log_g = horner(list(horner(rows, x)), y)
    # Ending in exp keeps XLA from repeating the sum for every consumer.
    return at.s * at.s * at.s * jnp.exp(log_g - jnp.square(1.0 + at.w) / (1.0 + at.s))


@variance_gap.defjvp
def _(primals, tangents):
    """∂u/∂z = −u/(u + w), ∂w/∂z = w/(u + w) and ∂s/∂signal = −∂λ²/∂signal = λ⁴; slopes of log G are polynomials too.

    Ending in divisions keeps XLA from repeating these sums for every direction.
    """
    (z, v), (dz, dv) = primals, tangents
    at = place(z, v)
    cell, x, y = _cell(at.shape, at.noise)
    # Nothing would be fused into all that needs them: eight gathers take a sixth longer to compile than one.
    rows = list(jnp.asarray(np.moveaxis(_by_cell(), 0, 1)).at[cell].get(mode="promise_in_bounds"))
    across, cells, by_s = list(horner(rows, x)), _cells(), 1.0 / (1.0 + at.s)
    by_shape = 2.0 * cells[0] * horner(list(horner(_slope(rows), x)), y)
    by_noise = 2.0 * cells[1] * horner(_slope(across), y)
    exponent, lambda4 = jnp.square(1.0 + at.w) * by_s, at.lambda2 * at.lambda2
    gap_by_s2 = at.s * jnp.exp(horner(across, y) - exponent)
    gap_by_s, gap = at.s * gap_by_s2, at.s * at.s * gap_by_s2
    by_signal = gap_by_s * 3.0 * lambda4 + gap * (exponent * by_s * lambda4 - noise_slope(at.lambda2) * by_noise)
    shape_by_u = jnp.where(at.shape < 1.0, -SHAPE_MAX * at.shape * at.shape / BEND, 0.0)
    signal_by_u = -2.0 * (at.u - 0.5) * at.by_d * at.signal
    by_u, by_w = gap * by_shape * shape_by_u + by_signal * signal_by_u, -2.0 * gap * (1.0 + at.w) * by_s
    by_z = (at.w * by_w - at.u * by_u) / (at.u + at.w)
    by_v = by_signal / (1.0 + jnp.square(at.u - 0.5))
    inside = (z > Z_MIN) & (z < Z_MAX)
    return gap, by_z * jnp.where(inside, dz, 0.0) + by_v * jnp.where(v < V_MAX, dv, 0.0)


def _slope(powers: list) -> list:
    """The derivative of a polynomial."""
    return [k * c_k for k, c_k in enumerate(powers)][1:]


def _cells() -> tuple[int, int]:
    return coefficients().shape[1:3]


def _by_cell() -> np.ndarray:
    """The coefficients by power of x, cell, power of y."""
    table, (shapes, noises) = coefficients(), _cells()
    return table.reshape(len(table), shapes * noises, -1)


def _cell(shape: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The cell, and the place in it."""
    shapes, noises = _cells()
    (i, x), (j, y) = locate(shape, shapes), locate(noise, noises)
    return (i * noises + j).astype(jnp.uint32), x, y  # indexing need not look for negative numbers
