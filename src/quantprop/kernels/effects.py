"""Effects of variables: E[f | some variables], less the effects of fewer of them, with independent variables.

The distribution of each variable is given by nodes and weights, so that all integrals are sums.
"""

from __future__ import annotations

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


class Covariances(NamedTuple):
    """Covariances of f and the effects of sets S of variables on it: that of f(x) with the effect at z is
    outside_|S|(x) Π_{v∈S} each_v(x, z), and that of the effect at two points inside_|S| Π_{v∈S} own_v(x, z).

    `shift` ties the effect of each variable, at x and at z, to the level, in units of the level.
    """

    outside: Float[Array, "order n"]
    inside: Float[Array, " order"]
    each: Float[Array, "count n k"]
    own: Float[Array, "count n k"]
    shift: tuple[Float[Array, "count n"], Float[Array, "count k"]]

    def low(self, order: int) -> Matrix:
        """The covariance of the sums of all effects up to an order: the coefficients of s^i t^j, i, j ≤ order, in
        Π_v (1 + s shift_v(x) + t shift_v(z) + s t own_v(x, z)).
        """

        def add(found: Array, of: Any) -> tuple[Array, None]:
            a, b, own = of
            padded = jnp.pad(found, ((1, 0), (1, 0), (0, 0), (0, 0)))
            more = a[:, None] * padded[:-1, 1:] + b * padded[1:, :-1] + own * padded[:-1, :-1]
            return found + more, None

        start = jnp.zeros((order + 1, order + 1, *self.own.shape[1:])).at[0, 0].set(1.0)
        found, _ = jax.lax.scan(add, start, (*self.shift, self.own))
        return jnp.einsum("i,ijnk->nk", self.inside[: order + 1], found)


class EffectForm(Record):
    """Effects on a function with an additive, linear, squared exponential or constant kernel.

    `points` are the nodes of all variables side by side, as the kernel sees them, and `member` is 1 for the columns of
    each variable, or the factors of an additive kernel.
    """

    kernel: Any
    points: Float[Array, "m d"]
    weights: Float[Array, "count m"]
    member: Float[Array, "count d"]
    order: int = field(static=True)

    def __call__(self, x: Points, z: Others) -> Covariances:
        kernel, variance = self.kernel, jnp.asarray(self.kernel.variance)
        if isinstance(self.kernel, Constant | Additive):
            inside = jnp.array(kernel.amplitudes()) if self.order else variance.reshape(1)
            each = kernel.each(x, z) if self.order else jnp.zeros((self.member.shape[1], len(x), len(z)))
            each = jnp.einsum("vf,fnk->vnk", self.member, each)
            shift = jnp.zeros(each.shape[:2]), jnp.zeros(each.shape[::2])
            return Covariances(inside[:, None] * jnp.ones(len(x)), inside, each, each, shift)
        a, b, nodes = (self._mean(points)[:, :, None] for points in (x, z, self.points))
        b, c = b.swapaxes(1, 2), jnp.einsum("vmi,vm->vi", nodes, self.weights)[:, None]
        tied = self._of_variables(x, z) - a
        shift = (a - c)[:, :, 0], (b - c)[:, 0]
        if isinstance(self.kernel, Linear):
            same = kernel.about(self.points[0])  # of columns that do not vary, which are in the level
            flat = kernel.variance * (1.0 - jnp.sum(self.member, axis=0)) * same
            outside = jnp.array([jnp.sum(a, axis=(0, 2)) + kernel.about(x) @ flat, jnp.ones(len(x))])
            inside = jnp.array([jnp.sum(c) + same @ flat, 1.0])
            return Covariances(outside, inside, tied, tied - b + c, jax.tree.map(jnp.zeros_like, shift))
        outside, inside = variance * jnp.prod(1.0 + a, axis=0)[:, 0], variance * jnp.prod(1.0 + c)
        outside, inside = jnp.tile(outside, (self.order + 1, 1)), jnp.tile(inside, self.order + 1)
        shift = jax.tree.map(lambda own: own / (1.0 + c[:, 0]), shift)
        return Covariances(outside, inside, tied / (1.0 + a), (tied - b + c) / (1.0 + c), shift)

    def _of_variables(self, x: Points, z: Others) -> Float[Array, "count n k"]:
        """The kernel of each variable; minus 1 if the kernel is their product, for the digits of long lengthscales."""
        if isinstance(self.kernel, Linear):
            about = self.kernel.about
            return jnp.einsum("vd,nd,kd->vnk", self.member * self.kernel.variance, about(x), about(z))
        rates = jnp.broadcast_to(1.0 / self.kernel.lengthscale, x.shape[1])
        squares = ((x.T[:, :, None] - z.T[:, None]) * rates[:, None, None]) ** 2
        return jnp.expm1(-0.5 * jnp.einsum("vd,dnk->vnk", self.member, squares))

    def _mean(self, x: Points) -> Float[Array, "count n"]:
        """Its integral over the second argument."""
        return jnp.einsum("vnm,vm->vn", self._of_variables(x, self.points), self.weights)


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
        factors: Any = kernel.factors or ()
        points, weights = kernel.points()
        low, high = np.min(x, axis=0), np.max(x, axis=0)
        flat = [c for factor, kind in zip(factors, kernel.kinds, strict=True) if kind == LEVELS for c in factor]
        points[:, flat] = np.where(points > 0.5 * (low + high), high, low)[:, flat]
        return Variables(tuple(kernel.varying), points, weights)


def effect_form(kernel: Kernel, seen: tuple[int, ...], points: Any, variables: Variables) -> EffectForm | None:
    """The form of a kernel that sees some columns of X, and the nodes of variables as `points`; None if it has none."""
    columns = variables.columns
    if isinstance(kernel, Additive):
        factors = [tuple(seen[c] for c in factor) for factor in kernel.varying]
        if not set(factors) <= set(columns):
            return None
        member = np.array([[own == factor for factor in factors] for own in columns], dtype=float)
        points, weights = kernel.points()
        return EffectForm(kernel, points, member @ weights, member, kernel.order)
    orders = {SquaredExponential: len(columns), Linear: 1, Constant: 0}
    if type(kernel) not in orders:
        return None
    member = np.array([np.isin(seen, own) for own in columns], dtype=float).reshape(len(columns), len(seen))
    return EffectForm(kernel, points, variables.weights, member, orders[type(kernel)])
