"""Counts: y ~ Poisson(exposure · g(f)) with link g = exp, square or softplus."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc, gammaln

from quantprop.gaussian import Normal
from quantprop.likelihoods.base import Datum, Likelihood, Scalar, quadrature_expectation
from quantprop.likelihoods.links import RATE_LINKS, RateLink, check_link, inverse_rate, log_rate, rate
from quantprop.quadrature import Landmarks, landmarks
from quantprop.special import expected_log_square, log_factorial, log_laguerre_ratio

_LOG_PI = 1.1447298858494002


def count_landmarks(link: RateLink, datum: Datum) -> Landmarks:
    """Where a count's likelihood peaks (for y = 0: where it falls off) and how wide it is there."""
    peak = inverse_rate(link, jnp.maximum(datum.y, 0.5) / datum.exposure)
    if link == "exp":
        return landmarks((peak, 1.0 / jnp.sqrt(datum.y + 1.0)))
    if link == "square":
        width = 0.5 / jnp.sqrt(datum.exposure)
        return landmarks((peak, width), (-peak, width))
    return landmarks((peak, jnp.sqrt(datum.y + 1.0) / datum.exposure), (jnp.zeros_like(peak), 1.0))


class Poisson(Likelihood):
    """Poisson counts. The square link is symmetric in f: give the prior a non-zero mean to choose a side."""

    link: RateLink = eqx.field(default="exp", static=True)

    name: ClassVar[str] = "poisson"
    support: ClassVar[str] = "counts 0, 1, 2, ..."
    scaled_by: ClassVar[frozenset[str]] = frozenset({"exposure"})
    lattice: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    interval: ClassVar[tuple[float, float]] = (0.0, np.inf)

    def __check_init__(self) -> None:
        check_link(self.link, RATE_LINKS, "Poisson")

    @property
    def log_concave(self) -> bool:
        return self.link != "square"

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        log_power = jnp.where(datum.y > 0, datum.y * (log_rate(self.link, f) + jnp.log(datum.exposure)), 0.0)
        return log_power - datum.exposure * rate(self.link, f) - log_factorial(datum.y)

    def landmarks(self, datum: Datum) -> Landmarks:
        return count_landmarks(self.link, datum)

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        y, e, m, v = datum.y, datum.exposure, marginal.mean, marginal.variance
        constant = y * jnp.log(e) - log_factorial(y)
        if self.link == "exp":
            mean_rate = e * jnp.exp(m + 0.5 * v)
            return y * m - mean_rate + constant, y - mean_rate, -0.5 * mean_rate
        if self.link == "square":
            log_square, by_mean, by_variance = expected_log_square(m, v)
            return y * log_square - e * (m * m + v) + constant, y * by_mean - 2.0 * e * m, y * by_variance - e
        return quadrature_expectation(self, datum, marginal)

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        if self.link != "square":
            return jnp.zeros_like(datum.exposure), jnp.zeros_like(datum.exposure)
        # Laplace's sites at the positive mode √(y/exposure): from zero sites the first cavities are two-sided.
        tau = jnp.where(datum.y > 0, 4.0, 2.0) * datum.exposure
        return tau * jnp.sqrt(datum.y / datum.exposure), tau

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return datum.exposure * rate(self.link, f)

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return self.mean(datum, f)

    def cdf(self, datum: Datum, f: Scalar) -> Scalar:
        k = jnp.floor(datum.y)
        return jnp.where(k < 0, 0.0, gammaincc(jnp.maximum(k, 0.0) + 1.0, self.mean(datum, f)))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return rng.poisson(np.asarray(self.mean(datum, f))).astype(float)

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        e, m, v = datum.exposure, latent.mean, latent.variance
        if self.link == "exp":
            mean = e * jnp.exp(m + 0.5 * v)
            return mean, mean + mean**2 * jnp.expm1(v)
        if self.link == "square":
            mean = e * (m * m + v)
            return mean, mean + e**2 * 2.0 * v * (v + 2.0 * m * m)
        return Likelihood.predictive_moments(self, datum, latent)

    def predictive_log_prob(self, datum: Datum, latent: Normal) -> Scalar:
        """log P(y) when f ~ latent; for the square link the paper's ₁F₁ formula (appendix C.2), exposure e included.

        Z = (e α)^y (α/(2v))^½ Γ(y + ½)/(√π y!) · exp(−h e) · ₁F₁(−y; ½; −h/(2v)), α = 2v/(1 + 2ev), h = m²/(1 + 2ev).
        """
        if self.link != "square":
            return self.moments(datum, latent).log_normalizer
        y, e, m, v = datum.y, datum.exposure, latent.mean, latent.variance
        shrunk = 1.0 / (1.0 + 2.0 * e * v)
        h = m * m * shrunk
        log_power = y * jnp.log(2.0 * e * v * shrunk) + 0.5 * jnp.log(shrunk)
        log_gamma = gammaln(y + 0.5) - 0.5 * _LOG_PI - log_factorial(y)
        return log_power + log_gamma - e * h + log_laguerre_ratio(y, 0.5 * h / v)

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return (y >= 0) & (y == np.floor(y))
