"""Robust regression: y = f + scale · Student-t noise."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.quadrature import Landmarks, landmarks

_LOG_PI = 1.1447298858494002


class StudentT(Likelihood):
    """Student-t noise with `df` degrees of freedom: outliers lose their pull. Not log-concave."""

    df: Scalar | float = 4.0
    scale: Scalar | float = 1.0

    name: ClassVar[str] = "student-t"
    support: ClassVar[str] = "real numbers"

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        df, scale = self.df, self.scale
        constant = gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df) - 0.5 * (jnp.log(df) + _LOG_PI) - jnp.log(scale)
        return constant - 0.5 * (df + 1.0) * jnp.log1p(((datum.y - f) / scale) ** 2 / df)

    def landmarks(self, datum: Datum) -> Landmarks:
        return landmarks((datum.y, self.scale))

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return np.isfinite(y)
