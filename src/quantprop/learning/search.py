"""The search for the optimum of an objective, as a pure state machine: `init`, `step`, `done`.

A search takes quasi-Newton steps with inference only as precise as each step needs, and evaluates the best point
precisely. Then it starts again, if there are further starts. θ is measured in the units of `Problem.unit` here.

All is written for lists of problems, so that one call evaluates many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop.inference.results import Step
from quantprop.learning.problem import COMPARABLE, Problem, loose, rule_of
from quantprop.learning.quasi_newton import (
    FAILED,
    GOING,
    LONGEST_STEP,
    NO_PROGRESS,
    Iterate,
    begin,
    incline,
    projected,
    received,
    stacked,
    steepness,
    unstacked,
)
from quantprop.learning.remaining import Seen, remaining_gain
from quantprop.learning.starts import StartRule, further_start, in_unit_of_y, start_by

CLIMB, COMPARE, EVALUATE, DONE = "climb", "compare", "evaluate", "done"  # phases


class End(NamedTuple):
    """Where a search from one start ended."""

    theta: Float[np.ndarray, " theta"]  # not in units
    value: float
    slope: float
    why: str
    remaining: float  # nats that can still be expected
    usable: bool
    point: Any = None  # as evaluated; None after a checkpoint was read


class SearchState(NamedTuple):
    """All that the next step depends on."""

    iterate: Iterate
    trial: Float[np.ndarray, " theta"]
    memory: Any  # what the next evaluation starts from
    starts: tuple[Float[np.ndarray, " theta"], ...]  # still to be tried
    tol: float  # of inference at the trial
    rival: Float[np.ndarray, " theta"] | None = None  # a start to compare the first one with
    phase: str = CLIMB
    again: bool = False  # True if the trial is evaluated again, more precisely
    best: Seen | None = None  # from this start
    residual: float = np.inf  # there
    point: Any = None  # there, as evaluated
    spent: int = 0  # evaluations of these steps
    why: str = ""  # they ended
    remaining: float = np.nan
    seen: tuple[Seen, ...] = ()  # usable evaluations from this start
    trace: tuple[Step, ...] = ()
    restart: int = 0
    tried: tuple[StartRule, ...] = ()
    end: End | None = None  # the best so far


def init(problem: Problem, starts: Sequence[np.ndarray], memory: Any) -> SearchState:
    """The state before the first step."""
    first, *others = (start / problem.unit for start in starts)
    tol = loose(problem.objective, np.inf if len(first) else 0.0)
    rival = in_unit_of_y(problem.objective, starts[0], problem.bounds)
    rival = None if rival is None else rival / problem.unit
    return SearchState(begin(first), first, memory, tuple(others), tol, rival)


def done(state: SearchState) -> str | None:
    """Why the best search ended, once all have."""
    return state.end.why if state.phase == DONE and state.end is not None else None


def run(
    problems: Sequence[Problem],
    states: list[SearchState],
    observe: Callable[[SearchState], None] = lambda state: None,
    evaluate: Callable[[list[int], list[SearchState]], list[Any]] | None = None,
    at_once: int = 1,
) -> list[SearchState]:
    """Step until all searches have ended. `evaluate` is given the indices and states of some problems, and returns
    for each a point, or None if it has to be continued, and what the next evaluation starts from; by default the
    objectives of the problems are evaluated one by one.
    """

    def alone(rows: list[int], some: list[SearchState]) -> list[Any]:
        each = ((problems[i], state) for i, state in zip(rows, some, strict=True))
        return [one.objective.evaluate(one.theta(state.trial), state.tol, state.memory) for one, state in each]

    states, evaluate = list(states), evaluate or alone
    while rows := [i for i, state in enumerate(states) if not done(state)][:at_once]:
        found = evaluate(rows, [states[i] for i in rows])
        for i, (_, memory) in zip(rows, found, strict=True):
            states[i] = states[i]._replace(memory=memory)
        known = [(i, point) for i, (point, _) in zip(rows, found, strict=True) if point is not None]
        rows, points = [i for i, _ in known], [point for _, point in known]
        for i, state in zip(rows, step([problems[i] for i in rows], [states[i] for i in rows], points), strict=True):
            states[i] = state
            observe(state)
    return states


def step(problems: Sequence[Problem], states: Sequence[SearchState], points: Sequence[Any]) -> list[SearchState]:
    """The states once the points at their trials are known."""
    if not points:
        return []
    gradients = np.stack([one.unit * point.gradient for one, point in zip(problems, points, strict=True)])
    rule, trials = rule_of(problems), np.stack([state.trial for state in states])
    slopes = steepness(gradients, trials, rule.lower, rule.upper).tolist()
    states = [_noted(*each) for each in zip(states, points, gradients, slopes, strict=True)]
    climbing = []
    for i, (problem, state, point, slope) in enumerate(zip(problems, states, points, slopes, strict=True)):
        if state.rival is not None:
            states[i] = _with_rival(problem, state, point)
        elif state.phase == COMPARE:
            best: Any = state.best
            better = point.usable and point.value > best.value
            states[i] = _begun(problem, _moved(state, point) if better else state)
        elif state.phase == EVALUATE:
            states[i] = _settled(problem, _moved(state, point) if point.usable else state)
        elif _is_rough(problem, state, point, slope):
            states[i] = state._replace(again=True, tol=loose(problem.objective, slope))
        else:
            climbing.append(i)
    if climbing:
        new = _climbed(*([column[i] for i in climbing] for column in (problems, states, points)))
        for i, state in zip(climbing, new, strict=True):
            states[i] = state
    return states


def _noted(state: SearchState, point: Any, gradient: np.ndarray, slope: float) -> SearchState:
    """The state with one more line in its trace."""
    line = Step(state.restart, point.theta, point.value, slope, point.reason, point.sweeps, point.seconds)
    seen = (*state.seen, Seen(state.trial, point.value, gradient)) if point.usable else state.seen
    return state._replace(trace=(*state.trace, line), seen=seen)


def _moved(state: SearchState, point: Any) -> SearchState:
    """The state with the latest point as its best."""
    return state._replace(best=state.seen[-1], residual=point.residual, point=point)


# --- quasi-Newton steps ----------------------------------------------------------------------------------------------


def _is_rough(problem: Problem, state: SearchState, point: Any, slope: float) -> bool:
    """Return whether a better value is too inexact to be compared with others by the gains that so small a slope
    promises. With a partial gradient values and slopes do not belong together, and more precision only shows it.
    """
    better = point.usable and not state.again and (state.best is None or point.value > state.best.value)
    return better and problem.objective.exact and point.residual > max(COMPARABLE * slope, problem.objective.tol)


def _climbed(problems: list[Any], states: list[Any], points: list[Any]) -> list[SearchState]:
    """The states after another step, or at its end."""
    # A point that could not be evaluated again more precisely counts as it was before.
    usable = [point.usable or state.again for state, point in zip(states, points, strict=True)]
    latest = [state.seen[-1] if good else Seen(state.trial, -np.inf, np.zeros_like(state.trial))
              for state, good in zip(states, usable, strict=True)]  # fmt: skip
    iterate = stacked([_with_scale(*each) for each in zip(problems, states, latest, strict=True)])
    value, gradient = np.array([one.value for one in latest]), np.stack([one.gradient for one in latest])
    new = unstacked(received(iterate, rule_of(problems), value, gradient, np.array(usable)))
    every = zip(problems, states, points, latest, usable, new, strict=True)
    return [_after_step(*each) for each in every]


def _with_scale(problem: Problem, state: SearchState, start: Seen) -> Iterate:
    """The iterate; before a first step that may be long, with the curvature on which that depends."""
    if state.iterate.scale or problem.longest == LONGEST_STEP:
        return state.iterate
    steepest = problem.slope(start.gradient, start.theta) if problem.objective.careful else 1.0
    return state.iterate._replace(scale=max(1.0, steepest))


def _with_rival(problem: Problem, state: SearchState, point: Any) -> SearchState:
    """The state with the other start ahead: to be compared with the first one, or instead of it."""
    rival: Any = state.rival
    state = state._replace(trial=rival, rival=None)
    if point.usable:
        return _moved(state, point)._replace(phase=COMPARE)
    return state._replace(iterate=begin(rival))


def _begun(problem: Problem, state: SearchState) -> SearchState:
    """The state with the first step from its best point ahead."""
    best: Any = state.best
    state = state._replace(iterate=begin(best.theta), phase=CLIMB)
    told = np.array([best.value]), best.gradient[None], np.array([True])
    (iterate,) = unstacked(received(stacked([_with_scale(problem, state, best)]), rule_of([problem]), *told))
    return _next(problem, state._replace(iterate=iterate))


def _after_step(
    problem: Problem, state: SearchState, point: Any, latest: Seen, usable: bool, iterate: Iterate
) -> SearchState:
    """The state with the rule's next trial; or what follows after the last one."""
    if iterate.reason == FAILED:
        return _ended(problem, state._replace(point=point, why="inference-failed"))
    first, best = state.best is None, state.best or latest
    state = state._replace(iterate=iterate, again=False, spent=state.spent + (not first))
    # A step may be accepted for its gradient, or not be long enough for its gain.
    accepted = usable and bool((iterate.theta == latest.theta).all())
    if accepted or (usable and latest.value > best.value + problem.ftol * (1.0 + abs(best.value))):
        good = point.usable
        state = state._replace(best=latest, residual=point.residual if good else np.inf, point=point if good else None)
    return _next(problem, state)


def _next(problem: Problem, state: SearchState) -> SearchState:
    """The state with the next trial ahead; or with an evaluation of the best point as precise as possible."""
    best: Any = state.best
    if state.iterate.reason == GOING and state.spent < problem.max_evaluations:
        return state._replace(trial=state.iterate.trial, tol=loose(problem.objective, incline(state.iterate)))
    why = {GOING: "max-evaluations", NO_PROGRESS: "no-progress"}.get(int(state.iterate.reason), "small-gain")
    state = state._replace(why=why)
    if state.residual <= problem.objective.tol:
        return _settled(problem, state)
    return state._replace(phase=EVALUATE, trial=best.theta, tol=problem.objective.tol)


def _settled(problem: Problem, state: SearchState) -> SearchState:
    """The end of this search, and what is left to gain."""
    best: Any = state.best
    free = projected(best.gradient, best.theta, problem.lower, problem.upper)
    left = remaining_gain(free, best.theta, state.seen) if len(free) else 0.0
    return _ended(problem, state._replace(remaining=left))


# --- ends and further starts -----------------------------------------------------------------------------------------


def _ended(problem: Problem, state: SearchState) -> SearchState:
    """The state at the next start, if there is one; or at the end."""
    usable, last = state.best is not None, state.trace[-1]
    at: Any = state.best if usable else Seen(state.trial, last.value, state.trial)
    why = state.why if len(at.theta) or not usable else "nothing-to-learn"
    slope = problem.slope(at.gradient, at.theta) if usable else last.gradient
    point = None if state.point is None else state.point.alone()
    end = End(problem.theta(at.theta), at.value, slope, why, state.remaining, usable, point)
    if state.end is not None and not (usable and (end.value > state.end.value or not state.end.usable)):
        end = state.end
    starts, tried = state.starts, state.tried
    if problem.further_starts and not starts and end.usable and end.why not in ("max-evaluations", "nothing-to-learn"):
        rule = further_start(problem.objective, end.theta, problem.bounds)
        if rule is not None and rule not in tried:
            start = start_by(rule, problem.objective, state.trace[0].theta, problem.bounds)
            starts, tried = (start / problem.unit,), (*tried, rule)
    if not starts:
        return state._replace(phase=DONE, end=end, point=None)
    again = init(problem, [problem.unit * start for start in starts], state.memory)._replace(rival=None)
    return again._replace(trace=state.trace, restart=state.restart + 1, tried=tried, end=end)
