"""Learning hyperparameters: `fit`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import jax
import numpy as np

import quantprop.storage  # noqa: F401  # so that results can be saved
from quantprop.core.gaussian import Natural
from quantprop.core.parameters import at, box, declared, is_parameter, labels, packed
from quantprop.inference.classes import in_terms_of
from quantprop.inference.inferring import solution_of
from quantprop.inference.leave_one_out import loo_at
from quantprop.inference.results import Ending, Fitted, Step
from quantprop.inference.task import prepare
from quantprop.learning.attempts import Point
from quantprop.learning.checkpoints import next_checkpoint
from quantprop.learning.landscape import Landscape
from quantprop.learning.objectives import Objective, as_objective
from quantprop.learning.problem import FTOL, MAX_EVALUATIONS, Problem
from quantprop.learning.remaining import GRADIENT_TOLERANCE, converged
from quantprop.learning.search import SearchState, init, run
from quantprop.learning.starts import at_bounds
from quantprop.learning.uninformative import blindness, warn_of_blindness
from quantprop.methods import QP, Method
from quantprop.methods import by_name as method_by_name
from quantprop.model import Model
from quantprop.runtime.arguments import a, checked
from quantprop.runtime.threads import blas_threads_for

Report = Callable[[Step, int], None]
RESTART_DEVIATION = 1.5  # standard deviation of restarts around the first start, in θ (logarithms)

_watcher: ContextVar[Report] = ContextVar("watcher", default=lambda step, count: None)


@checked(model=a(Model), sites=a(Natural))
def fit(
    model: Model,
    X: Any,
    y: Any,
    method: Method | str = QP(),
    objective: Objective | str = "evidence",
    gradient: str = "exact",
    restarts: int = 0,
    seed: int = 0,
    progress: bool = False,
    *,
    weights: Any = None,
    exposure: Any = None,
    trials: Any = None,
    tol: float = 1e-8,
    max_evaluations: int = MAX_EVALUATIONS,
    ftol: float = FTOL,
    gtol: float = GRADIENT_TOLERANCE,
    sites: Natural | None = None,
) -> Fitted:
    """Learn the numbers of a model from data: quasi-Newton steps up the objective, inside the parameters' bounds.

    Never raises for lack of convergence: `fitted.status` says how learning ended and what to try.

    Args:
        model: Kernel, likelihood, mean and process. Its numbers are the start; those declared fixed stay.
        X: One row of inputs per datum (n × d).
        y: The targets, as the likelihood takes them.
        method: The local rule, or its name: "qp", "ep", "power-ep", "vb", "laplace".
        objective: What is maximised: "evidence" (the method's own), "loo", or "elbo" for VB.
        gradient: "exact", or "partial", which holds the sites fixed, as the paper did: exact for EP, power EP and VB
            with their evidence, and wrong by a few per cent otherwise.
        restarts: Further starts, drawn around the first and compared by the objective. Where the noise of y is learned,
            an end that takes all of y for noise, or none of it, or stands at a bound, is followed by another start too.
        seed: Of the further starts.
        progress: Whether to write a line about every evaluation to standard error.
        weights: One number per row, or one for all; a row of weight 2 counts as two equal rows, 0 leaves it out.
        exposure: Multiplies the rate of counts, per row.
        trials: Of binomial targets, per row.
        tol: Of inference, as in `infer`.
        max_evaluations: Of the objective, from one start.
        ftol: The relative gain of one step below which the optimiser stops.
        gtol: A slope smaller than by default is asked of an optimum beside that nothing is left to gain.
        sites: A warm start of inference, say another Solution's.

    Returns:
        The learned model, its posterior, and the way there.

    >>> import numpy as np
    >>> from quantprop import Model, fit, kernels, likelihoods
    >>> X = np.linspace(-2, 2, 12)[:, None]
    >>> model = Model(kernels.SquaredExponential(), likelihoods.Gaussian(0.3))
    >>> fitted = fit(model, X, np.sin(2 * X[:, 0]), method="ep")
    >>> fitted.status.reason
    'converged'
    """
    method, objective = method_by_name(method), as_objective(objective)
    objective.check(method)
    task = prepare(model, X, y, method, weights, exposure, trials)
    landscape = Landscape(task.model, task, method, objective, gradient == "exact", tol)
    theta, bounds = starting_point(landscape.parts)
    if sites is not None:
        landscape = landscape.from_sites(theta, sites)
    if len(theta):
        blind = landscape.compile(partial(blindness, task.model.kernel, task.x))
        remedy = "start from GaussianProcessRegressor's kernel=None, which chooses one from the data"
        warn_of_blindness(blind, task.x, "fit", remedy, 4)
    draws = np.random.default_rng(seed).standard_normal((restarts if len(theta) else 0, len(theta)))
    starts = [theta, *np.clip(theta + RESTART_DEVIATION * draws, bounds[:, 0], bounds[:, 1])]
    fitted = learn(landscape, starts, max_evaluations, ftol, gtol, _reporter(progress, objective))
    return in_terms_of(model, fitted)


def learn(
    objective: Landscape,
    starts: Sequence[np.ndarray],
    max_evaluations: int = MAX_EVALUATIONS,
    ftol: float = FTOL,
    gtol: float = GRADIENT_TOLERANCE,
    report: Report | None = None,
) -> Fitted:
    """The best optimum of an objective over several starts, and up to two further ones if that is suspicious."""
    problem = Problem.of(objective, max_evaluations, ftol, gtol)
    with blas_threads_for(objective.task.cost):
        state = searched(problem, starts, report)
    objective.release()
    end: Any = state.end
    loo = loo_at(objective.method, end.point.likelihood, objective.task, end.point.out.at)
    return fitted_from(objective, state, ending_of(problem, state), loo)


def searched(problem: Problem, starts: Sequence[np.ndarray], report: Report | None = None) -> SearchState:
    """The end of a search over one objective. Every evaluation is passed to `report`, or to the callback of `watched`,
    and the state after it to the checkpoint.
    """
    objective, checkpoint, report = problem.objective, next_checkpoint(), report or _watcher.get()

    def observe(state: SearchState) -> None:
        checkpoint.save(objective, state)
        report(state.trace[-1], len(state.trace))

    start = checkpoint.resumed(objective, init(problem, starts, objective.memory()))
    (state,) = run([problem], [start], observe)
    end: Any = state.end
    if end.point is None:  # it was read from a checkpoint
        state = state._replace(end=end._replace(point=objective.evaluate(end.theta, objective.tol, state.memory)[0]))
    return state


@contextmanager
def watched(report: Report) -> Iterator[None]:
    """Pass every evaluation of the block to `report`, with its number: for callers who learn through an estimator,
    whose arguments are scikit-learn's.
    """
    token = _watcher.set(report)
    try:
        yield
    finally:
        _watcher.reset(token)


def fitted_at(objective: Landscape, point: Point, reason: str) -> Fitted:
    """The result at a point that no search has reached."""
    ending = Ending(reason if point.usable else "inference-failed", 1, int(not point.usable), 0.0, ())
    loo = loo_at(objective.method, point.likelihood, objective.task, point.out.at)
    return _fitted(objective, point, point.value, loo, (), ending)


def fitted_from(objective: Landscape, state: SearchState, ending: Ending, loo: Any) -> Fitted:
    """The result of a search."""
    end: Any = state.end
    return _fitted(objective, end.point, end.value, loo, state.trace, ending)


def _fitted(
    objective: Landscape, point: Any, value: float, loo: Any, trace: tuple[Step, ...], ending: Ending
) -> Fitted:
    model = as_given(objective.model, at(declared(objective.model), point.theta))
    solution = solution_of(model, objective.method, objective.task, point.out, loo, point.schedule, objective.tol)
    return Fitted(model, solution, objective.objective.name, value, point.theta, trace, ending)


def ending_of(problem: Problem, state: SearchState) -> Ending:
    """How learning ended: whatever stopped the search, it has converged if there is nothing left to gain."""
    end: Any = state.end
    stopped = end.why in ("small-gain", "no-progress", "max-evaluations")
    reason = "converged" if stopped and converged(end.remaining, end.value, end.slope, problem.gtol) else end.why
    touching = zip(labels(problem.objective.parts), at_bounds(end.theta, problem.bounds), strict=True)
    bounded = tuple(name for name, touches in touching if touches)
    failed = sum(step.reason != "converged" or not np.isfinite(step.value) for step in state.trace)
    return Ending(reason, len(state.trace), failed, end.slope, bounded, end.remaining)


def starting_point(parts: Any) -> tuple[np.ndarray, np.ndarray]:
    """θ of a declared model and its box, or an error that names a value outside its bounds."""
    theta, bounds = packed(parts), box(parts)
    bad = ~((theta >= bounds[:, 0]) & (theta <= bounds[:, 1]))
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(f"{labels(parts)[i]} starts outside its bounds; give a Parameter with wider bounds, or fixed")
    return theta, bounds


def as_given(model: Model, learned: Model) -> Model:
    """The learned model, with plain numbers where the user wrote plain numbers."""
    given, structure = jax.tree.flatten(model, is_leaf=is_parameter)
    new = jax.tree.leaves(learned, is_leaf=is_parameter)
    mixed = [_plain(old, node) for old, node in zip(given, new, strict=True)]
    return jax.tree.unflatten(structure, mixed)


def _plain(old: Any, new: Any) -> Any:
    if is_parameter(old) or not is_parameter(new):
        return new
    return float(new.value) if np.ndim(new.value) == 0 else np.asarray(new.value)


def _reporter(progress: bool, objective: Objective) -> Report | None:
    def report(step: Step, count: int) -> None:
        sys.stderr.write(
            f"\rfit: evaluation {count}, {objective.name} {step.value:.6g}, gradient {step.gradient:.1e}, "
            f"{step.sweeps} sweeps   "
        )
        sys.stderr.flush()

    return report if progress else None
