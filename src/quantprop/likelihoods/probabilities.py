"""Likelihoods of y whose mean goes with a probability p(f), and the links p: probit and logit."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from scipy import special

from quantprop.likelihoods.base import Datum, Likelihood, Normal, Places, Scalar, landmarks, places
from quantprop.likelihoods.tilted import latent_nodes
from quantprop.numerics.special import log_ndtr
from quantprop.runtime.names import check_name

ProbabilityLink = Literal["probit", "logit"]


class Probability(Likelihood):
    """Base of likelihoods of mean size · p(f), with a `link` p(f) = Φ(f) ("probit") or 1/(1 + exp(−f)) ("logit")."""

    smooth = True

    def __check_init__(self) -> None:
        check_name(f"{type(self).__name__}: link", self.link, ("probit", "logit"))

    @property
    def link(self) -> ProbabilityLink:
        """A field of each, after those of its own."""
        raise NotImplementedError

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
        mean, mixed, variance = probability_moments(self.link, latent)
        return self.size(datum) * mean, self.noise(datum) * mixed + self.size(datum) ** 2 * variance


# --- the links -----------------------------------------------------------------------------------------------------


def log_probabilities(link: ProbabilityLink, f: Any) -> tuple:
    """log p and log(1 − p), each without cancellation."""
    log_cdf = log_ndtr if link == "probit" else jax.nn.log_sigmoid
    return log_cdf(f), log_cdf(-f)


def inverse_probability(link: ProbabilityLink, p: Any) -> Any:
    """The f with probability p in (0, 1)."""
    return ndtri(p) if link == "probit" else jnp.log(p) - jnp.log1p(-p)


def probability_moments(link: ProbabilityLink, latent: Normal) -> tuple:
    """E[p], E[p(1 − p)] and Var[p] when f ~ latent; E[Φ(f)] = Φ(m/√(1 + v))."""
    density, f = latent_nodes(landmarks((jnp.zeros_like(latent.mean), 1.0)), latent)
    log_p, log_q = log_probabilities(link, f)
    p = jnp.exp(log_p)
    mean = ndtr(latent.mean / jnp.sqrt(1.0 + latent.variance)) if link == "probit" else density.expect(p)
    return mean, density.expect(jnp.exp(log_p + log_q)), density.expect((p - mean) ** 2)


def probabilities_array(link: ProbabilityLink, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p and 1 − p, each without cancellation, in NumPy."""
    cdf = special.ndtr if link == "probit" else special.expit
    return cdf(f), cdf(-f)


def probability_places(link: ProbabilityLink, p: np.ndarray, effective: np.ndarray) -> Places:
    """Where P(Y ≤ y | f) changes for a share y that varies around p as the share of `effective` trials does."""
    spread = p * (1.0 - p)
    if link == "probit":
        f = special.ndtri(p)
        slope = np.exp(-0.5 * f * f) / np.sqrt(2.0 * np.pi)
    else:
        f, slope = special.logit(p), spread
    width = spread / slope * np.minimum(1.0, 1.0 / np.sqrt(effective * spread))
    return places((f, np.minimum(0.5 * width, 1.0)), (0.0, 1.0))
