"""Counts with too many zeros: y = 0 with probability π, otherwise y is Poisson or negative binomial."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from quantprop.core.records import field
from quantprop.likelihoods.base import FINE, Datum, Fineness, Landmarks, Normal, Places, Scalar, bounded
from quantprop.likelihoods.counts import NegativeBinomial, Poisson
from quantprop.likelihoods.rates import Counts, RateLink, rate_peaks

NEGLIGIBLE_EXPONENT = 45.0  # exp(−45) beside 1 is below rounding
INFLATION = 1e-4, 1.0 - 1e-4


class ZeroInflated(Counts):
    """Base: p(y | f) = π [y = 0] + (1 − π) p(y | f) of `counts`, with π = `inflation` (Lambert 1992).

    Not log-concave: as f grows, p(0 | f) falls no further than to π.
    """

    inflation: Scalar

    @property
    def smooth(self) -> bool:
        return False

    @property
    def log_concave(self) -> bool:
        return False

    @property
    def counts(self) -> Poisson | NegativeBinomial:
        """The likelihood of counts that are made."""
        raise NotImplementedError

    def knee(self) -> Scalar:
        """The expected count at which both ways to y = 0 are as likely; about its size where there is none."""
        raise NotImplementedError

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        """If counting contributes nothing to y = 0, derivatives do not pass through it: its own may be infinite."""
        none, log_made = jnp.log(self.inflation), jnp.log1p(-self.inflation)
        zero = datum.y == 0
        lost = zero & (jax.lax.stop_gradient(self.counts.log_prob(datum, f)) < none - NEGLIGIBLE_EXPONENT)
        made = log_made + self.counts.log_prob(datum, jnp.where(lost, 0.0, f))
        return jnp.where(zero, jnp.where(lost, none, jnp.logaddexp(none, made)), made)

    def landmarks(self, datum: Datum) -> Landmarks:
        """The counts' landmarks, and for y = 0 where p(0 | f) levels out, on the scale of one count."""
        own, knee = self.counts.landmarks(datum), self.knee()
        level = rate_peaks(self.counts.link, knee / datum.exposure, 1.0 / jnp.maximum(knee, 1.0))
        places, scales = (jnp.stack([jnp.asarray(pair[i], float) for pair in level]) for i in (0, 1))
        extra = Landmarks(
            jnp.where(datum.y == 0, places, own.location[: len(level)]),
            jnp.where(datum.y == 0, scales, own.scale[: len(level)]),
        )
        return Landmarks(jnp.concatenate([own.location, extra.location]), jnp.concatenate([own.scale, extra.scale]))

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        """For y > 0 the expectation of the counts, which may have a closed form."""
        none = super().expected_log_prob(datum, marginal)
        value, by_mean, by_variance = self.counts.expected_log_prob(datum, marginal)
        some = (value + jnp.log1p(-self.inflation), by_mean, by_variance)
        value, by_mean, by_variance = (jnp.where(datum.y == 0, a, b) for a, b in zip(none, some, strict=True))
        return value, by_mean, by_variance

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        return self.counts.start(datum)

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return (1.0 - self.inflation) * self.counts.mean(datum, f)

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return self._mixed(self.counts.mean(datum, f), self.counts.variance(datum, f))[1]

    def _mixed(self, mean: Scalar, variance: Scalar) -> tuple[Scalar, Scalar]:
        """Mean and variance of y from those of a count that is made."""
        made = 1.0 - self.inflation
        return made * mean, made * (variance + self.inflation * mean**2)

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return self._inflated(datum, self.counts.cdf(datum, f))

    def _inflated(self, datum: Datum, cdf: np.ndarray) -> np.ndarray:
        return np.where(datum.y < 0, 0.0, self.inflation + (1.0 - self.inflation) * cdf)

    def cdf_places(self, datum: Datum) -> Places:
        return self.counts.cdf_places(datum)

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return np.where(rng.uniform(size=np.shape(f)) < self.inflation, 0.0, self.counts.draw(rng, datum, f))

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        return self._mixed(*self.counts.predictive_moments(datum, latent))

    def predictive_log_prob(self, datum: Datum, latent: Normal) -> Scalar:
        made = jnp.log1p(-self.inflation) + self.counts.predictive_log_prob(datum, latent)
        return jnp.where(datum.y == 0, jnp.logaddexp(jnp.log(self.inflation), made), made)

    def predictive_cdf(self, datum: Datum, latent: Normal, fineness: Fineness = FINE) -> np.ndarray:
        return self._inflated(datum, self.counts.predictive_cdf(datum, latent, fineness))


class ZeroInflatedPoisson(ZeroInflated):
    """y = 0 with probability `inflation`, otherwise y ~ Poisson(exposure · g(f)), g = exp, square or softplus.

    The square link is symmetric in f: give the prior a non-zero mean to choose a side.

    Args:
        inflation: Probability of an extra zero; learned.
        link: Inverse link g: "exp", "square" or "softplus".

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.ZeroInflatedPoisson(0.2), y=0, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (-0.4097, 0.881)
    """

    inflation: Scalar = 0.1
    link: RateLink = field(default="exp", static=True)

    bounds = bounded(inflation=INFLATION)
    name = "zero-inflated-poisson"

    @property
    def counts(self) -> Poisson:
        return Poisson(self.link)

    def knee(self) -> Scalar:
        """(1 − π) exp(−λ) = −π, of which log p(0 | ·) has its singularities, has the roots log(1/π − 1) ± iπ."""
        return jnp.hypot(jnp.log1p(-self.inflation) - jnp.log(self.inflation), jnp.pi)


class ZeroInflatedNegativeBinomial(ZeroInflated):
    """y = 0 with probability `inflation`, otherwise a negative-binomial count of mean λ = exposure · g(f), variance λ +
    dispersion · λ².

    Args:
        inflation: Probability of an extra zero; learned.
        dispersion: Variance in excess of Poisson's, relative to the squared mean; learned.
        link: Inverse link g: "exp", "square" or "softplus".

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.ZeroInflatedNegativeBinomial(0.2, 0.5), y=0, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (-0.3327, 0.9011)
    """

    inflation: Scalar = 0.1
    dispersion: Scalar = 1.0
    link: RateLink = field(default="exp", static=True)

    bounds = bounded(inflation=INFLATION, **NegativeBinomial.bounds)
    name = "zero-inflated-negative-binomial"

    @property
    def counts(self) -> NegativeBinomial:
        return NegativeBinomial(self.dispersion, self.link)

    def knee(self) -> Scalar:
        """λ = ((1/π − 1)^d − 1)/d, d the dispersion, for π < ½, and no less than log 4's."""
        return jnp.expm1(self.dispersion * jnp.log(jnp.maximum(1.0 / self.inflation - 1.0, 4.0))) / self.dispersion
