"""Inference at fixed hyperparameters: `infer`."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from quantprop.core.gaussian import Natural, Normal
from quantprop.inference.classes import in_terms_of
from quantprop.inference.continuation import continued
from quantprop.inference.engine import PATIENCE, REASONS, InferenceProblem, Outcome, solve_parallel, solve_sequential
from quantprop.inference.leave_one_out import loo_apart, loo_at
from quantprop.inference.prediction import PrecisionWarning, predictor_at, prior_at
from quantprop.inference.solution import Solution, Status
from quantprop.inference.task import Task, leaves_residuals, prepare, starting_sites
from quantprop.inference.varying import kind_of
from quantprop.likelihoods.base import Scalar
from quantprop.methods import EP, QP, Method
from quantprop.methods import by_name as method_by_name
from quantprop.model import Model
from quantprop.priors import Prior
from quantprop.priors.base import finite
from quantprop.runtime.arguments import a, checked, choice
from quantprop.runtime.jobs import all_true, job_total
from quantprop.runtime.precision import float64, to_numpy
from quantprop.runtime.programs import program
from quantprop.runtime.threads import blas_threads_for

SCHEDULES = ("parallel", "sequential")
MAX_CONTRAST = 1e13  # site precision / prior precision: posteriors keep three digits up to it


class FixedPointWarning(UserWarning):
    """Warning: a method has no fixed point on these data, so the solution comes from a different method."""


@checked(model=a(Model), sites=a(Natural), schedule=choice(SCHEDULES))
@float64
def infer(
    model: Model,
    X: Any,
    y: Any,
    method: Method | str = QP(),
    schedule: str = "parallel",
    tol: float = 1e-6,
    max_sweeps: int = 200,
    sites: Natural | None = None,
    *,
    weights: Any = None,
    exposure: Any = None,
    trials: Any = None,
) -> Solution:
    """Compute the posterior of a model given data, at the model's hyperparameters.

    Never raises for lack of convergence: `solution.status` reports why inference stopped and what to try. If QP has no
    fixed point and EP has one, the solution is EP's; `solution.method` and the status name it, and a FixedPointWarning
    is raised.

    Args:
        model: Kernel, likelihood, prior mean and process.
        X: Inputs, n rows of d columns.
        y: Observations, one per row, as the likelihood codes them.
        method: A method or its name: "qp", "ep", "power-ep", "vb", "laplace".
        schedule: "parallel" updates all sites at once, "sequential" one after another (EP, QP and power EP).
        tol: Tolerance: the root mean square change that one more sweep would make to the sites, in units of the
            marginals.
        max_sweeps: Maximum number of sweeps, after which the status is "max-sweeps".
        sites: Sites of another solution, as a warm start.
        weights: Weight of each row, or one value for all. A row of weight 2 counts as two equal rows, a row of weight 0
            is ignored. Weights above 1 raise an error if the kernel has white noise, which differs between two equal
            rows.
        exposure: Time, area or population that counts refer to; for Gaussian noise, the relative precision. One value,
            or one per row.
        trials: Number of trials of binomial observations. One value, or one per row.

    Returns:
        The posterior: marginals, evidence, leave-one-out densities, and predictions.

    >>> import numpy as np
    >>> from quantprop import Model, QP, infer, kernels, likelihoods
    >>> X, y = np.array([[-1.0], [0.0], [2.0]]), np.array([-1, -1, 1])
    >>> solution = infer(Model(kernels.SquaredExponential(), likelihoods.Probit()), X, y, method=QP())
    >>> solution.converged, solution.marginals.mean.round(3).tolist()
    (True, [-0.763, -0.701, 0.515])
    """
    method = method_by_name(method)
    if schedule == "sequential" and not isinstance(method, EP):
        raise ValueError(
            f"schedule='sequential' is supported for EP, QP and power EP only; got {type(method).__name__}: use "
            "schedule='parallel'"
        )
    given, task = model, prepare(model, X, y, method, weights, exposure, trials)
    model = task.model
    with blas_threads_for(task.cost):
        problem = _problem(model, method, task)
        start = task.placed(starting_sites(problem.likelihood, task, sites))
        out, schedule = _solve(problem, start, schedule, tol, max_sweeps)
        is_psd = REASONS[int(out.reason)] == "converged" or problem.prior.is_psd()
        if is_psd and max_sweeps >= PATIENCE:
            out, schedule = _continued(problem, out, schedule, tol)
            problem, out, schedule = _by_stand_in(problem, start, out, schedule, tol, max_sweeps)
        _warn_of_lost_digits(problem, out.at.sites)
    loo = loo_at(problem.method, problem.likelihood, task, out.at)
    solution = solution_of(model, problem.method, task, out, loo, schedule, tol)
    if not is_psd:
        solution = replace(solution, status=replace(solution.status, reason="no-covariance"))
    return in_terms_of(given, solution)


def _problem(model: Model, method: Method, task: Task) -> InferenceProblem:
    prior = prior_at(model, task)
    if not finite(prior):
        raise ValueError("the kernel gives NaN or infinity on X: check its parameters and the scale of X")
    rows = task.placed((task.data, task.weight))
    return InferenceProblem.of(model.plain_likelihood, method, model.process.refined(prior), *rows)


@program
def _parallel(problem: InferenceProblem, start: Natural, tol: Scalar, max_sweeps: Scalar) -> Outcome:
    return solve_parallel(problem, start, tol, max_sweeps)[0]


_sequential = program(solve_sequential)


def _solve(
    problem: InferenceProblem, start: Natural, schedule: str, tol: float, max_sweeps: int
) -> tuple[Outcome, str]:
    """Run the schedule; where parallel sweeps get stuck, begin again with sequential ones.

    Where the start has no proper posterior in double precision, sweeps start from the prior.
    """
    if schedule == "sequential":
        if len(start.nu) > problem.prior.largest_joint:
            raise ValueError(
                "schedule='sequential' needs the joint posterior of all rows, which this process provides only up to "
                f"{problem.prior.largest_joint} rows; use schedule='parallel'"
            )
        return _sequential(problem, start, tol, max_sweeps), schedule
    out = _by_sweeps(problem, start, tol, max_sweeps)
    if REASONS[int(out.reason)] == "improper-start" and bool(jnp.any(start.tau != 0)):
        start = jax.tree.map(jnp.zeros_like, start)
        out = _by_sweeps(problem, start, tol, max_sweeps)
    if REASONS[int(out.reason)] in ("converged", "max-sweeps") or not isinstance(problem.method, EP):
        return out, schedule
    if _without_variance(problem.prior, problem.weight.total):
        return out, schedule
    if len(start.nu) > problem.prior.largest_joint:
        return out, schedule
    again = _sequential(problem, start, tol, max_sweeps - int(out.sweeps))
    total = Outcome(again.at, again.sweeps + out.sweeps, again.reason)
    return (total, "parallel, then sequential") if bool(again.at.residual < out.at.residual) else (out, schedule)


def _by_sweeps(problem: InferenceProblem, start: Natural, tol: float, max_sweeps: int) -> Outcome:
    """Parallel sweeps, by the small quadrature rule if it is accurate enough."""
    if (quick := problem.with_few_nodes()) is not problem:
        out = _parallel(quick, start, tol, max_sweeps)
        if REASONS[int(out.reason)] == "converged":
            return out
    return _parallel(problem, start, tol, max_sweeps)


def _continued(problem: InferenceProblem, out: Outcome, schedule: str, tol: float) -> tuple[Outcome, str]:
    """If sweeps did not converge, the result of Newton's method or of a path of fixed points."""
    if REASONS[int(out.reason)] == "converged" or len(out.at.sites.nu) > problem.prior.largest_joint:
        return out, schedule
    if _without_variance(problem.prior, problem.weight.total):
        return out, schedule
    at, sweeps = continued(problem, out.at.sites, tol)
    if at is None:
        return out, schedule
    reason = np.asarray(REASONS.index("converged"))
    return replace(out, at=at, sweeps=out.sweeps + sweeps, reason=reason), f"{schedule}, then continuation"


def _by_stand_in(
    problem: InferenceProblem, start: Natural, out: Outcome, schedule: str, tol: float, max_sweeps: int
) -> tuple[InferenceProblem, Outcome, str]:
    """The answer of the method's stand-in, where it has none of its own."""
    method, stand_in = problem.method, problem.method.stand_in
    if REASONS[int(out.reason)] == "converged" or stand_in is None:
        return problem, out, schedule
    if _without_variance(problem.prior, problem.weight.total):
        return problem, out, schedule
    instead = replace(problem, method=stand_in)
    found, way = _continued(instead, *_solve(instead, start, schedule.split(",")[0], tol, max_sweeps), tol)
    if REASONS[int(found.reason)] != "converged":
        return problem, out, schedule
    warnings.warn(
        f"{method!r} did not reach a fixed point ({REASONS[int(out.reason)]}): the solution is from {stand_in!r} "
        "instead (see solution.method)",
        FixedPointWarning,
        stacklevel=5,
    )
    return instead, found, f"{schedule}, then {stand_in!r} ({way}) instead of {method!r}"


def _without_variance(prior: Prior, weight: jax.Array) -> bool:
    """Return whether the prior gives a datum no variance: it has no cavity, whatever the schedule."""
    return bool(_some_without_variance(prior, weight))


_some_without_variance = program(lambda prior, weight: jnp.any((prior.variances() == 0.0) & (weight > 0)))


def _warn_of_lost_digits(problem: InferenceProblem, sites: Natural) -> None:
    """Warn where data determine f so precisely that rounding errors of the prior are as large as the posterior."""
    contrast = float(_contrast(problem.prior, sites.tau))
    if contrast > MAX_CONTRAST:
        warnings.warn(
            f"the likelihood is {contrast:.0e} times as precise as the prior: rounding errors may shift the posterior "
            f"by {np.finfo(float).eps * contrast:.0e} standard deviations, even if the status is 'converged'; use a "
            "smaller kernel variance, a larger noise, or smaller weights",
            PrecisionWarning,
            stacklevel=5,
        )


_contrast = program(lambda prior, tau: jnp.max(tau * prior.variances()))  # rows may have units of their own


def all_finite(model: Model, evidence: Any, marginals: Any, loo: np.ndarray, total: np.ndarray) -> bool:
    """True if all results are finite in every process; `loo` may be NaN at weight 0 and at improper cavities."""
    excused = (total == 0.0) | (np.isnan(loo) & (not model.plain_likelihood.log_concave))
    results = (evidence, marginals.mean, marginals.variance, np.where(excused, 0.0, loo))
    return all_true(all(np.isfinite(part).all() for part in results))


@float64
def solution_of(
    model: Model, method: Method, task: Task, out: Outcome, loo: Any, schedule: str, tol: float
) -> Solution:
    """The result of a schedule as the user sees it: without padding, in NumPy."""
    n, total = len(task.x), np.asarray(task.weight.total)
    if leaves_residuals(model, method, task):
        signed = bool(jnp.any(out.at.sites.tau < 0))
        share, data, weight = task.placed((method.share(task.weight), task.data, task.weight))
        loo = loo_apart(model.plain_likelihood, prior_at(model, task), share, data, weight, out.at.sites, signed=signed)
    predictor = None if task.mesh is None else predictor_at(model, method, task, out.at.sites)
    kept = to_numpy((out.at.sites, out.at.marginals)), to_numpy((loo, task.data))
    sites, marginals = jax.tree.map(lambda rows: rows[..., :n], kept[0])
    loo, data = jax.tree.map(lambda column: column[:n], kept[1])
    negative = job_total(int((sites.tau < 0).sum()))
    sweeps, residual, reason = int(out.sweeps), float(out.at.residual), REASONS[int(out.reason)]
    if reason == "converged" and residual > tol:  # to a looser tolerance, during learning
        reason = "max-sweeps"
    if reason == "improper-cavities" and _without_variance(prior_at(model, task), task.placed(task.weight.total)):
        reason = "no-variance"
    if reason == "converged" and not all_finite(model, out.at.evidence, marginals, loo, total[:n]):
        reason = "not-finite"
    return kind_of(model)(
        model=model,
        method=method,
        X=task.x,
        sites=sites,
        marginals=Normal(marginals.mean, marginals.variance),
        log_evidence=float(out.at.evidence),
        loo=loo,
        status=Status(reason, sweeps, residual, tol, schedule, negative),
        weights=None if (total[:n] == 1.0).all() else total[:n],
        data=data,
        posterior=predictor,
    )
