"""Ordered classes: y counts the cutpoints below f + ε, ε ~ N(0, 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from scipy import special

from quantprop.core.gaussian import Vector
from quantprop.core.parameters import is_parameter, vector
from quantprop.core.records import field
from quantprop.likelihoods.base import Datum, Landmarks, Likelihood, Normal, Scalar, bounded, is_count
from quantprop.numerics.mixtures import FINE, Fineness, Places, places
from quantprop.numerics.special import log_ndtr_difference


class Graded(Likelihood):
    """Base of the likelihoods of ordered classes, which lie between cutpoints."""

    if TYPE_CHECKING:  # of the subclasses
        cutpoints: Any

    observes = "ordered"
    log_concave = True
    smooth = True
    lattice = (0.0, 1.0)

    @property
    def interval(self) -> tuple[float, float]:
        return 0.0, float(len(self.cutpoints))

    def _edges(self, y: Scalar) -> tuple[Scalar, Scalar]:
        """The cutpoints on either side of class ⌊y⌋; −∞ twice below class 0, ∞ twice above the last."""
        ends = jnp.concatenate([jnp.full(1, -jnp.inf), jnp.asarray(self.cutpoints), jnp.full(1, jnp.inf)])
        k = jnp.clip(jnp.floor(y), -1.0, len(ends) - 1.0).astype(int)
        return ends[jnp.maximum(k, 0)], ends[jnp.minimum(k + 1, len(ends) - 1)]

    def log_prob(self, datum: Datum, f: Scalar) -> Scalar:
        lower, upper = self._edges(datum.y)
        return log_ndtr_difference(lower - f, upper - f)

    def landmarks(self, datum: Datum) -> Landmarks:
        edges = jnp.stack(self._edges(datum.y))
        return Landmarks(jnp.where(jnp.isfinite(edges), edges, edges[::-1]), jnp.ones(2))

    def mean(self, datum: Datum, f: Scalar) -> Scalar:
        return jnp.sum(ndtr(f - self.cutpoints))  # Σ P(y ≥ j)

    def variance(self, datum: Datum, f: Scalar) -> Scalar:
        """Σ_jk Cov(y ≥ j, y ≥ k): P(y ≥ the larger one) times P(y < the smaller one)."""
        above, below = ndtr(f - self.cutpoints), ndtr(self.cutpoints - f)
        once = above * below
        return jnp.sum(once) + 2.0 * jnp.sum(above[1:] * jnp.cumsum(below)[:-1])

    def cdf(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return special.ndtr(self._upper(datum.y) - f)

    def cdf_places(self, datum: Datum) -> Places:
        return places((self._upper(np.clip(datum.y, 0.0, len(self.cutpoints) - 1.0)), 1.0))

    def typical(self, datum: Datum, f: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.cutpoints, f).astype(float)

    def _upper(self, y: np.ndarray) -> np.ndarray:
        """The upper end of class ⌊y⌋."""
        ends = np.concatenate([[-np.inf], self.cutpoints, [np.inf]])
        return ends[np.clip(np.floor(y) + 1.0, 0.0, len(ends) - 1.0).astype(int)]

    def draw(self, rng: np.random.Generator, datum: Datum, f: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.cutpoints, rng.normal(f)).astype(float)

    def _marginal(self, latent: Normal) -> tuple[Graded, Scalar]:
        """f + ε ~ N(m, 1 + v): y is ordinal again, in units of √(1 + v)."""
        sd = jnp.sqrt(1.0 + latent.variance)
        return Ordinal(self.cutpoints / sd), latent.mean / sd

    def predictive_moments(self, datum: Datum, latent: Normal) -> tuple[Scalar, Scalar]:
        ordinal, f = self._marginal(latent)
        return ordinal.mean(datum, f), ordinal.variance(datum, f)

    def predictive_log_prob(self, datum: Datum, latent: Normal) -> Scalar:
        ordinal, f = self._marginal(latent)
        return ordinal.log_prob(datum, f)

    def predictive_cdf(self, datum: Datum, latent: Normal, fineness: Fineness = FINE) -> np.ndarray:
        return special.ndtr((self._upper(datum.y) - latent.mean) / np.sqrt(1.0 + latent.variance))

    def in_support(self, y: np.ndarray, trials: np.ndarray) -> np.ndarray:
        return is_count(y) & (y <= len(self.cutpoints))


class Ordinal(Graded):
    """P(y = j | f) = Φ(c_{j+1} − f) − Φ(c_j − f), with c_0 = −∞, the J − 1 `cutpoints`, and c_J = ∞.

    Args:
        cutpoints: Increasing thresholds of f between consecutive classes; learned.

    >>> from quantprop import likelihoods, project
    >>> found = project(likelihoods.Ordinal([-1.0, 1.0]), y=2, cavity=(0.0, 1.0))
    >>> round(float(found.mean), 4), round(float(found.variance), 4)
    (0.9164, 0.6185)
    """

    cutpoints: Vector = field(converter=vector)

    bounds = bounded(cutpoints=(-np.inf, np.inf))
    ordered = frozenset({"cutpoints"})

    name = "ordinal"
    support = "classes 0, 1, ..., as many as there are cutpoints"

    def __check_init__(self) -> None:
        given = self.cutpoints.value if is_parameter(self.cutpoints) else self.cutpoints
        if not isinstance(given, (np.ndarray, list, tuple)):
            return  # traced: was checked before
        array = np.asarray(given, dtype=np.float64)
        if array.ndim != 1 or not len(array) or not (np.isfinite(array).all() and (np.diff(array) > 0).all()):
            raise ValueError(f"Ordinal: cutpoints must be finite, increasing numbers; got {given}")


class Ties(Graded):
    """Comparisons that may end in a tie: y = 0, 1, 2 for a loss, a tie and a win of the first item, with cutpoints
    −threshold and threshold of f + ε (Glenn and David 1960, Biometrics 16).

    Args:
        threshold: Differences of f + ε below it are ties; learned.
    """

    threshold: Any = 0.5

    bounds = bounded(threshold=(1e-4, 1e4))

    name = "ties"
    support = "0 (loss), 1 (tie) or 2 (win)"

    @property
    def cutpoints(self) -> Any:
        both = jnp if isinstance(self.threshold, jax.Array) else np
        return both.stack([-self.threshold, self.threshold])
