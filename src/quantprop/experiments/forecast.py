"""From a latent prediction to a point forecast and the log probability of the outcome."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from quantprop.gaussian import Normal
from quantprop.inference.predictive import Predictive
from quantprop.likelihoods import moment_matched_negative_binomial

MOST = 10_000  # counts tried in search of a mode


class Forecast(NamedTuple):
    """At each test input: the predicted y, how wrong it is, and log p(y) of the true one."""

    point: Float[np.ndarray, " k"]
    error: Float[np.ndarray, " k"]
    log_prob: Float[np.ndarray, " k"]


def label(predictive: Predictive, y: Float[np.ndarray, " k"]) -> Forecast:
    """The sign of the latent mean."""
    point = np.where(predictive.latent.mean > 0, 1.0, -1.0)
    return Forecast(point, (point != y).astype(np.float64), predictive.log_prob(y))


def negative_binomial(latent: Normal, y: Float[np.ndarray, " k"]) -> Forecast:
    """The paper's forecast of a count with rate f²: a Poisson mixed by the gamma with the moments of f²."""
    counts = moment_matched_negative_binomial(latent)
    return Forecast(counts.mode, np.abs(counts.mode - y), counts.log_prob(y))


def exact_count(predictive: Predictive, y: Float[np.ndarray, " k"]) -> Forecast:
    """The mode and log probability of the predictive distribution itself, square link."""
    point = mode(predictive)
    return Forecast(point, np.abs(point - y), predictive.log_prob(y))


def mode(predictive: Predictive) -> Float[np.ndarray, " k"]:
    """The most probable count with rate f², f ~ N(m, v).

    Counts are tried upwards until none above can be more probable than the best so far: p(y) is at most what is left of
    the total, and at most max N(f | m, v) · ∫ f^{2y} e^{−f²}/y! df = Γ(y + ½)/y! / √(2πv), which falls with y.
    """
    shape = np.shape(predictive.latent.mean)
    best, point, left = np.full(shape, -np.inf), np.zeros(shape), np.ones(shape)
    peak = -0.5 * np.log(2.0 * np.pi * predictive.latent.variance)
    for count in range(MOST):
        log_p = predictive.log_prob(float(count))
        best, point = np.maximum(best, log_p), np.where(log_p > best, float(count), point)
        left = left - np.exp(log_p)
        bound = np.minimum(np.log(np.maximum(left, 0.0) + 1e-300), peak + gammaln(count + 1.5) - gammaln(count + 2.0))
        if (bound < best).all():
            return point
    raise ValueError(f"no mode among the counts below {MOST}: the predicted rate is too large")
