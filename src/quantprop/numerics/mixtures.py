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
    """Locations and scales of the changes of a function of f: K for each of n rows."""

    location: Float[np.ndarray, "K n"]
    scale: Float[np.ndarray, "K n"]


class Fineness(NamedTuple):
    """Range of a rule (in standard deviations), its step in t, κ, and the inversion of T."""

    reach: float
    step: float
    kappa: float
    grid: int  # points around a place from which T is inverted
    steps: int  # of Halley's method from there, before one of Newton's
    near: float  # how far T(u) may be from t before that last step, whose error is about the square


FINE = Fineness(12.0, 0.2, 0.4, 24, 1, 1e-5)  # to 1e-11; to 1e-10 for exp links with standard deviations of 40
COARSE = Fineness(4.5, 1.2, 0.8, 10, 0, 0.3)  # to about 1e-3: enough to start the search for a quantile
SIZES = np.unique(np.rint(8 * 2.0 ** (np.arange(65) / 5)).astype(int))  # numbers of nodes; a row's depends on it alone
ELEMENTS = 1 << 13  # that are computed at a time: they stay in a cache
ITERATIONS = 200  # Newton's method within brackets, which usually takes a handful
MIN_RELATIVE_SCALE = 1e-9  # scale / u, at which rounding u changes T(u) by 1e-7


def places(*pairs: tuple) -> Places:
    """Places from (location, scale) pairs of arrays that broadcast."""
    shape = np.broadcast_shapes(*(np.shape(part) for pair in pairs for part in pair))
    location, scale = (np.stack([np.broadcast_to(pair[i], shape) for pair in pairs]) for i in (0, 1))
    return Places(location.astype(np.float64), scale.astype(np.float64))


def joined(*parts: Places) -> Places:
    return Places(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


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
    """Places in units of u, none narrower than u resolves. One out of reach is at the end of it, on the scale of the
    distance.
    """
    location, scale = (at.location - mean) / sd, at.scale / sd
    inside = np.clip(location, -reach, reach)
    return Places(inside, np.maximum(scale + np.abs(location - inside), MIN_RELATIVE_SCALE * np.abs(inside)))


def _stretched(u: Float[np.ndarray, "n nodes"], at: Places, kappa: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """T(u) and its first two derivatives."""
    value, slope, bend = kappa * u, np.full_like(u, kappa), np.zeros_like(u)
    for location, scale in zip(at.location[:, :, None], at.scale[:, :, None], strict=True):
        x = (u - location) * (1.0 / scale)
        square = 1.0 + x * x
        root = np.sqrt(square)
        value += np.copysign(np.log(np.abs(x) + root), x)  # asinh; NumPy's own takes many times as long
        density = 1.0 / (scale * root)
        slope += density
        bend -= density * x / (scale * square)
    return value, slope, bend


def _nodes(at: Places, fineness: Fineness) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows that have as many nodes, and their nodes and weights."""
    reach, step, kappa = fineness.reach, fineness.step, fineness.kappa
    ends = np.broadcast_to([-reach, reach], (at.location.shape[1], 2))
    first, last = _stretched(ends, at, kappa)[0].T
    needed = np.minimum(np.searchsorted(SIZES, (last - first) / step), len(SIZES) - 1)
    for kind in np.unique(needed):
        alike, size = np.flatnonzero(needed == kind), int(SIZES[kind])
        most = max(1, ELEMENTS // size)
        for rows in (alike[start : start + most] for start in range(0, len(alike), most)):
            t = first[rows, None] + (last - first)[rows, None] * (np.arange(size) + 0.5) / size
            u, slope = _inverse(t, _of(at, rows), fineness)
            yield rows, u, 1.0 / slope


def _of(at: Places, rows: np.ndarray) -> Places:
    return Places(at.location[:, rows], at.scale[:, rows])


def _inverse(t: Float[np.ndarray, "n nodes"], at: Places, fineness: Fineness) -> tuple[np.ndarray, np.ndarray]:
    """u with T(u) = t, and T'(u): interpolated on a grid, then by a fixed number of steps; bracketed where that fails.

    What is done to a row does not depend on the others.
    """
    kappa, u = fineness.kappa, _interpolated(t, at, fineness)
    for _ in range(fineness.steps):
        value, slope, bend = _stretched(u, at, kappa)
        by = (t - value) / slope
        u = u + by / (1.0 + 0.5 * by * bend / slope)  # Halley
    value, slope, bend = _stretched(u, at, kappa)
    by = (t - value) / slope
    far = np.flatnonzero(~(np.max(np.abs(t - value), axis=1) <= fineness.near))
    u, slope = u + by, slope + bend * by
    if len(far):
        u[far], slope[far] = _bracketed(t[far], _of(at, far), fineness)
    return u, slope


def _bracketed(t: np.ndarray, at: Places, fineness: Fineness) -> tuple[np.ndarray, np.ndarray]:
    """The same by Newton's method, kept inside brackets: beside a place much narrower than the grid's cells a step may
    go far beyond the other side of it.
    """
    reach, kappa, u = fineness.reach, fineness.kappa, _interpolated(t, at, fineness)
    lower, upper, settled = np.full_like(u, -reach), np.full_like(u, reach), np.zeros((len(u), 1), dtype=bool)
    for _ in range(ITERATIONS):
        value, slope, _ = _stretched(u, at, kappa)
        short = value < t
        lower, upper = np.where(short, u, lower), np.where(short, upper, u)
        ahead = np.clip(u + (t - value) / slope, -reach, reach)
        near = np.max(np.abs(t - value), axis=1, keepdims=True) < 1e-6  # the next one would be its square
        ahead = np.where(near | ((ahead >= lower) & (ahead <= upper)), ahead, 0.5 * (lower + upper))
        u, settled = np.where(settled, u, ahead), settled | near
        if settled.all():
            return u, _stretched(u, at, kappa)[1]
    raise RuntimeError(f"Newton's method did not find the nodes of an average over f in {ITERATIONS} steps")


def _interpolated(t: np.ndarray, at: Places, fineness: Fineness) -> np.ndarray:
    """u with T(u) = t, linearly from points graded around the places: one call of np.interp, with rows end to end."""
    n, reach = len(t), fineness.reach
    points, share = [np.broadcast_to(np.linspace(-reach, reach, 9), (n, 9))], np.linspace(0.0, 1.0, fineness.grid)[1:-1]
    for location, scale in zip(at.location[:, :, None], at.scale[:, :, None], strict=True):
        start, stop = (np.arcsinh((end - location) / scale) for end in (-reach, reach))
        points.append(location + scale * np.sinh(start + (stop - start) * share))
    grid = np.sort(np.clip(np.concatenate(points, axis=1), -reach, reach), axis=1)
    value = _stretched(grid, at, fineness.kappa)[0]
    first, row = value[:, :1], 2.0 * np.arange(n)[:, None]
    per = 2.0**40 / (value[:, -1:] - first)

    def placed(t: np.ndarray) -> np.ndarray:
        """In [0, 1], with few enough bits that adding a row's number is exact: the same for a row in any place."""
        return (np.rint((t - first) * per) * 2.0**-40 + row).ravel()

    return np.interp(placed(t), placed(value), grid.ravel()).reshape(t.shape)
