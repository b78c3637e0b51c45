"""The remaining gain of a search, which decides convergence at any number of rows and in any unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from quantprop.learning.ascent import LONGEST, TINY, by_secant

GAIN = 1e-4  # nats: a search with less than this to gain has converged
GRADIENT_TOL = 1e-4  # a search stops if no entry of the projected gradient is larger
RISING = 10 * GAIN  # gain over the latest evaluations above which the curvature learned from them is not trusted
LATEST = 60  # evaluations that the curvature is learned from


class Seen(NamedTuple):
    """One evaluation of a search."""

    theta: Float[np.ndarray, " theta"]
    value: float
    gradient: Float[np.ndarray, " theta"]


def converged(remaining: float, value: float, slope: float, gtol: float) -> bool:
    """Return whether less than GAIN, or than the objective's rounding error, is left to gain; with a `gtol` below the
    default, the gradient must be below it too.
    """
    return remaining <= max(GAIN, np.finfo(float).eps * abs(value)) and (gtol >= GRADIENT_TOL or slope <= gtol)


def expected_gain(gradient: Float[np.ndarray, " theta"], curvature: Float[np.ndarray, "theta theta"]) -> float:
    """½ gᵀH⁻¹g, with the projected gradient g and the negated Hessian H of the entries that are free to move. Along
    each axis of H the step is LONGEST at most, so that it is finite where H is not positive definite.
    """
    free = gradient != 0
    bend, axes = np.linalg.eigh(curvature[np.ix_(free, free)])
    slope = np.abs(axes.T @ gradient[free])
    step = np.minimum(slope / np.maximum(bend, TINY), LONGEST)
    return float((slope * step - 0.5 * bend * step**2).sum())


def gain_by_secants(
    gradient: Float[np.ndarray, " theta"], theta: Float[np.ndarray, " theta"], seen: Sequence[Seen]
) -> float:
    """The expected gain with the curvature that BFGS learns from the evaluations near θ, in their order.

    It starts from each entry's own curvature. With a common one, an entry along which the search has hardly moved, such
    as the lengthscale of an irrelevant feature, would seem as curved as the others, and its gain would be missed.
    """
    free = gradient != 0
    near = [one for one in seen[-LATEST:] if np.all(np.abs(one.theta - theta)[free] <= LONGEST)]
    steps = np.diff([one.theta[free] for one in near], axis=0)
    bends = -np.diff([one.gradient[free] for one in near], axis=0)
    own = (steps * bends).sum(axis=0) / np.maximum((steps**2).sum(axis=0), TINY)
    unit = 1.0 / np.sqrt(np.maximum(own, np.abs(gradient[free]) / LONGEST))  # of θ, in which all curvatures are 1
    moved = steps.any(axis=1)
    slope, steps, bends = unit * gradient[free], steps[moved] / unit, unit * bends[moved]
    basis = np.linalg.qr(np.vstack([slope, steps, bends]).T)[0]  # outside of its span they stay 1
    slope, steps, bends = slope @ basis, steps @ basis, bends @ basis
    curvature = np.eye(len(slope))[None]
    for i in range(len(steps)):
        curvature = by_secant(curvature, steps[i : i + 1], bends[i : i + 1], np.array([False]))
    return expected_gain(slope, curvature[0])


def remaining_gain(
    gradient: Float[np.ndarray, " theta"], theta: Float[np.ndarray, " theta"], seen: Sequence[Seen]
) -> float:
    """Expected gain from θ with this projected gradient, as estimated from the evaluations of the search.

    The slope is what a step of 1 gains. Where it is small, no more is expected. Where the search was still rising over
    the latest evaluations, as many as it takes to learn the curvature, no less is.
    """
    gain, slope = gain_by_secants(gradient, theta, seen), float(np.abs(gradient).max(initial=0.0))
    if slope <= GRADIENT_TOL:
        return min(gain, slope)
    values = [one.value for one in seen]
    before = values[: -min(len(theta), LATEST) - 1]
    rising = not before or max(values) - max(before) > RISING
    return max(gain, slope) if rising else gain
