"""Kernels of categories: equal or not, or with a learned similarity. A column of X holds a code for each level."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.parameters import is_parameter
from quantprop.core.records import field
from quantprop.kernels.base import VARIANCE, Bounds, Kernel, Matrix, Others, Point, Points, bounded

ANY: Bounds = (-float("inf"), float("inf"))
START = 0.5  # size of the weights that learning starts from: at 0 their derivative vanishes


class NewLevelWarning(UserWarning):
    """Warning: predictions contain levels that were unseen in training."""


class Categories(Kernel):
    """`variance` for two rows of the same level, 0 for others: an independent effect per level (random effect).

    On several columns each combination of their levels has its own effect. A level unseen in training has its prior.

    Args:
        variance: Prior variance of a level's effect; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> np.asarray(kernels.Categories(2.0).cross(np.array([[0.0], [1.0]]), np.array([[1.0]]))).tolist()
    [[0.0], [2.0]]
    """

    variance: Any = 1.0

    bounds = bounded(variance=VARIANCE)
    smoothness = 0

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * jnp.all(x == z)

    def cross(self, x: Points, z: Others) -> Matrix:
        return self.variance * _same(x, z)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self.variance * jnp.ones(len(x))


class Factor(Kernel):
    """`variance` for two rows of the same level other than the reference level, 0 for others: differences from the
    reference level (treatment coding).

    Args:
        variance: Prior variance of a difference. Formulas fix it at a large value: an unpenalised effect.
        reference: Code of the level whose effect is 0.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> codes = np.array([[0.0], [1.0], [2.0]])
    >>> np.asarray(kernels.Factor(9.0).cross(codes, codes)).tolist()
    [[0.0, 0.0, 0.0], [0.0, 9.0, 0.0], [0.0, 0.0, 9.0]]
    """

    variance: Any = 1.0
    reference: Any = 0.0

    bounds = bounded(variance=VARIANCE)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * jnp.all((x == z) & (x != self.reference))

    def cross(self, x: Points, z: Others) -> Matrix:
        return self.diagonal(x)[:, None] * _same(x, z)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self.variance * jnp.where(jnp.all(x != self.reference, axis=1), 1.0, 0.0)


class CentredFactor(Kernel):
    """Effects of levels that add up to 0, with prior variance `variance` (1 − 1/L) each: differences from the mean of
    all L levels (sum coding). A level unseen in training has no effect.

    Args:
        variance: Prior variance of an effect before centring. Formulas fix it at a large value: unpenalised effects.
        levels: Codes of all levels.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> codes = np.array([[0.0], [1.0]])
    >>> np.asarray(kernels.CentredFactor(4.0, (0.0, 1.0)).cross(codes, codes)).tolist()
    [[2.0, -2.0], [-2.0, 2.0]]
    """

    variance: Any = 1.0
    levels: tuple[float, ...] = field(default=(), static=True)

    bounds = bounded(variance=VARIANCE)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.cross(x[None], z[None])[0, 0]

    def cross(self, x: Points, z: Others) -> Matrix:
        one, other = (jnp.where(rows == jnp.array(self.levels), 1.0, 0.0) for rows in (x, z))
        return self.variance * (
            one @ other.T - jnp.outer(one.sum(axis=1), other.sum(axis=1)) / max(len(self.levels), 1)
        )

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        known = jnp.where(x == jnp.array(self.levels), 1.0, 0.0).sum(axis=1)
        return self.variance * known * (1.0 - 1.0 / max(len(self.levels), 1))


def _same(x: Points, z: Others) -> Matrix:
    """1 where all columns are equal, a column at a time."""
    same = jnp.ones((len(x), len(z)), dtype=bool)
    for column in range(x.shape[1]):
        same = same & (x[:, column][:, None] == z[:, column])
    return jnp.where(same, 1.0, 0.0)


class Coregion(Kernel):
    """Learned covariance of the levels of one column, W Wᵀ + diag(own), where W has one row per level.

    Levels are the codes 0, 1, ..., levels − 1. Multiplied by a kernel of other columns it is the intrinsic model of
    coregionalisation: a function per level. A level unseen in training is independent of the others, with their average
    variance.

    Args:
        rank: Number of columns of W.
        levels: Number of levels; estimators and tables count them by default.
        weights: W, one row per level; learned.
        own: Variance of each level that it does not share; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> found = kernels.Coregion(rank=1, levels=2, weights=[[1.0], [-1.0]], own=[0.1, 0.1]).covariance()
    >>> np.asarray(found, dtype=float).round(6).tolist()
    [[1.1, -1.0], [-1.0, 1.1]]
    """

    rank: int = field(default=1, static=True)
    levels: int | None = field(default=None, static=True)
    weights: Any = None
    own: Any = None

    bounds = bounded(weights=ANY, own=VARIANCE)
    smoothness = 0

    def __init__(self, rank: int = 1, levels: int | None = None, weights: Any = None, own: Any = None) -> None:
        if rank < 1 or (levels is not None and levels < 2):
            raise ValueError(f"Coregion: rank must be at least 1 and levels at least 2; got {rank}, {levels}")
        self.rank, self.levels = int(rank), levels
        start = None if levels is None else START * np.random.default_rng(0).standard_normal((levels, rank))
        self.weights = start if weights is None else _table(weights)
        self.own = (None if levels is None else np.ones(levels)) if own is None else _table(own)

    def __check_init__(self) -> None:
        for name, shape in (("weights", (self.levels, self.rank)), ("own", (self.levels,))):
            given = getattr(self, name)
            found = np.shape(given.value if is_parameter(given) else given)
            if given is not None and None not in shape and found != shape:
                raise ValueError(f"Coregion: {name} must have shape {shape}; got {found}")

    def of_levels(self, levels: int) -> Coregion:
        """The same with its number of levels, where it had none."""
        return self if self.levels is not None else Coregion(self.rank, levels)

    def covariance(self) -> Float[Array, "levels levels"]:
        """W Wᵀ + diag(own)."""
        if self.levels is None:
            raise ValueError("Coregion: levels is not set: pass Coregion(rank, levels), or fit an estimator, which "
                             "counts them")  # fmt: skip
        weights = jnp.asarray(self.weights)
        return weights @ weights.T + jnp.diag(jnp.asarray(self.own))

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.cross(x[None], z[None])[0, 0]

    def cross(self, x: Points, z: Others) -> Matrix:
        covariance = self.covariance()
        one, other = self._levels_of(x), self._levels_of(z)
        new = jnp.mean(jnp.diagonal(covariance)) * (1.0 - one.sum(axis=1))[:, None] * _same(x, z)
        return one @ covariance @ other.T + new

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        own, one = jnp.diagonal(self.covariance()), self._levels_of(x)
        return one @ own + (1.0 - one.sum(axis=1)) * jnp.mean(own)

    def _levels_of(self, x: Points) -> Float[Array, "n levels"]:
        """1 in the column of a row's level; a row of zeros for a level that is not known."""
        if x.shape[1] != 1:
            raise ValueError(
                f"Coregion is a kernel of one column of codes; got {x.shape[1]}: choose one with .on(column)"
            )
        return jnp.where(x == jnp.arange(self.levels), 1.0, 0.0)


def _table(given: Any) -> Any:
    return given if is_parameter(given) or hasattr(given, "shape") else np.asarray(given, dtype=np.float64)


CODED = Categories, Factor, CentredFactor, Coregion  # kernels of columns of codes
