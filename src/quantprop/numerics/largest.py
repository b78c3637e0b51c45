"""Probabilities of classes of Gaussian vectors: that an entry is the largest, and the mean of softmax.

In NumPy: nothing is compiled, and SciPy's functions of the normal distribution take about the time of XLA's on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, log_softmax, logsumexp, ndtr, ndtri

from quantprop.core.gaussian import LOG_2PI

OFFSET = 0.25  # steps: the midpoint rule in one dimension; no coordinate is 0 or 1 after the tent map
MIN_SCORE = -37.0  # Φ and its quantiles are asymptotic series at smaller arguments
SHIFT_STEP = 0.7548776662466927  # between the shifts of two dimensions
MIN_COMMON, MAX_COMMON = 0.1, 0.97  # fractions of the variance that all differences can share
LOGISTIC = 0.75  # scale of the logistic distribution of t in standard deviations: heavier tails than t's
NEWTON_STEPS = 8
MIN_FACTOR = 1e-150  # products of two such numbers do not underflow
POINTS_IN_MEMORY = 4096  # lattice points at a time

Vectors = Float[np.ndarray, "k c"]
Matrices = Float[np.ndarray, "k c c"]
Points = Float[np.ndarray, "points d"]
Lattices = Float[np.ndarray, "lattices points d"]
OverLattices = Float[np.ndarray, "lattices k c"]


class Rule(NamedTuple):
    """A rank-1 lattice, its generator found component by component (P₂ criterion, weights 1/j²)."""

    points: int
    generator: tuple[int, ...]
    first: int = 0  # 1 if the first coordinate is one that all classes share, besides those of c − 2 differences


TINY = Rule(163, (
    1, 62, 26, 72, 57, 42, 16, 67, 12, 44, 47, 7, 14, 10, 67, 44, 7, 49, 47, 12, 67, 44, 10, 32,
), 1)  # fmt: skip
SMALL = Rule(509, (
    1, 151, 232, 87, 122, 67, 99, 182, 225, 108, 114, 18, 241, 202, 70, 20, 31, 48, 166, 27, 130, 158, 140, 215,
), 1)  # fmt: skip
MIDDLE = Rule(1021, (
    1, 374, 428, 453, 240, 251, 311, 183, 149, 42, 487, 206, 357, 393, 286, 467, 76, 69, 347, 158, 211, 144, 175, 96,
), 1)  # fmt: skip
COARSE = Rule(4093, (
    1, 1210, 1542, 1785, 424, 1717, 801, 79, 450, 194, 368, 1075, 1894, 1380, 1933, 698, 715, 120, 945, 1239, 491, 1511,
    1828, 1468,
), 1)  # fmt: skip
FINE = Rule(65521, (
    1, 17689, 28549, 2117, 11149, 14612, 12828, 10315, 14188, 21497, 24098, 23351, 1477, 20850, 22454, 31429, 30252,
    14241, 20506, 9396, 11999, 484, 6741, 2281,
))  # fmt: skip


def lattice(rule: Rule, classes: int, shift: float = 0.0) -> Float[np.ndarray, "points dimensions"]:
    """Points of the unit cube in classes − 2 + `rule.first` dimensions (at least 1); the generator repeats, with
    shifts, after its 24 numbers. Lattices of different `shift` have errors of their own.
    """
    j = np.arange(max(classes - 2 + rule.first, 1))
    z = np.resize(rule.generator, len(j)) + j // len(rule.generator)
    return np.mod((np.arange(rule.points)[:, None] * z + OFFSET) / rule.points + shift * (1.0 + SHIFT_STEP * j), 1.0)


def _folded(points: np.ndarray) -> np.ndarray:
    """The tent map, which makes smooth integrands periodic."""
    return np.abs(2.0 * points - 1.0)


def log_largest(mean: Vectors, covariance: Matrices, lattices: Lattices) -> OverLattices:
    """log P(g_e > all others) of every entry e of k vectors g ~ N(mean, covariance), each by itself (their sum is 1 but
    for errors), over the points of each lattice in c − 2 dimensions, or c − 1: then the first is the common part.

    The differences g_e − g_j are Gaussian. Their signs are fixed one after the other, the least certain first (Genz
    1992): the average over the lattice is of Π_j Φ(b_j), where b_j is the standardised mean of difference j given those
    before it, drawn from their positive halves. If the entries of g are nearly independent so are the differences given
    their common part, and few points are enough. In logarithms: exact far into the tails.
    """
    apart, spread = _differences(mean, covariance)
    common = _common_part(apart, spread) if lattices.shape[2] == mean.shape[1] - 1 else None
    v, mode = (common.v, common.mode) if common else np.zeros((2, len(apart)))
    rest = spread - v[:, None, None]
    order = np.argsort((apart + mode[:, None]) / np.sqrt(np.diagonal(rest, axis1=1, axis2=2)), axis=1)
    item = np.arange(len(apart))[:, None]
    level, lower = apart[item, order], np.linalg.cholesky(rest[item[:, :, None], order[:, :, None], order[:, None]])
    sums = _over_lattices(lambda w: _log_sum(level, lower, common, w), lattices)
    return sums.reshape(-1, *mean.shape)


def _over_lattices(log_sum: Callable[[Points], np.ndarray], lattices: Lattices) -> np.ndarray:
    """The logarithms of the means over each lattice from those of sums over points, some at a time."""
    n = lattices.shape[1]
    each = [[log_sum(w[i : i + POINTS_IN_MEMORY]) for i in range(0, n, POINTS_IN_MEMORY)] for w in lattices]
    return np.logaddexp.reduce(each, axis=1) - np.log(n)


def _differences(mean: Vectors, covariance: Matrices) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of g_e − g_j, j ≠ e: of all entries e of the first vector, then of the next."""
    c = mean.shape[1]
    entry = np.arange(c)[:, None]
    others = np.arange(c - 1) + (np.arange(c - 1) >= entry)
    own, tie = covariance[:, entry, entry][..., None], covariance[:, entry, others]
    among = covariance[:, others[:, :, None], others[:, None]]
    spread = own - tie[..., None] - tie[..., None, :] + among
    return (mean[:, entry] - mean[:, others]).reshape(-1, c - 1), spread.reshape(-1, c - 1, c - 1)


def _log_sum(level: np.ndarray, lower: np.ndarray, common: Common | None, w: Points) -> np.ndarray:
    """log Σ Π_j Φ(b_j) over points."""
    k, d = level.shape
    t, total = common.spread(w[:, 0]) if common else (0.0, np.zeros((k, len(w))))
    halves = _folded(w[:, common is not None :]).T
    below = np.stack([np.ones((k, len(w))), np.broadcast_to(t, total.shape), *[total] * (d - 1)], axis=1)
    pivots = np.diagonal(lower, axis1=1, axis2=2)[:, :, None]
    weights = np.concatenate([level[:, :, None], np.ones((k, d, 1)), -lower[:, :, :-1]], axis=2) / pivots
    moved, mass, product = np.empty((k, 1, len(w))), np.empty((k, len(w))), np.ones((k, len(w)))
    for j in range(d):
        b = np.matmul(weights[:, j, None, : j + 2], below[:, : j + 2], out=moved)[:, 0]
        if ndtr(b, out=mass).min() > MIN_FACTOR:
            product *= mass
        else:
            total += log_ndtr(b)
        if product.min() < MIN_FACTOR:
            total += np.log(product)
            product[:] = 1.0
        if j < d - 1:
            _below(b, mass, halves[j], out=below[:, j + 2])
    return np.asarray(logsumexp(total + np.log(product), axis=1))


def _below(b: np.ndarray, mass: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
    """The quantile at w of a standard normal number below b; far out it falls short of b by an exponential one."""
    ndtri(np.multiply(w, mass, out=out), out=out)
    if b.min() <= MIN_SCORE:
        far = b <= MIN_SCORE
        out[far] = b[far] - np.log(np.broadcast_to(w, b.shape)[far]) / b[far]


# --- the common part --------------------------------------------------------------------------------------------------


class Common(NamedTuple):
    """t ~ N(0, v), which is added to all differences: its mode given that all of them are positive, and scales to the
    left and right of it. The density vanishes at both ends of the cube: as a function of u the integrand is periodic.
    """

    v: np.ndarray
    mode: np.ndarray
    left: np.ndarray
    right: np.ndarray

    def spread(self, u: Float[np.ndarray, " points"]) -> tuple[np.ndarray, np.ndarray]:
        """t of uniform u, logistic with these scales, and the logarithm of its density in u."""
        v, mode, left, right = (part[..., None] for part in self)
        z, log_slope = LOGISTIC * np.log(u / (1.0 - u)), np.log(LOGISTIC / (u * (1.0 - u)))
        r, both, half = np.sqrt(1.0 + z * z), 0.5 * (right + left), 0.5 * (right - left)
        t = mode + both * z + half * (r - 1.0)
        return t, log_slope + np.log(both + half * z / r) - 0.5 * (t**2 / v + np.log(v) + LOG_2PI)


def _common_part(apart: np.ndarray, spread: np.ndarray) -> Common:
    v = _common_variance(spread)
    sd = np.sqrt(np.diagonal(spread, axis1=-2, axis2=-1) - v[..., None])
    return Common(v, *_mode_and_scales(apart, sd, v))


def _common_variance(spread: np.ndarray) -> np.ndarray:
    """v: the mean covariance, but at most what leaves the rest positive definite."""
    n = spread.shape[-1]
    most = 1.0 / np.sum(np.linalg.solve(spread, np.ones((*spread.shape[:-1], 1))), axis=(-2, -1))
    mean = (np.sum(spread, axis=(-2, -1)) - np.trace(spread, axis1=-2, axis2=-1)) / max(n * (n - 1), 1)
    return np.clip(mean, MIN_COMMON * most, MAX_COMMON * most)


def _mode_and_scales(apart: np.ndarray, sd: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mode of N(t | 0, v) Π_j Φ((m_j + t)/sd_j), and standard deviations to its left and right, as far as it takes
    to fall by two. Its slope is convex and it is log-concave: Newton's steps, from the sides taken here, do not cross.
    """

    def at(t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        b = (apart + t[..., None]) / sd
        log_mass = log_ndtr(b)
        hazard = np.exp(-0.5 * b * b - 0.5 * LOG_2PI - log_mass) / sd
        curvature = -1.0 / v - np.sum(hazard * (hazard + b / sd), axis=-1)
        return np.sum(log_mass, axis=-1) - 0.5 * t * t / v, np.sum(hazard, axis=-1) - t / v, curvature

    mode = np.zeros_like(v)
    for _ in range(NEWTON_STEPS):
        _, slope, curvature = at(mode)
        mode = mode - slope / curvature
    top, _, curvature = at(mode)
    left, right = -2.0 / np.sqrt(-curvature), 2.0 * np.sqrt(v)
    for _ in range(NEWTON_STEPS):
        left, right = (x - (value - top + 2.0) / slope for x in (left, right) for value, slope, _ in [at(mode + x)])
    return mode, -0.5 * left, 0.5 * right


# --- softmax ----------------------------------------------------------------------------------------------------------


def log_mean_softmax(mean: Vectors, covariance: Matrices, lattices: Lattices) -> OverLattices:
    """log E softmax(g) for g ~ N(mean, covariance), over lattices of c − 1 dimensions, the directions of largest
    variance first. What all entries share does not matter, and is left out.
    """
    c = mean.shape[-1]
    centre = np.eye(c) - 1.0 / c
    values, vectors = np.linalg.eigh(centre @ covariance @ centre)
    root = np.swapaxes((vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])[..., :0:-1], -1, -2)

    def log_sum(w: Points) -> np.ndarray:
        return np.asarray(logsumexp(log_softmax(mean[..., None, :] + ndtri(_folded(w)) @ root, axis=-1), axis=-2))

    return _over_lattices(log_sum, lattices)
