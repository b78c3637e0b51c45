"""Inference at fixed hyperparameters: `infer` and what it returns."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from quantprop.continuation import continued
from quantprop.data import ROUNDING, bucket, encode, finite_array, first_bad, inputs, pad, row_weights
from quantprop.engine import PATIENCE, REASONS, Evaluation, Outcome, Problem, solve_parallel, solve_sequential
from quantprop.gaussian import Natural, Normal
from quantprop.kernels import Kernel
from quantprop.likelihoods.base import Datum, Likelihood
from quantprop.memory import check_memory
from quantprop.methods import EP, QP, VB, Laplace, Method, PowerEP
from quantprop.methods.base import Weight
from quantprop.model import Model
from quantprop.objectives import loo_log_prob
from quantprop.precision import float64, to_numpy
from quantprop.prediction import PrecisionWarning, padded_prior
from quantprop.priors.base import finite
from quantprop.programs import program
from quantprop.solution import Solution, Status
from quantprop.threads import blas_threads_for

METHODS = {"qp": QP, "ep": EP, "power-ep": lambda: PowerEP(0.5), "vb": VB, "laplace": Laplace}
SCHEDULES = ("parallel", "sequential")
MOST_CONTRAST = 1e13  # of site over prior precisions, up to which posteriors keep three digits
SOME = 16  # rows that stand for all when a kernel is asked for white noise


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
    """The posterior of a model given data, at the model's hyperparameters.

    `tol` bounds the root mean square change that one more sweep would make to the sites, in units of the marginals.
    `sites` is a warm start (say, another Solution's). A `weights` row of 2 counts as that row twice, 0 leaves it out;
    weights above 1 are refused where the kernel has white noise, which is another one in each of two equal rows.
    Never raises for lack of convergence: `solution.status` says how it ended and what to try.

    >>> import numpy as np
    >>> from quantprop import Model, QP, infer, kernels, likelihoods
    >>> X, y = np.array([[-1.0], [0.0], [2.0]]), np.array([-1, -1, 1])
    >>> solution = infer(Model(kernels.SquaredExponential(), likelihoods.Probit()), X, y, method=QP())
    >>> solution.converged, solution.marginals.mean.round(3).tolist()
    (True, [-0.755, -0.634, 0.575])
    """
    method = as_method(method)
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}; got {schedule!r}")
    if schedule == "sequential" and not isinstance(method, EP):
        raise ValueError(
            f"the sequential schedule exists for EP, QP and power EP; {type(method).__name__} is parallel only"
        )
    if not tol > 0 or not max_sweeps >= 1:
        raise ValueError(f"tol must be positive and max_sweeps at least 1; got tol={tol}, max_sweeps={max_sweeps}")
    task = prepare(model, X, y, method, weights, exposure, trials)
    with blas_threads_for(model.process.cost(len(task.padded))):
        problem = _problem(model, method, task)
        start = starting_sites(problem.likelihood, task, sites)
        out, schedule = _solve(problem, start, schedule, tol, max_sweeps)
        is_psd = REASONS[int(out.reason)] == "converged" or problem.prior.is_psd()
        if is_psd and max_sweeps >= PATIENCE:
            out, schedule = _continued(problem, out, schedule, tol)
        _warn_of_lost_digits(problem, out.at.sites)
    solution = solution_of(model, method, task.x, out, loo_at(problem.likelihood, task, out.at), schedule, tol)
    return solution if is_psd else replace(solution, status=replace(solution.status, reason="no-covariance"))


class Task(NamedTuple):
    """Checked data: inputs as given; the rest padded to the bucketed size, extra rows with weight 0."""

    x: np.ndarray
    padded: np.ndarray
    data: Datum
    weight: Weight


def prepare(model: Model, X: Any, y: Any, method: Method, weights: Any, exposure: Any, trials: Any) -> Task:
    """Check the data against model and method, and pad them."""
    x = inputs(X, "X")
    likelihood = model.plain_likelihood
    expected = (len(x), likelihood.columns)[: 1 if likelihood.columns == 1 else 2]
    if np.shape(y) != expected:
        raise ValueError(f"y must have shape {expected}, one entry per row of X; got shape {np.shape(y)}")
    data = encode(likelihood, y, (len(x),), exposure, trials)
    check_memory(model.process.cost(bucket(len(x))))
    total = row_weights(weights, len(x))
    size, weight = bucket(len(x)), _weight(total)
    method.check(likelihood, weight)
    _check_copies(model, x, total)
    return Task(x, pad(x, size), pad(data, size), weight)


def as_method(method: Method | str) -> Method:
    """A method by name or as given."""
    if isinstance(method, Method):
        return method
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(f"method must be a Method or one of {', '.join(METHODS)}; got {method!r}")
    return METHODS[method]()


def _weight(total: np.ndarray) -> Weight:
    """Weights as copies and exponents; padded rows get weight 0."""
    copies = np.maximum(total, 1.0)
    exponent = np.where(total > 0, np.minimum(total, 1.0), 1.0)
    more = bucket(len(total)) - len(total)
    total, copies = np.pad(total, (0, more)), np.pad(copies, (0, more), constant_values=1.0)
    return Weight(total, copies, None if (exponent == 1.0).all() else np.pad(exponent, (0, more), constant_values=1.0))


def _check_copies(model: Model, x: np.ndarray, total: np.ndarray) -> None:
    """Refuse weights above 1 where the kernel has white noise: copies of a row then have each their own, not one f."""
    several = total > 1.0
    if several.any() and has_white_noise(model.plain_kernel, x[several]):
        raise ValueError(
            f"{first_bad(several, total, 'weights')}: with white noise in the kernel, weights must be at most 1, since "
            "equal rows are data with noise of their own; repeat the rows (np.repeat(X, weights, axis=0), y likewise), "
            "or leave the noise to the likelihood"
        )


@float64
def has_white_noise(kernel: Kernel, x: np.ndarray) -> bool:
    """Whether equal rows are different data to the kernel: it is shown some rows of x, each of them twice."""
    some = x[:SOME]
    k = np.asarray(_gram(kernel, pad(np.concatenate([some, some]), 2 * SOME)))
    own, other = np.diagonal(k)[: len(some)], np.diagonal(k, len(some))[: len(some)]
    return bool((np.abs(own - other) > ROUNDING * own).any())


def _problem(model: Model, method: Method, task: Task) -> Problem:
    prior = padded_prior(model, task.x)
    if not finite(prior):
        raise ValueError("the kernel gives NaN or infinity on X: check its parameters and the scale of X")
    return Problem(model.plain_likelihood, method, model.process.refined(prior), task.data, task.weight)


_gram = program(lambda kernel, x: kernel.gram(x))
_likelihood_start = program(lambda likelihood, data: Natural(*jax.vmap(likelihood.start)(data)))


def starting_sites(likelihood: Any, task: Task, sites: Natural | None) -> Natural:
    """The sites to start from, padded: those given, or the likelihood's own, times weights; 0 where these are 0."""
    n = len(task.x)
    if sites is None:
        chosen = jax.tree.map(lambda s: task.weight.total * s, _likelihood_start(likelihood, task.data))
    else:
        given = [finite_array(part, f"sites.{name}", ndim=1) for name, part in (("nu", sites.nu), ("tau", sites.tau))]
        if any(len(part) != n for part in given):
            raise ValueError(f"sites must hold {n} values each, one per row; got {len(given[0])} and {len(given[1])}")
        if likelihood.log_concave and (given[1] < 0).any():
            raise ValueError(f"sites.tau must not be negative for the {likelihood.name} likelihood")
        chosen = Natural(*(np.pad(part, (0, bucket(n) - n)) for part in given))
    return jax.tree.map(lambda s: np.where(task.weight.total > 0, s, 0.0), chosen)


@program
def _parallel(problem: Problem, start: Natural, tol: float, max_sweeps: int) -> Outcome:
    return solve_parallel(problem, start, tol, max_sweeps)[0]


_sequential = program(solve_sequential)


def _solve(problem: Problem, start: Natural, schedule: str, tol: float, max_sweeps: int) -> tuple[Outcome, str]:
    """Run the schedule; where parallel sweeps get stuck, begin again with sequential ones.

    Where the start has no proper posterior in double precision, sweeps start from the prior.
    """
    if schedule == "sequential":
        if len(start.nu) > problem.prior.largest_joint:
            raise ValueError(
                f"the sequential schedule needs the joint posterior of all rows, which this process has up to "
                f"{problem.prior.largest_joint} rows; use schedule='parallel'"
            )
        return _sequential(problem, start, tol, max_sweeps), schedule
    out = _parallel(problem, start, tol, max_sweeps)
    if REASONS[int(out.reason)] == "improper-start" and np.any(start.tau):
        start = jax.tree.map(np.zeros_like, start)
        out = _parallel(problem, start, tol, max_sweeps)
    if REASONS[int(out.reason)] in ("converged", "max-sweeps") or not isinstance(problem.method, EP):
        return out, schedule
    if len(start.nu) > problem.prior.largest_joint:
        return out, schedule
    again = _sequential(problem, start, tol, max_sweeps - int(out.sweeps))
    total = Outcome(again.at, again.sweeps + out.sweeps, again.reason)
    return (total, "parallel, then sequential") if bool(again.at.residual < out.at.residual) else (out, schedule)


def _continued(problem: Problem, out: Outcome, schedule: str, tol: float) -> tuple[Outcome, str]:
    """Where sweeps did not converge, by Newton's method or along a path of fixed points; else as it is."""
    if REASONS[int(out.reason)] == "converged" or len(out.at.sites.nu) > problem.prior.largest_joint:
        return out, schedule
    at, sweeps = continued(problem, out.at.sites, tol)
    if at is None:
        return out, schedule
    reason = np.asarray(REASONS.index("converged"))
    return replace(out, at=at, sweeps=out.sweeps + sweeps, reason=reason), f"{schedule}, then continuation"


def _warn_of_lost_digits(problem: Problem, sites: Natural) -> None:
    """Where data know f so much better than the prior that roundings of the prior reach the size of the posterior."""
    contrast = float(np.max(np.asarray(sites.tau)) * np.max(problem.prior.variances()))
    if contrast > MOST_CONTRAST:
        warnings.warn(
            f"the data know f {contrast:.0e} times as precisely as the prior: roundings may change the posterior by "
            f"{np.finfo(float).eps * contrast:.0e} standard deviations, whatever the status says; use a smaller kernel "
            "variance, a larger noise, or smaller weights",
            PrecisionWarning,
            stacklevel=4,
        )


def loo_of(likelihood: Likelihood, data: Datum, weight: Weight, at: Evaluation) -> jax.Array:
    """log p(y_i) without datum i, for all data."""
    return jax.vmap(partial(loo_log_prob, likelihood))(data, weight, at.marginals, at.sites)


loo_program = program(loo_of)


@float64
def loo_at(likelihood: Likelihood, task: Task, at: Evaluation) -> jax.Array:
    """The same, of a task."""
    return loo_program(likelihood, task.data, task.weight, at)


def solution_of(
    model: Model, method: Method, x: np.ndarray, out: Outcome, loo: Any, schedule: str, tol: float
) -> Solution:
    """What a schedule ended with, as the user sees it: without the padding, in NumPy."""
    n = len(x)
    sites, marginals, loo = jax.tree.map(lambda column: column[:n], to_numpy((out.at.sites, out.at.marginals, loo)))
    sweeps, residual, reason = int(out.sweeps), float(out.at.residual), REASONS[int(out.reason)]
    if reason == "converged" and residual > tol:  # to a looser tolerance, on the way of learning
        reason = "max-sweeps"
    return Solution(
        model=model,
        method=method,
        X=x,
        sites=sites,
        marginals=Normal(marginals.mean, marginals.variance),
        log_evidence=float(out.at.evidence),
        loo=loo,
        status=Status(reason, sweeps, residual, tol, schedule, int((sites.tau < 0).sum())),
    )
