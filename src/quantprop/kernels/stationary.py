"""Kernels of the distance between two points, whose derivatives keep their digits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.parameters import is_parameter, vector
from quantprop.core.records import changed, field
from quantprop.kernels.base import LENGTHSCALE, VARIANCE, Kernel, Matrix, Others, Pairs, Point, Points, bounded

UNROLLED = 32  # features whose squares are added in one pass over the pairs
MAX_LOSS = 1e-12  # error of a derivative by products, relative to the sum of all pairs' magnitudes


@jax.custom_vjp
def squared_distances(x: Points, z: Others, lengthscale: Float[Array, "..."]) -> Matrix:
    """Σ_d ((x_id − z_jd)/ℓ_d)², some features at a time; exactly 0 for equal rows.

    Differences come first. Never as |x|² + |z|² − 2 xᵀz: near pairs would lose their digits, and a large variance shows
    it. Nor of points that were divided by ℓ: a compiler may round x/ℓ otherwise than z/ℓ, and roots amplify 1e-33.
    """
    scale = jnp.broadcast_to(1.0 / lengthscale, x.shape[1:])

    def add(square, feature):
        a, b, scale = feature
        return square + ((a[:, None] - b) * scale) ** 2, None

    return jax.lax.scan(add, jnp.zeros((len(x), len(z))), (x.T, z.T, scale), unroll=min(x.shape[1], UNROLLED))[0]


def _distances_forward(x, z, lengthscale):
    square = squared_distances(x, z, lengthscale)
    return square, (x, z, lengthscale, square)


def _distances_backward(saved, by):
    """Derivatives of Σ_ij c_ij r²_ij: 2/ℓ_d² Σ_j c_ij (x_id − z_jd) in x, its mirror image in z, and in ℓ
    −2/ℓ_d³ Σ_ij c_ij (x_id − z_jd)², which for a single ℓ is −2/ℓ Σ_ij c_ij r²_ij.

    Compiled programs leave out what is not asked for.
    """
    x, z, lengthscale, square = saved
    by_x, by_z = _moments(x, z, by, 1), _moments(z, x, by.T, 1)
    if jnp.size(lengthscale) == 1:
        by_lengthscale = -2.0 * jnp.reshape(jnp.vdot(by, square), jnp.shape(lengthscale)) / lengthscale
    else:
        by_lengthscale = -2.0 * _second_moments(x, z, by, square, lengthscale) / lengthscale**3
    return 2.0 * by_x / lengthscale**2, 2.0 * by_z / lengthscale**2, by_lengthscale


def _second_moments(x: Points, z: Others, by: Matrix, square: Matrix, lengthscale: Float[Array, " d"]) -> Array:
    """Σ_ij c_ij (x_id − z_jd)² for all d: Σ_i x_id² Σ_j c_ij + Σ_j z_jd² Σ_i c_ij − 2 Σ_i x_id (c z)_id, one product of
    matrices, unless rounding errors of its terms might exceed MAX_LOSS times Σ_ij |c_ij| r²_ij.

    They do where c is largest for near pairs: with lengthscales far below the range of x, and under a root.
    """
    middle = jnp.mean(z, axis=0)
    a, b = x - middle, z - middle
    reach = jnp.max((jnp.max(a**2, axis=0) + jnp.max(b**2, axis=0)) / lengthscale**2)
    size = jnp.abs(by)
    loss = 4.0 * jnp.finfo(by.dtype).eps * reach * jnp.sum(size)

    def by_product() -> Array:
        return jnp.sum(by, axis=1) @ a**2 + jnp.sum(by, axis=0) @ b**2 - 2.0 * jnp.sum(a * (by @ b), axis=0)

    return jax.lax.cond(
        loss <= MAX_LOSS * jnp.sum(size * square), by_product, lambda: jnp.sum(_moments(x, z, by, 2), axis=0)
    )


def _moments(x: Points, z: Others, by: Matrix, power: int) -> Points:
    """Σ_j c_ij (x_id − z_jd)^power for all i and d, feature by feature, so that no array has more entries than c.

    One product of matrices, x_id Σ_j c_ij − Σ_j c_ij z_jd, would cancel: under a root c_ij grows like 1/r_ij.
    """
    return jax.lax.map(lambda row: jnp.sum(by * (row[0][:, None] - row[1]) ** power, axis=1), (x.T, z.T)).T


squared_distances.defvjp(_distances_forward, _distances_backward)


def squares(x: Points) -> dict[str, Array]:
    """The distances that one lengthscale only divides, as a piece of `Kernel.pairs`."""
    return {"squares": squared_distances(x, x, jnp.ones(()))}


def root(square: Any) -> Any:
    """√square with derivative 0, not NaN, at 0."""
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


@jax.custom_jvp
def _once(square: Any) -> Any:
    """(1 + r) exp(−r) with r² = square. Its derivative in r² is −½ exp(−r), also at 0, where r has none."""
    r = root(square)
    return (1.0 + r) * jnp.exp(-r)


_once.defjvps(lambda by, value, square: -0.5 * jnp.exp(-root(square)) * by)


@jax.custom_jvp
def _twice(square: Any) -> Any:
    """(1 + r + r²/3) exp(−r), whose derivative in r² is −(1 + r) exp(−r)/6."""
    r = root(square)
    return (1.0 + r + r * r / 3.0) * jnp.exp(-r)


_twice.defjvps(lambda by, value, square: _once(square) / -6.0 * by)


class Stationary(Kernel):
    """variance · profile(r²), r² = |x − z|²/lengthscale²; one lengthscale, or one per feature (ARD)."""

    variance: Any = 1.0
    lengthscale: Any = field(default=1.0, converter=vector)

    bounds = bounded(variance=VARIANCE, lengthscale=LENGTHSCALE)

    def profile(self, square: Any) -> Any:
        """The correlation at squared distance `square`."""
        raise NotImplementedError

    def _checked_lengthscale(self, features: int) -> Array:
        lengthscale = jnp.asarray(self.lengthscale)
        if lengthscale.ndim > 1 or lengthscale.size not in (1, features):
            raise ValueError(
                f"{type(self).__name__}: lengthscale must be one number or one per column of X ({features}); "
                f"got shape {lengthscale.shape}"
            )
        return lengthscale

    def by_column(self, count: int) -> Kernel:
        """The one lengthscale, repeated."""
        given = self.lengthscale
        number = np.asarray(given.value if is_parameter(given) else given, dtype=np.float64)
        if number.size not in (1, count):
            raise ValueError(f"{type(self).__name__}: lengthscale must be one number or one per column ({count}); "
                             f"got {number.size}")  # fmt: skip
        each = np.broadcast_to(number.reshape(-1), (count,)).copy()
        kept = changed(given, value=each) if is_parameter(given) else each
        return changed(self, lengthscale=kept)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        square = jnp.sum(((x - z) / self._checked_lengthscale(len(x))) ** 2)
        return self.variance * self.profile(square)

    def cross(self, x: Points, z: Others) -> Matrix:
        return self.variance * self.profile(squared_distances(x, z, self._checked_lengthscale(x.shape[1])))

    def pairs(self, x: Points) -> Pairs:
        """Distances that one lengthscale only divides; with one per feature they are new at every step."""
        return squares(x) if self._checked_lengthscale(x.shape[1]).size == 1 else {"x": x}

    def gram_of(self, pairs: Pairs) -> Matrix:
        lengthscale = jnp.asarray(self.lengthscale)
        if lengthscale.size > 1:
            return self.cross(pairs["x"], pairs["x"])
        return self.variance * self.profile(pairs["squares"] / jnp.reshape(lengthscale, ()) ** 2)


class SquaredExponential(Stationary):
    """variance · exp(−r²/2): smooth functions.

    Args:
        variance: Prior variance; learned.
        lengthscale: Distance over which f changes, one value or one per column of X; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> round(float(kernels.SquaredExponential(2.0, 0.5)(np.zeros(1), np.ones(1))), 4)
    0.2707
    """

    def profile(self, square: Any) -> Any:
        return jnp.exp(-0.5 * square)


class Matern12(Stationary):
    """variance · exp(−r): continuous, rough functions.

    Args:
        variance: Prior variance; learned.
        lengthscale: Distance over which f changes, one value or one per column of X; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> round(float(kernels.Matern12(2.0, 0.5)(np.zeros(1), np.ones(1))), 4)
    0.2707
    """

    smoothness = 0

    def profile(self, square: Any) -> Any:
        return jnp.exp(-root(square))


class Matern32(Stationary):
    """variance · (1 + √3 r) exp(−√3 r): functions with one derivative.

    Args:
        variance: Prior variance; learned.
        lengthscale: Distance over which f changes, one value or one per column of X; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> round(float(kernels.Matern32(2.0, 0.5)(np.zeros(1), np.ones(1))), 4)
    0.2795
    """

    smoothness = 1

    def profile(self, square: Any) -> Any:
        return _once(3.0 * square)


class Matern52(Stationary):
    """variance · (1 + √5 r + 5r²/3) exp(−√5 r): functions with two derivatives.

    Args:
        variance: Prior variance; learned.
        lengthscale: Distance over which f changes, one value or one per column of X; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> round(float(kernels.Matern52(2.0, 0.5)(np.zeros(1), np.ones(1))), 4)
    0.2773
    """

    smoothness = 2

    def profile(self, square: Any) -> Any:
        return _twice(5.0 * square)


class RationalQuadratic(Stationary):
    """variance · (1 + r²/(2 mixture))^(−mixture): a mixture of squared exponentials of many lengthscales.

    Args:
        variance: Prior variance; learned.
        lengthscale: Distance over which f changes, one value or one per column of X; learned.
        mixture: Smaller values mix more lengthscales; learned.

    >>> import numpy as np
    >>> from quantprop import kernels
    >>> round(float(kernels.RationalQuadratic(2.0, 0.5, 1.0)(np.zeros(1), np.ones(1))), 4)
    0.6667
    """

    mixture: Any = 1.0

    bounds = bounded(**Stationary.bounds, mixture=(1e-5, 1e5))

    def profile(self, square: Any) -> Any:
        return jnp.exp(-self.mixture * jnp.log1p(0.5 * square / self.mixture))
