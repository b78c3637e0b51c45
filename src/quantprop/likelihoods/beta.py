"""Proportions: y ~ Beta(p φ, (1 − p) φ) with mean p(f) and precision φ."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import betainc

from quantprop.core.records import field
from quantprop.likelihoods.base import TINY, Datum, Landmarks, Places, Scalar, bounded, landmarks
from quantprop.likelihoods.probabilities import (
    Probability,
    ProbabilityLink,
    inverse_probability,
    log_probabilities,
    probabilities_array,
    probability_places,
)


class Beta(Probability):
    """A beta variable of mean p = Φ(f) (probit) or 1/(1 + exp(−f)) (logit), and variance p(1 − p)/(1 + precision).

    Concave in p, but not log-concave in f: for y near 1, say, log p(y | f) bends upwards where p(f) does.

    Args:
        precision: Larger values concentrate y at its mean; learned.
        link: "probit" or "logit".

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.Beta(5.0), y=0.8, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (0.5657, 0.2302)
    """

    precision: Scalar = 1.0
    link: ProbabilityLink = field(default="probit", static=True)

    bounds = bounded(precision=(1e-3, 1e5))
    name = "beta"
    observes = "proportions"
    support = "numbers between 0 and 1, both excluded"
    interval = (0.0, 1.0)

    def noise(self, datum: Datum) -> Scalar:
        return 1.0 / (1.0 + self.precision)

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        """−log Γ(a) is written log a − log Γ(1 + a), so that p(f) may underflow."""
        y, s = datum.y, self.precision
        log_p, log_q = log_probabilities(self.link, f)
        a, b = s * jnp.exp(log_p), s * jnp.exp(log_q)
        normalizer = gammaln(s) + 2.0 * jnp.log(s) + log_p + log_q - gammaln(1.0 + a) - gammaln(1.0 + b)
        return normalizer + (a - 1.0) * jnp.log(y) + (b - 1.0) * jnp.log1p(-y)

    def landmarks(self, datum: Datum) -> Landmarks:
        y = jnp.clip(datum.y, TINY, 1.0 - 1e-16)
        peak = inverse_probability(self.link, y)
        return landmarks((peak, 1.0 / jnp.sqrt(1.0 + self.precision)), (jnp.zeros_like(peak), 1.0))

    def _shapes(self, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p, q = probabilities_array(self.link, f)
        return np.maximum(self.precision * p, TINY), np.maximum(self.precision * q, TINY)

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return betainc(*self._shapes(f), np.clip(datum.y, 0.0, 1.0))

    def cdf_places(self, datum: Datum) -> Places:
        """Around p = y; for a y within 1/φ of 0 or 1 around the p where φ p log(1/φy), or that of 1 − p, is 1."""
        y = np.clip(datum.y, TINY, 1.0 - 2.0**-53)
        near = np.minimum(y, 1.0 - y)
        few = 1.0 / (self.precision * (1.0 + np.log1p(1.0 / (self.precision * near))))
        p = np.minimum(near + few, 0.5)
        at = probability_places(self.link, p, 1.0 + self.precision)
        return at._replace(location=np.where(y < 0.5, at.location, -at.location))

    def typical(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return np.clip(probabilities_array(self.link, f)[0], TINY, 1.0 - 2.0**-53)

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return rng.beta(*self._shapes(f))

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return (y > 0) & (y < 1)
