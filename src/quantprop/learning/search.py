"""The search for an optimum of one landscape, with inference only as precise as each step needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop.core.parameters import free, logarithmic
from quantprop.learning import limited_memory
from quantprop.learning.ascent import GOING, NO_PROGRESS, Ascent
from quantprop.learning.landscape import Point
from quantprop.learning.last_steps import newton
from quantprop.learning.remaining import GRADIENT_TOL, gain_by_secants, remaining_gain
from quantprop.learning.starts import expected_curvature, start_of_separable_classes
from quantprop.learning.trials import Trials, loose

ONE = np.array([0])  # the row of an ascent's only problem
FTOL = 1e-12
MAX_BFGS_ENTRIES = 8  # longer θ are learned by L-BFGS-B
RISING_BACK = 3.0  # slope towards the start, at the larger variance of separable classes, with which it is tried too
LAST_GAIN, LITTLE_GAIN = 1e-3, 2e-6  # nats: promised by a last step, and left after it


class End(NamedTuple):
    """Final point of a search, the optimiser's reason for stopping, and the gain that can still be expected."""

    point: Point
    why: str
    remaining: float


class Climb(Trials):
    """An ascent, or L-BFGS-B, by trial points."""

    def best_of(self, starts: list[np.ndarray], known: End | None = None) -> End:
        """The best end over several starts, and one that is known already."""
        ends = [*([] if known is None else [known]), *(self.from_(start) for start in starts)]
        return max(ends, key=lambda end: end.point.value if end.point.usable else -np.inf)

    def from_(self, theta: np.ndarray) -> End:
        """The best point reached from θ."""
        self.restart += 1
        self.seen = []
        best = self._started(theta)
        if not best.usable:
            return End(best, "inference-failed", np.nan)
        if not len(theta):
            return End(best, "nothing-to-learn", 0.0)
        first = max(1.0, self.slope(best)) if self.landscape.careful else 1.0
        best, why = self._climbed(best, partial(loose, self.landscape), first)
        best = self.settled(best)
        unfinished = why in ("small-gain", "no-progress") and self.slope(best) > GRADIENT_TOL
        if self.landscape.exact and self.ftol <= FTOL and unfinished:  # gains are below the errors on the way
            best, why = self._climbed(best, lambda incline: self.landscape.tol, max(1.0, self.slope(best)))
        best = self.settled(best)
        if why == "converged":
            return End(best, why, self._gain_by_secants(best))
        left = remaining_gain(self.projected(best), best.theta / self.unit, self.seen)
        further = self.landscape.exact and (self.ftol <= FTOL or self.flat < GRADIENT_TOL)
        if further and why != "max-evaluations" and not self.finished(best, left):
            best, left = newton(self, best, left)
        return End(best, why, left)

    def _started(self, theta: np.ndarray) -> Point:
        """The point at θ; of several classes the one where they can be separated, to which a search from θ takes ten
        steps, or the better of both if the objective rises towards θ there.
        """
        loosest = float(loose(self.landscape, np.inf if len(theta) else 0.0))
        larger = start_of_separable_classes(self.landscape, theta, self.bounds)
        if np.array_equal(larger, theta):
            return self.visit(theta, loosest)
        best, way = self.visit(larger, loosest), larger - theta
        if best.usable and best.gradient @ way >= -RISING_BACK * np.sqrt(way @ way):
            return best
        start = self.visit(theta, loosest)
        return start if start.usable and not best.value >= start.value else best

    def _gain_by_secants(self, best: Point) -> float:
        """The gain that the curvature learned so far promises."""
        return gain_by_secants(self.projected(best), best.theta / self.unit, self.seen)

    def _climbed(self, best: Point, precision: Callable[[float], Any], steepest: float) -> tuple[Point, str]:
        """The best point found from a usable one, in units of θ, inference as precise as the slope along a step needs,
        and why the search ended. `steepest` is the slope with which L-BFGS-B would begin with a step of 1.
        """
        best, unit, last, flat = self.compared(best), self.unit, len(self.trace) + self.most, 0.5 * GRADIENT_TOL
        if not _on_a_natural_scale(self.landscape):
            return limited_memory.climbed(self, best, precision, steepest, flat, lambda: last - len(self.trace))
        box, expected = self.bounds / unit[:, None], expected_curvature(self.landscape)
        ascent = Ascent((best.theta / unit)[None], box, flat, self.ftol, self.most + 2, expected)
        _tell(ascent, best, unit)
        while ascent.reason[0] == GOING:
            if len(self.trace) >= last:
                return best, "max-evaluations"
            tol = float(precision(abs(ascent.incline(ONE)[0])))
            last_one = expected is not None and self.flat >= GRADIENT_TOL and ascent.promise(ONE)[0] < LAST_GAIN
            point, best = self.tried(best, unit * ascent.trial[0], self.landscape.tol if last_one else tol)
            if last_one and self._gain_by_secants(best) < LITTLE_GAIN:
                return best, "converged"
            _tell(ascent, point, unit)
        return best, "no-progress" if ascent.reason[0] == NO_PROGRESS else "small-gain"


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
