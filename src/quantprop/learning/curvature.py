"""The curvature that quasi-Newton steps learn: a matrix, or pairs of steps and changes of the gradient if θ is long.

Both are arrays of b problems: b × t × t, or b × (1 + 2 PAIRS) × t with a scale, the steps and the changes, newest last.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

MAX_DENSE = 400  # entries of θ: a matrix of more takes longer to solve with than an evaluation
PAIRS = 20


def unknown(scale: Float[np.ndarray, " b"], size: int) -> Float[np.ndarray, "b m theta"]:
    """A curvature that is the same along all entries."""
    if size <= MAX_DENSE:
        return scale[:, None, None] * np.eye(size)
    curvature = np.zeros((len(scale), 1 + 2 * PAIRS, size))
    curvature[:, 0] = scale[:, None]
    return curvature


def learned(
    curvature: Float[np.ndarray, "b m t"], step: Float[np.ndarray, "b t"], bend: Float[np.ndarray, "b t"],
    first: Bool[np.ndarray, " b"],
) -> Float[np.ndarray, "b m t"]:  # fmt: skip
    """The curvature after one more step, over which the gradient fell by `bend`."""
    if step.shape[1] <= MAX_DENSE:
        return by_secant(curvature, step, bend, first)
    inner, square = (step * bend).sum(1), (bend**2).sum(1)
    convex = inner > 1e-10 * np.sqrt((step**2).sum(1) * square)
    scale = np.where(convex, square / np.where(convex, inner, 1.0), curvature[:, 0, 0] / 4.0)
    steps, bends = curvature[:, 1 : 1 + PAIRS], curvature[:, 1 + PAIRS :]
    added = [np.concatenate([old[:, 1:], new[:, None]], axis=1) for old, new in ((steps, step), (bends, bend))]
    pairs = np.where(convex[:, None, None], np.concatenate(added, axis=1), np.concatenate([steps, bends / 4.0], axis=1))
    return np.concatenate([np.broadcast_to(scale[:, None, None], (len(step), 1, step.shape[1])), pairs], axis=1)


def newton(curvature: Float[np.ndarray, "b m t"], gradient: Float[np.ndarray, "b t"]) -> Float[np.ndarray, "b t"]:
    """The quasi-Newton step over the entries whose gradient is not 0."""
    free = gradient != 0
    if gradient.shape[1] > MAX_DENSE:
        return np.stack([_by_pairs(one, slope, own) for one, slope, own in zip(curvature, gradient, free, strict=True)])
    matrix = np.where(free[:, :, None] & free[:, None, :], curvature, np.eye(free.shape[1]))
    return np.linalg.solve(matrix, gradient[:, :, None])[:, :, 0]


def _by_pairs(curvature: np.ndarray, gradient: np.ndarray, free: np.ndarray) -> Float[np.ndarray, " t"]:
    """The two loops of L-BFGS (Nocedal and Wright 2006, algorithm 7.4), over the free entries."""
    steps, bends = (np.where(free, part, 0.0) for part in (curvature[1 : 1 + PAIRS], curvature[1 + PAIRS :]))
    inner = (steps * bends).sum(axis=1)
    pairs = [(s, y, 1.0 / sy) for s, y, sy in zip(steps, bends, inner, strict=True) if sy > 0]
    q, weights = gradient.copy(), []
    for s, y, rho in reversed(pairs):
        weights.append(rho * (s @ q))
        q -= weights[-1] * y
    q /= curvature[0, 0]
    for s, y, rho in pairs:
        q += (weights.pop() - rho * (y @ q)) * s
    return q


def by_secant(
    curvature: Float[np.ndarray, "k t t"],
    step: Float[np.ndarray, "k t"],
    bend: Float[np.ndarray, "k t"],
    first: Bool[np.ndarray, " k"],
) -> Float[np.ndarray, "k t t"]:
    """The BFGS update; if the objective curves upwards, the next step is to be longer."""
    inner = (step * bend).sum(1)
    convex = inner > 1e-10 * np.sqrt((step**2).sum(1) * (bend**2).sum(1))
    safe = np.where(convex, inner, 1.0)
    scale = (bend**2).sum(1) / safe
    now = np.where((convex & first)[:, None, None], scale[:, None, None] * np.eye(step.shape[1]), curvature)
    pushed = (now @ step[:, :, None])[:, :, 0]
    old = (pushed * step).sum(1)
    sound = old > 1e-14 * np.sqrt((pushed**2).sum(1) * (step**2).sum(1))  # otherwise rounding has made it indefinite
    better = now + _outer(bend) / safe[:, None, None] - _outer(pushed) / np.where(sound, old, 1.0)[:, None, None]
    better = np.where(sound[:, None, None], better, scale[:, None, None] * np.eye(step.shape[1]))
    return np.where(convex[:, None, None], better, now / 4.0)


def _outer(a: Float[np.ndarray, "k t"]) -> Float[np.ndarray, "k t t"]:
    return a[:, :, None] * a[:, None, :]
