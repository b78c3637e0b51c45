"""Effects of variables: E[f | some variables], less the effects of fewer of them, with independent variables.

The distribution of each variable is given by nodes and weights, so that all integrals are sums.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quantprop.core.records import Record, field
from quantprop.kernels.additive import Additive
from quantprop.kernels.base import Kernel, Matrix, Others, Points
from quantprop.kernels.simple import Constant, Linear
from quantprop.kernels.stationary import SquaredExponential
from quantprop.kernels.variables import LEVELS


class AtNodes(NamedTuple):
    """`each` between rows and nodes, `own` among nodes, `shift` at nodes, and the weights of the nodes."""

    each: Float[np.ndarray, "count n m"]
    own: Float[np.ndarray, "count m m"]
    shift: Float[np.ndarray, "count m"]
    weights: Float[np.ndarray, "count m"]


class EffectForm(Record):
    """Covariances of f, a function with a kernel, and the effects of sets S of variables on it.

    That of f(x) with the effect at z is outside_|S|(x) Π_{v∈S} each_v(x, z), and that of the effect at two points
    inside_|S| Π_{v∈S} own_v(x, z).
    """

    kernel: Kernel

    @property
    def order(self) -> int:
        """The largest number of variables in one effect."""
        raise NotImplementedError

    def outside(self, x: Points) -> Float[Array, "order n"]:
        raise NotImplementedError

    def inside(self) -> Float[Array, " order"]:
        raise NotImplementedError

    def each(self, x: Points, z: Others) -> Float[Array, "count n k"]:
        raise NotImplementedError

    def own(self, x: Points, z: Others) -> Float[Array, "count n k"]:
        return self.each(x, z)

    def amplitudes(self) -> Float[Array, " order"]:
        """Variances of the independent functions of which f consists, by their order."""
        return self.inside()

    def low(self, x: Points, z: Others, order: int) -> Matrix:
        """The covariance of the sums of all effects up to an order, at x and at z."""
        return jnp.tensordot(self.inside()[: order + 1], symmetric(self.own(x, z), order), 1)

    def at_nodes(self, x: Points) -> AtNodes:
        raise NotImplementedError


class AdditiveEffects(EffectForm):
    """Effects on a function with an additive kernel, whose components they are; `places` are those of its factors among
    `count` variables, `points` and `weights` the nodes of the kernel's own distribution.
    """

    points: Float[Array, "m d"]
    weights: Float[Array, "factors m"]
    places: tuple[int, ...] = field(static=True)
    count: int = field(static=True)

    @staticmethod
    def of(kernel: Additive, places: Iterable[int], count: int) -> AdditiveEffects:
        """The effects of a kernel that has its distribution."""
        return AdditiveEffects(kernel, *kernel.points(), tuple(places), count)

    kernel: Additive

    @property
    def order(self) -> int:
        return self.kernel.order

    def outside(self, x: Points) -> Float[Array, "order n"]:
        return self.inside()[:, None] * jnp.ones(len(x))

    def inside(self) -> Float[Array, " order"]:
        return jnp.array(self.kernel.amplitudes())

    def each(self, x: Points, z: Others) -> Float[Array, "count n k"]:
        return self._placed(self.kernel.each(x, z))

    def at_nodes(self, x: Points) -> AtNodes:
        own = self.kernel.each(self.points, self.points)
        found = self.kernel.each(x, self.points), own, jnp.zeros(self.weights.shape), self.weights
        return AtNodes(*map(self._placed, found))

    def _placed(self, found: Array) -> Array:
        return jnp.zeros((self.count, *found.shape[1:])).at[jnp.array(self.places)].set(found)


class ConstantEffects(EffectForm):
    """A constant, which is part of the level."""

    kernel: Constant

    @property
    def order(self) -> int:
        return 0

    def outside(self, x: Points) -> Float[Array, "order n"]:
        return self.inside()[:, None] * jnp.ones(len(x))

    def inside(self) -> Float[Array, " order"]:
        return jnp.reshape(self.kernel.variance, 1)


class ByVariable(EffectForm):
    """Effects on a function whose kernel is made of one for each variable, under nodes `points` of all variables.

    `member` is 1 for the columns of each variable.
    """

    points: Float[Array, "m d"]
    weights: Float[Array, "count m"]
    member: Float[Array, "count d"]

    def of_variables(self, x: Points, z: Others) -> Float[Array, "count n k"]:
        """The kernel of each variable."""
        raise NotImplementedError

    def mean(self, x: Points) -> Float[Array, "count n"]:
        """Its integral over the second argument."""
        return jnp.einsum("vnm,vm->vn", self.of_variables(x, self.points), self.weights)

    def whole(self) -> Float[Array, " count"]:
        """Its integral over both."""
        return jnp.einsum("vm,vm->v", self.mean(self.points), self.weights)

    def own(self, x: Points, z: Others) -> Float[Array, "count n k"]:
        a, b, c = self.mean(x)[:, :, None], self.mean(z)[:, None], self.whole()[:, None, None]
        return self.of_variables(x, z) - a - b + c

    def shift(self, x: Points) -> Float[Array, "count n"]:
        """The function that correlates the effect of a variable with the level, in units of the level."""
        return jnp.zeros((len(self.weights), len(x)))

    def at_nodes(self, x: Points) -> AtNodes:
        z = self.points
        return AtNodes(self.each(x, z), self.own(z, z), self.shift(z), self.weights)


class LinearEffects(ByVariable):
    """Effects on a linear function."""

    kernel: Linear

    @property
    def order(self) -> int:
        return 1

    def of_variables(self, x: Points, z: Others) -> Float[Array, "count n k"]:
        own = self.kernel.about
        return jnp.einsum("vd,nd,kd->vnk", self.member * self.kernel.variance, own(x), own(z))

    def outside(self, x: Points) -> Float[Array, "order n"]:
        return jnp.array([jnp.sum(self.mean(x), axis=0), jnp.ones(len(x))])

    def inside(self) -> Float[Array, " order"]:
        return jnp.array([jnp.sum(self.whole()), 1.0])

    def each(self, x: Points, z: Others) -> Float[Array, "count n k"]:
        return self.of_variables(x, z) - self.mean(x)[:, :, None]

    def amplitudes(self) -> Float[Array, " order"]:
        return jnp.array([0.0, 1.0])


class ProductEffects(ByVariable):
    """Effects on a function with a squared exponential kernel. Kernels of variables are 1 plus `of_variables`, which
    keeps the digits of long lengthscales.
    """

    kernel: SquaredExponential

    @property
    def order(self) -> int:
        return len(self.weights)

    def of_variables(self, x: Points, z: Others) -> Float[Array, "count n k"]:
        rates = jnp.broadcast_to(1.0 / self.kernel.lengthscale, x.shape[1])
        squares = ((x.T[:, :, None] - z.T[:, None]) * rates[:, None, None]) ** 2
        return jnp.expm1(-0.5 * jnp.einsum("vd,dnk->vnk", self.member, squares))

    def outside(self, x: Points) -> Float[Array, "order n"]:
        own = self.kernel.variance * jnp.prod(1.0 + self.mean(x), axis=0)
        return jnp.broadcast_to(own, (self.order + 1, len(x)))

    def inside(self) -> Float[Array, " order"]:
        own = self.kernel.variance * jnp.prod(1.0 + self.whole())
        return jnp.broadcast_to(own, (self.order + 1,))

    def each(self, x: Points, z: Others) -> Float[Array, "count n k"]:
        mean = self.mean(x)[:, :, None]
        return (self.of_variables(x, z) - mean) / (1.0 + mean)

    def own(self, x: Points, z: Others) -> Float[Array, "count n k"]:
        return super().own(x, z) / (1.0 + self.whole()[:, None, None])

    def shift(self, x: Points) -> Float[Array, "count n"]:
        whole = self.whole()[:, None]
        return (self.mean(x) - whole) / (1.0 + whole)

    def low(self, x: Points, z: Others, order: int) -> Matrix:
        """Effects are correlated: the coefficients of s^i t^j, i, j ≤ order, in Π_v (1 + s a + t b + s t own)."""

        def add(found: Array, of: Any) -> tuple[Array, None]:
            a, b, own = of
            padded = jnp.pad(found, ((1, 0), (1, 0), (0, 0), (0, 0)))
            more = a[:, None] * padded[:-1, 1:] + b * padded[1:, :-1] + own * padded[:-1, :-1]
            return found + more, None

        start = jnp.zeros((order + 1, order + 1, len(x), len(z))).at[0, 0].set(1.0)
        found, _ = jax.lax.scan(add, start, (self.shift(x), self.shift(z), self.own(x, z)))
        return self.inside()[0] * jnp.sum(found, axis=(0, 1))


FORMS = {SquaredExponential: ProductEffects, Linear: LinearEffects}


def symmetric(each: Float[Array, "count ..."], order: int) -> Float[Array, "order ..."]:
    """The elementary symmetric sums of order 0, 1, ..., of `count` arrays."""

    def add(e: Array, k: Array) -> tuple[Array, None]:
        return e.at[1:].add(e[:-1] * k), None

    start = jnp.zeros((order + 1, *each.shape[1:])).at[0].set(1.0)
    return jax.lax.scan(add, start, each)[0]


class Variables(NamedTuple):
    """The variables of rows that vary, and their distributions: columns, nodes and weights of each."""

    columns: tuple[tuple[int, ...], ...]
    points: Float[np.ndarray, "m d"]
    weights: Float[np.ndarray, "count m"]

    @staticmethod
    def of(x: Float[np.ndarray, "n d"], counts: Float[np.ndarray, " n"] | None) -> Variables:
        """The variables of an additive kernel of rows x, of which row i counts `counts[i]` times."""
        x, counts = (x, None) if counts is None else (x[counts > 0], counts[counts > 0])
        kernel = Additive(0).measured(x, counts)
        points, weights = kernel.points()
        low, high = np.min(x, axis=0), np.max(x, axis=0)
        flat = [
            c for factor, kind in zip(kernel.factors or (), kernel.kinds, strict=True) if kind == LEVELS for c in factor
        ]
        points[:, flat] = np.where(points > 0.5 * (low + high), high, low)[:, flat]
        return Variables(tuple(kernel.varying), points, weights)


def effect_form(kernel: Kernel, seen: tuple[int, ...], points: Any, variables: Variables) -> EffectForm | None:
    """The form of a kernel that sees some columns of X, and the nodes of variables as `points`; None if it has none."""
    if isinstance(kernel, Additive):
        own = [tuple(seen[c] for c in factor) for factor in kernel.varying]
        if not set(own) <= set(variables.columns):
            return None
        return AdditiveEffects.of(kernel, map(variables.columns.index, own), len(variables.columns))
    if isinstance(kernel, Constant):
        return ConstantEffects(kernel)
    if type(kernel) not in FORMS:
        return None
    member = np.array([np.isin(seen, columns) for columns in variables.columns], dtype=float)
    return FORMS[type(kernel)](kernel, points, variables.weights, member)
