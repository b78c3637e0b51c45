"""The exact derivative of an objective at a fixed point of the sites.

A fixed point s = R(s, θ) moves with the hyperparameters θ, and with it every objective J(s, θ) that is not stationary
in the sites (all but the evidence of EP and power EP and the bound of VB). By the implicit function theorem

    dJ/dθ = ∂J/∂θ + yᵀ ∂R/∂θ,   (I − ∂R/∂s)ᵀ y = ∂J/∂s.

Everything is written in the scaled coordinates p = σ(δν − μ δτ), q = σ² δτ of each datum, in which the marginals
respond to the sites through the posterior correlations ρ alone: with P = δμ/σ and Q = −δσ²/σ², P = ρ p and
Q = (ρ ∘ ρ) q. A datum's rule sees its site (p, q) and the rest of the model c = (P − p, Q − q), whose own-datum part is
exactly zero. So the adjoint equation needs the prior's response once per step and no 2n × 2n matrix.

Where the objective is stationary none of this is needed at the fixed point: its derivative in the prior is that of the
log integral of prior times sites.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from quantprop.core.gaussian import Natural
from quantprop.core.records import Record
from quantprop.core.sites import Marginal, change, moved
from quantprop.inference.engine.fixed_point import Evaluation, InferenceProblem, conditioned
from quantprop.learning.objectives import Objective
from quantprop.likelihoods.base import Scalar
from quantprop.methods.base import Summary, Weight, each_row, renewal
from quantprop.numerics.krylov import minimal_residual
from quantprop.priors.base import Cotangent, Moves, Prior, Response

# Residual of the adjoint equation, relative to its right side. It follows the residual of inference, in which the
# gradient's error is of first order too.
ADJOINT_TOL_PER_RESIDUAL = 0.1
MIN_ADJOINT_TOL, MAX_ADJOINT_TOL = 1e-9, 1e-6


class Gradient(Record):
    """dJ in the parameters of the prior and of the likelihood (flattened)."""

    prior: Prior
    likelihood: Float[Array, " l"]
    adjoint_residual: Scalar  # of the adjoint equation, relative


class Slopes(Record):
    """Derivatives of each observation's updated site and value, (p, q, value), in its surroundings c, its site, and
    the likelihood's parameters. An observation of several latent values has p and q of each of them.
    """

    around: Float[Array, "k k+1 n"]
    site: Float[Array, "k k+1 n"]
    likelihood: Float[Array, "l k+1 n"]


def slopes(
    problem: InferenceProblem, objective: Objective, marginals: Marginal, sites: Natural
) -> tuple[Array, Slopes]:
    """Every datum's value, and the derivatives of its rule; zero where the weight is zero."""
    flat, rebuilt = ravel_pytree(problem.likelihood)

    def rules(near, own, numbers):
        likelihood = rebuilt(numbers)
        data = (problem.data, problem.weight, near, own)
        new = each_row(partial(renewal, problem.method, likelihood), *data)
        value = each_row(partial(objective.local, likelihood), *data, new)
        p = jnp.sqrt(marginals.variance) * (new.site.nu - marginals.mean * new.site.tau)
        moves = jnp.stack([p, marginals.variance * new.site.tau])
        return jnp.concatenate([_by_row(moves), value[None]]), value

    nothing = jnp.zeros((2, *sites.nu.shape))
    k = len(_by_row(nothing))

    def along(direction):
        c, s, numbers = jnp.split(direction, (k, 2 * k))
        near, own = change(marginals, *(nothing + part.reshape(*nothing.shape[:-1], 1) for part in (c, s)))
        towards = (near, own, numbers.astype(flat.dtype))  # float32 if there are none
        _, slope, value = jax.jvp(rules, (marginals, sites, flat), towards, has_aux=True)
        return value, slope

    value, slope = jax.vmap(along, out_axes=(None, 0))(jnp.eye(2 * k + len(flat)))
    counts = problem.weight.total > 0
    return jnp.where(counts, value, 0.0), Slopes(*jnp.split(jnp.where(counts, slope, 0.0), (k, 2 * k)))


def _by_row(moves: Float[Array, "2 ... n"]) -> Float[Array, "k n"]:
    """All moves of a row in one column."""
    return moves.reshape(-1, moves.shape[-1])


class Pull(Record):
    """∂J of everything that is not local, as cotangents."""

    value: Float[Array, " n"]
    around: Moves
    site: Moves
    log_determinant: Scalar
    mean: Float[Array, "..."]


def pull(problem: InferenceProblem, objective: Objective, at: Evaluation, values: Array) -> tuple[Scalar, Pull]:
    """The objective's total, and ∂J/∂(values, surroundings, sites, log |I + S K|, prior mean) of it."""

    def total(values, c, s, log_determinant, mean):
        near, own = moved(at.marginals, at.sites, c, s)
        summary = Summary(mean, own, near, log_determinant, problem.weight.total)
        return objective.total(problem.method, values, summary)

    nothing = jnp.zeros((2, *at.marginals.mean.shape))
    value, by = jax.value_and_grad(total, argnums=(0, 1, 2, 3, 4))(
        values, nothing, nothing, at.log_determinant, problem.prior.mean
    )
    return value, Pull(*by)


def adjoint(slope: Slopes, response: Response, right: Moves, weight: Weight, tol: Scalar) -> tuple[Array, Scalar]:
    """y of (I − ∂R/∂s)ᵀ y = right, and what is left of the equation: `tol` if all went well.

    Solved for √w y, since each of the w copies of a row of weight w has the row's y: residuals are those of equal rows.
    """
    counts, root = weight.total > 0, jnp.sqrt(weight.copies)

    def others(x):  # (M − I)ᵀ x: what the surroundings of each datum send back to all sites
        return jnp.where(counts, response.sent_back(x) - x, 0.0)

    def operator(y):
        return y - _through(slope.site, y) - others(_through(slope.around, y))

    scaled, left = minimal_residual(lambda y: root * operator(y / root), root * right, tol)
    return scaled / root, left


def _through(slope: Float[Array, "k k+1 n"], y: Moves) -> Moves:
    """y of the renewed sites, carried back through a rule: products and sums that XLA fuses, unlike `einsum`."""
    each = enumerate(_by_row(y))
    return reduce(jnp.add, [slope[:, k] * own for k, own in each]).reshape(y.shape)


class LocalCotangent(Record):
    """Cotangents of each observation's surroundings and of the likelihood's parameters."""

    around: Moves
    likelihood: Float[Array, " l"]


def gradient(
    problem: InferenceProblem, objective: Objective, at: Evaluation, factor: Any, *, exact: bool
) -> tuple[Scalar, Gradient]:
    """The objective at a fixed point and its total derivative; with the sites fixed if not `exact`.

    `factor` is the prior's for these sites.
    """
    if exact and problem.prior.one_gaussian and objective.stationary(problem.method):
        return _stationary(problem, objective, at, factor)
    response = problem.prior.response(conditioned(at, factor), problem.negative_sites)
    values, slope = slopes(problem, objective, at.marginals, at.sites)
    value, total = pull(problem, objective, at, values)
    local = LocalCotangent(
        total.around + (slope.around[:, -1] * total.value).reshape(total.around.shape),
        slope.likelihood[:, -1] @ total.value,
    )
    moving = Moving(local, jnp.zeros(()), jnp.zeros(()))
    if exact:
        moving = with_moving_sites(problem, at, response, slope, total, local)
    by = response.to_prior(Cotangent(moving.local.around, total.log_determinant, total.mean))
    return value + moving.gain, Gradient(by, moving.local.likelihood, moving.adjoint_residual)


def _stationary(
    problem: InferenceProblem, objective: Objective, at: Evaluation, factor: Any
) -> tuple[Scalar, Gradient]:
    """The gradient of an objective that does not change with the sites: they and the marginals are held fixed."""
    flat, rebuilt = ravel_pytree(problem.likelihood)
    data = (problem.data, problem.weight, at.marginals, at.sites)

    def local(numbers):
        return each_row(partial(renewal, problem.method, rebuilt(numbers)), *data).value

    by = jax.jacfwd(local)(flat) if flat.size else jnp.zeros((len(at.values), 0))
    counts = problem.weight.total > 0
    values, by = jnp.where(counts, at.values, 0.0), jnp.where(counts[:, None], by, 0.0)
    summary = Summary(problem.prior.mean, at.sites, at.marginals, at.log_determinant, problem.weight.total)
    by_prior = problem.prior.evidence_slope(conditioned(at, factor), problem.negative_sites)
    value = objective.total(problem.method, values, summary)
    return value, Gradient(by_prior, jnp.sum(by, axis=0), jnp.zeros(()))


class Moving(Record):
    """Cotangents with what comes through the sites, what they still have to gain, and how well that was solved."""

    local: LocalCotangent
    gain: Scalar  # yᵀ(R(s) − s): the objective at the fixed point less that at these sites, to first order
    adjoint_residual: Scalar


def with_moving_sites(
    problem: InferenceProblem, at: Evaluation, response: Response, slope: Slopes, total: Pull, fixed: LocalCotangent
) -> Moving:
    """Let the sites follow the prior and the likelihood."""
    site = total.site + (slope.site[:, -1] * total.value).reshape(total.site.shape)
    site = site + total.log_determinant * response.of_determinant()
    mean, variance = at.marginals.mean, at.marginals.variance
    sd = jnp.sqrt(variance)
    weight, counts = problem.weight, problem.weight.total > 0
    one = fixed.around / weight.copies  # of one copy of a row, to whose surroundings the other copies belong
    site = jnp.where(counts, site - fixed.around + one, 0.0)
    sent = jnp.where(counts, response.sent_back(fixed.around) - one, 0.0)
    tol = jnp.clip(ADJOINT_TOL_PER_RESIDUAL * at.residual, MIN_ADJOINT_TOL, MAX_ADJOINT_TOL)
    scale = sum(jnp.sqrt(jnp.sum(weight.copies * part**2)) for part in (site, sent))
    y, left = adjoint(slope, response, site + sent, weight, tol * scale)
    left = left / jnp.where(scale > 0, scale, 1.0)
    around = fixed.around + _through(slope.around, y)
    likelihood = fixed.likelihood + jnp.einsum("lin,in->l", slope.likelihood[:, :-1], _by_row(y))
    renewed = jnp.stack([sd * (at.change.nu - mean * at.change.tau), variance * at.change.tau])
    return Moving(LocalCotangent(around, likelihood), jnp.sum(y * renewed), left)
