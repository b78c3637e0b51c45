"""L-BFGS-B over a landscape, whose long first steps find the scale of y, and of many numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from quantprop.learning.ascent import TINY
from quantprop.learning.coordinates import coordinates
from quantprop.learning.landscape import Point
from quantprop.learning.trials import Trials

MEMORY_PAIRS = 40  # stored pairs of a step and the change of the gradient


def climbed(
    search: Trials,
    best: Point,
    precision: Callable[[float], Any],
    steepest: float,
    flat: float,
    left: Callable[[], int],
) -> tuple[Point, str]:
    """The best point found from a usable one, and why it ended; `left` is how many evaluations are.

    The first step is as long as the slope, in units of `steepest`. Where inference fails, the search sees a slope back
    to the best point.
    """
    unit = search.unit
    fall = 1.0 + steepest  # where inference fails; unlike the value, without the constants of the objective
    place = coordinates(search.landscape, unit, search.bounds)

    def negated(u: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        if np.array_equal(u, place.of(best.theta)):
            return -best.value / steepest, -place.stretch(best.theta) * best.gradient / steepest
        theta = place.theta(u, search.bounds)
        away, stretch = (theta - best.theta) / unit, place.stretch(theta) / steepest
        far = float(np.sqrt(away @ away))
        incline = abs(float((unit * best.gradient) @ away)) / max(far, TINY)
        point, best = search.tried(best, theta, float(precision(incline)))
        if not point.usable:
            return (-best.value + fall * (1.0 + far**2)) / steepest, 2.0 * fall * away / unit * stretch
        return -point.value / steepest, -point.gradient * stretch

    from scipy.optimize import minimize  # here: it takes as long to import as the rest of the library

    size = max(1.0, abs(best.value))
    ftol = search.ftol * size / max(size, steepest)  # it compares gains with 1, if values are smaller
    options = {"maxfun": left(), "maxiter": left(), "ftol": ftol, "gtol": flat / steepest, "maxcor": MEMORY_PAIRS}
    start, *ends = map(place.of, (best.theta, *search.bounds.T))
    result = minimize(negated, start, jac=True, method="L-BFGS-B", bounds=np.transpose(ends), options=options)
    if left() <= 0:
        return best, "max-evaluations"
    return best, "small-gain" if result.success else "no-progress"
