"""Marginals by mean, variance and skewness: a normal variable, bent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from quantprop.gaussian import LOG_2PI
from quantprop.runtime.display import gaussians, gaussians_html

Rows = Float[np.ndarray, " n"]
FLAT = 1e-8  # bend below which the density is a Gaussian to the last digit


@dataclass(frozen=True)
class Skewed:
    """Distributions of f by mean, variance and skewness: log-normal ones, shifted and mirrored as the skewness asks.

    f = mean + s √variance (exp(βz − β²/2) − 1)/√(exp(β²) − 1) with z ~ N(0, 1) and s the sign of the skewness, which
    is (exp(β²) + 2)√(exp(β²) − 1): Gaussian where it is 0, and defined for every skewness.
    """

    mean: Rows
    variance: Rows
    skewness: Rows

    def __repr__(self) -> str:
        return gaussians(self)

    def _repr_html_(self) -> str:
        return gaussians_html(self)

    @property
    def bend(self) -> Rows:
        """β, with the sign of the skewness."""
        g = self.skewness**2
        root = np.cbrt(1.0 + 0.5 * (g + np.abs(self.skewness) * np.sqrt(4.0 + g)))
        excess = (root - 1.0) ** 2 / root  # exp(β²) − 1 = root + 1/root − 2: the root of (x + 3)² x = g
        return np.sign(self.skewness) * np.sqrt(np.log1p(excess))

    def value(self, z: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "... n"]:
        """f at scores z: increasing."""
        b = self.bend
        straight = np.abs(b) < FLAT
        by = np.where(straight, 1.0, b)
        bent = np.expm1(by * z - 0.5 * by**2) / np.sqrt(np.expm1(by**2)) * np.sign(by)
        return self.mean + np.sqrt(self.variance) * np.where(straight, z, bent)

    def score(self, f: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "... n"]:
        """z at f: ±∞ beyond the end of the distribution."""
        b = self.bend
        straight = np.abs(b) < FLAT
        by, x = np.where(straight, 1.0, b), (f - self.mean) / np.sqrt(self.variance)
        inside = np.sign(by) * np.sqrt(np.expm1(by**2)) * x
        with np.errstate(divide="ignore"):
            bent = (np.log1p(np.maximum(inside, -1.0)) + 0.5 * by**2) / by
        return np.where(straight, x, bent)

    def cdf(self, f: Float[np.ndarray, " n"] | float) -> np.ndarray:
        """P(F ≤ f), each row's."""
        return ndtr(self.score(np.asarray(f, dtype=np.float64)))

    def quantile(self, q: Float[np.ndarray, "*shape"] | float) -> np.ndarray:
        """f with P(F ≤ f) = q. A scalar q gives one value per row, an array of q one row each."""
        level = np.asarray(q, dtype=np.float64)
        outside = ~((level >= 0) & (level <= 1))
        if outside.any():
            raise ValueError(f"q must lie in [0, 1]; got {level[outside].flat[0]}")
        return self.value(np.broadcast_to(ndtri(level)[..., None], (*level.shape, len(self.mean))))

    def log_prob(self, f: Float[np.ndarray, " n"] | float) -> np.ndarray:
        """log p(f), each row's."""
        z = self.score(np.asarray(f, dtype=np.float64))
        with np.errstate(invalid="ignore"):
            density = -0.5 * (z**2 + LOG_2PI) - self.log_slope(z)
        return np.where(np.isfinite(z), density, -np.inf)

    def log_slope(self, z: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "... n"]:
        """log df/dz."""
        b = self.bend
        straight = np.abs(b) < FLAT
        by = np.where(straight, 1.0, b)
        bent = by * z - 0.5 * by**2 + np.log(np.abs(by)) - 0.5 * np.log(np.expm1(by**2))
        return 0.5 * np.log(self.variance) + np.where(straight, 0.0, bent)

    def sample(self, n: int, seed: int = 0) -> Float[np.ndarray, "n k"]:
        """n draws of every row (rows: draws), each row by itself."""
        return self.value(np.random.default_rng(seed).standard_normal((n, len(self.mean))))
