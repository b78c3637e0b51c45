"""The search for an optimum of one landscape, with inference only as precise as each step needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop.core.parameters import free, logarithmic
from quantprop.inference.results import Step
from quantprop.learning import limited_memory
from quantprop.learning.ascent import GOING, NO_PROGRESS, Ascent, projected, steepness
from quantprop.learning.checkpoints import Checkpoint
from quantprop.learning.landscape import Point
from quantprop.learning.last_steps import newton
from quantprop.learning.remaining import GRADIENT_TOL, Seen, converged, remaining_gain
from quantprop.learning.starts import start_of_separable_classes, units

ONE = np.array([0])  # the row of an ascent's only problem
FTOL = 1e-12
MAX_BFGS_ENTRIES = 8  # longer θ are learned by L-BFGS-B
MAX_TIES = 3  # consecutive values within ftol of the best, after which values no longer distinguish points
MAX_SEARCH_TOL = 1e-3  # tolerance of inference during the search
MAX_VALUE_ERROR = 1e-3  # nats, during the search: a residual r at n rows makes an error of about n r²
MAX_PARTIAL_ERROR = 1e-6  # nats, with a partial gradient: values are not corrected for unconverged sites
TOL_PER_SLOPE = 3e-5  # tolerance / directional derivative: the gradient's error is of first order in the residual
RESIDUAL_PER_SLOPE = 1e-3  # for comparisons of values, whose errors are of second order


def loose(landscape: Any, incline: Any) -> Any:
    """Tolerance of inference on the way, given the slope along the step that led there; the same in all processes of a
    job, whose sweeps end together.
    """
    for_values = (MAX_VALUE_ERROR / max(landscape.total, 1)) ** 0.5
    loosest = min(MAX_SEARCH_TOL, for_values) if landscape.exact else MAX_PARTIAL_ERROR
    return np.clip(TOL_PER_SLOPE * incline, landscape.tol, loosest)


def rough(residual: Any, slope: Any, tol: float) -> Any:
    """Return whether a value is too inexact to compare with others, given the gain that its gradient promises."""
    return residual > np.maximum(RESIDUAL_PER_SLOPE * slope, tol)


class End(NamedTuple):
    """Final point of a search, the optimiser's reason for stopping, and the gain that can still be expected."""

    point: Point
    why: str
    remaining: float


class Climb:
    """An ascent, or L-BFGS-B, over a landscape or what adds to one, with a trace."""

    def __init__(
        self,
        landscape: Any,
        bounds: np.ndarray,
        most: int,
        ftol: float,
        report: Callable,
        kept: Checkpoint | None = None,
        flat: float = GRADIENT_TOL,
    ) -> None:
        self.landscape, self.bounds, self.most, self.ftol, self.report = landscape, bounds, most, ftol, report
        self.kept = Checkpoint() if kept is None else kept
        self.flat = flat
        self.unit = units(landscape)
        self.trace: list[Step] = []
        self.seen: list[Seen] = []  # from this start, in units of θ
        self.restart = -1
        self.alike = 0  # consecutive values equal to the best, up to rounding

    def best_of(self, starts: list[np.ndarray], known: End | None = None) -> End:
        """The best end over several starts, and one that is known already."""
        ends = [*([] if known is None else [known]), *(self.from_(start) for start in starts)]
        return max(ends, key=lambda end: end.point.value if end.point.usable else -np.inf)

    def from_(self, theta: np.ndarray) -> End:
        """The best point reached from θ."""
        self.restart += 1
        self.seen = []
        best = self.visit(theta, float(loose(self.landscape, np.inf if len(theta) else 0.0)))
        if not best.usable:
            return End(best, "inference-failed", np.nan)
        if not len(theta):
            return End(best, "nothing-to-learn", 0.0)
        best = self._of_larger_variance(best)
        first = max(1.0, self.slope(best)) if self.landscape.careful else 1.0
        best, why = self._climbed(best, partial(loose, self.landscape), first)
        best = self._settled(best)
        unfinished = why in ("small-gain", "no-progress") and self.slope(best) > GRADIENT_TOL
        if self.landscape.exact and self.ftol <= FTOL and unfinished:  # gains are below the errors on the way
            best, why = self._climbed(best, lambda incline: self.landscape.tol, max(1.0, self.slope(best)))
        best = self._settled(best)
        left = remaining_gain(self.projected(best), best.theta / self.unit, self.seen)
        further = self.landscape.exact and (self.ftol <= FTOL or self.flat < GRADIENT_TOL)
        if further and why != "max-evaluations" and not self.finished(best, left):
            best, left = newton(self, best, left)
        return End(best, why, left)

    def _of_larger_variance(self, best: Point) -> Point:
        """The better one of a start and of the start for separable classes, to which a search takes ten steps."""
        theta = start_of_separable_classes(self.landscape, best.theta, self.bounds)
        if np.array_equal(theta, best.theta):
            return best
        return self.tried(best, theta, float(loose(self.landscape, np.inf)))[1]

    def finished(self, best: Point, left: float) -> bool:
        return converged(left, best.value, self.slope(best), self.flat)

    def _climbed(self, best: Point, precision: Callable[[float], Any], steepest: float) -> tuple[Point, str]:
        """The best point found from a usable one, in units of θ, inference as precise as the slope along a step needs,
        and why the search ended. `steepest` is the slope with which L-BFGS-B would begin with a step of 1.
        """
        best, unit, last, flat = self._compared(best), self.unit, len(self.trace) + self.most, 0.5 * GRADIENT_TOL
        self.alike = 0
        if not _on_a_natural_scale(self.landscape):
            return limited_memory.climbed(self, best, precision, steepest, flat, lambda: last - len(self.trace))
        ascent = Ascent((best.theta / unit)[None], self.bounds / unit[:, None], flat, self.ftol, self.most + 2)
        _tell(ascent, best, unit)
        while ascent.reason[0] == GOING:
            if len(self.trace) >= last:
                return best, "max-evaluations"
            tol = float(precision(abs(ascent.incline(ONE)[0])))
            point, best = self.tried(best, unit * ascent.trial[0], tol)
            if self.nothing_to_gain(best):
                return best, "small-gain"
            _tell(ascent, point, unit)
        return best, "no-progress" if ascent.reason[0] == NO_PROGRESS else "small-gain"

    def tried(self, best: Point, theta: np.ndarray, tol: float) -> tuple[Point, Point]:
        """The point at θ, and the better one of it and the best so far."""
        point = self.visit(np.clip(theta, self.bounds[:, 0], self.bounds[:, 1]), tol)
        if not point.usable:
            return point, best
        point = self._compared(point) if point.value > best.value else point
        self.alike = self.alike + 1 if abs(point.value - best.value) <= self.ftol * (1.0 + abs(best.value)) else 0
        return point, point if point.value > best.value else best

    def nothing_to_gain(self, best: Point) -> bool:
        """True if values no longer distinguish points, so that a line search would only stop at its own limit."""
        return self.alike >= (1 if self.slope(best) <= GRADIENT_TOL else MAX_TIES)

    def _compared(self, point: Point) -> Point:
        """A point whose value can be compared with those of its neighbours.

        With a partial gradient values and slopes do not belong together, and more precision only shows it.
        """
        slope = self.slope(point)
        if not self.landscape.exact or not rough(point.residual, slope, self.landscape.tol):
            return point
        finer = self.visit(point.theta, float(loose(self.landscape, slope)))
        return finer if finer.usable else point

    def _settled(self, point: Point) -> Point:
        """The same point with inference at the landscape's own tolerance."""
        if point.residual <= self.landscape.tol:
            return point
        tight = self.visit(point.theta)
        return tight if tight.usable else point

    def visit(self, theta: np.ndarray, tol: float = 0.0) -> Point:
        """One evaluation, noted and reported."""
        point = self.kept.visit(self.landscape, theta, tol)
        slope = self.slope(point)
        about = (slope, point.reason, point.sweeps, point.seconds)
        self.trace.append(Step(self.restart, point.theta, point.value, *about))
        self.report(self.trace[-1], len(self.trace))
        if point.usable:
            self.seen.append(Seen(point.theta / self.unit, point.value, self.unit * point.gradient))
        return point

    def slope(self, point: Point) -> float:
        """The largest entry of the projected gradient, in units of θ."""
        return float(steepness(self.unit * point.gradient, point.theta, self.bounds))

    def projected(self, point: Point) -> Float[np.ndarray, " theta"]:
        """The gradient, in units of θ, without the entries that point out of the box."""
        return projected(self.unit * point.gradient, point.theta, self.bounds)


def _on_a_natural_scale(landscape: Any) -> bool:
    """Return whether steps of at most 1, then 3, suit the search: for few logarithms, if f has no unit. Otherwise the
    long first steps of L-BFGS-B find the unit of y sooner, and better optima of many lengthscales.
    """
    learned, likelihood = free(landscape.parts), landscape.parts.likelihood
    few = sum(np.size(parameter.value) for parameter in learned) <= MAX_BFGS_ENTRIES
    return few and likelihood.noise_name is None and all(map(logarithmic, learned))


def _tell(ascent: Ascent, point: Point, unit: Float[np.ndarray, " theta"]) -> None:
    """Tell an ascent of one problem, in units of θ, what was found at its trial."""
    ascent.tell(ONE, np.array([point.value]), (unit * point.gradient)[None], np.array([point.usable]))
