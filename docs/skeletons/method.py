"""Skeleton of a method: expectation propagation written out. Copy it to src/quantprop/methods/<name>.py."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array

from quantprop.core.gaussian import Natural
from quantprop.core.sites import Marginal, Removal, cavity, log_site_normalizer, renewed
from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.methods.base import Method, Renewal, Summary, Weight, quadratic


class MomentMatching(Method):
    """Divide the site out of the marginal, match the moments of the tilted density, divide by the cavity."""

    @property
    def stationary(self) -> bool:
        """The evidence does not change, to first order, with the sites: its gradient needs no adjoint equation."""
        return True

    def renew(self, likelihood: Likelihood, datum: Datum, weight: Weight, marginal: Marginal, site: Natural) -> Renewal:
        """The rule, for one observation: a marginal and a site in, the new site and its term of the evidence out."""
        removal = Removal(self.share(weight))
        rest = cavity(marginal, site, removal)
        moments = likelihood.moments(datum, rest)
        new = renewed(rest, moments)
        value = (moments.log_normalizer - log_site_normalizer(marginal, removal, rest)) / removal.share
        return Renewal(Natural(new.nu / removal.share, new.tau / removal.share), value, rest.variance > 0)

    def evidence(self, values: Array, summary: Summary) -> Scalar:
        """Σ values + log ∫ prior × sites, relative to the sites at the posterior mean."""
        return jnp.sum(values) - quadratic(summary) - 0.5 * summary.log_determinant
