"""Kernels of time: oscillations and trends."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.kernels.base import LENGTHSCALE, VARIANCE, Kernel, Point, bounded
from quantprop.kernels.distances import root
from quantprop.kernels.stationary import Stationary


class Oscillation(Stationary):
    """variance · exp(−r) cos(2π |x − z|/period), of one feature: an oscillation whose phase and amplitude wander within
    about a lengthscale.

    Args:
        variance: Prior variance; learned.
        lengthscale: Time over which phase and amplitude wander; learned.
        period: Period of one oscillation; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> x, z = np.zeros(1), np.ones(1)
    >>> round(float(kernels.Oscillation(1.0, 5.0, 4.0)(x, z)), 4)
    0.0
    """

    period: Any = 1.0

    bounds = bounded(**Stationary.bounds, period=LENGTHSCALE)

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

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        if len(x) != 1:
            raise ValueError(f"IntegratedWiener takes one column of X; got {len(x)}")
        near = jnp.minimum(jnp.abs(x[0]), jnp.abs(z[0]))
        both = near**3 / 3.0 + jnp.abs(x[0] - z[0]) * near**2 / 2.0
        return self.variance * jnp.where(x[0] * z[0] > 0, both, 0.0)
