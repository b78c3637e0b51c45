"""Likelihoods made of another: a power of it, the rest beside a Gaussian factor, and one by the small rule alone."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from quantprop.likelihoods.base import Datum, Landmarks, Likelihood, Moments, Normal, Scalar, Split
from quantprop.likelihoods.tilted import few_node_moments
from quantprop.numerics.selection import if_trusted

_moments = if_trusted(few_node_moments)


class Derived(Likelihood):
    """Base of likelihoods made of another, `base`."""

    base: Likelihood

    support = "as its base"
    stored = False
    continuous: ClassVar[Any] = property(lambda self: self.base.continuous)

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self.base.log_prob(datum, f)

    def landmarks(self, datum: Datum) -> Landmarks:
        return self.base.landmarks(datum)

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return self.base.in_support(y, trials)


class Tempered(Derived):
    """p(y | f)^exponent, not normalised in y: power EP and weights below 1 tilt with it."""

    exponent: Scalar

    name = "tempered"
    log_concave: ClassVar[Any] = property(lambda self: self.base.log_concave)
    smooth: ClassVar[Any] = property(lambda self: self.base.smooth)

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self.exponent * self.base.log_prob(datum, f)

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        closed = self.base.tempered_moments(datum, cavity, self.exponent)
        return super().moments(datum, cavity) if closed is None else closed

    def split(self, datum: Datum, cavity: Normal, exponent: Scalar = 1.0) -> Split:
        return self.base.split(datum, cavity, exponent * self.exponent)


class Remainder(Derived):
    """p(y | f) / exp(−½ τ f²), τ = base.gaussian_precision: what is left when that factor is kept exact."""

    name = "remainder"

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        return self.base.log_prob(datum, f) + 0.5 * self.base.gaussian_precision(datum) * f * f


class WithFewNodes(Derived):
    """The same likelihood, NaN where few nodes do not resolve its tilted density: a program without the panels, which
    are most of it, for those who can begin again with the base.
    """

    name = "with few nodes"
    log_concave: ClassVar[Any] = property(lambda self: self.base.log_concave)
    closed: ClassVar[Any] = property(lambda self: self.base.closed)

    def moments(self, datum: Datum, cavity: Normal) -> Moments:
        return self.base.moments(datum, cavity) if self.base.closed else _moments(self.base, datum, cavity)

    def split(self, datum: Datum, cavity: Normal, exponent: Scalar = 1.0) -> Split:
        return self.base.split(datum, cavity, exponent)
