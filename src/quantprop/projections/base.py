"""What a projection is: a rule that picks one Gaussian for a tilted density."""

from __future__ import annotations

import equinox as eqx

from quantprop.gaussian import Normal
from quantprop.likelihoods.base import Datum, Likelihood, Moments


class Projection(eqx.Module):
    """Base of all projections; `project` sees one datum and its cavity."""

    def project(self, likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
        """The Gaussian that stands for p(y | f) N(f | cavity), relative to the cavity."""
        raise NotImplementedError
