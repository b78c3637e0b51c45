"""Skeleton of a projection: median and quartiles. Copy it to src/quantprop/projections/<name>.py."""

from __future__ import annotations

import jax.numpy as jnp

from quantprop.core.gaussian import Normal
from quantprop.likelihoods.base import Datum, Likelihood, Moments
from quantprop.projections import Projection, relative, tilted_scores

UPPER_QUARTILE = 0.6744897501960817  # Φ⁻¹(3/4)


class MiddleHalf(Projection):
    """The Gaussian with the tilted density's median and interquartile range."""

    def project(self, likelihood: Likelihood, datum: Datum, cavity: Normal) -> Moments:
        tilted, z = tilted_scores(likelihood, datum, cavity)  # z = Φ⁻¹(F(f)) at the quadrature nodes f
        wanted = jnp.array([-UPPER_QUARTILE, 0.0, UPPER_QUARTILE])
        lower, median, upper = jnp.interp(wanted, z.ravel(), tilted.f.ravel())
        sd = (upper - lower) / (2.0 * UPPER_QUARTILE)
        return relative(cavity, median, sd**2, tilted.density.log_normalizer)
