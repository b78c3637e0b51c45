"""Successes in a number of trials: y ~ Binomial(trials, p(f)) with a probit or logit link."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from scipy.special import betainc

from quantprop.core.records import field
from quantprop.likelihoods.base import Datum, Landmarks, Places, Scalar, is_count, landmarks
from quantprop.likelihoods.probabilities import (
    Probability,
    ProbabilityLink,
    inverse_probability,
    log_probabilities,
    probabilities_array,
    probability_places,
)
from quantprop.numerics.special import log_factorial


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
    support = "successes 0, 1, ..., trials, out of a whole number of trials"
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
