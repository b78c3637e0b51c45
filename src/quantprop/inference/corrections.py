"""Corrections of a Gaussian posterior from the cumulants of the tilted densities: Opper, Paquet and Winther (2013), and
marginals by the same expansion (docs/corrections.md).

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

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.data import bucket, inputs, pad
from quantprop.core.gaussian import Natural, Normal
from quantprop.core.records import Record
from quantprop.core.sites import Marginal
from quantprop.inference.prediction import above_rounding, at_new, in_pieces, padded_prior, padded_rows
from quantprop.inference.predictive import Predictive, predictive_of
from quantprop.likelihoods.base import Datum, Likelihood
from quantprop.likelihoods.tilted import tilt
from quantprop.methods import EP
from quantprop.methods.base import Weight
from quantprop.numerics.skewed import Skewed
from quantprop.priors import Prior
from quantprop.projections import KL, Wasserstein
from quantprop.runtime.batches import rowwise
from quantprop.runtime.precision import float64, to_numpy
from quantprop.runtime.programs import program


class Cumulants(Record):
    """c_l of x = (f − μ)/σ under a tilted density, minus the marginal's, N(μ, σ²): 0 if moments match."""

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


Solution = Any  # of `solution`, which imports this
MAX_INPUTS = 1024  # new inputs that are predicted at a time


@dataclass(frozen=True)
class Corrected:
    """Evidence and marginals of a solution to the next order, and the size of the correction.

    Attributes:
        log_evidence: corrected log evidence.
        marginals: f at every training input: mean, variance, skewness, cdf, quantile, log_prob.
        doubt: for every training row, a bound on the change of any probability about its f, to the order of the
            expansion; small if the Gaussian marginal is accurate.
        solution: the solution that was corrected.
        vertices: cumulants of the tilted densities, from which predictions are corrected.
    """

    log_evidence: float
    marginals: Skewed
    doubt: Float[np.ndarray, " n"]
    solution: Solution = field(repr=False)
    vertices: Vertices = field(repr=False)

    @property
    def evidence_shift(self) -> float:
        """The correction of the log evidence, in nats."""
        return self.log_evidence - self.solution.log_evidence

    @float64
    def predict(self, Xnew: Any) -> Skewed:
        """The corrected distribution of f at new inputs, each by itself."""
        x = inputs(Xnew, "Xnew", features=self.solution.X.shape[1])
        return in_pieces(self._predicted, x, MAX_INPUTS)

    def predict_y(
        self, Xnew: Any, *, exposure: Any = None, trials: Any = None, output: int | None = None
    ) -> Predictive:
        """The corrected distribution of y at new inputs; see `Solution.predict_y`."""
        return predictive_of(self.solution.model.plain_likelihood, self.predict(Xnew), exposure, trials, output)

    def _predicted(self, x: Float[np.ndarray, "k d"]) -> Skewed:
        solution, k = self.solution, len(x)
        around, rows = at_new(solution.model, solution.X, x), padded_rows(solution)
        prior = padded_prior(solution.model, solution.X)
        found = to_numpy(_at(prior, rows.share, rows.sites, around, self.vertices, signed=rows.signed))
        latent, by = jax.tree.map(lambda column: column[:k], found)
        variance = above_rounding(latent.variance, np.asarray(around[2])[:k], len(solution.X))
        return _skewed(Normal(latent.mean, variance), by, "Xnew")


@float64
def correct(solution: Solution) -> Corrected:
    """The corrections of a solution, or an error that says why there are none."""
    _check(solution)
    model, n, size = solution.model, len(solution.X), bucket(len(solution.X))
    prior = model.process.refined(padded_prior(model, solution.X))
    if size > (most := prior.largest_joint):
        has = f"computes for at most {most} rows; got {n}" if most else "does not have"
        raise ValueError(
            f"corrections need the joint posterior of all rows, which {type(model.process).__name__} {has}: use the "
            "default process, or fewer rows"
        )
    weight, share, sites, signed = padded_rows(solution)
    rows = (pad(solution.data, size), weight)
    found = _corrected(solution.method, model.plain_likelihood, prior, share, sites, *rows, signed=signed)
    by, evidence, marginals, change = to_numpy(found)
    marginals, change = jax.tree.map(lambda column: column[:n], (marginals, change))
    if not np.isfinite(evidence):
        raise ValueError("corrections need proper cavities: omit the rows whose loo is NaN")
    doubt = 0.5 * np.sqrt(change.mean**2 + change.variance**2 / 2.0 + change.skewness**2 / 6.0)
    corrected = _skewed(marginals, change, "X")
    return Corrected(solution.log_evidence + float(evidence), corrected, doubt, solution, by)


def _check(solution: Solution) -> None:
    """Refuse what the expansion does not hold for."""
    method = solution.method
    matched = isinstance(method, EP) and method.power == 1.0
    known = matched and (isinstance(method.projection, KL) or method.projection == Wasserstein(2.0))
    if not known:
        raise ValueError(
            "corrections are supported for EP and QP, whose tilted densities have the posterior's means; got "
            f"{method!r}: infer with method='ep'"
        )
    if not solution.converged:
        raise ValueError(f"corrections expand around a fixed point, and inference did not converge: {solution.status}")
    if solution.posterior is not None:
        raise ValueError(
            "corrections need all rows in one place, and these were divided among devices: run infer again on one "
            "device, or in one process, from fitted.model"
        )
    if solution.data is None:
        raise ValueError(
            "the solution has no observations (its file was written by an earlier version): run infer again"
        )
    several = solution.weights is not None and (solution.weights > 1.0).any()
    if several and solution.model.process.copies_apart:
        raise ValueError(
            f"with {type(solution.model.process).__name__} a row of weight above 1 represents several observations, "
            "which corrections cannot separate: repeat the rows (np.repeat(X, weights, axis=0), y likewise)"
        )


@partial(program, static_argnames="signed")
def _corrected(
    method: EP,
    likelihood: Likelihood,
    prior: Prior,
    share: Array,
    sites: Natural,
    data: Datum,
    weight: Weight,
    signed: bool,
) -> tuple[Vertices, Array, Normal, Shifts]:
    """Vertices of the rows, what the evidence lacks, the Gaussian marginals and what changes in them."""
    met = prior.for_shares(share)
    given = met.condition(sites, signed)
    at, covariance = given.marginals, met.joint(given, signed).covariance
    sd = jnp.sqrt(at.variance)
    rho = jnp.where(jnp.eye(len(sd), dtype=bool), 1.0, covariance / (sd[:, None] * sd))
    copies = jnp.where(weight.total > 0, weight.copies, 0.0)
    c = cumulants(method, likelihood, data, weight, at, sites)
    by = vertices(c, rho, copies, sd)
    return by, evidence_shift(c, rho, copies), Normal(at.mean, at.variance), shifts(by, rho)


@partial(program, static_argnames="signed")
def _at(prior: Prior, share: Array, sites: Natural, around: tuple, by: Vertices, signed: bool) -> tuple[Normal, Shifts]:
    """The Gaussian at new inputs, and what changes in it. Its mean is linear in ν, and the slope is the covariance."""

    def latent(nu: Array) -> tuple[Array, Array]:
        found = prior.for_shares(share).predictor(Natural(nu, sites.tau), signed).at(*around)
        return found.mean, found.variance

    mean, back, variance = jax.vjp(latent, sites.nu, has_aux=True)
    covariance = jax.vmap(lambda one: back(one)[0])(jnp.eye(len(mean)))
    own = jnp.maximum(variance, jnp.finfo(variance.dtype).tiny)
    return Normal(mean, variance), shifts(by, covariance / (jnp.sqrt(own)[:, None] * by.sd))


def _skewed(gaussian: Normal, by: Any, name: str) -> Skewed:
    """The changed marginals, where the change leaves a variance."""
    growth = 1.0 + by.variance
    if not (growth > 0).all():
        row = int(np.argmin(growth))
        raise ValueError(
            f"the correction leaves no variance at row {row} of {name} ({growth[row]:.2g} of the Gaussian's): the "
            "expansion fails, and the Gaussian posterior should not be trusted; sample the posterior "
            "(quantprop.reference)"
        )
    sd = np.sqrt(gaussian.variance)
    return Skewed(gaussian.mean + sd * by.mean, gaussian.variance * growth, by.skewness / growth**1.5)
