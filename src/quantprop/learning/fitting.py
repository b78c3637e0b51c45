"""Learning hyperparameters: `fit`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

import quantprop.storage  # noqa: F401  # so that results can be saved
from quantprop.core.gaussian import Natural
from quantprop.core.parameters import at, box, declared, is_parameter, labels, packed
from quantprop.inference.classes import in_terms_of
from quantprop.inference.inferring import solution_of
from quantprop.inference.leave_one_out import loo_at
from quantprop.inference.results import Ending, Fitted, Step
from quantprop.inference.task import prepare, settled, with_distributions
from quantprop.learning.checkpoints import evaluated_at, next_checkpoint
from quantprop.learning.constant import ALL_SCALE, constant_of, held, joined, lacks_function, may_lack_function
from quantprop.learning.landscape import Landscape, Point
from quantprop.learning.objectives import Objective, as_objective
from quantprop.learning.remaining import GRADIENT_TOL, converged
from quantprop.learning.search import FTOL, Climb, End
from quantprop.learning.starts import StartRule, at_bounds, blindness, further_start, start_by, warn_of_blindness
from quantprop.likelihoods import Varying
from quantprop.methods import QP, Method
from quantprop.methods import by_name as method_by_name
from quantprop.model import Model
from quantprop.runtime.arguments import a, checked
from quantprop.runtime.threads import blas_threads_for

MAX_EVALUATIONS = 300
SETTLED = 0.05  # largest move of θ after which a process keeps what it has chosen
MAX_ROUNDS = 4  # choices: close optima may each choose the other's sets
ROUGH_FTOL = 1e-4  # relative gain of a step below which a search ends of which only a start is taken
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
    max_evaluations: int = MAX_EVALUATIONS,
    ftol: float = FTOL,
    gtol: float = GRADIENT_TOL,
    sites: Natural | None = None,
) -> Fitted:
    """Learn the hyperparameters of a model by quasi-Newton steps inside the parameters' bounds.

    Never raises for lack of convergence: `fitted.status` reports why learning stopped and what to try.

    Args:
        model: Kernel, likelihood, prior mean and process. Its values are the start; fixed parameters stay.
        X: Inputs, n rows of d columns.
        y: Observations, one per row, as the likelihood codes them.
        method: A method or its name: "qp", "ep", "power-ep", "vb", "laplace".
        objective: The objective: "evidence" (the method's own), "loo", or "elbo" for VB.
        gradient: "exact", or "partial", which fixes the sites, as the paper did: exact for the evidence of EP, power EP
            and VB, and wrong by a few per cent otherwise.
        restarts: Number of additional starts, drawn around the first and compared by the objective. If the noise of y
            is learned, a fit that explains all of y as noise or none of it, or that ends at a bound, is restarted too.
        seed: Seed of the additional starts.
        progress: If True, a line about every evaluation is written to standard error.
        weights: Weight of each row, or one value for all. A row of weight 2 counts as two equal rows, a row of weight 0
            is ignored.
        exposure: Time, area or population that counts refer to; for Gaussian noise, the relative precision. One value,
            or one per row.
        trials: Number of trials of binomial observations. One value, or one per row.
        tol: Tolerance of inference, as in `infer`.
        max_evaluations: Maximum number of evaluations of the objective per start.
        ftol: Relative gain of one step below which the search stops.
        gtol: Largest entry of the projected gradient at an optimum. Values below the default are reached by Newton's
            method, for up to 32 parameters, at about one more evaluation per parameter; gradients are as accurate only
            with a `tol` well below them.
        sites: Sites of another solution, as a warm start of inference.

    Returns:
        The learned model, its posterior, and the trace of the search.

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
    model = with_distributions(model, X, weights)
    task = prepare(model, X, y, method, weights, exposure, trials)
    landscape = Landscape(task.model, task, method, objective, gradient == "exact", tol)
    theta, bounds = starting_point(landscape.parts)
    if sites is not None:
        landscape.warmed(theta, sites)
    if len(theta):
        blind = landscape.compile(partial(blindness, task.model.kernel, task.x))
        remedy = "start from GaussianProcessRegressor's kernel=None, which chooses one from the data"
        warn_of_blindness(blind, task.x, "fit", remedy, 4)
    draws = np.random.default_rng(seed).standard_normal((restarts if len(theta) else 0, len(theta)))
    starts = [theta, *np.clip(theta + SPREAD * draws, bounds[:, 0], bounds[:, 1])]
    fitted = learn(landscape, starts, bounds, max_evaluations, ftol, _reporter(progress, objective), gtol)
    return in_terms_of(model, fitted)


def first_start(landscape: Landscape, theta: Float[np.ndarray, " theta"]) -> Float[np.ndarray, " theta"]:
    """θ to start from if values were chosen from the data: of a parameter that varies, as learned with a constant."""
    if not isinstance(landscape.model.likelihood, Varying):
        return theta
    return landscape.compile(partial(_from_constant, landscape, MAX_EVALUATIONS, _watcher.get()))


def _from_constant(landscape: Landscape, most: int, report: Callable) -> Float[np.ndarray, " theta"]:
    """θ with all but the kernel of the parameter as learned, roughly, with a constant parameter."""
    constant = constant_of(landscape)
    start, bounds = starting_point(constant.parts)
    return learn(
        constant, [start], bounds, most, ROUGH_FTOL, report,
        result=lambda constant, best, *_: joined(landscape, constant, best.theta),
    )  # fmt: skip


def learn(
    landscape: Landscape,
    starts: list[np.ndarray],
    bounds: np.ndarray,
    most: int,
    ftol: float,
    report: Callable | None = None,
    gtol: float = GRADIENT_TOL,
    result: Callable[..., Any] | None = None,
    rounds: int = 1,
    last: bool = False,
) -> Any:
    """The best optimum of a landscape over several starts, and up to two further ones where that is suspicious. Every
    evaluation is passed to `report`, or else to the callback of `watched`; `result` makes the end a Fitted.

    If the process chooses by hyperparameters, searches are rough until it keeps what it has chosen.
    """
    rough = landscape.model.process.follows_kernel and len(starts[0]) > 0 and result is None and not last
    kept = next_checkpoint(landscape)
    climb = Climb(landscape, bounds, most, max(ftol, ROUGH_FTOL * rough), report or _watcher.get(), kept, gtol)
    with blas_threads_for(landscape.task.cost):
        landscape.compile()
        end = climb.best_of(starts)
        tried: set[StartRule] = set()
        while (more := _further(landscape, end, bounds)) is not None and more not in tried:
            tried.add(more)
            end = climb.best_of([start_by(more, landscape, starts[0], bounds)], end)
        end, note = _with_function(landscape, climb, end)
        end = end._replace(point=evaluated_at(landscape, end.point))
    landscape.release()
    ending = replace(ending_of(landscape, bounds, end, climb.slope(end.point), climb.trace, gtol), note=note)
    if result is not None:
        return result(landscape, end.point, tuple(climb.trace), ending)
    fitted = fitted_at(landscape, end.point, tuple(climb.trace), ending)
    again = _renewed(landscape, fitted, starts[0]) if rounds < MAX_ROUNDS else None
    if again is None and not rough:
        return replace(fitted, status=replace(fitted.status, rounds=rounds))
    rounds, last = (rounds, True) if again is None else (rounds + 1, last)
    found = learn(again or landscape, [fitted.theta], bounds, most, ftol, report, gtol, rounds=rounds, last=last)
    trace = fitted.trace + found.trace
    return replace(found, trace=trace, status=replace(found.status, evaluations=len(trace)))


def _renewed(landscape: Landscape, fitted: Fitted, start: Float[np.ndarray, " theta"]) -> Landscape | None:
    """The landscape with what its process chooses under the hyperparameters, as sets of neighbours, chosen under those
    learned; None if that does not change, or they hardly moved.
    """
    if not landscape.model.process.follows_kernel or not len(start) or np.abs(fitted.theta - start).max() <= SETTLED:
        return None
    model = settled(fitted.model, landscape.task.x)
    if model.process == fitted.model.process:
        return None
    return replace(landscape, model=model, task=landscape.task._replace(model=model), known_parts=None)


def _with_function(landscape: Landscape, climb: Climb, end: End) -> tuple[End, str]:
    """The better end of two where a parameter that varies may explain all that a function could, and a note if it is
    still so: the second search begins with f as it is learned under a constant parameter.
    """
    likelihood = landscape.model.likelihood
    if not isinstance(likelihood, Varying) or not end.point.usable or not may_lack_function(landscape, end.point.theta):
        return end, ""
    start = _from_constant(landscape, climb.most, climb.report)
    if not lacks_function(landscape, end.point.theta, start):
        return end, ""
    of_parameter = Climb(landscape, held(landscape, start), climb.most, ROUGH_FTOL, climb.report).best_of([start])
    end = climb.best_of([of_parameter.point.theta], end)
    lost = lacks_function(landscape, end.point.theta, start)
    return end, ALL_SCALE.format(parameter=likelihood.parameter) if lost else ""


def _further(landscape: Landscape, end: End, bounds: np.ndarray) -> StartRule | None:
    """The rule for a further start, if the search has ended and its best point is suspicious."""
    an_end = end.point.usable and end.why != "max-evaluations"
    return further_start(landscape, end.point.theta, bounds) if an_end else None


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


def fitted_at(
    landscape: Landscape, best: Point, trace: tuple[Step, ...], ending: Ending, loo: Any = None
) -> Fitted:  # fmt: skip
    if loo is None:
        loo = loo_at(landscape.method, best.likelihood, landscape.task, best.out.at)
    model = as_given(landscape.model, at(declared(landscape.model), best.theta))
    solution = solution_of(model, landscape.method, landscape.task, best.out, loo, "parallel", landscape.tol)
    return Fitted(model, solution, landscape.objective.name, best.value, best.theta, trace, ending)


def ending_of(
    landscape: Landscape, bounds: np.ndarray, end: End, slope: float, trace: Sequence[Step], gtol: float = GRADIENT_TOL
) -> Ending:
    """The end in words: an optimiser that stopped for any reason where there is nothing left to gain has converged."""
    (theta, value, *_), why, remaining = end
    stopped = why in ("small-gain", "no-progress", "max-evaluations")
    reason = "converged" if stopped and converged(remaining, value, slope, gtol) else why
    touching = zip(labels(landscape.parts), at_bounds(theta, bounds), strict=True)
    bounded = tuple(name for name, touches in touching if touches)
    failed = sum(step.reason != "converged" or not np.isfinite(step.value) for step in trace)
    return Ending(reason, len(trace), failed, slope, bounded, remaining)


def starting_point(parts: Any) -> tuple[np.ndarray, np.ndarray]:
    """θ of a declared model and its box, or an error that names a value outside its bounds."""
    theta, bounds = packed(parts), box(parts)
    bad = ~((theta >= bounds[:, 0]) & (theta <= bounds[:, 1]))
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(
            f"{labels(parts)[i]} starts outside its bounds; pass a Parameter with wider bounds, or fixed=True"
        )
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
