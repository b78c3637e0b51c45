"""Averages over a Gaussian f of functions that change fast around known places: nodes for all rows, in NumPy.

SciPy's compiled incomplete gamma and beta functions are many times as fast as JAX's, and nothing has to be compiled.
The rule is the trapezoidal one in t = T(u), u = (f − mean)/sd, with T(u) = κ u + Σ_k asinh((u − ℓ_k)/s_k): steps are
equal far from the places ℓ_k, and in proportion to the distance from them nearby, down to the scale s_k. T is analytic,
so the error falls exponentially with the number of nodes (Trefethen and Weideman 2014).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Rows = Float[np.ndarray, " n"]


class Places(NamedTuple):
    """Where a function of f changes, and on which scale: K places for each of n rows."""

    location: Float[np.ndarray, "K n"]
    scale: Float[np.ndarray, "K n"]


class Fineness(NamedTuple):
    """How far a rule looks (in standard deviations), its step in t, and κ."""

    reach: float
    step: float
    kappa: float


FINE = Fineness(12.0, 0.3, 0.4)  # to about 1e-14
COARSE = Fineness(4.5, 1.2, 0.8)  # to about 1e-3: enough to say where a quantile is
SIZES = np.unique(np.rint(8 * 2.0 ** (np.arange(65) / 5)).astype(int))  # numbers of nodes; a row's depends on it alone
ELEMENTS = 1 << 13  # that are held at a time: they stay in a cache
GRID = 16  # points around a place from which T is inverted


def places(*pairs: tuple) -> Places:
    """Places from (location, scale) pairs of arrays that broadcast."""
    shape = np.broadcast_shapes(*(np.shape(part) for pair in pairs for part in pair))
    location, scale = (np.stack([np.broadcast_to(pair[i], shape) for pair in pairs]) for i in (0, 1))
    return Places(location.astype(np.float64), scale.astype(np.float64))


def expectation(function: Callable, mean: Rows, sd: Rows, at: Places, fineness: Fineness = FINE) -> Rows:
    """E[g(f)] for every row; `function(rows, f)` is g at a matrix of nodes f, one line for each of these rows."""
    out = np.empty(len(mean))
    with np.errstate(over="ignore", divide="ignore"):  # rates of f far out: infinite is right
        for rows, u, weight in _nodes(_standardised(at, mean, sd, fineness.reach), fineness):
            f = mean[rows, None] + sd[rows, None] * u
            mass = weight * np.exp(-0.5 * u * u)
            out[rows] = np.sum(mass * function(rows, f), axis=1) / np.sum(mass, axis=1)
    return out


def _standardised(at: Places, mean: Rows, sd: Rows, reach: float) -> Places:
    """Places in units of u. One out of reach is at the end of it, on the scale of the distance."""
    location, scale = (at.location - mean) / sd, at.scale / sd
    inside = np.clip(location, -reach, reach)
    return Places(inside, scale + np.abs(location - inside))


def _stretched(u: Float[np.ndarray, "n nodes"], at: Places, kappa: float) -> tuple[np.ndarray, np.ndarray]:
    """T(u) and its derivative."""
    value, slope = kappa * u, np.full_like(u, kappa)
    for location, scale in zip(at.location, at.scale, strict=True):
        x = (u - location[:, None]) / scale[:, None]
        root = np.sqrt(1.0 + x * x)
        value += np.copysign(np.log(np.abs(x) + root), x)  # asinh; NumPy's own takes many times as long
        slope += 1.0 / (scale[:, None] * root)
    return value, slope


def _nodes(at: Places, fineness: Fineness) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows that have as many nodes, and their nodes and weights."""
    reach, step, kappa = fineness
    ends = np.broadcast_to([-reach, reach], (at.location.shape[1], 2))
    first, last = _stretched(ends, at, kappa)[0].T
    needed = np.minimum(np.searchsorted(SIZES, (last - first) / step), len(SIZES) - 1)
    for kind in np.unique(needed):
        alike, size = np.flatnonzero(needed == kind), int(SIZES[kind])
        most = max(1, ELEMENTS // size)
        for rows in (alike[start : start + most] for start in range(0, len(alike), most)):
            own = Places(at.location[:, rows], at.scale[:, rows])
            t = first[rows, None] + (last - first)[rows, None] * (np.arange(size) + 0.5) / size
            u, slope = _inverse(t, own, reach, kappa)
            yield rows, u, 1.0 / slope


def _inverse(t: Float[np.ndarray, "n nodes"], at: Places, reach: float, kappa: float) -> tuple[np.ndarray, np.ndarray]:
    """u with T(u) = t, and T'(u): interpolated on a grid, then Newton's method."""
    u = _interpolated(t, at, reach, kappa)
    for _ in range(40):
        value, slope = _stretched(u, at, kappa)
        change = (t - value) / slope
        u = np.clip(u + change, -reach, reach)
        if np.max(np.abs(change) * slope) < 1e-6:  # the next one would be its square
            break
    return u, _stretched(u, at, kappa)[1]


def _interpolated(t: np.ndarray, at: Places, reach: float, kappa: float) -> np.ndarray:
    """u with T(u) = t, linearly from points graded around the places: one call of np.interp, with rows end to end."""
    n = len(t)
    points = [np.broadcast_to(np.linspace(-reach, reach, 9), (n, 9))]
    for location, scale in zip(at.location, at.scale, strict=True):
        start, stop = (np.arcsinh((end - location) / scale) for end in (-reach, reach))
        x = np.linspace(start, stop, GRID, axis=1)[:, 1:-1]
        points.append(location[:, None] + scale[:, None] * np.sinh(x))
    grid = np.sort(np.clip(np.concatenate(points, axis=1), -reach, reach), axis=1)
    value = _stretched(grid, at, kappa)[0]
    first, span, row = value[:, :1], value[:, -1:] - value[:, :1], 2.0 * np.arange(n)[:, None]
    return np.interp(((t - first) / span + row).ravel(), ((value - first) / span + row).ravel(), grid.ravel()).reshape(
        t.shape
    )
