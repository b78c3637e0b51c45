"""The search for an optimum of one landscape: L-BFGS-B, with inference only as precise as each step needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from quantprop.inference.results import Step
from quantprop.learning.ascent import steepness
from quantprop.learning.checkpoints import Checkpoint
from quantprop.learning.landscape import Point
from quantprop.learning.last_steps import newton
from quantprop.learning.starts import units

FTOL = 1e-12
FLAT = 1e-4  # largest entry of the projected gradient at which an end counts as an optimum
ROUNDS = 5  # of L-BFGS-B from one start
ALIKE = 3  # values in a row, no further from the best than ftol, after which values no longer tell points apart
LOOSE = 1e-3  # tolerance of inference on the way, at most
BLUR = 1e-3  # nats by which a value may then be wrong: n rows with a residual r make it wrong by some n r²
PARTIAL = 1e-6  # the same with a partial gradient, where values are not corrected for what the sites have still to gain
SHARP = 3e-5  # and relative to the slope along the step: the gradient's error is of first order in the residual
ROUGH = 1e-3  # largest residual at which values are compared, relative to the slope: their errors are of second order


def loose(landscape: Any, incline: Any) -> Any:
    """Tolerance of inference on the way, given the slope along the step that led there; the same in all processes of a
    job, whose sweeps end together.
    """
    loosest = min(LOOSE, (BLUR / max(landscape.total, 1)) ** 0.5) if landscape.exact else PARTIAL
    return np.clip(SHARP * incline, landscape.tol, loosest)


def rough(residual: Any, slope: Any, tol: float) -> Any:
    """Whether a point's value is too inexact to be compared with others by the gains that so small a slope promises."""
    return residual > np.maximum(ROUGH * slope, tol)


class _NothingToGain(Exception):
    """Values no longer tell points apart: a line search would go on until its own limit."""


class Climb:
    """L-BFGS-B over a landscape, or what adds to one, with a trace. Where inference fails, it sees a slope back to the
    best point.
    """

    def __init__(
        self,
        landscape: Any,
        bounds: np.ndarray,
        most: int,
        ftol: float,
        report: Callable,
        kept: Checkpoint | None = None,
        flat: float = FLAT,
    ) -> None:
        self.landscape, self.bounds, self.most, self.ftol, self.report = landscape, bounds, most, ftol, report
        self.kept = Checkpoint() if kept is None else kept
        self.flat = flat
        self.unit = units(landscape)
        self.trace: list[Step] = []
        self.restart = -1

    def best_of(self, starts: list[np.ndarray], known: tuple[Point, str] | None = None) -> tuple[Point, str]:
        """The best end over several starts, and one that is known already."""
        ends = [*([] if known is None else [known]), *(self.from_(start) for start in starts)]
        return max(ends, key=lambda end: end[0].value if end[0].usable else -np.inf)

    def from_(self, theta: np.ndarray) -> tuple[Point, str]:
        """The best point reached from θ, and the optimiser's reason for stopping."""
        self.restart += 1
        best = self._visit(theta, float(loose(self.landscape, np.inf if len(theta) else 0.0)))
        if not best.usable:
            return best, "inference-failed"
        if not len(theta):
            return best, "nothing-to-learn"
        best, why = self._climbed(best, partial(loose, self.landscape), self._steepest(best))
        best = self._settled(best)
        unfinished = why in ("small-gain", "no-progress") and self.slope(best) > FLAT
        if self.landscape.exact and self.ftol <= FTOL and unfinished:  # gains are below the errors on the way
            best, why = self._climbed(best, lambda incline: self.landscape.tol, steepest=max(1.0, self.slope(best)))
        best = self._settled(best)
        if self.landscape.exact and why != "max-evaluations" and self.flat < self.slope(best) and self.flat < FLAT:
            loss = self.ftol * (1.0 + abs(best.value))
            best = newton(self._visit, self.slope, best, self.unit, self.bounds, self.flat, loss)
        return best, why

    def _steepest(self, start: Point) -> float:
        """In units of what a first step is as long as the slope: of 1, unless the other end of the box costs much."""
        return max(1.0, self.slope(start)) if self.landscape.careful else 1.0

    def _climbed(self, best: Point, precision: Callable, steepest: float = 1.0) -> tuple[Point, str]:
        """L-BFGS-B in units of θ from a usable point, inference as precise as the slope along a step needs.

        Its first step is as long as the slope, in units of `steepest`: near an optimum not to the other end of the box.
        """
        from scipy.optimize import minimize  # here, since it takes as long to import as the rest of the library

        best = self._compared(best)
        size = max(1.0, abs(best.value))
        ftol = self.ftol * size / max(size, steepest)  # L-BFGS-B compares gains with 1, if values are smaller
        scale, unit, alike = 1.0 + abs(best.value), self.unit, 0

        def negated(steps: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best, alike
            away = steps - best.theta / unit
            far = float(np.sqrt(away @ away))
            incline = abs((unit * best.gradient) @ away) / far if far > 0 else 0.0
            point = self._visit(unit * steps, float(precision(incline))) if far > 0 else best
            if not point.usable:
                return (-best.value + scale * (1.0 + far**2)) / steepest, 2.0 * scale * away / steepest
            if point.value > best.value:
                point = self._compared(point)
            alike = alike + 1 if abs(point.value - best.value) <= self.ftol * scale and far > 0 else 0
            if point.value > best.value:
                best = point
            if alike >= (1 if self.slope(best) <= FLAT else ALIKE):
                raise _NothingToGain
            return -point.value / steepest, -unit * point.gradient / steepest

        # A long step may satisfy the line search and yet end on a plateau below a point already seen: go on from there.
        # With a partial gradient every search ends below one, since slopes do not lead up to the end.
        last, why = len(self.trace) + self.most, "no-progress"
        for _ in range(ROUNDS if self.landscape.exact else 1):
            left = last - len(self.trace)
            try:
                result = minimize(
                    negated, best.theta / unit, jac=True, method="L-BFGS-B", bounds=self.bounds / unit[:, None],
                    options={"maxfun": left, "maxiter": left, "ftol": ftol, "gtol": 0.5 * FLAT / steepest,
                             "maxcor": 10},
                )  # fmt: skip
            except _NothingToGain:
                return best, "small-gain"
            if len(self.trace) >= last:
                return best, "max-evaluations"
            why = "small-gain" if result.success else "no-progress"
            if -steepest * result.fun >= best.value - 1e-8 * scale:
                break
        return best, why

    def _compared(self, point: Point) -> Point:
        """A point whose value can be compared with those of its neighbours.

        With a partial gradient values and slopes do not belong together, and more precision only shows it.
        """
        slope = self.slope(point)
        if not self.landscape.exact or not rough(float(point.out.at.residual), slope, self.landscape.tol):
            return point
        finer = self._visit(point.theta, float(loose(self.landscape, slope)))
        return finer if finer.usable else point

    def _settled(self, point: Point) -> Point:
        """The same point with inference at the landscape's own tolerance."""
        if float(point.out.at.residual) <= self.landscape.tol:
            return point
        tight = self._visit(point.theta)
        return tight if tight.usable else point

    def _visit(self, theta: np.ndarray, tol: float = 0.0) -> Point:
        point = self.kept.visit(self.landscape, theta, tol)
        slope = self.slope(point)
        self.trace.append(
            Step(self.restart, point.theta, point.value, slope, point.reason, int(point.out.sweeps), point.seconds)
        )
        self.report(self.trace[-1], len(self.trace))
        return point

    def slope(self, point: Point) -> float:
        """The largest entry of the projected gradient, in units of θ."""
        return float(steepness(self.unit * point.gradient, point.theta, self.bounds))
