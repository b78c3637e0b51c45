"""The last steps to an optimum, where values no longer tell points apart but gradients do: Newton's method.

A value of v nats is known to some 1e-16 v, and so an optimum of curvature h to √(1e-16 v / h) at best; by its gradient
it is known to the gradient's error over h.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from quantprop.learning.ascent import by_secant
from quantprop.learning.landscape import Point
from quantprop.learning.remaining import expected_gain
from quantprop.learning.trials import Trials

DIFFERENCE_STEP = 1e-3  # in units of θ: each Newton step gains three digits
NEWTON_STEPS = 5
MARGIN = 10.0  # along a tail the Hessian promises too little
MAX_ENTRIES = 32  # entries of θ; a Hessian takes as many evaluations


def newton(search: Trials, best: Point, left: float) -> tuple[Point, float]:
    """A point from which there is nothing left to gain, or as little as the gradient's errors let it become, no lower
    than `best` by more than the search's ftol; and what can be expected from there by the Hessian. Where the objective
    is not concave it is `best`.
    """
    free = search.projected(best) != 0
    if not 0 < free.sum() <= MAX_ENTRIES or (curvature := _curvature(search, best, free)) is None:
        return best, left
    left, loss = expected_gain(search.projected(best)[free], curvature), search.ftol * (1.0 + abs(best.value))
    floor, lower, upper = best.value - loss, *search.bounds.T
    for _ in range(NEWTON_STEPS if np.linalg.eigvalsh(curvature)[0] > 0 else 0):
        if search.finished(best, MARGIN * left):
            break
        step = np.zeros(len(free))
        step[free] = np.linalg.solve(curvature, (search.unit * best.gradient)[free])
        point = search.visit(np.clip(best.theta + search.unit * step, lower, upper))
        better = search.slope(point) < search.slope(best) or point.value > best.value + loss
        if not point.usable or point.value < floor or not better:
            break
        bend = (search.unit * (best.gradient - point.gradient))[free]
        latest = by_secant(curvature[None], step[None, free], bend[None], np.array([False]))[0]  # along a tail it falls
        best, left = point, expected_gain(search.projected(point)[free], latest)
    return best, left


def _curvature(search: Trials, best: Point, free: Bool[np.ndarray, " theta"]) -> Float[np.ndarray, "k k"] | None:
    """The negated Hessian over the entries of θ that are free to move; None where inference fails next to the point."""
    rows, unit = [], search.unit
    for i in np.flatnonzero(free):
        away, below, above = np.zeros(len(free)), *(np.abs(search.bounds[i] - best.theta[i]) / unit[i])
        away[i] = min(DIFFERENCE_STEP, above) if above >= min(below, DIFFERENCE_STEP) else -min(DIFFERENCE_STEP, below)
        point = search.visit(best.theta + unit * away)
        if not point.usable:
            return None
        rows.append((unit * (best.gradient - point.gradient))[free] / away[i])
    return 0.5 * (np.array(rows) + np.array(rows).T)
