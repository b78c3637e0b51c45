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
            return jnp.stack([p, marginal.variance * new.site.tau, value]), value

        nothing = jnp.zeros(2)
        by, value = jax.jacfwd(rule, argnums=(0, 1, 2), has_aux=True)(nothing, nothing, flat)
        return value, Slopes(*by)

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


class Local(eqx.Module):
    """Cotangents of what the data see: each one's surroundings, and the likelihood's numbers."""

    around: Float[Array, "2 n"]
    likelihood: Float[Array, " l"]


def gradient(problem: Problem, objective: Objective, sites: Natural, exact: bool) -> tuple[Scalar, Gradient]:
    """The objective at a fixed point and its total derivative; with the sites held fixed if not `exact`."""
    post = problem.prior.posterior(sites, problem.negative_sites)
    response = problem.prior.response(sites, problem.negative_sites)
    values, slope = slopes(problem, objective, post.marginals, sites)
    total = pull(problem, objective, post, sites, values)
    local = Local(
        total.around + jnp.einsum("nj,n->jn", slope.around[:, 2], total.value),
        jnp.einsum("nl,n->l", slope.likelihood[:, 2], total.value),
    )
    left = jnp.zeros(())
    if exact and not objective.stationary(problem.method):
        local, left = with_moving_sites(problem, post, response, slope, total, local)
    summary = Summary(problem.prior.mean, sites, post.marginals, post.log_determinant, problem.weight.total)
    return objective.total(problem.method, values, summary), to_prior(post, response, sites, total, local, left)


def with_moving_sites(
    problem: Problem, post: Posterior, response: Response, slope: Slopes, total: Pull, fixed: Local
) -> tuple[Local, Scalar]:
    """The cotangents with what comes through the sites added, and the adjoint equation's relative residual."""
    site = total.site + jnp.einsum("nj,n->jn", slope.site[:, 2], total.value)
    site = site.at[1].add(total.log_determinant)  # ∂ log |I + S K| = Σ σ² δτ
    sd = jnp.sqrt(post.marginals.variance)
    correlation = response.covariance / (sd[:, None] * sd)
    sent = jnp.stack([correlation @ fixed.around[0], correlation**2 @ fixed.around[1]]) - fixed.around
    right = jnp.where(problem.weight.total > 0, site + sent, 0.0)
    y, left = adjoint(slope, correlation, right, jnp.linalg.norm(site) + jnp.linalg.norm(sent))
    around = fixed.around + jnp.einsum("nij,in->jn", slope.around[:, :2], y)
    return Local(around, fixed.likelihood + jnp.einsum("nil,in->l", slope.likelihood[:, :2], y)), left


def to_prior(post: Posterior, response: Response, sites: Natural, total: Pull, local: Local, left: Scalar) -> Gradient:
    """Cotangents of the surroundings carried back to the prior: δμ = A(δm + δK α), δΣ = A δK Aᵀ."""
    m, a = post.marginals, response.transfer
    by_mean, by_variance = local.around[0] / jnp.sqrt(m.variance), -local.around[1] / m.variance
    sent = a.T @ by_mean
    outer = 0.5 * (sent[:, None] * m.alpha + m.alpha[:, None] * sent)
    covariance = outer + a.T @ (by_variance[:, None] * a) + total.log_determinant * sites.tau[:, None] * a
    return Gradient(total.mean + sent, covariance, local.likelihood, left)
