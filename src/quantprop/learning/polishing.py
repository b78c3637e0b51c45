"""The last steps to an optimum, where values no longer tell points apart but gradients do: Newton's method.

A value of v nats is known to some 1e-16 v, and so an optimum of curvature h to √(1e-16 v / h) at best; by its gradient
it is known to the gradient's error over h. The Hessian is taken by differences of gradients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from quantprop.learning.quasi_newton import by_secant
from quantprop.learning.remaining import Seen, expected_gain

DIFFERENCE = 1e-3  # of θ, in its units, over which gradients are differenced: Newton's steps gain three digits each
MAX_STEPS = 5
TAIL_MARGIN = 10.0  # along a tail the Hessian promises too little
MAX_ENTRIES = 32  # of θ: there are as many evaluations in a Hessian
NEWTON = "newton"  # phase of a search


class Newton(NamedTuple):
    """Newton's method around the best point: the differences so far, and then its steps."""

    free: Int[np.ndarray, " k"]  # entries of θ that no bound holds
    floor: float  # value below which steps may not lead
    rows: Float[np.ndarray, "j k"]  # of the negated Hessian
    curvature: Float[np.ndarray, "k k"] | None = None  # once all rows are known
    steps: int = 0


def begun(problem: Any, state: Any) -> Any:
    """The search with the first difference ahead, if there are few enough entries of θ; its phase says so."""
    free = np.flatnonzero(problem.projected(state.best))
    if not 0 < len(free) <= MAX_ENTRIES:
        return state
    floor = state.best.value - _loss(problem, state.best)
    return _differenced(problem, state._replace(newton=Newton(free, floor, np.zeros((0, len(free))))))


def _loss(problem: Any, best: Seen) -> float:
    return problem.ftol * (1.0 + abs(best.value))


def _ahead(problem: Any, state: Any, trial: np.ndarray, newton: Newton) -> Any:
    trial = np.clip(trial, problem.lower, problem.upper)
    return state._replace(phase=NEWTON, trial=trial, tol=problem.objective.tol, newton=newton)


def _differenced(problem: Any, state: Any) -> Any:
    """The search with the next difference ahead, away from a bound that is near."""
    newton, trial = state.newton, state.best.theta.copy()
    i = newton.free[len(newton.rows)]
    below, above = trial[i] - problem.lower[i], problem.upper[i] - trial[i]
    trial[i] += min(DIFFERENCE, above) if above >= min(below, DIFFERENCE) else -min(DIFFERENCE, below)
    return _ahead(problem, state, trial, newton)


def received(problem: Any, state: Any, point: Any) -> Any:
    """The search once the point at its trial is known; without `newton` if that is over."""
    if not point.usable:
        return state._replace(newton=None)
    if state.newton.curvature is None:
        return _row_added(problem, state)
    return _stepped(problem, state, point)


def _row_added(problem: Any, state: Any) -> Any:
    """The search with one more row of the negated Hessian; after the last one, a step."""
    newton, best, latest = state.newton, state.best, state.seen[-1]
    i = newton.free[len(newton.rows)]
    row = (best.gradient - latest.gradient)[newton.free] / (latest.theta - best.theta)[i]
    newton = newton._replace(rows=np.vstack([newton.rows, row]))
    state = state._replace(newton=newton)
    if len(newton.rows) < len(newton.free):
        return _differenced(problem, state)
    curvature = 0.5 * (newton.rows + newton.rows.T)
    left = expected_gain(best.gradient[newton.free], curvature)
    concave = np.linalg.eigvalsh(curvature)[0] > 0
    return _next_step(problem, state._replace(newton=newton._replace(curvature=curvature), remaining=left), concave)


def _next_step(problem: Any, state: Any, concave: bool = True) -> Any:
    newton, best = state.newton, state.best
    if not concave or newton.steps == MAX_STEPS or problem.finished(best, TAIL_MARGIN * state.remaining):
        return state._replace(newton=None)
    step = np.zeros(len(best.theta))
    step[newton.free] = np.linalg.solve(newton.curvature, best.gradient[newton.free])
    return _ahead(problem, state, best.theta + step, newton._replace(steps=newton.steps + 1))


def _stepped(problem: Any, state: Any, point: Any) -> Any:
    """The search after a step: there, if that is no lower than the start by more than ftol, and less steep."""
    newton, best, latest = state.newton, state.best, state.seen[-1]
    steep, before = (problem.slope(at.gradient, at.theta) for at in (latest, best))
    better = steep < before or latest.value > best.value + _loss(problem, best)
    if latest.value < newton.floor or not better:
        return state._replace(newton=None)
    step, bend = ((a - b)[None, newton.free] for a, b in ((latest.theta, best.theta), (best.gradient, latest.gradient)))
    curvature = by_secant(newton.curvature[None], step, bend)[0]  # along a tail it falls
    left = expected_gain(problem.projected(latest)[newton.free], curvature)
    return _next_step(problem, state._replace(best=latest, residual=point.residual, point=point, remaining=left))
