"""The fixed point on Gaussian sites: every method's rule, brought to rest."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from quantprop.gaussian import Natural
from quantprop.likelihoods.base import Datum, Likelihood, Scalar
from quantprop.methods.base import Method, Summary, Weight
from quantprop.priors.dense import DensePrior, posterior
from quantprop.sites import Marginal

DEPTH = 5  # of Anderson's memory; 10 failed in trials
GROWTH = 2.0  # a residual may grow by this factor in one accelerated step before it is undone


class Problem(eqx.Module):
    """Everything that defines the fixed point."""

    likelihood: Likelihood
    method: Method
    prior: DensePrior
    data: Datum
    weight: Weight


class Evaluation(eqx.Module):
    """One sweep at given sites."""

    sites: Natural
    change: Natural  # new sites − sites
    marginals: Marginal
    values: Float[Array, " n"]
    residual: Scalar
    merit: Scalar
    evidence: Scalar
    proper: Bool[Array, ""]


def evaluate(problem: Problem, sites: Natural) -> Evaluation:
    """Posterior under the sites, every datum's renewed site, and how far the two are apart."""
    prior, weight, method = problem.prior, problem.weight, problem.method
    post = posterior(prior, sites, not problem.likelihood.log_concave)
    renew = jax.vmap(lambda *args: method.renew(problem.likelihood, *args))
    new = renew(problem.data, weight, post.marginals, sites)
    counts = weight.total > 0
    change = Natural(*(jnp.where(counts, n - o, 0.0) for n, o in ((new.site.nu, sites.nu), (new.site.tau, sites.tau))))
    values = jnp.where(counts, new.value, 0.0)
    residual = jnp.sqrt(jnp.sum(scaled(change, post.marginals) ** 2) / (2.0 * jnp.sum(counts)))
    summary = Summary(prior.mean, sites, post.marginals, post.log_determinant, weight.total)
    merit, evidence = method.merit(values, summary), method.evidence(values, summary)
    proper = post.proper & jnp.all(new.proper | ~counts) & jnp.isfinite(residual) & jnp.isfinite(merit)
    return Evaluation(sites, change, post.marginals, values, residual, merit, evidence, proper)


def scaled(change: Natural, at: Marginal) -> Float[Array, "2 n"]:
    """A change of sites in units of the marginals: (σ² Δτ, σ(Δν − μ Δτ)); free of the scale of f."""
    return jnp.stack([at.variance * change.tau, jnp.sqrt(at.variance) * (change.nu - at.mean * change.tau)])


class Memory(NamedTuple):
    """Anderson's memory: the last DEPTH accepted sites and their changes; `held` of them are in use."""

    sites: Natural
    changes: Natural
    held: Int[Array, ""]


class State(NamedTuple):
    trial: Natural
    accepted: Evaluation
    memory: Memory
    step: Scalar
    sweeps: Int[Array, ""]
    rejected: Int[Array, ""]


def accelerated(memory: Memory, at: Evaluation, step: Scalar) -> Natural:
    """Anderson's proposal from the memory, its least squares in the scaled coordinates of the current marginals."""
    used = jnp.arange(DEPTH) < memory.held
    d_sites = jax.tree.map(lambda old, now: jnp.where(used[:, None], now - old, 0.0), memory.sites, at.sites)
    d_change = jax.tree.map(lambda old, now: jnp.where(used[:, None], now - old, 0.0), memory.changes, at.change)
    basis = jax.vmap(lambda c: scaled(c, at.marginals).ravel())(d_change)  # DEPTH × 2n
    target = scaled(at.change, at.marginals).ravel()
    norm = jnp.sqrt(jnp.sum(basis**2, axis=1))
    unit = basis / jnp.where(norm > 0, norm, 1.0)[:, None]
    gram = unit @ unit.T
    gram = gram + jnp.diag(jnp.where(norm > 0, 1e-12, 1.0))
    gamma = jnp.linalg.solve(gram, unit @ target) / jnp.where(norm > 0, norm, 1.0)
    return jax.tree.map(
        lambda x, r, dx, dr: x + step * r - gamma @ (dx + step * dr), at.sites, at.change, d_sites, d_change
    )


def remember(memory: Memory, at: Evaluation) -> Memory:
    shift = lambda old, new: jnp.concatenate([new[None], old[:-1]])
    return Memory(
        jax.tree.map(shift, memory.sites, at.sites),
        jax.tree.map(shift, memory.changes, at.change),
        jnp.minimum(memory.held + 1, DEPTH),
    )


def propose(problem: Problem, memory: Memory, at: Evaluation, step: Scalar) -> Natural:
    """The next sites to try: accelerated where there is a memory, else a step towards the renewed sites."""
    plain = jax.tree.map(lambda x, r: x + step * r, at.sites, at.change)
    fast = jax.tree.map(lambda a, p: jnp.where(memory.held > 0, a, p), accelerated(memory, at, step), plain)
    if not problem.likelihood.log_concave:
        return fast
    # The renewed sites of a log-concave likelihood have τ ≥ 0; extrapolation may leave that cone, datum by datum.
    return jax.tree.map(lambda a, p: jnp.where(fast.tau < 0, p, a), fast, plain)


def solve_parallel(problem: Problem, start: Natural, tol, max_sweeps) -> State:
    n = len(start.nu)
    empty = Natural(jnp.zeros((DEPTH, n)), jnp.zeros((DEPTH, n)))
    first = evaluate(problem, start)
    zero = jnp.asarray(0)
    memory = Memory(empty, empty, zero)
    one = jnp.asarray(1.0)
    state = State(propose(problem, memory, first, one), first, memory, one, zero + 1, zero)

    def unfinished(s: State):
        return (s.accepted.residual > tol) & (s.sweeps < max_sweeps) & (s.step > 1e-8) & s.accepted.proper

    def sweep(s: State):
        e = evaluate(problem, s.trial)
        if problem.method.ascends:
            good = e.merit >= s.accepted.merit - 1e-12 * jnp.abs(s.accepted.merit)
        else:
            good = e.residual <= GROWTH * s.accepted.residual
        good = good & e.proper
        memory = remember(s.memory, s.accepted)
        memory = Memory(memory.sites, memory.changes, jnp.where(good, memory.held, 0))
        at = jax.tree.map(lambda a, b: jnp.where(good, a, b), e, s.accepted)
        step = jnp.where(good, jnp.minimum(1.0, 2.0 * s.step), 0.5 * s.step)
        return State(propose(problem, memory, at, step), at, memory, step, s.sweeps + 1, s.rejected + ~good)

    return jax.lax.while_loop(unfinished, sweep, state)
