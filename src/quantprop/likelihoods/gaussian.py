"""Gaussian noise: y = f + scale · ε."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

from quantprop.core.gaussian import LOG_2PI
from quantprop.likelihoods.additive import Additive
from quantprop.likelihoods.base import FINE, Datum, Fineness, Moments, Normal, Scalar


class GaussianNoise(Additive):
    """Base of likelihoods of y = f + N(0, scale²/exposure), which may be observed in part."""

    log_concave = True

    def width(self, datum: Datum) -> Scalar:
        return self._noise(datum) ** 0.5

    def _noise(self, datum: Datum) -> Scalar:
        """The variance of y given f."""
        return self.scale**2 / datum.exposure

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return self._noise(datum) + 0.0 * f

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return ndtr((datum.y - f) / self.width(datum))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return rng.normal(f, self.width(datum))

    def predictive_cdf(self, datum: Datum, latent: Normal, fineness: Fineness = FINE) -> np.ndarray:
        return ndtr((datum.y - latent.mean) / np.sqrt(latent.variance + self._noise(datum)))


class Gaussian(GaussianNoise):
    """N(y | f, scale²/exposure). The only likelihood for which every method is exact.

    `exposure` is the number of measurements that y averages, or any other relative precision; 1 by default.

    Args:
        scale: Standard deviation of the noise; learned.

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.Gaussian(1.0), y=2.0, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (1.0, 0.5)
    """

    scale: Scalar = 1.0

    name = "gaussian"
    title = "Gaussian"
    scaled_by = frozenset({"exposure"})

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        noise = self._noise(datum)
        return -0.5 * ((datum.y - f) ** 2 / noise + jnp.log(noise) + LOG_2PI)

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        return self.tempered_moments(datum, cavity, 1.0)

    def tempered_moments(self, datum: Datum, cavity: Normal, exponent: Scalar) -> Moments:
        """N(y | f, s²)^a = (2π s²)^((1 − a)/2) a^(−½) N(y | f, s²/a)."""
        noise = self._noise(datum) / exponent
        total = cavity.variance + noise
        residual = datum.y - cavity.mean
        log_z = -0.5 * (residual**2 / total + jnp.log(total) + LOG_2PI)
        gain = cavity.variance / total
        log_z = log_z + 0.5 * ((1.0 - exponent) * (jnp.log(noise * exponent) + LOG_2PI) - jnp.log(exponent))
        return Moments(log_z, gain * residual, noise / total, gain)

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        precision = 1.0 / self._noise(datum)
        residual = datum.y - marginal.mean
        expected = self.log_prob(datum, marginal.mean) - 0.5 * precision * marginal.variance
        return expected, precision * residual, -0.5 * precision

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        """The likelihood is its own site: inference starts where it ends."""
        precision = 1.0 / self._noise(datum)
        return datum.y * precision, precision
