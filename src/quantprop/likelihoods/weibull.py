"""Survival times by Weibull: P(Y > y | f) = exp(−(y/exp f)^(1/scale))."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from quantprop.likelihoods.base import Datum, Normal, Places, Scalar, places
from quantprop.likelihoods.survival import Survival
from quantprop.likelihoods.tilted import quadrature_expectation

_LOG2 = 0.6931471805599453
LITTLE, CERTAIN = -20.0, 6.5  # w below which 1 − exp(−exp w) is a series, and above which it is 1


def log_died(w):
    """log(1 − exp(−exp w))."""
    x = jnp.exp(jnp.clip(w, LITTLE, CERTAIN))
    series = w - 0.5 * jnp.exp(jnp.minimum(w, LITTLE))
    return jnp.where(w < LITTLE, series, jnp.log(-jnp.expm1(-x)))


class Weibull(Survival):
    """log y = f + scale · ε with exp ε exponential, so that the hazard is proportional to y^(1/scale − 1).

    `scale` is 1/shape, as in R's survreg: 1 is the exponential distribution, below 1 the hazard grows with time. The
    median of y given f is exp(f) (log 2)^scale. Hazards are proportional: f larger by d divides the hazard by
    exp(d/scale).

    Args:
        scale: Scale of log y; learned.

    >>> import numpy as np
    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.Weibull(), y=[[2.0, np.inf]], cavity=(0.0, 1.0))
    >>> round(float(found.mean[0]), 4), round(float(found.variance[0]), 4)
    (0.971, 0.5348)
    """

    scale: Scalar = 1.0

    name = "weibull"

    def log_density(self, w: Scalar) -> Scalar:
        return w - jnp.exp(w)

    def log_mass(self, lower: Scalar, upper: Scalar) -> Scalar:
        """exp(−exp l) − exp(−exp u) = exp(−exp l) (1 − exp(−exp d)), d = log(exp u − exp l)."""
        return -jnp.exp(lower) + self._log_died_between(lower, upper)

    def _log_died_between(self, lower: Scalar, upper: Scalar) -> Scalar:
        """log P(ε < upper | ε > lower)."""
        ends = jnp.isposinf(upper)
        upper = jnp.where(ends, jnp.where(jnp.isneginf(lower), 0.0, lower + 1.0), upper)
        return jnp.where(ends, 0.0, log_died(upper + jnp.log(-jnp.expm1(lower - upper))))

    def log_moment(self, order: float) -> Scalar:
        return gammaln(1.0 + order * self.scale)

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        """E[exp w] = exp(E[w] + ½ Var w) for the observed or lower end; what an upper end adds is integrated."""
        s, (m, v) = self.scale, (marginal.mean, marginal.variance)
        observed, lower, upper = self.standardised(datum, m)
        w = jnp.where(observed, upper, lower)
        hazard = jnp.exp(w + 0.5 * v / s**2)
        linear = jnp.where(observed, 1.0, 0.0)
        height = -jnp.log(s) - jnp.log(jnp.where(observed, datum.y[1], 1.0))
        exact = linear * (jnp.where(observed, w, 0.0) + height) - hazard

        def rest(f):
            _, lower, upper = self.standardised(datum, f)
            return jnp.where(observed, 0.0, self._log_died_between(lower, upper))

        more = quadrature_expectation(rest, self.landmarks(datum), marginal)
        slopes = (exact, (hazard - linear) / s, -0.5 * hazard / s**2)
        return tuple(a + b for a, b in zip(slopes, more, strict=True))

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        """An observed row's mode, log y, and the curvature there; for the chance to outlive a lower end, which has no
        mode, that of half an event.
        """
        observed, (lower, upper) = datum.y[0] == datum.y[1], datum.y
        outlived = ~observed & (lower > 0)
        tau = jnp.where(observed, 1.0, jnp.where(outlived, 0.5, 0.0)) / self.scale**2
        place = jnp.log(jnp.where(observed, upper, jnp.where(outlived, lower, 1.0)))
        return tau * (place + jnp.where(outlived, self.scale * _LOG2, 0.0)), tau

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return -np.expm1(-np.exp(self.standardised_array(datum, f)))

    def cdf_places(self, datum: Datum) -> Places:
        """exp(−exp w) falls faster and faster, so a quarter of its width counts as its scale."""
        return places((np.log(np.maximum(datum.y, 1e-300)), 0.25 * self.scale))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return np.exp(f) * rng.exponential(size=np.shape(f)) ** self.scale
