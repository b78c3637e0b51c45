"""Overdispersed counts: mean λ = exposure · g(f), variance λ + dispersion · λ²."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import betainc

from quantprop.core.records import field
from quantprop.likelihoods.base import Datum, Landmarks, Places, Scalar, bounded, landmarks, places
from quantprop.likelihoods.rates import (
    Counts,
    RateLink,
    inverse_rate,
    log_rate,
    rate,
    rate_peaks,
    rate_places,
    rate_start,
)
from quantprop.numerics.mixtures import joined
from quantprop.numerics.special import log_factorial

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
