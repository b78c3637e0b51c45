"""One site at a time with rank-one updates of the posterior: the paper's Algorithm 1."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from quantprop.core.gaussian import Natural
from quantprop.core.sites import Marginal
from quantprop.inference.engine.fixed_point import Evaluation, InferenceProblem, Outcome, conditioned, outcome, swept
from quantprop.likelihoods.base import Scalar
from quantprop.methods.base import renewal
from quantprop.priors.base import Conditioned


class JointPosterior(NamedTuple):
    """The joint posterior in the middle of a sweep; alpha and b as in `Marginal`, maintained by their own updates."""

    sites: Natural
    mean: Float[Array, " n"]
    covariance: Float[Array, "n n"]
    alpha: Float[Array, " n"]
    b: Float[Array, " n"]


def renew_one(problem: InferenceProblem, i: Int[Array, ""], joint: JointPosterior) -> JointPosterior:
    """Renew site i and carry the change through the posterior.

    A site whose cavity is improper, or whose change would make the posterior improper, is left for a later sweep.
    """
    row = jax.tree.map(lambda x: x[i], (problem.data, problem.weight, joint.sites))
    column = joint.covariance[:, i]
    here = Marginal(joint.mean[i], column[i], joint.alpha[i], joint.b[i])
    new = renewal(problem.method, problem.likelihood, row[0], row[1], here, row[2])
    d_tau, d_nu = new.site.tau - row[2].tau, new.site.nu - row[2].nu
    grown = 1.0 + d_tau * column[i]
    usable = new.proper & (row[1].total > 0) & jnp.isfinite(d_nu) & (grown > 0)
    d_tau, d_nu, grown = jnp.where(usable, d_tau, 0.0), jnp.where(usable, d_nu, 0.0), jnp.where(usable, grown, 1.0)
    push = (d_nu - d_tau * here.mean) / grown
    pull = d_tau / grown
    tau = joint.sites.tau
    return JointPosterior(
        Natural(joint.sites.nu.at[i].add(d_nu), tau.at[i].add(d_tau)),
        joint.mean + push * column,
        joint.covariance - pull * column[:, None] * column,
        (joint.alpha - tau * push * column).at[i].set(here.alpha + push * here.b),
        (joint.b + tau * pull * column**2).at[i].set(here.b / grown),
    )


def solve_sequential(problem: InferenceProblem, start: Natural, tol: Scalar, max_sweeps: Array | int) -> Outcome:
    """Sweep through the sites until the residual is at most `tol`; the posterior is rebuilt after every sweep.

    Rank-one updates accumulate rounding errors: where a sweep ends in sites without a proper posterior, the sites
    before it are the result.
    """
    problem = problem.for_sweeps()
    first, factor = swept(problem, start)

    def unfinished(state):
        at, _, sweeps, going = state
        return (at.residual > tol) & (sweeps < max_sweeps) & going

    def sweep(state: tuple[Evaluation, Any, Array, Array]):
        at, factor, sweeps, _ = state
        new, factor = swept(problem, one_by_one(problem, conditioned(at, factor)))
        kept = jax.tree.map(lambda after, before: jnp.where(new.proper, after, before), new, at)
        return kept, factor, sweeps + 1, new.proper

    at, _, sweeps, going = jax.lax.while_loop(unfinished, sweep, (first, factor, jnp.asarray(0), first.proper))
    return outcome(at, sweeps, tol, ~going, first.proper)


def one_by_one(problem: InferenceProblem, post: Conditioned) -> Natural:
    """Every site renewed once, one after the other, from the posterior under all of them."""
    covariance, at = problem.prior.joint(post, problem.negative_sites).covariance, post.marginals
    joint = JointPosterior(post.sites, at.mean, covariance, at.alpha, at.b)
    return jax.lax.fori_loop(0, len(at.mean), lambda i, j: renew_one(problem, i, j), joint).sites
