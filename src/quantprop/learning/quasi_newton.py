"""Quasi-Newton steps of many maximisations at once inside boxes, each at its own pace: pure functions on their state.

The steps are those of the BFGS method with the entries of θ at their bounds left out, with a backtracking line search.
Nothing here knows what is maximised.

If an objective has no maximum along an entry of θ but approaches a limit exponentially, the search follows that *tail*:
as the variance of f grows, probit becomes a step, up to terms of the order of 1/variance = exp(−θ). Secants of an
exponential make every step log 2 long. The gradient along a tail falls at an even rate, which says how far away it
vanishes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from quantprop.learning.curvature import MAX_DENSE, learned, newton, unknown
from quantprop.runtime.batches import of

SUFFICIENT_RISE = 1e-4  # smallest fraction of the predicted increase (Armijo's condition)
LONGEST_STEP = 3.0  # of an entry of θ (logarithms)
FEW_ENTRIES = 8  # of θ
MIN_BEND = 0.1  # smallest fraction of the slope along a long step by which it must fall for a secant
SHORTEST_STEP = 1e-9
AXIS_FRACTION = 0.99  # of a step's length in one entry, from which on the step counts as one along that entry
RATE_TOLERANCE = 0.1  # largest relative difference of the rates at which the gradient fell over two steps along a tail
TAIL_GRADIENT = 0.3  # largest gradient along a tail
TINY = np.finfo(float).tiny
GOING, STATIONARY, SMALL_GAIN, NO_PROGRESS, MAX_EVALUATIONS, FAILED = range(6)
REASONS = ("going", "small-gain", "small-gain", "no-progress", "max-evaluations", "inference-failed")


class Rule(NamedTuple):
    """The box, where to stop, and how far steps may go."""

    bounds: Float[np.ndarray, "theta 2"]
    ftol: float
    flat: float  # largest entry of the projected gradient at an optimum
    long_steps: bool = False  # they find the unit of y, and better optima of many lengthscales


class Iterate(NamedTuple):
    """The state of b maximisations: the best points so far, and where to look next."""

    theta: Float[np.ndarray, "b theta"]
    value: Float[np.ndarray, " b"]
    gradient: Float[np.ndarray, "b theta"]
    trial: Float[np.ndarray, "b theta"]
    curvature: Float[np.ndarray, "b m theta"]  # of the negated objective, as `curvature` represents it
    steps: Any  # that the curvature was learned from
    rate: Float[np.ndarray, "b theta"]  # −∂ log gradient/∂θ over the last step, if it was along this entry
    tail: Bool[np.ndarray, "b theta"]  # along which entries there is one
    backtracked: Bool[np.ndarray, " b"]  # whether the line search shortened the trial's step
    cautious: Bool[np.ndarray, " b"]  # whether a long first step is divided by the gradient
    reason: Any


def begin(theta: Float[np.ndarray, "b theta"], cautious: bool = False) -> Iterate:
    """Maximisations that start at θ, which is the first trial."""
    b, size = theta.shape
    return Iterate(
        theta, np.full(b, -np.inf), np.zeros((b, size)), theta, unknown(np.ones(b), size), np.zeros(b, dtype=int),
        np.full((b, size), np.nan), np.zeros((b, size), dtype=bool), np.zeros(b, dtype=bool),
        np.full(b, cautious), np.full(b, GOING),
    )  # fmt: skip


def changed_rows(state: Any, which: Bool[np.ndarray, " b"], change: Callable[[Any], Any]) -> Any:
    """The state with some of its problems changed; `change` is given these alone."""
    if which.all():
        return change(state) if len(which) else state
    return put(state, np.flatnonzero(which), change(of(state, which))) if which.any() else state


def put(state: Any, rows: Any, part: Any) -> Any:
    """The state with the rows of another one in some places."""

    def replaced(whole: np.ndarray, new: np.ndarray) -> np.ndarray:
        whole = np.array(whole)
        whole[rows] = new
        return whole

    return jax.tree.map(replaced, state, part)


def received(
    state: Iterate, rule: Rule, value: Float[np.ndarray, " b"], gradient: Float[np.ndarray, "b theta"],
    usable: Bool[np.ndarray, " b"],
) -> Iterate:  # fmt: skip
    """The state once the objective at the trials is known, and where it could not be computed."""
    first = np.isneginf(state.value)
    predicted = (state.gradient * (state.trial - state.theta)).sum(1)
    old = np.where(first, 0.0, state.value)
    gain = np.where(usable, value - old, -np.inf)
    risen = usable & (first | (value >= old + SUFFICIENT_RISE * predicted))
    state = changed_rows(state, risen, lambda some: _accepted(some, rule, value[risen], gradient[risen]))
    back = ~first & ~risen
    end = (gradient * (state.trial - state.theta)).sum(1) if rule.long_steps else np.full(len(value), np.nan)
    state = changed_rows(state, back, lambda some: _backtracked(some, gain[back], predicted[back], end[back]))
    return state._replace(reason=np.where(first & ~usable, FAILED, state.reason))


def incline(state: Iterate) -> Float[np.ndarray, " b"]:
    """The directional derivative along the step to the trials; along a ridge it is far below the steepest."""
    step = state.trial - state.theta
    return (state.gradient * step).sum(1) / np.maximum(np.sqrt((step**2).sum(1)), TINY)


def _accepted(state: Iterate, rule: Rule, value: np.ndarray, gradient: np.ndarray) -> Iterate:
    """Move to the trials, learn the curvature from the step, and plan the next one."""
    step, bend = state.trial - state.theta, state.gradient - gradient
    started = ~np.isneginf(state.value)
    gain = np.where(started, value - np.where(started, state.value, 0.0), np.inf)
    if rule.long_steps and step.shape[1] > FEW_ENTRIES:  # if the slope hardly fell, the next step is to be longer
        fallen = (bend * step).sum(1) >= MIN_BEND * (state.gradient * step).sum(1)  # the curvature condition of Wolfe
        bend = np.where(fallen[:, None], bend, 0.0)
    rate, tail = _tails(state, step, gradient)
    curvature = learned(state.curvature, np.where(tail, 0.0, step), np.where(tail, 0.0, bend), state.steps == 0)
    steps = state.steps + started
    small = gain <= rule.ftol * np.maximum(1.0, np.abs(value))
    misled = small & state.backtracked & (steps > 1)  # by the curvature: start it afresh
    afresh = ~started | misled
    state = state._replace(
        theta=state.trial, value=value, gradient=gradient, rate=rate, tail=tail, steps=np.where(afresh, 0, steps)
    )
    curvature = _decoupled(state, curvature) if tail.any() else curvature
    first = unknown(_first_curvature(state, rule, started), gradient.shape[1])
    reason = np.where(small & ~misled, SMALL_GAIN, GOING)
    reason = np.where(steepness(gradient, state.theta, rule.bounds) <= rule.flat, STATIONARY, reason)
    state = state._replace(curvature=np.where(afresh[:, None, None], first, curvature), reason=reason)
    return changed_rows(state, reason == GOING, lambda some: _planned(some, rule))


def _tails(state: Iterate, step: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rates at which gradients fell over this step, and the entries along which they did over the one before."""
    straight = np.abs(step) > AXIS_FRACTION * np.sqrt((step**2).sum(1))[:, None]
    before, after = np.sign(step) * state.gradient, np.sign(step) * gradient
    falling = straight & (after > 0) & (before > after)
    fall = np.log(np.where(falling, before, np.nan) / np.where(falling, after, 1.0))
    rate = fall / np.where(falling, step, 1.0)
    alike = np.abs(rate - state.rate) <= RATE_TOLERANCE * np.abs(rate)
    return rate, alike & (after < TAIL_GRADIENT) & (step.shape[1] <= MAX_DENSE)


def _decoupled(state: Iterate, curvature: np.ndarray) -> np.ndarray:
    """A tail's own curvature is its rate times its gradient; what couples it to the rest vanishes as it does."""
    tail, own = state.tail, np.abs(state.rate * state.gradient)
    apart = np.where(tail[:, :, None] | tail[:, None, :], 0.0, curvature)
    apart = apart + np.where(tail, own, 0.0)[:, :, None] * np.eye(tail.shape[1])
    return np.where(tail.any(axis=1)[:, None, None], apart, curvature)


def _first_curvature(state: Iterate, rule: Rule, started: Bool[np.ndarray, " b"]) -> Float[np.ndarray, " b"]:
    """Curvature without any memory: the next step is the gradient, or one of length 1 if that is longer."""
    short = np.maximum(np.sqrt((state.gradient**2).sum(1)), 1.0)
    if not rule.long_steps:
        return short
    largest = np.maximum(steepness(state.gradient, state.theta, rule.bounds), 1.0)
    return np.where(started, short, np.where(state.cautious, largest, 1.0))


def _planned(state: Iterate, rule: Rule) -> Iterate:
    """The next trial: the quasi-Newton step over the entries that are free to move, not too long, in the box."""
    theta, bounds = state.theta, rule.bounds
    gradient = projected(state.gradient, theta, bounds)
    step = newton(state.curvature, gradient)
    out = projected(step, theta, bounds) != step  # at a bound, and the step would go through it
    if out.any():
        gradient = np.where(out, 0.0, gradient)
        step = newton(state.curvature, gradient)
    size = np.sqrt((gradient**2).sum(1))
    uphill = (step * gradient).sum(1) > 1e-10 * size * np.sqrt((step**2).sum(1))
    step = np.where(uphill[:, None], step, gradient / np.maximum(size, TINY)[:, None])
    step = _stretched(state, rule, step) if state.tail.any() else step
    if rule.long_steps:
        step = np.where((state.steps == 0)[:, None], _bent(theta, step, bounds), step)
    if not rule.long_steps:
        step = step / np.maximum(1.0, np.abs(step).max(axis=1, initial=0.0) / LONGEST_STEP)[:, None]
    trial = np.clip(theta + step * _room(theta, step, bounds)[:, None], bounds[:, 0], bounds[:, 1])
    predicted = 0.5 * (gradient * (trial - theta)).sum(1)
    hopeless = predicted <= rule.ftol * np.maximum(1.0, np.abs(state.value))
    reason = np.where(hopeless, SMALL_GAIN, state.reason)
    return state._replace(trial=trial, backtracked=np.zeros(len(theta), dtype=bool), reason=reason)


def _stretched(state: Iterate, rule: Rule, step: np.ndarray) -> Float[np.ndarray, "k theta"]:
    """The step, lengthened along a tail to where its gradient vanishes."""
    slope = np.maximum(np.abs(state.gradient), rule.flat)
    far = np.log(slope / (0.5 * max(rule.flat, TINY))) / np.where(state.tail, state.rate, np.inf)
    return np.where((far * step > 0) & (np.abs(far) > np.abs(step)), far, step)


def _bent(theta: np.ndarray, step: np.ndarray, bounds: np.ndarray) -> Float[np.ndarray, "k theta"]:
    """A first step along the bounds that it meets, of length 1 at most: it moves entries without bounds, such as means,
    whose gradients are far larger than those of logarithms.
    """
    step = np.clip(theta + step, bounds[:, 0], bounds[:, 1]) - theta
    return step / np.maximum(1.0, np.sqrt((step**2).sum(1)))[:, None] if np.isinf(bounds).any() else step


def _room(theta: np.ndarray, step: np.ndarray, bounds: np.ndarray) -> Float[np.ndarray, " k"]:
    """The fraction of a step that fits into the box: cut short it still leads up, bent along a bound it might not."""
    ends = np.where(step > 0, bounds[:, 1], bounds[:, 0])
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(step != 0, (ends - theta) / step, np.inf)
    return np.clip(room.min(axis=1, initial=np.inf), 0.0, 1.0)


def _backtracked(state: Iterate, gain: np.ndarray, predicted: np.ndarray, end: np.ndarray) -> Iterate:
    """Shorten the step: to the maximum of the parabola through both ends, or to a quarter after a failure. If the
    slope at the end is known, a cubic is fitted too (case 1 of Moré and Thuente 1994).
    """
    parabola = 0.5 * predicted / np.maximum(predicted - gain, 1e-300)
    fraction = np.clip(np.where(np.isnan(end), parabola, _cubic(gain, predicted, end, parabola)), 0.1, 0.5)
    fraction = np.where(np.isfinite(gain), fraction, 0.25)
    step = fraction[:, None] * (state.trial - state.theta)
    short = np.abs(step).max(axis=1, initial=0.0) < SHORTEST_STEP
    return state._replace(
        trial=state.theta + step,
        backtracked=np.ones(len(step), dtype=bool),
        reason=np.where(short, NO_PROGRESS, state.reason),
    )


def _cubic(gain: np.ndarray, start: np.ndarray, end: np.ndarray, parabola: np.ndarray) -> Float[np.ndarray, " k"]:
    """The fraction of a step with which a line search goes on, given the slopes along it."""
    with np.errstate(invalid="ignore", divide="ignore"):
        middle = 3.0 * gain - start - end
        root = np.sqrt(np.maximum(middle**2 - start * end, 0.0))
        cubic = (root + start + middle) / (2.0 * root + start - end)
    return np.where(cubic <= parabola, cubic, 0.5 * (cubic + parabola))


def projected(
    gradient: Float[np.ndarray, "*b theta"], theta: Float[np.ndarray, "*b theta"], bounds: Float[np.ndarray, "theta 2"]
) -> Float[np.ndarray, "*b theta"]:
    """The gradient of a maximisation without the entries that point out of the box."""
    edge = 1e-9 * np.maximum(1.0, np.abs(theta))
    out = ((theta <= bounds[:, 0] + edge) & (gradient < 0)) | ((theta >= bounds[:, 1] - edge) & (gradient > 0))
    return np.where(out, 0.0, gradient)


def steepness(
    gradient: Float[np.ndarray, "*b theta"], theta: Float[np.ndarray, "*b theta"], bounds: Float[np.ndarray, "theta 2"]
) -> Any:  # one number for each θ: an array, or a NumPy scalar
    """The largest entry of the projected gradient."""
    return np.abs(projected(gradient, theta, bounds)).max(axis=-1, initial=0.0)
