"""How `infer` reaches a fixed point: what is tried, in one declared order, until inference converges.

Every strategy is a pure function of the request and of how the one before it ended, and returns how it ended itself, or
None if it does not apply.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quantprop.gaussian import Natural
from quantprop.inference.continuation import continued
from quantprop.inference.engine import InferenceProblem, Outcome, solve_parallel, solve_sequential
from quantprop.inference.status import CONVERGED, REASONS
from quantprop.likelihoods.base import Scalar
from quantprop.methods import EP
from quantprop.priors import Prior
from quantprop.runtime.programs import program


class FixedPointWarning(UserWarning):
    """A method has no fixed point on these data, and the solution is another method's."""


class Request(NamedTuple):
    """The problem, and how inference is to go."""

    problem: InferenceProblem
    start: Natural
    schedule: str
    tol: float
    max_sweeps: int

    @property
    def hopeless(self) -> bool:
        """True if the prior gives a datum no variance: it has no cavity, whatever is tried."""
        return without_variance(self.problem.prior, self.problem.weight.total)


class Ended(NamedTuple):
    """How a strategy ended: for `problem`, whose method may be a fallback, and by which way."""

    problem: InferenceProblem
    out: Outcome
    schedule: str
    start: Natural

    @property
    def reason(self) -> str:
        """Why it ended."""
        return REASONS[int(self.out.reason)]


@program
def _parallel(problem: InferenceProblem, start: Natural, tol: Scalar, max_sweeps: Scalar) -> Outcome:
    return solve_parallel(problem, start, tol, max_sweeps)[0]


_sequential = program(solve_sequential)
_some_without_variance = program(lambda prior, weight: jnp.any((prior.variances() == 0.0) & (weight > 0)))


def without_variance(prior: Prior, weight: jax.Array) -> bool:
    """Whether the prior gives a datum no variance: it has no cavity, whatever the schedule."""
    return bool(_some_without_variance(prior, weight))


def small_rule(asked: Request, failed: Ended | None) -> Ended | None:
    """Parallel sweeps with the small quadrature rule, if the method integrates."""
    quick = asked.problem.with_few_nodes()
    if asked.schedule == "sequential" or quick is asked.problem:
        return None
    return Ended(asked.problem, _parallel(quick, asked.start, asked.tol, asked.max_sweeps), asked.schedule, asked.start)


def sweeps(asked: Request, failed: Ended | None) -> Ended:
    """Sweeps by the schedule that was asked for."""
    problem, start, schedule, tol, max_sweeps = asked
    if schedule == "parallel":
        return Ended(problem, _parallel(problem, start, tol, max_sweeps), schedule, start)
    if len(start.nu) > problem.prior.largest_joint:
        raise ValueError(
            f"the sequential schedule needs the joint posterior of all rows, which this process has up to "
            f"{problem.prior.largest_joint} rows; use schedule='parallel'"
        )
    return Ended(problem, _sequential(problem, start, tol, max_sweeps), schedule, start)


def from_prior(asked: Request, failed: Ended) -> Ended | None:
    """Sweeps from no sites, if the starting sites give an improper posterior in double precision."""
    if failed.reason != "improper-start" or asked.schedule == "sequential" or not bool(jnp.any(asked.start.tau != 0)):
        return None
    again = asked._replace(start=jax.tree.map(jnp.zeros_like, asked.start))
    return tried(again, (small_rule, sweeps))


def one_at_a_time(asked: Request, failed: Ended) -> Ended | None:
    """Sequential sweeps from the start, if parallel ones got stuck; the better end of the two."""
    problem, out = asked.problem, failed.out
    if asked.schedule == "sequential" or failed.reason == "max-sweeps" or not isinstance(problem.method, EP):
        return None
    if asked.hopeless or len(asked.start.nu) > problem.prior.largest_joint:
        return None
    again = _sequential(problem, failed.start, asked.tol, asked.max_sweeps - int(out.sweeps))
    total = Outcome(again.at, again.sweeps + out.sweeps, again.reason)
    better = bool(again.at.residual < out.at.residual)
    return failed._replace(out=total, schedule="parallel, then sequential") if better else None


def continuation(asked: Request, failed: Ended) -> Ended | None:
    """Newton's method, or a path of fixed points."""
    out = failed.out
    if asked.hopeless or len(out.at.sites.nu) > asked.problem.prior.largest_joint:
        return None
    at, visits = continued(asked.problem, out.at.sites, asked.tol)
    if at is None:
        return None
    out = replace(out, at=at, sweeps=out.sweeps + visits, reason=np.asarray(CONVERGED))
    return failed._replace(out=out, schedule=f"{failed.schedule}, then continuation")


def fallback(asked: Request, failed: Ended) -> Ended | None:
    """The answer of another method, if this one has none and names one."""
    method, instead = asked.problem.method, asked.problem.method.stand_in
    if instead is None or asked.hopeless:
        return None
    found = tried(asked._replace(problem=replace(asked.problem, method=instead)), (*BY_SWEEPS, continuation))
    if found.reason != "converged":
        return None
    warnings.warn(
        f"{method!r} did not reach a fixed point ({failed.reason}): the solution is that of {instead!r}, as "
        "solution.method says",
        FixedPointWarning,
        stacklevel=6,
    )
    return found._replace(schedule=f"{failed.schedule}, then {instead!r} ({found.schedule}) in place of {method!r}")


Strategy = Callable[[Request, "Ended | None"], "Ended | None"]
BY_SWEEPS: Sequence[Strategy] = (small_rule, sweeps, from_prior, one_at_a_time)
OTHERWISE: Sequence[Strategy] = (continuation, fallback)


def tried(asked: Request, strategies: Sequence[Strategy], ended: Ended | None = None) -> Any:
    """How the first strategy that converged ended, or the last one that applied."""
    for strategy in strategies:
        if ended is not None and ended.reason == "converged":
            break
        ended = strategy(asked, ended) or ended
    return ended
