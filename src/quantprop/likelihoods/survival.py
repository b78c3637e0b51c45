"""Times that may be censored: log y = f + scale · ε, and each datum an interval (lower, upper) that holds y.

P(Y > y | f) is exp(−(y/exp f)^(1/scale)) for Weibull, 1/(1 + (y/exp f)^(1/scale)) for log-logistic.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import expit

from quantprop.likelihoods.base import Datum, Landmarks, Likelihood, Normal, Places, Scalar, bounded, places
from quantprop.likelihoods.tilted import quadrature_expectation


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
        """Return whether y was observed, and (log y − f)/scale of both ends; the lower is open if y was."""
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


_LOG2 = 0.6931471805599453
SERIES_BELOW, CERTAIN_ABOVE = -20.0, 6.5  # w below which 1 − exp(−exp w) is a series, and above which it is 1


def log_died(w):
    """log(1 − exp(−exp w))."""
    x = jnp.exp(jnp.clip(w, SERIES_BELOW, CERTAIN_ABOVE))
    series = w - 0.5 * jnp.exp(jnp.minimum(w, SERIES_BELOW))
    return jnp.where(w < SERIES_BELOW, series, jnp.log(-jnp.expm1(-x)))


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
