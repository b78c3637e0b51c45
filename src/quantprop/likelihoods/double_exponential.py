"""Regression on medians: y = f + scale · double-exponential (Laplace) noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from scipy import special

from quantprop.gaussian import Normal
from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.numerics.mixtures import FINE, Fineness, Places, places
from quantprop.numerics.quadrature import Landmarks, landmarks
from quantprop.numerics.special import norm_logpdf


def _height_times_mills(z: np.ndarray, c: np.ndarray, t: np.ndarray) -> np.ndarray:
    """φ(z) R(x), x = c + z, R Mills's ratio, given t = c z: exp(−½ z²) · ½ erfcx(x/√2), or exp(½ c² + t) Φ(−x).

    The first where x > 0, the second elsewhere: there z² may be large, and must not enter the exponent.
    """
    x = c + z
    positive = 0.5 * np.exp(-0.5 * z * z) * special.erfcx(np.maximum(x, 0.0) / np.sqrt(2.0))
    negative = np.exp(np.where(x > 0, 0.0, 0.5 * c * c + t)) * special.ndtr(-x)
    return np.where(x > 0, positive, negative)


class DoubleExponential(Likelihood):
    """p(y | f) = exp(−|y − f|/scale)/(2 scale): log-concave, with a kink at f = y."""

    scale: Scalar = 1.0

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"scale": (1e-5, 1e5)}
    name: ClassVar[str] = "double-exponential"
    noise_name: ClassVar[str | None] = "scale"
    support: ClassVar[str] = "real numbers"
    log_concave: ClassVar[bool] = True
    differentiable: ClassVar[bool] = False

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return -jnp.abs(datum.y - f) / self.scale - jnp.log(2.0 * self.scale)

    def landmarks(self, datum: Datum) -> Landmarks:
        return landmarks((datum.y, self.scale))

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        """E|f − y| = d (2Φ(z) − 1) + 2 σ φ(z) with d = μ − y, z = d/σ (the mean of a folded normal)."""
        sd, distance = jnp.sqrt(marginal.variance), marginal.mean - datum.y
        sign, height = 2.0 * ndtr(distance / sd) - 1.0, jnp.exp(norm_logpdf(distance / sd))
        expected = -(distance * sign + 2.0 * sd * height) / self.scale - jnp.log(2.0 * self.scale)
        return expected, -sign / self.scale, -height / (sd * self.scale)

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return f

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return 2.0 * self.scale**2 + 0.0 * f

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        t = (datum.y - f) / self.scale
        tail = 0.5 * np.exp(-np.abs(t))
        return np.where(t > 0, 1.0 - tail, tail)

    def cdf_places(self, datum: Datum) -> Places:
        return places((datum.y, self.scale))

    def predictive_cdf(self, datum: Datum, latent: Normal, fineness: Fineness = FINE) -> np.ndarray:
        """Φ(z) − ½ φ(z) (R(c − z) − R(c + z)), z = (y − m)/σ, c = σ/scale, R Mills's ratio (Reed 2006, eq. 4)."""
        sd = np.sqrt(latent.variance)
        z, c, t = (datum.y - latent.mean) / sd, sd / self.scale, (datum.y - latent.mean) / self.scale
        return special.ndtr(z) - 0.5 * (_height_times_mills(-z, c, -t) - _height_times_mills(z, c, t))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return rng.laplace(f, self.scale)

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        return latent.mean, latent.variance + 2.0 * self.scale**2

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return np.isfinite(y)
