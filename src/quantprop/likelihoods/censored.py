"""Gaussian noise seen through censoring: each y is an interval (lower, upper) that holds f + scale · ε."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from quantprop.core.gaussian import LOG_2PI
from quantprop.likelihoods.additive import Gaussian, GaussianNoise
from quantprop.likelihoods.base import Datum, Landmarks, Normal, Scalar, Split
from quantprop.likelihoods.tilted import OUTERMOST, quadrature_expectation
from quantprop.numerics.special import Interval, normal_interval

MIN_OUTSIDE = 10.0  # times the scale


class Censored(GaussianNoise):
    """Gaussian observations known to an interval: rows (lower, upper) with equal ends were observed, an infinite end is
    open.

    Predictions are of the observation before censoring, y = f + scale · ε.

    Args:
        scale: Standard deviation of the noise; learned.

    >>> import numpy as np
    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.Censored(1.0), y=[[1.0, np.inf]], cavity=(0.0, 1.0))
    >>> round(float(found.mean[0]), 4), round(float(found.variance[0]), 4)
    (0.9164, 0.6185)
    """

    scale: Scalar = 1.0

    name = "censored"
    observes = "intervals"
    support = "rows (lower, upper) with lower ≤ upper, not both infinite"
    columns = 2

    def _interval(self, datum: Datum, f: Scalar, scale: Scalar) -> Interval:
        """The mass of the row when y ~ N(f, scale²) and it was not observed; finite derivatives where it was."""
        lower, upper = datum.y
        ends = jnp.stack([jnp.where(lower == upper, -jnp.inf, lower), upper])
        finite = jnp.isfinite(ends)
        standard = jnp.where(finite, (jnp.where(finite, ends, f) - f) / scale, ends)
        return normal_interval(*standard)

    def _log_prob(self, datum: Datum, f: Scalar, scale: Scalar) -> Scalar:
        """log p of the row when y ~ N(f, scale²)."""
        lower, upper = datum.y
        observed = lower == upper
        exact = Gaussian(scale).log_prob(datum._replace(y=jnp.where(observed, lower, 0.0)), f)
        return jnp.where(observed, exact, self._interval(datum, f, scale).log_mass)

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self._log_prob(datum, f, self.scale)

    def split(self, datum: Datum, cavity: Normal, exponent: Scalar = 1.0) -> Split:
        """With e the end that is nearer to the cavity, exp(−½ (e − f)²/s²)^a joins the cavity where y was observed
        (e = y) or is many s away from where f will lie: there p is this tail times something that hardly varies.
        """
        lower, upper = datum.y
        observed, (m, v) = lower == upper, (cavity.mean, cavity.variance)
        end, outside = self._nearest(datum, m)
        noise = self.scale**2 / exponent
        total = v + noise
        joined = observed | (outside & (jnp.abs(end - m) * noise / total > MIN_OUTSIDE * self.scale))
        core = Normal(jnp.where(joined, m + v / total * (end - m), m), jnp.where(joined, v * noise / total, v))
        constant = jnp.where(joined, 0.5 * jnp.log(noise / total) - 0.5 * (end - m) ** 2 / total, 0.0)
        height = -jnp.log(self.scale) - 0.5 * LOG_2PI

        def rest(f):
            interval = self._interval(datum, f, self.scale)
            left = jnp.where(observed, height, jnp.where(joined, interval.log_rest, interval.log_mass))
            return exponent * left

        return Split(rest, core, constant)

    def _nearest(self, datum: Datum, m: Scalar) -> tuple[Scalar, Scalar]:
        """The end nearest to m if m lies outside, otherwise a finite end; and whether m lies outside."""
        lower, upper = datum.y
        end = jnp.where(m > upper, upper, jnp.where(jnp.isfinite(lower), lower, upper))
        return end, (m < lower) | (m > upper)

    def expected_log_prob(self, datum: Datum, marginal: Normal) -> tuple[Scalar, Scalar, Scalar]:
        """In closed form where y was observed. Where f is outside with certainty, the Gaussian tail has a closed form,
        and what is left of log p, which hardly varies, is integrated: squares of 1e11 would leave no digits of it.
        """
        lower, upper = datum.y
        observed, sd = lower == upper, jnp.sqrt(marginal.variance)
        end, outside = self._nearest(datum, marginal.mean)
        tail = observed | (outside & (jnp.abs(end - marginal.mean) > OUTERMOST * sd))
        exact = Gaussian(self.scale).expected_log_prob(datum._replace(y=end), marginal)
        height = -jnp.log(self.scale) - 0.5 * LOG_2PI

        def left(f):
            interval = self._interval(datum, f, self.scale)
            return jnp.where(observed, 0.0, jnp.where(tail, interval.log_rest - height, interval.log_mass))

        rest = quadrature_expectation(left, self.landmarks(datum), marginal)
        return tuple(jnp.where(tail, a, 0.0) + b for a, b in zip(exact, rest, strict=True))

    def start(self, datum: Datum) -> tuple[Scalar, Scalar]:
        """Observed rows are their own sites."""
        lower, upper = datum.y
        tau = jnp.where(lower == upper, 1.0 / self.scale**2, 0.0)
        return tau * jnp.where(lower == upper, lower, 0.0), tau

    def landmarks(self, datum: Datum) -> Landmarks:
        ends = jnp.where(jnp.isfinite(datum.y), datum.y, datum.y[::-1])
        return Landmarks(ends, self.scale * jnp.ones_like(ends))

    def predictive_log_prob(self, datum: Datum, latent: Normal) -> Scalar:
        return self._log_prob(datum, latent.mean, jnp.sqrt(latent.variance + self.scale**2))

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        lower, upper = y[..., 0], y[..., 1]
        return (lower <= upper) & (np.isfinite(lower) | np.isfinite(upper))
