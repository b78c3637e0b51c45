"""Times that may be censored: log y = f + scale · ε, and each datum an interval (lower, upper) that holds y."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from quantprop.likelihoods.base import Datum, Landmarks, Likelihood, Normal, Scalar, bounded


class Survival(Likelihood):
    """Base of accelerated-failure-time models: a change of f by log 2 doubles all times.

    Rows (lower, upper): equal ends were observed; an upper end of infinity is open (the event is still to come), and so
    is a lower end of 0. Predictions are of the time itself, before censoring.
    """

    scale: Scalar

    bounds = bounded(scale=(1e-5, 1e5))
    noise_name = "scale"
    observes = "times"
    support = "rows (lower, upper) of times, 0 ≤ lower ≤ upper, 0 < upper, not (0, inf)"
    log_concave = True  # densities of ε are, and so are their integrals over intervals (Prékopa)
    smooth = True
    columns = 2
    interval = (0.0, np.inf)

    def log_density(self, w: Scalar) -> Scalar:
        """log density of ε."""
        raise NotImplementedError

    def log_mass(self, lower: Scalar, upper: Scalar) -> Scalar:
        """log P(lower < ε < upper), one of them finite."""
        raise NotImplementedError

    def log_moment(self, order: float) -> Scalar:
        """log E[exp(order · scale · ε)], infinite where there is none."""
        raise NotImplementedError

    def standardised(self, datum: Datum, f: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """Whether y was observed, and (log y − f)/scale of both ends; the lower one open where y was observed."""
        lower, upper = datum.y
        observed = lower == upper
        ends = jnp.stack([jnp.where(observed, 0.0, lower), upper])
        closed = (ends > 0) & jnp.isfinite(ends)
        w = (jnp.log(jnp.where(closed, ends, 1.0)) - f) / self.scale
        return observed, *jnp.where(closed, w, jnp.where(ends > 0, jnp.inf, -jnp.inf))

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        observed, lower, upper = self.standardised(datum, f)
        at = jnp.where(observed, upper, 0.0)
        log_time = jnp.log(jnp.where(observed, datum.y[1], 1.0))
        exact = self.log_density(at) - jnp.log(self.scale) - log_time
        return jnp.where(observed, exact, self.log_mass(lower, upper))

    def landmarks(self, datum: Datum) -> Landmarks:
        ends = jnp.where((datum.y > 0) & jnp.isfinite(datum.y), datum.y, datum.y[::-1])
        return Landmarks(jnp.log(ends), self.scale * jnp.ones_like(ends))

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return jnp.exp(f + self.log_moment(1.0))

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        return self._moments(f, 0.0)[1]

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        return self._moments(latent.mean, latent.variance)

    def _moments(self, m: Scalar, v: Scalar) -> tuple[Scalar, Scalar]:
        """E[y] and E[y²] − E[y]², the latter as a product, of which no factor cancels."""
        first, second = m + 0.5 * v + self.log_moment(1.0), 2.0 * (m + v) + self.log_moment(2.0)
        exists = jnp.isfinite(self.log_moment(2.0))
        gap = jnp.where(exists, 2.0 * self.log_moment(1.0) - self.log_moment(2.0), -1.0) - v
        return jnp.exp(first), jnp.where(exists, jnp.exp(second + jnp.log(-jnp.expm1(gap))), jnp.inf)

    def response(self, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(y)

    def typical(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return np.exp(f)

    def standardised_array(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        """(log y − f)/scale, −∞ for y ≤ 0."""
        with np.errstate(divide="ignore"):
            return (np.log(np.maximum(datum.y, 0.0)) - f) / self.scale

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        lower, upper = y[..., 0], y[..., 1]
        ordered = (lower >= 0) & (lower <= upper) & (upper > 0) & np.isfinite(lower)
        return ordered & ((lower > 0) | np.isfinite(upper))
