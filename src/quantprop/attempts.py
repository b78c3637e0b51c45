"""Inference by a schedule, and the ways round where it gets stuck."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from quantprop.engine import REASONS, Outcome, Problem, solve_parallel, solve_sequential
from quantprop.gaussian import Natural
from quantprop.methods import EP
from quantprop.precision import to_numpy
from quantprop.priors import DensePrior, Prior
from quantprop.programs import program

SHARES = (1e-6, 1e-4, 1e-2, 0.1, 0.5, 1.0)  # of the prior covariance, on the way to a posterior that is hard to reach

_parallel, _sequential = program(solve_parallel), program(solve_sequential)


def solve(problem: Problem, start: Natural, schedule: str, tol: float, max_sweeps: int) -> tuple[Outcome, str]:
    """Run the schedule. Where parallel sweeps get stuck, the posterior is approached through smaller prior covariances,
    and after that by sequential sweeps; of these the one that comes closest to rest is returned.

    Where the start has no proper posterior in double precision, sweeps start from the prior.
    """
    if schedule == "sequential":
        return _sequential(problem, start, tol, max_sweeps), schedule
    out = _parallel(problem, start, tol, max_sweeps)
    if _reason(out) == "improper-start" and np.any(start.tau):
        start = jax.tree.map(np.zeros_like, start)
        out = _parallel(problem, start, tol, max_sweeps)
    if _reason(out) in ("converged", "max-sweeps", "improper-start"):
        return out, schedule
    approached = _approached(problem, start, tol, max_sweeps, out)
    if approached is not out:
        out, schedule = approached, "parallel, through smaller prior covariances"
    left = max_sweeps - int(out.sweeps)
    if _reason(out) == "converged" or left < 1 or not isinstance(problem.method, EP):
        return out, schedule
    again = _sequential(problem, start, tol, left)
    total = Outcome(again.at, again.sweeps + out.sweeps, again.reason)
    return (total, "parallel, then sequential") if _closer(again, out) else (out, schedule)


def _reason(out: Outcome) -> str:
    return REASONS[int(out.reason)]


def _closer(new: Outcome, old: Outcome) -> bool:
    return bool(new.at.residual < old.at.residual)  # False where either is NaN


def _approached(problem: Problem, start: Natural, tol: float, max_sweeps: int, stuck: Outcome) -> Outcome:
    """The outcome at the end of a path of growing prior covariances, each begun from the sites of the one before; the
    one that got stuck if that comes closer to rest, or if no sweeps are left.
    """
    used, out, prior = int(stuck.sweeps), stuck, problem.prior
    if not isinstance(prior, DensePrior):
        return stuck
    for share in SHARES:
        if used >= max_sweeps:
            return stuck
        smaller = eqx.tree_at(lambda p: p.prior, problem, _times(share, prior))
        out = _parallel(smaller, start, tol, max_sweeps - used)
        used += int(out.sweeps)
        if bool(out.at.proper):
            start = Natural(*to_numpy((out.at.sites.nu, out.at.sites.tau)))
    return Outcome(out.at, jnp.asarray(used), out.reason) if _closer(out, stuck) else stuck


def _times(share: float, prior: DensePrior) -> DensePrior:
    """A prior of `share` of the covariance; of the same form, so that it needs no program of its own."""
    low = None if prior.low is None else np.sqrt(share) * prior.low
    return DensePrior(prior.mean, share * prior.k, low)


def is_covariance(prior: Prior) -> bool:
    """Whether a kernel matrix has no negative eigenvalue beyond rounding; other priors are covariances by construction."""
    if not isinstance(prior, DensePrior):
        return True
    eigenvalues = np.linalg.eigvalsh(np.asarray(prior.k))
    return bool(eigenvalues[0] >= -len(eigenvalues) * 1e-14 * max(eigenvalues[-1], 0.0))
