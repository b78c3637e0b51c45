"""Covariance functions. A kernel is a record that sees one pair of points, or all pairs of two sets of points.

Kernels add, multiply and take powers: `SquaredExponential() + Constant(2.0) * Linear() ** 2`. A kernel of your own is a
subclass with one method, `__call__(x, z)` for two points, written in jax.numpy:

>>> import jax.numpy as jnp
>>> from quantprop import kernels
>>> class Brownian(kernels.Kernel):
...     def __call__(self, x, z):
...         return jnp.minimum(x[0], z[0])
>>> Brownian().cross(jnp.array([[1.0], [2.0]]), jnp.array([[1.5]])).tolist()
[[1.0], [1.5]]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.parameters import vector
from quantprop.runtime.display import expression, expression_html

Point = Float[Array, " d"]
Points = Float[Array, "n d"]
Matrix = Float[Array, "n k"]
Pairs = dict[str, Array]
Bounds = tuple[float, float]

VARIANCE: Bounds = (1e-5, 1e8)  # separable data want it ever larger; posteriors are accurate up to here
LENGTHSCALE: Bounds = (1e-5, 1e5)
_SQRT3, _SQRT5 = 3.0**0.5, 5.0**0.5


class Kernel(eqx.Module):
    """Base of all kernels: k(x, z) for two points, `+`, `*` and `**`.

    `bounds` names the numbers that learning may change, and how far.
    """

    bounds: ClassVar[Mapping[str, Bounds]] = {}

    def __repr__(self) -> str:
        return expression(self)

    def _repr_html_(self) -> str:
        return expression_html(self)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        raise NotImplementedError

    def cross(self, x: Points, z: Points) -> Matrix:
        """k(x_i, z_j) for all pairs; its derivative works row by row, so that no n × k × d array is formed."""
        row = jax.checkpoint(lambda a: jax.vmap(lambda b: self(a, b))(z))
        return jax.lax.map(row, x, batch_size=min(64, len(x)))

    def pairs(self, x: Points) -> Pairs:
        """All that `gram_of` needs of x and that no hyperparameter changes, so that learning computes it once.

        Pieces have names; two kernels that use one name mean the same array.
        """
        return {"x": x}

    def gram_of(self, pairs: Pairs) -> Matrix:
        """The covariance of the values at x; unlike `cross`, it knows that row i of x is the same datum twice."""
        return self.cross(pairs["x"], pairs["x"])

    def gram(self, x: Points) -> Matrix:
        """`gram_of` the pairs of x."""
        return self.gram_of(self.pairs(x))

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        """k(x_i, x_i)."""
        return jax.vmap(lambda a: self(a, a))(x)

    def noise(self, x: Points) -> Float[Array, " n"]:
        """The part of the variances that no two data share, even at the same inputs: gram = cross + diag(noise)."""
        return jnp.zeros(len(x))

    def __add__(self, other: Kernel) -> Kernel:
        return Sum(self, other)

    def __mul__(self, other: Kernel) -> Kernel:
        return Product(self, other)

    def __pow__(self, exponent: float) -> Kernel:
        return Power(self, exponent)


class Sum(Kernel):
    """k₁ + k₂."""

    left: Kernel
    right: Kernel

    _operator: ClassVar[tuple[str, int]] = ("+", 1)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.left(x, z) + self.right(x, z)

    def cross(self, x: Points, z: Points) -> Matrix:
        return self.left.cross(x, z) + self.right.cross(x, z)

    def pairs(self, x: Points) -> Pairs:
        return self.left.pairs(x) | self.right.pairs(x)

    def gram_of(self, pairs: Pairs) -> Matrix:
        return self.left.gram_of(pairs) + self.right.gram_of(pairs)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self.left.diagonal(x) + self.right.diagonal(x)

    def noise(self, x: Points) -> Float[Array, " n"]:
        return self.left.noise(x) + self.right.noise(x)


class Product(Kernel):
    """k₁ · k₂."""

    left: Kernel
    right: Kernel

    _operator: ClassVar[tuple[str, int]] = ("*", 2)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.left(x, z) * self.right(x, z)

    def cross(self, x: Points, z: Points) -> Matrix:
        return self.left.cross(x, z) * self.right.cross(x, z)

    def pairs(self, x: Points) -> Pairs:
        return self.left.pairs(x) | self.right.pairs(x)

    def gram_of(self, pairs: Pairs) -> Matrix:
        return self.left.gram_of(pairs) * self.right.gram_of(pairs)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self.left.diagonal(x) * self.right.diagonal(x)

    def noise(self, x: Points) -> Float[Array, " n"]:
        """(k₁ + w₁)(k₂ + w₂) − k₁ k₂."""
        own = self.left.diagonal(x) - self.left.noise(x)
        return self.left.noise(x) * self.right.diagonal(x) + own * self.right.noise(x)


class Power(Kernel):
    """k₁ to a fixed power."""

    base: Kernel
    exponent: float = eqx.field(static=True)

    _operator: ClassVar[tuple[str, int]] = ("**", 3)

    def _raised(self, k: Any) -> Any:
        """k to the power; below 1 with derivative 0, not NaN, at 0: white noise, and rows too far apart, stay at 0."""
        if not 0.0 < self.exponent < 1.0:
            return k**self.exponent
        return jnp.where(k == 0.0, 0.0, jnp.where(k == 0.0, 1.0, k) ** self.exponent)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self._raised(self.base(x, z))

    def cross(self, x: Points, z: Points) -> Matrix:
        return self._raised(self.base.cross(x, z))

    def pairs(self, x: Points) -> Pairs:
        return self.base.pairs(x)

    def gram_of(self, pairs: Pairs) -> Matrix:
        return self._raised(self.base.gram_of(pairs))

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self._raised(self.base.diagonal(x))

    def noise(self, x: Points) -> Float[Array, " n"]:
        own = self.base.diagonal(x)
        return self._raised(own) - self._raised(own - self.base.noise(x))


@jax.custom_vjp
def squared_distances(x: Points, z: Points, lengthscale: Float[Array, "..."]) -> Matrix:
    """Σ_d ((x_id − z_jd)/ℓ_d)², a few features at a time; exactly 0 for equal rows.

    Differences come first. Never as |x|² + |z|² − 2 xᵀz: near pairs would lose their digits, and a large variance shows
    it. Nor of points that were divided by ℓ: a compiler may round x/ℓ otherwise than z/ℓ, and roots amplify 1e-33.
    """
    scale = jnp.broadcast_to(1.0 / lengthscale, x.shape[1:])

    def add(square, feature):
        a, b, scale = feature
        return square + ((a[:, None] - b) * scale) ** 2, None

    return jax.lax.scan(add, jnp.zeros((len(x), len(z))), (x.T, z.T, scale), unroll=4)[0]


def _distances_forward(x, z, lengthscale):
    square = squared_distances(x, z, lengthscale)
    return square, (x, z, lengthscale, square)


def _distances_backward(saved, by):
    """Of Σ_ij c_ij r²_ij: 2/ℓ_d² Σ_j c_ij (x_id − z_jd) in x, its mirror image in z, and in ℓ
    −2/ℓ_d³ Σ_ij c_ij (x_id − z_jd)², which for a single ℓ is −2/ℓ Σ_ij c_ij r²_ij.

    Compiled programs leave out what is not asked for.
    """
    x, z, lengthscale, square = saved
    by_x, by_z = _moments(x, z, by, 1), _moments(z, x, by.T, 1)
    if jnp.size(lengthscale) == 1:
        by_lengthscale = -2.0 * jnp.reshape(jnp.vdot(by, square), jnp.shape(lengthscale)) / lengthscale
    else:
        by_lengthscale = -2.0 * jnp.sum(_moments(x, z, by, 2), axis=0) / lengthscale**3
    return 2.0 * by_x / lengthscale**2, 2.0 * by_z / lengthscale**2, by_lengthscale


def _moments(x: Points, z: Points, by: Matrix, power: int) -> Points:
    """Σ_j c_ij (x_id − z_jd)^power for all i and d, feature by feature, so that no array has more entries than c.

    One product of matrices, x_id Σ_j c_ij − Σ_j c_ij z_jd, would cancel: under a root c_ij grows like 1/r_ij.
    """
    return jax.lax.map(lambda row: jnp.sum(by * (row[0][:, None] - row[1]) ** power, axis=1), (x.T, z.T)).T


squared_distances.defvjp(_distances_forward, _distances_backward)


def _squares(x: Points) -> Pairs:
    return {"squares": squared_distances(x, x, jnp.ones(()))}


def _root(square: Any) -> Any:
    """√square with derivative 0, not NaN, at 0."""
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


class Stationary(Kernel):
    """variance · profile(r²), r² = |x − z|²/lengthscale²; one lengthscale, or one per feature (ARD)."""

    variance: Any = 1.0
    lengthscale: Any = eqx.field(default=1.0, converter=vector)

    bounds: ClassVar[Mapping[str, Bounds]] = {"variance": VARIANCE, "lengthscale": LENGTHSCALE}

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

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        square = jnp.sum(((x - z) / self._checked_lengthscale(len(x))) ** 2)
        return self.variance * self.profile(square)

    def cross(self, x: Points, z: Points) -> Matrix:
        return self.variance * self.profile(squared_distances(x, z, self._checked_lengthscale(x.shape[1])))

    def pairs(self, x: Points) -> Pairs:
        """Distances that one lengthscale only divides; with one per feature they are new at every step."""
        return _squares(x) if self._checked_lengthscale(x.shape[1]).size == 1 else {"x": x}

    def gram_of(self, pairs: Pairs) -> Matrix:
        lengthscale = jnp.asarray(self.lengthscale)
        if lengthscale.size > 1:
            return self.cross(pairs["x"], pairs["x"])
        return self.variance * self.profile(pairs["squares"] / jnp.reshape(lengthscale, ()) ** 2)


class SquaredExponential(Stationary):
    """variance · exp(−r²/2)."""

    def profile(self, square: Any) -> Any:
        return jnp.exp(-0.5 * square)


class Matern12(Stationary):
    """variance · exp(−r)."""

    def profile(self, square: Any) -> Any:
        return jnp.exp(-_root(square))


class Matern32(Stationary):
    """variance · (1 + √3 r) exp(−√3 r)."""

    def profile(self, square: Any) -> Any:
        r = _SQRT3 * _root(square)
        return (1.0 + r) * jnp.exp(-r)


class Matern52(Stationary):
    """variance · (1 + √5 r + 5r²/3) exp(−√5 r)."""

    def profile(self, square: Any) -> Any:
        r = _SQRT5 * _root(square)
        return (1.0 + r + r * r / 3.0) * jnp.exp(-r)


class RationalQuadratic(Stationary):
    """variance · (1 + r²/(2 mixture))^(−mixture): squared exponentials of many lengthscales."""

    mixture: Any = 1.0

    bounds: ClassVar[Mapping[str, Bounds]] = {**Stationary.bounds, "mixture": (1e-5, 1e5)}

    def profile(self, square: Any) -> Any:
        return jnp.exp(-self.mixture * jnp.log1p(0.5 * square / self.mixture))


class Periodic(Kernel):
    """variance · exp(−2 sin²(π |x − z|/period)/lengthscale²)."""

    variance: Any = 1.0
    lengthscale: Any = 1.0
    period: Any = 1.0

    bounds: ClassVar[Mapping[str, Bounds]] = {
        "variance": VARIANCE,
        "lengthscale": LENGTHSCALE,
        "period": LENGTHSCALE,
    }

    def _profile(self, square: Any) -> Any:
        return jnp.exp(-2.0 * (jnp.sin(jnp.pi * _root(square)) / self.lengthscale) ** 2)

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * self._profile(jnp.sum(((x - z) / self.period) ** 2))

    def cross(self, x: Points, z: Points) -> Matrix:
        return self.variance * self._profile(squared_distances(x, z, jnp.asarray(self.period)))

    def pairs(self, x: Points) -> Pairs:
        return _squares(x)

    def gram_of(self, pairs: Pairs) -> Matrix:
        return self.variance * self._profile(pairs["squares"] / self.period**2)


class Oscillation(Stationary):
    """variance · exp(−r) cos(2π |x − z|/period), of one feature: an oscillation whose phase and amplitude wander within
    about a lengthscale.
    """

    period: Any = 1.0

    bounds: ClassVar[Mapping[str, Bounds]] = {**Stationary.bounds, "period": LENGTHSCALE}

    def profile(self, square: Any) -> Any:
        r = _root(square)
        return jnp.exp(-r) * jnp.cos(2.0 * jnp.pi * r * jnp.reshape(jnp.asarray(self.lengthscale), ()) / self.period)


class IntegratedWiener(Kernel):
    """A trend whose slope is a Wiener process with `variance` per unit of x, of one feature: f(0) = f′(0) = 0, and both
    sides of 0 are independent.

    With m = min(|x|, |z|) it is variance · (m³/3 + |x − z| m²/2) on one side of 0. With any level and slope at 0 the
    trend is `IntegratedWiener() + Constant() + Linear()`, the local linear trend of time-series models.
    """

    variance: Any = 1.0

    bounds: ClassVar[Mapping[str, Bounds]] = {"variance": VARIANCE}

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        if len(x) != 1:
            raise ValueError(f"IntegratedWiener takes one column of X; got {len(x)}")
        near = jnp.minimum(jnp.abs(x[0]), jnp.abs(z[0]))
        both = near**3 / 3.0 + jnp.abs(x[0] - z[0]) * near**2 / 2.0
        return self.variance * jnp.where(x[0] * z[0] > 0, both, 0.0)


class Linear(Kernel):
    """variance · xᵀ z."""

    variance: Any = 1.0

    bounds: ClassVar[Mapping[str, Bounds]] = {"variance": VARIANCE}

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * jnp.sum(x * z)

    def cross(self, x: Points, z: Points) -> Matrix:
        return self.variance * (x @ z.T)


class Constant(Kernel):
    """The same covariance everywhere: an unknown offset; as a factor, a variance."""

    variance: Any = 1.0

    bounds: ClassVar[Mapping[str, Bounds]] = {"variance": VARIANCE}

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.variance * jnp.ones(())

    def cross(self, x: Points, z: Points) -> Matrix:
        return self.variance * jnp.ones((len(x), len(z)))


class White(Kernel):
    """Independent noise: `variance` for a datum with itself, 0 for two data, even at the same inputs."""

    variance: Any = 1.0

    bounds: ClassVar[Mapping[str, Bounds]] = {"variance": VARIANCE}

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return 0.0 * self.variance

    def cross(self, x: Points, z: Points) -> Matrix:
        return 0.0 * self.variance * jnp.ones((len(x), len(z)))

    def gram_of(self, pairs: Pairs) -> Matrix:
        return self.variance * jnp.eye(len(pairs["x"]))

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self.variance * jnp.ones(len(x))

    def noise(self, x: Points) -> Float[Array, " n"]:
        return self.variance * jnp.ones(len(x))
