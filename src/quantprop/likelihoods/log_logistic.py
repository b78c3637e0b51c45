"""Survival times with odds: P(Y > y | f) = 1/(1 + (y/exp f)^(1/scale))."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import expit

from quantprop.likelihoods.base import Datum, Places, Scalar, places
from quantprop.likelihoods.survival import Survival


class LogLogistic(Survival):
    """log y = f + scale · ε with logistic ε: exp f is the median of y, and the odds of outliving y are proportional to
    exp(f/scale).

    For scale below 1 the hazard grows and then falls again. The mean of y is infinite for scale ≥ 1, its variance for
    scale ≥ ½; quantiles always exist.

    Args:
        scale: Scale of log y; learned.

    >>> import numpy as np
    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.LogLogistic(), y=[[2.0, np.inf]], cavity=(0.0, 1.0))
    >>> round(float(found.mean[0]), 4), round(float(found.variance[0]), 4)
    (0.5337, 0.8257)
    """

    scale: Scalar = 1.0

    name = "log-logistic"

    def log_density(self, w: Scalar) -> Scalar:
        return jax.nn.log_sigmoid(w) + jax.nn.log_sigmoid(-w)

    def log_mass(self, lower: Scalar, upper: Scalar) -> Scalar:
        """σ(u) − σ(l) = σ(u) σ(−l) (1 − exp(l − u)), of which no factor cancels."""
        return jax.nn.log_sigmoid(upper) + jax.nn.log_sigmoid(-lower) + jnp.log(-jnp.expm1(lower - upper))

    def log_moment(self, order: float) -> Scalar:
        t = order * self.scale
        below = jnp.where(t < 1.0, t, 0.0)
        return jnp.where(t < 1.0, gammaln(1.0 - below) + gammaln(1.0 + below), jnp.inf)

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        """An observed row's mode, log y, and the curvature there."""
        observed = datum.y[0] == datum.y[1]
        tau = jnp.where(observed, 0.5, 0.0) / self.scale**2
        return tau * jnp.log(jnp.where(observed, datum.y[1], 1.0)), tau

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return expit(self.standardised_array(datum, f))

    def cdf_places(self, datum: Datum) -> Places:
        return places((np.log(np.maximum(datum.y, 1e-300)), self.scale))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return np.exp(f + self.scale * rng.logistic(size=np.shape(f)))
