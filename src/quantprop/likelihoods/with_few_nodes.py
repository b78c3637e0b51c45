"""A likelihood whose tilted densities are integrated on few nodes, or not at all."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from quantprop.gaussian import Normal
from quantprop.likelihoods.base import Datum, Likelihood, Moments, Scalar, Split
from quantprop.likelihoods.tilted import few_node_moments
from quantprop.numerics.quadrature import Landmarks
from quantprop.numerics.selection import if_trusted

_moments = if_trusted(few_node_moments)


class WithFewNodes(Likelihood):
    """The same likelihood, NaN where few nodes do not resolve its tilted density: a program without the panels, which
    are most of it, for those who can begin again with the base.
    """

    base: Likelihood

    name: ClassVar[str] = "with few nodes"
    support: ClassVar[str] = "as its base"

    @property
    def log_concave(self) -> bool:
        return self.base.log_concave

    @property
    def continuous(self) -> bool:
        return self.base.continuous

    @property
    def closed(self) -> bool:
        return self.base.closed

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self.base.log_prob(datum, f)

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        return self.base.moments(datum, cavity) if self.base.closed else _moments(self.base, datum, cavity)

    def split(self, datum: Datum, cavity: Normal, exponent: Scalar = 1.0) -> Split:
        return self.base.split(datum, cavity, exponent)

    def landmarks(self, datum: Datum) -> Landmarks:
        return self.base.landmarks(datum)

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return self.base.in_support(y, trials)
