"""Counts: y ~ Poisson(exposure · g(f)) with link g = exp, square or softplus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import gammaincc

from quantprop.core.records import field
from quantprop.likelihoods.base import Datum, Landmarks, Normal, Places, Scalar, is_count, landmarks
from quantprop.likelihoods.negative_binomial import NegativeBinomial
from quantprop.likelihoods.rates import (
    Counts,
    RateLink,
    log_rate,
    rate,
    rate_moments,
    rate_peaks,
    rate_places,
    rate_start,
)
from quantprop.numerics.special import expected_log_square, log_factorial, log_laguerre_ratio
from quantprop.runtime.precision import float64


class Poisson(Counts):
    """y ~ Poisson(exposure · g(f)), with g(f) = exp f, f² or log(1 + exp f).

    The square link is symmetric in f: give the prior a non-zero mean to choose a side.

    Args:
        link: Inverse link g: "exp", "square" or "softplus".

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.Poisson(), y=2, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (0.328, 0.3993)
    """

    link: RateLink = field(default="exp", static=True)

    name = "poisson"
    title = "Poisson"

    @property
    def log_concave(self) -> bool:
        return self.link != "square"

    @property
    def has_gaussian_factor(self) -> bool:
        return self.link == "square"

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        log_mean = log_rate(self.link, f, unused=datum.y == 0) + jnp.log(datum.exposure)
        return datum.y * log_mean - datum.exposure * rate(self.link, f) - log_factorial(datum.y)

    def landmarks(self, datum: Datum) -> Landmarks:
        y = jnp.maximum(datum.y, 0.5)  # for y = 0: where the likelihood falls off
        return landmarks(*rate_peaks(self.link, y / datum.exposure, 1.0 / jnp.sqrt(y)))

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        y, e, m, v = datum.y, datum.exposure, marginal.mean, marginal.variance
        constant = y * jnp.log(e) - log_factorial(y)
        if self.link == "exp":
            mean_rate = e * jnp.exp(m + 0.5 * v)
            return y * m - mean_rate + constant, y - mean_rate, -0.5 * mean_rate
        if self.link == "square":
            log_square, by_mean, by_variance = expected_log_square(m, v)
            return y * log_square - e * (m * m + v) + constant, y * by_mean - 2.0 * e * m, y * by_variance - e
        return super().expected_log_prob(datum, marginal)

    def gaussian_precision(self, datum: Datum) -> Scalar:
        return 2.0 * datum.exposure  # exp(−exposure · f²)

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        return rate_start(self.link, datum.y / datum.exposure, datum.exposure)

    def noise(self, mean: Any, square: Any) -> Any:
        return mean

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        k = np.floor(datum.y)
        return np.where(k < 0, 0.0, gammaincc(np.maximum(k, 0.0) + 1.0, self.typical(datum, f)))

    def cdf_places(self, datum: Datum) -> Places:
        waiting = np.maximum(np.floor(datum.y), 0.0) + 1.0  # Y ≤ k if event k + 1 comes later
        return rate_places(self.link, waiting / datum.exposure, 1.0 / np.sqrt(waiting))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return rng.poisson(self.typical(datum, f)).astype(float)

    def predictive_log_prob(self, datum: Datum, latent: Normal) -> Scalar:
        """log P(y) when f ~ latent; for the square link the paper's ₁F₁ formula (appendix C.2), exposure e.

        Z = (e α)^y (α/(2v))^½ Γ(y + ½)/(√π y!) · exp(−h e) · ₁F₁(−y; ½; −h/(2v)),
        α = 2v/(1 + 2ev), h = m²/(1 + 2ev).
        """
        if self.link != "square":
            return super().predictive_log_prob(datum, latent)
        y, e, m, v = datum.y, datum.exposure, latent.mean, latent.variance
        shrunk = 1.0 / (1.0 + 2.0 * e * v)
        h = m * m * shrunk
        log_power = y * jnp.log(2.0 * e * v * shrunk) + 0.5 * jnp.log(shrunk)
        log_gamma = gammaln(y + 0.5) - 0.5 * np.log(np.pi) - log_factorial(y)
        return log_power + log_gamma - e * h + log_laguerre_ratio(y, 0.5 * h / v)


@dataclass(frozen=True)
class CountForecast:
    """Negative-binomial counts, one for each input."""

    mean: np.ndarray
    dispersion: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """mean + dispersion · mean²."""
        return self.mean * (1.0 + self.dispersion * self.mean)

    @property
    def mode(self) -> np.ndarray:
        """The most probable count: ⌊c(k − 1)⌋ for k > 1, otherwise 0, with k = 1/dispersion and c k = mean."""
        return np.floor(np.maximum(self.mean * (1.0 - self.dispersion), 0.0))

    @float64
    def log_prob(self, y: Any) -> np.ndarray:
        """log P(y) of counts y."""
        counts = np.asarray(y, dtype=np.float64)
        if not is_count(counts).all():
            raise ValueError(f"y must hold counts 0, 1, 2, ...; got {counts[~is_count(counts)].flat[0]}")
        datum = Datum(counts, self.mean, np.ones_like(self.mean))
        return np.asarray(NegativeBinomial(self.dispersion).log_prob(datum, np.zeros_like(self.mean)))


@float64
def moment_matched_negative_binomial(latent: Normal, exposure: Any = 1.0) -> CountForecast:
    """The paper's prediction for the square link: f² approximated by a gamma variable with the same mean and variance.

    A Poisson count with a gamma rate is negative binomial (paper, "Predictive Distributions of Poisson Regression"). f²
    is not gamma: `Solution.predict_y` has the exact distribution.

    Args:
        latent: The posterior of f.
        exposure: Exposure of the new counts.

    Returns:
        The frozen SciPy distribution of y.

    >>> from quantprop.core.gaussian import Normal
    >>> from quantprop.likelihoods import moment_matched_negative_binomial
    >>> float(moment_matched_negative_binomial(Normal(2.0, 0.5), 1.0).mean())
    4.5
    """
    mean, variance = (np.asarray(moment) for moment in rate_moments("square", latent))
    return CountForecast(np.asarray(exposure, dtype=np.float64) * mean, variance / mean**2)
