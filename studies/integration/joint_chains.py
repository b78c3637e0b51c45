"""Long chains over hyperparameters and latent function together, in NumPy alone: what `integrate` is judged by.

With f = L(θ) v, v ~ N(0, I), a chain alternates between elliptical slice sampling of v and slice sampling of θ along
random directions with v held (Murray and Adams 2010, whitened). No approximation of the posterior is involved.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr, pdtr

from quantprop import datasets

SMALL = {"pima": 100, "mining": 112}  # sets, and how many rows of them
COUNTS = (0, 1, 3, 5)  # of which P(y ≤ count) is asked
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
JITTER = 1e-8  # of the kernel's variance
STEPS = 4  # of elliptical slice sampling for each θ


class Target(NamedTuple):
    """A model with a squared-exponential kernel; θ = (log variance, log lengthscale) has independent normal priors."""

    x: np.ndarray
    y: np.ndarray
    x_new: np.ndarray
    likelihood: str  # probit or poisson
    mean: float
    centre: np.ndarray
    deviation: np.ndarray

    @property
    def counts(self) -> tuple[int, ...]:
        """The counts that forecasts are asked about."""
        return COUNTS

    def log_likelihood(self, f: np.ndarray) -> float:
        """log p(y | f)."""
        if self.likelihood == "probit":
            return float(log_ndtr(self.y * f).sum())
        return float((self.y * f - np.exp(f) - gammaln(self.y + 1.0)).sum())

    def factor(self, theta: np.ndarray) -> np.ndarray:
        """The Cholesky factor of the prior covariance."""
        return np.linalg.cholesky(
            self.covariance(self.x, self.x, theta) + JITTER * np.exp(theta[0]) * np.eye(len(self.x))
        )

    def covariance(self, a: np.ndarray, b: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """k(a, b)."""
        squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2.0 * a @ b.T
        return np.exp(theta[0] - 0.5 * np.maximum(squares, 0.0) * np.exp(-2.0 * theta[1]))

    def log_prior(self, theta: np.ndarray) -> float:
        """log p(θ), up to a constant."""
        return float(-0.5 * (((theta - self.centre) / self.deviation) ** 2).sum())

    def forecast(self, theta: np.ndarray, factor: np.ndarray, v: np.ndarray) -> np.ndarray:
        """P(y_new = 1 | θ, f) of a class at every new input; P(y_new ≤ c | θ, f) of a count, all inputs for each c."""
        cross = np.linalg.solve(factor, self.covariance(self.x, self.x_new, theta))
        mean, variance = self.mean + cross.T @ v, np.maximum(np.exp(theta[0]) - (cross**2).sum(0), 0.0)
        if self.likelihood == "probit":
            return ndtr(mean / np.sqrt(1.0 + variance))
        rate = np.exp(mean[:, None] + np.sqrt(variance)[:, None] * NODES)
        return np.concatenate([pdtr(most, rate) @ WEIGHTS / WEIGHTS.sum() for most in self.counts])


def target_of(name: str) -> Target:
    """The first rows of a set; rows that follow, or years between, are new."""
    data = datasets.load(name, "clean")
    count, size = name == "mining", SMALL[name]
    x = (data.X - data.X.mean(0)) / data.X.std(0)
    new = np.linspace(x.min(), x.max(), 25)[:, None] if count else x[size : size + 50]
    x, y = x[:size], np.asarray(data.y[:size], dtype=float)
    mean = float(np.log(y.mean())) if count else 0.0
    centre, deviation = np.log([1.0, 1.0 if count else 3.0]), np.array([1.5, 1.0])
    return Target(x, y, new, "poisson" if count else "probit", mean, centre, deviation)


def chain(target: Target, draws: int, warmup: int, seed: int) -> dict[str, Any]:
    """One chain: moments of θ in each of its halves, and the average forecast."""
    rng = np.random.default_rng(seed)
    theta = target.centre + 0.5 * target.deviation * rng.standard_normal(2)
    factor, v = target.factor(theta), 0.1 * rng.standard_normal(len(target.x))
    kept, seen = [], []
    for i in range(warmup + draws):
        for _ in range(STEPS):
            v = _slice_v(target, factor, v, rng)
        theta, factor = _slice_theta(target, theta, factor, v, rng)
        if i >= warmup:
            kept.append(theta)
            if i % 10 == 0:
                seen.append(target.forecast(theta, factor, v))
    halves = np.split(np.array(kept)[: 2 * (draws // 2)], 2)
    moments = [[half.mean(0).tolist(), half.var(0, ddof=1).tolist()] for half in halves]
    return {"halves": moments, "forecast": np.mean(seen, axis=0).tolist()}


def _slice_v(target: Target, factor: np.ndarray, v: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Murray, Adams and MacKay (2010), Fig. 2."""
    other = rng.standard_normal(len(v))
    f, g = factor @ v, factor @ other
    level = target.log_likelihood(target.mean + f) - rng.exponential()
    angle = rng.uniform(0.0, 2.0 * np.pi)
    low, high = angle - 2.0 * np.pi, angle
    while target.log_likelihood(target.mean + f * np.cos(angle) + g * np.sin(angle)) < level:
        low, high = (angle, high) if angle < 0 else (low, angle)
        angle = rng.uniform(low, high)
    return v * np.cos(angle) + other * np.sin(angle)


def _slice_theta(
    target: Target, theta: np.ndarray, factor: np.ndarray, v: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Slice sampling along a random direction, stepping out (Neal 2003)."""

    def log_density(theta: np.ndarray) -> tuple[float, np.ndarray]:
        factor = target.factor(theta)
        return target.log_prior(theta) + target.log_likelihood(target.mean + factor @ v), factor

    direction = target.deviation * rng.standard_normal(2)
    level = target.log_prior(theta) + target.log_likelihood(target.mean + factor @ v) - rng.exponential()
    low = -rng.uniform()
    high = low + 1.0
    while log_density(theta + low * direction)[0] > level:
        low -= 1.0
    while log_density(theta + high * direction)[0] > level:
        high += 1.0
    while True:
        at = rng.uniform(low, high)
        value, new = log_density(theta + at * direction)
        if value > level:
            return theta + at * direction, new
        low, high = (at, high) if at < 0 else (low, at)


def split_rhat(means: np.ndarray, variances: np.ndarray, n: int) -> float:
    """The largest split R-hat of θ from the moments of half chains of n draws each, a row for each half."""
    within, between = variances.mean(0), n * means.var(axis=0, ddof=1)
    return float(np.sqrt(((n - 1) / n * within + between / n) / within).max())
