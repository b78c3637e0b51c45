"""Cumulants of every row's tilted density, in units of the Gaussian posterior's marginal."""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.gaussian import Natural
from quantprop.likelihoods.base import Datum, Likelihood
from quantprop.likelihoods.tilted import tilt
from quantprop.methods import EP
from quantprop.methods.base import Weight
from quantprop.records import Record
from quantprop.runtime.batches import rowwise
from quantprop.sites import Marginal


class Cumulants(Record):
    """c_l of x = (f − μ)/σ under a tilted density, less those of the marginal N(μ, σ²): 0 where moments match."""

    second: Float[Array, " n"]  # variance − 1: 0 for EP
    third: Float[Array, " n"]
    fourth: Float[Array, " n"]


def cumulants(
    method: EP, likelihood: Likelihood, data: Datum, weight: Weight, marginals: Marginal, sites: Natural
) -> Cumulants:
    """Of one copy of every row; 0 for rows that do not count."""
    found = rowwise(partial(_of_row, method, likelihood), data, weight, marginals, sites)
    return Cumulants(*(jnp.where(weight.total > 0, one, 0.0) for one in found))


def _of_row(
    method: EP, likelihood: Likelihood, datum: Datum, weight: Weight, marginal: Marginal, site: Natural
) -> tuple[Array, Array, Array]:
    """Central moments on quadrature nodes: deviations from the tilted mean, so that nothing cancels."""
    factor, rest, _ = method.tilting(likelihood, datum, weight, marginal, site)
    tilted = tilt(factor, datum, rest)
    expect, x = tilted.density.expect, tilted.offset / jnp.sqrt(marginal.variance)
    x = x - expect(x)
    square = expect(x**2)
    return square - 1.0, expect(x**3), expect(x**4) - 3.0 * square**2
