"""A likelihood without its Gaussian factor."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.numerics.quadrature import Landmarks


class Remainder(Likelihood):
    """p(y | f) / exp(−½ τ f²), τ = base.gaussian_precision: what is left when that factor is kept exact."""

    base: Likelihood

    name: ClassVar[str] = "remainder"
    support: ClassVar[str] = "as its base"

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self.base.log_prob(datum, f) + 0.5 * self.base.gaussian_precision(datum) * f * f

    def landmarks(self, datum: Datum) -> Landmarks:
        return self.base.landmarks(datum)

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return self.base.in_support(y, trials)
