"""The Wasserstein-2 variance of a probit site, from a table of 112 KB.

For a cavity N(m, v) and the likelihood Phi(y f), let z = y m / sqrt(1 + v).  The tilted variable is, up to a shift and a scale,
a standard normal truncated to (-z, inf) plus independent Gaussian noise of deviation 1/sqrt(v).  So its shape, and with it
rho = sigma_W^2 / sigma_EP^2, depends on two numbers only: z (Gaussian for z -> inf, exponential for z -> -inf) and the noise's
share of the variance, lambda^2 = D/(v + D), where 1/D is about the variance of the truncated normal.  In these two coordinates
the corner z -> -inf, v -> inf is an ordinary corner of a rectangle.

The table holds G = (1 - rho) / B, where B carries what makes 1 - rho vanish:
    s^3, s = v/(v + D):              1 - rho ~ skewness^2/18 when the noise dominates;
    exp(-(z + u)^2/(1 + s)), u > 0:  1 - rho ~ exp(-z^2/(1 + sin^2 theta)) for z -> inf (Hermite series, Laplace's method).
G is positive, of order one, and fitted by polynomials of degree 7 x 7 on equal cells of the unit square, so that 1 - rho is
positive and vanishes smoothly.  Built by scripts/build_probit_table.py.
"""

from functools import cache
from importlib import resources

import jax
import jax.numpy as jnp
import numpy as np

K = 1.2  # width of the bend in u(z); minimises the fit's error for a given number of cells
Z_FROZEN = 6.5  # G is held constant beyond: 1 - rho < 3e-12 there
# Limits that keep the arithmetic and its derivatives finite; |z| or sqrt(v) beyond them are limits already.
Z_MIN, Z_MAX, V_MAX = -1e70, 40.0, 1e200


@cache
def coefficients() -> np.ndarray:
    """Monomial coefficients, indexed [cell of first axis, cell of second axis, power of first, power of second]."""
    with resources.files(__package__).joinpath("probit_table.npz").open("rb") as file, np.load(file) as table:
        return table["coefficients"]


def bend(z: jax.Array) -> jax.Array:
    """u(z) > 0: about 1 - z for z -> -inf and K^2/z for z -> inf; K^2/u - u = z - 1."""
    x = z - 1.0
    far = 0.5 * (jnp.abs(x) + jnp.sqrt(x * x + 4.0 * K * K))
    return jnp.where(x > 0.0, K * K / far, far)  # never the difference of two close numbers


def noise_coordinate(lambda2: jax.Array) -> jax.Array:
    """Increasing map of [0, 1] to itself that evens out the fit's error over equal cells.

    At lambda = 0 the ratio has a singularity lambda^2 sqrt(log 1/lambda), the smoothed jump of the density, which
    lambda^(1/4) turns into a differentiable one; the high powers refine the cells at the other end.
    """
    root2 = jnp.sqrt(jnp.sqrt(lambda2))
    return (3.0 * jnp.sqrt(root2) + 2.0 * root2 + lambda2 + 3.0 * lambda2 * lambda2) / 9.0


def variance_gap(z: jax.Array, v: jax.Array) -> jax.Array:
    """1 - sigma_W^2 / sigma_EP^2 >= 0 for scalars z = y m / sqrt(1 + v) and the cavity variance v >= 0 (inf: Heaviside)."""
    z, v = jnp.clip(z, Z_MIN, Z_MAX), jnp.minimum(v, V_MAX)
    u = bend(z)
    signal = v / (1.0 + jnp.square(u - 0.5))  # v/D; D is within 15 % of 1/variance of the truncated normal
    lambda2 = 1.0 / (1.0 + signal)
    s = signal * lambda2
    table = coefficients()
    shape = table.shape[:2]
    i, x = cell(jnp.minimum(K / (K + u), W_MAX) / W_MAX, shape[0])
    j, y = cell(noise_coordinate(lambda2), shape[1])
    # one row per cell: a single gather of 64 contiguous numbers
    c = jnp.asarray(table.reshape(shape[0] * shape[1], -1))[i * shape[1] + j].reshape(table.shape[2:])
    scale = s * s * s * jnp.exp(-jnp.square(z + u) / (1.0 + s))
    return scale * horner(horner(c, x), y)
