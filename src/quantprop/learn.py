"""Learning hyperparameters: `fit`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from quantprop.ascent import steepness
from quantprop.display import html, of_fitted, text
from quantprop.engine import Outcome
from quantprop.gaussian import Natural
from quantprop.infer import as_method, loo_at, prepare, solution_of
from quantprop.landscape import Landscape, Point
from quantprop.methods import QP, Method
from quantprop.model import Model
from quantprop.objectives import Objective, as_objective
from quantprop.parameters import at, box, declared, free, is_parameter, labels, packed
from quantprop.solution import Solution
from quantprop.starts import Manner, at_bounds, further_manner, start_in, units, warn_if_blind
from quantprop.threads import blas_threads_for

MOST = 300  # evaluations
FTOL = 1e-12
FLAT = 1e-4  # largest entry of the projected gradient at which an end counts as an optimum
ROUNDS = 5  # of L-BFGS-B from one start
LOOSE = 1e-3  # tolerance of inference on the way, at most
PARTIAL = 1e-6  # the same with a partial gradient, where values are not corrected for what the sites have still to gain
SHARP = 3e-5  # and relative to the slope along the step: the gradient's error is of first order in the residual
ROUGH = 1e-3  # largest residual at which values are compared, relative to the slope: their errors are of second order
SPREAD = 1.5  # standard deviation of restarts around the first start, in θ (logarithms)

_REMEDIES = {
    "converged": "",
    "max-evaluations": "raise max_evaluations",
    "small-gain": "the last step gained less than ftol although the gradient is not small: lower ftol to go on",
    "no-progress": "the line search could not improve although the gradient is not small: see the trace; the optimum "
    "may be very flat, or inference fails close by",
    "inference-failed": "inference did not converge at the start, or the equation for its gradient did not: "
    "see the trace and solution.status; gradient='partial' needs no such equation",
    "nothing-to-learn": "",
}


@dataclass(frozen=True)
class Ending:
    """How learning ended: a reason, the numbers behind it, and what to try.

    Attributes:
        reason: "converged", "nothing-to-learn", "max-evaluations", "small-gain", "no-progress" or "inference-failed".
        evaluations: how often the objective was evaluated, restarts included.
        failed: at how many of them inference failed, so that the optimiser backed off.
        gradient: the largest entry of the projected gradient at the end.
        at_bounds: names of the parameters that ended at a bound.
    """

    reason: str
    evaluations: int
    failed: int  # evaluations at which inference failed and the optimiser backed off
    gradient: float
    at_bounds: tuple[str, ...]

    @property
    def remedy(self) -> str:
        """What to try, empty if nothing is wrong."""
        return _REMEDIES[self.reason]

    def __str__(self) -> str:
        text = f"{self.reason} after {self.evaluations} evaluations: largest projected gradient {self.gradient:.1e}"
        text += f"; inference failed at {self.failed} of them" if self.failed else ""
        text += f"; at a bound: {', '.join(self.at_bounds)}" if self.at_bounds else ""
        return text + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True)
class Step:
    """One evaluation in the trace of a fit.

    Attributes:
        restart: which start it belongs to; 0 is the first.
        theta: where it was, in the optimiser's coordinates.
        value: the objective there.
        gradient: the largest entry of the projected gradient.
        reason: how inference ended, or "adjoint-failed".
        sweeps: of inference.
        seconds: that it took, compilation included.
    """

    restart: int
    theta: Float[np.ndarray, " theta"]
    value: float
    gradient: float
    reason: str
    sweeps: int
    seconds: float


_watcher: ContextVar[Callable[[Step, int], None]] = ContextVar("watcher", default=lambda step, count: None)


@dataclass(frozen=True)
class Fitted:
    """A learned model, its posterior, and how learning went.

    Attributes:
        model: the model with its learned numbers.
        solution: the posterior at these numbers.
        objective: the name of what was maximised.
        objective_value: its value, with the log prior densities of parameters that have one.
        theta: the optimum in the optimiser's coordinates: logarithms of positive parameters.
        trace: every evaluation on the way.
        status: how learning ended.
    """

    model: Model
    solution: Solution
    objective: str
    objective_value: float
    theta: Float[np.ndarray, " theta"]
    trace: tuple[Step, ...]
    status: Ending

    def __repr__(self) -> str:
        return text(of_fitted(self))

    def _repr_html_(self) -> str:
        return html(of_fitted(self))

    @property
    def converged(self) -> bool:
        """Whether an optimum was reached and inference converged there."""
        return self.status.reason in ("converged", "nothing-to-learn") and self.solution.converged

    @property
    def hyperparameters(self) -> dict[str, float]:
        """Learned numbers by name, in natural units."""
        names = labels(declared(self.model))
        numbers = np.concatenate([np.zeros(0), *(np.ravel(p.value) for p in free(declared(self.model)))])
        return dict(zip(names, map(float, numbers), strict=True))

    def save(self, path: Any) -> None:
        """Write to one file, to be read by `quantprop.load`."""
        import_module("quantprop.storage").save(self, path)  # by name: files know results, not the reverse


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
    max_evaluations: int = MOST,
    ftol: float = FTOL,
    sites: Natural | None = None,
) -> Fitted:
    """Learn the numbers of a model from data: L-BFGS-B on the objective, inside the parameters' bounds.

    `weights`, `exposure` and `trials` are one number or one per row; a row of weight 2 counts as two equal rows.
    `objective` is "evidence" (the method's own), "loo" or, for VB, "elbo". `gradient="partial"` holds the sites fixed,
    as the paper did; that is exact for EP, power EP and VB with their evidence, and wrong by a few per cent else.
    Further starts (`restarts`, drawn around the first with `seed`) are compared by the objective; where the noise of y
    is learned, an end that takes all of y for noise, or none of it, or stands at a bound, is followed by another start
    as well. `tol` is inference's, `ftol` the relative gain of one step below which the optimiser stops.

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
    if gradient not in ("exact", "partial"):
        raise ValueError(f"gradient must be 'exact' or 'partial'; got {gradient!r}")
    if restarts < 0:
        raise ValueError(f"restarts must be at least 0; got {restarts}")
    task = prepare(model, X, y, method, weights, exposure, trials)
    landscape = Landscape(model, task, method, objective, gradient == "exact", tol)
    theta, bounds = starting_point(landscape.parts)
    if len(theta):
        remedy = "start from GaussianProcessRegressor's kernel=None, which chooses one from the data"
        warn_if_blind(model.kernel, task.x, "fit", remedy, 3)
    if sites is not None:
        landscape.warmed(theta, sites)
    draws = np.random.default_rng(seed).standard_normal((restarts if len(theta) else 0, len(theta)))
    starts = [theta, *np.clip(theta + SPREAD * draws, bounds[:, 0], bounds[:, 1])]
    return learn(landscape, starts, bounds, max_evaluations, ftol, _reporter(progress, objective))


def learn(
    landscape: Landscape,
    starts: list[np.ndarray],
    bounds: np.ndarray,
    most: int,
    ftol: float,
    report: Callable | None = None,
) -> Fitted:
    """The best optimum of a landscape over several starts, and up to two further ones where that is suspicious.

    Every evaluation is told to `report`, or to who watches.
    """
    climb = Climb(landscape, bounds, most, ftol, report or _watcher.get())
    with blas_threads_for(landscape.model.process.cost(len(landscape.task.padded))):
        landscape.compile()
        best, ended = climb.best_of(starts)
        tried: set[Manner] = set()
        while (more := _further(landscape, best, ended, bounds)) is not None and more not in tried:
            tried.add(more)
            best, ended = climb.best_of([start_in(more, landscape, starts[0], bounds)], (best, ended))
    landscape.at_rest()
    ending = ending_of(landscape, bounds, best.theta, climb.slope(best), ended, climb.trace)
    return fitted_at(landscape, best, tuple(climb.trace), ending)


def _further(landscape: Landscape, best: Point, ended: str, bounds: np.ndarray) -> Manner | None:
    """The manner of a further start, if the best point is an end at all, and a suspicious one."""
    an_end = best.usable and ended != "max-evaluations"
    return further_manner(landscape, best.theta, bounds) if an_end else None


@contextmanager
def watched(report: Callable[[Step, int], None]) -> Iterator[None]:
    """Tell every evaluation of the block to `report`, with its number: for callers who learn through an estimator,
    whose arguments are scikit-learn's.
    """
    token = _watcher.set(report)
    try:
        yield
    finally:
        _watcher.reset(token)


def fitted_at(landscape: Landscape, best: Point, trace: tuple[Step, ...], ending: Ending) -> Fitted:
    """The result at a point of a landscape."""
    loo = loo_at(best.likelihood, landscape.task, best.out.at)
    return fitted_from(landscape, best.theta, best.value, best.out, loo, trace, ending)


def fitted_from(
    landscape: Landscape, theta: np.ndarray, value: float, out: Outcome, loo: Any, trace: tuple[Step, ...],
    ending: Ending,
) -> Fitted:  # fmt: skip
    """The result at θ, inference having ended as `out` says."""
    model = _as_given(landscape.model, at(declared(landscape.model), theta))
    solution = solution_of(model, landscape.method, landscape.task.x, out, loo, "parallel", landscape.tol)
    return Fitted(model, solution, landscape.objective.name, value, theta, trace, ending)


def ending_of(
    landscape: Landscape, bounds: np.ndarray, theta: np.ndarray, slope: float, why: str, trace: Sequence[Step]
) -> Ending:
    """The end in words: an optimiser that stopped for any reason where the slope is small is at an optimum."""
    stopped = why in ("small-gain", "no-progress", "max-evaluations")
    reason = "converged" if stopped and slope <= FLAT else why
    touching = zip(labels(landscape.parts), at_bounds(theta, bounds), strict=True)
    bounded = tuple(name for name, touches in touching if touches)
    failed = sum(step.reason != "converged" or not np.isfinite(step.value) for step in trace)
    return Ending(reason, len(trace), failed, slope, bounded)


def loose(landscape: Landscape, incline: Any) -> Any:
    """Tolerance of inference on the way, given the slope along the step that led there."""
    return np.clip(SHARP * incline, landscape.tol, LOOSE if landscape.exact else PARTIAL)


def rough(residual: Any, slope: Any, tol: float) -> Any:
    """Whether a point's value is too inexact to be compared with others by the gains that so small a slope promises."""
    return residual > np.maximum(ROUGH * slope, tol)


def starting_point(parts: Any) -> tuple[np.ndarray, np.ndarray]:
    """θ of a declared model and its box, or an error that names a value outside its bounds."""
    theta, bounds = packed(parts), box(parts)
    bad = ~((theta >= bounds[:, 0]) & (theta <= bounds[:, 1]))
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(f"{labels(parts)[i]} starts outside its bounds; give a Parameter with wider bounds, or fixed")
    return theta, bounds


def _as_given(model: Model, learned: Model) -> Model:
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


class Climb:
    """L-BFGS-B over a landscape, with a trace. Where inference fails, it sees a slope back to the best point."""

    def __init__(self, landscape: Landscape, bounds: np.ndarray, most: int, ftol: float, report: Callable) -> None:
        self.landscape, self.bounds, self.most, self.ftol, self.report = landscape, bounds, most, ftol, report
        self.unit = units(landscape)
        self.trace: list[Step] = []
        self.restart = -1

    def best_of(self, starts: list[np.ndarray], known: tuple[Point, str] | None = None) -> tuple[Point, str]:
        """The best end over several starts, and one that is known already."""
        ends = [*([] if known is None else [known]), *(self.from_(start) for start in starts)]
        return max(ends, key=lambda end: end[0].value if end[0].usable else -np.inf)

    def from_(self, theta: np.ndarray) -> tuple[Point, str]:
        """The best point reached from θ, and the optimiser's word on why it stopped."""
        self.restart += 1
        best = self._visit(theta, float(loose(self.landscape, np.inf if len(theta) else 0.0)))
        if not best.usable:
            return best, "inference-failed"
        if not len(theta):
            return best, "nothing-to-learn"
        best, why = self._climbed(best, partial(loose, self.landscape))
        best = self._settled(best)
        if self.landscape.exact and self.ftol <= FTOL and why == "small-gain" and self.slope(best) > FLAT:
            best, why = self._climbed(best, lambda incline: self.landscape.tol)  # gains below the errors on the way
        return self._settled(best), why

    def _climbed(self, best: Point, precision: Callable) -> tuple[Point, str]:
        """L-BFGS-B in units of θ from a usable point, inference as precise as the slope along a step deserves."""
        from scipy.optimize import minimize  # here, since it takes as long to import as the rest of the library

        best = self._compared(best)
        scale, unit = 1.0 + abs(best.value), self.unit

        def negated(steps: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best
            away = steps - best.theta / unit
            far = float(np.sqrt(away @ away))
            incline = abs((unit * best.gradient) @ away) / far if far > 0 else 0.0
            point = self._visit(unit * steps, float(precision(incline))) if far > 0 else best
            if not point.usable:
                return -best.value + scale * (1.0 + far**2), 2.0 * scale * away
            if point.value > best.value:
                point = self._compared(point)
            if point.value > best.value:
                best = point
            return -point.value, -unit * point.gradient

        # A long step may satisfy the line search and yet end on a plateau below a point already seen: go on from there.
        # With a partial gradient every search ends below one, since slopes do not lead up to the end.
        last, why = len(self.trace) + self.most, "no-progress"
        for _ in range(ROUNDS if self.landscape.exact else 1):
            left = last - len(self.trace)
            result = minimize(
                negated, best.theta / unit, jac=True, method="L-BFGS-B", bounds=self.bounds / unit[:, None],
                options={"maxfun": left, "maxiter": left, "ftol": self.ftol, "gtol": 0.5 * FLAT, "maxcor": 10},
            )  # fmt: skip
            if len(self.trace) >= last:
                return best, "max-evaluations"
            why = "small-gain" if result.success else "no-progress"
            if -result.fun >= best.value - 1e-8 * scale:
                break
        return best, why

    def _compared(self, point: Point) -> Point:
        """A point whose value can be compared with those of its neighbours.

        With a partial gradient values and slopes do not belong together, and more precision only shows it.
        """
        slope = self.slope(point)
        if not self.landscape.exact or not rough(float(point.out.at.residual), slope, self.landscape.tol):
            return point
        finer = self._visit(point.theta, float(loose(self.landscape, slope)))
        return finer if finer.usable else point

    def _settled(self, point: Point) -> Point:
        """The same point with inference at the landscape's own tolerance."""
        if float(point.out.at.residual) <= self.landscape.tol:
            return point
        tight = self._visit(point.theta)
        return tight if tight.usable else point

    def _visit(self, theta: np.ndarray, tol: float = 0.0) -> Point:
        point = self.landscape.at(theta, tol)
        slope = self.slope(point)
        self.trace.append(
            Step(self.restart, point.theta, point.value, slope, point.reason, int(point.out.sweeps), point.seconds)
        )
        self.report(self.trace[-1], len(self.trace))
        return point

    def slope(self, point: Point) -> float:
        """The largest entry of the projected gradient, in units of θ."""
        return float(steepness(self.unit * point.gradient, point.theta, self.bounds))
