"""KL(tilted ‖ Gaussian): matches the moments. The projection of expectation propagation."""

from __future__ import annotations

from quantprop.core.gaussian import Normal
from quantprop.likelihoods.base import Datum, Likelihood, Moments
from quantprop.projections.base import Projection


class KL(Projection):
    """The Gaussian with the tilted density's mean and variance.

    >>> from quantprop import likelihoods, project, projections
    >>> found = project(likelihoods.Heaviside(), 1, (0.0, 1.0), projections.KL())
    >>> round(float(found.variance), 4)  # of a half-normal: 1 − 2/π
    0.3634
    """

    def project(self, likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
        return likelihood.moments(datum, cavity)

    def quick(self, likelihood: Likelihood) -> bool:
        return likelihood.closed

    def on_few_nodes(self, likelihood: Likelihood) -> bool:
        return likelihood.smooth and not likelihood.closed
