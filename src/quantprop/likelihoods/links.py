"""Links from f to a positive rate, and from f to a probability.

The functions that end in `_array` are for NumPy arrays; they compute with SciPy, outside compiled programs.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from scipy import special

from quantprop.gaussian import Normal
from quantprop.likelihoods.expectations import latent_nodes
from quantprop.numerics.mixtures import Places, places
from quantprop.numerics.quadrature import landmarks
from quantprop.numerics.special import log_ndtr
from quantprop.runtime.names import check_name

RateLink = Literal["exp", "square", "softplus"]
RATE_LINKS = ("exp", "square", "softplus")
ProbabilityLink = Literal["probit", "logit"]
PROBABILITY_LINKS = ("probit", "logit")


def check_link(link: str, allowed: tuple[str, ...], owner: str) -> None:
    """Raise unless `link` is one of `allowed`."""
    check_name(f"{owner}: link", link, allowed)


# --- rates -----------------------------------------------------------------------------------------------


def log_rate(link: RateLink, f):
    """log g(f) for g = exp, square, softplus."""
    if link == "exp":
        return f
    if link == "square":
        return 2.0 * jnp.log(jnp.abs(f))
    near = jnp.maximum(f, -30.0)
    return jnp.where(f < -30.0, f - 0.5 * jnp.exp(jnp.minimum(f, -30.0)), jnp.log(jax.nn.softplus(near)))


def log_rate_unless(unused, link: RateLink, f):
    """log g(f), or log g(1) where it is unused: so 0 · log g has no NaN, also in its derivatives."""
    return log_rate(link, jnp.where(unused, 1.0, f))


def rate(link: RateLink, f):
    """g(f)."""
    if link == "exp":
        return jnp.exp(f)
    if link == "square":
        return f * f
    return jax.nn.softplus(f)


def inverse_rate(link: RateLink, value):
    """The f (for the square link the positive one) with g(f) = value > 0."""
    if link == "exp":
        return jnp.log(value)
    if link == "square":
        return jnp.sqrt(value)
    return value + jnp.log(-jnp.expm1(-value))


def rate_peaks(link: RateLink, value, relative) -> list[tuple]:
    """Landmarks of a likelihood that peaks at the rate `value` with the width `relative` in log g."""
    peak = inverse_rate(link, value)
    if link == "exp":
        return [(peak, relative)]
    if link == "square":  # d log g/df = 2/f
        return [(peak, 0.5 * peak * relative), (-peak, 0.5 * peak * relative)]
    width = relative * value / -jnp.expm1(-value)  # d log g/df = (1 − exp(−g))/g
    return [(peak, width), (jnp.zeros_like(peak), 1.0)]


def rate_start(link: RateLink, value, information) -> tuple:
    """Sites (ν, τ) to start from: for the square and the exp link Laplace's at the (positive) mode, where g = value.

    `information` is that of y about g. From zero sites the first cavities of the square link would be two-sided, and
    under a wide prior exp(f) overflows before the first sweep. A count of 0 has no mode under the exp link: half a
    count stands in. The softplus link starts from zero sites.
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
    value = jax.nn.softplus(f)
    mean = density.expect(value)
    return mean, density.expect((value - mean) ** 2)


def rate_array(link: RateLink, f: np.ndarray) -> np.ndarray:
    """g(f)."""
    if link == "exp":
        return np.exp(f)
    return f * f if link == "square" else np.logaddexp(0.0, f)


def rate_places(link: RateLink, value: np.ndarray, relative: np.ndarray) -> Places:
    """Where P(Y ≤ y | f) changes for a y that varies around the rate `value` by `relative` (at most 1) of it.

    It falls faster and faster with the rate, so a quarter of its width counts as its scale.
    """
    near = 0.25 * np.minimum(relative, 1.0)
    if link == "exp":
        return places((np.log(value), near))
    if link == "square":  # d log g/df = 2/f
        peak = np.sqrt(value)
        return places((peak, peak * near), (-peak, peak * near))
    share = -np.expm1(-value)  # d log g/df = (1 − exp(−g))/g
    return places((value + np.log(share), near * value / share), (0.0, 1.0))


# --- probabilities ---------------------------------------------------------------------------------------


def log_probabilities(link: ProbabilityLink, f) -> tuple:
    """log p and log(1 − p), each without cancellation."""
    log_cdf = log_ndtr if link == "probit" else jax.nn.log_sigmoid
    return log_cdf(f), log_cdf(-f)


def inverse_probability(link: ProbabilityLink, p):
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
    """p and 1 − p, each without cancellation."""
    cdf = special.ndtr if link == "probit" else special.expit
    return cdf(f), cdf(-f)


def probability_places(link: ProbabilityLink, p: np.ndarray, effective: np.ndarray) -> Places:
    """Where P(Y ≤ y | f) changes for a share y that varies around p as that of so many trials does."""
    inverse, height = (special.ndtri, _normal_height) if link == "probit" else (special.logit, _logistic_height)
    f, spread = inverse(p), p * (1.0 - p)
    width = spread / height(f) * np.minimum(1.0, 1.0 / np.sqrt(effective * spread))
    return places((f, np.minimum(0.5 * width, 1.0)), (0.0, 1.0))


def _normal_height(f: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * f * f) / np.sqrt(2.0 * np.pi)


def _logistic_height(f: np.ndarray) -> np.ndarray:
    return special.expit(f) * special.expit(-f)
