"""Designs: points at which to evaluate a density that is about normal, and their weights; pure geometry, in NumPy.

All designs live in z, in which the density's mode is 0 and its curvature there the identity.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit, gammaln

from quantprop.core.gaussian import LOG_2PI

log_sum = np.logaddexp.reduce
Ask = Callable[[Float[np.ndarray, "k theta"]], Float[np.ndarray, " k"]]  # log densities at several θ; −inf: none

GRID_STEP = 1.0  # standard deviations: for a normal density the sum is then accurate to 1e-8
CUTOFF = 5.5  # nats below the largest value: the grid continues next to points above this
FIRST_RADII = (1.5, 3.2)  # standard deviations around the mode that are evaluated first, as a batch each
GRID_TOLERANCE = 0.01  # difference of the log integrals by half of a grid's points and by all of them
BOUND_REACH = 3.0  # standard deviations from the mode within which a bound cuts off a relevant part of the density
DIFFERENCE_STEP = 1e-4
COMPOSITE_RADIUS = 1.1  # radius / √d of the central composite design (Rue, Martino and Chopin 2009)
FREEDOM = 5.0  # degrees of the proposals' Student t


class Frame(NamedTuple):
    """Coordinates z with θ = mode + scale z."""

    mode: Float[np.ndarray, " theta"]
    scale: Float[np.ndarray, "theta theta"]

    def theta(self, z: Float[np.ndarray, "k theta"]) -> Float[np.ndarray, "k theta"]:
        return self.mode + z @ self.scale.T

    @property
    def log_volume(self) -> float:
        """log |dθ/dz|."""
        return float(np.linalg.slogdet(self.scale)[1])


class Inside(NamedTuple):
    """Coordinates v without bounds instead of entries of θ that have two, lower + (upper − lower) / (1 + exp(−v)), or
    one, bound ± exp(v). A density that bounds cut off is smooth in v; sums over lattices in θ would be wrong there by
    half a cell. Entries with infinite bounds are their own v.
    """

    lower: Float[np.ndarray, " theta"]
    upper: Float[np.ndarray, " theta"]

    @np.errstate(invalid="ignore", divide="ignore", over="ignore")  # of infinite bounds
    def theta(self, v: Float[np.ndarray, "k theta"]) -> Float[np.ndarray, "k theta"]:
        """Points with coordinates v."""
        both = self.lower + (self.upper - self.lower) * expit(v)
        return self._by_kind(v, both, self.lower + np.exp(v), self.upper - np.exp(v))

    @np.errstate(invalid="ignore", divide="ignore", over="ignore")  # of infinite bounds
    def v(self, theta: Float[np.ndarray, "k theta"]) -> Float[np.ndarray, "k theta"]:
        """Coordinates of points between the bounds."""
        above, below = np.log(theta - self.lower), np.log(self.upper - theta)
        return self._by_kind(theta, above - below, above, below)

    @np.errstate(invalid="ignore", divide="ignore", over="ignore")  # of infinite bounds
    def log_volume(self, v: Float[np.ndarray, "k theta"]) -> Float[np.ndarray, " k"]:
        """log |dθ/dv|."""
        both = np.log(self.upper - self.lower) - np.logaddexp(0.0, v) - np.logaddexp(0.0, -v)
        return self._by_kind(np.zeros_like(v), both, v, v).sum(axis=1)

    def _by_kind(self, free: Any, both: Any, above: Any, below: Any) -> np.ndarray:
        """One of four for each entry: without bounds, with two, or with a lower or an upper one."""
        lower, upper = np.isfinite(self.lower), np.isfinite(self.upper)
        return np.where(lower & upper, both, np.where(lower, above, np.where(upper, below, free)))


def within(
    by: Frame, gradient: Float[np.ndarray, " theta"], bounds: Float[np.ndarray, "theta 2"]
) -> tuple[Inside, Frame]:
    """Coordinates without bounds for the entries that have one within reach of the mode, and the frame in them.

    Where the mode lies at a bound the frame is centred so far from it as the density falls by a nat, or one standard
    deviation if that is nearer.
    """
    spread, (lower, upper) = np.sqrt((by.scale**2).sum(axis=1)), bounds.T
    cut = (np.abs(by.mode[:, None] - bounds) < BOUND_REACH * spread[:, None]).any(axis=1)
    inside = Inside(np.where(cut, lower, -np.inf), np.where(cut, upper, np.inf))
    with np.errstate(divide="ignore"):  # of a mode between its bounds
        room = np.where(cut, np.minimum(np.minimum(spread, 1.0 / np.abs(gradient)), 0.25 * (upper - lower)), spread)
    centre = np.where(cut, np.clip(by.mode, lower + room, upper - room), by.mode)
    v = inside.v(centre[None])[0]
    ends = inside.theta(v + DIFFERENCE_STEP * np.array([[-1.0], [1.0]]))
    slope = 2.0 * DIFFERENCE_STEP / np.abs(ends[1] - ends[0])  # of v in θ
    return inside, Frame(v, (slope * room / spread)[:, None] * by.scale)


@dataclass(frozen=True)
class Weighted:
    """Log weights of all points in the order in which they were asked for: log ∫ of the density is their log_sum.

    `efficiency` is 1 for a density of the shape that the design expects.
    """

    log_weight: Float[np.ndarray, " k"]
    efficiency: float

    @property
    def effective(self) -> float:
        """1 / Σ w²."""
        log_w = self.log_weight - log_sum(self.log_weight)
        return float(np.exp(-log_sum(2.0 * log_w)))


def frame(
    mode: Float[np.ndarray, " theta"], precision: Float[np.ndarray, "theta theta"], widest: Float[np.ndarray, " theta"]
) -> Frame:
    """The frame of a density by its mode and negative Hessian; no direction is wider than `widest` says of the axes."""
    values, vectors = np.linalg.eigh(widest[:, None] * precision * widest)
    values = np.maximum(values, 1.0)
    return Frame(mode, widest[:, None] * vectors / np.sqrt(values))


# --- a grid, for one or two dimensions -------------------------------------------------------------------------------


def grid(ask: Ask, by: Frame, most: int) -> Weighted | None:
    """The sum over a lattice as far as the density reaches; the lattice is refined until half of it is accurate enough.

    None if that takes more than `most` points, or if the density is 0 at all of them.
    """
    d, step = len(by.mode), GRID_STEP
    known: dict[tuple[int, ...], float] = {}
    asked: list[tuple[int, ...]] = []  # in units of the finest step
    ahead, wider = _lattice(FIRST_RADII[0], d), list(FIRST_RADII[1:])
    while True:
        while ahead:
            if len(asked) + len(ahead) > most:
                return None
            known.update(zip(ahead, ask(by.theta(step * np.array(ahead, dtype=float))), strict=True))
            asked += ahead
            ahead = [i for i in _lattice(wider.pop(0), d) if i not in known] if wider else _beyond(known)
        values = np.array([known[i] for i in asked])
        if not np.isfinite(values).any():
            return None
        if _fine(np.array(asked), values):
            fall = 0.5 * (step**2) * (np.array(asked) ** 2).sum(axis=1)  # of the normal density of the frame
            return Weighted(values + by.log_volume + d * np.log(step), _efficiency(-fall, values + fall))
        known, asked = {_doubled(i): v for i, v in known.items()}, [_doubled(i) for i in asked]
        step, ahead = 0.5 * step, _beyond(known)


def _lattice(radius: float, d: int) -> list[tuple[int, ...]]:
    """Points of the lattice of step 1 around 0."""
    reach = range(-int(radius), int(radius) + 1)
    return [i for i in itertools.product(reach, repeat=d) if np.linalg.norm(i) <= radius]


def _doubled(index: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(2 * i for i in index)


def _beyond(known: dict[tuple[int, ...], float]) -> list[tuple[int, ...]]:
    """Unknown neighbours of the points where the density is not negligible."""
    top = max(known.values())
    one = np.eye(len(next(iter(known))), dtype=int)
    steps = [*one, *-one]
    ahead = (tuple(np.add(i, s).tolist()) for i, v in known.items() if v > top - CUTOFF for s in steps)
    return [i for i in dict.fromkeys(ahead) if i not in known]


def _fine(index: Int[np.ndarray, "k d"], values: Float[np.ndarray, " k"]) -> bool:
    """Return whether every other point, as on a chessboard, gives the same integral."""
    half: Bool[np.ndarray, " k"] = index.sum(axis=1) % 2 == 0
    return bool(abs(log_sum(values[half]) + np.log(2.0) - log_sum(values)) < GRID_TOLERANCE)


def _efficiency(log_weight: Float[np.ndarray, " k"], log_ratio: Float[np.ndarray, " k"]) -> float:
    """(E r)² / E r² under the design's own weights."""
    total = log_sum(log_weight)
    first, second = log_sum(log_weight + log_ratio), log_sum(log_weight + 2.0 * log_ratio)
    return float(np.exp(2.0 * first - second - total))


# --- a central composite design, for a few dimensions ----------------------------------------------------------------


def composite(ask: Ask, by: Frame) -> Weighted:
    """Points on a sphere and its centre that integrate a normal density times a cubic exactly (Rue, Martino and Chopin
    2009, section 6.5), weighted by the density over the normal one. Each axis is stretched to either side as the
    density falls there, since posteriors of hyperparameters are skewed.
    """
    d = len(by.mode)
    axes = COMPOSITE_RADIUS * np.sqrt(d) * np.concatenate([np.eye(d), -np.eye(d)])
    u = np.concatenate([np.zeros((1, d)), axes, COMPOSITE_RADIUS * corners(d)])
    trial = ask(by.theta(u[: 1 + 2 * d]))
    above, below = np.split(_stretch(trial[0] - trial[1:], COMPOSITE_RADIUS * np.sqrt(d)), 2)
    stretch = np.where(u > 0, above, np.where(u < 0, below, 0.5 * (above + below)))
    share = np.full(len(u), 1.0 / ((len(u) - 1) * COMPOSITE_RADIUS**2))  # so that E u uᵀ is the identity
    share[0] = 1.0 - 1.0 / COMPOSITE_RADIUS**2
    normal = -0.5 * (u**2).sum(axis=1) - 0.5 * d * LOG_2PI
    ratio = ask(by.theta(stretch * u)) + np.log(stretch).sum(axis=1) + by.log_volume - normal
    log_weight = np.concatenate([np.full(len(trial), -np.inf), np.log(share) + ratio])
    return Weighted(log_weight, _efficiency(np.log(share), ratio))


def _stretch(fall: Float[np.ndarray, " k"], radius: float) -> Float[np.ndarray, " k"]:
    """The standard deviations of normal densities that fall by so much at a radius, at most twice 1 or half of it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = radius / np.sqrt(2.0 * fall)
    return np.clip(np.where(fall > 0, found, 2.0), 0.5, 2.0)


def corners(d: int) -> Float[np.ndarray, "k d"]:
    """A fraction of the corners ±1 of a cube in which no product of up to four columns is constant (resolution V)."""
    base = {5: 4, 6: 5, 7: 6, 8: 6}.get(d, d)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=base)))
    if d == 8:
        return np.column_stack([signs, signs[:, :4].prod(axis=1), signs[:, [0, 1, 4, 5]].prod(axis=1)])
    return signs if base == d else np.column_stack([signs, signs.prod(axis=1)])


# --- importance sampling ---------------------------------------------------------------------------------------------


def importance(ask: Ask, by: Frame, enough: float, most: int, seed: int) -> Weighted:
    """Draws of Student t distributions, each round's fitted to the weighted draws before it (Cornuet et al. 2012).

    Draws are those of a scrambled Sobol sequence. Ends with `enough` effective draws, or `most` of them.
    """
    d, proposals, drawn, logs = len(by.mode), [by], [], []
    size = 1 << max(6, (4 * d - 1).bit_length())
    while True:
        theta = proposals[-1].theta(_student(size, d, seed + len(drawn)))
        drawn.append(theta)
        logs.append(ask(theta))
        every, values = np.concatenate(drawn), np.concatenate(logs)
        mixed = log_sum(np.stack([_log_student(every, p) for p in proposals])) - np.log(len(proposals))
        log_weight = values - mixed - np.log(len(every))
        efficiency = Weighted(log_weight, 0.0).effective / len(every) if np.isfinite(log_weight).any() else 0.0
        result = Weighted(log_weight, efficiency)
        if len(every) + size > most or efficiency * len(every) >= enough:
            return result
        proposals.append(_fitted(every, log_weight, proposals[-1], efficiency * len(every)))


def _student(count: int, d: int, seed: int) -> Float[np.ndarray, "count d"]:
    from scipy.stats import chi2, norm, qmc  # here, since importing the library need not wait for it

    u = np.clip(qmc.Sobol(d + 1, rng=seed).random(count), 1e-12, 1.0 - 1e-12)
    return norm.ppf(u[:, :d]) * np.sqrt(FREEDOM / chi2.ppf(u[:, d:], FREEDOM))


def _log_student(theta: Float[np.ndarray, "k d"], by: Frame) -> Float[np.ndarray, " k"]:
    d, z = len(by.mode), np.linalg.solve(by.scale, (theta - by.mode).T).T
    constant = gammaln(0.5 * (FREEDOM + d)) - gammaln(0.5 * FREEDOM) - 0.5 * d * np.log(FREEDOM * np.pi)
    return constant - by.log_volume - 0.5 * (FREEDOM + d) * np.log1p((z**2).sum(axis=1) / FREEDOM)


def _fitted(
    theta: Float[np.ndarray, "k d"], log_weight: Float[np.ndarray, " k"], last: Frame, effective: float
) -> Frame:
    """The proposal with the weighted draws' mean and covariance; from few of them, drawn towards the last one's."""
    d = theta.shape[1]
    if effective < 2.0:
        return Frame(last.mode, 1.5 * last.scale)
    w = np.exp(log_weight - log_sum(log_weight))
    mean = w @ theta
    spread = (w[:, None] * (theta - mean)).T @ (theta - mean)
    trust = effective / (effective + d + 1.0)
    covariance = trust * spread + (1.0 - trust) * last.scale @ last.scale.T
    return Frame(trust * mean + (1.0 - trust) * last.mode, np.linalg.cholesky(covariance))
