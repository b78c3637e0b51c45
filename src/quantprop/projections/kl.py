"""KL(tilted ‖ Gaussian): matches the moments. The projection of expectation propagation."""

from __future__ import annotations

from quantprop.gaussian import Normal
from quantprop.likelihoods.base import Datum, Likelihood, Moments
from quantprop.likelihoods.by_output import ByOutput
from quantprop.projections.base import Projection


class KL(Projection):
    """The Gaussian with the tilted density's mean and variance."""

    def project(self, likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
        return likelihood.moments(datum, cavity)

    def quick(self, likelihood: Likelihood) -> bool:
        if isinstance(likelihood, ByOutput):
            return all(map(self.quick, likelihood.likelihoods))
        return type(likelihood).moments is not Likelihood.moments
