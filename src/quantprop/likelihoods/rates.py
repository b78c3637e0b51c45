"""Likelihoods of y whose mean goes with a rate g(f), and the links g: exp, square and softplus.

Gamma: positive y of mean g(f), y ~ Gamma(shape, scale = g(f)/shape). Counts are in `counts`.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import gammainc

from quantprop.core.records import field
from quantprop.likelihoods.base import (
    TINY,
    Datum,
    Landmarks,
    Linked,
    Normal,
    Places,
    Scalar,
    bounded,
    is_count,
    landmarks,
    places,
)
from quantprop.likelihoods.tilted import latent_nodes
from quantprop.numerics.mixtures import joined

RateLink = Literal["exp", "square", "softplus"]


class Rate(Linked):
    """Base of likelihoods of mean exposure · g(f), with a `link` g(f) = exp f ("exp"), f² ("square") or log(1 + exp f)
    ("softplus"). The square link is symmetric in f: give the prior a non-zero mean to choose a side.
    """

    interval = 0.0, np.inf
    links = ("exp", "square", "softplus")

    @property
    def smooth(self) -> bool:
        return self.link != "square"

    @property
    def log_concave(self) -> bool:
        return self.link == "exp"

    def noise(self, mean: Any, square: Any) -> Any:
        """E[Var(y | f)] from the first two moments of E[y | f]."""
        raise NotImplementedError

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return datum.exposure * rate(self.link, f)

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        mean = self.mean(datum, f)
        return self.noise(mean, mean**2)

    def typical(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return datum.exposure * rate(self.link, f, np)

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        mean, variance = rate_moments(self.link, latent)
        mean, variance = datum.exposure * mean, datum.exposure**2 * variance
        return mean, variance + self.noise(mean, variance + mean**2)


class Counts(Rate):
    support = "counts 0, 1, 2, ..."
    observes = "counts"
    scaled_by = frozenset({"exposure"})
    lattice = 0.0, 1.0

    @property
    def singular(self) -> bool:
        return self.link == "square"

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return is_count(y)


# --- the links -----------------------------------------------------------------------------------------------------


def log_rate(link: RateLink, f: Any, unused: Any = False) -> Any:
    """log g(f), or log g(1) where it is unused: then 0 · log g has no NaN, nor have its derivatives."""
    f = jnp.where(unused, 1.0, f)
    if link == "exp":
        return f
    if link == "square":
        return 2.0 * jnp.log(jnp.abs(f))
    near = jnp.maximum(f, -30.0)
    return jnp.where(f < -30.0, f - 0.5 * jnp.exp(jnp.minimum(f, -30.0)), jnp.log(jax.nn.softplus(near)))


def rate(link: RateLink, f: Any, xp: Any = jnp) -> Any:
    if link == "exp":
        return xp.exp(f)
    return f * f if link == "square" else xp.logaddexp(f, 0.0)


def inverse_rate(link: RateLink, value: Any, xp: Any = jnp) -> Any:
    """The f (for the square link the positive one) with g(f) = value > 0."""
    if link == "exp":
        return xp.log(value)
    return xp.sqrt(value) if link == "square" else value + xp.log(-xp.expm1(-value))


def rate_peaks(link: RateLink, value: Any, relative: Any, xp: Any = jnp) -> list[tuple]:
    """Landmarks of a function of f that peaks at the rate `value` with the width `relative` in log g."""
    peak = inverse_rate(link, value, xp)
    if link == "exp":
        return [(peak, relative)]
    if link == "square":  # d log g/df = 2/f
        return [(peak, 0.5 * peak * relative), (-peak, 0.5 * peak * relative)]
    width = relative * value / -xp.expm1(-value)  # d log g/df = (1 − exp(−g))/g
    return [(peak, width), (xp.zeros_like(peak), 1.0)]


def rate_places(link: RateLink, value: np.ndarray, relative: np.ndarray) -> Places:
    """Location and scale of the change of P(Y ≤ y | f), for y within a fraction `relative` of the rate `value`.

    The fall steepens with the rate, so a quarter of its width counts as its scale.
    """
    return places(*rate_peaks(link, value, 0.25 * np.minimum(relative, 1.0), np))


def rate_start(link: RateLink, value: Any, information: Any) -> tuple:
    """Sites (ν, τ) to start from: for the square and the exp link Laplace's at the (positive) mode, where g = value.

    `information` is that of y about g. From zero sites the first cavities of the square link would be two-sided, and
    under a wide prior exp(f) overflows before the first sweep. A count of 0 has no mode under the exp link: half a
    count replaces it. The softplus link starts from zero sites.
    """
    if link == "square":
        tau = jnp.where(value > 0, 4.0, 2.0) * information
        return tau * jnp.sqrt(value), tau
    if link == "exp":
        value = jnp.where(value > 0, value, 0.5 / information)
        tau = information * value
        return tau * jnp.log(value), tau
    return jnp.zeros_like(value), jnp.zeros_like(value)


def rate_moments(link: RateLink, latent: Normal) -> tuple:
    """Mean and variance of g(f) when f ~ latent."""
    m, v = latent.mean, latent.variance
    if link == "exp":
        # exp(2m + v)(exp v − 1), of which one factor may underflow and the other overflow
        return jnp.exp(m + 0.5 * v), jnp.exp(2.0 * (m + v) + jnp.log(-jnp.expm1(-v)))
    if link == "square":
        return m * m + v, 2.0 * v * (v + 2.0 * m * m)
    density, f = latent_nodes(landmarks((jnp.zeros_like(m), 1.0)), latent)
    value = rate(link, f)
    mean = density.expect(value)
    return mean, density.expect((value - mean) ** 2)


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
