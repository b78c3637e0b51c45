"""Gaussians in the two forms the library uses: (mean, variance) and natural (ν, τ)."""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

LOG_2PI = 1.8378770664093453

Vector = Float[np.ndarray | Array, "*shape"] | float


class Normal(eqx.Module):
    """Normal distributions by mean and variance (one or many); `covariance` where the joint was asked for."""

    mean: Vector
    variance: Vector
    covariance: Float[np.ndarray | Array, "n n"] | None = None


class Natural(eqx.Module):
    """exp(ν f − ½ τ f²), one or many: what a Gaussian site is. τ may have any sign."""

    nu: Vector
    tau: Vector
