"""The exact derivative of an objective at a fixed point of the sites.

A fixed point s = R(s, θ) moves with the hyperparameters θ, and with it every objective J(s, θ) that is not stationary
in the sites (all but the evidence of EP and power EP and the bound of VB). By the implicit function theorem

    dJ/dθ = ∂J/∂θ + yᵀ ∂R/∂θ,   (I − ∂R/∂s)ᵀ y = ∂J/∂s.

Everything is written in the scaled coordinates p = σ(δν − μ δτ), q = σ² δτ of each datum, in which the marginals answer
the sites through the posterior correlations ρ alone: with P = δμ/σ and Q = −δσ²/σ², P = ρ p and Q = (ρ ∘ ρ) q. A
datum's rule sees its site (p, q) and the rest of the model c = (P − p, Q − q), whose own-datum part is exactly zero.
So the adjoint equation needs two n × n products a step and no 2n × 2n matrix.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.sparse.linalg import gmres
from jaxtyping import Array, Float

from quantprop.engine.fixed_point import Problem
from quantprop.gaussian import Natural
from quantprop.likelihoods.base import Scalar
from quantprop.methods.base import Summary
from quantprop.objectives import Objective
from quantprop.priors.base import Posterior, Response
from quantprop.sites import Marginal

TOLERANCE = 1e-10  # of the adjoint equation, relative to its right side
RESTART = 40
CYCLES = 10


class Gradient(eqx.Module):
    """dJ in the prior's mean and covariance and in the likelihood's numbers (flattened)."""

    mean: Float[Array, " n"]
    covariance: Float[Array, "n n"]
    likelihood: Float[Array, " l"]
    adjoint_residual: Scalar  # of the adjoint equation, relative: how far the gradient can be trusted


class Slopes(eqx.Module):
    """Derivatives of one datum's renewed site (p, q) and value in its surroundings c, its site, and the likelihood."""

    around: Float[Array, "3 2"]
    site: Float[Array, "3 2"]
    likelihood: Float[Array, "3 l"]


def moved(marginal: Marginal, site: Natural, c: Array, s: Array) -> tuple[Marginal, Natural]:
    """Marginal and site after a small move: c of the surroundings and s of the site, both as (p, q).

    The changes of b = 1 − τσ² and α = ν − τμ are written so that nothing cancels where b is small.
    """
    sd = jnp.sqrt(marginal.variance)
    p, q = c + s
    new = Marginal(
        marginal.mean + sd * p,
        marginal.variance * (1.0 - q),
        marginal.alpha + (marginal.b * s[0] - (1.0 - marginal.b) * c[0]) / sd,
        marginal.b + (1.0 - marginal.b) * c[1] - marginal.b * s[1],
    )
    by_tau = s[1] / marginal.variance
    return new, Natural(site.nu + s[0] / sd + marginal.mean * by_tau, site.tau + by_tau)


def slopes(problem: Problem, objective: Objective, marginals: Marginal, sites: Natural) -> tuple[Array, Slopes]:
    """Every datum's value, and the derivatives of its rule; zero where the weight is zero."""
    flat, rebuilt = ravel_pytree(problem.likelihood)

    def one(datum, weight, marginal, site):
        def rule(c, s, lik):
            likelihood = rebuilt(lik)
            near, own = moved(marginal, site, c, s)
            new = problem.method.renew(likelihood, datum, weight, near, own)
            value = objective.local(likelihood, datum, weight, near, own, new)
            p = jnp.sqrt(marginal.variance) * (new.site.nu - marginal.mean * new.site.tau)
            return jnp.stack([p, marginal.variance * new.site.tau, value])

        nothing = jnp.zeros(2)
        value = rule(nothing, nothing, flat)[2]
        return value, Slopes(*jax.jacfwd(rule, argnums=(0, 1, 2))(nothing, nothing, flat))

    value, slope = jax.vmap(one)(problem.data, problem.weight, marginals, sites)
    counts = problem.weight.total > 0
    slope = jax.tree.map(lambda x: jnp.where(counts[:, None, None], x, 0.0), slope)
    return jnp.where(counts, value, 0.0), slope


class Pull(eqx.Module):
    """∂J of everything that is not local, as cotangents."""

    value: Float[Array, " n"]
    around: Float[Array, "2 n"]
    site: Float[Array, "2 n"]
    log_determinant: Scalar
    mean: Float[Array, " n"]


def pull(problem: Problem, objective: Objective, post: Posterior, sites: Natural, values: Array) -> Pull:
    """∂J/∂(values, surroundings, sites, log |I + S K|, prior mean) of the objective's total."""

    def total(values, c, s, log_determinant, mean):
        near, own = jax.vmap(moved, in_axes=(0, 0, 1, 1))(post.marginals, sites, c, s)
        summary = Summary(mean, own, near, log_determinant, problem.weight.total)
        return objective.total(problem.method, values, summary)

    nothing = jnp.zeros((2, len(values)))
    by = jax.grad(total, argnums=(0, 1, 2, 3, 4))(values, nothing, nothing, post.log_determinant, problem.prior.mean)
    return Pull(*by)


def adjoint(slope: Slopes, correlation: Array, right: Float[Array, "2 n"], scale: Scalar) -> tuple[Array, Scalar]:
    """y of (I − ∂R/∂s)ᵀ y = right, and what is left of the equation, both relative to `scale`."""
    squared = correlation**2

    def others(x):  # (M − I)ᵀ x: what the surroundings of each datum send back to all sites
        return jnp.stack([correlation @ x[0], squared @ x[1]]) - x

    def operator(y):
        around = jnp.einsum("nij,in->jn", slope.around[:, :2], y)
        site = jnp.einsum("nij,in->jn", slope.site[:, :2], y)
        return y - site - others(around)

    y, _ = gmres(operator, right, tol=TOLERANCE, atol=TOLERANCE * scale, restart=RESTART, maxiter=CYCLES,
                 solve_method="batched")  # fmt: skip
    return y, jnp.linalg.norm(operator(y) - right) / scale


def gradient(problem: Problem, objective: Objective, sites: Natural, exact: bool) -> tuple[Scalar, Gradient]:
    """The objective at a fixed point and its total derivative; with the sites held fixed if not `exact`."""
    post = problem.prior.posterior(sites, problem.negative_sites)
    response = problem.prior.response(sites, problem.negative_sites)
    values, slope = slopes(problem, objective, post.marginals, sites)
    total = pull(problem, objective, post, sites, values)
    around = total.around + jnp.einsum("nj,n->jn", slope.around[:, 2], total.value)
    lik = jnp.einsum("nl,n->l", slope.likelihood[:, 2], total.value)
    left = jnp.zeros(())
    if exact:
        site = total.site + jnp.einsum("nj,n->jn", slope.site[:, 2], total.value)
        site = site.at[1].add(total.log_determinant)  # ∂ log |I + S K| = Σ σ² δτ
        sd = jnp.sqrt(post.marginals.variance)
        correlation = response.covariance / (sd[:, None] * sd)
        sent = jnp.stack([correlation @ around[0], correlation**2 @ around[1]]) - around
        counts = problem.weight.total > 0
        right = jnp.where(counts, site + sent, 0.0)
        scale = jnp.linalg.norm(site) + jnp.linalg.norm(sent)
        y, left = adjoint(slope, correlation, right, scale)
        around = around + jnp.einsum("nij,in->jn", slope.around[:, :2], y)
        lik = lik + jnp.einsum("nil,in->l", slope.likelihood[:, :2], y)
    values_total = objective.total(
        problem.method,
        values,
        Summary(problem.prior.mean, sites, post.marginals, post.log_determinant, problem.weight.total),
    )
    return values_total, to_prior(problem, post, response, sites, around, total, lik, left)


def to_prior(
    problem: Problem, post: Posterior, response: Response, sites: Natural, around: Array, total: Pull, lik: Any, left: Any
) -> Gradient:
    """Cotangents of the surroundings carried back to the prior: δμ = A(δm + δK α), δΣ = A δK Aᵀ."""
    m = post.marginals
    by_mean, by_variance = around[0] / jnp.sqrt(m.variance), -around[1] / m.variance
    a = response.transfer
    sent = a.T @ by_mean
    outer = 0.5 * (sent[:, None] * m.alpha + m.alpha[:, None] * sent)
    covariance = outer + a.T @ (by_variance[:, None] * a) + total.log_determinant * sites.tau[:, None] * a
    return Gradient(total.mean + sent, covariance, lik, left)
