"""The expansion around a Gaussian posterior: Opper, Paquet and Winther (2013), and its marginals.

p(f) = q(f) Π_j F_j(f_j) · const, with F_j the tilted density over the marginal. In F_j's cumulants c_l this is a field
theory: vertices c_l at rows, edges the posterior correlations ρ between *different* factors. With c_l of the order
ε^(l−2), every quantity here is taken to its leading order:

    log evidence   ½ Σ_jk c₃ⱼ c₃ₖ ρ³/6                                        ε²
    mean           Σ_j ρ_ij (c₄ⱼ Σ_k ρ³ c₃ₖ/6 + c₃ⱼ Σ_kl ρ_jk ρ_jl ρ²_kl c₃ₖ c₃ₗ/4)   ε³
    variance       ½ Σ_jk ρ_ij c₃ⱼ ρ²_jk c₃ₖ ρ_ik                              ε²
    skewness       Σ_j ρ³_ij c₃ⱼ                                             ε

A projection that keeps means but not variances (QP) leaves c₂, of the order ε²: then Σ_jk c₂ c₂ ρ²/4 adds to the
evidence, Σ_j ρ_ij c₃ⱼ Σ_k ρ²_jk c₂ₖ/2 to the mean and Σ_j ρ²_ij c₂ⱼ to the variance. A row that counts w times is w
factors with ρ = 1 between them: "others" below are all factors but the one at hand.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.core.gaussian import Natural
from quantprop.core.records import Record
from quantprop.core.sites import Marginal
from quantprop.likelihoods.base import Datum, Likelihood
from quantprop.likelihoods.tilted import tilt
from quantprop.methods import EP
from quantprop.methods.base import Weight
from quantprop.runtime.batches import rowwise


class Cumulants(Record):
    """c_l of x = (f − μ)/σ under a tilted density, less those of the marginal N(μ, σ²): 0 where moments match."""

    second: Float[Array, " n"]  # variance − 1: 0 for EP
    third: Float[Array, " n"]
    fourth: Float[Array, " n"]


def cumulants(
    method: EP, likelihood: Likelihood, data: Datum, weight: Weight, marginals: Marginal, sites: Natural
) -> Cumulants:
    """The cumulants of one copy of every row; 0 for rows of weight 0."""
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


class Vertices(Record):
    """Summaries of the training rows for the corrected marginals, in units of the Gaussian marginals."""

    sd: Float[Array, " n"]
    pull: Float[Array, " n"]  # of the mean: Σ_j ρ_ij pull_j
    widening: Float[Array, " n"]  # of the variance: Σ_j ρ²_ij widening_j
    loop: Float[Array, "n n"]  # of the variance: Σ_jk ρ_ij loop_jk ρ_ik
    skew: Float[Array, " n"]  # Σ_j ρ³_ij skew_j


class Shifts(Record):
    """Changes of marginals in units of the Gaussian ones: of the mean over σ, of the variance over σ²; and skewness,
    the third cumulant over σ³.
    """

    mean: Float[Array, " k"]
    variance: Float[Array, " k"]
    skewness: Float[Array, " k"]


def vertices(c: Cumulants, rho: Float[Array, "n n"], w: Float[Array, " n"], sd: Float[Array, " n"]) -> Vertices:
    """The vertices of all rows; w is how many equal factors each row has."""

    def others(power: int, values: Array) -> Array:
        """Σ of ρ^power times values over all factors but the one at hand."""
        return rho**power @ (w * values) - values

    square = c.third[:, None] * rho**2 * c.third
    to_others = rho * w - jnp.eye(len(w))
    triangle = jnp.sum((to_others @ square) * to_others, axis=1) - others(2, c.third**2)
    sunset = c.fourth * others(3, c.third) / 6.0
    pull = w * (sunset + c.third * (triangle / 4.0 + others(2, c.second) / 2.0))
    loop = 0.5 * (w[:, None] * square * w - jnp.diag(w * c.third**2))
    return Vertices(sd, pull, w * c.second, loop, w * c.third)


def evidence_shift(c: Cumulants, rho: Float[Array, "n n"], w: Float[Array, " n"]) -> Float[Array, ""]:
    """The correction of the log evidence, to second order (eq. 27 of Opper, Paquet and Winther 2013 with l up to 3)."""

    def pairs(power: int, values: Array) -> Array:
        return jnp.sum(w * values * (rho**power @ (w * values) - values))

    return 0.5 * (pairs(2, c.second) / 2.0 + pairs(3, c.third) / 6.0)


def shifts(by: Vertices, rho: Float[Array, "k n"]) -> Shifts:
    """Changes of values whose posterior correlations with the training values are `rho`."""
    return Shifts(
        rho @ by.pull,
        rho**2 @ by.widening + jnp.sum((rho @ by.loop) * rho, axis=1),
        rho**3 @ by.skew,
    )
