"""What a search has still to gain. That says whether it has converged, at any number of rows and in any unit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from quantprop.learning.ascent import LONGEST, TINY, by_secant

GAIN = 1e-4  # nats: a search with less than this to gain has converged
FLAT = 1e-4  # largest entry of the projected gradient at which a search stops
RISING = 10 * GAIN  # gain over the latest evaluations above which the curvature learned from them is not trusted
LATEST = 60  # evaluations that the curvature is learned from


def converged(remaining: float, value: float, slope: float, gtol: float) -> bool:
    """Whether less than GAIN, or than the objective's rounding error, is left to gain, and the slope is as small as was
    asked where that is smaller than by default.
    """
    return remaining <= max(GAIN, np.finfo(float).eps * abs(value)) and (gtol >= FLAT or slope <= gtol)


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
    gradient: Float[np.ndarray, " theta"], thetas: Float[np.ndarray, "k theta"], gradients: Float[np.ndarray, "k theta"]
) -> float:
    """The expected gain with the curvature that BFGS learns from all points that a search evaluated, in their order."""
    free = gradient != 0
    steps, bends = np.diff(thetas[-LATEST:, free], axis=0), -np.diff(gradients[-LATEST:, free], axis=0)
    moved = steps.any(axis=1)
    basis = np.linalg.qr(np.vstack([gradient[free], steps[moved], bends[moved]]).T)[0]  # H is even outside of its span
    slope, steps, bends = gradient[free] @ basis, steps[moved] @ basis, bends[moved] @ basis
    curvature = max(1.0, float(np.sqrt(slope @ slope))) * np.eye(len(slope))[None]
    for i in range(len(steps)):
        curvature = by_secant(curvature, steps[i : i + 1], bends[i : i + 1], np.array([i == 0]))
    return expected_gain(slope, curvature[0])


def trusted(gain: float, slope: float, values: Sequence[float], size: int) -> float:
    """An expected gain; where the slope is not small, and the search was still rising over as many of its latest
    evaluations as it takes to learn the curvature of so many entries of θ, the slope at least: what a step of 1 gains.
    """
    before = values[: -min(size, LATEST) - 1]
    rising = not before or max(values) - max(before) > RISING
    return max(gain, slope) if rising and slope > FLAT else gain
