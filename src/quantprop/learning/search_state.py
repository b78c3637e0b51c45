"""The state of searches: the numbers of many problems at once, what each has seen, and what it has still to try."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, Int

from quantprop.inference.results import Step
from quantprop.learning.quasi_newton import Iterate, Rule
from quantprop.learning.remaining import GRADIENT_TOLERANCE, Seen

FTOL = 1e-12  # relative gain of one step below which a search stops
MAX_EVALUATIONS_PER_START = 300
MAX_EQUAL_VALUES = 3  # in a row, no further from the best than ftol, after which values no longer tell points apart
LOOSEST_TOL = 1e-3  # of inference during the search
VALUE_ERROR = 1e-3  # nats by which a value may then be wrong: n rows with a residual r make it wrong by some n r²
PARTIAL_TOL = 1e-6  # with a partial gradient, where values are not corrected for what the sites have still to gain
GRADIENT_ERROR = 3e-5  # relative to the slope along the step: it is of first order in the residual
COMPARABLE = 1e-3  # largest residual at which values are compared, relative to the slope: their error is of 2nd order
CLIMB, EVALUATE, CLIMB_PRECISELY, EVALUATE_AGAIN, HESSIAN, NEWTON, DONE = range(7)  # phases


class Answers(NamedTuple):
    """The objective at the trials of some problems, with its gradient in units of θ, and how inference went there."""

    finished: Any  # False where sweeps have to be continued
    value: Any
    gradient: Any
    usable: Any
    residual: Any
    points: Sequence[Any]  # as evaluated, with `reason`, `seconds` and `sweeps`


class Settings(NamedTuple):
    """When a search stops."""

    most: int = MAX_EVALUATIONS_PER_START
    ftol: float = FTOL
    gtol: float = GRADIENT_TOLERANCE


class Problem(Protocol):
    """Objectives that a search maximises."""

    objective: Any  # its `tol`, `exact`, `total` and `careful`
    unit: Float[np.ndarray, " theta"]
    rule: Rule
    settings: Settings
    slots: int  # problems that are evaluated at a time

    def evaluate(self, inference: Any, rows: Int[np.ndarray, " k"], theta: np.ndarray, tol: np.ndarray) -> Any:
        """`Answers` at θ, and what inference starts from next time."""
        ...

    def further_start(self, row: int, end: End) -> tuple[Any, np.ndarray] | None:
        """The rule and θ of one more start, if an end is suspicious."""
        ...


class End(NamedTuple):
    """Where a search ended."""

    theta: Float[np.ndarray, " theta"]
    value: float
    slope: float
    why: str
    remaining: float
    point: Any = None  # as evaluated; None after a checkpoint was read


class Numbers(NamedTuple):
    """The numerical part of a state, of b problems."""

    iterate: Iterate
    phase: Any
    tol: Float[np.ndarray, " b"]  # of inference at the trial
    residual: Float[np.ndarray, " b"]  # of inference at the best point
    coarse_value: Float[np.ndarray, " b"]  # at the trial, if it is evaluated again more precisely; otherwise NaN
    coarse_gradient: Float[np.ndarray, "b theta"]
    equal_values: Any  # in a row that are the best one's, except for rounding
    evaluations: Any  # of this climb
    floor: Float[np.ndarray, " b"]  # value below which Newton's steps may not lead
    remaining: Float[np.ndarray, " b"]


class Log(NamedTuple):
    """What one search has seen, and what it has still to try."""

    trace: tuple[Step, ...] = ()
    gradients: tuple[np.ndarray, ...] = ()  # of each step
    restart: int = 0
    starts: tuple[np.ndarray, ...] = ()
    tried: tuple[Any, ...] = ()  # rules of further starts
    end: End | None = None  # the best so far
    point: Any = None  # as evaluated at the best point

    def seen(self, unit: Float[np.ndarray, " theta"]) -> list[Seen]:
        """The usable evaluations from this start."""
        every = zip(self.trace, self.gradients, strict=True)
        own = [(line, slope) for line, slope in every if line.restart == self.restart and line.reason == "converged"]
        seen = [Seen(line.theta / unit, line.value, unit * slope) for line, slope in own]
        return [one for one in seen if np.isfinite([one.value, *one.gradient]).all()]


class SearchState(NamedTuple):
    """All that the next step depends on."""

    numbers: Numbers
    logs: tuple[Log, ...]
    inference: Any  # sites and spent fallbacks, as the problem's `evaluate` returned them


def loose(objective: Any, slope: Any) -> Any:
    """Tolerance of inference during a search, given the slope along the step that led there; the same in all processes
    of a job, whose sweeps end together.
    """
    loosest = min(LOOSEST_TOL, (VALUE_ERROR / max(objective.total, 1)) ** 0.5) if objective.exact else PARTIAL_TOL
    return np.clip(GRADIENT_ERROR * slope, objective.tol, loosest)


def rough(residual: Any, slope: Any, tol: float) -> Any:
    """Whether a value is too inexact to be compared with others by the gains that so small a slope promises."""
    return residual > np.maximum(COMPARABLE * slope, tol)
