"""An objective whose optimum is searched for, and how precise and how long the search is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop.core.parameters import box
from quantprop.learning.quasi_newton import LONGEST_STEP, Rule, steepness
from quantprop.learning.remaining import GRADIENT_TOLERANCE
from quantprop.learning.starts import units

MAX_EVALUATIONS = 300  # from one start
FTOL = 1e-12  # relative gain of one step below which a search stops
FEW_ENTRIES = 8  # of θ
LOOSEST_TOL = 1e-3  # of inference during the search
VALUE_ERROR = 1e-3  # nats by which a value may then be wrong: n rows with a residual r make it wrong by some n r²
PARTIAL_TOL = 1e-6  # with a partial gradient, where values are not corrected for what the sites have still to gain
GRADIENT_ERROR = 3e-5  # relative to the slope along the step: it is of first order in the residual
COMPARABLE = 1e-3  # largest residual at which values are compared, relative to the slope: their error is of 2nd order


class Problem(NamedTuple):
    """An objective, and how to search for its optimum."""

    objective: Any  # a Landscape, or anything with its `parts`, `task`, `tol`, `exact`, `total` and `careful`
    bounds: Float[np.ndarray, "theta 2"]
    unit: Float[np.ndarray, " theta"]
    lower: Float[np.ndarray, " theta"]  # in units of θ, as what follows
    upper: Float[np.ndarray, " theta"]
    longest: float  # step of an entry with bounds; of many entries long steps find better optima
    max_evaluations: int = MAX_EVALUATIONS
    ftol: float = FTOL
    gtol: float = GRADIENT_TOLERANCE
    further_starts: bool = True  # if an end is suspicious

    @staticmethod
    def of(objective: Any, *settings: Any) -> Problem:
        """The search over an objective inside the bounds of its parameters."""
        parts, unit = objective.parts, units(objective)
        bounds, longest = box(parts), LONGEST_STEP if len(unit) <= FEW_ENTRIES else np.inf
        lower, upper = bounds.T / unit
        return Problem(objective, bounds, unit, lower, upper, longest, *settings)

    def theta(self, trial: Float[np.ndarray, " theta"]) -> Float[np.ndarray, " theta"]:
        """The hyperparameters at a place in units of θ."""
        return np.clip(self.unit * trial, *self.bounds.T)

    def slope(self, gradient: np.ndarray, theta: np.ndarray) -> float:
        """The largest entry of the projected gradient."""
        return float(steepness(gradient, theta, self.lower, self.upper))


def rule_of(problems: Sequence[Problem]) -> Rule:
    """The rule of steps of problems of one form."""
    one, boxes = problems[0], ([problem.lower for problem in problems], [problem.upper for problem in problems])
    lower, upper = map(np.stack, boxes)
    return Rule(lower, upper, one.ftol, 0.5 * min(GRADIENT_TOLERANCE, one.gtol), one.longest)


def loose(objective: Any, slope: float) -> float:
    """Tolerance of inference during a search, given the slope along the step that led there; the same in all processes
    of a job, whose sweeps end together.
    """
    loosest = min(LOOSEST_TOL, (VALUE_ERROR / max(objective.total, 1)) ** 0.5) if objective.exact else PARTIAL_TOL
    return max(min(GRADIENT_ERROR * slope, loosest), objective.tol)
