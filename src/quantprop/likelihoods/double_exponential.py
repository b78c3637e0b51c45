"""Regression on medians: y = f + scale · double-exponential (Laplace) noise."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from scipy import special

from quantprop.likelihoods.additive import Additive
from quantprop.likelihoods.base import FINE, Datum, Fineness, Normal, Scalar
from quantprop.numerics.special import norm_logpdf


def _height_times_mills(z: np.ndarray, c: np.ndarray, t: np.ndarray) -> np.ndarray:
    """φ(z) R(x), x = c + z, R Mills's ratio, given t = c z: exp(−½ z²) · ½ erfcx(x/√2), or exp(½ c² + t) Φ(−x).

    The first where x > 0, the second elsewhere: there z² may be large, and must not enter the exponent.
    """
    x = c + z
    positive = 0.5 * np.exp(-0.5 * z * z) * special.erfcx(np.maximum(x, 0.0) / np.sqrt(2.0))
    negative = np.exp(np.where(x > 0, 0.0, 0.5 * c * c + t)) * special.ndtr(-x)
    return np.where(x > 0, positive, negative)


class DoubleExponential(Additive):
    """p(y | f) = exp(−|y − f|/scale)/(2 scale): log-concave, with a kink at f = y.

    Args:
        scale: Mean absolute deviation of the noise; learned.

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.DoubleExponential(), y=3.0, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (0.9742, 0.9419)
    """

    scale: Scalar = 1.0

    name = "double-exponential"
    log_concave = True
    differentiable = False

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return -jnp.abs(datum.y - f) / self.scale - jnp.log(2.0 * self.scale)

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        """E|f − y| = d (2Φ(z) − 1) + 2 σ φ(z) with d = μ − y, z = d/σ (the mean of a folded normal)."""
        sd, distance = jnp.sqrt(marginal.variance), marginal.mean - datum.y
        sign, height = 2.0 * ndtr(distance / sd) - 1.0, jnp.exp(norm_logpdf(distance / sd))
        expected = -(distance * sign + 2.0 * sd * height) / self.scale - jnp.log(2.0 * self.scale)
        return expected, -sign / self.scale, -height / (sd * self.scale)

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return 2.0 * self.scale**2 + 0.0 * f

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        t = (datum.y - f) / self.scale
        tail = 0.5 * np.exp(-np.abs(t))
        return np.where(t > 0, 1.0 - tail, tail)

    def predictive_cdf(self, datum: Datum, latent: Normal, fineness: Fineness = FINE) -> np.ndarray:
        """Φ(z) − ½ φ(z) (R(c − z) − R(c + z)), z = (y − m)/σ, c = σ/scale, R Mills's ratio (Reed 2006, eq. 4)."""
        sd = np.sqrt(latent.variance)
        z, c, t = (datum.y - latent.mean) / sd, sd / self.scale, (datum.y - latent.mean) / self.scale
        return special.ndtr(z) - 0.5 * (_height_times_mills(-z, c, -t) - _height_times_mills(z, c, t))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return rng.laplace(f, self.scale)
