"""Quasi-Newton steps of maximisations inside boxes, as pure functions of a record; many problems at once, each at its
own pace. Nothing here knows what is maximised.

The curvature is that of L-BFGS (Nocedal and Wright 2006, section 7.2): the latest PAIRS of steps and changes of the
gradient, on the scale of the newest pair. A step maximises the model over the entries of θ that no bound holds, with a
backtracking line search.

If an objective has no maximum along an entry of θ but approaches a limit exponentially, the search follows that *tail*:
as the variance of f grows, probit becomes a step, up to terms of the order of 1/variance = exp(−θ). Secants of an
exponential make every step log 2 long. The gradient along a tail falls at an even rate, which says how far away it
vanishes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from quantprop.runtime.batches import of

SUFFICIENT_RISE = 1e-4  # smallest fraction of the predicted increase (Armijo's condition)
SUFFICIENT_FALL = (
    0.9  # largest slope down beyond the maximum along a step, as a fraction of that up before it (Wolfe's)
)
SUFFICIENT_FALL = 0.9  # largest slope down beyond the maximum along a step, as a fraction of that up before it
PATIENCE = 4  # evaluations of equal values without a smaller gradient
LONGEST_STEP = 3.0  # of an entry of θ (logarithms)
SHORTEST_STEP = 1e-9
SHORTEST = 1e-3  # fraction of a step that failed
PAIRS = 10
AXIS_FRACTION = 0.99  # of a step's length in one entry, from which on the step counts as one along that entry
RATE_TOLERANCE = 0.1  # largest relative difference of the rates at which the gradient fell over two steps along a tail
TAIL_GRADIENT = 0.3  # largest gradient along a tail
TINY = np.finfo(float).tiny
GOING, STATIONARY, SMALL_GAIN, NO_PROGRESS, FAILED = range(5)


class Rule(NamedTuple):
    """The boxes of b problems, where to stop, and how far steps may go."""

    lower: Float[np.ndarray, "b theta"]
    upper: Float[np.ndarray, "b theta"]
    ftol: float
    flat: float  # largest entry of the projected gradient at an optimum
    longest: float = LONGEST_STEP  # step of an entry with bounds


class Iterate(NamedTuple):
    """One maximisation: the best point so far, the curvature, and where to look next. Of several problems, every array
    has an axis of problems in front.
    """

    theta: Float[np.ndarray, " theta"]
    value: float
    gradient: Float[np.ndarray, " theta"]
    trial: Float[np.ndarray, " theta"]
    moves: Float[np.ndarray, "m theta"]  # newest last; 0 if there are fewer
    bends: Float[np.ndarray, "m theta"]  # the decrease of the gradient over each
    scale: float  # curvature without any pair
    rate: Float[np.ndarray, " theta"]  # −∂ log gradient/∂θ over the last step, if it was along this entry
    tail: Bool[np.ndarray, " theta"]  # along which entries there is one
    calmest: float  # smallest slope since values tell nothing
    waited: int  # evaluations since then
    reason: int


def begin(theta: Float[np.ndarray, " theta"], scale: float = 0.0) -> Iterate:
    """A maximisation that starts at θ, which is the first trial. Its first step is the gradient over `scale`; by
    default as long as the gradient, 1 at most.
    """
    size = len(theta)
    nothing = np.zeros((PAIRS, size))
    unknown, none = np.full(size, np.nan), np.zeros(size, dtype=bool)
    return Iterate(theta, -np.inf, np.zeros(size), theta, nothing, nothing, scale, unknown, none, np.inf, 0, GOING)


def stacked(records: list[Any]) -> Any:
    """Records of several problems as one."""
    return type(records[0])(*(np.stack(part) for part in zip(*records, strict=True)))


def unstacked(record: Any) -> list[Any]:
    """The record of each problem."""
    return [type(record)(*parts) for parts in zip(*record, strict=True)]


def put(state: Any, rows: Any, part: Any) -> Any:
    """The state with the rows of another one in some places."""
    whole = type(state)(*(np.array(old) for old in state))
    for old, new in zip(whole, part, strict=True):
        old[rows] = new
    return whole


def received(
    state: Iterate, rule: Rule, value: Float[np.ndarray, " b"], gradient: Float[np.ndarray, "b theta"],
    usable: Bool[np.ndarray, " b"],
) -> Iterate:  # fmt: skip
    """The state of b problems once the objective at their trials is known, or could not be computed.

    If values no longer tell the trial from the best point, slopes along the step do (the approximate Wolfe conditions
    of Hager and Zhang 2005), until the gradient stays as large as it was.
    """
    first = np.isneginf(state.value)
    predicted = (state.gradient * (state.trial - state.theta)).sum(1)
    old = np.where(first, 0.0, state.value)
    level = usable & ~first & (np.abs(value - old) <= rule.ftol * (1.0 + np.abs(old)))
    end = (gradient * (state.trial - state.theta)).sum(1)
    now, before = (steepness(g, x, rule.lower, rule.upper)
                   for g, x in ((gradient, state.trial), (state.gradient, state.theta)))  # fmt: skip
    calmest = np.minimum(state.calmest, before)
    waited = np.where(level & (now >= calmest), state.waited + 1, 0)
    enough = end >= -SUFFICIENT_FALL * predicted
    risen = usable & np.where(level, enough, first | (value >= old + SUFFICIENT_RISE * predicted))
    reason = np.where(first & ~usable, FAILED, np.where(waited > PATIENCE, SMALL_GAIN, state.reason))
    calmest = np.where(level, np.minimum(calmest, now), np.inf)
    state = state._replace(reason=reason, calmest=calmest, waited=waited)
    back = ~first & ~risen
    gain = np.where(usable, value - old, -np.inf)
    for which, change, more in (
        (risen, _accepted, (value, gradient)),
        (back, _backtracked, (gain, predicted, end)),
    ):  # fmt: skip
        if which.any():
            own = rule._replace(lower=rule.lower[which], upper=rule.upper[which])
            state = put(state, which, change(of(state, which), own, *(column[which] for column in more)))
    return state


def incline(state: Iterate) -> float:
    """The directional derivative along the step to the trial; along a ridge it is far below the steepest."""
    step = state.trial - state.theta
    return abs(float(state.gradient @ step)) / max(float(np.sqrt(step @ step)), TINY)


def _accepted(state: Iterate, rule: Rule, value: np.ndarray, gradient: np.ndarray) -> Iterate:
    """Move to the trials, learn the curvature from the step, and plan the next one."""
    step, bend = state.trial - state.theta, state.gradient - gradient
    first: Any = np.isneginf(state.value)
    rate, tail = _tails(state, step, gradient)
    state = _learned(state, ~first, np.where(tail, 0.0, step), np.where(tail, 0.0, bend))
    flat = steepness(gradient, state.trial, rule.lower, rule.upper) <= rule.flat
    state = state._replace(
        theta=state.trial, value=value, gradient=gradient, rate=rate, tail=tail,
        scale=np.where(state.scale == 0.0, np.maximum(np.sqrt((gradient**2).sum(1)), 1.0), state.scale),
        reason=np.where(flat, STATIONARY, state.reason),
    )  # fmt: skip
    return _planned(state, rule, first)


def _learned(state: Iterate, which: np.ndarray, step: np.ndarray, bend: np.ndarray) -> Iterate:
    """The state with one more pair; if the objective curves upwards along the step, the next is to be longer."""
    inner = (step * bend).sum(1)
    convex = inner > 1e-10 * np.sqrt((step**2).sum(1) * (bend**2).sum(1))
    add, flatter = which & convex, np.where(which & ~convex, 0.25, 1.0)
    moves, bends = (
        np.where(add[:, None, None], np.concatenate([old[:, 1:], new[:, None]], axis=1), old * factor)
        for old, new, factor in ((state.moves, step, 1.0), (state.bends, bend, flatter[:, None, None]))
    )
    return state._replace(moves=moves, bends=bends, scale=state.scale * flatter)


def curvature_of(state: Iterate) -> Float[np.ndarray, "b theta theta"]:
    """The curvature of the negated objective; along a tail its rate times its gradient, with nothing coupled to it."""
    eye, newest = np.eye(state.theta.shape[1]), (state.moves[:, -1], state.bends[:, -1])
    inner, square = (newest[0] * newest[1]).sum(1), (newest[1] ** 2).sum(1)
    scale = np.where(inner > 0, square / np.where(inner > 0, inner, 1.0), state.scale)
    matrix = scale[:, None, None] * eye
    for k in np.flatnonzero(state.moves.any(axis=(0, 2)))[-2 * len(eye) :]:  # more would say nothing new
        matrix = by_secant(matrix, state.moves[:, k], state.bends[:, k])
    if state.tail.any():
        tail, own = state.tail, np.abs(state.rate * state.gradient)
        matrix = np.where(tail[:, :, None] | tail[:, None, :], 0.0, matrix) + np.where(tail, own, 0.0)[:, None] * eye
    return matrix


def _tails(state: Iterate, step: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rates at which gradients fell over this step, and the entries along which they did over the one before."""
    straight = np.abs(step) > AXIS_FRACTION * np.sqrt((step**2).sum(1))[:, None]
    before, after = np.sign(step) * state.gradient, np.sign(step) * gradient
    falling = straight & (after > 0) & (before > after)
    fall = np.log(np.where(falling, before, np.nan) / np.where(falling, after, 1.0))
    rate = fall / np.where(falling, step, 1.0)
    return rate, (np.abs(rate - state.rate) <= RATE_TOLERANCE * np.abs(rate)) & (after < TAIL_GRADIENT)


def _planned(state: Iterate, rule: Rule, first: Bool[np.ndarray, " b"]) -> Iterate:
    """The next trial. If some entries have no bounds, a first step has a length of 1 at most."""
    theta, gradient = state.theta, projected(state.gradient, state.theta, rule.lower, rule.upper)
    step = _bounded_step(curvature_of(state), state.gradient, gradient, rule.lower - theta, rule.upper - theta)
    size = np.sqrt((gradient**2).sum(1))
    uphill = (step * gradient).sum(1) > 1e-10 * size * np.sqrt((step**2).sum(1))
    step = np.where(uphill[:, None], step, gradient / np.maximum(size, TINY)[:, None])
    step = _stretched(state, rule, step) if state.tail.any() else step
    length = np.sqrt((step**2).sum(1))
    bent = first & np.isinf(rule.upper - rule.lower).any(axis=1)
    step = step / np.where(bent, np.maximum(1.0, length), 1.0)[:, None]
    held = np.where(np.isfinite(rule.upper - rule.lower), np.abs(step), 0.0).max(axis=1, initial=0.0)
    step = step / np.maximum(1.0, held / rule.longest)[:, None]
    trial = np.clip(theta + step, rule.lower, rule.upper)
    return state._replace(trial=trial)


def _bounded_step(
    matrix: np.ndarray, gradient: np.ndarray, uphill: np.ndarray, below: np.ndarray, above: np.ndarray
) -> Float[np.ndarray, "b theta"]:
    """The maximiser of the model over the entries with a projected gradient; those that would leave the box stop at
    its bound, and the others are solved for again.
    """
    free, step, eye = uphill != 0, np.zeros_like(gradient), np.eye(gradient.shape[1])
    for _ in range(gradient.shape[1] + 1):
        right = gradient - (matrix @ np.where(free, 0.0, step)[:, :, None])[:, :, 0]
        inner = np.where(free[:, :, None] & free[:, None, :], matrix, eye)
        step = np.where(free, np.linalg.solve(inner, np.where(free, right, 0.0)[:, :, None])[:, :, 0], step)
        out = free & ((step < below) | (step > above))
        if not out.any():
            break
        step, free = np.clip(step, below, above), free & ~out
    return step


def _stretched(state: Iterate, rule: Rule, step: np.ndarray) -> Float[np.ndarray, "b theta"]:
    """The step, lengthened along a tail to where its gradient vanishes."""
    slope = np.maximum(np.abs(state.gradient), rule.flat)
    far = np.log(slope / (0.5 * max(rule.flat, TINY))) / np.where(state.tail, state.rate, np.inf)
    return np.where((far * step > 0) & (np.abs(far) > np.abs(step)), far, step)


def _backtracked(state: Iterate, rule: Rule, gain: np.ndarray, start: np.ndarray, end: np.ndarray) -> Iterate:
    """Shorten the step, by the slopes along it at its start and its end; to a quarter after a failure. The next step
    leads to the maximum of a cubic, or half the way from there to that of a parabola (Moré and Thuente 1994, case 1).
    """
    with np.errstate(all="ignore"):
        parabola, middle = 0.5 * start / (start - gain), 3.0 * gain - start - end
        root = np.sqrt(np.maximum(middle**2 - start * end, 0.0))
        cubic = (root + start + middle) / (2.0 * root + start - end)
        fraction = np.where(cubic < parabola, cubic, 0.5 * (cubic + parabola))
    fraction = np.where(np.isfinite(gain) & np.isfinite(fraction), np.clip(fraction, SHORTEST, 0.5), 0.25)
    step = fraction[:, None] * (state.trial - state.theta)
    short = np.abs(step).max(axis=1, initial=0.0) < SHORTEST_STEP
    return state._replace(trial=state.theta + step, reason=np.where(short, NO_PROGRESS, state.reason))


def projected(gradient: np.ndarray, theta: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The gradient of a maximisation without the entries that point out of the box."""
    edge = 1e-9 * np.maximum(1.0, np.abs(theta))
    out = ((theta <= lower + edge) & (gradient < 0)) | ((theta >= upper - edge) & (gradient > 0))
    return np.where(out, 0.0, gradient)


def steepness(gradient: np.ndarray, theta: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> Any:
    """The largest entry of the projected gradient."""
    return np.abs(projected(gradient, theta, lower, upper)).max(axis=-1, initial=0.0)


def by_secant(
    curvature: Float[np.ndarray, "b t t"], step: Float[np.ndarray, "b t"], bend: Float[np.ndarray, "b t"]
) -> Float[np.ndarray, "b t t"]:
    """The BFGS update; none where the objective curves upwards, or rounding would make the curvature indefinite."""
    inner, pushed = (step * bend).sum(1), (curvature @ step[:, :, None])[:, :, 0]
    old, length = (pushed * step).sum(1), (step**2).sum(1)
    good = (inner > 1e-10 * np.sqrt(length * (bend**2).sum(1))) & (old > 1e-14 * np.sqrt((pushed**2).sum(1) * length))
    inner, old = np.where(good, inner, 1.0), np.where(good, old, 1.0)
    new = curvature + _outer(bend) / inner[:, None, None] - _outer(pushed) / old[:, None, None]
    return np.where(good[:, None, None], new, curvature)


def _outer(a: Float[np.ndarray, "b t"]) -> Float[np.ndarray, "b t t"]:
    return a[:, :, None] * a[:, None, :]
