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
from quantprop.gaussian import Natural
from quantprop.inference.classes import in_terms_of
from quantprop.inference.engine import Outcome
from quantprop.inference.inferring import solution_of
from quantprop.inference.leave_one_out import loo_at
from quantprop.inference.results import Fitted, Step
from quantprop.inference.status import Ending
from quantprop.inference.task import as_method, prepare
from quantprop.learning.checkpoints import next_checkpoint
from quantprop.learning.landscape import Landscape, Point
from quantprop.learning.objectives import Objective, as_objective
from quantprop.learning.quasi_newton import FEW_ENTRIES, Rule
from quantprop.learning.remaining import GRADIENT_TOLERANCE, converged
from quantprop.learning.search import init, run
from quantprop.learning.search_state import (
    FTOL,
    MAX_EVALUATIONS_PER_START,
    Answers,
    End,
    Log,
    SearchState,
    Settings,
)
from quantprop.learning.starts import (
    StartRule,
    at_bounds,
    blindness,
    further_start,
    units,
    warn_of_blindness,
)
from quantprop.methods import QP, Method
from quantprop.model import Model
from quantprop.parameters import at, box, declared, free, is_parameter, labels, logarithmic, packed
from quantprop.runtime.arguments import a, checked
from quantprop.runtime.threads import blas_threads_for

SPREAD = 1.5  # standard deviation of restarts around the first start, in θ (logarithms)

_watcher: ContextVar[Callable[[Step, int], None]] = ContextVar("watcher", default=lambda step, count: None)


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
    max_evaluations: int = MAX_EVALUATIONS_PER_START,
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
        gtol: A slope smaller than by default is asked of an optimum beside that nothing is left to gain, and reached by
            Newton's method, for up to 32 parameters: as many evaluations more, and some.
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
    method, objective = as_method(method), as_objective(objective)
    objective.check(method)
    task = prepare(model, X, y, method, weights, exposure, trials)
    landscape = Landscape(task.model, task, method, objective, gradient == "exact", tol)
    theta, bounds = starting_point(landscape.parts)
    if sites is not None:
        landscape = landscape.warmed(theta, sites)
    if len(theta):
        blind = landscape.compile(partial(blindness, task.model.kernel, task.x))
        remedy = "start from GaussianProcessRegressor's kernel=None, which chooses one from the data"
        warn_of_blindness(blind, task.x, "fit", remedy, 4)
    draws = np.random.default_rng(seed).standard_normal((restarts if len(theta) else 0, len(theta)))
    starts = [theta, *np.clip(theta + SPREAD * draws, bounds[:, 0], bounds[:, 1])]
    fitted = learn(landscape, starts, bounds, max_evaluations, ftol, _reporter(progress, objective), gtol)
    return in_terms_of(model, fitted)


def learn(
    landscape: Any,
    starts: list[np.ndarray],
    bounds: np.ndarray,
    most: int,
    ftol: float,
    report: Callable | None = None,
    gtol: float = GRADIENT_TOLERANCE,
) -> Fitted:
    """The best optimum of an objective over several starts, and up to two further ones if that is suspicious.

    Every evaluation is passed to `report`, or to the callback of `watched`.
    """
    with blas_threads_for(landscape.task.cost):
        end, log = searched(One(landscape, bounds, Settings(most, ftol, gtol)), starts, report)
    landscape.release()
    return fitted_at(landscape, end.point, log.trace, ending_of(landscape, bounds, end, log.trace, gtol))


class One:
    """The problem of a search over one objective."""

    slots = 1

    def __init__(self, objective: Any, bounds: np.ndarray, settings: Settings = Settings()) -> None:
        self.objective, self.bounds, self.settings, self.unit = objective, bounds, settings, units(objective)
        self.rule = rule_for(objective.parts, bounds / self.unit[:, None], settings.ftol)

    def evaluate(self, memory: Any, rows: np.ndarray, theta: np.ndarray, tol: np.ndarray) -> tuple[Any, Answers]:
        """The objective at θ, and what its next evaluation starts from."""
        point, memory = self.objective.evaluate(np.clip(theta[0], *self.bounds.T), float(tol[0]), memory)
        numbers = (point.value, self.unit * point.gradient, point.usable, float(point.out.at.residual))
        return memory, Answers(np.array([True]), *(np.array([number]) for number in numbers), [point])

    def further_start(self, row: int, end: End) -> tuple[StartRule, np.ndarray] | None:
        """The rule and θ of one more start, if an end is suspicious."""
        return further_start(self.objective, end.theta, self.bounds)


def rule_for(parts: Any, bounds: np.ndarray, ftol: float) -> Rule:
    """How far steps go: 1 first and 3 after that are enough over few logarithms, if f has no unit."""
    learned = free(parts)
    few = sum(np.size(parameter.value) for parameter in learned) <= FEW_ENTRIES
    scaled = few and parts.likelihood.noise_name is None and all(map(logarithmic, learned))
    return Rule(bounds, ftol, 0.5 * GRADIENT_TOLERANCE, long_steps=not scaled)


def searched(problem: One, starts: list[np.ndarray], report: Callable | None = None) -> tuple[End, Log]:
    """The best end of a search over one objective, and all that it saw."""
    report, objective = report or _watcher.get(), problem.objective
    checkpoint = next_checkpoint()

    def observe(state: SearchState, steps: list[tuple[Step, int]]) -> None:
        checkpoint.save(objective, state)
        for step, count in steps:
            report(step, count)

    state = run(problem, checkpoint.resumed(objective, init(problem, [starts], objective.memory())), observe)
    log, end = state.logs[0], state.logs[0].end
    if end.point is None:  # it was read from a checkpoint
        point, _ = objective.evaluate(end.theta, objective.tol, state.inference)
        end = end._replace(point=point)
    return end, log


@contextmanager
def watched(report: Callable[[Step, int], None]) -> Iterator[None]:
    """Pass every evaluation of the block to `report`, with its number: for callers who learn through an estimator,
    whose arguments are scikit-learn's.
    """
    token = _watcher.set(report)
    try:
        yield
    finally:
        _watcher.reset(token)


def fitted_at(landscape: Landscape, best: Point, trace: tuple[Step, ...], ending: Ending) -> Fitted:
    """The result at a point."""
    loo = loo_at(landscape.method, best.likelihood, landscape.task, best.out.at)
    return fitted_from(landscape, best.theta, best.value, best.out, loo, trace, ending)


def fitted_from(
    landscape: Landscape, theta: np.ndarray, value: float, out: Outcome, loo: Any, trace: tuple[Step, ...],
    ending: Ending,
) -> Fitted:  # fmt: skip
    """The result at θ, inference having ended as `out` says."""
    model = as_given(landscape.model, at(declared(landscape.model), theta))
    solution = solution_of(model, landscape.method, landscape.task, out, loo, "parallel", landscape.tol)
    return Fitted(model, solution, landscape.objective.name, value, theta, trace, ending)


def ending_of(
    objective: Any, bounds: np.ndarray, end: End, trace: Sequence[Step], gtol: float = GRADIENT_TOLERANCE
) -> Ending:
    """How learning ended: whatever stopped the optimiser, it has converged if there is nothing left to gain."""
    stopped = end.why in ("small-gain", "no-progress", "max-evaluations")
    reason = "converged" if stopped and converged(end.remaining, end.value, end.slope, gtol) else end.why
    touching = zip(labels(objective.parts), at_bounds(end.theta, bounds), strict=True)
    bounded = tuple(name for name, touches in touching if touches)
    failed = sum(step.reason != "converged" or not np.isfinite(step.value) for step in trace)
    return Ending(reason, len(trace), failed, end.slope, bounded, end.remaining)


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


def _reporter(progress: bool, objective: Objective) -> Callable[[Step, int], None] | None:
    def report(step: Step, count: int) -> None:
        sys.stderr.write(
            f"\rfit: evaluation {count}, {objective.name} {step.value:.6g}, gradient {step.gradient:.1e}, "
            f"{step.sweeps} sweeps   "
        )
        sys.stderr.flush()

    return report if progress else None
