"""Robust regression: y = f + scale · Student-t noise."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import stdtr

from quantprop.likelihoods.additive import Additive
from quantprop.likelihoods.base import Datum, Scalar, bounded


class StudentT(Additive):
    """y = f + scale · t, where t has `df` degrees of freedom: outliers lose their pull. Not log-concave.

    The variance of y is infinite for df ≤ 2, and its mean does not exist for df ≤ 1. df is learned above 2.1, unless
    you pass a Parameter with other bounds.

    Args:
        df: Degrees of freedom: fewer have heavier tails; learned.
        scale: Scale of the noise; learned.

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.StudentT(), y=3.0, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (1.0886, 0.8716)
    """

    df: Scalar = 4.0
    scale: Scalar = 1.0

    name = "student-t"
    title = "Student-t"
    bounds = bounded(df=(2.1, 100.0), **Additive.bounds)
    smooth = True

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        df, scale = self.df, self.scale
        constant = gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df) - 0.5 * (jnp.log(df) + np.log(np.pi)) - jnp.log(scale)
        return constant - 0.5 * (df + 1.0) * jnp.log1p(((datum.y - f) / scale) ** 2 / df)

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return jnp.where(self.df > 1.0, f, jnp.nan)  # does not exist for df ≤ 1

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        exists = self.scale**2 * self.df / jnp.where(self.df > 2.0, self.df - 2.0, 1.0)
        return jnp.where(self.df > 2.0, exists, jnp.inf) + 0.0 * f

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return stdtr(self.df, (datum.y - f) / self.scale)

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return f + self.scale * rng.standard_t(self.df, size=np.shape(f))
