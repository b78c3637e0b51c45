"""Robust regression: y = f + scale · Student-t noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from scipy.special import stdtr

from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.numerics.mixtures import Places, places
from quantprop.numerics.quadrature import Landmarks, landmarks

_LOG_PI = 1.1447298858494002


class StudentT(Likelihood):
    """y = f + scale · t, t of `df` degrees of freedom: outliers lose their pull. Not log-concave.

    The variance of y is infinite for df ≤ 2, and its mean does not exist for df ≤ 1: df is learned above 2, unless a
    Parameter with other bounds is given.
    """

    df: Scalar = 4.0
    scale: Scalar = 1.0

    bounds: ClassVar[Mapping[str, tuple[float, float]]] = {"df": (2.1, 100.0), "scale": (1e-5, 1e5)}
    name: ClassVar[str] = "student-t"
    noise_name: ClassVar[str | None] = "scale"
    support: ClassVar[str] = "real numbers"
    smooth: ClassVar[bool] = True

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        df, scale = self.df, self.scale
        constant = gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df) - 0.5 * (jnp.log(df) + _LOG_PI) - jnp.log(scale)
        return constant - 0.5 * (df + 1.0) * jnp.log1p(((datum.y - f) / scale) ** 2 / df)

    def landmarks(self, datum: Datum) -> Landmarks:
        return landmarks((datum.y, self.scale))

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return jnp.where(self.df > 1.0, f, jnp.nan)  # does not exist for df ≤ 1

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        exists = self.scale**2 * self.df / jnp.where(self.df > 2.0, self.df - 2.0, 1.0)
        return jnp.where(self.df > 2.0, exists, jnp.inf) + 0.0 * f

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return stdtr(self.df, (datum.y - f) / self.scale)

    def cdf_places(self, datum: Datum) -> Places:
        return places((datum.y, self.scale))

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return f + self.scale * rng.standard_t(self.df, size=np.shape(f))

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return np.isfinite(y)
