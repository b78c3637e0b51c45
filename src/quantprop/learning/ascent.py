"""Many maximisations at once inside boxes: quasi-Newton steps, each problem at its own pace.

A caller asks for trial points and tells what it found there; nothing here knows what is maximised. The steps are those
of the BFGS method with the entries of θ that are held by their bounds left out, with a backtracking line search.

Where an objective has no maximum along an entry of θ but approaches a limit exponentially, the search follows that
*tail*: as the variance of f grows, probit becomes a step, up to terms of the order of 1/variance = exp(−θ). Secants of
an exponential make every step log 2 long. What is known of a tail, that its slope falls at an even rate, says how far
it is to where it is flat.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

MIN_RISE = 1e-4  # smallest fraction of the predicted increase (Armijo's condition)
LONGEST = 3.0  # step of an entry of θ (logarithms)
FIRST = 0.5  # longest first step, in units of 1/√curvature, where a curvature is expected
SHORTEST = 1e-9
STRAIGHT_STEP = 0.99  # a step is along one entry if that entry makes up this fraction of its length
TAIL_RATE_GAP = 0.1  # largest relative difference of the rates at which the derivative fell in two steps
MAX_TAIL_SLOPE = 0.3  # largest derivative along a tail
TINY = np.finfo(float).tiny
GOING, FLAT, SMALL_GAIN, NO_PROGRESS, MAX_EVALUATIONS, FAILED = range(6)
REASONS = ("going", "converged", "small-gain", "no-progress", "max-evaluations", "inference-failed")


class Ascent:
    """b maximisations: `theta`, `value` and `gradient` are the best so far, `trial` is where to look next."""

    def __init__(
        self,
        theta: Float[np.ndarray, "b theta"],
        box: Float[np.ndarray, "theta 2"],
        flat: float,
        ftol: float,
        most: int,
        expected: Float[np.ndarray, " theta"] | None = None,  # curvature of each entry, where it is known roughly
    ) -> None:
        b, size = theta.shape
        self.expected = expected
        self.box, self.flat, self.ftol, self.most = box, flat, ftol, most
        self.theta, self.trial = np.array(theta), np.array(theta)
        self.value, self.gradient = np.full(b, -np.inf), np.zeros((b, size))
        self.curvature = np.zeros((b, size, size))  # of the negated objective
        self.steps = np.zeros(b, dtype=int)  # that the curvature was learned from
        self.rate = np.full((b, size), np.nan)  # −∂ log slope/∂θ over the last step, if it was along this entry
        self.tail = np.zeros((b, size), dtype=bool)  # along which entry there is one
        self.evaluations = np.zeros(b, dtype=int)
        self.reason = np.full(b, GOING)

    def unfinished(self) -> Int[np.ndarray, " k"]:
        return np.flatnonzero(self.reason == GOING)

    def slope(self, rows: Int[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        return steepness(self.gradient[rows], self.theta[rows], self.box)

    def incline(self, rows: Int[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """The slope along the way to the trials, per unit of θ; along a ridge it is far below the steepest."""
        step = self.trial[rows] - self.theta[rows]
        return (self.gradient[rows] * step).sum(1) / np.maximum(np.sqrt((step**2).sum(1)), TINY)

    def promise(self, rows: Int[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """The gain at the trials if the curvature is right."""
        return 0.5 * (self.gradient[rows] * (self.trial[rows] - self.theta[rows])).sum(1)

    def tell(
        self,
        rows: Int[np.ndarray, " k"],
        value: Float[np.ndarray, " k"],
        gradient: Float[np.ndarray, "k theta"],
        usable: Bool[np.ndarray, " k"],
    ) -> None:
        """Report the objective at the trials of some problems, and where it could not be computed."""
        self.evaluations[rows] += 1
        first = np.isneginf(self.value[rows])
        predicted = (self.gradient[rows] * (self.trial[rows] - self.theta[rows])).sum(1)
        old = np.where(first, 0.0, self.value[rows])
        risen = usable & (first | (value >= old + MIN_RISE * predicted))
        self._accept(rows[risen], value[risen], gradient[risen])
        failed = rows[first & ~usable]
        self.reason[failed] = FAILED
        back = ~first & ~risen
        if back.any():
            self._backtrack(rows[back], np.where(usable, value - old, -np.inf)[back], predicted[back])
        late = rows[(self.reason[rows] == GOING) & (self.evaluations[rows] >= self.most)]
        self.reason[late] = MAX_EVALUATIONS

    def _accept(self, rows: Int[np.ndarray, " k"], value: np.ndarray, gradient: np.ndarray) -> None:
        """Move to the trials, learn the curvature from the step, and plan the next one."""
        step, bend = self.trial[rows] - self.theta[rows], self.gradient[rows] - gradient
        started = ~np.isneginf(self.value[rows])
        gain = np.where(started, value - np.where(started, self.value[rows], 0.0), np.inf)
        tail = self._find_tails(rows, step, gradient)
        self.theta[rows], self.value[rows], self.gradient[rows] = self.trial[rows], value, gradient
        self._update_curvature(rows[started], np.where(tail, 0.0, step)[started], np.where(tail, 0.0, bend)[started])
        if tail.any():
            self._decouple(rows[tail.any(axis=1)])
        self.steps[rows] += started
        small = gain <= self.ftol * np.maximum(1.0, np.abs(value))
        if not started.all():
            self._first_curvature(rows[~started])
        self.reason[rows[small]] = SMALL_GAIN
        self.reason[rows[self.slope(rows) <= self.flat]] = FLAT
        self._plan(rows[self.reason[rows] == GOING])

    def _find_tails(self, rows: Int[np.ndarray, " k"], step: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return where gradients fell alike over this step and the previous one, both along one entry."""
        straight = np.abs(step) > STRAIGHT_STEP * np.sqrt((step**2).sum(1))[:, None]
        before, after = np.sign(step) * self.gradient[rows], np.sign(step) * gradient
        falling = straight & (after > 0) & (before > after)
        fall = np.log(np.where(falling, before, np.nan) / np.where(falling, after, 1.0))
        rate = fall / np.where(falling, step, 1.0)
        self.tail[rows] = (np.abs(rate - self.rate[rows]) <= TAIL_RATE_GAP * np.abs(rate)) & (after < MAX_TAIL_SLOPE)
        self.rate[rows] = rate
        return self.tail[rows]

    def _decouple(self, rows: Int[np.ndarray, " k"]) -> None:
        """A tail's own curvature is its rate times its slope; what couples it to the rest vanishes as it does."""
        tail, own = self.tail[rows], np.abs(self.rate[rows] * self.gradient[rows])
        apart = np.where(tail[:, :, None] | tail[:, None, :], 0.0, self.curvature[rows])
        self.curvature[rows] = apart + np.where(tail, own, 0.0)[:, :, None] * np.eye(tail.shape[1])

    def _stretched(self, rows: Int[np.ndarray, " k"], step: np.ndarray) -> Float[np.ndarray, "k theta"]:
        """The step, and along a tail as far as to where that will be flat."""
        rate, slope = self.rate[rows], np.maximum(np.abs(self.gradient[rows]), self.flat)
        far = np.log(slope / (0.5 * max(self.flat, TINY))) / np.where(self.tail[rows], rate, np.inf)
        return np.where((far * step > 0) & (np.abs(far) > np.abs(step)), far, step)

    def _first_curvature(self, rows: Int[np.ndarray, " k"]) -> None:
        """Curvature such that the next step leads up the gradient, as far as that is long, 1 at most; with an
        expected curvature by that, FIRST units at most along each entry.
        """
        if self.expected is not None:
            own = np.maximum(self.expected, np.abs(self.gradient[rows]) * np.sqrt(self.expected) / FIRST)
            self.curvature[rows] = own[:, :, None] * np.eye(self.theta.shape[1])
            self.steps[rows] = 1  # one secant says nothing of the other entries
            return
        size = np.maximum(np.sqrt((self.gradient[rows] ** 2).sum(1)), 1.0)
        self.curvature[rows] = size[:, None, None] * np.eye(self.theta.shape[1])

    def _update_curvature(self, rows: Int[np.ndarray, " k"], step: np.ndarray, bend: np.ndarray) -> None:
        self.curvature[rows] = by_secant(self.curvature[rows], step, bend, self.steps[rows] == 0)

    def _plan(self, rows: Int[np.ndarray, " k"]) -> None:
        """The next trial: the quasi-Newton step over the entries that are free to move, not too long, in the box."""
        gradient, theta = projected(self.gradient[rows], self.theta[rows], self.box), self.theta[rows]
        step = self._newton(rows, gradient)
        out = projected(step, theta, self.box) != step  # at a bound, and the step would go through it
        if out.any():
            gradient = np.where(out, 0.0, gradient)
            step = self._newton(rows, gradient)
        size = np.sqrt((gradient**2).sum(1))
        uphill = (step * gradient).sum(1) > 1e-10 * size * np.sqrt((step**2).sum(1))
        step = np.where(uphill[:, None], step, gradient / np.maximum(size, TINY)[:, None])
        step = self._stretched(rows, step) if self.tail[rows].any() else step
        step = step * np.minimum(1.0, LONGEST / np.maximum(np.abs(step).max(axis=1, initial=0.0), TINY))[:, None]
        step = step * self._room(theta, step)[:, None]
        self.trial[rows] = np.clip(theta + step, self.box[:, 0], self.box[:, 1])
        predicted = 0.5 * (gradient * (self.trial[rows] - theta)).sum(1)
        self.reason[rows[predicted <= self.ftol * np.maximum(1.0, np.abs(self.value[rows]))]] = SMALL_GAIN

    def _newton(self, rows: Int[np.ndarray, " k"], gradient: np.ndarray) -> Float[np.ndarray, "k theta"]:
        """The quasi-Newton step over the entries whose gradient is not 0."""
        free = gradient != 0
        matrix = np.where(free[:, :, None] & free[:, None, :], self.curvature[rows], np.eye(free.shape[1]))
        return np.linalg.solve(matrix, gradient[:, :, None])[:, :, 0]

    def _room(self, theta: np.ndarray, step: np.ndarray) -> Float[np.ndarray, " k"]:
        """Fraction of a step that fits into the box: a shorter step still ascends, one bent along a bound may not."""
        ends = np.where(step > 0, self.box[:, 1], self.box[:, 0])
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(step != 0, (ends - theta) / step, np.inf)
        return np.clip(room.min(axis=1, initial=np.inf), 0.0, 1.0)

    def _backtrack(self, rows: Int[np.ndarray, " k"], gain: np.ndarray, predicted: np.ndarray) -> None:
        """Backtrack: to the maximum of the parabola through both ends, or a quarter of the way to a failure."""
        share = np.where(np.isfinite(gain), 0.5 * predicted / np.maximum(predicted - gain, 1e-300), 0.25)
        share = np.where(np.isfinite(gain), np.clip(share, 0.1, 0.5), share)
        step = share[:, None] * (self.trial[rows] - self.theta[rows])
        self.trial[rows] = self.theta[rows] + step
        self.reason[rows[np.abs(step).max(axis=1, initial=0.0) < SHORTEST]] = NO_PROGRESS


def projected(
    gradient: Float[np.ndarray, "*b theta"], theta: Float[np.ndarray, "*b theta"], box: Float[np.ndarray, "theta 2"]
) -> Float[np.ndarray, "*b theta"]:
    """The gradient of a maximisation without the entries that point out of the box."""
    edge = 1e-9 * np.maximum(1.0, np.abs(theta))
    out = ((theta <= box[:, 0] + edge) & (gradient < 0)) | ((theta >= box[:, 1] - edge) & (gradient > 0))
    return np.where(out, 0.0, gradient)


def steepness(
    gradient: Float[np.ndarray, "*b theta"], theta: Float[np.ndarray, "*b theta"], box: Float[np.ndarray, "theta 2"]
) -> Any:  # one number for each θ: an array, or a NumPy scalar
    """The largest entry of the projected gradient."""
    return np.abs(projected(gradient, theta, box)).max(axis=-1, initial=0.0)


def by_secant(
    curvature: Float[np.ndarray, "k t t"],
    step: Float[np.ndarray, "k t"],
    bend: Float[np.ndarray, "k t"],
    first: Bool[np.ndarray, " k"],
) -> Float[np.ndarray, "k t t"]:
    """The BFGS update; where the objective curves upwards, the next step is to be longer. After the first step the
    curvature across it is taken to be between 1, a usual one of logarithms, and the curvature along it.
    """
    inner = (step * bend).sum(1)
    convex = inner > 1e-10 * np.sqrt((step**2).sum(1) * (bend**2).sum(1))
    safe = np.where(convex, inner, 1.0)
    scale = (bend**2).sum(1) / safe
    across = np.minimum(scale, np.sqrt(scale))
    now = np.where((convex & first)[:, None, None], across[:, None, None] * np.eye(step.shape[1]), curvature)
    pushed = (now @ step[:, :, None])[:, :, 0]
    old = (pushed * step).sum(1)
    sound = old > 1e-14 * np.sqrt((pushed**2).sum(1) * (step**2).sum(1))  # else rounding has made it indefinite
    better = now + _outer(bend) / safe[:, None, None] - _outer(pushed) / np.where(sound, old, 1.0)[:, None, None]
    better = np.where(sound[:, None, None], better, scale[:, None, None] * np.eye(step.shape[1]))
    return np.where(convex[:, None, None], better, now / 4.0)


def _outer(a: Float[np.ndarray, "k t"]) -> Float[np.ndarray, "k t t"]:
    return a[:, :, None] * a[:, None, :]
