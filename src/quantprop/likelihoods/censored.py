"""Gaussian noise seen through censoring: each y is an interval (lower, upper) that holds f + scale · ε."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from quantprop.gaussian import Normal
from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.likelihoods.gaussian import Gaussian
from quantprop.quadrature import Landmarks
from quantprop.special import log_ndtr_difference


class Censored(Likelihood):
    """Rows (lower, upper): equal ends were observed, an infinite end is open.

    Predictions are of the observation before censoring, y = f + scale · ε, as with Gaussian noise.
    """

    scale: Scalar = 1.0

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"scale": (1e-5, 1e5)}
    name: ClassVar[str] = "censored"
    support: ClassVar[str] = "rows (lower, upper) with lower ≤ upper, not both infinite"
    log_concave: ClassVar[bool] = True
    columns: ClassVar[int] = 2

    def _log_prob(self, datum: Datum, f: Scalar, scale: Scalar) -> Scalar:
        """log p of the row when y ~ N(f, scale²); both branches get ends with finite derivatives."""
        lower, upper = datum.y
        observed = lower == upper
        exact = Gaussian(scale).log_prob(datum._replace(y=jnp.where(observed, lower, 0.0)), f)
        ends = jnp.stack([jnp.where(observed, -jnp.inf, lower), upper])
        finite = jnp.isfinite(ends)
        standard = jnp.where(finite, (jnp.where(finite, ends, f) - f) / scale, ends)
        return jnp.where(observed, exact, log_ndtr_difference(*standard))

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self._log_prob(datum, f, self.scale)

    def landmarks(self, datum: Datum) -> Landmarks:
        ends = jnp.where(jnp.isfinite(datum.y), datum.y, datum.y[::-1])
        return Landmarks(ends, self.scale * jnp.ones_like(ends))

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return self._noise.mean(datum, f)

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return self._noise.variance(datum, f)

    def cdf(self, datum: Datum, f: Scalar) -> Scalar:
        return self._noise.cdf(datum, f)

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return self._noise.draw(rng, datum, f)

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        return self._noise.predictive_moments(datum, latent)

    def predictive_log_prob(self, datum: Datum, latent: Normal) -> Scalar:
        return self._log_prob(datum, latent.mean, jnp.sqrt(latent.variance + self.scale**2))

    def predictive_cdf(self, datum: Datum, latent: Normal) -> Scalar:
        return self._noise.predictive_cdf(datum, latent)

    @property
    def _noise(self) -> Gaussian:
        return Gaussian(self.scale)

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        lower, upper = y[..., 0], y[..., 1]
        return (lower <= upper) & (np.isfinite(lower) | np.isfinite(upper))
