"""Kernels of time, or of another single column: what repeats, oscillates, or drifts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.kernels.base import LENGTHSCALE, VARIANCE, Kernel, Matrix, Others, Pairs, Point, Points, bounded
from quantprop.kernels.stationary import Stationary, root, squared_distances, squares


@jax.custom_jvp
def _squared_sine(square: Any) -> Any:
    """sin²(πr) with r² = square, whose derivative in r² is π² sin(2πr)/(2πr)."""
    return jnp.sin(jnp.pi * root(square)) ** 2


_squared_sine.defjvps(lambda by, value, square: jnp.pi**2 * jnp.sinc(2.0 * root(square)) * by)


class Periodic(Kernel):
    """variance · exp(−2 sin²(π |x − z|/period)/lengthscale²): functions that repeat exactly.

    Args:
        variance: Prior variance; learned.
        lengthscale: Lengthscale on the circle; learned.
        period: Period; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> round(float(kernels.Periodic(2.0, 1.0, 4.0)(np.zeros(1), np.ones(1))), 4)
    0.7358
    """

    variance: Any = 1.0
    lengthscale: Any = 1.0
    period: Any = 1.0

    bounds = bounded(variance=VARIANCE, lengthscale=LENGTHSCALE, period=LENGTHSCALE)
    smoothness = 1  # the second is not smooth in r² = 0 as it is computed

    def _profile(self, square: Any) -> Any:
        return jnp.exp(-2.0 * _squared_sine(square) / self.lengthscale**2)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * self._profile(jnp.sum(((x - z) / self.period) ** 2))

    def cross(self, x: Points, z: Others) -> Matrix:
        return self.variance * self._profile(squared_distances(x, z, jnp.asarray(self.period)))

    def pairs(self, x: Points) -> Pairs:
        return squares(x)

    def gram_of(self, pairs: Pairs) -> Matrix:
        return self.variance * self._profile(pairs["squares"] / self.period**2)


class Oscillation(Stationary):
    """variance · exp(−r) cos(2π |x − z|/period), of one feature: an oscillation whose phase and amplitude wander within
    about a lengthscale.

    Args:
        variance: Prior variance; learned.
        lengthscale: Time over which phase and amplitude wander; learned.
        period: Period of one oscillation; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> round(float(kernels.Oscillation(1.0, 5.0, 4.0)(np.zeros(1), 4.0 * np.ones(1))), 4)
    0.4493
    """

    period: Any = 1.0

    bounds = bounded(**Stationary.bounds, period=LENGTHSCALE)
    smoothness = 0

    def profile(self, square: Any) -> Any:
        r = root(square)
        return jnp.exp(-r) * jnp.cos(2.0 * jnp.pi * r * jnp.reshape(jnp.asarray(self.lengthscale), ()) / self.period)


class IntegratedWiener(Kernel):
    """A trend whose slope is a Wiener process with `variance` per unit of x, of one feature: f(0) = f′(0) = 0, and both
    sides of 0 are independent.

    With m = min(|x|, |z|) it is variance · (m³/3 + |x − z| m²/2) on one side of 0. With any level and slope at 0 the
    trend is `IntegratedWiener() + Constant() + Linear()`, the local linear trend of time-series models.

    Args:
        variance: Variance of the slope per unit of x; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> round(float(kernels.IntegratedWiener(3.0)(np.array([1.0]), np.array([2.0]))), 4)
    2.5
    """

    variance: Any = 1.0

    bounds = bounded(variance=VARIANCE)
    smoothness = 1

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        if len(x) != 1:
            raise ValueError(f"IntegratedWiener takes one column of X; got {len(x)}")
        a, b = jnp.abs(x[0]), jnp.abs(z[0])
        both = jnp.where(a < b, a * a * (3.0 * b - a), b * b * (3.0 * a - b)) / 6.0
        return self.variance * jnp.where(x[0] * z[0] > 0, both, 0.0)
