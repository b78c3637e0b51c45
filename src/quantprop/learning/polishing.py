"""The last steps to an optimum, where values no longer tell points apart but gradients do: Newton's method.

A value of v nats is known to some 1e-16 v, and so an optimum of curvature h to √(1e-16 v / h) at best; by its gradient
it is known to the gradient's error over h. The Hessian is taken by differences of gradients.
"""

from __future__ import annotations

import numpy as np

from quantprop.learning.curvature import MAX_DENSE, by_secant
from quantprop.learning.quasi_newton import projected, steepness
from quantprop.learning.remaining import converged, expected_gain
from quantprop.learning.search_state import DONE, HESSIAN, NEWTON, Answers, Numbers, Problem

DIFFERENCE = 1e-3  # of θ, in its units, over which gradients are differenced: Newton's steps gain three digits each
MAX_STEPS = 5
TAIL_MARGIN = 10.0  # along a tail the Hessian promises too little
MAX_ENTRIES = 32  # of θ: there are as many evaluations in a Hessian


def finished(problem: Problem, numbers: Numbers, margin: float = 1.0) -> bool:
    """Whether the best point, with what remains to be gained there, is an optimum."""
    iterate = numbers.iterate
    slope = float(steepness(iterate.gradient, iterate.theta, problem.rule.bounds)[0])
    return converged(margin * float(numbers.remaining[0]), float(iterate.value[0]), slope, problem.settings.gtol)


def begun(problem: Problem, numbers: Numbers) -> Numbers:
    """The first difference of the Hessian, in whose rows the curvature of the steps before is overwritten."""
    iterate = numbers.iterate
    if iterate.theta.shape[1] > MAX_DENSE or not 0 < len(_free(problem, numbers)) <= MAX_ENTRIES:
        return numbers
    loss = problem.settings.ftol * (1.0 + np.abs(iterate.value))
    blank = iterate._replace(curvature=np.zeros_like(iterate.curvature), steps=np.zeros(1, dtype=int))
    return _differenced(problem, numbers._replace(iterate=blank, floor=iterate.value - loss))


def received(problem: Problem, numbers: Numbers, answer: Answers) -> tuple[Numbers, bool]:
    """The state after an evaluation, and whether that point is the best now."""
    if numbers.phase[0] == NEWTON:
        return _stepped(problem, numbers, answer)
    return (_row_added(problem, numbers, answer) if answer.usable[0] else _over(numbers)), False


def _over(numbers: Numbers) -> Numbers:
    return numbers._replace(phase=np.array([DONE]))


def _free(problem: Problem, numbers: Numbers) -> np.ndarray:
    """The entries of θ that are free to move."""
    iterate = numbers.iterate
    return np.flatnonzero(projected(iterate.gradient, iterate.theta, problem.rule.bounds)[0])


def _ahead(problem: Problem, numbers: Numbers, phase: int, trial: np.ndarray) -> Numbers:
    iterate = numbers.iterate._replace(trial=trial)
    return numbers._replace(iterate=iterate, phase=np.array([phase]), tol=np.array([problem.objective.tol]))


def _differenced(problem: Problem, numbers: Numbers) -> Numbers:
    """The next difference, away from a bound that is near."""
    iterate = numbers.iterate
    i = _free(problem, numbers)[iterate.steps[0]]
    below, above = np.abs(problem.rule.bounds[i] - iterate.theta[0, i])
    trial = iterate.theta.copy()
    trial[0, i] += min(DIFFERENCE, above) if above >= min(below, DIFFERENCE) else -min(DIFFERENCE, below)
    return _ahead(problem, numbers, HESSIAN, trial)


def _row_added(problem: Problem, numbers: Numbers, answer: Answers) -> Numbers:
    """One more row of the negated Hessian; after the last one, a step."""
    iterate, free = numbers.iterate, _free(problem, numbers)
    i, curvature = free[iterate.steps[0]], iterate.curvature.copy()
    curvature[0, i] = (iterate.gradient[0] - answer.gradient[0]) / (iterate.trial[0, i] - iterate.theta[0, i])
    numbers = numbers._replace(iterate=iterate._replace(curvature=curvature, steps=iterate.steps + 1))
    if numbers.iterate.steps[0] < len(free):
        return _differenced(problem, numbers)
    inside = np.ix_(free, free)
    hessian = 0.5 * (curvature[0][inside] + curvature[0][inside].T)
    curvature[0], curvature[0][inside] = np.eye(len(curvature[0])), hessian
    iterate = numbers.iterate._replace(curvature=curvature, steps=np.zeros(1, dtype=int))
    left = expected_gain(iterate.gradient[0, free], hessian)
    numbers = numbers._replace(iterate=iterate, remaining=np.array([left]))
    return _next_step(problem, numbers) if np.linalg.eigvalsh(hessian)[0] > 0 else _over(numbers)


def _next_step(problem: Problem, numbers: Numbers) -> Numbers:
    iterate, free = numbers.iterate, _free(problem, numbers)
    if iterate.steps[0] >= MAX_STEPS or finished(problem, numbers, TAIL_MARGIN):
        return _over(numbers)
    step = np.zeros(iterate.theta.shape[1])
    step[free] = np.linalg.solve(iterate.curvature[0][np.ix_(free, free)], iterate.gradient[0, free])
    return _ahead(problem, numbers, NEWTON, np.clip(iterate.theta + step, *problem.rule.bounds.T))


def _stepped(problem: Problem, numbers: Numbers, answer: Answers) -> tuple[Numbers, bool]:
    """The state after Newton's step: there, if it is no lower than the start by more than ftol, and less steep."""
    iterate, bounds = numbers.iterate, problem.rule.bounds
    loss = problem.settings.ftol * (1.0 + np.abs(iterate.value[0]))
    steep = [steepness(gradient, theta, bounds)[0] for gradient, theta in
             ((answer.gradient, iterate.trial), (iterate.gradient, iterate.theta))]  # fmt: skip
    better = steep[0] < steep[1] or answer.value[0] > iterate.value[0] + loss
    if not answer.usable[0] or answer.value[0] < numbers.floor[0] or not better:
        return _over(numbers), False
    step, bend = iterate.trial - iterate.theta, iterate.gradient - answer.gradient
    latest = by_secant(iterate.curvature, step, bend, np.array([False]))[0]  # along a tail it falls
    best = iterate._replace(theta=iterate.trial, value=answer.value, gradient=answer.gradient, steps=iterate.steps + 1)
    left = expected_gain(projected(best.gradient, best.theta, bounds)[0], latest)
    numbers = numbers._replace(iterate=best, residual=answer.residual, remaining=np.array([left]))
    return _next_step(problem, numbers), True
