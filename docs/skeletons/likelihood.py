"""Skeleton of a likelihood: y = f + scale · logistic noise. Copy it to src/quantprop/likelihoods/<name>.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.numerics.quadrature import Landmarks, landmarks


class LogisticNoise(Likelihood):
    """p(y | f) = e^−t/(scale (1 + e^−t)²) with t = (y − f)/scale: tails between the Gaussian's and Student's t."""

    scale: Scalar = 1.0

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"scale": (1e-5, 1e5)}  # learned within these
    name: ClassVar[str] = "logistic-noise"
    support: ClassVar[str] = "real numbers"
    log_concave: ClassVar[bool] = True  # in f: no site precision can be negative
    noise_name: ClassVar[str | None] = "scale"  # f has the unit of y

    # --- needed ---

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        t = jnp.abs(datum.y - f) / self.scale
        return -t - 2.0 * jnp.log1p(jnp.exp(-t)) - jnp.log(self.scale)

    def landmarks(self, datum: Datum) -> Landmarks:
        """Where p(y | ·) peaks, and its width: the quadrature refines there."""
        return landmarks((datum.y, self.scale))

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return np.isfinite(y)

    # --- for predictions of y ---

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return f

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return jnp.pi**2 / 3.0 * self.scale**2 + 0.0 * f

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return expit((datum.y - f) / self.scale)

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return rng.logistic(f, self.scale)
