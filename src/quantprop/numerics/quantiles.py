"""Quantiles of many distributions at once: a secant method on the scale Φ⁻¹(cdf), kept inside brackets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit, ndtri

Rows = Float[np.ndarray, " n"]

MAX_EVALUATIONS = 1000  # one in four is a bisection: only a cdf that does not increase from 0 to 1 needs more


@dataclass(frozen=True)
class Axis:
    """The values that y may take, and how far apart two of them are: on a line, in y itself or a transform of it."""

    least: float = -np.inf
    greatest: float = np.inf
    forward: Callable[[Rows], Rows] = np.positive
    backward: Callable[[Rows], Rows] = np.positive

    continuous: ClassVar[bool] = True

    @property
    def below(self) -> float:
        """A y whose cdf is 0, where there is one."""
        return -np.inf

    def apart(self, y: Rows, origin: Rows) -> Rows:
        """Distance of y above the origin."""
        return self.forward(y) - self.forward(origin)

    def moved(self, origin: Rows, by: Rows) -> Rows:
        """The y at this distance above the origin."""
        return np.clip(self.backward(self.forward(origin) + by), self.least, self.greatest)

    def middle(self, lower: Rows, upper: Rows) -> Rows:
        """The y half way between two others."""
        return self.moved(lower, 0.5 * self.apart(upper, lower))

    def inside(self, y: Rows, lower: Rows, upper: Rows) -> Rows:
        """y, or the middle of (lower, upper) where y is not inside."""
        return np.where((y > lower) & (y < upper), y, self.middle(lower, upper))

    def closed(self, lower: Rows, upper: Rows) -> np.ndarray:
        """Return whether no y is left between lower and upper."""
        narrow = upper - lower <= 4.0 * np.spacing(np.maximum(np.abs(lower), np.abs(upper)))
        return narrow | (upper <= self.least) | (lower >= self.greatest)


@dataclass(frozen=True)
class Lattice(Axis):
    """least, least + step, ..., by the logarithm of the index."""

    step: float = 1.0

    continuous: ClassVar[bool] = False

    @property
    def below(self) -> float:
        return self.least - self.step

    def _above(self, y: Rows) -> Rows:
        return (y - self.least) / self.step + 1.5

    def apart(self, y: Rows, origin: Rows) -> Rows:
        return np.log1p((y - origin) / self.step / self._above(origin))

    def moved(self, origin: Rows, by: Rows) -> Rows:
        return np.minimum(origin + self.step * self._above(origin) * np.expm1(by), self.greatest)

    def inside(self, y: Rows, lower: Rows, upper: Rows) -> Rows:
        """The next point of the lattice from y on, or the nearest one that is inside."""
        on = self.least + self.step * np.ceil((y - self.least) / self.step)
        return np.minimum(np.maximum(on, lower + self.step), upper - self.step)

    def closed(self, lower: Rows, upper: Rows) -> np.ndarray:
        spacing = np.spacing(upper)  # beyond 2⁵³ steps of 1 doubles are further apart than that
        return (upper - lower <= np.where(spacing > self.step, 2.0 * spacing, self.step)) | (lower >= self.greatest)


def axis(interval: tuple[float, float], lattice: tuple[float, float] | None) -> Axis:
    limits = np.finfo(np.float64)
    if lattice is not None:
        return Lattice(lattice[0], float(limits.max) / 4, step=lattice[1])
    if interval == (0.0, 1.0):
        return Axis(float(limits.tiny), 1.0 - 2.0**-53, logit, expit)
    if interval == (0.0, np.inf):
        return Axis(float(limits.tiny), float(limits.max), np.log, np.exp)
    return Axis()


class QuantileGuess(NamedTuple):
    """Starting point of the search for a quantile, and the change of y (on its axis) per unit of Φ⁻¹(cdf)."""

    y: Rows
    unit: Rows


class Bracket(NamedTuple):
    """Bounds of some quantiles: cdf(lower) < q ≤ cdf(upper), and how fast that narrows."""

    rows: np.ndarray
    lower: Rows
    upper: Rows
    width: Rows  # when it was last found to be half as wide
    since: Rows  # evaluations since then

    @property
    def known(self) -> np.ndarray:
        return np.isfinite(self.lower) & np.isfinite(self.upper)

    def narrowed(self, on: Axis, y: Rows, short: np.ndarray) -> Bracket:
        """With the cdf at y, which is short of q or not."""
        lower, upper = np.where(short, y, self.lower), np.where(short, self.upper, y)
        width = np.where(np.isfinite(lower) & np.isfinite(upper), on.apart(upper, lower), np.inf)
        half = width <= 0.5 * self.width
        return Bracket(self.rows, lower, upper, np.where(half, width, self.width), np.where(half, 0, self.since + 1))


class Steps(NamedTuple):
    """State of a search: the next y, the previous one with its z = Φ⁻¹(cdf) − Φ⁻¹(q), and the unit."""

    y: Rows
    last: Rows
    z: Rows
    unit: Rows
    longest: Rows  # step while an end of the bracket is unknown


def solve(cdf: Callable, q: Rows, on: Axis, guess: QuantileGuess, precision: float) -> QuantileGuess:
    """The smallest y with cdf(y) ≥ q, for 0 < q < 1; `cdf(rows, y)` is evaluated at one y for each of these rows.

    `precision` is that of Φ⁻¹(cdf) before the last secant step for a continuous y; what is left is of second order.
    """
    n, nan = len(q), np.full(len(q), np.nan)
    answer = QuantileGuess(nan.copy(), guess.unit.copy())
    bracket = Bracket(np.arange(n), np.full(n, on.below), np.full(n, np.inf), np.full(n, np.inf), np.zeros(n))
    steps = Steps(on.inside(guess.y, bracket.lower, bracket.upper), nan, nan, guess.unit, 4.0 * guess.unit)
    for _ in range(MAX_EVALUATIONS):
        level = q[bracket.rows]
        value = cdf(bracket.rows, steps.y)
        if np.isnan(value).any():
            raise ValueError(f"the cdf is NaN at y = {steps.y[np.isnan(value)][0]}")
        z = ndtri(value) - ndtri(level)
        bracket = bracket.narrowed(on, steps.y, value < level)
        done, result, following = _next(on, bracket, steps, z, precision)
        answer.y[bracket.rows[done]], answer.unit[bracket.rows[done]] = result[done], following.unit[done]
        if done.all():
            return answer
        bracket, steps = Bracket(*(b[~done] for b in bracket)), Steps(*(s[~done] for s in following))
    raise RuntimeError(f"no quantile was found in {MAX_EVALUATIONS} evaluations of the cdf: is it increasing in y?")


def _next(on: Axis, bracket: Bracket, steps: Steps, z: Rows, precision: float) -> tuple[np.ndarray, Rows, Steps]:
    """Which searches are over, with what, and the next step of the others."""
    y = steps.y
    secant = on.apart(y, steps.last) / (z - steps.z)
    unit = np.where(np.isfinite(secant) & (secant > 0), np.clip(secant, 0.2 * steps.unit, 5.0 * steps.unit), steps.unit)
    by = np.where(np.isfinite(z), -z * unit, np.where(z < 0, np.inf, -np.inf))
    by = np.where(bracket.known, by, np.clip(by, -steps.longest, steps.longest))
    target = on.moved(y, by)
    slow = bracket.known & (bracket.since >= 3)
    ahead = np.where(slow, on.middle(bracket.lower, bracket.upper), target)
    ahead = on.inside(ahead, bracket.lower, bracket.upper)
    stuck = ~bracket.known & (target == y)  # the next double is further than that
    end = on.closed(bracket.lower, bracket.upper)
    near = (np.abs(z) <= precision) | (np.abs(z * steps.z) <= 1e-3 * precision)  # a secant's error is their product
    settled = on.continuous & near
    closest = np.minimum(bracket.upper, on.greatest)
    result = np.where(end, closest, np.clip(target, bracket.lower, bracket.upper))
    longest = np.where(bracket.known, steps.longest, 2.0 * steps.longest)
    return end | settled | (stuck & on.continuous), result, Steps(ahead, y, z, unit, longest)
