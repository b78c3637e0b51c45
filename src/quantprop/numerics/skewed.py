"""Distributions by mean, variance and skewness: a normal variable, bent."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr, ndtri

from quantprop.core.gaussian import LOG_2PI, Vector
from quantprop.core.records import Record
from quantprop.numerics.quadrature import Density, Landmarks, fixed_panels, frozen, integrate
from quantprop.runtime.display import gaussians, gaussians_html
from quantprop.runtime.precision import float64

STRAIGHT = 1e-8  # a bend that changes nothing in double precision, and stands for none
OUTERMOST = 12.0  # standard deviations that expectations look at
ENDS = 5.0  # scores beyond which f is linear in z: 6e-7 of the mass


class Skewed(Record):
    """Distributions of f with a given mean, variance and skewness: log-normal, shifted and mirrored as the skewness
    requires.

    f = mean + a (exp(βz − β²/2) − 1), z ~ N(0, 1), a = √variance/√(exp(β²) − 1) with the sign of β, the sign of the
    skewness (exp(β²) + 2)√(exp(β²) − 1). It is Gaussian at skewness 0 and defined for every skewness. For |z| > 5, f
    continues linearly: tails are Gaussian, as a posterior's are, and the mean of exp f exists.

    Args:
        mean: Means.
        variance: Variances.
        skewness: Skewnesses.
    """

    mean: Vector
    variance: Vector
    skewness: Vector

    def __repr__(self) -> str:
        return gaussians(self)

    def _repr_html_(self) -> str:
        return gaussians_html(self)

    @float64
    def cdf(self, f: Vector) -> np.ndarray:
        """P(F ≤ f), each row's."""
        return ndtr(np.asarray(self.score(f)))

    @float64
    def quantile(self, q: Vector) -> np.ndarray:
        """f with P(F ≤ f) = q. A scalar q gives one value per row, an array of q one row each."""
        level = np.asarray(q, dtype=np.float64)
        outside = ~((level >= 0) & (level <= 1))
        if outside.any():
            raise ValueError(f"q must lie in [0, 1]; got {level[outside].flat[0]}")
        z = np.broadcast_to(ndtri(level)[..., None], (*level.shape, len(self.mean)))
        return np.where(np.isfinite(z), self.value(np.where(np.isfinite(z), z, 0.0)), z)

    @float64
    def log_prob(self, f: Vector) -> np.ndarray:
        """log p(f), each row's."""
        z = np.asarray(self.score(f))
        return -0.5 * (z**2 + LOG_2PI) - np.log(self.slope(z))

    @float64
    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """n draws of every row (rows: draws), each row by itself."""
        return np.asarray(self.value(np.random.default_rng(seed).standard_normal((n, len(self.mean)))))

    # --- the bent scale, for arrays of JAX too -----------------------------------------------------------------------

    @property
    def bend(self) -> Vector:
        """β, with the sign of the skewness."""
        g, size = jnp.square(self.skewness), jnp.abs(self.skewness)
        root = jnp.cbrt(1.0 + 0.5 * (g + size * jnp.sqrt(4.0 + g)))
        excess = (root - 1.0) ** 2 / root  # exp(β²) − 1 = root + 1/root − 2: the solution of (x + 3)² x = g
        return jnp.where(jnp.asarray(self.skewness) < 0, -1.0, 1.0) * jnp.maximum(jnp.sqrt(jnp.log1p(excess)), STRAIGHT)

    @property
    def _reach(self) -> Vector:
        """a."""
        bend = self.bend
        return jnp.sign(bend) * jnp.sqrt(self.variance / jnp.expm1(bend**2))

    def value(self, z: Vector) -> Vector:
        """f at scores z: increasing."""
        bend, inner = self.bend, jnp.clip(z, -ENDS, ENDS)
        straight = (z - inner) * self.slope(z)
        return self.mean + self._reach * jnp.expm1(bend * inner - 0.5 * bend**2) + straight

    def score(self, f: Vector) -> Vector:
        """z at f."""
        bend = self.bend
        inner = jnp.clip(f, self.value(-ENDS), self.value(ENDS))
        z = (jnp.log1p((inner - self.mean) / self._reach) + 0.5 * bend**2) / bend
        return z + (f - inner) / self.slope(z)

    def slope(self, z: Vector) -> Vector:
        """df/dz."""
        bend = self.bend
        return self._reach * bend * jnp.exp(bend * jnp.clip(z, -ENDS, ENDS) - 0.5 * bend**2)


def scored(at: Landmarks, under: Skewed) -> Landmarks:
    """Landmarks of f as landmarks of the score z; one out of reach is at the end of it."""
    z = jnp.clip(under.score(at.location), -OUTERMOST, OUTERMOST)
    away = jnp.abs(at.location - under.value(z))
    return Landmarks(z, (at.scale + away) / under.slope(z))


def skewed_nodes(at: Landmarks, under: Skewed) -> tuple[Density, Float[Array, "panels 16"]]:
    """One such distribution on nodes that resolve the landmarks: the density of the score, and f."""
    ends = fixed_panels(-OUTERMOST, OUTERMOST, frozen(scored(at, under)))
    density = integrate(lambda z: -0.5 * z * z, ends)
    return density, under.value(density.nodes)
