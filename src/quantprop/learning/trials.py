"""Trial points of a search: evaluated as precisely as the search needs, noted, and compared with each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.inference.results import Step
from quantprop.learning.ascent import projected, steepness
from quantprop.learning.checkpoints import Checkpoint
from quantprop.learning.landscape import Point
from quantprop.learning.remaining import GRADIENT_TOL, Seen, converged
from quantprop.learning.starts import units

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


class Trials:
    """The points of a search over a landscape or what adds to one, with a trace."""

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

    def finished(self, best: Point, left: float) -> bool:
        return converged(left, best.value, self.slope(best), self.flat)

    def tried(self, best: Point, theta: np.ndarray, tol: float) -> tuple[Point, Point]:
        """The point at θ, and the better one of it and the best so far."""
        point = self.visit(np.clip(theta, self.bounds[:, 0], self.bounds[:, 1]), tol)
        if not point.usable:
            return point, best
        point = self.compared(point) if point.value > best.value else point
        return point, point if point.value > best.value else best

    def compared(self, point: Point) -> Point:
        """A point whose value can be compared with those of its neighbours.

        With a partial gradient values and slopes do not belong together, and more precision only shows it.
        """
        slope = self.slope(point)
        if not self.landscape.exact or not rough(point.residual, slope, self.landscape.tol):
            return point
        finer = self.visit(point.theta, float(loose(self.landscape, slope)))
        return finer if finer.usable else point

    def settled(self, point: Point) -> Point:
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
