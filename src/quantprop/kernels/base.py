"""The contract of a kernel; sums, products and powers of kernels, and kernels of some columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from quantprop.core.parameters import bounded as bounded
from quantprop.core.records import Record, changed, field
from quantprop.kernels.pairs import Pairs, prefixed, without_prefix
from quantprop.kernels.size import check_size
from quantprop.runtime.arguments import whole
from quantprop.runtime.display import Form, expression

Point = Float[Array, " d"]
Points = Float[Array, "n d"]
Others = Float[Array, "k d"]
Matrix = Float[Array, "n k"]
Bounds = tuple[float, float]
Column = int | str  # of X: its position, or its name in a frame or table

VARIANCE: Bounds = (1e-5, 1e8)  # separable data want it ever larger; posteriors are accurate up to here
LENGTHSCALE: Bounds = (1e-5, 1e5)
POSITION = whole(0)


def by_rows(k: Callable, x: Any, z: Any) -> Matrix:
    """k(x_i, z_j) for all pairs; its derivative works row by row, so that no n × k × d array is formed. A core has one
    row at a time in its cache, an accelerator 64.
    """
    row = jax.checkpoint(lambda a: jax.vmap(lambda b: k(a, b))(z))
    n = len(jax.tree.leaves(x)[0])
    return jax.lax.map(row, x, batch_size=None if jax.default_backend() == "cpu" else min(64, n))


class Kernel(Record):
    """Base of all kernels: k(x, z) for two points, `+`, `*` and `**`, and `on` to restrict it to some columns of X.

    `bounds` names the parameters that are learned, with their bounds.

    >>> from quantprop import kernels
    >>> kernel = kernels.SquaredExponential().on(0) + kernels.Linear().on([1, 2])
    >>> len(kernels.summands(kernel))
    2
    """

    bounds: ClassVar[Mapping[str, Bounds]] = {}
    stored: ClassVar[bool] = True  # files may hold it
    smoothness: ClassVar[int] = 2  # how many derivatives its functions have, of at most 2

    def __check_init__(self) -> None:
        check_size(self, lambda part: isinstance(part, Kernel))

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        raise NotImplementedError

    def cross(self, x: Points, z: Others) -> Matrix:
        """k(x_i, z_j) for all pairs."""
        return by_rows(self, x, z)

    def pairs(self, x: Points) -> Pairs:
        """All that `gram_of` needs of x and that no hyperparameter changes, in named pieces, so that learning computes
        it once; two kernels that use one name mean the same array.
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

    @property
    def inner_kernels(self) -> dict[str, Kernel]:
        """The kernels that are its fields, by name."""
        return {name: part for name, part in vars(self).items() if isinstance(part, Kernel)}

    def rebuilt(self, change: Callable[[Any], Kernel]) -> Kernel:
        """The kernel with its inner kernels changed; itself if none is."""
        old = self.inner_kernels
        new = dict(zip(old, map(change, old.values()), strict=True))
        return self if all(new[name] is old[name] for name in old) else changed(self, **new)

    def by_column(self, count: int) -> Kernel:
        """The kernel with a lengthscale for each of `count` columns; itself if it has no lengthscale."""
        return self.rebuilt(methodcaller("by_column", count))

    def on(self, columns: Column | Sequence[Column], ard: bool = False) -> Kernel:
        """The kernel of some columns of X alone: one or several, by position, or by name where X is a frame or a table;
        with `ard` it has a lengthscale for each of them.

        >>> from quantprop import kernels
        >>> kernels.SquaredExponential().on([0, 2], ard=True) + kernels.Categories().on("hospital")
        SquaredExponential(variance=1.0, lengthscale=[1.0, 1.0]).on([0, 2]) + Categories(variance=1.0).on(['hospital'])
        """
        several: Any = columns if isinstance(columns, (list, tuple)) else [columns]
        chosen = tuple(int(column) if POSITION.holds(column) else column for column in several)
        if not ard:
            return Columns(self, chosen)
        each = self.by_column(len(chosen))
        if each is self:
            raise ValueError(f"ard: {type(self).__name__} has no lengthscales; leave it out")
        return Columns(each, chosen)

    def __add__(self, other: Kernel) -> Kernel:
        return Sum(self, other)

    def __mul__(self, other: Kernel) -> Kernel:
        return Product(self, other)

    def __pow__(self, exponent: float) -> Kernel:
        return Power(self, exponent)


class Combined(Kernel):
    """Base of kernels whose values are made of those of other kernels, entry by entry."""

    def combine(self, *values: Any) -> Any:
        """Values of the kernel from those of its inner kernels."""
        raise NotImplementedError

    def _combined(self, method: str, *given: Any) -> Any:
        """From what a method of the inner kernels returns; without more frames than needed: kernels may be deep."""
        return self.combine(*map(methodcaller(method, *given), self.inner_kernels.values()))

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self._combined("__call__", x, z)

    def cross(self, x: Points, z: Others) -> Matrix:
        return self._combined("cross", x, z)

    def pairs(self, x: Points) -> Pairs:
        return {name: piece for part in self.inner_kernels.values() for name, piece in part.pairs(x).items()}

    def gram_of(self, pairs: Pairs) -> Matrix:
        return self._combined("gram_of", pairs)

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self._combined("diagonal", x)


class Sum(Combined):
    """k₁ + k₂, written `left + right`.

    Args:
        left: First kernel.
        right: Second kernel.

    >>> from quantprop import kernels
    >>> (kernels.Constant(2.0) + kernels.Constant(3.0)).gram([[0.0]]).tolist()
    [[5.0]]
    """

    left: Kernel
    right: Kernel

    _operator = "+", 1

    def combine(self, left: Any, right: Any) -> Any:
        return left + right

    def noise(self, x: Points) -> Float[Array, " n"]:
        return self.left.noise(x) + self.right.noise(x)


class Product(Combined):
    """k₁ · k₂, written `left * right`.

    Args:
        left: First kernel.
        right: Second kernel.

    >>> from quantprop import kernels
    >>> (kernels.Constant(2.0) * kernels.Constant(3.0)).gram([[0.0]]).tolist()
    [[6.0]]
    """

    left: Kernel
    right: Kernel

    _operator = "*", 2

    def combine(self, left: Any, right: Any) -> Any:
        return left * right

    def noise(self, x: Points) -> Float[Array, " n"]:
        """(k₁ + w₁)(k₂ + w₂) − k₁ k₂."""
        own = self.left.diagonal(x) - self.left.noise(x)
        return self.left.noise(x) * self.right.diagonal(x) + own * self.right.noise(x)


class Power(Combined):
    """k₁ to a fixed power, written `base ** exponent`.

    Args:
        base: A kernel.
        exponent: The power, fixed.

    >>> from quantprop import kernels
    >>> (kernels.Constant(2.0) ** 3).gram([[0.0]]).tolist()
    [[8.0]]
    """

    base: Kernel
    exponent: float = field(static=True)

    _operator = "**", 3

    def combine(self, k: Any) -> Any:
        """k to the power; below 1 with derivative 0, not NaN, at 0: white noise, and rows too far apart, stay at 0."""
        if not 0.0 < self.exponent < 1.0:
            return k**self.exponent
        return jnp.where(k == 0.0, 0.0, jnp.where(k == 0.0, 1.0, k) ** self.exponent)

    def noise(self, x: Points) -> Float[Array, " n"]:
        own = self.base.diagonal(x)
        return self.combine(own) - self.combine(own - self.base.noise(x))


class Transformed(Kernel):
    """Base of kernels of other points: k(of(x), of(z))."""

    kernel: Kernel

    def of(self, x: Points) -> Points:
        """The arguments of the inner kernel at points, or at one point."""
        raise NotImplementedError

    def __call__(self, x: Point, z: Point) -> Float[Array, ""]:
        return self.kernel(self.of(x), self.of(z))

    def cross(self, x: Points, z: Others) -> Matrix:
        return self.kernel.cross(self.of(x), self.of(z))

    def gram_of(self, pairs: Pairs) -> Matrix:
        return self.kernel.gram(self.of(pairs["x"]))

    def diagonal(self, x: Points) -> Float[Array, " n"]:
        return self.kernel.diagonal(self.of(x))

    def noise(self, x: Points) -> Float[Array, " n"]:
        return self.kernel.noise(self.of(x))


class Columns(Transformed):
    """A kernel of some columns of X, as returned by `kernel.on(columns)`.

    Args:
        kernel: A kernel.
        columns: Positions, or names, which estimators and tables replace by positions.
        names: Names of the columns that are given by position.

    >>> from quantprop import kernels
    >>> kernels.Linear().on([1, 2]).columns
    (1, 2)
    """

    columns: tuple[Column, ...] = field(static=True)
    names: tuple[str, ...] = field(default=(), static=True)

    def __check_init__(self) -> None:
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"columns must be one or more different columns of X; got {list(self.columns)}")
        bad = [c for c in self.columns if not (isinstance(c, str) or POSITION.holds(c))]
        if bad:
            raise TypeError(f"columns must be names or positions from 0; got {bad[0]!r}")
        if self.names and len(self.names) != len(self.columns):
            raise ValueError(f"names must have one entry per column, {len(self.columns)}; got {len(self.names)}")

    def _expression(self, form: Form) -> str:
        text = expression(self.kernel, form)
        shown = f"({text})" if getattr(self.kernel, "_operator", None) else text
        return f"{shown}.on({list(self.names or self.columns)!r})"

    def of(self, x: Points) -> Points:
        features = jnp.shape(x)[-1]
        for column in self.columns:
            if isinstance(column, str):
                raise ValueError(f"column {column!r} is a name, and X is an array without names: pass its position, or "
                                 "fit an estimator to a frame")  # fmt: skip
            if column >= features:
                raise ValueError(f"column {column} does not exist: X has {features} columns, counted from 0")
        return x[..., jnp.array(self.columns)]

    def by_column(self, count: int) -> Kernel:
        raise ValueError(f"ard: {self!r} already has its columns; pass ard=True to the call that sets them")

    @property
    def _prefix(self) -> str:
        """The prefix of the names of pieces of pairs: shared by all kernels of these columns, and by no other."""
        return f"{','.join(map(str, self.columns))}: "

    def pairs(self, x: Points) -> Pairs:
        return prefixed(self._prefix, self.kernel.pairs(self.of(x)))

    def gram_of(self, pairs: Pairs) -> Matrix:
        return self.kernel.gram_of(without_prefix(self._prefix, pairs))
