"""Counts of mean λ = exposure · g(f): Poisson, and negative binomial with variance λ + dispersion · λ²."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import betainc, gammaincc

from quantprop.core.records import field
from quantprop.likelihoods.base import Datum, Landmarks, Normal, Places, Scalar, bounded, is_count, landmarks, places
from quantprop.likelihoods.rates import (
    Counts,
    RateLink,
    inverse_rate,
    log_rate,
    rate,
    rate_moments,
    rate_peaks,
    rate_places,
    rate_start,
)
from quantprop.numerics.mixtures import joined
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
        The counts, with `mean`, `dispersion`, `variance`, `mode` and `log_prob(y)`.

    >>> from quantprop.core.gaussian import Normal
    >>> from quantprop.likelihoods import moment_matched_negative_binomial
    >>> float(moment_matched_negative_binomial(Normal(2.0, 0.5), 1.0).mean)
    4.5
    """
    mean, variance = (np.asarray(moment) for moment in rate_moments("square", latent))
    return CountForecast(np.asarray(exposure, dtype=np.float64) * mean, variance / mean**2)


# B_2k/(2k(2k − 1)), k = 1, 2, ...: log Γ(x) = (x − ½) log x − x + ½ log 2π + Σ c_k x^(1 − 2k) (Stirling).
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


def _stirling_rest(x):
    """log Γ(x) minus Stirling's leading terms, for x ≥ 16."""
    inverse = 1.0 / (x * x)
    return jnp.polyval(jnp.array(_STIRLING[::-1]), inverse) / x


def log_rising(x, y):
    """log Γ(x + y)/Γ(x) for x > 0, y ≥ 0, which for large x would be a difference of large numbers."""
    large = jnp.maximum(x, 16.0)
    leading = (large - 0.5) * jnp.log1p(y / large) + y * (jnp.log(large + y) - 1.0)
    stirling = leading + _stirling_rest(large + y) - _stirling_rest(large)
    small = jnp.minimum(x, 16.0)
    return jnp.where(x < 16.0, gammaln(small + y) - gammaln(small), stirling)


class NegativeBinomial(Counts):
    """A Poisson count whose rate varies by a gamma factor of mean 1 and variance `dispersion` > 0.

    Log-concave in f for the exp link only: log(1 + dispersion · λ) is convex in log λ, not in λ.

    Args:
        dispersion: Variance in excess of Poisson's, relative to the squared mean; learned.
        link: Inverse link g: "exp", "square" or "softplus".

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.NegativeBinomial(0.5), y=2, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (0.3251, 0.5357)
    """

    dispersion: Scalar = 1.0
    link: RateLink = field(default="exp", static=True)

    name = "negative-binomial"
    bounds = bounded(dispersion=(1e-5, 1e5))

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        """With r = 1/dispersion and t = log(λ/r): −y log(1 + exp(−t)) − r log(1 + exp t), plus a constant."""
        y, r, scale = datum.y, 1.0 / self.dispersion, self.dispersion * datum.exposure
        t = log_rate(self.link, f, unused=y == 0) + jnp.log(scale)
        exponential = self.link == "exp"
        log_total = jax.nn.softplus(f + jnp.log(scale)) if exponential else jnp.log1p(scale * rate(self.link, f))
        constant = log_rising(r, y) - log_factorial(y)
        return constant - y * jax.nn.softplus(-t) - r * log_total

    def landmarks(self, datum: Datum) -> Landmarks:
        y, scale = jnp.maximum(datum.y, 0.5), self.dispersion * datum.exposure
        peaks = rate_peaks(self.link, y / datum.exposure, jnp.sqrt(1.0 / y + self.dispersion))
        knee = inverse_rate(self.link, 1.0 / scale)  # λ = r: where log(1 + λ/r) starts to grow
        return landmarks(*peaks, (jnp.zeros_like(knee), knee) if self.link == "square" else (knee, 1.0))

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        narrow = 1.0 / (1.0 + self.dispersion * datum.y)
        return rate_start(self.link, datum.y / datum.exposure, datum.exposure * narrow)

    def noise(self, mean: Any, square: Any) -> Any:
        return mean + self.dispersion * square

    def _share(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        """r/(r + λ)."""
        return 1.0 / (1.0 + self.dispersion * self.typical(datum, f))

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        k = np.floor(datum.y)
        return np.where(k < 0, 0.0, betainc(1.0 / self.dispersion, np.maximum(k, 0.0) + 1.0, self._share(datum, f)))

    def cdf_places(self, datum: Datum) -> Places:
        waiting = np.maximum(np.floor(datum.y), 0.0) + 1.0
        value = waiting / datum.exposure * np.minimum(1.0 / self.dispersion, 1.0)
        at = rate_places(self.link, value, np.sqrt(1.0 / waiting + self.dispersion))
        if self.link != "square":
            return at
        knee = 1.0 / np.sqrt(self.dispersion * datum.exposure)  # 1 + dispersion · λ vanishes at f = ±i knee
        return joined(at, places((np.zeros_like(knee), knee)))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return rng.negative_binomial(1.0 / self.dispersion, self._share(datum, f)).astype(float)
