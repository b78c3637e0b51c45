"""Gaussians in the two forms the library uses: (mean, variance) and natural (ν, τ)."""

from __future__ import annotations

from typing import Any

from quantprop.core.records import Record
from quantprop.runtime.display import gaussians, gaussians_html

LOG_2PI = 1.8378770664093453

Vector = Any  # floats of any one shape: NumPy arrays at the edge of the library, JAX arrays inside it


class GaussianForm(Record):
    """Base of both forms, with a short representation."""

    def __repr__(self) -> str:
        return gaussians(self)

    def _repr_html_(self) -> str:
        return gaussians_html(self)


class Normal(GaussianForm):
    """Normal distributions, one or many, by mean and variance.

    Args:
        mean: Means.
        variance: Variances.
        covariance: Joint covariance, if it was requested; otherwise None.
    """

    mean: Vector
    variance: Vector
    covariance: Vector = None


class Natural(GaussianForm):
    """Gaussian sites exp(ν f − ½ τ f²), one or many.

    Args:
        nu: Linear coefficients ν.
        tau: Precisions τ, of any sign.
    """

    nu: Vector
    tau: Vector
