"""A likelihood raised to a power: what power EP and weights below 1 tilt with."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from quantprop.gaussian import Normal
from quantprop.likelihoods.base import Datum, Likelihood, Moments, Scalar, Split
from quantprop.numerics.quadrature import Landmarks


class Tempered(Likelihood):
    """p(y | f)^exponent, not normalised in y."""

    base: Likelihood
    exponent: Scalar

    name: ClassVar[str] = "tempered"
    support: ClassVar[str] = "as its base"

    @property
    def log_concave(self) -> bool:
        return self.base.log_concave

    @property
    def continuous(self) -> bool:
        return self.base.continuous

    @property
    def smooth(self) -> bool:
        return self.base.smooth

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self.exponent * self.base.log_prob(datum, f)

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        closed = self.base.tempered_moments(datum, cavity, self.exponent)
        return super().moments(datum, cavity) if closed is None else closed

    def split(self, datum: Datum, cavity: Normal, exponent: Scalar = 1.0) -> Split:
        return self.base.split(datum, cavity, exponent * self.exponent)

    def landmarks(self, datum: Datum) -> Landmarks:
        return self.base.landmarks(datum)

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return self.base.in_support(y, trials)
