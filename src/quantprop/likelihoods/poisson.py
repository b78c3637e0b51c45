"""Counts: y ~ Poisson(exposure · g(f)) with link g = exp, square or softplus."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from quantprop.gaussian import Normal
from quantprop.likelihoods.base import Datum, Likelihood, Scalar, quadrature_expectation
from quantprop.likelihoods.links import RATE_LINKS, RateLink, check_link, inverse_rate, log_rate, rate
from quantprop.quadrature import Landmarks, landmarks
from quantprop.special import expected_log_square, log_factorial


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

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return (y >= 0) & (y == np.floor(y))
