"""Probabilities of classes of a Gaussian vector: that an entry is the largest, and the mean of softmax."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_softmax
from jax.scipy.special import erfc, logsumexp, ndtri
from jaxtyping import Array, Float, Int

from quantprop.core.gaussian import LOG_2PI
from quantprop.numerics.special import norm_logpdf

SHIFT = 0.25  # of a step: in one dimension the midpoint rule, and no coordinate is 0 or 1 after the tent map
MIN_MASS = 1e-290  # mass of a half-line whose quantiles double precision holds
MIN_SCORE = -40.0  # whose Φ has less
SHIFT_STEP = 0.7548776662466927  # between the shifts of two dimensions
MIN_COMMON, MAX_COMMON = 0.1, 0.97  # of the variance that all differences can share
LOGISTIC = 0.75  # scale of the logistic distribution of t in standard deviations: heavier tails than t's
NEWTON_STEPS = 8


class Rule(NamedTuple):
    """A rank-1 lattice, its generator found component by component (P₂ criterion, weights 1/j²)."""

    points: int
    generator: tuple[int, ...]
    first: int = 0  # 1 if the first coordinate is one that all classes share, besides those of c − 2 differences
    lattices: int = 2  # that are compared; of one the sum of all probabilities says how good it is


SMALL = Rule(509, (
    1, 151, 232, 87, 122, 67, 99, 182, 225, 108, 114, 18, 241, 202, 70, 20, 31, 48, 166, 27, 130, 158, 140, 215,
), 1, 1)  # fmt: skip
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
    """Points of the unit cube in classes − 2 + `rule.first` dimensions (at least 1), with the tent map, which makes
    smooth integrands periodic; the generator repeats, with shifts, after its 24 numbers. Lattices of different `shift`
    have errors of their own.
    """
    j = np.arange(max(classes - 2 + rule.first, 1))
    z = np.resize(rule.generator, len(j)) + j // len(rule.generator)
    points = np.mod((np.arange(rule.points)[:, None] * z + SHIFT) / rule.points + shift * (1.0 + SHIFT_STEP * j), 1.0)
    return np.abs(2.0 * points - 1.0)


def log_largest(
    mean: Float[Array, " c"], covariance: Float[Array, "c c"], entry: Int[Array, ""], w: Float[Array, "points d"]
) -> Array:
    """log P(g_entry > all others) for g ~ N(mean, covariance), over the points w of a lattice in c − 2 dimensions, or
    c − 1: then the first is the common part.

    The differences g_entry − g_j are Gaussian. Their signs are fixed one after the other, the least certain first (Genz
    1992): the average over the lattice is of Π_j Φ(b_j), where b_j is the standardised mean of difference j given those
    before it, drawn from their positive halves. If the entries of g are nearly independent so are the differences given
    their common part, and few points are enough. In logarithms: exact far into the tails.
    """
    c, first = len(mean), int(w.shape[1] == len(mean) - 1)
    others = jnp.arange(c - 1)
    others = others + (others >= entry)
    apart = mean[entry] - mean[others]
    tie = covariance[entry, others]
    spread = covariance[entry, entry] - tie[:, None] - tie + covariance[others[:, None], others]
    nothing = 0.0, jnp.zeros(()), jnp.zeros(len(w)), jnp.zeros(len(w))
    v, mode, t, total = _common_part(apart, spread, w[:, 0]) if first else nothing
    order = jnp.argsort((apart + mode) / jnp.sqrt(jnp.diagonal(spread) - v))
    lower = jnp.linalg.cholesky(spread[order[:, None], order] - v)
    level, log_w = apart[order][:, None] + t, jnp.log(w)

    def settle(j: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        y, total = state
        b, k = (level[j] + lower[j] @ y) / lower[j, j], jnp.minimum(j + first, w.shape[1] - 1)
        mass, log_mass = _masses(b)
        return y.at[j].set(_positive_half(b, mass, w[:, k], log_w[:, k])), total + log_mass

    y, total = jax.lax.fori_loop(0, c - 2, settle, (jnp.zeros((c - 1, len(w))), total))
    total = total + _masses((level[c - 2] + lower[c - 2] @ y) / lower[c - 2, c - 2])[1]
    return logsumexp(total) - jnp.log(len(w))


def _common_part(apart: Float[Array, " j"], spread: Float[Array, "j j"], u: Float[Array, " points"]) -> tuple:
    """The common part t ~ N(0, v) of all differences: v, the mode of t given that all of them are positive, t spread about
    it, and the logarithm of its density in u.
    """
    v = _common_variance(spread)
    mode, left, right = _mode_and_scales(apart, jnp.sqrt(jnp.diagonal(spread) - v), v)
    t, log_slope = _spread(u, mode, left, right)
    return v, mode, t, log_slope - 0.5 * (t**2 / v + jnp.log(v) + LOG_2PI)


def _common_variance(spread: Float[Array, "j j"]) -> Array:
    """v: the mean covariance, but at most what leaves the rest positive definite."""
    n = len(spread)
    most = 1.0 / jnp.sum(jnp.linalg.solve(spread, jnp.ones(n)))
    mean = (jnp.sum(spread) - jnp.trace(spread)) / max(n * (n - 1), 1)
    return jnp.clip(mean, MIN_COMMON * most, MAX_COMMON * most)


def _mode_and_scales(apart: Float[Array, " j"], sd: Float[Array, " j"], v: Array) -> tuple[Array, Array, Array]:
    """The mode of N(t | 0, v) Π_j Φ((m_j + t)/sd_j), and standard deviations to its left and right, as far as it takes
    to fall by two. Its slope is convex and it is log-concave: Newton's steps, from the sides taken here, do not cross.
    """

    def at(t: Array) -> tuple[Array, Array, Array]:
        b = (apart + t) / sd
        log_mass = _masses(b)[1]
        hazard = jnp.exp(norm_logpdf(b) - log_mass) / sd
        curvature = -1.0 / v - jnp.sum(hazard * (hazard + b / sd))
        return jnp.sum(log_mass) - 0.5 * t * t / v, jnp.sum(hazard) - t / v, curvature

    def uphill(_: Any, t: Array) -> Array:
        _, slope, curvature = at(t)
        return t - slope / curvature

    mode = jax.lax.fori_loop(0, NEWTON_STEPS, uphill, jnp.zeros_like(v))
    top, _, curvature = at(mode)

    def inward(_: Any, x: Array) -> Array:
        value, slope, _ = at(mode + x)
        return x - (value - top + 2.0) / slope

    starts = -2.0 / jnp.sqrt(-curvature), 2.0 * jnp.sqrt(v)
    left, right = (jax.lax.fori_loop(0, NEWTON_STEPS, inward, x) for x in starts)
    return mode, -0.5 * left, 0.5 * right


def _spread(u: Float[Array, " points"], mode: Array, left: Array, right: Array) -> tuple[Array, Array]:
    """t of uniform u, logistic with these scales to the left and right of the mode, and log dt/du."""
    z, log_slope = LOGISTIC * jnp.log(u / (1.0 - u)), jnp.log(LOGISTIC / (u * (1.0 - u)))
    r, both, half = jnp.sqrt(1.0 + z * z), 0.5 * (right + left), 0.5 * (right - left)
    return mode + both * z + half * (r - 1.0), log_slope + jnp.log(both + half * z / r)


def _masses(b: Array) -> tuple[Array, Array]:
    """Φ(b), and its logarithm also where it underflows."""
    mass = 0.5 * erfc(-np.sqrt(0.5) * b)
    held = mass > MIN_MASS
    far = jnp.where(held, MIN_SCORE, b)
    log, i = jnp.log(jnp.where(held, mass, -far)), 1.0 / far**2
    return mass, jnp.where(held, log, -0.5 * (far**2 + LOG_2PI) - log - i * (1.0 - 2.5 * i))


def _positive_half(b: Array, mass: Array, w: Array, log_w: Array) -> Array:
    """The quantile at 1 − w of a standard normal number above −b; far out it exceeds −b by an exponential one."""
    held = mass > MIN_MASS
    far = jnp.where(held, MIN_SCORE, b)
    return jnp.where(held, -ndtri(w * jnp.where(held, mass, 0.5)), -far + log_w / far)


def log_probabilities(
    mean: Float[Array, " c"], covariance: Float[Array, "c c"], w: Float[Array, "points d"]
) -> Float[Array, " c"]:
    """log P(g_c is the largest) for every entry, each by itself: their sum is 1 but for errors."""
    return jax.vmap(lambda entry: log_largest(mean, covariance, entry, w))(jnp.arange(len(mean)))


def log_mean_softmax(
    mean: Float[Array, " c"], covariance: Float[Array, "c c"], w: Float[Array, "points d"]
) -> Float[Array, " c"]:
    """log E softmax(g) for g ~ N(mean, covariance), over a lattice of c − 1 dimensions, the directions of largest
    variance first. What all entries share does not matter, and is left out.
    """
    c = len(mean)
    centre = jnp.eye(c) - 1.0 / c
    values, vectors = jnp.linalg.eigh(centre @ covariance @ centre)
    root = vectors[:, ::-1] * jnp.sqrt(jnp.maximum(values[::-1], 0.0))
    each = log_softmax(mean + ndtri(w) @ root[:, : c - 1].T, axis=1)
    return logsumexp(each, axis=0) - jnp.log(len(w))
