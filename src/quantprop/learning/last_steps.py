"""The last steps to an optimum, where values no longer tell points apart but gradients do: Newton's method.

A value of v nats is known to some 1e-16 v, and so an optimum of curvature h to √(1e-16 v / h) at best; by its gradient
it is known to the gradient's error over h.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from quantprop.learning.ascent import projected
from quantprop.learning.landscape import Point

DIFFERENCE = 1e-3  # of θ, in its units, over which gradients are differenced: Newton's steps gain three digits each
STEPS = 5
MOST = 32  # entries of θ: there are as many evaluations in a Hessian


def newton(
    visit: Callable[[np.ndarray], Point],
    slope: Callable[[Point], float],
    best: Point,
    unit: Float[np.ndarray, " theta"],
    bounds: Float[np.ndarray, "theta 2"],
    flat: float,
    loss: float,
) -> Point:
    """A point with a slope of at most `flat`, or as small as the gradient's errors let it become; no lower than `best`
    by more than `loss`. Where the objective is not concave it is `best`.
    """
    free = projected(unit * best.gradient, best.theta, bounds) == unit * best.gradient
    if not 0 < free.sum() <= MOST or (curvature := _curvature(visit, best, unit, bounds, free)) is None:
        return best
    floor = best.value - loss
    for _ in range(STEPS):
        if slope(best) <= flat:
            break
        step = np.zeros(len(free))
        step[free] = np.linalg.solve(curvature, (unit * best.gradient)[free])
        point = visit(np.clip(best.theta + unit * step, bounds[:, 0], bounds[:, 1]))
        if not point.usable or point.value < floor or slope(point) >= slope(best):
            break
        best = point
    return best


def _curvature(
    visit: Callable[[np.ndarray], Point],
    best: Point,
    unit: Float[np.ndarray, " theta"],
    bounds: Float[np.ndarray, "theta 2"],
    free: Bool[np.ndarray, " theta"],
) -> Float[np.ndarray, "k k"] | None:
    """The negated Hessian over the entries of θ that are free to move; None where it is not positive definite."""
    rows = []
    for i in np.flatnonzero(free):
        away, below, above = np.zeros(len(free)), *(np.abs(bounds[i] - best.theta[i]) / unit[i])
        away[i] = min(DIFFERENCE, above) if above >= min(below, DIFFERENCE) else -min(DIFFERENCE, below)
        point = visit(best.theta + unit * away)
        if not point.usable:
            return None
        rows.append((unit * (best.gradient - point.gradient))[free] / away[i])
    found = 0.5 * (np.array(rows) + np.array(rows).T)
    return found if np.linalg.eigvalsh(found)[0] > 0 else None
