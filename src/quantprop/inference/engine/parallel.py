"""All sites at once: Anderson acceleration with a safeguard."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float, Int

from quantprop.core.gaussian import Natural
from quantprop.inference.engine.fixed_point import Evaluation, InferenceProblem, Outcome, outcome, scaled, swept
from quantprop.likelihoods.base import Scalar
from quantprop.priors import Prior

MEMORY_DEPTH = 5  # Anderson acceleration; 10 failed in trials
GROWTH = 2.0  # a residual may grow by this factor in one step before it is undone
SMALLEST_STEP = 1e-6
MERIT_ROUNDING = 1e-10  # relative
PATIENCE = 60  # sweeps; acceleration that has not converged by then circles a near-solution, which plain steps leave
LINEAR_RESIDUAL = 1.0  # changes of sites that may be negative are extrapolated up to here


class Memory(NamedTuple):
    """Anderson's memory: the last accepted sites and their proposed changes, (ν, τ) each; `held` are in use."""

    sites: Float[Array, "m 2 ..."]
    changes: Float[Array, "m 2 ..."]
    held: Int[Array, ""]


class SweepState(NamedTuple):
    """Between two sweeps. `factor` is the prior's for the last trial, and for the accepted sites on convergence."""

    trial: Natural
    accepted: Evaluation
    factor: Any
    memory: Memory
    step: Scalar
    sweeps: Int[Array, ""]


def accelerated(problem: InferenceProblem, memory: Memory, at: Evaluation, step: Scalar) -> Natural:
    """Anderson's proposal from the memory, its least squares in the scaled coordinates of the current marginals."""
    used = jnp.expand_dims(jnp.arange(MEMORY_DEPTH) < memory.held, tuple(range(1, memory.sites.ndim)))
    sites, change = _both(at.sites), _both(at.onward)
    d_sites = jnp.where(used, sites - memory.sites, 0.0)
    d_change = jnp.where(used, change - memory.changes, 0.0)
    basis = jax.vmap(lambda c: scaled(problem, Natural(*c), at.marginals))(d_change)
    basis, target = basis.reshape(MEMORY_DEPTH, 2, -1), scaled(problem, at.onward, at.marginals).reshape(2, -1)
    norm = jnp.sqrt(jnp.sum(basis**2, axis=(1, 2)))
    unit = basis / jnp.where(norm > 0, norm, 1.0)[:, None, None]
    gram = jnp.einsum("ain,bin->ab", unit, unit) + jnp.diag(jnp.where(norm > 0, 1e-12, 1.0))
    factor = jax.lax.linalg.cholesky(gram, symmetrize_input=False)
    gamma = cho_solve((factor, True), jnp.einsum("ain,in->a", unit, target)) / jnp.where(norm > 0, norm, 1.0)
    return Natural(*(sites + step * change - jnp.tensordot(gamma, d_sites + step * d_change, axes=1)))


def _both(part: Natural) -> Float[Array, "2 ..."]:
    return jnp.stack([part.nu, part.tau])


def remember(memory: Memory, at: Evaluation) -> Memory:
    """The memory with one more sweep in front and the oldest dropped."""
    sites, changes = (
        jnp.concatenate([_both(new)[None], old[:-1]])
        for old, new in ((memory.sites, at.sites), (memory.changes, at.onward))
    )
    return Memory(sites, changes, jnp.minimum(memory.held + 1, MEMORY_DEPTH))


def propose(problem: InferenceProblem, memory: Memory, at: Evaluation, step: Scalar) -> Natural:
    """The next sites to try: accelerated if there is a memory, otherwise a step towards the updated sites."""
    plain = jax.tree.map(lambda x, r: x + step * r, at.sites, at.onward)
    fast = jax.tree.map(lambda a, p: jnp.where(memory.held > 0, a, p), accelerated(problem, memory, at, step), plain)
    if problem.negative_sites:
        return fast
    # The renewed sites of a log-concave likelihood have τ ≥ 0; extrapolation may leave that cone, datum by datum.
    return jax.tree.map(lambda a, p: jnp.where(fast.tau < 0, p, a), fast, plain)


def improved(problem: InferenceProblem, new: Evaluation, old: Evaluation) -> Bool[Array, ""]:
    """Return whether a sweep may be kept: its merit grew (VB, Laplace), or its residual did not grow much (EP, QP).

    Near its maximum a merit moves by less than its rounding; there a residual that shrinks is proof enough.
    """
    if problem.method.ascends and problem.prior.one_gaussian:
        level = new.merit >= old.merit - MERIT_ROUNDING * (1.0 + jnp.abs(old.merit))
        return new.proper & ((new.merit >= old.merit) | (level & (new.residual <= old.residual)))
    return new.proper & (new.residual <= GROWTH * old.residual)


def solve_parallel(
    problem: InferenceProblem, start: Natural, tol: Scalar, max_sweeps: Array | int
) -> tuple[Outcome, Prior, Any]:
    """Renew all sites at once until the residual is at most `tol`; also what derivatives at the converged sites need of
    the prior and of its factor.

    A step that is not an improvement is undone, the memory dropped and the step halved; it grows back by doubling.
    A method without a merit takes plain half steps after PATIENCE sweeps, and far from the solution if sites may be
    negative.
    """
    problem = problem.for_sweeps()
    shapes = jax.eval_shape(swept, problem, start)
    blank, factor = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)  # replaced by the first sweep
    nothing = jnp.zeros((MEMORY_DEPTH, 2, *start.nu.shape))
    memory = Memory(nothing, nothing, jnp.asarray(0))
    state = SweepState(start, blank, factor, memory, jnp.asarray(1.0), jnp.asarray(0))

    def unfinished(s: SweepState):
        going = (s.accepted.residual > tol) & (s.sweeps < max_sweeps) & (s.step > SMALLEST_STEP) & s.accepted.proper
        return going | (s.sweeps == 0)

    def sweep(s: SweepState):
        new, factor = swept(problem, s.trial)
        first = s.sweeps == 0
        far = (s.accepted.residual > LINEAR_RESIDUAL) & problem.negative_sites
        plain = ((s.sweeps >= PATIENCE) | far) & (not (problem.method.ascends and problem.prior.one_gaussian))
        good = first | improved(problem, new, s.accepted) | (plain & new.proper)
        memory = remember(s.memory, s.accepted)
        memory = memory._replace(held=jnp.where(good & ~plain & ~first, memory.held, 0))
        at = jax.lax.cond(good, lambda: new, lambda: s.accepted)
        step = jnp.where(good, jnp.minimum(jnp.where(plain, 0.5, 1.0), 2.0 * s.step), 0.5 * s.step)
        return SweepState(propose(problem, memory, at, step), at, factor, memory, step, s.sweeps + 1)

    end = jax.lax.while_loop(unfinished, sweep, state)
    out = outcome(end.accepted, end.sweeps, tol, end.step <= SMALLEST_STEP, end.accepted.proper)
    return out, *problem.prior.for_derivatives(end.factor)
