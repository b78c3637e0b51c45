"""The search for optima of many objectives at once, as a pure state machine: `init`, `step`, `done`.

A search climbs by quasi-Newton steps with inference only as precise as each step needs, evaluates the point that it
reached precisely, climbs on if gains were lost in the errors on the way, and ends by Newton's method if gradients still
tell points apart that values no longer do. θ is measured in the units of `Problem.unit` here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.inference.results import Step
from quantprop.learning import polishing
from quantprop.learning.quasi_newton import (
    FAILED,
    GOING,
    MAX_EVALUATIONS,
    NO_PROGRESS,
    REASONS,
    SMALL_GAIN,
    STATIONARY,
    begin,
    changed_rows,
    incline,
    projected,
    put,
    received,
    steepness,
)
from quantprop.learning.remaining import GRADIENT_TOLERANCE, remaining_gain
from quantprop.learning.search_state import (
    CLIMB,
    CLIMB_PRECISELY,
    DONE,
    EVALUATE,
    EVALUATE_AGAIN,
    FTOL,
    HESSIAN,
    MAX_EQUAL_VALUES,
    NEWTON,
    Answers,
    End,
    Log,
    Numbers,
    Problem,
    SearchState,
    loose,
    rough,
)
from quantprop.runtime.batches import of


def init(problem: Problem, starts: Sequence[Sequence[np.ndarray]], inference: Any) -> SearchState:
    """The state before the first step: one or more starts for each problem."""
    first = np.array([own[0] for own in starts], dtype=np.float64) / problem.unit
    logs = tuple(Log(starts=tuple(own[1:])) for own in starts)
    return SearchState(_begun(problem, first), logs, inference)


def done(state: SearchState) -> bool:
    """Whether all searches have ended."""
    return bool((state.numbers.phase == DONE).all())


def step(problem: Problem, state: SearchState) -> tuple[SearchState, list[tuple[Step, int]]]:
    """One evaluation of as many unfinished problems as there are slots; also their lines of the trace, each with its
    number.
    """
    numbers, logs = state.numbers, list(state.logs)
    rows = np.flatnonzero(numbers.phase != DONE)[: problem.slots]
    inference, answers = problem.evaluate(
        state.inference, rows, problem.unit * numbers.iterate.trial[rows], numbers.tol[rows]
    )
    which = np.flatnonzero(answers.finished)
    rows, points = rows[which], [answers.points[i] for i in which]
    answers = Answers(*(np.asarray(part)[which] for part in answers[:-1]), points)
    trials = numbers.iterate.trial[rows]
    for i, row in enumerate(rows):
        logs[row] = _noted(problem, logs[row], trials[i], answers.value[i], answers.gradient[i], points[i])
    before, some = numbers.phase[rows], of(numbers, rows)
    climbing = (before == CLIMB) | (before == CLIMB_PRECISELY)
    if climbing.any():
        some, moved = _climbed(problem, some, answers, climbing)
        for i in np.flatnonzero(moved | (some.iterate.reason == FAILED)):
            logs[rows[i]] = logs[rows[i]]._replace(point=points[i])
    for i in np.flatnonzero(~climbing | (some.iterate.reason != GOING)):
        one, log = of(some, [i]), logs[rows[i]]
        answer = Answers(*(part[i : i + 1] for part in answers[:-1]), points[i : i + 1])
        one, log = _after_climb(problem, one, log) if climbing[i] else _beyond(problem, one, log, answer)
        if one.phase[0] == DONE:
            one, log = _ended(problem, int(rows[i]), one, log)
        some, logs[rows[i]] = put(some, [i], one), log
    steps = [(logs[row].trace[-1], len(logs[row].trace)) for row in rows]
    return SearchState(put(numbers, rows, some), tuple(logs), inference), steps


def _begun(problem: Problem, theta: Float[np.ndarray, "b theta"]) -> Numbers:
    """Climbs that start at θ."""
    b, objective = len(theta), problem.objective
    nothing, zero = np.full(b, np.nan), np.zeros(b, dtype=int)
    tol = np.full(b, float(loose(objective, np.inf if theta.shape[1] else 0.0)))
    iterate = begin(theta, problem.objective.careful)
    return Numbers(iterate, zero, tol, nothing, nothing, np.full_like(theta, np.nan), zero, zero, nothing, nothing)


def _noted(problem: Problem, log: Log, trial: np.ndarray, value: float, gradient: np.ndarray, point: Any) -> Log:
    """The log with one more evaluation."""
    slope = float(steepness(gradient, trial, problem.rule.bounds))
    line = Step(log.restart, problem.unit * trial, float(value), slope, point.reason, int(point.sweeps), point.seconds)
    return log._replace(trace=(*log.trace, line), gradients=(*log.gradients, gradient / problem.unit))


# --- climbing --------------------------------------------------------------------------------------------------------


def _climbed(problem: Problem, numbers: Numbers, answers: Answers, climbing: np.ndarray) -> tuple[Numbers, np.ndarray]:
    """The state after the trials of those that climb, and which of them moved there."""
    moved = np.zeros(len(climbing), dtype=bool)
    new, moved[climbing] = _received(problem, of(numbers, climbing), of(Answers(*answers[:-1], ()), climbing))
    return put(numbers, np.flatnonzero(climbing), new), moved


def _received(problem: Problem, numbers: Numbers, answers: Answers) -> tuple[Numbers, np.ndarray]:
    """A point that is better than the best is evaluated again if its value is too inexact to be compared with others:
    with a partial gradient values and slopes do not belong together, and more precision only shows it.
    """
    objective, iterate, rule = problem.objective, numbers.iterate, problem.rule
    _, value, gradient, usable, residual, _ = answers
    coarse = ~np.isnan(numbers.coarse_value)
    repeated = coarse & ~usable
    value = np.where(repeated, numbers.coarse_value, value)
    gradient = np.where(repeated[:, None], numbers.coarse_gradient, gradient)
    usable = usable | repeated
    slope = steepness(np.where(usable[:, None], gradient, 0.0), iterate.trial, rule.bounds)
    better = usable & (value > iterate.value)
    again = better & ~coarse & rough(residual, slope, objective.tol) & objective.exact
    first = np.isneginf(iterate.value)
    old = np.where(first, 0.0, iterate.value)
    equal = usable & ~first & (np.abs(value - old) <= problem.settings.ftol * (1.0 + np.abs(old)))
    equal_values = np.where(usable, np.where(equal, numbers.equal_values + 1, 0), numbers.equal_values)
    final = ~again
    after = changed_rows(iterate, final, lambda one: received(one, rule, value[final], gradient[final], usable[final]))
    moved = final & usable & (after.theta == iterate.trial).all(axis=1) & (after.value == value)
    steepest = steepness(after.gradient, after.theta, rule.bounds)
    still = final & (equal_values >= np.where(steepest <= GRADIENT_TOLERANCE, 1, MAX_EQUAL_VALUES))
    evaluations = numbers.evaluations + ~first  # the start does not count
    reason = np.where(still & (after.reason == GOING), SMALL_GAIN, after.reason)
    reason = np.where((reason == GOING) & (evaluations >= problem.settings.most), MAX_EVALUATIONS, reason)
    on_the_way = loose(objective, np.where(again, slope, np.abs(incline(after))))
    return numbers._replace(
        iterate=after._replace(reason=reason),
        tol=np.where(numbers.phase == CLIMB, on_the_way, objective.tol),
        residual=np.where(moved, residual, numbers.residual),
        coarse_value=np.where(again, value, np.nan),
        coarse_gradient=np.where(again[:, None], gradient, np.nan),
        equal_values=np.where(final, equal_values, numbers.equal_values),
        evaluations=evaluations,
    ), moved


def _after_climb(problem: Problem, numbers: Numbers, log: Log) -> tuple[Numbers, Log]:
    """What follows a climb: a precise evaluation of the best point, if it was not precise."""
    iterate = numbers.iterate
    if iterate.reason[0] == FAILED:
        return numbers._replace(phase=np.array([DONE])), log
    if numbers.residual[0] <= problem.objective.tol:
        return _once_precise(problem, numbers, log)
    phase = np.where(numbers.phase == CLIMB, EVALUATE, EVALUATE_AGAIN)
    return _at(problem, numbers._replace(phase=phase), iterate.theta), log


def _once_precise(problem: Problem, numbers: Numbers, log: Log) -> tuple[Numbers, Log]:
    """One more climb if gains are below the errors on the way; otherwise the gain that can still be expected, and
    Newton's method if that is not small.
    """
    objective, settings, iterate = problem.objective, problem.settings, numbers.iterate
    slope = steepness(iterate.gradient, iterate.theta, problem.rule.bounds)[0]
    stopped = iterate.reason[0] in (STATIONARY, SMALL_GAIN, NO_PROGRESS)
    precise = objective.exact and settings.ftol <= FTOL
    if numbers.phase[0] in (CLIMB, EVALUATE) and precise and stopped and slope > GRADIENT_TOLERANCE:
        start = begin(iterate.theta, cautious=True)
        climb = received(start, problem.rule, iterate.value, iterate.gradient, np.array([True]))
        zero = np.zeros(1, dtype=int)
        numbers = _at(problem, numbers._replace(iterate=climb, evaluations=zero, equal_values=zero), climb.trial)
        numbers = numbers._replace(phase=np.array([CLIMB_PRECISELY]))
        if climb.reason[0] == GOING:
            return numbers, log
    free = projected(iterate.gradient, iterate.theta, problem.rule.bounds)[0]
    remaining = remaining_gain(free, iterate.theta[0], log.seen(problem.unit))
    numbers = numbers._replace(remaining=np.array([remaining]), phase=np.array([DONE]))
    further = objective.exact and (settings.ftol <= FTOL or settings.gtol < GRADIENT_TOLERANCE)
    if not further or iterate.reason[0] == MAX_EVALUATIONS or polishing.finished(problem, numbers):
        return numbers, log
    return polishing.begun(problem, numbers), log


def _at(problem: Problem, numbers: Numbers, trial: np.ndarray) -> Numbers:
    """The state with a precise evaluation at a trial ahead."""
    tol = np.full(1, problem.objective.tol)
    return numbers._replace(iterate=numbers.iterate._replace(trial=trial), tol=tol)


def _beyond(problem: Problem, numbers: Numbers, log: Log, answer: Answers) -> tuple[Numbers, Log]:
    """The state after a precise evaluation of the best point, or one of Newton's method."""
    if numbers.phase[0] in (HESSIAN, NEWTON):
        numbers, moved = polishing.received(problem, numbers, answer)
        return numbers, log._replace(point=answer.points[0]) if moved else log
    if answer.usable[0]:
        iterate = numbers.iterate._replace(value=answer.value, gradient=answer.gradient)
        numbers = numbers._replace(iterate=iterate, residual=answer.residual)
        log = log._replace(point=answer.points[0])
    return _once_precise(problem, numbers, log)


# --- ends and further starts -----------------------------------------------------------------------------------------


def _ended(problem: Problem, row: int, numbers: Numbers, log: Log) -> tuple[Numbers, Log]:
    """The state at the next start, if there is one; or the end."""
    iterate = numbers.iterate
    slope = float(steepness(iterate.gradient, iterate.theta, problem.rule.bounds)[0])
    why = REASONS[iterate.reason[0]] if iterate.theta.shape[1] or iterate.reason[0] == FAILED else "nothing-to-learn"
    remaining = float(numbers.remaining[0]) if why != "nothing-to-learn" else 0.0
    theta, value = problem.unit * iterate.theta[0], float(iterate.value[0])
    new = End(theta, value, slope, why, remaining, log.point)
    end = new if log.end is None or new.value > log.end.value else log.end
    log = log._replace(end=end, point=None)
    if not log.starts and end.why not in ("inference-failed", "nothing-to-learn", "max-evaluations"):
        more = problem.further_start(row, end)
        if more is not None and more[0] not in log.tried:
            log = log._replace(starts=(more[1],), tried=(*log.tried, more[0]))
    if not log.starts:
        return numbers, log
    start = np.array(log.starts[0])[None] / problem.unit
    return _begun(problem, start), log._replace(starts=log.starts[1:], restart=log.restart + 1)


def run(problem: Problem, state: SearchState, observe: Callable[..., Any] = lambda state, steps: None) -> SearchState:
    """Step until all searches have ended; `observe` is given every state and the lines of its trace."""
    while not done(state):
        state, steps = step(problem, state)
        observe(state, steps)
    return state
