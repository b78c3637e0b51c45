"""Likelihoods of y whose mean goes with a probability p(f), and the links p: probit and logit.

Binomial: successes in a number of trials, y ~ Binomial(trials, p(f)). Beta: proportions, y ~ Beta(p φ, (1 − p) φ) with
mean p(f) and precision φ.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, ndtr, ndtri
from scipy import special
from scipy.special import betainc

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
from quantprop.numerics.special import log_factorial, log_ndtr

ProbabilityLink = Literal["probit", "logit"]


class Probability(Linked):
    """Base of likelihoods of mean size · p(f), with a `link` p(f) = Φ(f) ("probit") or 1/(1 + exp(−f)) ("logit")."""

    smooth = True
    links = ("probit", "logit")

    def size(self, datum: Datum) -> Any:
        """The largest mean of y."""
        return 1.0

    def noise(self, datum: Datum) -> Scalar:
        """Var(y | f) divided by p (1 − p)."""
        raise NotImplementedError

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return self.size(datum) * jnp.exp(log_probabilities(self.link, f)[0])

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        log_p, log_q = log_probabilities(self.link, f)
        return self.noise(datum) * jnp.exp(log_p + log_q)

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        """From E[p], E[p(1 − p)] and Var[p]; E[Φ(f)] = Φ(m/√(1 + v))."""
        density, f = latent_nodes(landmarks((jnp.zeros_like(latent.mean), 1.0)), latent)
        log_p, log_q = log_probabilities(self.link, f)
        p, size = jnp.exp(log_p), self.size(datum)
        mean = ndtr(latent.mean / jnp.sqrt(1.0 + latent.variance)) if self.link == "probit" else density.expect(p)
        mixed, variance = density.expect(jnp.exp(log_p + log_q)), density.expect((p - mean) ** 2)
        return size * mean, self.noise(datum) * mixed + size**2 * variance


# --- the links -----------------------------------------------------------------------------------------------------


def log_probabilities(link: ProbabilityLink, f: Any) -> tuple:
    """log p and log(1 − p), each without cancellation."""
    log_cdf = log_ndtr if link == "probit" else jax.nn.log_sigmoid
    return log_cdf(f), log_cdf(-f)


def inverse_probability(link: ProbabilityLink, p: Any) -> Any:
    """The f with probability p in (0, 1)."""
    return ndtri(p) if link == "probit" else jnp.log(p) - jnp.log1p(-p)


def probabilities_array(link: ProbabilityLink, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p and 1 − p, each without cancellation, in NumPy."""
    cdf = special.ndtr if link == "probit" else special.expit
    return cdf(f), cdf(-f)


def probability_places(link: ProbabilityLink, p: np.ndarray, effective: np.ndarray) -> Places:
    """Location and scale of the change of P(Y ≤ y | f) for a proportion y of `effective` trials."""
    spread = p * (1.0 - p)
    if link == "probit":
        f = special.ndtri(p)
        slope = np.exp(-0.5 * f * f) / np.sqrt(2.0 * np.pi)
    else:
        f, slope = special.logit(p), spread
    width = spread / slope * np.minimum(1.0, 1.0 / np.sqrt(effective * spread))
    return places((f, np.minimum(0.5 * width, 1.0)), (0.0, 1.0))


class Binomial(Probability):
    """y successes in `trials` trials of probability Φ(f) (probit) or 1/(1 + exp(−f)) (logit).

    Args:
        link: "probit" or "logit".

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.Binomial(), y=3, cavity=(0.0, 1.0), trials=4)
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (0.495, 0.3115)
    """

    link: ProbabilityLink = field(default="probit", static=True)

    name = "binomial"
    observes = "successes"
    support = "successes 0, 1, ..., trials, out of an integer number of trials"
    log_concave = True
    scaled_by = frozenset({"trials"})
    lattice = (0.0, 1.0)
    interval = (0.0, np.inf)

    def size(self, datum: Datum) -> Scalar:
        return datum.trials

    def noise(self, datum: Datum) -> Scalar:
        return datum.trials

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        log_p, log_q = log_probabilities(self.link, f)
        failures = datum.trials - datum.y
        ways = log_factorial(datum.trials) - log_factorial(datum.y) - log_factorial(failures)
        return ways + datum.y * log_p + failures * log_q

    def landmarks(self, datum: Datum) -> Landmarks:
        successes = jnp.clip(datum.y, 0.0, datum.trials)
        peak = inverse_probability(self.link, (successes + 0.5) / (datum.trials + 1.0))
        few = jnp.minimum(successes, datum.trials - successes)
        return landmarks((peak, 1.0 / jnp.sqrt(few + 1.0)), (jnp.zeros_like(peak), 1.0))

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        k, n = np.floor(datum.y), datum.trials
        inside = np.clip(k, 0.0, n - 1.0)
        lower = betainc(n - inside, inside + 1.0, probabilities_array(self.link, f)[1])
        return np.where(k < 0, 0.0, np.where(k < n, lower, 1.0))

    def cdf_places(self, datum: Datum) -> Places:
        k = np.clip(np.floor(datum.y), 0.0, datum.trials - 1.0)
        return probability_places(self.link, (k + 1.0) / (datum.trials + 1.0), datum.trials)

    def typical(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return datum.trials * probabilities_array(self.link, f)[0]

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return rng.binomial(datum.trials.astype(int), probabilities_array(self.link, f)[0]).astype(float)

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return is_count(y) & is_count(trials) & (y <= trials)

    def greatest(self, datum: Datum) -> Scalar:
        return datum.trials


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
