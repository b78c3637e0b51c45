"""Gaussian noise: y = f + scale · ε."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

from quantprop.gaussian import LOG_2PI, Normal
from quantprop.likelihoods.base import Datum, Likelihood, Moments, Scalar
from quantprop.numerics.mixtures import FINE, Fineness, Places, places
from quantprop.numerics.quadrature import Landmarks, landmarks


class Gaussian(Likelihood):
    """N(y | f, scale²/exposure): the one likelihood for which every method is exact.

    `exposure` is the number of measurements that y is the mean of, or any other relative precision; 1 by default.
    """

    scale: Scalar = 1.0

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"scale": (1e-5, 1e5)}
    name: ClassVar[str] = "gaussian"
    noise_name: ClassVar[str | None] = "scale"
    support: ClassVar[str] = "real numbers"
    log_concave: ClassVar[bool] = True
    scaled_by: ClassVar[frozenset[str]] = frozenset({"exposure"})

    def _noise(self, datum: Datum) -> Scalar:
        """The variance of y given f."""
        return self.scale**2 / datum.exposure

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        noise = self._noise(datum)
        return -0.5 * ((datum.y - f) ** 2 / noise + jnp.log(noise) + LOG_2PI)

    def landmarks(self, datum: Datum) -> Landmarks:
        return landmarks((datum.y, jnp.sqrt(self._noise(datum))))

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

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return f

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return self._noise(datum) + 0.0 * f

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return ndtr((datum.y - f) / np.sqrt(self._noise(datum)))

    def cdf_places(self, datum: Datum) -> Places:
        return places((datum.y, np.sqrt(self._noise(datum))))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return rng.normal(f, np.sqrt(self._noise(datum)))

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        return latent.mean, latent.variance + self._noise(datum)

    def predictive_cdf(self, datum: Datum, latent: Normal, fineness: Fineness = FINE) -> np.ndarray:
        return ndtr((datum.y - latent.mean) / np.sqrt(latent.variance + self._noise(datum)))

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return np.isfinite(y)
