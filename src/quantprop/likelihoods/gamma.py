"""Positive y of mean g(f): y ~ Gamma(shape, scale = g(f)/shape) with link g = exp, square or softplus."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import gammainc

from quantprop.core.records import field
from quantprop.likelihoods.base import TINY, Datum, Landmarks, Normal, Places, Scalar, bounded, landmarks, places
from quantprop.likelihoods.rates import Rate, RateLink, log_rate, rate, rate_peaks, rate_places, rate_start
from quantprop.numerics.mixtures import joined


class Gamma(Rate):
    """A gamma variable of mean g(f) and relative variance 1/shape; shape 1 is the exponential distribution.

    Log-concave in f for the exp link only: for the others −log g is convex, and outweighs −y/g for large f. The square
    link is symmetric in f: give the prior a non-zero mean to choose a side.

    Args:
        shape: Shape: 1/shape is the squared coefficient of variation; learned.
        link: Inverse link g: "exp", "square" or "softplus".

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.Gamma(2.0), y=3.0, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (0.8681, 0.2762)
    """

    shape: Scalar = 1.0
    link: RateLink = field(default="exp", static=True)

    name = "gamma"
    support = "positive numbers"
    observes = "positive"
    bounds = bounded(shape=(1e-3, 1e5))

    @property
    def integrable(self) -> bool:
        return self.link != "square"  # there E[1/f²] is infinite

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        """With t = log g(f)/y: shape · (log shape − t − exp(−t)) − log y − log Γ(shape)."""
        vanishes = (self.link == "square") & (jnp.abs(f) < 1e-150)
        t = log_rate(self.link, f, unused=vanishes) - jnp.log(datum.y)
        value = self.shape * (jnp.log(self.shape) - t - jnp.exp(-t)) - jnp.log(datum.y) - gammaln(self.shape)
        return jnp.where(vanishes, -jnp.inf, value)

    def landmarks(self, datum: Datum) -> Landmarks:
        y = jnp.maximum(datum.y, TINY)
        peaks = rate_peaks(self.link, y, 1.0 / jnp.sqrt(self.shape))
        if self.link == "square":  # exp(−shape · y/f²) is flat at 0, and has an essential singularity there
            return landmarks(*peaks, (jnp.zeros_like(y), jnp.sqrt(self.shape * y)))
        return landmarks(*peaks)

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        if self.link != "exp":
            return super().expected_log_prob(datum, marginal)
        k, y, m, v = self.shape, datum.y, marginal.mean, marginal.variance
        pull = k * jnp.exp(jnp.log(y) - m + 0.5 * v)  # E[k y exp(−f)]
        constant = k * jnp.log(k) + (k - 1.0) * jnp.log(y) - gammaln(k)
        return constant - k * m - pull, pull - k, -0.5 * pull

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        return rate_start(self.link, datum.y, self.shape / datum.y)

    def noise(self, mean: Any, square: Any) -> Any:
        return square / self.shape

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        positive = np.maximum(datum.y, TINY)
        return np.where(datum.y > 0, gammainc(self.shape, self.shape * positive / rate(self.link, f, np)), 0.0)

    def cdf_places(self, datum: Datum) -> Places:
        """Around g = y, or for shape < 1, where P(Y ≤ y | f) grows like (y/g)^shape, around the g where that ends."""
        y = np.maximum(datum.y, TINY)
        at = rate_places(self.link, y * np.minimum(self.shape, 1.0), 1.0 / np.sqrt(self.shape))
        if self.link != "square":
            return at
        return joined(at, places((np.zeros_like(y), np.sqrt(self.shape * y) / 4.0)))  # like exp(−shape · y/f²) there

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return rng.gamma(self.shape, rate(self.link, f, np) / self.shape)

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return (y > 0) & np.isfinite(y)
