"""Which rows of X become inducing points: those of k-means++, moved to the middle of what they stand for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from jaxtyping import Float

from quantprop.kernels import Kernel, summands
from quantprop.priors.inducing.exact import different, exact_points, of_levels, seen_by
from quantprop.runtime.jobs import job_total, rows_of_all

SUBSAMPLE = 32  # rows for each point, at most, among which points are chosen
LLOYD_ROUNDS = 5


def count_of(points: Any) -> int:
    """The number of points, given as an array or as their number."""
    return int(points) if np.ndim(points) == 0 else len(points)


class PointsWarning(UserWarning):
    """Inducing points that cannot represent a term of the kernel."""


def points_for(kernel: Kernel, points: Any, x: Float[np.ndarray, "n d"], seed: int) -> Float[np.ndarray, "m d"]:
    """The points, chosen from the rows of x (of all processes) where only their number is given; an error where they do
    not fit x.
    """
    n, count = job_total(len(x)), count_of(points)
    if count > n:
        raise ValueError(
            f"Inducing: {count} points are more than the {n} rows of X: use Dense(), which is exact and cheaper, or "
            "fewer points"
        )
    array = with_levels(kernel, x, count, seed) if np.ndim(points) == 0 else np.asarray(points, dtype=np.float64)
    if array.shape[1] != x.shape[1]:
        raise ValueError(f"Inducing: points have {array.shape[1]} columns, and X has {x.shape[1]}")
    return array


def with_levels(kernel: Kernel, x: Float[np.ndarray, "n d"], count: int, seed: int) -> Float[np.ndarray, "m d"]:
    """Points for a kernel: with effects of levels, one point for each level, which agrees with the first of the other
    points in all other columns. Their sums and differences contain every effect, so that V explains these terms.
    """
    terms = summands(kernel)
    rest = [term for term in terms if not of_levels(term)]
    if not rest or len(rest) == len(terms):
        return chosen(x, count, seed)
    levels = exact_points(kernel, x, of_levels)
    total = sum(map(len, levels))
    if 2 * total > count or not all(len(z) or not of_levels(term) for term, z in zip(terms, levels, strict=True)):
        effects = " and ".join(str(term) for term in terms if of_levels(term))
        warnings.warn(f"Inducing: {count} points cannot represent the effect of each level in {effects}, which will be"
                      " treated as noise: use at least twice as many points as levels, or add neighbours=32",
                      PointsWarning, stacklevel=2)  # fmt: skip
        return chosen(x, count, seed)
    smooth, row = reduce(add, rest), rows_of_all(x, np.arange(1))
    others = different(seen_by(smooth, x))
    points = _put(chosen(others, min(count - total, len(others)), seed), smooth, row)
    each = [_put(z, term, points[:1]) for term, z in zip(terms, levels, strict=True) if len(z)]
    return np.unique(np.concatenate([points, *each]), axis=0)


def _put(z: Float[np.ndarray, "m d"], kernel: Kernel, row: Float[np.ndarray, "1 d"]) -> Float[np.ndarray, "m d"]:
    """Points with the values of a row in columns that the kernel does not see."""
    return z + row - seen_by(kernel, row)


def chosen(x: Float[np.ndarray, "n d"], count: int, seed: int) -> Float[np.ndarray, "m d"]:
    """The given number of different rows of x (of all processes), spread as the data are. Points are always rows, so
    that codes of categories stay codes.
    """
    return chosen_among(lambda k: rows_of_all(x, k), job_total(len(x)), count, seed, lambda: different(x))


def chosen_among(
    take: Callable[[np.ndarray], np.ndarray], n: int, count: int, seed: int, different: Callable[[], np.ndarray]
) -> Float[np.ndarray, "m d"]:
    """The same of n rows that are taken by their numbers; `different` are all different ones, for where a sample has
    too few.
    """
    draw = np.random.default_rng(seed)
    rows = np.unique(take(draw.permutation(n)[: SUBSAMPLE * count]), axis=0)
    if len(rows) < count:
        rows = different()
    if len(rows) < count:
        raise ValueError(f"Inducing: {count} points, but X has only {len(rows)} different rows; use at most as many")
    unit = np.ldexp(rows, -np.frexp(np.abs(rows).max(axis=0))[1])  # whose squares do not overflow
    spread = unit.std(axis=0)
    scaled = (unit - unit.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    picked = _seeds(scaled, count, draw)
    if len(picked) < count:
        row, column = np.unravel_index(np.argmax(np.abs(scaled)), scaled.shape)
        raise ValueError(
            f"Inducing: {count} points, but next to {rows[row, column]:g} in column {column} of X only {len(picked)} "
            "rows differ by more than rounding errors: leave that row out, or rescale the column"
        )
    return rows[_middles(scaled, picked)]


def _squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1) - 2.0 * a @ b.T, 0.0)


def _seeds(x: np.ndarray, count: int, draw: np.random.Generator) -> np.ndarray:
    """k-means++ (Arthur and Vassilvitskii 2007): each next row with probability as its squared distance to those
    before; fewer, where no other row is apart from those.
    """
    picked = [int(draw.integers(len(x)))]
    nearest = ((x - x[picked[0]]) ** 2).sum(1)
    while len(picked) < count and nearest.any():
        picked.append(int(np.searchsorted(np.cumsum(nearest), draw.random() * nearest.sum(), side="right")))
        nearest = np.minimum(nearest, ((x - x[picked[-1]]) ** 2).sum(1))
    return np.array(picked)


def _middles(x: np.ndarray, picked: np.ndarray) -> np.ndarray:
    """Each point the row nearest to the mean of the rows that are nearest to it, a few times over."""
    for _ in range(LLOYD_ROUNDS):
        parts = np.array_split(x, len(x) // 4096 + 1)
        nearest = np.concatenate([_squares(part, x[picked]).argmin(1) for part in parts])
        nearest[picked] = np.arange(len(picked))  # of near rows rounding might think otherwise
        count = np.bincount(nearest)
        centre = np.stack([np.bincount(nearest, column) for column in x.T], 1) / count[:, None]
        order = np.lexsort((((x - centre[nearest]) ** 2).sum(1), nearest))
        picked = order[np.searchsorted(nearest[order], np.arange(len(picked)))]
    return picked
